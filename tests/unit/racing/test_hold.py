import asyncio
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord, Mode, Objective
from gateway.racing import BrokenAnswer, Continuation, Continuer, Continuers, GatheringSink
from gateway.settings import Profile, RaceSettings
from gateway.steering import Launch, Plan
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT, Continuing, DeliveredPart
from tests.unit.racing.test_race import answers
from tests.unit.racing.track import DONE, FINISH, ROLE, RememberingSink, Timetable, Track, delta, usage
from tests.unit.racing.virtual_time import run
from tests.unit.steering.virtual_replica import VirtualReplica

BY_DEFAULT: list[dict[str, Any]] = [
    *({"mode": mode} for mode in (Mode.AUTO, Mode.RACE, Mode.HEDGE)),
    *({"profile": profile} for profile in Profile),
    *({"profile": profile, "mode": "race", "budget": 1.0} for profile in Profile),
]
SPEEDS = {"slow-decoder": 10.0, "fast-decoder": 2.0}


def test_a_faster_decoder_overtakes_within_the_hold() -> None:
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    track = Track(slow, answers("fast-decoder", 1.2), decode_s=SPEEDS)
    record = run(track.run())
    assert track.outcomes == {"slow-decoder": "superseded", "fast-decoder": "won"}
    assert record.ttft_ms == pytest.approx(1200)
    assert (record.held_ms, record.held_for, record.held_gain_ms) == (pytest.approx(1000), "fast-decoder", 8000)
    assert track.sink.bytes.startswith(delta(role="assistant", content=""))  # type: ignore[union-attr]
    assert b"from fast-decoder" in track.sink.bytes  # type: ignore[union-attr]


@pytest.mark.parametrize(("before_s", "tokens"), [(1e-12, 7), (-1e-12, 1)])
def test_what_a_held_attempt_had_read_as_another_won_is_in_its_row(before_s: float, tokens: int) -> None:
    thinks, says = (0.2, ROLE + delta(reasoning_content="Hm")), (1.2 - before_s, delta("Oh") + usage(10, 7))
    track = Track(Timetable("slow-decoder", [thinks, says]), answers("fast-decoder", 1.2), decode_s=SPEEDS)
    held = run(track.run()).attempts[0]
    assert track.outcomes == {"slow-decoder": "superseded", "fast-decoder": "won"}
    assert held.ttft_ms == pytest.approx(200)
    assert held.ttft_answer_ms == (None if before_s < 0 else pytest.approx(1200))
    assert held.completion_tokens == tokens


def test_a_held_attempt_wins_when_its_time_is_up_and_what_was_kept_goes_out_at_once() -> None:
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    track = Track(slow, answers("fast-decoder", 30.0), decode_s=SPEEDS)
    record = run(track.run())
    assert track.outcomes == {"slow-decoder": "won", "fast-decoder": "lost"}
    assert record.ttft_ms == pytest.approx(5200)  # the moment of release
    assert (record.held_ms, record.held_for, record.held_gain_ms) == (pytest.approx(5000), "fast-decoder", 8000)
    assert record.attempts[0].ttft_ms == pytest.approx(200)  # the provider's own
    assert track.sink.blocks[0].count(b"data:") == 6  # type: ignore[union-attr]


def test_the_hold_lasts_no_longer_than_the_gain() -> None:
    slow = answers("slow-decoder", 0.2, *"abc", gap=3.0)
    track = Track(slow, answers("fast-decoder", 30.0), decode_s={"slow-decoder": 3.5, "fast-decoder": 2.0})
    assert run(track.run()).ttft_ms == pytest.approx(1700)


def test_a_hold_ends_before_the_deadline_that_it_could_keep() -> None:
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    track = Track(slow, answers("fast-decoder", 30.0), decode_s=SPEEDS, deadline_ms=1000.0)
    record = run(track.run())
    assert record.ttft_ms == pytest.approx(980)
    assert record.deadline_met is True


def test_a_hold_that_begins_after_the_deadline_lasts_as_long_as_any() -> None:
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    track = Track(slow, answers("fast-decoder", 30.0), decode_s=SPEEDS, deadline_ms=100.0)
    record = run(track.run())
    assert record.ttft_ms == pytest.approx(5200)
    assert record.deadline_met is False


def test_nobody_is_held_for_a_slower_decoder() -> None:
    track = Track(answers("fast-decoder", 0.2), answers("slow-decoder", 0.3), decode_s=SPEEDS)
    record = run(track.run())
    assert record.ttft_ms == pytest.approx(200)
    assert (record.held_ms, record.held_for, record.held_gain_ms) == (None, None, None)


@pytest.mark.parametrize("speeds", [{"slow-decoder": 10.0}, SPEEDS | {"probed": 0.5}], ids=["unknown", "known"])
def test_nobody_is_held_for_a_probe(speeds: dict[str, float]) -> None:
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    launches = [("slow-decoder", 0.0, Role.PRIMARY), ("probed", 0.0, Role.PROBE)]
    track = Track(slow, answers("probed", 30.0), launches=launches, decode_s=speeds)
    assert run(track.run()).ttft_ms == pytest.approx(200)


def test_a_probe_that_fails_or_is_slow_lets_nobody_go_and_keeps_nobody() -> None:
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    launches = [("slow-decoder", 0.0, Role.PRIMARY), ("fast-decoder", 0.0, Role.RACE), ("probed", 0.0, Role.PROBE)]
    failing = Timetable("fast-decoder", [(1.0, UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500))])
    track = Track(slow, failing, answers("probed", 30.0), launches=launches, decode_s=SPEEDS | {"probed": 0.5})
    assert run(track.run()).ttft_ms == pytest.approx(1000)  # nobody worth waiting for is left


def test_without_an_expectation_nobody_is_held_or_waited_for() -> None:
    for known in ("fast-decoder", "slow-decoder"):
        track = Track(
            answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0), answers("fast-decoder", 30.0), decode_s={known: 1.0}
        )
        assert run(track.run()).ttft_ms == pytest.approx(200)


def test_a_slower_decoder_does_not_overtake() -> None:
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    speeds = {**SPEEDS, "third": 11.0}
    track = Track(slow, answers("third", 0.5), answers("fast-decoder", 30.0), decode_s=speeds)
    run(track.run())
    assert track.outcomes == {"slow-decoder": "won", "third": "superseded", "fast-decoder": "lost"}


def test_a_whole_answer_is_not_held_any_longer() -> None:
    track = Track(answers("slow-decoder", 0.2, "a", "b"), answers("fast-decoder", 30.0), decode_s=SPEEDS)
    assert run(track.run()).total_ms == pytest.approx(300)


def test_nothing_is_launched_while_holding() -> None:
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    launches = [("slow-decoder", 0.0, Role.PRIMARY), ("fast-decoder", 0.0, Role.RACE), ("late", 1.0, Role.HEDGE)]
    track = Track(slow, answers("fast-decoder", 30.0), answers("late", 0.1), launches=launches, decode_s=SPEEDS)
    run(track.run())
    assert track.upstreams["late"].requests == []


def test_a_held_attempt_that_breaks_leaves_the_race_to_the_others() -> None:
    error = UpstreamError(ErrorKind.DISCONNECTED, "reset")
    slow = Timetable("slow-decoder", [(0.2, delta("half")), (0.5, error)])
    track = Track(slow, answers("fast-decoder", 1.2), decode_s=SPEEDS)
    record = run(track.run())
    assert track.outcomes == {"slow-decoder": "failed", "fast-decoder": "won"}
    assert (record.error_kind, record.ttft_ms) == (None, pytest.approx(1200))
    assert record.held_ms is None  # the winner was not


def test_a_held_attempt_wins_at_once_when_the_one_it_waits_for_fails() -> None:
    fast = Timetable("fast-decoder", [(1.0, UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500))])
    track = Track(answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0), fast, decode_s=SPEEDS)
    record = run(track.run())
    assert (record.ttft_ms, record.held_ms) == (pytest.approx(1000), pytest.approx(800))


def empty(name: str, at: float) -> Timetable:
    return Timetable(name, [(at, ROLE), (at, FINISH), (at, DONE), (at, None)])


def test_a_held_attempt_wins_at_once_when_the_answer_it_waits_for_is_empty() -> None:
    track = Track(answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0), empty("fast-decoder", 1.0), decode_s=SPEEDS)
    record = run(track.run())
    assert track.outcomes == {"slow-decoder": "won", "fast-decoder": "lost"}
    assert (record.ttft_ms, record.held_ms) == (pytest.approx(1000), pytest.approx(800))


def test_nobody_is_held_any_longer_for_an_empty_answer_when_another_fails() -> None:
    third = Timetable("third", [(1.0, UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500))])
    slow = answers("slow-decoder", 0.5, *"abcdefgh", gap=1.0)
    track = Track(slow, empty("fast-decoder", 0.2), third, decode_s={**SPEEDS, "third": 3.0})
    assert run(track.run()).ttft_ms == pytest.approx(1000)


def test_a_client_that_leaves_during_the_hold_stops_everybody() -> None:
    async def main() -> None:
        task = asyncio.create_task(track.run())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    track = Track(slow, answers("fast-decoder", 30.0), decode_s=SPEEDS)
    run(main())
    assert (slow.aborts, track.upstreams["fast-decoder"].aborts) == (1, 1)


def test_the_hold_of_an_answer_that_broke_and_that_nobody_could_finish_is_in_its_row() -> None:
    class Sink(RememberingSink):
        def may_be_continued(self, error: UpstreamError) -> bool:
            return True

        def begun(self, continuing: Continuing) -> DeliveredPart:
            return DeliveredPart("half", None)

        def keep_alive(self, every_s: float) -> None:
            """Send nothing."""

        async def close(self) -> None:
            """Likewise."""

    async def holds(_: Launch) -> bool:
        return True

    async def main() -> CallRecord | BrokenAnswer:
        race = track.race()
        broken = await race.run()
        assert isinstance(broken, BrokenAnswer)
        own = Continuer(track.model, track.plan, race.open_call.call, holds, lambda *_: True)
        continuers = Continuers(own, lambda _: iter(()))
        return await Continuation(race.open_call, sink, continuers, broken).finish()

    sink = Sink()
    slow = Timetable("slow-decoder", [(0.2, delta("half")), (8.0, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    track = Track(slow, answers("fast-decoder", 30.0), decode_s=SPEEDS, sink=sink)
    record = run(main())
    assert isinstance(record, CallRecord)
    assert (record.takeover, record.held_for, record.held_ms) == ("nobody", "fast-decoder", pytest.approx(5000))


def test_a_gathered_answer_is_held_alike() -> None:
    sink = GatheringSink(CHAT)
    track = Track(
        answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0),
        Timetable("fast-decoder", [(1.0, delta("quick")), (1.1, FINISH), (1.1, None)]),
        decode_s=SPEEDS,
        sink=sink,
        streamed=False,
    )
    run(track.run())
    assert b'"content":"quick"' in sink.body()


def test_two_empty_answers_do_not_wait_for_each_other() -> None:
    track = Track(empty("slow-decoder", 0.2), empty("fast-decoder", 0.4), decode_s=SPEEDS)
    assert run(track.run()).total_ms == pytest.approx(400)


def test_nobody_replaces_the_failure_that_ends_a_hold() -> None:
    fast = Timetable("fast-decoder", [(1.0, UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500))])
    launches = [("slow-decoder", 0.0, Role.PRIMARY), ("fast-decoder", 0.0, Role.RACE)]
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    track = Track(slow, fast, answers("third", 60.0), launches=launches, rest=["third"], decode_s=SPEEDS)
    run(track.run())
    assert track.upstreams["third"].requests == []


def test_who_is_let_go_during_a_hold_stands_by() -> None:
    slow = Timetable("slow-decoder", [(0.2, delta("half")), (8.0, UpstreamError(ErrorKind.DISCONNECTED, "reset"))])
    speeds = {**SPEEDS, "third": 11.0}
    fast = Timetable("fast-decoder", [(7.0, UpstreamError(ErrorKind.SERVER_ERROR, "no", status=500))] * 2)
    track = Track(slow, answers("third", 0.5), fast, decode_s=speeds, sink=GatheringSink(CHAT), streamed=False)
    assert run(track.run()).status_code == 200


def planned(**race: Any) -> Plan:
    """Return the plan of a streamed chat call, or what is raced first in it, among a slow and a fast decoder."""
    settings = RaceSettings.model_validate(race)
    replica = VirtualReplica(("slow-decoder", "fast-decoder"))
    for _ in range(200):
        replica.win("slow-decoder", 0.2, speed_tps=8.0)
        replica.win("fast-decoder", 0.3, speed_tps=300.0)
    replica.now_s += 1.0
    objective = Objective.READING if settings.objective is Objective.AUTO else settings.objective
    settled = {name: getattr(settings, name) for name in settings.model_fields_set - {"objective"}}
    options: dict[str, Any] = {"objective": objective, "holds": settings.holds(streamed=True), "max_tokens": 400}
    return replica.plan(**{**settled, **options})


def raced(plan: Plan) -> Track:
    """Return a race in which the slow decoder is first with a token, and the fast one follows 100 ms later."""
    slow = answers("slow-decoder", 0.2, *"abcdefgh", gap=1.0)
    launches = [("slow-decoder", 0.0, Role.PRIMARY), ("fast-decoder", 0.0, Role.RACE)]
    track = Track(slow, answers("fast-decoder", 0.3), launches=launches)
    track.plan = msgspec.structs.replace(track.plan, decode_s=plan.decode_s)
    return track


@pytest.mark.parametrize("race", BY_DEFAULT, ids=str)
def test_by_default_the_first_token_wins_at_once_and_is_not_overtaken(race: dict[str, Any]) -> None:
    plan = planned(**race)
    track = raced(plan)
    record = run(track.run())
    assert track.outcomes == {"slow-decoder": "won", "fast-decoder": "lost"}
    assert (record.ttft_ms, record.held_ms) == (pytest.approx(200), None)
    assert {launch.deployment for launch in plan.launches} <= set(SPEEDS)


@pytest.mark.parametrize("race", [each for each in BY_DEFAULT if each.get("profile") is not Profile.BATCH], ids=str)
def test_a_token_is_held_where_that_is_asked_for(race: dict[str, Any]) -> None:
    for asked in ({"hold": True}, {"objective": "reading"}, {"objective": "completion"}):
        track = raced(planned(**race, **asked))
        assert run(track.run()).ttft_ms == pytest.approx(300)
        assert track.outcomes == {"slow-decoder": "superseded", "fast-decoder": "won"}
        refused = raced(planned(**race, **{**asked, "hold": False}))
        assert run(refused.run()).ttft_ms == pytest.approx(200)
