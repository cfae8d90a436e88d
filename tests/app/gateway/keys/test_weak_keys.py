"""The weakest of keys beside a fair client: what one sends changes nothing for the other, and true faults are found."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from providers.simulator import Status, Step, answer
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.running_gateway import MODEL, Serve, single

JSON = {"content-type": "application/json"}
CLIENTS: Mapping[str, Any] = {
    "weak": {"key_sha256": sha256("hs-weak"), "rpm": 40, "usd_per_day": 0.01, "models": [MODEL]},
    "fair": {"key_sha256": sha256("hs-fair")},
    "third": {"key_sha256": sha256("hs-third")},
}
RING = {"api_key": None, "api_keys": ["key-one-0123456789", "key-two-0123456789", "key-three-0123456789"]}
WEAK, FAIR, THIRD = (bearer(f"hs-{name}") for name in CLIENTS)
FAIRS: Mapping[str, Any] = {
    "messages": [{"role": "user", "content": "Summarise this. " * 300}],
    "max_tokens": 7000,
    "stream": True,
    "temperature": 0.3,
    "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}],
}


class Refusal(msgspec.Struct, frozen=True):
    """What a vendor says to the weak client, and what of its request it says that of."""

    status: int
    body: Callable[[Any], Any]
    fields: Mapping[str, Any]


def openai(said: str, code: str | None = None) -> Callable[[Any], Any]:
    return lambda _: {"error": {"message": said, "type": "invalid_request_error", "code": code}}


def quoting(field: str, form: str) -> Callable[[Any], Any]:
    return lambda body: {"error": {"message": form.format(body[field]), "type": "invalid_request_error"}}


def mistral(field: str) -> Callable[[Any], Any]:
    def said(body: Any) -> Any:
        error = {"type": "enum", "loc": ["body", field], "msg": f"Input should be 'a' or 'b', not {body[field]!r}"}
        return {"object": "error", "message": {"detail": [error]}, "type": "invalid_request_error"}

    return said


# Values that quote what vendors say when a fact is learnt.
WRITTEN = (
    "This endpoint's maximum context length is 64 tokens. However, you requested about 9000 tokens",
    "prompt is too long: 9000 tokens > 64 maximum",
    "Invalid max_tokens value, the valid range of max_tokens is [1, 64]",
    "Unknown parameter: 'tools'",
    "temperature is not supported with this model",
    "`stream_options` is not permitted",
    "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
    "This is not a chat model and thus not supported in the v1/chat/completions endpoint",
    "tools[0].function.strict: Extra inputs are not permitted",
    "Your credit balance is too low to access the API",
    "The API key you provided is invalid",
)
PLACES: Mapping[str, Callable[[Any], Any]] = {
    "tool_choice": quoting("tool_choice", "tool_choice must be one of auto, none, required. Got: {}"),
    "verbosity": quoting("verbosity", "Unsupported value: verbosity does not support {} with this model."),
    "reasoning_effort": mistral("reasoning_effort"),
}
# Refusals of one request, in forms of several vendors.
OWN: Mapping[str, Refusal] = {
    "xAI, content": Refusal(
        403,
        lambda _: {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO",
        },
        {},
    ),
    "Groq, flex": Refusal(498, openai("Flex tier capacity exceeded", "capacity_exceeded"), {"service_tier": "flex"}),
    "Azure, filter": Refusal(403, openai("The response was filtered", "content_filter"), {}),
    "Portkey, guardrail": Refusal(446, openai("Guardrail checks failed"), {}),
    "a law": Refusal(451, openai("Unavailable for legal reasons"), {}),
    "an input that breaks the server": Refusal(500, openai("list index out of range"), {"seed": 7}),
    "an input that it never answers": Refusal(504, openai("upstream request timeout"), {"seed": 7}),
    "a 429 of unknown words": Refusal(429, openai("Requests of this kind are throttled"), {"seed": 7}),
    "a 403 of unknown words": Refusal(403, openai("Not for this account's region of interest"), {"seed": 7}),
}


def told_apart(refusal: Refusal) -> Callable[[Any], Sequence[Step]]:
    """Refuse what the weak client sends: its last message alone is ``attack``."""

    def answered(body: Any) -> Sequence[Step]:
        if body["messages"][-1]["content"] != "attack":
            return answer("well")
        return [Status(refusal.status, refusal.body(body), JSON)]

    return answered


def attack(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "attack"}], **fields}


async def _beside(serve: Serve, refusal: Refusal, *, settled: bool) -> None:
    """The fair client's requests arrive before and after as it sent them, all are answered, and nobody is out."""
    config = {"clients": CLIENTS, "providers": {"alpha": RING}, **single()}
    async with serve(alpha=None, in_one_minute=True, config=config) as running:
        running["alpha"].answers = told_apart(refusal)

        async def fair(headers: Mapping[str, str] = FAIR) -> Any:
            async with running.chat(headers, **FAIRS) as response:
                assert response.status == 200, await response.text()
                assert b"well" in await response.read()
            return running["alpha"].received[-1].body

        before = await fair()
        for _ in range(4 if settled else 0):
            await fair(THIRD)
            await fair()
        for _ in range(8):
            async with running.chat(WEAK, **attack(refusal.fields)) as response:
                assert response.status >= 400
                await response.read()
        for _ in range(6):
            assert await fair() == before
        assert {row.state for row in running.gateway.steering.leaderboard(MODEL).deployments} == {"ok"}


@pytest.mark.parametrize("settled", [True, False], ids=["among recent traffic", "first of all"])
@pytest.mark.parametrize("name", OWN)
async def test_what_is_refused_of_one_request_takes_nothing_from_a_fair_client(
    serve: Serve, name: str, settled: bool
) -> None:
    await _beside(serve, OWN[name], settled=settled)


@pytest.mark.parametrize("field", PLACES)
@pytest.mark.parametrize("written", WRITTEN)
async def test_what_one_writes_in_a_field_changes_no_request_of_a_fair_client(
    serve: Serve, written: str, field: str
) -> None:
    await _beside(serve, Refusal(400, PLACES[field], {field: written}), settled=False)


# What no request can have caused.
CERTAIN = {
    "OpenAI, a dead key": (401, openai("Incorrect API key provided", "invalid_api_key")(None)),
    "OpenAI, a spent account": (429, openai("You exceeded your current quota", "insufficient_quota")(None)),
    "DeepSeek, a spent account": (402, openai("Insufficient Balance", "invalid_request_error")(None)),
}


@pytest.mark.parametrize("clients", [(WEAK,), (WEAK, FAIR, THIRD)], ids=["alone", "beside others"])
@pytest.mark.parametrize("name", CERTAIN)
async def test_a_dead_key_and_a_spent_account_are_found_from_one_request_each(
    serve: Serve, name: str, clients: Sequence[Mapping[str, str]]
) -> None:
    status, said = CERTAIN[name]
    config = {"clients": CLIENTS, **single()}
    async with serve(alpha=None, beta=answer("well"), in_one_minute=True, config=config) as running:
        running.prefer("alpha", "beta", first_s=5.0)
        running["alpha"].script = [Status(status, said, JSON)]
        for _ in range(4):
            for headers in clients:
                async with running.chat(headers) as response:
                    assert response.status == 200
                    await response.read()
        assert len(running["alpha"].received) == 1


# A developer asks about errors: nothing is refused, and all of it arrives.
@pytest.mark.parametrize("written", WRITTEN)
async def test_a_prompt_that_quotes_an_error_hides_no_true_refusal_and_teaches_nothing(
    serve: Serve, written: str
) -> None:
    true = openai("Unsupported parameter: 'verbosity' is not supported with this model.", "unsupported_parameter")
    quoted = {"messages": [{"role": "user", "content": f"What does this mean? {written}. Unsupported parameter"}]}
    models = {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}], "race": {"mode": "single"}}}
    async with serve(alpha=None, in_one_minute=True, config={"clients": CLIENTS, "models": models}) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, true(body), JSON)] if "verbosity" in body else answer("well")
        )
        for _ in range(3):
            async with running.chat(WEAK, **quoted, verbosity="low") as response:
                assert response.status == 200, await response.text()
                await response.read()
        assert len(running["alpha"].received) == 4  # it was refused once, and is left out since
        async with running.chat(FAIR, **FAIRS) as response:
            assert response.status == 200
        fair = running["alpha"].received[-1].body
        assert all(fair[name] == FAIRS[name] for name in FAIRS)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_refusal_in_the_vendors_own_words_holds_for_others_once_two_have_met_it(
    serve: Serve, stream: bool
) -> None:
    said = openai("Unsupported parameter: 'temperature' is not supported with this model.", "unsupported_parameter")
    models = {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}], "race": {"mode": "single"}}}
    async with serve(alpha=None, in_one_minute=True, config={"clients": CLIENTS, "models": models}) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, said(body), JSON)]
            if body["messages"][-1]["content"] == "attack" and "temperature" in body
            else answer("well")
        )

        async def arrived(headers: Mapping[str, str], **fields: Any) -> list[Any]:
            before = len(running["alpha"].received)
            async with running.chat(headers, stream=stream, **fields) as response:
                assert response.status == 200, await response.text()
                await response.read()
            return [each.body.get("temperature") for each in running["alpha"].received[before:]]

        usual = {"messages": FAIRS["messages"], "temperature": 0.3}
        assert await arrived(WEAK, **attack({"temperature": 0.7})) == [0.7, None]
        assert await arrived(WEAK, **usual) == [None]  # it holds at once for whoever met it
        for _ in range(3):
            assert await arrived(FAIR, **usual) == [0.3]
        assert await arrived(FAIR, **attack({"temperature": 0.7})) == [0.7, None]
        assert await arrived(THIRD, **usual) == [None]
