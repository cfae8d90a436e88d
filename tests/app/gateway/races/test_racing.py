"""Races over real sockets: the first meaningful delta wins, and the losers' own count says they were cut."""

import asyncio
from typing import Any

import pytest

from providers.simulator import Comment, Delta, Done, Finish, Gate, Hang, JsonEvent, Reasoning, RoleOnly, answer
from tests.app.gateway.running_gateway import MODEL, Serve, single

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@BOTH
async def test_the_first_meaningful_delta_wins_and_the_loser_sees_its_client_hang_up(
    serve: Serve, stream: bool
) -> None:
    async with serve(fast=None, slow=[RoleOnly(), Hang()]) as running:
        running["fast"].script = [Gate(running["slow"].requested), *answer("from fast")]
        assert b"from fast" in await hold(running.chat(stream=stream))
        await running["slow"].reach(disconnects_before_first_token=1)
        assert await running.outcomes() == {"fast": "won", "slow": "lost"}
        assert running["fast"].counts.disconnects == 0
        assert running["fast"].counts.in_flight == running["slow"].counts.in_flight == 0


@BOTH
async def test_a_loser_that_has_not_even_sent_headers_is_cut_too(serve: Serve, stream: bool) -> None:
    async with serve(fast=None, silent=[Hang()]) as running:
        running["fast"].script = [Gate(running["silent"].requested), *answer("from fast")]
        assert b"from fast" in await hold(running.chat(stream=stream))
        await running["silent"].reach(disconnects_before_first_token=1)


async def test_the_loser_is_cut_before_the_winner_has_finished(serve: Serve) -> None:
    go_on = asyncio.Event()
    async with serve(fast=None, slow=[Hang()]) as running:
        running["fast"].script = [Gate(running["slow"].requested), Delta("a"), Gate(go_on), *answer("b")]
        async with running.chat(stream=True) as response:
            await response.content.readline()
            await running["slow"].reach(disconnects_before_first_token=1)  # while the winner still streams
            go_on.set()
            assert (await response.read()).endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    "race", [{"mode": "auto"}, {"mode": "race"}, *({"profile": each} for each in ("chat", "voice", "agent"))], ids=str
)
async def test_a_slow_decoder_answers_if_its_token_is_first(serve: Serve, race: dict[str, Any]) -> None:
    whole = {"mode": "race", "width": 2, "budget": 1.0, "ttft_ms": 1000}  # auto asks the second one to keep this
    config = {"models": {MODEL: {"race": {**whole, **race}}}}
    async with serve(fast=[Hang()], slow=None, config=config) as running:
        running.prefer("fast", "slow")  # with ten times the speed
        running["slow"].script = [Gate(running["fast"].requested), *answer("from slow")]
        assert b"from slow" in await hold(running.chat(stream=True))
        assert await running.outcomes() == {"fast": "lost", "slow": "won"}
        row = await running.call()
        assert (row["held_ms"], row["held_for"], row["held_gain_ms"]) == (None, None, None)


async def test_a_row_says_for_whom_its_first_token_was_held(serve: Serve) -> None:
    go_on = asyncio.Event()
    async with serve(fast=[Hang()], slow=None) as running:
        running.prefer("fast", "slow")
        running["slow"].script = [Gate(running["fast"].requested), Delta("from slow"), Gate(go_on), *answer()]
        async with running.chat(stream=True, race={"mode": "race", "objective": "completion"}) as response:
            go_on.set()
            assert b"from slow" in await response.read()
        row = await running.call()
        assert row["held_ms"] is not None
        assert row["held_for"] == "fast/m"
        assert row["held_gain_ms"] > 0


async def test_neither_a_role_nor_a_comment_nor_an_empty_delta_wins(serve: Serve) -> None:
    empty = JsonEvent({"choices": [{"index": 0, "delta": {"content": "", "tool_calls": []}}]})
    filtered = JsonEvent({"choices": [], "prompt_filter_results": []})
    async with serve(noisy=[filtered, RoleOnly(), Comment(), empty, Hang()], quick=None) as running:
        running["quick"].script = [Gate(running["noisy"].requested), *answer("real")]
        assert b"real" in await hold(running.chat(stream=True))
        assert await running.outcomes() == {"noisy": "lost", "quick": "won"}


async def test_reasoning_wins(serve: Serve) -> None:
    async with serve(thinker=[Reasoning("Hm"), *answer("x")], silent=[Hang()]) as running:
        await hold(running.chat(stream=True))
        assert await running.outcomes() == {"thinker": "won", "silent": "lost"}


async def test_reasoning_does_not_win_where_only_an_answer_may(serve: Serve) -> None:
    async with serve(thinker=[Reasoning("Hm"), Hang()], talker=None) as running:
        running["talker"].script = [Gate(running["thinker"].requested), *answer("Yes")]
        await hold(running.chat(stream=True, race={"win_on": "answer"}))
        assert (await running.outcomes())["talker"] == "won"


async def test_a_hedge_starts_only_when_the_first_is_late(serve: Serve) -> None:
    race = {"mode": "hedge", "hedge_delay_s": 0.02}
    async with serve(first=[Hang()], second=None, config={"models": {MODEL: {"race": race}}}) as running:
        running["second"].script = [Gate(running["first"].requested), *answer("hedged")]
        running.prefer("first", "second")
        assert b"hedged" in await hold(running.chat())
        rows = await running.rows("select provider, role, outcome from attempts order by number")
        assert [tuple(row.values()) for row in rows] == [("first", "primary", "lost"), ("second", "hedge", "won")]
        await running["first"].reach(disconnects_before_first_token=1)


async def test_single_asks_one_provider_only(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=single()) as running:
        await hold(running.chat())
        assert running.requests == 1


async def test_auto_races_the_best_two_by_default(serve: Serve) -> None:
    config = {"models": {MODEL: {"race": {"mode": "auto", "width": 2}}}}
    async with serve(alpha=[Hang()], beta=answer("hi"), gamma=[Hang()], config=config) as running:
        running.prefer("alpha", "beta", "gamma", first_s=5.0)  # on a busy machine the third would be asked, too
        await hold(running.chat())
        assert await running.attempts() == [("alpha", "primary", "lost"), ("beta", "race", "won")]


async def test_one_deployment_may_race_against_itself(serve: Serve) -> None:
    config = {"models": {MODEL: {"race": {"mode": "race", "width": 2}}}}
    async with serve(only=answer("second connection"), config=config) as running:
        running["only"].once([Hang()])
        assert b"second connection" in await hold(running.chat())
        await running["only"].reach(requests=2, disconnects_before_first_token=1)


async def test_an_answer_without_a_token_waits_for_those_that_still_run(serve: Serve) -> None:
    async with serve(empty=[RoleOnly(), Finish("content_filter"), Done()], good=None) as running:
        running["good"].script = [Gate(running["empty"].requested), *answer("something")]
        assert b"something" in await hold(running.chat())


async def test_an_answer_without_a_token_wins_when_nobody_else_runs(serve: Serve) -> None:
    async with serve(empty=[RoleOnly(), Finish("content_filter"), Done()]) as running:
        assert b"content_filter" in await hold(running.chat())


async def test_an_upstream_that_cannot_stream_is_raced_on_its_whole_body(serve: Serve) -> None:
    deployments: list[Any] = [{"deployment": "whole/m", "upstream_stream": False}, "stream/m"]
    config = {"models": {MODEL: {"deployments": deployments}}}
    async with serve(whole=None, stream=[Hang()], config=config) as running:
        running["whole"].script = [Gate(running["stream"].requested), *answer("all at once")]
        body = await hold(running.chat(stream=True))
        assert running["whole"].received[0].body["stream"] is False
        await running["stream"].reach(disconnects_before_first_token=1)
    assert b"all at once" in body
    assert body.endswith(b"data: [DONE]\n\n")


async def hold(request: Any) -> bytes:
    """Send a request and return the whole body of its answer, which must be a good one."""
    async with request as response:
        body: bytes = await response.read()
        assert response.status == 200, body
        return body
