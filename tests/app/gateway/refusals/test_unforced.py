"""Servers of models that nobody knows, which take no forced tool: learnt by refusals, at most two, and told always."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from providers.dialects import DIALECTS
from providers.simulator import Raw, Step, answer
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.refusals.test_refused_fields import refused
from tests.app.gateway.refusals.test_who_taught_it import clients
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.shared_gateway import SharedGateways
from tests.app.vendors.test_autumn import (
    ANY,
    ARGUMENTS,
    FINISHES,
    NAMED,
    PATHS,
    answered,
    calls_of,
    finish_of,
    offering,
)
from tests.app.vendors.test_autumn import said as saying

pytestmark = pytest.mark.asyncio(loop_scope="module")
Json = dict[str, Any]
KINDS: Mapping[str, Json] = {
    "chat": {"kind": "openai_compatible"},
    "messages": {"kind": "anthropic"},
    "responses": {"kind": "openai_compatible"},
    "gemini": {"kind": "gemini"},
}
WORDS = {
    "chat": "Tool choice must be auto",
    "messages": 'tool_choice: type "tool" and "any" are not supported for this model.',
    "responses": "tool_choice 'required' is not supported with this model. Only 'auto' and 'none' are supported.",
    "gemini": "Function calling mode `ANY` is not enabled for this model",
}
TOLD = {api: "toolConfig" if api == "gemini" else "tool_choice" for api in PATHS}


def choice_of(spoken: str, body: Json) -> str:
    """Return what a request chooses: auto, none, or else a call."""
    if spoken == "gemini":
        return str(body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode", "AUTO")).lower()
    choice = body.get("tool_choice", "auto")
    return str(choice["type"] if isinstance(choice, dict) else choice)


def asks_for_json(spoken: str, body: Json) -> bool:
    formats = {
        "chat": body.get("response_format", {}),
        "messages": body.get("output_config", {}).get("format", {}),
        "responses": body.get("text", {}).get("format", {}),
        "gemini": {"type": "json_schema"} if "responseJsonSchema" in body.get("generationConfig", {}) else {},
    }
    return bool(formats[spoken].get("type") == "json_schema")


def text_in(spoken: str, text: str) -> list[Step]:
    """Return an answer of this text, streamed in a vendor's API."""
    chunk: Json = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    begun = {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]}
    ended = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {**chunk, "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}}
    blocks = [f"data: {json.dumps(each)}\n\n".encode() for each in (begun, ended, usage)] + [b"data: [DONE]\n\n"]
    if (pivoting := DIALECTS[spoken].pivoting) is not None:
        step = pivoting.stream_from_chat({}, ())
        blocks = [*map(step.feed, blocks), step.end()]
    return [Raw(b"".join(blocks), token=True)]


class Server:
    """Answers of one that refuses choices of tools with these words, all but those that it ``takes``."""

    def __init__(self, spoken: str, words: str, takes: Sequence[str] = ("auto", "none"), *, status: int = 400) -> None:
        self.spoken, self.words, self.takes, self.status, self.refusals = spoken, words, takes, status, 0

    def __call__(self, body: Json) -> Sequence[Step]:
        if choice_of(self.spoken, body) not in self.takes:
            self.refusals += 1
            return refused(self.words, self.status)
        return text_in(self.spoken, json.dumps(ARGUMENTS) if asks_for_json(self.spoken, body) else "I will not.")


def settings(spoken: str, *deployments: str, **more: Any) -> Json:
    provider: Json = dict(KINDS[spoken])
    own: Json = {"apis": [spoken]} if spoken in {"chat", "responses"} else {}
    first: Json = {"deployment": "alpha/neue-7", **own, **more}
    race = {"race": {"mode": "single"}}
    return {"providers": {"alpha": provider}, "models": {MODEL: {"deployments": [first, *deployments], **race}}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("spoken", KINDS)
async def test_who_forces_a_tool_of_an_unknown_model_gets_its_call_after_one_refusal(
    shared: SharedGateways, spoken: str, api: str, stream: bool
) -> None:
    server = Server(spoken, WORDS[spoken])
    async with shared.row(alpha=None, config=settings(spoken)) as running:
        running["alpha"].answers = server
        for choice in (NAMED, ANY, NAMED):
            body = {**saying(api), **offering(api, "weather"), **choice[api]}
            answer, headers = await answered(running, api, MODEL + running.suffix, body, stream=stream)
            assert calls_of(api, answer) == [("weather", ARGUMENTS)], answer
            assert finish_of(api, answer) == FINISHES[api]
            assert headers["x-holeshot-dropped"].startswith(TOLD[api])
            assert server.refusals == 1
        body = {**saying(api), **offering(api, "weather")}
        _, headers = await answered(running, api, MODEL + running.suffix, body, stream=stream)
        assert "x-holeshot-dropped" not in headers


FORCING: Json = {**saying("chat"), **offering("chat", "weather"), **NAMED["chat"]}


async def asked(running: RunningGateway, name: str = "", body: Json = FORCING) -> tuple[int, list[Any], str | None]:
    """Return the status of a chat call, the calls in its answer, and what its client is told was left out."""
    async with running.chat(bearer(f"hs-{name}") if name else None, **body) as response:
        answer = await response.json()
    calls = calls_of("chat", answer) if response.status == 200 else []
    return response.status, calls, response.headers.get("x-holeshot-dropped")


CALLED = (200, [("weather", ARGUMENTS)], "tool_choice")


@pytest.mark.parametrize("spoken", KINDS)
async def test_who_takes_no_other_choice_than_its_own_is_left_to_choose_after_two_refusals(
    serve: Serve, spoken: str
) -> None:
    server = Server(spoken, WORDS[spoken], takes=["auto"])
    async with serve(alpha=None, config=settings(spoken)) as running:
        running["alpha"].answers = server
        for _ in range(3):
            assert await asked(running) == (200, [], "tool_choice")
            assert server.refusals == 2


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "deepseek-reasoner does not support this tool_choice"),
        (404, "No endpoints found that support the provided 'tool_choice' value. To learn more, visit our site"),
        (400, "Unsupported tool_choice: type='function' function=Choice(name='weather'). Expected 'auto' or 'none'."),
        (400, "tool_choice: 'function' is not supported for this model"),
        (400, 'tool_choice: unsupported value "function"'),
        (400, "The value 'function' for parameter tool_choice is not supported by this model."),
        (400, "`tool_choice` of type `function` is invalid for this model."),
        (400, "tool_choice 'function' has been removed for this model. Use structured outputs instead."),
        (400, "tool use cannot be forced with this model"),
        (400, "tool_choice: forced tool use requires a model without preserved thinking"),
    ],
)
async def test_vendors_that_refuse_a_choice_in_words_of_their_own(serve: Serve, status: int, words: str) -> None:
    server = Server("chat", words, status=status)
    async with serve(alpha=None, config=settings("chat")) as running:
        running["alpha"].answers = server
        for _ in range(2):
            assert await asked(running) == CALLED
            assert server.refusals == 1


async def test_ten_clients_meet_it_by_two_refusals_in_all(serve: Serve) -> None:
    names = [f"c{number}" for number in range(10)]
    server = Server("chat", WORDS["chat"])
    async with serve(alpha=None, config={**settings("chat"), **clients(*names)}) as running:
        running["alpha"].answers = server
        for name in names * 2:
            assert await asked(running, name) == CALLED
        assert server.refusals == 2


async def test_ten_clients_meet_one_that_takes_no_choice_at_all_by_three_refusals(serve: Serve) -> None:
    names = [f"c{number}" for number in range(10)]
    server = Server("chat", WORDS["chat"], takes=["auto"])
    async with serve(alpha=None, config={**settings("chat"), **clients(*names)}) as running:
        running["alpha"].answers = server
        for name in names * 2:
            assert (await asked(running, name))[0] == 200
        assert server.refusals == 3


async def test_where_another_deployment_obeys_it_is_asked_from_then_on(serve: Serve) -> None:
    server = Server("chat", WORDS["chat"])
    async with serve(alpha=None, beta=None, config=settings("chat", "beta/neue-7")) as running:
        running["alpha"].answers = server
        running.prefer("alpha", "beta", name_there="neue-7")
        for _ in range(5):
            assert (await asked(running))[0] == 200
        assert server.refusals == 1
        assert len(running["beta"].received) == 4
        assert all(each.body["tool_choice"] == NAMED["chat"]["tool_choice"] for each in running["beta"].received)


async def test_raced_it_is_refused_once(serve: Serve) -> None:
    one, other = Server("chat", WORDS["chat"]), Server("chat", WORDS["chat"])
    config = settings("chat", "beta/neue-7")
    config["models"][MODEL]["race"] = {"mode": "race"}
    async with serve(alpha=None, beta=None, config=config) as running:
        running["alpha"].answers, running["beta"].answers = one, other
        for _ in range(5):
            assert await asked(running) == CALLED
        assert max(one.refusals, other.refusals) == 1


async def test_an_operator_may_keep_the_refusal(serve: Serve) -> None:
    server = Server("chat", WORDS["chat"])
    async with serve(alpha=None, config=settings("chat", forced_tools="refuse")) as running:
        running["alpha"].answers = server
        for _ in range(3):
            assert (await asked(running))[0] == 400
        assert server.refusals == 1
        assert (await asked(running, body={**saying("chat"), **offering("chat", "weather")}))[0] == 200


@pytest.mark.parametrize(
    "words",
    [
        "The tool specified in `tool_choice` does not match any of the specified `tools`",
        "Invalid tool_choice: tool 'weather' not found",
        "tool_choice is only allowed when tools are specified",
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    ],
)
async def test_other_refusals_of_a_choice_stay_what_they_are(serve: Serve, words: str) -> None:
    async with serve(alpha=None, config=settings("chat")) as running:
        running["alpha"].answers = lambda _: refused(words)
        for sendings in (1, 2):
            assert (await asked(running))[0] == 400
            assert len(running["alpha"].received) == sendings


async def test_a_tool_that_is_not_offered_teaches_nothing(serve: Serve) -> None:
    server = Server("chat", "tool_choice: tool 'weather' is not allowed")
    wrong = {**FORCING, **offering("chat", "time")}
    async with serve(alpha=None, config=settings("chat")) as running:
        running["alpha"].answers = server
        assert (await asked(running, body=wrong))[0] == 400
        assert server.refusals == 1


async def test_words_in_a_prompt_teach_nothing(serve: Serve) -> None:
    def answers(body: Json) -> Sequence[Step]:
        return refused(f"Failed to parse request: {body['messages'][0]['content']}")

    quoting = {**FORCING, "messages": [{"role": "user", "content": f"It says: {WORDS['chat']}, always."}]}
    async with serve(alpha=None, config=settings("chat")) as running:
        running["alpha"].answers = answers
        assert (await asked(running, body=quoting))[0] == 400
        assert len(running["alpha"].received) == 1


async def test_a_prompt_that_has_the_vendors_very_words_takes_no_choice_from_others(serve: Serve) -> None:
    def answers(body: Json) -> Sequence[Step]:
        said = body["messages"][0]["content"]
        return refused(said) if said == WORDS["chat"] else answer("Hello")

    quoting = {**FORCING, "messages": [{"role": "user", "content": WORDS["chat"]}]}
    async with serve(alpha=None, config=settings("chat")) as running:
        running["alpha"].answers = answers
        assert (await asked(running, body=quoting))[0] == 400
        await asked(running, body=FORCING)
        assert running["alpha"].received[-1].body["tool_choice"] == FORCING["tool_choice"]
