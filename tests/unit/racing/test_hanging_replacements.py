"""Calls whose answer has broken or is not valid, and whose next attempt hangs: a rescue comes as to the first one."""

import asyncio

import pytest

from gateway.core.attempts import Invalid, Role, WinOn
from gateway.core.calls import CallRecord, Mode
from gateway.racing import GatheringSink
from providers import ErrorKind, UpstreamError
from providers.dialects import CHAT
from tests.unit.racing.server import limited
from tests.unit.racing.test_race import answers, hangs
from tests.unit.racing.test_valid import TOOLS, calls
from tests.unit.racing.track import DONE, FINISH, ROLE, Step, Timetable, Track, delta
from tests.unit.racing.virtual_time import run

RESET = UpstreamError(ErrorKind.DISCONNECTED, "reset")
BREAKS: list[tuple[float, Step]] = [(0.1, ROLE), (0.1, delta("half")), (0.5, RESET)]
PLANNED = [("breaks", 0.0, Role.PRIMARY), ("hung", 2.0, Role.FAILOVER), ("spare", 4.0, Role.FAILOVER)]


@pytest.mark.parametrize("is_limited", [False, True])
def test_who_replaces_a_gathered_answer_that_broke_may_not_hang_longer_than_the_first(*, is_limited: bool) -> None:
    track = Track(
        Timetable("breaks", BREAKS),
        hangs("hung"),
        answers("spare", 0.2),
        launches=PLANNED,
        rescue_s=2.0,
        sink=GatheringSink(CHAT),
        streamed=False,
        seats=limited(hung=1, spare=1) if is_limited else None,
    )
    record = run(track.run())
    assert track.outcomes == {"breaks": "failed", "hung": "lost", "spare": "won"}
    assert record.ttft_ms == pytest.approx(2700)  # broken at 0.5 s, rescued 2 s later
    assert [start.role for start in track.recorder.launched] == [Role.PRIMARY, Role.FAILOVER, Role.FAILOVER]


def test_who_replaces_a_gathered_answer_that_broke_is_rescued_though_it_waited_for_its_seat() -> None:
    seats = limited(hung=1, spare=1)
    track = Track(
        Timetable("breaks", BREAKS),
        hangs("hung"),
        answers("spare", 0.2),
        launches=PLANNED,
        rescue_s=2.0,
        sink=GatheringSink(CHAT),
        streamed=False,
        seats=seats,
    )
    for line in seats.lines.values():
        line.take()

    async def wait() -> CallRecord:
        calling = asyncio.create_task(track.run())
        await asyncio.sleep(1.0)
        for line in seats.lines.values():
            line.give_back()
        return await calling

    record = run(wait())
    assert [(each.deployment, round(each.launch_offset_ms)) for each in record.attempts] == [
        ("breaks", 0), ("hung", 1000), ("spare", 3000),
    ]  # fmt: skip


def test_a_rival_that_ran_on_and_hangs_is_rescued_when_the_winner_breaks() -> None:
    track = Track(
        Timetable("breaks", BREAKS),
        hangs("rival"),
        answers("spare", 0.2),
        launches=[("breaks", 0.0, Role.PRIMARY), ("rival", 0.0, Role.RACE), ("spare", 2.0, Role.FAILOVER)],
        rescue_s=2.0,
        keep_rival=True,
        sink=GatheringSink(CHAT),
        streamed=False,
    )
    assert run(track.run()).ttft_ms == pytest.approx(2700)
    assert track.outcomes == {"breaks": "failed", "rival": "lost", "spare": "won"}


def test_who_replaces_a_held_answer_that_broke_is_rescued_too() -> None:
    track = Track(
        Timetable("slow-decoder", BREAKS),
        hangs("fast-decoder"),
        hangs("hung"),
        answers("spare", 0.2),
        launches=[
            ("slow-decoder", 0.0, Role.PRIMARY),
            ("fast-decoder", 0.0, Role.RACE),
            ("hung", 2.0, Role.FAILOVER),
            ("spare", 4.0, Role.FAILOVER),
        ],
        rescue_s=2.0,
        decode_s={"slow-decoder": 10.0, "fast-decoder": 2.0},
    )
    assert run(track.run()).ttft_ms == pytest.approx(2700)
    assert track.outcomes["spare"] == "won"


@pytest.mark.parametrize("beaten", [1, 2])
@pytest.mark.parametrize("breaks", [True, False], ids=["it breaks", "it stalls"])
def test_a_gathered_answer_that_ends_badly_after_minutes_is_replaced_by_one_that_it_has_beaten(
    beaten: int, *, breaks: bool
) -> None:
    long: list[tuple[float, Step]] = [(0.1, ROLE), *((float(at), delta("more")) for at in range(1, 400))]
    again = [(1.0, delta("whole")), (1.1, FINISH), (1.2, DONE), (1.2, None)]
    names = [f"beaten {number}" for number in range(beaten)]
    track = Track(
        Timetable("winner", [*long, (400.0, RESET)] if breaks else long),
        *(Timetable(name, [(1.5, delta("late"))], again) for name in names),
        launches=[("winner", 0.0, Role.PRIMARY), *((name, 0.0, Role.RACE) for name in names)],
        sink=GatheringSink(CHAT),
        streamed=False,
    )
    record = run(track.run())
    assert (record.status_code, record.attempts[-1].deployment) == (200, names[0])
    assert track.outcomes["winner"] == ("failed" if breaks else "stalled")


@pytest.mark.parametrize("keep_rival", [True, False])
@pytest.mark.parametrize("breaks", [True, False], ids=["it breaks", "it stalls"])
@pytest.mark.parametrize("second", [0.2, 250.0, 450.0], ids=["it has broken", "sooner", "later"])
def test_a_backup_that_breaks_too_is_replaced_however_late_it_is(
    second: float, *, keep_rival: bool, breaks: bool
) -> None:
    long: list[tuple[float, Step]] = [(0.1, ROLE), *((float(at), delta("more")) for at in range(1, 400))]
    track = Track(
        Timetable("winner", [*long, (400.0, RESET)] if breaks else long[:2]),
        Timetable(
            "backup", [(0.1, ROLE), *((at, delta("more")) for at in (1.5, 200.0) if at < second), (second, RESET)]
        ),
        answers("third", 0.2),
        launches=[("winner", 0.0, Role.PRIMARY), ("backup", 0.0, Role.RACE)],
        rest=["third"],
        keep_rival=keep_rival,
        sink=GatheringSink(CHAT),
        streamed=False,
    )
    record = run(track.run())
    assert (record.status_code, track.outcomes["third"]) == (200, "won")


@pytest.mark.parametrize("breaks", [True, False], ids=["it breaks", "it refuses"])
def test_each_gathered_answer_that_breaks_after_minutes_is_replaced(*, breaks: bool) -> None:
    long: list[tuple[float, Step]] = [(0.1, ROLE), *((float(at), delta("more")) for at in range(1, 250))]
    track = Track(
        Timetable("first", [*long, (250.0, RESET)]),
        Timetable("second", [*long, (250.0, RESET)] if breaks else [(0.1, RESET)]),
        answers("third", 0.2),
        launches=[("first", 0.0, Role.PRIMARY)],
        rest=["second", "third"],
        sink=GatheringSink(CHAT),
        streamed=False,
    )
    assert run(track.run()).status_code == 200
    assert track.outcomes == {"first": "failed", "second": "failed", "third": "won"}


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.SINGLE])
def test_one_more_is_asked_each_time_until_one_answers_and_none_beyond_that(mode: Mode) -> None:
    launches = [("h1", 0.0, Role.PRIMARY), ("h2", 2.0, Role.FAILOVER), ("h3", 4.0, Role.FAILOVER)]
    upstreams = [*(hangs(f"h{number}") for number in (1, 2, 3, 4)), answers("slow", 1.0), answers("spare", 0.1)]
    track = Track(*upstreams, launches=launches, rest=["h4", "slow", "spare"], rescue_s=2.0, mode=mode)
    record = run(track.run())
    assert track.outcomes["slow"] == "won"
    assert [start.role for start in track.recorder.launched[1:]] == [Role.FAILOVER] * (record.launched - 1)
    assert record.ttft_ms == pytest.approx(9000)
    assert track.upstreams["spare"].requests == []


def test_a_gathered_answer_that_does_not_break_leaves_no_rescue_behind() -> None:
    track = Track(
        Timetable("breaks", BREAKS),
        answers("whole", 0.1, *"abcdefgh", gap=1.0),
        answers("spare", 0.2),
        launches=[("breaks", 0.0, Role.PRIMARY), ("whole", 2.0, Role.FAILOVER), ("spare", 4.0, Role.FAILOVER)],
        rescue_s=2.0,
        sink=GatheringSink(CHAT),
        streamed=False,
    )
    assert run(track.run()).launched == 2
    assert track.upstreams["spare"].requests == []


@pytest.mark.parametrize("invalid", list(Invalid))
@pytest.mark.parametrize("is_limited", [False, True])
def test_a_rescue_that_the_budget_does_not_let_be_an_extra_attempt_comes_in_its_time(
    *, invalid: Invalid, is_limited: bool
) -> None:
    track = Track(
        calls("broken", 0.1, 0.3, "{"),
        hangs("hung"),
        calls("whole", 0.2, 0.5),
        launches=[("broken", 0.0, Role.PRIMARY), ("hung", 0.0, Role.RACE), ("whole", 2.0, Role.FAILOVER)],
        permits=1,
        win_on=WinOn.VALID,
        invalid=invalid,
        fields=TOOLS,
        seats=limited(hung=3, whole=3) if is_limited else None,
    )
    assert run(track.run()).ttft_ms == pytest.approx(2500)
    assert track.outcomes["whole"] == "won"
