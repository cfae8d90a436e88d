"""A refusal that comes within an answer, with status 200 and before anything of it, teaches as one with 400 does."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from providers.simulator import Delta, Raw, Status, Step
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, NATIVE, QUESTION, learnt, told
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

THINKS = {"messages": QUESTION, "reasoning_effort": "low"}
UNSUPPORTED = "`reasoning_effort` is not supported with this model"
ROLE = Raw(b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n')
CODES: Mapping[str, dict[str, Any]] = {
    "of a vendor": {"type": "invalid_request_error", "code": 400},
    "of a server": {"type": "BadRequestError", "object": "error", "code": 400},
    "without a code": {},
    "of a fault": {"type": "internal_server_error", "code": 500},
}
DROPPING = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", "drop_params": True}]}}}


def within(said: str, *before: Step, **more: Any) -> list[Step]:
    """Return an answer with status 200 that is an error, after events that say nothing."""
    return [*before, Raw(b"data: " + json.dumps({"error": {"message": said, **more}}).encode() + b"\n\n")]


def refusing(name: str, said: str = UNSUPPORTED, *before: Step, **more: Any) -> Any:
    return lambda body: within(said, *before, **more) if name in body else ANSWERS["chat"]


async def count(running: RunningGateway, *names: str) -> list[int]:
    return [len(running[name].received) for name in names]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("before", [(), (ROLE,), (Raw(b": ping\n\n"), ROLE)], ids=["at once", "role", "ping"])
async def test_it_is_asked_once_more_and_at_once_from_then_on(
    serve: Serve, stream: bool, code: str, before: Sequence[Step]
) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("reasoning_effort", UNSUPPORTED, *before, **CODES[code])
        await learnt(running, THINKS | {"stream": stream}, dropped="reasoning_effort")
        async with running.get("/leaderboard") as response:
            [row] = (await response.json())["models"][0]["deployments"]
        rows = await running.rows("select role, outcome, error_kind from attempts order by id")
    assert row["refuses"] == ["reasoning_effort"]
    assert sorted((each["role"], each["outcome"]) for each in rows) == [
        ("form", "won"),
        ("primary", "failed"),
        ("primary", "won"),
    ]
    assert {each["error_kind"] for each in rows} == {None, "form_refused"}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_both_of_a_race_are_asked_as_they_want(serve: Serve, stream: bool) -> None:
    async with serve(alpha=None, beta=None) as running:
        for name in ("alpha", "beta"):
            running[name].answers = refusing("reasoning_effort")
            running.prefer(name, *({"alpha", "beta"} - {name}))
        for _ in range(4):
            assert await told(running, THINKS | {"stream": stream}) == (200, "reasoning_effort")
        efforts = [["reasoning_effort" in one.body for one in running[name].received] for name in ("alpha", "beta")]
    assert all(sum(each) <= 2 for each in efforts)  # the second, if the first was cut before it was refused


@pytest.mark.parametrize("native", [each for each in NATIVE if each[0] != "gemini"], ids=lambda native: native[3])
async def test_in_its_own_api_too(serve: Serve, native: tuple[str, str, dict[str, Any], str, str]) -> None:
    api, path, body, name, said = native
    error = {"type": "invalid_request_error", "message": said, "code": None, "param": None}
    event = (
        {"type": "error", "sequence_number": 1, **error} if api == "responses" else {"type": "error", "error": error}
    )
    refused = [Raw(b"event: error\ndata: " + json.dumps(event).encode() + b"\n\n")]

    def has(sent: Any) -> bool:
        return "effort" in sent.get("reasoning", {}) if name == "reasoning" else name in sent

    async with serve(alpha=None, config={"providers": {"alpha": speaking(api)}}) as running:
        running["alpha"].answers = lambda sent: refused if has(sent) else ANSWERS[api]
        for sendings in (2, 3):
            status, dropped = await told(running, body | {"stream": True}, path)
            assert (status, len(running["alpha"].received)) == (200, sendings)
            assert str(dropped).startswith(name)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_wrong_request_stays_wrong_after_one_more_try(serve: Serve, stream: bool) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].script = within(UNSUPPORTED, code=400)  # whatever it is sent
        async with running.post({"model": MODEL, **THINKS, "stream": stream}) as response:
            assert response.status == 400
            assert UNSUPPORTED in await response.text()
        assert len(running["alpha"].received) == 2
        running["alpha"].script = ANSWERS["chat"]
        assert await told(running, THINKS) == (200, None)  # nothing is remembered


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_of_two_things_that_are_wrong_the_second_is_told(serve: Serve, stream: bool) -> None:
    second = "temperature must be between 0 and 2"
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: within(UNSUPPORTED if "reasoning_effort" in body else second, code=400)
        async with running.post({"model": MODEL, **THINKS, "temperature": 3, "stream": stream}) as response:
            assert response.status == 400
            assert second in await response.text()
        assert len(running["alpha"].received) == 2


@pytest.mark.parametrize(
    "said",
    [
        "temperature must be between 0 and 2",
        "the prompt is flagged; see our guide to `reasoning_effort`",
        "`top_p` is not supported with this model",
        "max_tokens and stop_sequences are described in our guide, reasoning_effort too",
    ],
)
async def test_what_only_mentions_a_field_is_not_asked_again(serve: Serve, said: str) -> None:
    async with serve(alpha=None, config=DROPPING) as running:
        running["alpha"].script = within(said, code=400)
        assert (await told(running, THINKS | {"temperature": 3}))[0] == 400
        assert len(running["alpha"].received) == 1


async def test_what_the_client_asked_for_is_never_left_out(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("seed", "`seed` is not supported with this model", code=400)
        assert (await told(running, {"messages": QUESTION, "seed": 7}))[0] == 400
        assert len(running["alpha"].received) == 1


async def test_after_some_of_an_answer_nobody_is_asked_again(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        for stream in (True, False):
            running["alpha"].script = within(UNSUPPORTED, Delta("Hel"), code=400)
            async with running.post({"model": MODEL, **THINKS, "stream": stream}) as response:
                assert UNSUPPORTED in await response.text()
        assert len(running["alpha"].received) == 2


@pytest.mark.parametrize("code", [400, None])
async def test_a_refusal_to_stream_is_one_too(serve: Serve, code: int | None) -> None:
    said = "`response_format` does not support streaming"
    asked = {"messages": QUESTION, "response_format": {"type": "json_object"}}
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: within(said, code=code) if body["stream"] else ANSWERS["chat"]
        for sendings in (2, 3):
            assert (await told(running, asked))[0] == 200
            assert len(running["alpha"].received) == sendings
        async with running.get("/leaderboard") as response:
            [row] = (await response.json())["models"][0]["deployments"]
        assert row["refuses"] == ["streaming, in chat with response_format=json_object"]
        assert (await told(running, asked | {"stream": True}))[0] == (
            code or 502
        )  # what a client streams is not answered whole
        assert len(running["alpha"].received) == 4


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_refusal_of_the_api_is_one_too(serve: Serve, stream: bool) -> None:
    said = "This model is only supported in v1/responses and not in v1/chat/completions."
    config = {"providers": {"alpha": speaking("chat") | {"apis": ["chat", "responses"]}}}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = lambda body: ANSWERS["responses"] if "input" in body else within(said)
        for sendings in (2, 3):
            assert (await told(running, {"messages": QUESTION, "stream": stream}))[0] == 200
            assert len(running["alpha"].received) == sendings


LENGTHS = "Zoveel tokens: 9000, hoogstens 4096"
FILTERED = "Die Anfrage verstößt gegen die Inhaltsrichtlinien."


@pytest.mark.parametrize("whole", [True, False], ids=["a body", "an event"])
@pytest.mark.parametrize("code", [{}, {"code": "4711"}, {"type": "weird"}], ids=str)
@pytest.mark.parametrize("said", [LENGTHS, FILTERED])
async def test_a_length_and_a_filter_in_foreign_words_are_the_requests_fault(
    serve: Serve, said: str, code: dict[str, Any], *, whole: bool
) -> None:
    error = {"message": said, **code}
    asked = {"messages": [{"role": "user", "content": "word " * 9000}]}
    async with serve(alpha=None, config={"models": {MODEL: {"race": {"mode": "single"}}}}) as running:
        running["alpha"].script = [Status(200, {"error": error})] if whole else within(**{"said": said, **code})
        for _ in range(8):
            async with running.post({"model": MODEL, **asked, "stream": not whole}) as response:
                told_code = (await response.json())["error"]["code"]
                assert response.status == 400
            assert told_code == ("context_length_exceeded" if said is LENGTHS else "invalid_prompt")
        running["alpha"].script = ANSWERS["chat"]
        assert await told(running, {"messages": QUESTION}) == (200, None)  # it is not out


async def test_a_server_whose_filter_fails_is_at_fault_itself(serve: Serve) -> None:
    async with serve(alpha=within("content filter crashed", code=500)) as running:
        assert (await told(running, {"messages": QUESTION}))[0] == 502


NO_SUCH_FIELD = "unknown field `user`"


@pytest.mark.parametrize("code", CODES)
async def test_answers_that_pass_unread_teach_too(serve: Serve, code: str) -> None:
    refused = Status(200, {"error": {"message": NO_SUCH_FIELD, **CODES[code]}})
    asked = {"input": "Hi", "user": "u"}
    async with serve(alpha=None) as running:
        running["alpha"].answers = lambda body: [refused] if "user" in body else []
        await learnt(running, asked, "/v1/embeddings", dropped="user")


@pytest.mark.parametrize(("said", "sendings"), [(NO_SUCH_FIELD, 2), ("the input is wrong", 1)])
async def test_of_them_a_wrong_request_stays_wrong_too(serve: Serve, said: str, sendings: int) -> None:
    asked = {"input": "Hi", "user": "u"}
    async with serve(alpha=[Status(200, {"error": {"message": said, "code": 400}})]) as running:
        async with running.post({"model": MODEL, **asked}, path="/v1/embeddings") as response:
            assert (response.status, (await response.json())["error"]["message"]) == (400, said)
        assert len(running["alpha"].received) == sendings
        running["alpha"].script = []
        assert await told(running, asked, "/v1/embeddings") == (200, None)  # nothing is remembered
