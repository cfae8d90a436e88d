"""When recorders are told: after the first bytes, and yet before anything that depends on what they know."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
import structlog

from gateway.core.attempts import AttemptRecord, AttemptStart, Outcome, Role
from gateway.core.calls import Objective
from gateway.core.prompt_classes import PromptClass, answer_class
from gateway.racing import Attempt, AttemptTasks, Block, NoAnswer, Outbox
from gateway.settings import RaceSettings
from gateway.steering import MemoryBoard, Steering, Terms
from providers import ErrorKind
from tests.unit.racing.test_race import answers, hangs, refuses
from tests.unit.racing.track import RememberingRecorder, RememberingSink, Track
from tests.unit.racing.virtual_time import run, virtual_loop

PROMISED_S = 0.010
UNTOLD = ["call_started", "started a", "started b", "started c"]


class TimedRecorder(RememberingRecorder):
    """Remembers also when each end and first token was told, and how long ago it was then."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[float, float]] = []

    def first_token(
        self, model: str, prompt_class: PromptClass, start: AttemptStart, ttft_s: float, ago_s: float
    ) -> None:
        super().first_token(model, prompt_class, start, ttft_s, ago_s)
        self.told.append((asyncio.get_running_loop().time(), ago_s))

    def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
        super().attempt_ended(model, prompt_class, attempt, ago_s)
        self.told.append((asyncio.get_running_loop().time(), ago_s))


class LookingSink(RememberingSink):
    """Calls ``look`` at each write; its first one takes ``blocked_s``, as with a client that reads nothing."""

    def __init__(self, look: Callable[[], None] = lambda: None, *, blocked_s: float = 0.0) -> None:
        super().__init__()
        self._look = look
        self._blocked_s = blocked_s

    async def write(self, block: Block) -> None:
        self._look()
        blocked_s, self._blocked_s = self._blocked_s, 0.0
        await super().write(block)
        if blocked_s:
            await asyncio.sleep(blocked_s)


def heard_at_first_write(track: Track) -> list[str]:
    """Run a race; return what the recorder had heard when the first bytes were written."""
    looks: list[list[str]] = []
    track.sink = LookingSink(lambda: looks.append(list(track.recorder.heard)))
    run(track.run())
    return looks[0]


class RememberingTasks(AttemptTasks[Attempt]):
    """Keeps the attempts that were started."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[Attempt] = []

    def start(
        self, work: Coroutine[Any, Any, None], attempt: Attempt, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Task[None]:
        self.started.append(attempt)
        return super().start(work, attempt, loop)


def test_all_losers_are_dropped_and_the_first_bytes_written_before_any_record_is_built() -> None:
    a, b, c = answers("a", 0.1, "one", "two"), hangs("b"), answers("c", 0.5)
    seen: list[tuple[int, list[str]]] = []  # at each write: how many were dropped, and who has a record

    def look() -> None:
        built = [each.start.deployment for each in tasks.started if each.record is not None]
        seen.append((b.aborts + c.aborts, built))

    track = Track(a, b, c, sink=LookingSink(look))
    tasks = track.tasks = RememberingTasks()
    run(track.run())
    assert seen[0] == (2, [])
    assert [each.start.deployment for each in tasks.started if each.record is not None] == ["a", "b", "c"]
    assert [each.deployment for each in track.recorder.ended] == ["b", "c", "a"]


def test_recorders_hear_neither_of_the_first_token_nor_of_losers_before_the_first_write() -> None:
    track = Track(answers("a", 0.1, "one", "two"), hangs("b"), answers("c", 0.5))
    assert heard_at_first_write(track) == UNTOLD
    ends = ["first token a", "lost b", "lost c", "won a", "call_finished"]
    assert track.recorder.heard == [*UNTOLD, *ends]


def test_losers_of_a_winner_that_was_held_are_told_in_order_too() -> None:
    track = Track(
        answers("a", 0.1, "one", "two"), hangs("b"), answers("c", 9.0), decode_s={"a": 2.0, "b": 1.9, "c": 1.9}
    )
    run(track.run())
    assert track.recorder.heard[-4:] == ["lost b", "lost c", "won a", "call_finished"]


def test_a_call_is_recorded_after_all_that_happened_in_it_and_before_its_client_sees_the_end() -> None:
    ends: list[list[str]] = []

    class Sink(RememberingSink):
        async def end(self, last: Block) -> None:
            ends.append(list(track.recorder.heard))
            await super().end(last)

    track = Track(answers("a", 0.1), hangs("b"), sink=Sink())
    run(track.run())
    assert ends == [["call_started", "started a", "started b", "first token a", "lost b", "won a", "call_finished"]]


def test_a_failure_is_told_before_its_replacement_is_launched() -> None:
    track = Track(refuses("a", ErrorKind.SERVER_ERROR, 500), answers("b", 0.1), rest=["b"], launches=[FIRST])
    run(track.run())
    assert track.recorder.heard[:4] == ["call_started", "started a", "failed a", "started b"]


async def raced(track: Track) -> object:
    return await track.race().run()


def test_a_call_that_has_failed_is_told_when_its_race_ends() -> None:
    track = Track(refuses("a", ErrorKind.SERVER_ERROR, 500), refuses("b", ErrorKind.RATE_LIMITED, 429))
    assert isinstance(run(raced(track)), NoAnswer)
    assert track.recorder.heard[-2:] == ["failed a", "failed b"]


def test_what_happened_is_told_in_time_while_the_first_write_waits_for_the_client() -> None:
    track = Track(answers("a", 0.1, "one", "two"), hangs("b"), sink=LookingSink(blocked_s=3.0))
    recorder = track.recorder = TimedRecorder()
    run(track.run())
    happened = 1000.1
    for told_at, ago_s in recorder.told[:2]:
        assert told_at - happened <= PROMISED_S
        assert told_at - ago_s == pytest.approx(happened)


def test_under_load_it_is_told_in_time_too() -> None:
    """Each turn of the loop takes a millisecond, something always happens, and nobody writes."""
    told: list[float] = []

    async def main() -> None:
        loop = virtual_loop()
        outbox = Outbox()
        for _ in range(100):
            at = loop.time()
            outbox.add(lambda at=at: told.append(loop.time() - at))
            loop.now += 0.001
            await asyncio.sleep(0)
        outbox.drain()

    run(main())
    assert len(told) == 100
    assert max(told) <= PROMISED_S


def test_a_plan_knows_all_that_has_happened_and_when() -> None:
    async def main() -> tuple[set[str], set[str]]:
        outbox, now_s = Outbox(), 1000.0
        steering = Steering(
            MemoryBoard(),
            clock=lambda: now_s,
            unix_clock=lambda: 1_800_000_000.0 + now_s,
            random=Random(1),
            catch_up=outbox.drain,
        )

        def planned() -> set[str]:
            terms = Terms(Objective.FIRST_TOKEN, 100)
            plan = steering.plan("m", ("a", "b"), RaceSettings(budget=1.0), terms, answer_class(0))
            return {launch.deployment for launch in plan.launches} | set(plan.rest)

        def ended() -> None:  # a second ago
            steering.attempt_ended("m", answer_class(0), limited_for("a", 10.0), 1.0)

        outbox.add(ended)
        soon = planned()
        now_s += 9.5  # 10.5 s after the failure
        return soon, planned()

    assert run(main()) == ({"b"}, {"a", "b"})


def test_a_recorder_that_raises_harms_neither_the_race_nor_what_others_are_told() -> None:
    class Defective(RememberingRecorder):
        def first_token(self, *args: Any) -> None:
            raise ValueError("a defect")

        def attempt_ended(self, model: str, prompt_class: PromptClass, attempt: AttemptRecord, ago_s: float) -> None:
            super().attempt_ended(model, prompt_class, attempt, ago_s)
            raise ValueError("another")

    track = Track(answers("a", 0.1, "one", "two"), hangs("b"))
    track.recorder = Defective()
    with structlog.testing.capture_logs() as logs:
        record = run(track.run())
    assert {each.deployment: each.outcome for each in record.attempts} == {"a": Outcome.WON, "b": Outcome.LOST}
    assert track.recorder.heard[-3:] == ["lost b", "won a", "call_finished"]
    assert [entry["event"] for entry in logs] == ["call.recorder_failed"] * 3


def test_an_audited_loser_of_a_call_that_is_over_counts_at_once() -> None:
    """What it cost counts in limits: nobody may be admitted by what it was before."""
    watched = answers("b", 0.8)
    track = Track(answers("a", 0.1), watched, audited=["b"])
    recorder = track.recorder = TimedRecorder()

    async def main() -> None:
        await track.run()
        await asyncio.wait(list(track.tasks._tasks))

    run(main())
    assert recorder.heard[-3:] == ["first token b", "superseded b", "audited b"]
    assert recorder.told[-1] == (pytest.approx(1000.8), 0.0)


def limited_for(deployment: str, seconds: float) -> AttemptRecord:
    """Return the record of an attempt that was refused by a rate limit."""
    return AttemptRecord(
        id="1",
        call_id="call",
        number=1,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        role=Role.PRIMARY,
        provider=deployment,
        deployment=deployment,
        launch_offset_ms=0.0,
        outcome=Outcome.FAILED,
        error_kind=ErrorKind.RATE_LIMITED,
        retry_after_s=seconds,
    )


FIRST = ("a", 0.0, Role.PRIMARY)
