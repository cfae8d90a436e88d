"""A stream that stands still after text: another goes on beside it, over real sockets."""

import asyncio
from typing import Any

import pytest

from providers.simulator import Delta, Done, Drop, Finish, Gate, Hang, Raw
from tests.app.gateway.broken_answers import BODIES
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.takeover.test_rescue import PATHS, WHOLE, Answer, asked, begun, rescuing, rest

WORDS = [f"word{number}" for number in range(40)]
TWENTY, ALL = " ".join(WORDS[:20]), " ".join(WORDS)
STALLED = [("alpha", "primary", "stalled"), ("beta", "takeover", "won")]


@pytest.fixture(autouse=True)
def noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.racing.timeouts.UNKNOWN_S", 0.2)
    monkeypatch.setattr("gateway.racing.timeouts.LEAST_S", 0.2)
    monkeypatch.setattr("gateway.racing.timeouts.LONG_S", 0.1)


def standing(api: str = "chat", **options: Any) -> dict[str, Any]:
    return rescuing(api, slow=None, **options)


@pytest.mark.parametrize("api", PATHS)
async def test_after_twenty_words_the_next_ones_are_the_others_and_none_is_wrong(serve: Serve, api: str) -> None:
    others = rest(api, f" {WORDS[19]} " + " ".join(WORDS[20:]))
    async with serve(alpha=[begun(api, TWENTY), Hang()], beta=others, config=standing(api)) as running:
        answer = await asked(running, api)
        assert (answer.text, answer.is_whole) == (ALL, True)
        call = await running.call()
        assert (call["takeover"], call["takeovers"], call["error_kind"]) == ("finished", 1, None)
        assert await running.attempts() == STALLED
        first, second = await running.rows("select * from attempts order by number")
        assert (first["error_kind"], second["continues"]) == ("stall_timeout", first["id"])


async def test_a_false_alarm_keeps_the_answer_and_cuts_the_rival(serve: Serve) -> None:
    async with serve(alpha=None, beta=[Hang()], config=standing()) as running:
        asked_other = Gate(running["beta"].requested)
        running["alpha"].script = [begun(), asked_other, Delta("wn"), Delta(" hat"), Finish(), Done()]
        answer = await asked(running)
        assert (answer.text, answer.is_whole) == ("The quick brown hat", True)
        await running["beta"].reach(disconnects_before_first_token=1)
        call = await running.call()
        assert (call["takeover"], call["takeovers"], call["error_kind"]) == (None, None, None)
        assert await running.attempts() == [("alpha", "primary", "won"), ("beta", "takeover", "lost")]


async def test_what_goes_on_first_is_sent_at_once_and_not_held_back(serve: Serve) -> None:
    seen = asyncio.Event()
    async with serve(alpha=None, beta=[Hang()], config=standing()) as running:
        asked_other = Gate(running["beta"].requested)
        running["alpha"].script = [begun(), asked_other, Delta("wn"), Gate(seen), Delta(" hat"), Finish(), Done()]
        answer = await asked(running, until="brown", then=seen)
        assert answer.text == "The quick brown hat"
        assert await running.attempts() == [("alpha", "primary", "won"), ("beta", "takeover", "lost")]


@pytest.mark.parametrize("ping", [b": ping\n\n", b"event: ping\ndata: {}\n\n", b'data: {"type":"ping"}\n\n'])
async def test_a_stream_of_nothing_but_pings_stands_still(serve: Serve, ping: bytes) -> None:
    gates = [asyncio.Event() for _ in range(3_000)]
    script = [begun(), *(step for gate in gates for step in (Raw(ping), Gate(gate))), Hang()]
    async with serve(alpha=script, beta=rest(), config=standing()) as running:
        answer, came = Answer(), 0
        body = {"model": MODEL, "stream": True, **BODIES[PATHS["chat"]], "provider": {"order": ["alpha", "beta"]}}
        async with running.post(body, path="/v1/chat/completions") as response:
            while block := await response.content.readany():
                answer.came += block
                for gate in gates[came : (came := answer.came.count(b"ping"))]:
                    gate.set()  # the next ping comes as soon as the client has this one
        assert (answer.text, answer.is_whole) == (WHOLE, True)
        assert came > 3
        assert await running.attempts() == STALLED


async def test_a_rival_that_fails_leaves_the_stream_as_it_was(serve: Serve) -> None:
    failed = asyncio.Event()
    async with serve(alpha=None, beta=[Drop()], config=standing()) as running:
        running["alpha"].script = [begun(), Gate(failed), Delta("wn"), Finish(), Done()]
        asking = asyncio.create_task(asked(running))
        await running["beta"].reach(requests=1, errors=1)
        failed.set()
        answer = await asking
        assert (answer.text, answer.is_whole) == ("The quick brown", True)
        assert (await running.attempts())[0] == ("alpha", "primary", "won")


async def test_a_rival_is_permitted_like_a_rescue(serve: Serve) -> None:
    async with serve(alpha=[begun(), Hang()], beta=rest(), config=standing()) as running:
        steering = running.gateway.context.steering
        before = steering.extra_attempts_left(MODEL)
        assert (await asked(running)).text == WHOLE
        assert steering.extra_attempts_left(MODEL) == before, "the budget is 0, and a first rescue is never refused"


async def test_tools_are_never_watched(serve: Serve) -> None:
    config = standing() | {"timeouts": {"stall_timeout_s": 0.5}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    async with serve(alpha=[begun(), Hang()], beta=rest(), config=config) as running:
        await asked(running, tools=[tool])
        call = await running.call()
        assert (call["takeover"], call["error_kind"]) == ("tools", "stall_timeout")
        assert running["beta"].counts.requests == 0


async def whole(running: RunningGateway) -> str:
    """Return the text of an answer that is not streamed, from a call that asks alpha first."""
    body = {"model": MODEL, **BODIES[PATHS["chat"]], "provider": {"order": ["alpha", "beta"]}}
    async with running.post(body) as response:
        assert response.status == 200
        return str((await response.json())["choices"][0]["message"]["content"])


def plain() -> dict[str, Any]:
    """Return a configuration without takeover."""
    config = standing()
    del config["models"][MODEL]["takeover"]
    return config


async def test_a_silent_whole_answer_is_given_by_another_without_takeover(serve: Serve) -> None:
    words = [Delta(f"{word} ") for word in WORDS]
    async with serve(alpha=[*words[:20], Hang()], beta=[Delta(ALL), Finish(), Done()], config=plain()) as running:
        assert await whole(running) == ALL
        assert await running.attempts() == [("alpha", "primary", "stalled"), ("beta", "failover", "won")]
        await running["alpha"].reach(requests=1)
        call = await running.call()
        assert (call["error_kind"], call["takeover"]) == (None, None)


async def test_a_whole_answer_that_goes_on_first_is_kept(serve: Serve) -> None:
    async with serve(alpha=None, beta=[Hang()], config=plain()) as running:
        asked_other = Gate(running["beta"].requested)
        running["alpha"].script = [begun(), asked_other, Delta("wn"), Finish(), Done()]
        assert await whole(running) == "The quick brown"
        await running["beta"].reach(disconnects_before_first_token=1)
        assert await running.attempts() == [("alpha", "primary", "won"), ("beta", "failover", "lost")]


async def test_a_whole_answer_of_nothing_but_pings_is_given_by_another(serve: Serve) -> None:
    pings = [step for _ in range(50) for step in (Raw(b": ping\n\n"), Raw(b"event: ping\ndata: {}\n\n"))]
    async with serve(alpha=[begun(), *pings, Hang()], beta=[Delta(ALL), Finish(), Done()], config=plain()) as running:
        assert await whole(running) == ALL


OTHER = "other"


def falling_back(usd: float = 1.0, **model: Any) -> dict[str, Any]:
    """Return a configuration in which MODEL has one deployment and the fallback OTHER, at ``beta``."""
    config = standing()
    [own, other] = config["models"][MODEL]["deployments"]
    own["price_per_mtok"], other["price_per_mtok"] = {"input": 1.0, "output": 1.0}, {"input": usd, "output": usd}
    race = {"mode": "single", "budget": 0, "usd_per_day": 0}
    config["models"][MODEL] |= {"deployments": [own], "fallbacks": [OTHER], "race": race, **model}
    config["models"][OTHER] = {"deployments": [other]}
    return config


async def test_a_fallback_goes_on_beside_a_silent_stream(serve: Serve) -> None:
    async with serve(alpha=[begun(), Hang()], beta=rest(), config=falling_back()) as running:
        answer = await asked(running)
        assert (answer.text, answer.is_whole) == (WHOLE, True)
        assert await running.attempts() == STALLED
        call = await running.call()
        assert (call["answered_model"], call["takeover"], call["error_kind"]) == (None, "finished", None)
        assert [row["model"] for row in await running.rows("select * from attempts order by number")] == [MODEL, OTHER]


async def test_a_silent_stream_that_goes_on_first_has_the_fallback_cut(serve: Serve) -> None:
    async with serve(alpha=None, beta=[Hang()], config=falling_back()) as running:
        asked_other = Gate(running["beta"].requested)
        running["alpha"].script = [begun(), asked_other, Delta("wn"), Delta(" hat"), Finish(), Done()]
        assert (await asked(running)).text == "The quick brown hat"
        assert await running.attempts() == [("alpha", "primary", "won"), ("beta", "takeover", "lost")]
        assert (await running.call())["takeover"] is None


@pytest.mark.parametrize("model", [{"fallback_after": "failure"}, {"usd": 11.0}], ids=["failure", "dear"])
async def test_a_fallback_that_needs_a_failure_continues_only_once_the_silent_stream_has_ended(
    serve: Serve, model: dict[str, Any]
) -> None:
    config = falling_back(**model, timeouts={"stall_timeout_s": 1.0})
    async with serve(alpha=[begun(), Hang()], beta=rest(), config=config) as running:
        assert (await asked(running)).text == WHOLE
        assert await running.attempts() == [("alpha", "primary", "stalled"), ("beta", "takeover", "won")]
        first, second = await running.rows("select * from attempts order by number")
        assert first["error_message"] == "no further event within 1 s"
        assert second["launch_offset_ms"] > 1_000, "not beside it"
