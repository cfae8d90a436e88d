"""Where a voice listens, the second attempt is kept while it says the same, and goes on where the winner stops."""

import asyncio
from typing import Any

import pytest

from providers.simulator import Delta, Done, Drop, Finish, Gate, Hang, Pause, Step, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.takeover.test_rescue import Answer, begun
from tests.app.gateway.watcher import watching
from tests.patience import until

BEGUN, REST = "Yes. And there", " is more of it."


def spoken(*, continues: str = "no", takeover: Any = None, **race: Any) -> dict[str, Any]:
    more = {"continues": continues, "price_per_mtok": {"input": 1, "output": 1}}
    deployments = [{"deployment": f"{name}/m", **more} for name in ("alpha", "beta")]
    model = {"deployments": deployments, "race": {"profile": "voice", **race}}
    return {"models": {MODEL: model if takeover is None else {**model, "takeover": takeover}}}


def late(begun: asyncio.Event, *then: Step) -> list[Step]:
    """Return an answer that begins once another has won."""
    return [Gate(begun), *then]


def whole(text: str = BEGUN) -> list[Step]:
    return [Delta(text), Delta(REST), Finish(), Done()]


class Heard(Answer):
    """What a caller has heard; says when it was something."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def listen(self, running: RunningGateway, headers: Any = None, **fields: Any) -> "Heard":
        async with running.chat(stream=True, headers=headers, **fields) as response:
            assert response.status == 200
            while block := await response.content.readany():
                self.came += block
                if BEGUN in self.text:
                    self.begun.set()
        return self


@pytest.fixture(autouse=True)
def waits_for_the_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.racing.rescue.CATCH_UP_S", 60.0)


@pytest.mark.parametrize("continues", ["no", "final_message"])
async def test_who_said_the_same_goes_on_where_the_winner_breaks_and_nobody_is_asked(
    serve: Serve, continues: str
) -> None:
    heard, breaks = Heard(), asyncio.Event()
    first = [Delta(BEGUN), Gate(breaks), Drop()]
    async with serve(alpha=first, beta=late(heard.begun, *whole()), config=spoken(continues=continues)) as running:
        async with watching(running.http, running.url, None) as watcher:
            listening = asyncio.ensure_future(heard.listen(running, stream_options={"include_usage": True}))
            await watcher.seen("first", 2)  # the second has a clause as well
            breaks.set()
            await listening
        assert (heard.text, heard.is_whole) == (BEGUN + REST, True)
        assert running.requests == 2
        call = await running.call()
        assert (call["takeover"], call["takeovers"], call["error_kind"], call["extras"]) == ("finished", 1, None, 1)
        rows = await running.rows("select * from attempts order by provider")
        assert [(row["outcome"], row["is_kept"]) for row in rows] == [("failed", 0), ("won", 1)]
        assert call["winner_attempt_id"] == rows[1]["id"]


async def test_one_that_is_a_little_behind_is_waited_for(serve: Serve) -> None:
    heard, breaks, goes_on = Heard(), asyncio.Event(), asyncio.Event()
    first = [Delta(BEGUN), Gate(breaks), Drop()]
    second = late(heard.begun, Delta("Yes. And"), Gate(goes_on), Delta(" there"), Delta(REST), Finish())
    async with serve(alpha=first, beta=second, config=spoken()) as running:
        async with watching(running.http, running.url, None) as watcher:
            listening = asyncio.ensure_future(heard.listen(running))
            await watcher.seen("first", 2)
            breaks.set()
            await until(lambda: running["alpha"].counts.errors)
            goes_on.set()
            await listening
        assert (heard.text, heard.is_whole) == (BEGUN + REST, True)


@pytest.mark.parametrize("other", ["Sure. And there", "Yes. But here"])
async def test_who_says_something_else_is_cut_as_soon_as_it_does(serve: Serve, other: str) -> None:
    heard, ends = Heard(), asyncio.Event()
    first = [Delta(BEGUN), Gate(ends), *answer(REST)]
    async with serve(alpha=first, beta=late(heard.begun, Delta(other), Hang()), config=spoken()) as running:
        listening = asyncio.ensure_future(heard.listen(running))
        await until(lambda: running["beta"].counts.disconnects)
        ends.set()
        await listening
        assert (heard.text, heard.is_whole) == (BEGUN + REST, True)
        rows = await running.rows("select outcome, is_kept from attempts order by provider")
        assert [tuple(row.values()) for row in rows] == [("won", 0), ("superseded", 1)]


async def test_it_is_cut_when_the_winner_breaks_and_it_says_something_else(serve: Serve) -> None:
    heard, breaks = Heard(), asyncio.Event()
    first = [Delta(BEGUN), Gate(breaks), Drop()]
    async with serve(alpha=first, beta=late(heard.begun, *whole("Sure. Not here")), config=spoken()) as running:
        async with watching(running.http, running.url, None) as watcher:
            listening = asyncio.ensure_future(heard.listen(running))
            await watcher.seen("first", 2)
            breaks.set()
            await listening
        assert heard.text == BEGUN
        assert b'"error"' in heard.came
        assert await running.outcomes() == {"alpha": "failed", "beta": "superseded"}


async def test_it_is_kept_until_the_voice_has_enough_to_say(serve: Serve) -> None:
    heard, ends = Heard(), asyncio.Event()
    much = " word" * 40
    first = [Delta(BEGUN), Gate(heard.begun), Delta(much), Gate(ends), Finish(), Done()]
    async with serve(alpha=first, beta=[Gate(heard.begun), Delta("Yes"), Hang()], config=spoken()) as running:
        listening = asyncio.ensure_future(heard.listen(running))
        await until(lambda: running["beta"].counts.disconnects)
        ends.set()
        await listening
        assert (heard.text, heard.is_whole) == (BEGUN + much, True)
        won, lost = await running.rows("select * from attempts order by provider")
        assert (won["is_kept"], lost["is_kept"], lost["outcome"]) == (0, 1, "lost")
        # It is known to be slower than the winner. Until when it ran on is no sample: what it said had it cut.
        lost_at = lost["launch_offset_ms"] + lost["censored_at_ms"]
        assert lost_at == pytest.approx((await running.call())["ttft_ms"], abs=0.01)


async def test_a_stream_that_falls_behind_its_voice_gives_way(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.racing.rescue.SPOKEN_TICK_S", 0.02)
    monkeypatch.setattr("gateway.racing.rescue.LEAST_S", 0.04)
    heard = Heard()
    async with serve(alpha=[Delta(BEGUN), Hang()], beta=late(heard.begun, *whole()), config=spoken()) as running:
        await heard.listen(running)
        assert (heard.text, heard.is_whole) == (BEGUN + REST, True)
        assert running.requests == 2
        assert (await running.call())["takeover"] == "rescued"
        assert await running.outcomes() == {"alpha": "superseded", "beta": "won"}


async def test_a_rival_that_begins_after_the_voice_has_fallen_silent_goes_on_as_well(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when its stream has been silent for as long as seldom: a voice has long had nothing to say then."""
    monkeypatch.setattr("gateway.racing.rescue.SPOKEN_TICK_S", 0.02)
    monkeypatch.setattr("gateway.racing.rescue.LEAST_S", 0.04)
    monkeypatch.setattr("gateway.racing.speech.SPOKEN_CHARS_S", 1e6)  # all text is heard when it comes
    heard = Heard()
    second = late(heard.begun, Pause(0.5), begun(text=BEGUN + REST), Finish(), Done())
    slo = {"unbroken": {"profile": "voice", "gap_ms": 100}}
    async with serve(alpha=[Delta(BEGUN), Hang()], beta=second, config={**spoken(), "slo": slo}) as running:
        await heard.listen(running)
        assert (heard.text, heard.is_whole) == (BEGUN + REST, True)
        assert (await running.call())["takeover"] == "rescued"
        assert await running.outcomes() == {"alpha": "superseded", "beta": "won"}
        # A caller heard nothing meanwhile: in the rows of both, and as a call that halted.
        stopped, went_on = await running.rows("select * from attempts order by provider")
        silence_ms = went_on["launch_offset_ms"] + went_on["sentence_ms"]
        silence_ms -= stopped["launch_offset_ms"] + stopped["last_token_ms"]
        assert min(stopped["speech_pause_ms"], went_on["speech_pause_ms"]) > silence_ms - 0.1  # the time of its text
        async with running.get("/api/slo") as response:
            [target] = (await response.json())["targets"]
        assert (target["calls"], target["halting"]) == (1, 1)


@pytest.mark.parametrize(("rest", "kept_s"), [(" word" * 20_000, 600.0), (REST, 0.0)])
async def test_it_is_kept_for_so_many_bytes_and_so_long_at_most(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, rest: str, kept_s: float
) -> None:
    """Also while it says the same, and a slow voice has not enough to say yet."""
    monkeypatch.setattr("gateway.racing.speech.SPOKEN_CHARS_S", 0.1)
    monkeypatch.setattr("gateway.racing.rescue.RIVAL_LEAD_S", 1e9)
    monkeypatch.setattr("gateway.racing.rescue.RIVAL_FOR_S", kept_s)
    heard, ends = Heard(), asyncio.Event()
    second = late(heard.begun, begun(text=BEGUN + rest), Hang())
    async with serve(alpha=[Delta(BEGUN), Gate(ends), *answer(REST)], beta=second, config=spoken()) as running:
        listening = asyncio.ensure_future(heard.listen(running))
        await until(lambda: running["beta"].counts.disconnects)
        ends.set()
        await listening
        assert (heard.text, heard.is_whole) == (BEGUN + REST, True)
        lost = (await running.rows("select is_kept, outcome from attempts where provider = 'beta'"))[0]
        assert (lost["is_kept"], lost["outcome"]) == (1, "superseded" if rest != REST else "lost")


async def test_a_caller_who_interrupts_cuts_both(serve: Serve) -> None:
    heard = Heard()
    hangs: list[Step] = [Delta(BEGUN), Hang()]
    async with serve(alpha=hangs, beta=late(heard.begun, *hangs), config=spoken()) as running:
        async with watching(running.http, running.url, None) as watcher:
            listening = asyncio.ensure_future(heard.listen(running))
            await watcher.seen("first", 2)
            listening.cancel()
            await until(lambda: running["alpha"].counts.disconnects and running["beta"].counts.disconnects)
        call = await running.call()
        rows = await running.rows("select is_kept, cost_usd from attempts order by provider")
        assert [row["is_kept"] for row in rows] == [0, 1]
        costs = [row["cost_usd"] for row in rows]
        assert min(costs) > 0
        assert (call["status_code"], call["cost_usd"], call["extras"]) == (499, pytest.approx(sum(costs)), 1)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (spoken(keep_rival=False), {}),
        (spoken(takeover="never"), {}),
        (spoken(profile="chat", win_on="sentence", mode="race", takeover="always"), {}),
        (spoken(profile="chat", mode="race", takeover="always"), {"headers": {"x-holeshot-race": "voice"}}),
        (spoken(), {"response_format": {"type": "json_object"}}),
    ],
)
async def test_else_nobody_is_kept(serve: Serve, config: Any, options: Any) -> None:
    heard, ends = Heard(), asyncio.Event()
    second = [Gate(ends), *answer("never")]
    async with serve(alpha=[Delta(BEGUN), Gate(ends), Finish()], beta=second, config=config) as running:
        listening = asyncio.ensure_future(heard.listen(running, **options))
        await until(lambda: running["beta"].counts.disconnects)
        ends.set()
        await listening
        rows = await running.rows("select is_kept from attempts order by provider")
        assert [row["is_kept"] for row in rows] == [None, None]
