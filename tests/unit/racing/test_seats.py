"""``max_in_flight`` in virtual time: who is launched where there is room, who waits, and that no seat is ever lost."""

import asyncio
from typing import Any

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError, ShuttingDown
from gateway.core.race_failures import AllProvidersFailed, AtCapacity
from gateway.racing import NoAnswer, Seats
from providers import ErrorKind, UpstreamError
from tests.unit.racing.server import PATIENCE_S, Server, left_clean, limited, server
from tests.unit.racing.track import DefectiveTasks, Timetable, Track
from tests.unit.racing.virtual_time import run

BROKEN = UpstreamError(ErrorKind.SERVER_ERROR, "broken", status=500)


def single(*upstreams: Timetable, **options: Any) -> Track:
    first, *others = [upstream.name for upstream in upstreams]
    return Track(*upstreams, launches=[(first, 0.0, Role.PRIMARY)], rest=others, **options)


async def all_of(*tracks: Track) -> list[CallRecord | ApiError]:
    return list(await asyncio.gather(*(called(track) for track in tracks)))


async def called(track: Track, after_s: float = 0.0) -> CallRecord | ApiError:
    await asyncio.sleep(after_s)
    try:
        return await track.run()
    except ApiError as error:
        return error


def test_no_more_attempts_are_in_flight_than_there_are_seats_and_the_rest_wait_in_turn() -> None:
    upstream, seats = server("a", total=0.5), limited(a=2)
    tracks = [single(upstream, seats=seats) for _ in range(6)]

    records = run(all_of(*tracks))
    assert upstream.peak == 2
    offsets = [record.attempts[0].launch_offset_ms for record in records if isinstance(record, CallRecord)]
    assert offsets == pytest.approx([0, 0, 500, 500, 1000, 1000])
    left_clean(seats)


def test_a_wait_belongs_to_the_calls_first_token_but_not_to_the_attempts_nor_to_the_gateways_own_share() -> None:
    upstream, seats = server("a", ttft=0.1, total=0.5), limited(a=1)
    first, second = single(upstream, seats=seats), single(upstream, seats=seats)

    _, record = run(all_of(first, second))
    assert isinstance(record, CallRecord)
    assert record.ttft_ms == pytest.approx(600)
    assert record.attempts[0].ttft_ms == pytest.approx(100)
    assert record.attempts[0].launch_offset_ms == pytest.approx(500)
    assert record.attempts[0].role == Role.PRIMARY
    assert record.overhead_ms == pytest.approx(0)
    assert second.recorder.heard[:2] == ["call_started", "started a"]


def test_who_waits_too_long_is_told_when_to_come_back() -> None:
    upstream, seats = server("a", total=5.0), limited(a=1)
    first, second = single(upstream, seats=seats), single(upstream, seats=seats)

    async def both() -> tuple[CallRecord | ApiError, float]:
        running = asyncio.create_task(called(first))
        await asyncio.sleep(0)
        error = await called(second)
        now_s = asyncio.get_running_loop().time()
        await running
        return error, now_s

    error, now_s = run(both())
    assert isinstance(error, AtCapacity)
    assert (error.status_code, error.kind, error.headers["retry-after"]) == (429, "at_capacity", "1")
    assert "max_in_flight" in error.message
    assert now_s == pytest.approx(1002.0)
    [record] = second.recorder.records
    assert (record.status_code, record.error_kind, record.launched) == (429, "at_capacity", 0)
    assert record.total_ms == pytest.approx(2000)
    assert second.recorder.heard == ["call_finished"]
    left_clean(seats)


def test_without_a_queue_a_call_is_refused_at_once() -> None:
    seats = limited(a=1)
    seats.lines["a"].take()
    seats.queue_timeout_s = 0.0
    track = single(server("a"), seats=seats)
    assert isinstance(run(called(track)), AtCapacity)
    assert track.recorder.records[0].total_ms == 0


def test_others_take_what_a_full_deployment_cannot() -> None:
    full, free, seats = server("full"), server("free"), limited(full=1)
    seats.lines["full"].take()
    track = single(full, free, seats=seats)
    record = run(called(track))
    assert isinstance(record, CallRecord)
    assert [(each.deployment, each.role) for each in record.attempts] == [("free", Role.PRIMARY)]


def test_a_full_primary_is_replaced_by_a_racer_which_is_then_no_extra_attempt() -> None:
    full, racer, third, seats = server("full"), server("racer"), server("third"), limited(full=1)
    seats.lines["full"].take()
    track = Track(full, racer, third, seats=seats, permits=1)
    record = run(called(track))
    assert isinstance(record, CallRecord)
    assert [(each.deployment, each.role) for each in record.attempts] == [
        ("racer", Role.PRIMARY), ("third", Role.RACE),
    ]  # fmt: skip


def test_a_racer_without_room_is_left_out_and_waits_for_nobody() -> None:
    quick, full, seats = server("quick", ttft=1.0), server("full"), limited(full=1)
    seats.lines["full"].take()
    track = Track(quick, full, seats=seats, permits=0)
    record = run(called(track))
    assert isinstance(record, CallRecord)
    assert [each.deployment for each in record.attempts] == ["quick"]
    assert track.full == ["full"]
    assert not seats.lines["full"].waiting


def test_racers_of_a_call_that_waits_because_all_are_full_are_left_out() -> None:
    one, other, seats = server("one"), server("other"), limited(one=1, other=1)
    for line in seats.lines.values():
        line.take()

    async def wait_for_one() -> object:
        race = asyncio.create_task(track.run())
        await asyncio.sleep(1.0)
        seats.lines["one"].give_back()
        return await race

    track = Track(one, other, seats=seats, permits=0)
    record = run(wait_for_one())
    assert isinstance(record, CallRecord)
    assert [(each.deployment, each.role) for each in record.attempts] == [("one", Role.PRIMARY)]
    assert track.full == ["other"]


def test_an_extra_attempt_leaves_the_last_seat_to_a_call_that_has_none() -> None:
    upstream, seats = server("a", ttft=1.0, total=1.0), limited(a=2)
    racing_itself = Track(upstream, launches=[("a", 0.0, Role.PRIMARY), ("a", 0.0, Role.RACE)], seats=seats)
    other = single(upstream, seats=seats)

    records = run(all_of(racing_itself, other))
    assert [record.launched for record in records if isinstance(record, CallRecord)] == [1, 1]
    assert upstream.peak == 2


def test_the_only_seat_may_be_taken_by_an_attempt_that_finds_out_about_its_deployment() -> None:
    seats = limited(single=1)
    assert seats.lines["single"].has_room_for_extra


def test_a_failure_is_replaced_by_who_has_room_and_waits_where_nobody_has() -> None:
    breaking, full, seats = Server("breaking", [(0.2, BROKEN)]), server("full"), limited(full=1)
    holder, track = single(full, seats=seats), single(breaking, full, seats=seats)

    _, record = run(all_of(holder, track))
    assert isinstance(record, CallRecord)
    assert [(each.deployment, each.role, round(each.launch_offset_ms)) for each in record.attempts] == [
        ("breaking", Role.PRIMARY, 0), ("full", Role.FAILOVER, 500),
    ]  # fmt: skip
    left_clean(seats)


def test_a_call_that_could_only_be_answered_where_there_is_no_room_is_429_whatever_the_others_said() -> None:
    breaking, full, seats = Server("breaking", [(0.2, BROKEN)]), server("full"), limited(full=1)
    seats.lines["full"].take()
    track = single(breaking, full, seats=seats)
    error = run(called(track))
    assert isinstance(error, AtCapacity)
    assert "breaking: server_error" in error.message
    assert track.recorder.records[0].launched == 1


@pytest.mark.parametrize(("patience_s", "asked"), [(2.0, "full"), (0.1, "broken"), (0.0, "broken")])
def test_the_broken_are_asked_only_after_those_that_are_merely_full(patience_s: float, asked: str) -> None:
    full, broken, seats = server("full", total=1.0), server("broken"), limited(full=1)
    seats.queue_timeout_s = patience_s
    holder, track = single(full, seats=seats), single(full, broken, seats=seats, tripped=["broken"])
    _, record = run(all_of(holder, track))
    assert isinstance(record, CallRecord)
    assert [each.deployment for each in record.attempts] == [asked]


def test_a_rescue_without_room_takes_the_first_seat_there_is() -> None:
    hanging, full, seats = Server("hanging", [(60.0, None)]), server("full", total=3.0), limited(full=1)
    holder = single(full, seats=seats)
    track = Track(
        hanging, full, launches=[("hanging", 0.0, Role.PRIMARY), ("full", 1.5, Role.FAILOVER)], seats=seats
    )  # fmt: skip

    _, record = run(all_of(holder, track))
    assert isinstance(record, CallRecord)
    assert [(each.deployment, round(each.launch_offset_ms)) for each in record.attempts] == [
        ("hanging", 0), ("full", 3000),
    ]  # fmt: skip
    left_clean(seats)


def test_a_call_that_has_waited_is_rescued_like_any_other() -> None:
    hanging, other = Server("hanging", [(60.0, None)]), server("other", total=3.0)
    seats = limited(hanging=1, other=1)
    for line in seats.lines.values():
        line.take()
    track = single(hanging, other, seats=seats, rescue_s=1.5)

    async def wait() -> CallRecord | ApiError:
        calling = asyncio.create_task(called(track))
        await asyncio.sleep(1.0)
        for line in seats.lines.values():
            line.give_back()
        return await calling

    record = run(wait())
    assert isinstance(record, CallRecord)
    assert [(each.deployment, round(each.launch_offset_ms)) for each in record.attempts] == [
        ("hanging", 1000), ("other", 2500),
    ]  # fmt: skip


def test_a_full_primary_is_the_rescue_of_the_one_in_its_place() -> None:
    full, hanging, seats = server("full"), Server("hanging", [(60.0, None)]), limited(full=1)
    seats.lines["full"].take()
    launches = [("full", 0.0, Role.PRIMARY), ("hanging", 1.5, Role.FAILOVER)]
    track = Track(full, hanging, launches=launches, rescue_s=1.5, seats=seats)

    async def wait() -> CallRecord | ApiError:
        calling = asyncio.create_task(called(track))
        await asyncio.sleep(1.0)
        seats.lines["full"].give_back()
        return await calling

    record = run(wait())
    assert isinstance(record, CallRecord)
    assert [(each.deployment, round(each.launch_offset_ms)) for each in record.attempts] == [
        ("hanging", 0), ("full", 1500),
    ]  # fmt: skip


def test_a_rescue_that_waits_gives_up_its_place_when_the_primary_answers() -> None:
    slow, full, seats = server("slow", ttft=2.0, total=2.0), server("full"), limited(full=1)
    seats.lines["full"].take()
    track = Track(slow, full, launches=[("slow", 0.0, Role.PRIMARY), ("full", 1.5, Role.FAILOVER)], seats=seats)

    async def watched() -> int:
        running = asyncio.create_task(called(track))
        await asyncio.sleep(1.7)
        waiting = len(seats.lines["full"].waiting)
        await running
        return waiting

    assert run(watched()) == 1
    assert not seats.lines["full"].waiting


def test_a_client_that_leaves_while_it_waits_frees_its_place_at_once() -> None:
    upstream, seats = server("a", total=1.0), limited(a=1)
    tracks = [single(upstream, seats=seats) for _ in range(3)]

    async def leave() -> CallRecord | ApiError:
        tasks = [asyncio.create_task(called(track)) for track in tracks]
        await asyncio.sleep(0.5)
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        assert len(seats.lines["a"].waiting) == 1
        await tasks[0]
        return await tasks[2]

    record = run(leave())
    assert isinstance(record, CallRecord)
    assert record.attempts[0].launch_offset_ms == pytest.approx(1000)
    [gone] = tracks[1].recorder.records
    assert (gone.status_code, gone.launched) == (499, 0)
    left_clean(seats)


@pytest.mark.parametrize("leaves_first", [True, False])
def test_who_leaves_in_the_instant_it_is_called_up_leaves_its_seat_to_the_next(*, leaves_first: bool) -> None:
    upstream, seats = server("a"), limited(a=1)
    line = seats.lines["a"]
    line.take()
    leaving, staying = single(upstream, seats=seats), single(upstream, seats=seats)

    async def leave() -> CallRecord | ApiError:
        first, second = asyncio.create_task(leaving.run()), asyncio.create_task(called(staying))
        await asyncio.sleep(1.0)
        for happens in (first.cancel, line.give_back)[:: 1 if leaves_first else -1]:
            happens()
        await asyncio.wait([first])
        return await second

    record = run(leave())
    assert isinstance(record, CallRecord)
    assert record.attempts[0].launch_offset_ms == pytest.approx(1000)
    [gone] = leaving.recorder.records
    assert gone.status_code == 499
    left_clean(seats)


def test_a_rescue_whose_deployment_is_full_goes_where_there_is_room() -> None:
    hanging, full, free = Server("hanging", [(60.0, None)]), server("full"), server("free")
    seats = limited(full=1)
    seats.lines["full"].take()
    launches = [("hanging", 0.0, Role.PRIMARY), ("full", 0.6, Role.FAILOVER)]
    record = run(called(Track(hanging, full, free, launches=launches, rest=["free"], rescue_s=0.6, seats=seats)))
    assert isinstance(record, CallRecord)
    assert [(each.deployment, round(each.launch_offset_ms)) for each in record.attempts] == [
        ("hanging", 0), ("free", 600),
    ]  # fmt: skip


def test_a_call_that_has_waited_is_hedged_when_it_is_late_from_then_on() -> None:
    first, hedge, seats = server("first", ttft=0.2), server("hedge"), limited(first=1, hedge=1)
    for line in seats.lines.values():
        line.take()
    track = Track(first, hedge, launches=[("first", 0.0, Role.PRIMARY), ("hedge", 0.3, Role.HEDGE)], seats=seats)

    async def wait() -> CallRecord | ApiError:
        calling = asyncio.create_task(called(track))
        await asyncio.sleep(1.0)
        for line in seats.lines.values():
            line.give_back()
        return await calling

    record = run(wait())
    assert isinstance(record, CallRecord)
    assert (record.ttft_ms, record.extras) == (pytest.approx(1200), 0)
    left_clean(seats)


def test_a_full_primary_changes_places_with_its_hedge() -> None:
    full, slow, seats = server("full"), Server("slow", [(60.0, None)]), limited(full=1)
    seats.lines["full"].take()
    track = Track(full, slow, launches=[("full", 0.0, Role.PRIMARY), ("slow", 0.3, Role.HEDGE)], seats=seats)

    async def wait() -> CallRecord | ApiError:
        calling = asyncio.create_task(called(track))
        await asyncio.sleep(0.1)
        seats.lines["full"].give_back()
        return await calling

    record = run(wait())
    assert isinstance(record, CallRecord)
    assert [(each.deployment, round(each.launch_offset_ms)) for each in record.attempts] == [
        ("slow", 0), ("full", 300),
    ]  # fmt: skip
    left_clean(seats)


def test_a_full_deployment_that_would_race_itself_is_named_once() -> None:
    seats = limited(twin=1)
    seats.lines["twin"].take()
    track = Track(server("twin"), launches=[("twin", 0.0, Role.PRIMARY), ("twin", 0.3, Role.HEDGE)], seats=seats)
    error = run(called(track))
    assert isinstance(error, AtCapacity)
    assert error.message.count("twin") == 1


def test_a_loser_that_is_watched_keeps_its_seat_until_its_watching_ends() -> None:
    quick = server("quick", ttft=0.1, total=0.2)
    watched = server("watched", ttft=1.0, total=1.5)
    seats = limited(watched=1)
    track = Track(quick, watched, launches=[("quick", 0.0, Role.PRIMARY), ("watched", 0.0, Role.EXPLORE)],
                  audited=["watched"], seats=seats)  # fmt: skip

    async def look() -> tuple[int, int]:
        await track.run()
        during = seats.lines["watched"].taken
        await asyncio.sleep(3.0)
        return during, seats.lines["watched"].taken

    assert run(look()) == (1, 0)


def test_losers_that_are_cut_give_their_seats_back() -> None:
    quick, slow, seats = server("quick"), server("slow", ttft=5.0, headers_at=1.0), limited(quick=3, slow=3)
    record = run(called(Track(quick, slow, seats=seats)))
    assert isinstance(record, CallRecord)
    assert record.launched == 2
    left_clean(seats)


def test_a_launch_that_breaks_the_gateway_keeps_no_seat() -> None:
    upstream, seats = server("a", total=0.5), limited(a=1)
    fine, broken, last = (single(upstream, seats=seats) for _ in range(3))
    broken.tasks = DefectiveTasks("a")

    async def crowd() -> list[object]:
        return await asyncio.gather(*(called(each) for each in (fine, broken, last)), return_exceptions=True)

    answered, defect, after = run(crowd())
    assert isinstance(answered, CallRecord)
    assert isinstance(defect, RuntimeError)
    assert isinstance(after, CallRecord)
    left_clean(seats)


def test_a_defect_at_the_first_launch_keeps_no_seat_either() -> None:
    seats = limited(a=1)
    track = single(server("a"), seats=seats)
    track.tasks = DefectiveTasks("a")

    async def crash() -> None:
        with pytest.raises(RuntimeError):
            await track.run()

    run(crash())
    left_clean(seats)


def test_the_time_spent_waiting_for_one_model_is_not_spent_again_for_the_next() -> None:
    seats = limited(a=1, b=1)
    seats.lines["a"].take()
    seats.lines["b"].take()

    async def fall_back() -> tuple[float, float]:
        first = single(server("a"), seats=seats)
        ending = await first.race().run()
        assert isinstance(ending, NoAnswer)
        assert ending.full == ("a",)
        assert first.open_call is not None
        waited_s = first.open_call.waited_s
        second = single(server("b"), seats=seats, open_call=first.open_call)
        began = asyncio.get_running_loop().time()
        with pytest.raises(AtCapacity):
            await second.run()
        return waited_s, asyncio.get_running_loop().time() - began

    assert run(fall_back()) == (pytest.approx(2.0), pytest.approx(0.0))


def test_a_stopping_gateway_ends_who_waits() -> None:
    upstream, seats = server("a", total=10.0), limited(a=1)
    seats.lines["a"].take()
    track = single(upstream, seats=seats, cancelled_as=ShuttingDown)

    async def stop() -> None:
        race = track.race()
        task = asyncio.create_task(race.run())
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(stop())
    assert track.recorder.records[0].status_code == ShuttingDown.status
    assert not seats.lines["a"].waiting


class TestReload:
    def test_a_higher_limit_lets_who_waits_go(self) -> None:
        upstream, seats = server("a", total=1.0), limited(a=1)
        tracks = [single(upstream, seats=seats) for _ in range(3)]

        async def crowd() -> list[CallRecord | ApiError]:
            tasks = [asyncio.create_task(called(track)) for track in tracks]
            await asyncio.sleep(0.25)
            seats.limit({"a": 2}, PATIENCE_S)
            return await asyncio.gather(*tasks)

        records = run(crowd())
        assert upstream.peak == 2
        offsets = [record.attempts[0].launch_offset_ms for record in records if isinstance(record, CallRecord)]
        assert offsets == pytest.approx([0, 250, 1000])
        left_clean(seats)

    def test_a_lower_limit_counts_what_is_under_way(self) -> None:
        upstream, seats = server("a", total=1.0), limited(a=3)
        early, late = [single(upstream, seats=seats) for _ in range(3)], single(upstream, seats=seats)

        async def crowd() -> CallRecord | ApiError:
            tasks = [asyncio.create_task(called(track, 0.1 * number)) for number, track in enumerate(early)]
            await asyncio.sleep(0.25)
            seats.limit({"a": 1}, PATIENCE_S)
            record = await called(late)
            await asyncio.gather(*tasks)
            return record

        record = run(crowd())
        assert isinstance(record, CallRecord)
        assert record.attempts[0].launch_offset_ms == pytest.approx(950)  # when the last of the three has ended
        left_clean(seats)

    def test_no_limit_any_more_lets_everybody_go_and_a_new_one_counts_them(self) -> None:
        upstream, seats = server("a", total=1.0), limited(a=1)
        tracks = [single(upstream, seats=seats) for _ in range(4)]

        async def crowd() -> list[CallRecord | ApiError]:
            tasks = [asyncio.create_task(called(track)) for track in tracks[:3]]
            await asyncio.sleep(0.25)
            seats.limit({}, PATIENCE_S)
            await asyncio.sleep(0.25)
            assert len(upstream.under_way) == 3
            seats.limit({"a": 2}, PATIENCE_S)
            tasks.append(asyncio.create_task(called(tracks[3])))
            return await asyncio.gather(*tasks)

        records = run(crowd())
        offsets = [record.attempts[0].launch_offset_ms for record in records if isinstance(record, CallRecord)]
        assert offsets == pytest.approx([0, 250, 250, 750])
        left_clean(seats)

    def test_a_first_limit_counts_what_began_without_one(self) -> None:
        upstream, seats = server("a", total=1.0), Seats()
        early, late = single(upstream, seats=seats), single(upstream, seats=seats)

        async def both() -> CallRecord | ApiError:
            task = asyncio.create_task(called(early))
            await asyncio.sleep(0.5)
            seats.limit({"a": 1}, PATIENCE_S, lambda _: [each.id for each in early.recorder.launched])
            record = await called(late)
            await task
            return record

        record = run(both())
        assert isinstance(record, CallRecord)
        assert record.attempts[0].launch_offset_ms == pytest.approx(500)
        assert upstream.peak == 1
        assert not seats.preexisting
        left_clean(seats)


def test_who_cannot_be_replaced_while_others_fail_is_told_of_the_failures() -> None:
    track = single(Server("a", [(0.1, BROKEN)]), seats=limited(a=1))
    assert isinstance(run(called(track)), AllProvidersFailed)


def test_a_seat_that_becomes_free_asks_nobody_else_once_the_last_opinion_on_an_invalid_request_is_asked() -> None:
    def refuses(name: str, at: float) -> Timetable:
        return Timetable(name, [(at, UpstreamError(ErrorKind.BAD_REQUEST, "invalid", status=400))])

    seats = limited(full=1)
    seats.lines["full"].take()
    full, sick = refuses("full", 0.1), refuses("sick", 0.1)
    asked = [refuses("first", 1.0), refuses("second", 2.0), Timetable("broken", [(0.1, BROKEN)])]
    launches = [(each.name, 0.0, Role.PRIMARY if each is asked[0] else Role.RACE) for each in asked]
    track = Track(*asked, full, sick, launches=launches, rest=["full", "sick"], tripped=["sick"], seats=seats)

    async def main() -> CallRecord | ApiError:
        asyncio.get_running_loop().call_later(1.5, seats.lines["full"].give_back)
        return await called(track)

    assert isinstance(run(main()), ApiError)
    assert (full.requests, sick.requests) == ([], [])
    left_clean(seats)
