"""Attempts of one relayed call beside each other, in virtual time: as in a race."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError, ClientDisconnected, CutByExpiry, CutByRevocation, ShuttingDown
from gateway.racing import FallbackModel, Race, RelayedRequest
from gateway.steering import Launch
from providers import ErrorKind, Price, Request, UpstreamError
from providers.exchange import UpstreamAnswer
from tests.support.calls import with_facts
from tests.unit.racing import virtual_time
from tests.unit.racing.server import left_clean, limited
from tests.unit.racing.test_relay import (
    EMBED,
    SLOW,
    VECTORS,
    WRONG,
    Room,
    Speaker,
    TimedRest,
    in_virtual_time,
)

HEDGE = Launch("s2", 0.3, Role.HEDGE)
RESCUE = Launch("s3", 2.0, Role.FAILOVER)
WAVE = (
    b"RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\xc0\x5d\x00\x00"
    b"\x80\xbb\x00\x00\x02\x00\x10\x00data\xff\xff\xff\xff"
)
TTS = RelayedRequest(path="audio/speech", is_sound=True)


def roles(room: Room) -> list[str]:
    return [each.role for each in room.record.attempts]


@in_virtual_time
async def test_a_hedge_that_fails_is_replaced_at_once() -> None:
    room = Room(Speaker(17.0, VECTORS), Speaker(0.1, SLOW), Speaker(0.2, VECTORS), asking=EMBED, beside=[HEDGE])
    record = await room.run()
    assert (record.total_ms, record.extras) == (pytest.approx(600.0), 2)
    assert room.outcomes == {"s1": "lost", "s2": "failed", "s3": "won"}


@in_virtual_time
async def test_a_first_choice_that_fails_beside_its_hedge_is_replaced_at_once() -> None:
    room = Room(Speaker(0.5, SLOW), Speaker(17.0, VECTORS), Speaker(0.2, VECTORS), asking=EMBED, beside=[HEDGE])
    assert (await room.run()).total_ms == pytest.approx(700.0)
    assert roles(room) == ["primary", "hedge", "failover"]


@in_virtual_time
async def test_a_request_that_one_finds_invalid_is_sent_to_nobody_else_while_another_looks_at_it() -> None:
    third = Speaker(0.2, VECTORS)
    room = Room(Speaker(5.0, VECTORS), Speaker(0.1, WRONG), third, asking=EMBED, beside=[HEDGE, RESCUE], rescue_s=2.0)
    assert (await room.run()).total_ms == 5000.0
    assert third.requests == []


@in_virtual_time
async def test_a_hedge_that_the_budget_refuses_comes_when_the_first_one_counts_as_hanging() -> None:
    seen: list[tuple[str, Role]] = []

    def only_rescues(launch: Launch) -> bool:
        seen.append((launch.deployment, launch.role))
        return launch.role is Role.FAILOVER

    silent, other = Speaker(17.0, VECTORS), Speaker(0.2, VECTORS)
    room = Room(silent, other, asking=EMBED, beside=[HEDGE], rescue_s=0.6, may_launch=only_rescues)
    assert (await room.run()).total_ms == pytest.approx(800.0)
    assert seen == [("s2", Role.HEDGE), ("s2", Role.FAILOVER)]


@in_virtual_time
async def test_a_rescue_that_is_refused_is_tried_again_after_a_second() -> None:
    asked: list[float] = []

    def at_last(launch: Launch) -> bool:
        asked.append(asyncio.get_running_loop().time() - 1000.0)
        return len(asked) == 3

    room = Room(
        Speaker(17.0, VECTORS),
        Speaker(0.2, VECTORS),
        asking=EMBED,
        beside=[Launch("s2", 0.6, Role.FAILOVER)],
        rescue_s=0.6,
        may_launch=at_last,
    )
    assert (await room.run()).total_ms == pytest.approx(2800.0)
    assert asked == pytest.approx([0.6, 1.6, 2.6])


@in_virtual_time
async def test_a_rescue_whose_deployment_is_full_goes_where_there_is_room() -> None:
    seats = limited(s2=1)
    seats.lines["s2"].take()
    speakers = Speaker(17.0, VECTORS), Speaker(0.2, VECTORS), Speaker(0.2, VECTORS)
    room = Room(*speakers, asking=EMBED, beside=[Launch("s2", 0.6, Role.FAILOVER)], rescue_s=0.6, seats=seats)
    assert (await room.run()).total_ms == pytest.approx(800.0)
    assert room.outcomes == {"s1": "lost", "s3": "won"}


@in_virtual_time
async def test_a_call_that_waited_for_a_seat_is_hedged_when_it_is_late_from_then_on() -> None:
    seats, other = limited(s1=1, s2=1), Speaker(0.2, VECTORS)
    for line in seats.lines.values():
        line.take()
    room = Room(Speaker(0.2, VECTORS), other, asking=EMBED, beside=[HEDGE], seats=seats)
    running = asyncio.create_task(room.run())
    await asyncio.sleep(1.0)
    for line in seats.lines.values():
        line.give_back()
    assert ((await running).total_ms, room.record.extras) == (pytest.approx(1200.0), 0)
    left_clean(seats)


@in_virtual_time
async def test_a_first_choice_that_is_full_changes_places_with_its_hedge() -> None:
    seats = limited(s1=1)
    seats.lines["s1"].take()
    room = Room(Speaker(0.2, VECTORS), Speaker(17.0, VECTORS), asking=EMBED, beside=[HEDGE], seats=seats)
    running = asyncio.create_task(room.run())
    await asyncio.sleep(0.1)
    seats.lines["s1"].give_back()
    assert (await running).total_ms == pytest.approx(500.0)
    assert room.outcomes == {"s2": "lost", "s1": "won"}
    left_clean(seats)


@in_virtual_time
async def test_a_hedge_for_which_there_is_no_deployment_is_told_when_it_would_be_due() -> None:
    told: list[tuple[float, Launch]] = []

    def may_launch(launch: Launch) -> bool:
        told.append((asyncio.get_running_loop().time(), launch))
        return False

    withheld = Launch("s1", 0.3, Role.HEDGE)
    room = Room(Speaker(1.0, VECTORS), asking=EMBED, withheld=withheld, may_launch=may_launch)
    await room.run()
    assert told == [(1000.3, withheld)]


@in_virtual_time
async def test_a_full_deployment_that_would_race_itself_is_named_once() -> None:
    seats = limited(s1=1)
    seats.lines["s1"].take()
    room = Room(Speaker(0.2, VECTORS), asking=EMBED, beside=[Launch("s1", 0.3, Role.HEDGE)], seats=seats)
    assert str(await room.fail()).count("s1") == 1


@in_virtual_time
async def test_a_deployment_alone_races_itself() -> None:
    class Moody(Speaker):
        async def send(self, path: str, request: Request) -> UpstreamAnswer:
            self._after_s = 0.2 if self.requests else 17.0
            return await super().send(path, request)

    room = Room(Moody(0.0, VECTORS), asking=EMBED, beside=[Launch("s1", 0.3, Role.HEDGE)])
    record = await room.run()
    assert (record.total_ms, [each.outcome for each in record.attempts]) == (500.0, ["lost", "won"])


@in_virtual_time
async def test_a_loser_has_its_part_of_the_cost() -> None:
    price = Price(input_usd=1e-6, output_usd=0.0)
    room = Room(Speaker(17.0, VECTORS), Speaker(0.2, VECTORS), asking=EMBED, beside=[HEDGE], price=price)
    record = await room.run()
    assert (record.cost_usd, record.duplicate_cost_usd) == (pytest.approx(6e-6), pytest.approx(3e-6))


@in_virtual_time
async def test_a_sound_wins_with_its_first_bytes_after_the_header() -> None:
    header_only = TimedRest([(5.0, b"sound"), (0.1, None)])
    other = TimedRest([(0.1, b"more"), (0.1, None)])
    room = Room(Speaker(0.1, WAVE, header_only), Speaker(0.3, WAVE + b"sound", other), asking=TTS, beside=[HEDGE])
    record = await room.run()
    assert room.outcomes == {"s1": "lost", "s2": "won"}
    assert b"".join(room.outlet.written) == WAVE + b"soundmore"
    assert record.attempts[1].ttft_ms == pytest.approx(300.0)
    assert header_only.aborted


@in_virtual_time
async def test_a_sound_that_has_begun_is_never_asked_for_again() -> None:
    other = Speaker(0.1, WAVE + b"x")
    rest = TimedRest([(5.0, b"b"), (0.1, UpstreamError(ErrorKind.DISCONNECTED, "gone"))])
    room = Room(Speaker(0.1, WAVE + b"a", rest), other, asking=TTS, beside=[HEDGE])
    assert ((await room.run()).error_kind, other.requests, room.outlet.dropped) == ("disconnected", [], True)


@in_virtual_time
async def test_a_sound_that_breaks_in_its_header_is_asked_for_elsewhere() -> None:
    rest = TimedRest([(0.1, UpstreamError(ErrorKind.DISCONNECTED, "gone"))])
    room = Room(Speaker(0.1, WAVE, rest), Speaker(0.1, b"sound"), asking=TTS)
    await room.run()
    assert (room.outcomes, rest.aborted) == ({"s1": "failed", "s2": "won"}, True)


@in_virtual_time
async def test_a_client_that_leaves_after_a_header_leaves_no_stream_open() -> None:
    rest = TimedRest([(50.0, b"b")])
    room = Room(Speaker(0.1, WAVE, rest), asking=TTS)
    running = asyncio.create_task(room.run())
    await asyncio.sleep(1.0)
    running.cancel()
    await asyncio.wait([running])
    assert (room.outcomes, rest.aborted) == ({"s1": "client_gone"}, True)


@in_virtual_time
async def test_a_loser_that_speaks_costs_what_its_text_does() -> None:
    asking = RelayedRequest(path="audio/speech", is_sound=True, is_priced=False, cost_usd={"s1": 0.3, "s2": 0.2})
    room = Room(Speaker(17.0, b"sound"), Speaker(0.2, b"sound"), asking=asking, beside=[HEDGE])
    record = await room.run()
    assert (record.cost_usd, record.duplicate_cost_usd) == (pytest.approx(0.5), pytest.approx(0.3))
    assert (record.cost_low_usd, record.cost_high_usd) == (pytest.approx(0.2), pytest.approx(0.5))


@in_virtual_time
async def test_a_client_that_leaves_as_the_winner_answers_leaves_no_seat_taken() -> None:
    for after_s in (0.299, 0.3, 0.5, 0.501):
        seats = limited(s1=1, s2=1)
        room = Room(Speaker(17.0, VECTORS), Speaker(0.2, VECTORS), asking=EMBED, beside=[HEDGE], seats=seats)
        running = asyncio.create_task(room.run())
        await asyncio.sleep(after_s)
        running.cancel()
        await asyncio.wait([running])
        assert len(room.recorder.records) == 1, after_s
        left_clean(seats)


class Others:
    """One other model, which is asked when the first is late; ``won`` has its name if it answers."""

    def __init__(self, room: Room, other: Room, late_s: float, won: list[str]) -> None:
        self.late_s = late_s
        self._sink = room.outlet
        self._other: Room | None = other
        self._won = won

    async def next(self, *, is_rescued: bool) -> FallbackModel | None:
        assert not is_rescued or self._other is None
        other, self._other = self._other, None
        if other is None:
            return None
        call = with_facts(other.open_call.call, model="other")
        model = msgspec.structs.replace(other.model, name="other")
        return FallbackModel(model, other.plan, call, self._sink, other.may_launch, lambda _: None, None, EMBED)

    def won(self, model: str) -> None:
        self._won.append(model)

    def runs_on(self, model: str, attempts: Sequence[str]) -> bool:
        return False


def beside(room: Room, other: Room, late_s: float, won: list[str]) -> Race:
    """Return a race in which the model of ``other`` is asked beside that of ``room`` when that is late."""
    following = Others(room, other, late_s, won)
    return Race(
        room.open_call,
        room.model,
        room.plan,
        room.outlet,
        may_launch=room.may_launch,
        reading=EMBED,
        following=following,
    )


@in_virtual_time
async def test_a_fallback_is_asked_beside_a_model_that_is_late_and_may_win() -> None:
    room, other = Room(Speaker(17.0, VECTORS), asking=EMBED), Room(Speaker(0.2, VECTORS), asking=EMBED)
    won: list[str] = []
    record = await beside(room, other, 1.0, won).run()
    assert isinstance(record, CallRecord)
    assert (record.total_ms, len(won)) == (pytest.approx(1200.0), 1)
    assert [(each.outcome, each.number) for each in record.attempts] == [("lost", 1), ("won", 2)]
    await asyncio.sleep(0)
    assert (room.tasks.in_flight("s1"), room.open_call.running) == (0, 0)


@in_virtual_time
async def test_a_late_model_may_still_win_over_its_fallback() -> None:
    room, other = Room(Speaker(1.5, VECTORS), asking=EMBED), Room(Speaker(17.0, VECTORS), asking=EMBED)
    won: list[str] = []
    record = await beside(room, other, 1.0, won).run()
    assert isinstance(record, CallRecord)
    assert (record.total_ms, won) == (pytest.approx(1500.0), [])
    assert [each.outcome for each in record.attempts] == ["won", "lost"]


@in_virtual_time
async def test_a_client_that_leaves_ends_both_models() -> None:
    for leaves_s in (0.5, 1.0, 1.5):
        room, other = Room(Speaker(17.0, VECTORS), asking=EMBED), Room(Speaker(17.0, VECTORS), asking=EMBED)
        running = asyncio.create_task(beside(room, other, 1.0, []).run())
        await asyncio.sleep(leaves_s)
        running.cancel()
        await asyncio.wait([running])
        assert {each.outcome for each in room.record.attempts} == {"client_gone"}, leaves_s
        assert room.open_call.running == 0


@in_virtual_time
async def test_a_model_that_waits_for_a_seat_gives_way_to_its_fallback() -> None:
    seats = limited(s1=1)
    seats.lines["s1"].take()
    room, other = Room(Speaker(0.2, VECTORS), asking=EMBED, seats=seats), Room(Speaker(0.2, VECTORS), asking=EMBED)
    other.model = msgspec.structs.replace(other.model, deployments={"s2": other.model.deployments["s1"]})
    other.plan = msgspec.structs.replace(other.plan, launches=(Launch("s2", 0.0, Role.FALLBACK),))
    won: list[str] = []
    record = await beside(room, other, 1.0, won).run()
    assert isinstance(record, CallRecord)
    assert (record.total_ms, [each.role for each in record.attempts]) == (pytest.approx(1200.0), ["fallback"])
    seats.lines["s1"].give_back()
    left_clean(seats)


COMPARED = msgspec.structs.replace(EMBED, is_compared=True)


@in_virtual_time
async def test_the_row_of_a_short_call_says_when_its_answer_came_and_what_the_first_choice_alone_would_have_taken() -> (
    None
):
    room = Room(Speaker(0.2, VECTORS), asking=COMPARED)
    record = await room.run()
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(200.0), pytest.approx(200.0))


@in_virtual_time
async def test_a_first_choice_that_a_hedge_has_overtaken_is_compared_as_in_a_race() -> None:
    room = Room(Speaker(17.0, VECTORS), Speaker(0.2, VECTORS), asking=COMPARED, beside=[HEDGE])
    record = await room.run()
    assert (record.ttft_ms, record.alone_ms, record.alone_age_ms) == (pytest.approx(500.0), None, pytest.approx(500.0))
    lost, won = record.attempts
    assert (lost.outcome, lost.is_overtaken, lost.overtaken_at_ms) == ("lost", True, pytest.approx(500.0))
    assert (won.outcome, won.is_overtaken) == ("won", False)


@in_virtual_time
async def test_a_first_choice_that_fails_shows_what_racing_saved() -> None:
    room = Room(Speaker(0.5, SLOW), Speaker(0.4, VECTORS), asking=COMPARED, beside=[HEDGE])
    record = await room.run()
    assert record.ttft_ms == pytest.approx(700.0)
    assert record.alone_ms == pytest.approx(900.0)  # its replacement would have begun at 500


@in_virtual_time
async def test_an_audited_first_choice_runs_on_after_its_loss_and_its_row_follows() -> None:
    seats = limited(s1=1)
    room = Room(
        Speaker(0.9, VECTORS), Speaker(0.2, VECTORS), asking=COMPARED, beside=[HEDGE], seats=seats, audited=True
    )
    record = await room.run()
    assert (record.total_ms, record.launched, len(record.attempts)) == (pytest.approx(500.0), 2, 1)
    rooms = [seats.lines["s1"].has_room]  # none: its provider works on
    await asyncio.sleep(0.5)
    rooms.append(seats.lines["s1"].has_room)
    [audited] = room.recorder.audited
    assert (audited.outcome, audited.audited, audited.ttft_ms) == ("superseded", True, pytest.approx(900.0))
    assert (rooms, room.tasks.in_flight("s1")) == ([False, True], 0)


@in_virtual_time
async def test_an_audited_sound_is_read_to_its_first_bytes_and_no_further() -> None:
    rest = TimedRest([(60.0, b"more"), (0.1, None)])
    speakers = Speaker(0.9, WAVE + b"sound", rest), Speaker(0.2, b"sound")
    room = Room(*speakers, asking=msgspec.structs.replace(TTS, is_compared=True), beside=[HEDGE], audited=True)
    await room.run()
    await asyncio.sleep(0.5)
    [audited] = room.recorder.audited
    assert (audited.outcome, audited.ttft_ms, rest.aborted) == ("superseded", pytest.approx(900.0), True)


@in_virtual_time
async def test_an_audited_first_choice_that_hangs_is_cut_after_half_a_minute() -> None:
    room = Room(Speaker(90.0, VECTORS), Speaker(0.2, VECTORS), asking=COMPARED, beside=[HEDGE], audited=True)
    await room.run()
    await asyncio.sleep(31.0)
    [audited] = room.recorder.audited
    assert (audited.outcome, audited.ttft_ms, audited.censored_at_ms) == ("lost", None, pytest.approx(30_000.0))


@in_virtual_time
async def test_the_gateways_end_cuts_an_audited_first_choice() -> None:
    room = Room(Speaker(20.0, VECTORS), Speaker(0.2, VECTORS), asking=COMPARED, beside=[HEDGE], audited=True)
    await room.run()
    await room.tasks.close()
    [audited] = room.recorder.audited
    assert audited.outcome == "interrupted"


@pytest.mark.parametrize(
    ("reason", "is_cancelled", "outcome"),
    [
        (CutByRevocation, False, "client_gone"),
        (CutByRevocation, True, "client_gone"),
        (CutByExpiry, True, "client_gone"),
        (ShuttingDown, True, "interrupted"),
    ],
)
def test_an_audited_first_choice_is_cut_with_the_key_of_its_call_and_with_the_gateway(
    reason: type[ApiError], is_cancelled: bool, outcome: str
) -> None:
    async def test() -> None:
        room = forwarding(None if is_cancelled else 2, reason)
        running = asyncio.create_task(room.run())
        if is_cancelled:
            await asyncio.sleep(1.0)
            running.cancel()
        await asyncio.wait([running])
        assert room.record.error_kind == reason.code
        assert room.outcomes == {"s1": outcome, "s2": outcome}
        assert (room.recorder.audited, room.tasks.in_flight("s1")) == ([], 0)

    virtual_time.run(test())


@in_virtual_time
async def test_an_audited_first_choice_runs_on_when_the_client_leaves() -> None:
    room = forwarding(2, ClientDisconnected)
    assert (await room.run()).status_code == ClientDisconnected.status
    assert room.outcomes == {"s2": "client_gone"}
    await asyncio.sleep(20.0)
    [audited] = room.recorder.audited
    assert (audited.deployment, audited.outcome) == ("s1", "superseded")


def forwarding(gone_after: int | None, cancelled_as: type[ApiError]) -> Room:
    """Return a short call whose hedge has won with an answer that goes on, while its first choice is audited."""
    goes_on = Speaker(0.2, b"a", TimedRest([(0.1, b"b"), (60.0, None)]))
    return Room(
        Speaker(15.0, VECTORS),
        goes_on,
        asking=COMPARED,
        beside=[HEDGE],
        audited=True,
        gone_after=gone_after,
        cancelled_as=cancelled_as,
    )
