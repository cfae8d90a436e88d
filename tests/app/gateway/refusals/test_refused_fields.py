"""A model that refuses a field by its name: asked once more without it, and at once from then on; nothing else is."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from aiohttp import web
from structlog.typing import EventDict

from providers.simulator import Gate, Raw, Status, Step, answer
from providers.simulator import serve as serving
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, speaking
from tests.app.gateway.apis.test_gemini import TEXT_BYTES as GEMINI_BYTES
from tests.app.gateway.apis.test_interactions import TEXT_BYTES as INTERACTION_BYTES
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.races.test_bedrock import AWS, beside
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.shared_gateway import SharedGateways
from tests.app.providers.test_bedrock_converse import Bedrock

pytestmark = pytest.mark.asyncio(loop_scope="module")
Agent = tuple[str, dict[str, Any], set[str]]  # its path and body, and what it is told
Answers = Callable[[Any], Sequence[Step]]
QUESTION = [{"role": "user", "content": "Hi"}]
CLAUDE_CODE = {
    "max_tokens": 8000,
    "messages": QUESTION,
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "high"},
}
CODEX = {
    "input": "Hi",
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
}
ANSWERS: Mapping[str, Sequence[Step]] = {
    "chat": answer("Hello"),
    "messages": [Raw(MESSAGE_BYTES, token=True)],
    "responses": [Raw(RESPONSE_BYTES, token=True)],
    "gemini": [Raw(GEMINI_BYTES, token=True)],
}
VENDORS = {
    "OpenAI": (400, "Unrecognized request argument supplied: {}"),
    "Groq": (400, "`{}` is not supported with this model"),
    "xAI": (400, "Model grok-4-0709 does not support parameter reasoningEffort."),
    "Mistral": (
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "{}"], "msg": "Extra inputs are not permitted"}]},
    ),
    "OpenRouter": (
        400,
        {
            "error": {"code": "invalid_prompt", "message": "Invalid request"},
            "metadata": {
                "raw": '[{"code": "unrecognized_keys", "keys": ["{}"], "path": [], "message": "Unknown key"}]'
            },
        },
    ),
    "an own server, in Spanish": (500, "Par\u00e1metro no admitido: {}"),
    "an own server": (500, "create() got an unexpected keyword argument '{}'"),
}


def refused(said: Any, status: int = 400, **more: Any) -> list[Step]:
    error = {"message": said, "type": "invalid_request_error", "param": None, "code": None, **more}
    return [Status(status, said if isinstance(said, dict) else {"error": error})]


def refusing(*names: str, status: int = 400, said: Any = "Unrecognized request argument supplied: {}") -> Answers:
    """Return the answers of a chat model that refuses these fields, one after the other."""

    def answered(body: Any) -> Sequence[Step]:
        for name in names:
            if name in body:
                words = json.loads(json.dumps(said).replace("{}", name))
                return refused(words, status)
        return ANSWERS["chat"]

    return answered


def once_all_have_learnt(learnt: Mapping[str, asyncio.Event], name: str, answers: Answers, field: str) -> Answers:
    """Return answers that come once all are asked without the field: one that is cut before learns nothing."""

    def answered(body: Any) -> Sequence[Step]:
        if field in json.dumps(body):
            return answers(body)
        learnt[name].set()
        return [*map(Gate, learnt.values()), *answers(body)]

    return answered


async def told(running: RunningGateway, body: Mapping[str, Any], path: str = "/v1/chat/completions") -> Any:
    """Return the status of a call, and what its client is told was left out."""
    async with running.post({"model": MODEL + running.suffix, **body}, path=path) as response:
        await response.read()
    return response.status, response.headers.get("x-holeshot-dropped")


async def learnt(
    running: RunningGateway, body: Mapping[str, Any], path: str = "/v1/chat/completions", *, dropped: str | None
) -> None:
    """Make a call twice that alpha refuses as it is: the second is sent at once as alpha takes it."""
    for sendings in (2, 3):
        assert await told(running, body, path) == (200, dropped)
        assert len(running.received("alpha")) == sendings


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize(
    "agent",
    [("/v1/messages", CLAUDE_CODE, {"thinking"}), ("/v1/responses", CODEX, {"reasoning.effort"})],
    ids=["Claude Code's", "Codex'"],
)
async def test_an_agents_default_is_answered_by_a_model_that_does_not_think(
    shared: SharedGateways, agent: Agent, vendor: str, stream: bool
) -> None:
    path, body, names = agent
    status, said = VENDORS[vendor]
    async with shared.row(alpha=None) as running:
        running["alpha"].answers = refusing("reasoning_effort", status=status, said=said)
        for sendings in (2, 3):
            answered, dropped = await told(running, body | {"stream": stream}, path)
            assert answered == 200
            assert names <= set(str(dropped).split(", "))
            assert len(running.received("alpha")) == sendings
        rows = await running.rows(f"select dropped from calls where model = '{MODEL}{running.suffix}'")
    assert all(names <= set(json.loads(row["dropped"])) for row in rows)
    assert len(rows) == 2


async def test_what_is_learnt_is_logged_once_and_stands_in_the_leaderboard(
    serve: Serve, logged: list[EventDict]
) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        for _ in range(2):
            assert await told(running, {"messages": QUESTION, "reasoning_effort": "low"}) == (200, "reasoning_effort")
        async with running.get("/leaderboard") as response:
            [row] = (await response.json())["models"][0]["deployments"]
    assert row["refuses"] == ["reasoning_effort"]
    [line] = [entry for entry in logged if entry["event"] == "deployment.learnt"]
    assert (line["deployment"], line["refused"], line["field"]) == ("alpha/m", "field", "reasoning_effort")


async def test_both_of_a_race_are_asked_at_once_as_they_want(serve: Serve) -> None:
    asked = {"messages": QUESTION, "reasoning_effort": "low", "stream": True}
    async with serve(alpha=None, beta=None) as running:
        learnt = {name: asyncio.Event() for name in ("alpha", "beta")}
        for name in ("alpha", "beta"):
            running[name].answers = once_all_have_learnt(learnt, name, refusing("reasoning_effort"), "reasoning_effort")
            running.prefer(name, *({"alpha", "beta"} - {name}))
        for _ in range(3):
            assert await told(running, asked) == (200, "reasoning_effort")
        efforts = [[("reasoning_effort" in one.body) for one in running[name].received] for name in ("alpha", "beta")]
    assert all(sum(each) <= 1 for each in efforts)


# Messages of Claude Code and of its SDK, as they are refused (anthropics/claude-code/issues/11678, 27065 and 31033,
# anthropics/claude-agent-sdk-python/issues/694). Alone it asks again without; in a race it never hears of it.
OF_TOOLS = ["defer_loading", "eager_input_streaming", "input_examples"]
FOUND = {
    "type": "tool_result",
    "tool_use_id": "a",
    "content": [{"type": "tool_reference", "tool_name": "Fetch", "cache_control": {"type": "ephemeral"}}],
}


def refusing_of_tools(body: Any) -> Sequence[Step]:
    """Refuse what another server than Anthropic's does not know of tools, and of what was found of them."""
    for number, tool in enumerate(body["tools"]):
        for name in OF_TOOLS:
            if name in tool:
                return [Status(400, error_of(f"tools.{number}.custom.{name}: Extra inputs are not permitted"))]
    if "tool_reference" in json.dumps(body):
        return [Status(400, error_of("messages.2.content.0.tool_result.content.0: Input tag 'tool_reference' found"))]
    return ANSWERS["messages"]


def error_of(message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


def with_found_tools(*names: str) -> dict[str, Any]:
    """Return a request of Messages with a tool that has these fields, and that was found."""
    schema = {"type": "object", "properties": {}}
    given: dict[str, Any] = {"defer_loading": True, "eager_input_streaming": True, "input_examples": [{}]}
    tools: list[dict[str, Any]] = [{"name": "Find", "input_schema": schema}, {"name": "Fetch", "input_schema": schema}]
    tools[1] |= {name: given[name] for name in names}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "Find", "input": {}}]}
    found = FOUND if "defer_loading" in names else {**FOUND, "content": "nothing"}
    return {"max_tokens": 9, "tools": tools, "messages": [*QUESTION, called, {"role": "user", "content": [found]}]}


@pytest.mark.parametrize("names", [[name] for name in OF_TOOLS] + [OF_TOOLS], ids=", ".join)
async def test_what_a_server_does_not_know_of_tools_is_left_out_and_told(serve: Serve, names: list[str]) -> None:
    async with serve(alpha=None, config={"providers": {"alpha": {"apis": ["messages"]}}}) as running:
        running["alpha"].answers = refusing_of_tools
        for more in (len(names) + 1, 1):
            before = len(running["alpha"].received)
            status, dropped = await told(running, with_found_tools(*names), "/v1/messages")
            assert (status, set(dropped.split(", "))) == (200, {f"tools.{name}" for name in names})
            assert len(running["alpha"].received) == before + more
        last = running["alpha"].received[-1].body
        assert [tool["name"] for tool in last["tools"]] == ["Find", "Fetch"]
        if "defer_loading" in names:
            text = {"type": "text", "text": "Tool loaded: Fetch", "cache_control": {"type": "ephemeral"}}
            assert last["messages"][2]["content"][0]["content"] == [text]
        assert await told(running, with_found_tools(), "/v1/messages") == (200, None)  # others' are as they were
        assert running["alpha"].received[-1].body["messages"] == with_found_tools()["messages"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_tools_that_say_what_they_are_anyway_do_not_say_it_where_that_is_refused(
    serve: Serve, stream: bool
) -> None:
    def refusing_types(body: Any) -> Sequence[Step]:
        said = [number for number, tool in enumerate(body["tools"]) if "type" in tool]
        refusal = error_of(f"tools.{said[0]}.type: Input should be 'function'") if said else None
        return ANSWERS["messages"] if refusal is None else [Status(400, refusal)]

    tool = {"name": "look", "input_schema": {"type": "object", "properties": {}}}
    asked = {"max_tokens": 9, "messages": QUESTION, "tools": [tool, {"type": "custom", **tool, "name": "read"}]}
    async with serve(alpha=None, config={"providers": {"alpha": {"apis": ["messages"]}}}) as running:
        running["alpha"].answers = refusing_types
        await learnt(running, asked | {"stream": stream}, "/v1/messages", dropped="tools.type")
        assert running["alpha"].received[-1].body["tools"] == [tool, {**tool, "name": "read"}]


async def test_in_a_race_who_does_not_know_it_is_asked_without_and_the_other_with_it(serve: Serve) -> None:
    apis, learnt = {"apis": ["messages"]}, asyncio.Event()
    async with serve(
        alpha=None, beta=[Gate(learnt), *ANSWERS["messages"]], config={"providers": {"alpha": apis, "beta": apis}}
    ) as running:
        running["alpha"].answers = once_all_have_learnt({"alpha": learnt}, "alpha", refusing_of_tools, "defer_loading")
        for first in ("alpha", "beta", "alpha"):
            running.prefer(first, *({"alpha", "beta"} - {first}))
            status, _ = await told(running, with_found_tools("defer_loading"), "/v1/messages")
            assert status == 200
        asked = {
            name: ["defer_loading" in json.dumps(each.body) for each in running[name].received]
            for name in ("alpha", "beta")
        }
    assert sum(asked["alpha"]) <= 1
    assert all(asked["beta"])


NATIVE = [
    ("messages", "/v1/messages", CLAUDE_CODE, "output_config", "output_config: Extra inputs are not permitted"),
    (
        "responses",
        "/v1/responses",
        CODEX,
        "reasoning",
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
    ),
    ("responses", "/v1/responses", CODEX, "include", "Encrypted content is not supported with this model."),
    (
        "gemini",
        f"/v1beta/models/{MODEL}:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "generationConfig": {"thinkingConfig": {"thinkingLevel": "high"}, "temperature": 1},
        },
        "generationConfig.thinkingConfig",
        "Invalid JSON payload received. Unknown name \"thinkingConfig\" at 'generation_config': Cannot find field.",
    ),
]


@pytest.mark.parametrize("native", NATIVE, ids=lambda native: native[3])
async def test_in_its_own_api_too(serve: Serve, native: tuple[str, str, dict[str, Any], str, str]) -> None:
    api, path, body, name, said = native

    def has(sent: Any) -> bool:
        for part in name.split("."):
            sent = sent.get(part, {})
        return bool("effort" in sent if name == "reasoning" else sent)

    async with serve(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = lambda sent: refused(said) if has(sent) else ANSWERS[api]
        for sendings in (2, 3):
            status, dropped = await told(running, body, path)
            assert (status, len(running["alpha"].received)) == (200, sendings)
            assert str(dropped).startswith(name)


DEFAULT = "Unsupported value: '{}' does not support 0.2 with this model. Only the default (1) value is supported."


@pytest.mark.parametrize("allowed", [True, False], ids=["drop_params", "as usual"])
async def test_parameters_are_left_out_one_by_one_where_the_operator_allows_it(serve: Serve, allowed: bool) -> None:
    deployment = {"deployment": "alpha/m", "drop_params": allowed}
    asked = {"messages": QUESTION, "temperature": 0.2, "top_p": 0.2, "stop": ["x"]}
    async with serve(alpha=None, config={"models": {MODEL: {"deployments": [deployment]}}}) as running:
        running["alpha"].answers = refusing("temperature", "top_p", "stop", said=DEFAULT)
        if allowed:
            assert await told(running, asked) == (200, "temperature, top_p, stop")
            assert len(running["alpha"].received) == 4
            assert await told(running, asked) == (200, "temperature, top_p, stop")
            assert len(running["alpha"].received) == 5
        else:
            assert await told(running, asked) == (400, None)
            assert len(running["alpha"].received) == 3  # without a preference each


@pytest.mark.parametrize("most", [10, 7])
async def test_more_fields_than_a_call_may_make_requests_are_learnt_over_several_calls(serve: Serve, most: int) -> None:
    names = [f"field_{number}" for number in range(9)]
    deployment = {"deployment": "alpha/m", "drop_params": True}
    asked = {"messages": QUESTION, **dict.fromkeys(names, 1)}
    config = {"models": {MODEL: {"deployments": [deployment]}}, "max_requests": most}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = refusing(*names)
        if most == 7:
            assert (await told(running, asked))[0] == 400
            assert len(running["alpha"].received) == 7
        assert await told(running, asked) == (200, ", ".join(names))
        assert await told(running, asked) == (200, ", ".join(names))
        assert len(running["alpha"].received) == (7 + 4 + 1 if most == 7 else 10 + 1)


HINTS: Mapping[str, Any] = {
    "verbosity": "low",
    "reasoning_effort": "low",
    "temperature": 0.3,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.1,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "user": "u",
    "metadata": {"a": "b"},
    "service_tier": "flex",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("within", [False, True], ids=["by a status", "within an answer"])
async def test_two_that_refuse_a_dozen_hints_one_after_the_other_answer_all_the_same(
    serve: Serve, *, within: bool, stream: bool
) -> None:
    answers = refusing(*HINTS, status=200 if within else 400)
    async with serve(alpha=None, beta=None) as running:
        running.prefer("alpha", "beta")
        down = [Status(503, {"error": {"message": "down"}})]
        running["alpha"].answers = lambda body: answers(body) if HINTS.keys() & body else down
        running["beta"].answers = answers
        status, dropped = await told(running, {"messages": QUESTION, "seed": 7, **HINTS, "stream": stream})
        assert (status, {*str(dropped).split(", ")}) == (200, {*HINTS})
        sent = [len(running[name].received) for name in ("alpha", "beta")]
        assert sent == [4, 4]
        assert running["beta"].received[-1].body["seed"] == 7  # a must
        async with running.get("/leaderboard") as response:
            rows = (await response.json())["models"][0]["deployments"]
    [refused_by_beta] = [row["refuses"] for row in rows if row["deployment"] == "beta/m"]
    assert refused_by_beta == [*HINTS][:3]


async def test_hints_that_were_left_out_beside_refused_ones_are_sent_again_with_the_next_call(serve: Serve) -> None:
    refused_names = [*HINTS][:3]
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing(*refused_names)
        assert (await told(running, {"messages": QUESTION, **HINTS}))[0] == 200
        assert await told(running, {"messages": QUESTION, **HINTS}) == (200, ", ".join(refused_names))
        assert len(running["alpha"].received) == 5
        assert HINTS.keys() - running["alpha"].received[-1].body.keys() == {*refused_names}


async def test_two_refused_hints_take_no_other_with_them(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("verbosity", "user")
        assert await told(running, {"messages": QUESTION, **HINTS}) == (200, "verbosity, user")


async def test_many_hints_that_one_refusal_names_take_no_other_with_them(serve: Serve) -> None:
    names = ", ".join([*HINTS][:5])
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("verbosity", said=f"Unrecognized request arguments supplied: {names}")
        assert await told(running, {"messages": QUESTION, **HINTS}) == (200, names)


async def test_what_is_wrong_once_all_hints_are_left_out_is_told(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        answers, wrong = refusing(*HINTS), refused("`seed` must be a positive integer, said the user")
        running["alpha"].answers = lambda body: answers(body) if HINTS.keys() & body else wrong
        async with running.post({"model": MODEL, "messages": QUESTION, "seed": -7, **HINTS}) as response:
            assert (response.status, "`seed` must be" in await response.text()) == (400, True)
        assert len(running["alpha"].received) == 4


async def test_a_limit_is_sent_by_the_name_that_the_model_takes_and_nobody_loses_it(serve: Serve) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("max_tokens", said=said)
        await learnt(running, {"messages": QUESTION, "max_tokens": 9}, dropped=None)
        assert running["alpha"].received[-1].body["max_completion_tokens"] == 9


@pytest.mark.parametrize(
    ("said", "sendings", "begin"),
    [
        ("`reasoning_effort` is not supported with this model", 2, ""),  # it says so whatever it is sent
        ("temperature must be between 0 and 2", 1, ""),
        (
            "the prompt is too long",
            1,
            "Your input exceeds the context window of this model.",
        ),  # as chat's own vendor says it
    ],
)
async def test_a_wrong_request_stays_wrong_after_at_most_one_more_try(
    serve: Serve, said: str, sendings: int, begin: str
) -> None:
    asked = {"model": MODEL, "messages": QUESTION, "temperature": 3, "reasoning_effort": "low"}
    deployment = {"deployment": "alpha/m", "drop_params": True}
    async with serve(alpha=refused(said), config={"models": {MODEL: {"deployments": [deployment]}}}) as running:
        for times in (1, 2):
            async with running.post(asked) as response:
                message = (await response.json())["error"]["message"]
            assert (response.status, message.startswith(begin), said in message) == (400, True, True)
            assert begin or message == said
            assert len(running["alpha"].received) == times * sendings
        assert running["alpha"].received[-sendings].body["reasoning_effort"] == "low"  # nothing was learnt


@pytest.mark.parametrize("body", [{"zz_new": 5}, {"n": 2}, {"logit_bias": {"5": 1}}, {"seed": 7}], ids=str)
async def test_who_has_refused_a_must_is_asked_after_others(serve: Serve, body: dict[str, Any]) -> None:
    (name,) = body
    config: dict[str, Any] = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}}}
    async with serve(alpha=None, beta=ANSWERS["chat"], config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = refusing(name)
        for _ in range(4):
            async with running.post({"model": MODEL, "messages": QUESTION, **body}) as response:
                await response.read()
                assert (response.status, "x-holeshot-dropped" in response.headers) == (200, False)
        assert [name in each.body for each in running["alpha"].received] == [True]
        # Without it, alpha is asked as before; where it takes the field after all, and nobody else does, it is again.
        async with running.post({"model": MODEL, "messages": QUESTION}) as response:
            await response.read()
        assert len(running["alpha"].received) == 2
        running["alpha"].answers, running["beta"].answers = (lambda _: ANSWERS["chat"]), refusing(name)
        for asked in (3, 4):
            async with running.post({"model": MODEL, "messages": QUESTION, **body}) as response:
                await response.read()
                assert response.status == 200
            assert len(running["alpha"].received) == asked


DEFAULTS: list[tuple[str, str, dict[str, Any], str, bool]] = [  # API, path, body, the refused field, whether it is told
    ("chat", "/v1/chat/completions", {"tools": []}, "tools", False),
    ("chat", "/v1/chat/completions", {"response_format": {"type": "text"}}, "response_format", False),
    ("chat", "/v1/chat/completions", {"echo": False}, "echo", False),
    ("chat", "/v1/chat/completions", {"length_penalty": 1.0}, "length_penalty", True),
    ("chat", "/v1/chat/completions", {"stream_options": {"include_usage": True}}, "stream_options", True),
    ("messages", "/v1/messages", {"max_tokens": 9, "stop_sequences": []}, "stop_sequences", False),
    ("gemini", "", {"generationConfig": {"responseModalities": ["TEXT"]}}, "responseModalities", False),
    ("gemini", "", {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}}, "toolConfig", False),
]


@pytest.mark.parametrize("row", DEFAULTS, ids=lambda row: f"{row[3]} in {row[0]}")
async def test_a_value_that_says_what_an_api_does_anyway_fails_no_call(
    shared: SharedGateways, row: tuple[str, str, dict[str, Any], str, bool]
) -> None:
    api, path, body, name, is_told = row
    asked = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]} if api == "gemini" else {"messages": QUESTION}
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = lambda sent: (
            refused(f'Unknown name "{name}"' if api == "gemini" else f"Unknown parameter: '{name}'.")
            if f'"{name}"' in json.dumps(sent)
            else ANSWERS[api]
        )
        for sendings in (2, 3):
            own = path or f"/v1beta/models/{MODEL}{running.suffix}:streamGenerateContent?alt=sse"
            streamed = {} if api == "gemini" else {"stream": True}
            answered = await told(running, {**asked, **body, **streamed}, own)
            assert answered == (200, name if is_told else None)
            assert len(running.received("alpha")) == sendings


FUNCTIONS = {"functionDeclarations": [{"name": "f", "behavior": "BLOCKING"}]}
SHOWN = {"inlineData": {"mimeType": "image/png", "data": "aGk=", "displayName": "a.png"}}
NAMED_ALONE: list[tuple[dict[str, Any], str, str]] = [  # what a request has, the name, and where that is
    ({"contents": [{"role": "user", "parts": [SHOWN]}]}, "displayName", "contents.parts.inlineData.displayName"),
    ({"tools": [FUNCTIONS]}, "behavior", "tools.functionDeclarations.behavior"),
    ({"toolConfig": {"retrievalConfig": {"languageCode": "en"}}}, "retrievalConfig", "toolConfig.retrievalConfig"),
]


@pytest.mark.parametrize("row", NAMED_ALONE, ids=lambda row: row[1])
async def test_a_part_that_a_server_names_without_its_place_is_found_in_googles_spelling(
    shared: SharedGateways, row: tuple[dict[str, Any], str, str]
) -> None:
    body, name, place = row
    asked = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], **body}
    async with shared.row(alpha=None, config={"providers": {"alpha": speaking("gemini")}}) as running:
        running["alpha"].answers = lambda sent: (
            refused(f'json: unknown field "{name}"') if f'"{name}"' in json.dumps(sent) else ANSWERS["gemini"]
        )
        for sendings in (2, 3):
            path = f"/v1beta/models/{MODEL}{running.suffix}:generateContent"
            assert await told(running, asked, path) == (200, place)
            assert len(running.received("alpha")) == sendings


async def test_who_takes_a_preference_is_asked_before_an_equal_that_has_refused_it(serve: Serve) -> None:
    config: dict[str, Any] = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}}}
    asked = {"messages": QUESTION, "verbosity": "low"}
    async with serve(alpha=None, beta=ANSWERS["chat"], config=config) as running:
        for name in ("alpha", "beta"):  # both are as good
            running.prefer(name)
        running["alpha"].answers = refusing("verbosity")
        assert await told(running, {**asked, "provider": {"order": ["alpha"]}}) == (200, "verbosity")
        for _ in range(6):
            assert await told(running, asked) == (200, None)
        assert len(running["beta"].received) == 6


STORING = {
    "responses": ({}, ANSWERS["responses"]),
    "interactions": ({"kind": "gemini"}, [Raw(INTERACTION_BYTES, token=True)]),
}


@pytest.mark.parametrize("api", STORING)
async def test_a_client_that_asks_to_store_nothing_is_asked_for_no_request_that_is_stored(
    serve: Serve, api: str
) -> None:
    """The default of these APIs is to store."""
    kind, answers = STORING[api]
    config: dict[str, Any] = {
        "providers": {name: speaking(api, **kind) for name in ("alpha", "beta")},
        "models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}},
    }
    body = {"input": "Hi", "store": False}
    async with serve(alpha=None, beta=answers, config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = refusing("store")
        for _ in range(3):
            assert await told(running, body, f"/v1/{api}") == (200, None)
        assert [each.body["store"] for each in running["alpha"].received] == [False]
        # Where nobody takes it, it is refused in the vendor's words, and sent to nobody without it.
        running["beta"].answers = refusing("store")
        async with running.post({"model": MODEL, **body}, path=f"/v1/{api}") as response:
            assert response.status == 400
            assert "argument supplied: store" in await response.text()
        rows = await running.rows("select dropped from calls")
        assert [row["dropped"] for row in rows] == [None] * 4
        assert all(each.body["store"] is False for name in ("alpha", "beta") for each in running[name].received)


@pytest.mark.parametrize(
    ("path", "body", "api"),
    [
        ("/v1/responses", {"input": "Hi"}, "responses"),
        ("/v1/chat/completions", {"messages": QUESTION}, "responses"),
        ("/v1/interactions", {"input": "Hi"}, "interactions"),
    ],
    ids=["Responses", "chat as Responses", "Interactions"],
)
async def test_what_only_the_gateway_asks_not_to_store_is_asked_without_that_and_told(
    serve: Serve, path: str, body: dict[str, Any], api: str
) -> None:
    kind, answers = STORING[api]
    async with serve(alpha=None, config={"providers": {"alpha": speaking(api, **kind)}}) as running:
        running["alpha"].answers = lambda sent: refusing("store")(sent) if "store" in sent else answers
        await learnt(running, body, path, dropped="store")
        assert [each.body.get("store") for each in running["alpha"].received] == [False, None, None]
        rows = await running.rows("select dropped from calls")
    assert [json.loads(row["dropped"]) for row in rows] == [["store"], ["store"]]


PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}
TEXT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}


async def test_who_has_refused_a_document_that_is_no_text_is_asked_after_others(serve: Serve) -> None:
    said = "messages.0.content.0: unknown variant `document`, expected one of `text`, `image`"
    config: dict[str, Any] = {
        "providers": {"alpha": speaking("messages"), "beta": speaking("messages")},
        "models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}},
    }

    async def ask(running: RunningGateway, *blocks: Mapping[str, Any]) -> tuple[int, str, str | None]:
        content = [*blocks, {"type": "text", "text": "Hi"}]
        body = {"model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": content}]}
        async with running.post(body, path="/v1/messages") as response:
            await response.read()
        who, told = (response.headers.get(f"x-holeshot-{name}") for name in ("deployment", "dropped"))
        return response.status, str(who), told

    def lacking(body: Any) -> Sequence[Step]:
        return refused(said) if '"document"' in json.dumps(body) else ANSWERS["messages"]

    async with serve(alpha=None, beta=ANSWERS["messages"], config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = lacking
        for _ in range(3):
            assert await ask(running, PDF) == (200, "beta/m", None)
        assert len(running["alpha"].received) == 1
        for sent in (3, 4):  # of a text, what it says is sent; it is refused once
            assert await ask(running, TEXT) == (200, "alpha/m", "messages[0].content[0].type")
            assert len(running["alpha"].received) == sent
        assert await ask(running, PDF) == (200, "beta/m", None)
        # Where nobody takes it, it is refused in the vendor's words; who takes it after all is asked as before.
        running["beta"].answers = lacking
        assert (await ask(running, PDF))[0] == 400
        running["alpha"].answers = lambda _: ANSWERS["messages"]
        assert await ask(running, PDF) == (200, "alpha/m", None)
        assert await ask(running, PDF) == (200, "alpha/m", None)


PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SEES_NOTHING = "messages[0]: unknown variant `image_url`, expected `text` at line 1 column 219"


def seeing_nothing(body: Any) -> Sequence[Step]:
    return refused(SEES_NOTHING) if '"image_url"' in json.dumps(body) else ANSWERS["chat"]


async def shown(
    running: RunningGateway, *parts: Mapping[str, Any], model: str = MODEL, client: str = ""
) -> tuple[int, str | None, str | None]:
    """Ask about these parts; return the status, who answered, and how many were asked at once."""
    content = [*parts, {"type": "text", "text": "Hi"}]
    body = {"model": model, "messages": [{"role": "user", "content": content}]}
    async with running.post(body, headers=bearer(f"hs-{client}") if client else {}) as response:
        await response.read()
    deployment, launched = (response.headers.get(f"x-holeshot-{name}") for name in ("deployment", "launched"))
    return response.status, deployment, launched


async def test_who_takes_texts_alone_is_asked_about_a_picture_after_others(serve: Serve) -> None:
    both = ["alpha/m", "beta/m"]
    raced = {"deployments": both, "race": {"mode": "race", "width": 2, "budget": 1.0}}
    config: dict[str, Any] = {"models": {MODEL: {"deployments": both, "race": {"mode": "single"}}, "raced": raced}}
    async with serve(alpha=None, beta=ANSWERS["chat"], config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = seeing_nothing
        assert await shown(running, PICTURE) == (200, "beta/m", "2")
        for model in (MODEL, "raced", MODEL, "raced"):
            assert await shown(running, PICTURE, model=model) == (200, "beta/m", "1")
        assert len(running["alpha"].received) == 1
        assert await shown(running) == (200, "alpha/m", "1")  # a text is asked as before, also in a race
        assert (await shown(running, model="raced"))[::2] == (200, "2")
        # Where nobody takes pictures, they are refused in the vendor's words; who takes them after all is known to.
        running["beta"].answers = seeing_nothing
        assert (await shown(running, PICTURE))[0] == 400
        running["alpha"].answers = lambda _: ANSWERS["chat"]
        assert (await shown(running, PICTURE))[:2] == (200, "alpha/m")
        assert await shown(running, PICTURE) == (200, "alpha/m", "1")


async def test_a_model_that_takes_texts_alone_and_has_no_rival_says_so_itself(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = seeing_nothing
        for sent in (1, 2):
            async with running.chat(messages=[{"role": "user", "content": [PICTURE]}]) as response:
                assert (response.status, SEES_NOTHING in await response.text()) == (400, True)
            assert len(running["alpha"].received) == sent


@pytest.mark.parametrize("said", ["This model does not support image input", SEES_NOTHING], ids=["quoted", "its own"])
async def test_what_one_client_hears_of_a_picture_changes_nothing_for_those_of_others(serve: Serve, said: str) -> None:
    odd = {"type": "text", "text": "This model does not support image input"}
    config: dict[str, Any] = {
        "clients": {name: {"key_sha256": sha256(f"hs-{name}")} for name in ("ann", "bob")},
        "models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}},
    }
    async with serve(alpha=None, beta=ANSWERS["chat"], config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = lambda body: refused(said) if odd["text"] in json.dumps(body) else ANSWERS["chat"]
        for _ in range(2):
            await shown(running, odd, PICTURE, client="ann")
        assert await shown(running, PICTURE, client="bob") == (200, "alpha/m", "1")


async def test_a_must_is_known_by_the_clients_name_where_its_vendor_calls_it_otherwise(serve: Serve) -> None:
    config: dict[str, Any] = {
        "providers": {"alpha": {"preset": "mistral"}},
        "models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}},
    }
    body = {"model": MODEL, "messages": QUESTION, "seed": 7}
    async with serve(alpha=None, beta=ANSWERS["chat"], config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = refusing("random_seed")
        for _ in range(3):
            async with running.post(body) as response:
                await response.read()
                assert response.status == 200
        assert ["random_seed" in each.body for each in running["alpha"].received] == [True]
        running["alpha"].answers, running["beta"].answers = (lambda _: ANSWERS["chat"]), refusing("seed")
        for asked in (2, 3):
            async with running.post(body) as response:
                await response.read()
                assert response.status == 200
            assert len(running["alpha"].received) == asked


async def test_a_must_that_is_refused_beside_another_field_is_learnt_from_the_second_refusal(serve: Serve) -> None:
    config: dict[str, Any] = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}}}
    async with serve(alpha=None, beta=ANSWERS["chat"], config=config) as running:
        running.prefer("alpha", "beta")
        running["alpha"].answers = refusing("metadata", "zz_new")
        for _ in range(3):
            body = {"model": MODEL, "messages": QUESTION, "metadata": {"a": "b"}, "zz_new": 5}
            async with running.post(body) as response:
                await response.read()
                assert response.status == 200
        assert ["metadata" in each.body for each in running["alpha"].received] == [True, False]


def strictly(name: str, **schema: Any) -> dict[str, Any]:
    function = {"name": name, "strict": True, "parameters": {"type": "object", "properties": {}, **schema}}
    return {"messages": QUESTION, "tools": [{"type": "function", "function": function}]}


async def test_a_strict_schema_that_is_refused_is_best_effort_and_others_stay_strict(serve: Serve) -> None:
    said = (
        "Invalid schema for function 'f': In context=(), 'additionalProperties' is required to be supplied and false."
    )

    def answered(body: Any) -> Sequence[Step]:
        function = body["tools"][0]["function"]
        is_open = "additionalProperties" not in function["parameters"]
        return refused(said) if function["strict"] and is_open else ANSWERS["chat"]

    closed = strictly("g", additionalProperties=False)
    async with serve(alpha=None) as running:
        running["alpha"].answers = answered
        await learnt(running, strictly("f"), dropped="tools.strict")
        assert await told(running, closed) == (200, None)
        assert running["alpha"].received[-1].body["tools"] == closed["tools"]


async def test_a_server_that_does_not_know_strict_tools_is_asked_for_usual_ones(serve: Serve) -> None:
    said = {"detail": [{"type": "extra_forbidden", "loc": ["body", "tools", 0, "function", "strict"]}]}
    said["detail"][0]["msg"] = "Extra inputs are not permitted"

    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: (
            refused(said, 422) if "strict" in body["tools"][0]["function"] else ANSWERS["chat"]
        )
        await learnt(running, strictly("f", additionalProperties=False), dropped="tools.strict")


async def test_what_is_wrong_beside_a_refused_field_is_told(serve: Serve) -> None:
    def answered(body: Any) -> Sequence[Step]:
        return refused(
            "`reasoning_effort` is not supported with this model" if "reasoning_effort" in body else "too hot"
        )

    asked = {"model": MODEL, "messages": QUESTION, "temperature": 3, "reasoning_effort": "low"}
    async with serve(alpha=None) as running:
        running["alpha"].answers = answered
        async with running.post(asked) as response:
            assert (response.status, (await response.json())["error"]["message"]) == (400, "too hot")
        assert len(running["alpha"].received) == 2


async def test_a_request_with_effects_at_its_provider_is_not_sent_again(serve: Serve) -> None:
    said = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
    async with serve(alpha=refused(said), config={"providers": {"alpha": speaking("responses")}}) as running:
        assert (await told(running, CODEX | {"store": True}, "/v1/responses"))[0] == 400
        assert len(running["alpha"].received) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_hint_that_is_refused_beside_a_search_that_is_offered_fails_no_call(
    serve: Serve, *, stream: bool
) -> None:
    """A refusal has run no tool. Codex offers a search in every request."""
    said = "Unsupported parameter: 'text.verbosity' is not supported with this model."
    asked = CODEX | {"stream": stream, "text": {"verbosity": "low"}, "tools": [{"type": "web_search"}]}
    async with serve(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = lambda sent: (
            refused(said) if "verbosity" in sent.get("text", {}) else ANSWERS["responses"]
        )
        assert await told(running, asked, "/v1/responses") == (200, "text.verbosity")
        assert len(running["alpha"].received) == 2


@pytest.mark.parametrize("within", [False, True], ids=["by a status", "within an answer"])
async def test_the_next_one_with_effects_is_sent_as_its_model_takes_it(serve: Serve, *, within: bool) -> None:
    said = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
    event = {"type": "error", "sequence_number": 1, "message": said, "code": None, "param": None}
    wrong = [Raw(b"event: error\ndata: " + json.dumps(event).encode() + b"\n\n")] if within else refused(said)
    asked = CODEX | {"store": True, "stream": True}
    async with serve(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = lambda sent: wrong if "effort" in sent["reasoning"] else ANSWERS["responses"]
        assert await told(running, asked, "/v1/responses") == (502 if within else 400, None)
        await learnt(running, asked, "/v1/responses", dropped="reasoning.effort")


async def test_a_wrong_one_with_effects_is_sent_as_it_is_again(serve: Serve) -> None:
    said = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
    async with serve(alpha=refused(said), config={"providers": {"alpha": speaking("responses")}}) as running:
        for sendings in (1, 2, 3):
            assert (await told(running, CODEX | {"store": True}, "/v1/responses"))[0] == 400
            assert len(running["alpha"].received) == sendings
        efforts = ["effort" in one.body["reasoning"] for one in running["alpha"].received]
    assert efforts == [True, False, True]  # nothing is remembered


async def test_a_model_that_takes_the_field_again_after_a_change_is_asked_as_usual(serve: Serve) -> None:
    """What it refuses now is the form that was learnt."""
    asked = {"messages": QUESTION, "max_tokens": 9}
    said = "Unsupported parameter: '{}' is not supported with this model."
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("max_tokens", said=said)
        assert await told(running, asked) == (200, None)
        running["alpha"].answers = refusing("max_completion_tokens", said=said)
        assert await told(running, asked) == (200, None)
        before = len(running["alpha"].received)
        assert await told(running, asked) == (200, None)
        assert len(running["alpha"].received) == before + 1


async def test_embeddings_are_asked_for_without_what_is_refused(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: refused("unknown field `user`") if "user" in body else []
        await learnt(running, {"input": "Hi", "user": "u"}, "/v1/embeddings", dropped="user")


async def test_converse_is_asked_without_what_its_model_refuses(serve: Serve) -> None:
    bedrock, sent = Bedrock(), list[Any]()
    words = "This model doesn't support the reasoning_effort field. Remove reasoning_effort and try again."

    async def answered(request: web.Request) -> web.StreamResponse:
        sent.append(msgspec.json.decode(await request.read()))
        if "outputConfig" in sent[-1]:
            return web.json_response({"message": words}, status=400)
        return await bedrock.answer(request)

    deployment = {"deployment": AWS, "capabilities": {"reasoning": True}}
    config = {"models": {MODEL: {"deployments": [deployment], "race": {"mode": "single"}}}}
    async with serving([web.post("/{path:.*}", answered)], bedrock.tally) as base_url:
        providers = beside(base_url)["config"]["providers"]
        async with serve(alpha=None, config={"providers": providers, **config}) as running:
            for sendings in (2, 3):
                assert await told(running, CLAUDE_CODE, "/v1/messages") == (200, "thinking")
                assert len(sent) == sendings


def of_codex(*items: dict[str, Any]) -> dict[str, Any]:
    """Return a later turn of Codex, which sends back what answers and an SDK have written."""
    said = {"type": "message", "id": "gen-1", "role": "assistant", "status": "completed"}
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": None,
        "encrypted_content": "gAAAAB",
    }
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        thought,
        {**said, "content": [{"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}]},
        *(call, result, *items, {"role": "user", "content": "Go on"}),
    ]
    function = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": None}
    return {"input": history, "tools": [function], "store": False}


def has(name: str, kind: str | None = None) -> Callable[[Any], bool]:
    return lambda body: any(name in item and kind in {None, item.get("type")} for item in body["input"])


ITEMS: Mapping[str, tuple[Callable[[Any], bool], str, str | None]] = {  # whether it is refused; words; what is told
    "status": (has("status"), "Unknown parameter: 'input[3].status'.", "input.status"),
    "annotations": (
        lambda body: "annotations" in json.dumps(body),
        "Unknown parameter: 'input[3].content[0].annotations'.",
        "input.content.annotations",
    ),
    "another vendor's id": (
        lambda body: "gen-1" in json.dumps(body),
        "Invalid 'input[3].id': 'gen-1'. Expected an ID that begins with 'msg'.",
        "input.id",
    ),
    "an id twice": (
        has("id"),
        "Duplicate item found with id gen-1. Remove duplicate items from your input and try again.",
        "input.id",
    ),
    "a null": (has("content", "reasoning"), "Unknown parameter: 'input[2].content'.", None),
    "a null in a tool": (
        lambda body: body["tools"][0].get("strict", False) is None,
        "Invalid type for 'tools[0].strict': expected a boolean, but got null instead.",
        "tools.strict",
    ),
    "the role developer": (
        lambda body: "developer" in json.dumps(body),
        "Invalid value: 'developer'. Supported values are: 'assistant', 'system', and 'user'.",
        None,
    ),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("what", [*ITEMS])
async def test_what_an_answer_said_of_itself_is_left_out_of_a_history_where_it_is_refused(
    serve: Serve, what: str, stream: bool
) -> None:
    is_refused, words, lost = ITEMS[what]
    async with serve(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = lambda body: refused(words) if is_refused(body) else ANSWERS["responses"]
        await learnt(running, {**of_codex(), "stream": stream}, "/v1/responses", dropped=lost)
        said = json.dumps(running["alpha"].received[-1].body)
    assert all(text in said for text in ("Be brief.", "Hi", "Yes.", "call_1", "done", "Go on", "gAAAAB"))


CALLED: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "done"}]},
]


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Invalid type for 'messages[2].content': expected a string, but got an array instead.", list),
        ("messages.2.content: Input should be a valid string", list),
        ("messages.1.content: none is not an allowed value", type(None)),
        ("Invalid value for 'content': expected a string, got null.", type(None)),
    ],
)
async def test_contents_are_texts_where_nothing_else_is_taken(serve: Serve, words: str, kind: type) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: (
            refused(words) if any(type(each["content"]) is kind for each in body["messages"]) else ANSWERS["chat"]
        )
        await learnt(running, {"messages": CALLED}, dropped=None)
        contents = [each["content"] for each in running["alpha"].received[-1].body["messages"]]
        assert contents == ["Hi", "", "done"]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"type": "item_reference", "id": "msg_9"}, "Invalid 'input[3].id': 'gen-1'. Expected an ID that begins with"),
        ({"role": "user", "content": "More"}, "Unknown parameter: 'input[6].content'."),
    ],
    ids=["an id that names what is stored", "what was said"],
)
async def test_what_a_history_means_stays_whatever_refuses_it(serve: Serve, item: Any, words: str) -> None:
    async with serve(alpha=None, config={"providers": {"alpha": speaking("responses")}}) as running:
        running["alpha"].answers = lambda _: refused(words)
        assert (await told(running, of_codex(item), "/v1/responses"))[0] == 400
        assert item in running["alpha"].received[-1].body["input"]


NO_CACHE = "You invoked an unsupported model or your request did not allow prompt caching. See the documentation."
NO_POINT = "Malformed input request: #/messages/0/content/1: extraneous key [cachePoint] is not permitted"


@pytest.mark.parametrize(("status", "words"), [(400, NO_CACHE), (403, NO_CACHE), (400, NO_POINT)])
async def test_a_model_of_bedrock_without_a_cache_is_asked_without_marks(serve: Serve, status: int, words: str) -> None:
    bedrock, sent = Bedrock(), list[Any]()

    async def answered(request: web.Request) -> web.StreamResponse:
        sent.append(msgspec.json.decode(await request.read()))
        if "cachePoint" in json.dumps(sent[-1]):
            return web.json_response({"message": words}, status=status)
        return await bedrock.answer(request)

    marked = [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]
    asked = {"max_tokens": 50, "messages": [{"role": "user", "content": marked}]}
    config = {"models": {MODEL: {"deployments": ["aws/amazon.nova-2-lite-v1:0"], "race": {"mode": "single"}}}}
    async with serving([web.post("/{path:.*}", answered)], bedrock.tally) as base_url:
        providers = beside(base_url)["config"]["providers"]
        async with serve(alpha=None, config={"providers": providers, **config}) as running:
            for sendings in (2, 3):
                assert await told(running, asked, "/v1/messages") == (200, "cache_control")
                assert len(sent) == sendings


@pytest.mark.parametrize(("named", "status"), [("zz_new", 400), ("zz_other", 502)])
async def test_an_own_servers_500_about_a_field_that_is_not_left_out_is_a_400(
    serve: Serve, named: str, status: int
) -> None:
    async with serve(alpha=None) as running:
        error = {"message": f"create() got an unexpected keyword argument '{named}'", "type": "server_error"}
        running["alpha"].answers = lambda _: [Status(500, {"error": error})]
        async with running.chat(messages=QUESTION, zz_new=1) as response:
            told = (await response.json())["error"]
    assert (response.status, named in told["message"]) == (status, True)
    assert told["type"] == ("invalid_request_error" if status == 400 else "api_error")


@pytest.mark.parametrize("how", ["an event", "a JSON body with 200", "a web page"])
async def test_a_must_refused_otherwise_than_by_a_status_is_asked_of_another_first(serve: Serve, how: str) -> None:
    said = "Unbekannter Parameter: wibble_depth"

    def answered(body: Any) -> Sequence[Step]:
        if how == "a web page":
            page = f"<html><title>Error</title><pre>{said}</pre></html>"
            return [Status(400, page.encode(), {"content-type": "text/html"})]
        error = {"error": {"message": said, "code": 400}}
        return [Raw(b"data: " + json.dumps(error).encode() + b"\n\n")] if how == "an event" else [Status(200, error)]

    both = {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single", "budget": 0}}
    models = {"alone": {**both, "deployments": ["alpha/m"]}, "both": both}
    async with serve(alpha=None, beta=None, config={"models": models}) as running:
        running["alpha"].answers, running["beta"].answers = answered, lambda _: ANSWERS["chat"]
        for model, calls, status in (("alone", 1, 400), ("both", 8, 200)):
            for _ in range(calls):
                async with running.chat(model=model, wibble_depth=3) as response:
                    assert response.status == status, await response.text()
        assert len(running["alpha"].received) == 1
        assert all(each.body["wibble_depth"] == 3 for each in running["beta"].received)


OF_GOOGLE: Mapping[str, Any] = {  # as Google's SDKs and Gemini CLI write a later turn
    "contents": [
        {
            "role": "user",
            "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo=", "displayName": "a.png"}}],
        },
        {
            "role": "model",
            "parts": [{"functionCall": {"id": "c", "name": "f", "args": {}}, "thoughtSignature": "QUJD"}],
        },
        {
            "role": "user",
            "parts": [
                {
                    "functionResponse": {
                        "id": "c",
                        "name": "f",
                        "response": {"output": "done"},
                        "willContinue": False,
                        "scheduling": "WHEN_IDLE",
                    }
                }
            ],
        },
    ],
    "generationConfig": {"mediaResolution": "MEDIA_RESOLUTION_LOW", "seed": 1},
    "toolConfig": {"functionCallingConfig": {"mode": "AUTO", "streamFunctionCallArguments": False}},
    "tools": [{"functionDeclarations": [{"name": "f"}]}],
}
UNKNOWN_TO_GOOGLE = [  # the member, the place that Google names, what is told
    ("id", "contents[1].parts[0].function_call", "contents.parts.functionCall.id"),
    ("id", "contents[2].parts[0].function_response", "contents.parts.functionResponse.id"),
    ("thoughtSignature", "contents[1].parts[0]", "contents.parts.thoughtSignature"),
    ("willContinue", "contents[2].parts[0].function_response", "contents.parts.functionResponse.willContinue"),
    ("scheduling", "contents[2].parts[0].function_response", "contents.parts.functionResponse.scheduling"),
    ("displayName", "contents[0].parts[0].inline_data", "contents.parts.inlineData.displayName"),
    (
        "streamFunctionCallArguments",
        "tool_config.function_calling_config",
        "toolConfig.functionCallingConfig.streamFunctionCallArguments",
    ),
]


def of_google(path: str, words: str) -> Answers:
    """Return the answers of Google's where the member at ``path``, numbers left out, is refused in these words."""

    def is_there(value: Any, names: Sequence[str]) -> bool:
        if isinstance(value, list):
            return any(is_there(each, names) for each in value)
        return not names or (names[0] in value and is_there(value[names[0]], names[1:]))

    error = {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}
    return lambda body: [Status(400, error)] if is_there(body, path.split(".")) else ANSWERS["gemini"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        *(
            (path, f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field.")
            for name, place, path in UNKNOWN_TO_GOOGLE
        ),
        ("generationConfig.mediaResolution", "Media resolution is not enabled for this model"),
    ],
    ids=lambda value: value if "." not in value or " " not in value else "",
)
async def test_what_only_tells_google_more_of_a_call_a_result_or_a_file_is_left_out_where_it_is_unknown(
    serve: Serve, path: str, words: str
) -> None:
    where = f"/v1beta/models/{MODEL}:generateContent"
    async with serve(alpha=None, config={"providers": {"alpha": {"kind": "gemini"}}}) as running:
        running["alpha"].answers = of_google(path, words)
        await learnt(running, OF_GOOGLE, where, dropped=path)
        said = running["alpha"].received[-1].body
    assert said["contents"][1]["parts"][0]["functionCall"]["name"] == "f"
    assert said["contents"][2]["parts"][0]["functionResponse"]["response"] == {"output": "done"}


@pytest.mark.parametrize(
    ("name", "place", "path"),
    [
        ("seed", "generation_config", "generationConfig.seed"),
        ("args", "contents[1].parts[0].function_call", "contents.parts.functionCall.args"),
    ],
)
async def test_what_a_request_of_googles_means_stays_in_it(serve: Serve, name: str, place: str, path: str) -> None:
    words = f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."
    async with serve(alpha=None, config={"providers": {"alpha": {"kind": "gemini"}}}) as running:
        running["alpha"].answers = of_google(path, words)
        assert (await told(running, OF_GOOGLE, f"/v1beta/models/{MODEL}:generateContent"))[0] == 400
        assert len(running["alpha"].received) == 1


@pytest.mark.parametrize("is_error", [False, True])
async def test_a_result_does_not_say_whether_it_is_an_error_where_that_is_refused(
    serve: Serve, *, is_error: bool
) -> None:
    words = "messages.2.content.0.tool_result.is_error: Extra inputs are not permitted"
    asked = with_found_tools()
    asked["messages"][2]["content"] = [
        {"type": "tool_result", "tool_use_id": "a", "content": "nothing", "is_error": is_error}
    ]
    async with serve(alpha=None, config={"providers": {"alpha": {"apis": ["messages"]}}}) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, error_of(words))] if "is_error" in json.dumps(body) else ANSWERS["messages"]
        )
        await learnt(running, asked, "/v1/messages", dropped="messages.content.is_error")


@pytest.mark.parametrize(
    ("words", "sendings", "status"),
    [
        ("Unbekannter Parameter: max_completion_tokens. Verwenden Sie max_tokens.", 2, 200),
        ("Paramètre inconnu : max_completion_tokens. Utilisez « max_tokens ».", 2, 200),
        ("不支持参数 max_completion_tokens\uff0c请使用 max_tokens", 2, 200),
        ("max_completion_tokens, 500, ist mehr als max_tokens des Modells", 1, 400),
        ("Unbekannte Parameter: max_completion_tokens, max_tokens", 1, 400),
    ],
)
async def test_a_limit_is_sent_by_the_name_that_a_refusal_in_another_language_gives(
    serve: Serve, words: str, sendings: int, status: int
) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: (
            refused(words) if "max_completion_tokens" in body or status == 400 else ANSWERS["chat"]
        )
        assert await told(running, {"messages": QUESTION, "max_completion_tokens": 500}) == (status, None)
        assert len(running["alpha"].received) == sendings
        if status == 200:
            assert running["alpha"].received[-1].body["max_tokens"] == 500


@pytest.mark.parametrize(
    "words",
    [
        "Invalid JSON in tool call arguments: Expecting value: line 1 column 1 (char 0)",
        "Expecting value: line 1 column 1 (char 0)",
        "invalid tool call arguments",
    ],
)
async def test_an_earlier_call_without_arguments_has_an_empty_object_where_nothing_is_refused(
    serve: Serve, words: str
) -> None:
    blank, *_ = json.loads(json.dumps(CALLED[1]["tool_calls"]))
    blank["function"]["arguments"] = ""
    asked = {"messages": [CALLED[0], {**CALLED[1], "tool_calls": [blank]}, CALLED[2]]}
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: (
            ANSWERS["chat"] if body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}" else refused(words)
        )
        await learnt(running, asked, dropped=None)
        blank["function"]["arguments"] = "{half"
        assert (await told(running, asked))[0] == 400  # what says something stays
        assert running["alpha"].received[-1].body["messages"] == asked["messages"]


@pytest.mark.parametrize(
    ("name", "place", "path"),
    [
        ("resolution", "input[0].content[0]", "input.content.resolution"),
        ("signature", "input[1]", "input.signature"),
        ("is_error", "input[2]", "input.is_error"),
    ],
)
async def test_what_only_tells_more_of_a_step_of_interactions_is_left_out_where_it_is_unknown(
    serve: Serve, name: str, place: str, path: str
) -> None:
    picture = {"type": "image", "mime_type": "image/png", "data": "iVBORw0KGgo=", "resolution": "high"}
    asked = {
        "store": False,
        "input": [
            {"type": "user_input", "content": [picture]},
            {"type": "function_call", "id": "c", "name": "f", "arguments": {}, "signature": "QUJD"},
            {"type": "function_result", "call_id": "c", "name": "f", "result": "done", "is_error": False},
        ],
        "tools": [{"type": "function", "name": "f"}],
    }
    words = f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."
    error = {"error": {"code": "invalid_request", "message": words}}
    config = {"providers": {"alpha": {"kind": "gemini", "apis": ["interactions"]}}}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, error)] if f'"{name}"' in json.dumps(body) else [Raw(INTERACTION_BYTES, token=True)]
        )
        await learnt(running, {**asked, "stream": True}, "/v1beta/interactions", dropped=path)


LISTED: dict[str, Any] = {
    "max_tokens": 9,
    "system": [
        {"type": "text", "text": "Be"},
        {"type": "text", "text": "brief.", "cache_control": {"type": "ephemeral"}},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "a",
                    "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
                }
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
}


@pytest.mark.parametrize(
    ("words", "is_refused"),
    [
        ("system: Input should be a valid string", lambda body: isinstance(body["system"], list)),
        ("system: invalid type: sequence, expected a string", lambda body: isinstance(body["system"], list)),
        (
            "messages.2.content.0.tool_result.content: Input should be a valid string",
            lambda body: isinstance(body["messages"][2]["content"][0]["content"], list),
        ),
    ],
)
async def test_lists_of_texts_of_messages_are_one_text_where_nothing_else_is_taken(
    serve: Serve, words: str, is_refused: Callable[[Any], bool]
) -> None:
    async with serve(alpha=None, config={"providers": {"alpha": {"apis": ["messages"]}}}) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, error_of(words))] if is_refused(body) else ANSWERS["messages"]
        )
        await learnt(running, LISTED, "/v1/messages", dropped="system.cache_control")
        sent = running["alpha"].received[-1].body
        assert (sent["system"], sent["messages"][0]["content"]) == ("Be\n\nbrief.", "Hi")
        assert sent["messages"][2]["content"][0]["content"] == "one\n\ntwo"
        picture = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
        sees = json.loads(json.dumps(LISTED))
        sees["messages"][2]["content"][0]["content"].append(picture)  # a picture is in no text
        assert (await told(running, sees, "/v1/messages"))[0] == (200 if "system" in words else 400)
        assert running["alpha"].received[-1].body["messages"][2] == sees["messages"][2]


async def test_a_system_prompt_that_may_have_no_mark_says_that_nothing_may(serve: Serve) -> None:
    marked = json.loads(json.dumps(LISTED))
    for block in (marked["messages"][0]["content"][0], marked["messages"][2]["content"][0], marked["tools"][0]):
        block["cache_control"] = {"type": "ephemeral"}
    words = "system.1.cache_control: Extra inputs are not permitted"
    async with serve(alpha=None, config={"providers": {"alpha": {"apis": ["messages"]}}}) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, error_of(words))] if "cache_control" in json.dumps(body) else ANSWERS["messages"]
        )
        await learnt(running, marked, "/v1/messages", dropped="cache_control")


OF_BEDROCK: Mapping[str, tuple[str, str, str | None]] = {  # words, what is refused, what is told
    "thinking": ("thinking.type: Input should be 'enabled' or 'disabled'", '"adaptive"', "thinking"),
    "efforts": ("output_config: Extra inputs are not permitted", '"output_config"', "thinking"),
    "failed tools": (
        "This model doesn't support the status field in the toolResult block. Remove status and try again.",
        '"status"',
        "messages.is_error",
    ),
    "thoughts": (
        "This model doesn't support the reasoningContent field. Remove reasoningContent and try again.",
        '"reasoningContent"',
        "messages.thinking_blocks",
    ),
}


@pytest.mark.parametrize("what", OF_BEDROCK)
async def test_what_bedrock_calls_otherwise_than_chat_is_left_out_where_its_model_refuses_it(
    serve: Serve, what: str
) -> None:
    words, refused_text, lost = OF_BEDROCK[what]
    bedrock, sent = Bedrock(), list[Any]()

    async def answered(request: web.Request) -> web.StreamResponse:
        sent.append(msgspec.json.decode(await request.read()))
        if refused_text in json.dumps(sent[-1]):
            return web.json_response({"message": f"The model returned the following errors: {words}"}, status=400)
        return await bedrock.answer(request)

    result = {"type": "tool_result", "tool_use_id": "a", "content": "no", "is_error": True}
    thought = {"type": "thinking", "thinking": "So", "signature": "QUJD"}
    call = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    turns = [*QUESTION, {"role": "assistant", "content": [thought, call]}, {"role": "user", "content": [result]}]
    asked = {**CLAUDE_CODE, "messages": turns, "tools": LISTED["tools"]}
    models = {MODEL: {"deployments": ["aws/anthropic.claude-sonnet-4-6"], "race": {"mode": "single"}}}
    async with serving([web.post("/{path:.*}", answered)], bedrock.tally) as base_url:
        providers = beside(base_url)["config"]["providers"]
        async with serve(alpha=None, config={"providers": providers, "models": models}) as running:
            for sendings in (2, 3):
                status, dropped = await told(running, asked, "/v1/messages")
                assert (status, lost in str(dropped).split(", ")) == (200, True)
                assert len(sent) == sendings
    assert sent[-1]["messages"][2]["content"][0]["toolResult"]["content"] == [{"text": "no"}]


async def test_a_refused_role_of_messages_leaves_lists_of_texts_and_their_marks(serve: Serve) -> None:
    words = "messages.3.role: Input should be 'user' or 'assistant'"
    asked = {**LISTED, "messages": [*LISTED["messages"], {"role": "system", "content": "Be quick."}]}
    async with serve(alpha=None, config={"providers": {"alpha": {"apis": ["messages"]}}}) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, error_of(words))]
            if any(turn["role"] == "system" for turn in body["messages"])
            else ANSWERS["messages"]
        )
        await learnt(running, asked, "/v1/messages", dropped="messages[3].role")
        sent = running["alpha"].received[-1].body
    assert (sent["system"], sent["messages"][:3]) == (LISTED["system"], LISTED["messages"])
