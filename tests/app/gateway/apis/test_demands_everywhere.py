"""Musts and preferences of each API at each other one, and where a provider refuses them: one table for all of it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from providers.simulator import Status, Step, answer
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.apis.test_plain_models import APIS, CHAT, GEMINI, MESSAGES, RESPONSES, SCRIPTS, TURN
from tests.app.gateway.running_gateway import MODEL, RunningGateway
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
FUNCTION = {"name": "look", "parameters": SCHEMA}
PICTURE = "data:image/png;base64,iVBORw0KGgo="
TOOLS: Mapping[str, Any] = {
    CHAT: [{"type": "function", "function": FUNCTION}],
    RESPONSES: [{"type": "function", **FUNCTION, "strict": False}],
    MESSAGES: [{"name": "look", "input_schema": SCHEMA}],
    GEMINI: [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": SCHEMA}]}],
}
BODIES: Mapping[str, Any] = {
    CHAT: {"model": MODEL, "messages": TURN},
    RESPONSES: {"model": MODEL, "input": TURN},
    MESSAGES: {"model": MODEL, "messages": TURN, "max_tokens": 700},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


class Row(NamedTuple):
    """A field that a client sets; ``beside`` what it needs; ``sign``: stands in what is sent if it is taken."""

    path: str
    field: str
    value: Any
    beside: Mapping[str, Any] = {}
    sign: str = ""

    @property
    def body(self) -> dict[str, Any]:
        """The request; a field within another stands in it."""
        outer, _, inner = self.field.partition(".")
        said = {outer: {**self.beside.get(outer, {}), inner: self.value}} if inner else {outer: self.value}
        return {**BODIES[self.path], **self.beside, **said}

    def __str__(self) -> str:
        return f"{APIS[self.path]}-{self.field}-{json.dumps(self.value)[:20]}"


def tools(path: str) -> Mapping[str, Any]:
    return {"tools": TOOLS[path]}


SEARCH = [*TOOLS[RESPONSES], {"type": "web_search"}]
CLOSELY = {
    "inlineData": {"mimeType": "image/png", "data": PICTURE.partition(",")[2]},
    "mediaResolution": {"level": "MEDIA_RESOLUTION_HIGH"},
}
AUTO = {**tools(MESSAGES), "tool_choice": {"type": "auto"}}
# Where a must is lost, it keeps the deployment out: it is in no header.
MUSTS = [
    Row(CHAT, "n", 2),
    Row(CHAT, "seed", 7),
    Row(CHAT, "stop", ["halt"], sign="halt"),
    Row(CHAT, "store", value=True),
    Row(CHAT, "logprobs", value=True),
    Row(CHAT, "logit_bias", {"5": 1}),
    Row(CHAT, "temperature", 0),
    Row(CHAT, "max_tokens", 77, sign="77"),
    Row(CHAT, "service_tier", "priority"),
    Row(CHAT, "tool_choice", "required", tools(CHAT)),
    Row(CHAT, "response_format", {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}),
    Row(RESPONSES, "temperature", 0),
    Row(RESPONSES, "max_output_tokens", 77, sign="77"),
    Row(RESPONSES, "max_tool_calls", 3, {"tools": SEARCH}),
    Row(RESPONSES, "service_tier", "priority"),
    Row(RESPONSES, "tool_choice", "required", tools(RESPONSES)),
    Row(RESPONSES, "text", {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}),
    Row(MESSAGES, "inference_geo", "us"),
    Row(MESSAGES, "temperature", 0),
    Row(MESSAGES, "stop_sequences", ["halt"], sign="halt"),
    Row(MESSAGES, "max_tokens", 77, sign="77"),
    Row(MESSAGES, "tool_choice", {"type": "any"}, tools(MESSAGES)),
    Row(MESSAGES, "output_config", {"format": {"type": "json_schema", "schema": SCHEMA}}),
    Row(GEMINI, "safetySettings", [{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_LOW_AND_ABOVE"}]),
    Row(GEMINI, "generationConfig.candidateCount", 2),
    Row(GEMINI, "generationConfig.seed", 7),
    Row(GEMINI, "generationConfig.stopSequences", ["halt"], sign="halt"),
    Row(GEMINI, "generationConfig.maxOutputTokens", 77, sign="77"),
    Row(GEMINI, "toolConfig", {"functionCallingConfig": {"mode": "ANY"}}, tools(GEMINI)),
]
# Where a preference is lost, it is in the header, and the call is answered.
CONTENT = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": PICTURE, "detail": "low"}}]
INPUT = [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": PICTURE, "detail": "original"}]
MARKED = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h", "scope": "global"}}]
PREFERENCES = [
    Row(CHAT, "temperature", 0.37, sign="0.37"),
    Row(CHAT, "top_p", 0.93, sign="0.93"),
    Row(CHAT, "top_k", 64, sign="64"),
    Row(CHAT, "min_p", 0.05, sign="0.05"),
    Row(CHAT, "frequency_penalty", 0.25, sign="0.25"),
    Row(CHAT, "verbosity", "low", sign='"low"'),
    Row(CHAT, "reasoning_effort", "high", {**tools(CHAT), "tool_choice": "required"}),
    Row(CHAT, "thinking", {"type": "enabled"}),
    Row(CHAT, "enable_thinking", value=True),
    Row(CHAT, "safety_identifier", "u-1"),
    Row(CHAT, "prompt_cache_retention", "24h", sign="24h"),
    Row(CHAT, "messages", [{"role": "user", "content": CONTENT}], sign='"low"'),
    Row(
        CHAT, "preserve_thinking", value=True, sign="preserve_thinking"
    ),  # a program's default: providers/vendors/defaults.toml
    Row(CHAT, "usage", {"include": True}, sign='"include"'),
    Row(CHAT, "drop_params", value=True, sign="drop_params"),
    Row(CHAT, "litellm_session_id", "cline-1", sign="cline-1"),
    Row(CHAT, "parallel_tool_calls", value=False, beside=tools(CHAT)),
    Row(RESPONSES, "truncation", "auto", sign='"auto"'),
    Row(RESPONSES, "max_tool_calls", 3, tools(RESPONSES), sign="max_tool_calls"),
    Row(RESPONSES, "text", {"verbosity": "low"}, sign='"low"'),
    Row(RESPONSES, "reasoning", {"effort": "high", "summary": "auto"}, {**tools(RESPONSES), "tool_choice": "required"}),
    Row(RESPONSES, "context_management", [{"type": "compaction", "compact_threshold": 200000}], sign="compact_thre"),
    Row(RESPONSES, "input", [{"role": "user", "content": INPUT}], sign='"original"'),
    Row(RESPONSES, "tools", SEARCH, sign="web_search"),
    Row(RESPONSES, "parallel_tool_calls", value=False, beside=tools(RESPONSES)),
    Row(MESSAGES, "thinking", {"type": "enabled", "budget_tokens": 1024}, {"max_tokens": 4000}),
    Row(MESSAGES, "output_config", {"effort": "high"}),
    Row(MESSAGES, "top_k", 64, sign="64"),
    Row(MESSAGES, "context_management", {"edits": [{"type": "clear_tool_uses_20250919"}]}, sign="clear_tool"),
    Row(MESSAGES, "context_management", {"edits": [{"type": "compact_20260112"}]}, sign="compact_2"),
    Row(MESSAGES, "messages", [{"role": "user", "content": MARKED}], sign="cache_control"),
    Row(MESSAGES, "speed", "fast", sign='"fast"'),
    Row(MESSAGES, "tool_choice.disable_parallel_tool_use", value=True, beside=AUTO),
    Row(GEMINI, "generationConfig.temperature", 0, sign=": 0"),
    Row(GEMINI, "generationConfig.topK", 64, sign="64"),
    Row(GEMINI, "generationConfig.mediaResolution", "MEDIA_RESOLUTION_LOW", sign="MEDIA_RESOLUTION_LOW"),
    Row(GEMINI, "contents", [{"role": "user", "parts": [CLOSELY]}], sign="MEDIA_RESOLUTION_HIGH"),
    Row(GEMINI, "generationConfig.thinkingConfig", {"thinkingBudget": 2048, "includeThoughts": True}),
    Row(GEMINI, "labels", {"a": "b"}, sign="labels"),
]


def provider(api: str) -> dict[str, Any]:
    return {**speaking(api), **({"kind": "gemini"} if api == "gemini" else {})}


def names(row: Row, dropped: str) -> bool:
    """Whether a header names the field, something in it, or what it is in."""
    each = row.field.partition(".")[2] or row.field
    return any(each in name or name in row.field for name in dropped.split(", ") if name)


def at(api: str, *others: str, **item: Any) -> dict[str, Any]:
    """Return the configuration of a deployment in this API, and of others in theirs, which race."""
    named = dict(zip(("alpha", "beta"), (api, *others), strict=False))
    deployments = [{"deployment": f"{name}/m", **item} for name in named]
    return {
        "models": {MODEL: {"deployments": deployments, "race": {"mode": "race", "width": 2}}},
        "providers": {name: provider(each) for name, each in named.items()},
    }


def posted(running: RunningGateway, row: Row) -> Any:
    """Post the request of a row."""
    model = MODEL + running.suffix
    body = {**row.body, "model": model} if "model" in row.body else row.body
    return running.post(body, path=row.path.replace(MODEL, model))


@pytest.mark.parametrize("api", APIS.values())
@pytest.mark.parametrize("row", MUSTS, ids=str)
async def test_a_must_is_held_by_whoever_is_asked(shared: SharedGateways, row: Row, api: str) -> None:
    own = APIS[row.path]
    async with shared.row(alpha=SCRIPTS[api], config=at(api)) as running:
        async with posted(running, row) as response:
            dropped, taken = response.headers.get("x-holeshot-dropped", ""), response.status == 200
            assert taken or response.status == 400
        received = running.received("alpha")
    assert bool(received) is taken  # it is known before anybody is asked
    assert taken or api != own
    if taken:
        sent = json.dumps(received[0].body)
        assert row.sign in sent
        assert row.sign or not names(row, dropped)  # what is sent may be told for another reason: which stop was met
        return
    async with shared.row(alpha=SCRIPTS[api], beta=SCRIPTS[own], config=at(api, own)) as running:
        async with posted(running, row) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta" + running.suffix)
            assert not names(row, response.headers.get("x-holeshot-dropped", ""))
        assert (len(running.received("alpha")), len(running.received("beta"))) == (0, 1)
    config = at(api, drop_params=True)
    async with shared.row(alpha=SCRIPTS[api], config=config) as running, posted(running, row) as response:
        assert (response.status, names(row, response.headers["x-holeshot-dropped"])) == (200, True)


@pytest.mark.parametrize("api", APIS.values())
@pytest.mark.parametrize("row", PREFERENCES, ids=str)
async def test_a_preference_keeps_nobody_out_and_is_told_where_it_is_lost(
    shared: SharedGateways, row: Row, api: str
) -> None:
    async with shared.row(alpha=SCRIPTS[api], config=at(api)) as running:
        async with posted(running, row) as response:
            assert response.status == 200, await response.text()
            dropped = response.headers.get("x-holeshot-dropped", "")
        sent = json.dumps(running.received("alpha")[0].body)
    if row.sign:
        assert (row.sign in sent) is not names(row, dropped), (sent, dropped)


# What a provider refuses by its name, in the client's own API.

# What is in them is refused by where it is: see test_refused_fields.py.
OF_A_PART = {"contents", "input", "messages", "tools"}


def refusing(field: str, api: str) -> Any:
    """Return the answers of a provider that refuses a field, in the words of most servers of its API."""
    outer, _, inner = field.partition(".")

    def answered(body: Any) -> Sequence[Step]:
        if not (inner in body.get(outer, ()) if inner else outer in body):
            return SCRIPTS[api] or answer("Hello")
        said = (
            f'Unknown name "{inner or outer}": Cannot find field.'
            if api == "gemini"
            else f"{field}: Extra inputs are not permitted"
        )
        return [Status(400, {"error": {"message": said, "type": "invalid_request_error", "code": 400}})]

    return answered


@pytest.mark.parametrize("row", [row for row in MUSTS if row.field != "max_tokens"], ids=str)
async def test_a_must_that_is_refused_is_left_out_nowhere_and_another_is_asked(
    shared: SharedGateways, row: Row
) -> None:
    own = APIS[row.path]
    async with shared.row(alpha=SCRIPTS[own], config=at(own)) as running:
        running["alpha"].answers = refusing(row.field, own)
        async with posted(running, row) as response:
            assert response.status == 400, response.headers
    async with shared.row(alpha=SCRIPTS[own], beta=SCRIPTS[own], config=at(own, own)) as running:
        running["alpha"].answers = refusing(row.field, own)
        running.prefer("alpha", "beta")
        async with posted(running, row) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta" + running.suffix)
            assert not names(row, response.headers.get("x-holeshot-dropped", ""))


@pytest.mark.parametrize("row", [row for row in PREFERENCES if row.field not in OF_A_PART], ids=str)
async def test_a_preference_that_is_refused_is_left_out_and_told(shared: SharedGateways, row: Row) -> None:
    own = APIS[row.path]
    async with shared.row(alpha=SCRIPTS[own], config=at(own)) as running:
        running["alpha"].answers = refusing(row.field, own)
        for _ in range(2):
            async with posted(running, row) as response:
                assert response.status == 200, await response.text()
                assert names(row, response.headers["x-holeshot-dropped"])
