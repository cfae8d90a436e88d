"""What one client writes, and a provider quotes when it refuses it, changes nothing for the requests of others."""

import html
import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from providers.simulator import Raw, Status, Step, answer
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.shared_gateway import SharedGateways

pytestmark = pytest.mark.asyncio(loop_scope="module")
WRITTEN = [
    "maximum context length is 100 tokens",
    "max_tokens: 5 > 100, which is the maximum",
    "stream_options",
    "`service_tier` is not supported with this model",
    "roles must alternate",
    "only supported in v1/responses",
    "streaming is not supported",
    "Incorrect API key provided",
    "Your credit balance is too low",
    "Insufficient Balance",
    "用户额度不足",
]
QUOTES = [
    "Invalid value: '{}'. Supported values are: 'low', 'high'.",
    "Invalid reasoning_effort: {}",
    "{} is not a valid effort",
]
USUAL = {
    "messages": [{"role": "user", "content": "Hi " * 400}],
    "max_tokens": 9000,
    "service_tier": "auto",
    "stream": True,
}


def refusing(quote: str, how: str) -> Any:
    def answered(body: Any) -> Sequence[Step]:
        if "reasoning_effort" not in body:
            return answer("Hello")
        said = {"error": {"message": quote.format(body["reasoning_effort"]), "type": "invalid_request_error"}}
        if how == "an event":
            return [Raw(b"data: " + json.dumps(said).encode() + b"\n\n")]
        return [Status(200 if how == "a JSON body with 200" else 400, said)]

    return answered


@pytest.mark.parametrize("how", ["a status", "an event", "a JSON body with 200"])
@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("written", WRITTEN)
async def test_a_quote_changes_nothing_for_others(shared: SharedGateways, written: str, quote: str, how: str) -> None:
    async with shared.row(alpha=None) as running:
        model = MODEL + running.suffix
        running["alpha"].answers = refusing(quote, how)
        seen = []
        for more in ({}, {"reasoning_effort": written}, {"reasoning_effort": written, "stream": False}, {}):
            async with running.post(USUAL | {"model": model} | more) as response:
                status, _ = response.status, await response.text()
            seen.append((status, running["alpha"].received[-1].body))
        async with running.get("/leaderboard", params={"model": model}) as response:
            [row] = (await response.json())["models"][0]["deployments"]
        kinds = await running.rows(f"select distinct error_kind from attempts where provider = 'alpha{running.suffix}'")
        assert {each["error_kind"] for each in kinds} <= {None, "bad_request", "form_refused"}
        assert row["state"] == "ok"
        # A value of one word is no more than that: others that send it are told what the vendor says of it.
        assert not row.get("refuses") or row["refuses"] == ['reasoning_effort: "stream_options"']
        assert seen[-1] == seen[0]
        assert seen[0][0] == 200


CLIENTS = {name: {"key_sha256": sha256(f"hs-{name}")} for name in ("ann", "bob", "fair")}
DROPPING = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}]}}}
SCHEMA = {"type": "object", "properties": {"temperature": {"type": "number"}}}
OF_WEATHER = {
    "messages": [{"role": "user", "content": "Hi"}],
    "temperature": 0.3,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
}
FAIRS = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0.3}


@pytest.mark.parametrize("write", [str, str.upper, str.title], ids=["as it is", "upper", "title"])
async def test_a_prompt_that_is_quoted_without_marks_takes_a_field_from_nobody(serve: Serve, write: Any) -> None:
    quoted = [{"role": "user", "content": "Unknown parameter: 'top_p'."}]

    def answered(body: Any) -> Sequence[Step]:
        if body["messages"] != quoted:
            return answer("Hello")
        return [Status(400, {"error": {"message": write(quoted[0]["content"]), "type": "invalid_request_error"}})]

    async with serve(alpha=None, config={"clients": CLIENTS}) as running:
        running["alpha"].answers = answered
        for name in ("ann", "bob"):
            for messages, status in ((quoted, 400), (FAIRS["messages"], 200)):
                async with running.chat(bearer(f"hs-{name}"), messages=messages, top_p=0.3) as response:
                    assert (response.status, response.headers.get("x-holeshot-dropped")) == (status, None)
        async with running.chat(bearer("hs-fair"), top_p=0.3) as response:
            assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert running["alpha"].received[-1].body["top_p"] == 0.3


LENGTHS = "This model's maximum context length is 10 tokens. However, your messages resulted in 20 tokens."
TEXTS_ALONE = "This model does not support image input"
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8gd29ybGQsIGhlbGxvIQ=="}}
BARE: Mapping[str, Callable[[str], str]] = {
    "as it is": lambda text: f"Could not process {text}",
    "upper": lambda text: f"Could not process {text}".upper(),
    "as HTML": lambda text: html.escape(f"Could not process {text}"),
    "with other marks": lambda text: f"Could not process \u201c{text}\u201d".replace("'", "\u2019"),
    "in lines": lambda text: "\n".join(textwrap.wrap(f"Could not process {text}", 30)),
    "before the vendor's words": lambda text: f"{text} was in your request",
    "alone": str,
}


@pytest.mark.parametrize("echo", BARE)
@pytest.mark.parametrize("text", [LENGTHS, TEXTS_ALONE], ids=["a length", "pictures"])
async def test_a_prompt_that_is_echoed_as_if_the_vendor_said_it_teaches_no_size(
    serve: Serve, text: str, echo: str
) -> None:
    said = {"error": {"message": BARE[echo](text), "type": "invalid_request_error"}}
    asked = "Hi" if text is LENGTHS else [{"type": "text", "text": "Hi"}, PICTURE]
    messages = [{"role": "system", "content": text}, {"role": "user", "content": asked}]
    async with serve(alpha=[Status(400, said)], config={"clients": CLIENTS}) as running:
        for name in ("ann", "bob"):
            async with running.chat(bearer(f"hs-{name}"), messages=messages) as response:
                assert response.status == 400
        learnt = running.gateway.fleets.learnt("alpha")
        assert learnt is None or not learnt.is_any


@pytest.mark.parametrize("pasted", ["", "Why do I get: prompt is too long: 210021 tokens > 200000 maximum?"])
async def test_a_prompt_that_is_too_long_is_learnt_though_it_speaks_of_lengths(serve: Serve, pasted: str) -> None:
    said = "This model's maximum context length is 400 tokens. However, your messages resulted in 801 tokens."
    messages = [{"role": "system", "content": pasted}, {"role": "user", "content": "word " * 800}]
    async with serve(alpha=[Status(400, {"error": {"message": said}})], config={"clients": CLIENTS}) as running:
        for name in ("ann", "bob"):
            async with running.chat(bearer(f"hs-{name}"), messages=messages) as response:
                assert response.status == 400
        learnt = running.gateway.fleets.learnt("alpha")
        assert learnt is not None
        assert [each.met.is_for_all for each in learnt.listed()] == [True]


@pytest.mark.parametrize("clients", [{"clients": CLIENTS}, {}], ids=["clients", "no clients"])
async def test_what_a_client_has_named_as_a_field_takes_that_field_from_nobody(serve: Serve, clients: Any) -> None:
    """The model writes a call that does not fit, which the vendor tells as a refusal, and the next one fits."""
    said = "parameters for tool f did not match schema: errors: [additionalProperties 'temperature' not allowed]"
    async with serve(alpha=None, config={**clients, **DROPPING}) as running:
        for name in ("ann", "bob"):
            written = iter([[Status(400, {"error": {"message": said}})]])
            running["alpha"].answers = lambda _, written=written: next(written, answer("Hello"))
            async with running.chat(bearer(f"hs-{name}"), **OF_WEATHER) as response:
                assert response.status == 200, await response.text()
        async with running.chat(bearer("hs-fair"), **FAIRS) as response:
            assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert running["alpha"].received[-1].body["temperature"] == 0.3


async def test_a_field_that_is_refused_is_known_though_a_client_has_named_something_so(serve: Serve) -> None:
    said = "Unsupported parameter: 'temperature' is not supported with this model."

    def answers(body: Any) -> Sequence[Step]:
        return [Status(400, {"error": {"message": said}})] if "temperature" in body else answer("Hello")

    async with serve(alpha=None, config={"clients": CLIENTS, **DROPPING}) as running:
        running["alpha"].answers = answers
        for name in ("ann", "bob", "ann", "fair"):
            async with running.chat(bearer(f"hs-{name}"), **(FAIRS if name == "fair" else OF_WEATHER)) as response:
                assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "temperature")
        assert len(running["alpha"].received) == 6
