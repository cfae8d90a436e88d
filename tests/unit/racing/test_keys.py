"""A key that is limited or refused: its next key is asked as an attempt of its own, in the seat of the refused one."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from gateway.core.attempts import AttemptRecord, Outcome, Role
from gateway.core.calls import CallRecord
from gateway.core.errors import ApiError
from gateway.fleet import Clocks
from gateway.racing import GatheringSink, Seats
from providers import ErrorKind, Price, Upstream, UpstreamError
from providers.dialects import CHAT
from providers.keys import KeyRing, RotatedKey
from tests.unit.racing.test_audits import to_the_end
from tests.unit.racing.test_race import answers, refuses
from tests.unit.racing.track import Timetable, Track
from tests.unit.racing.virtual_time import run
from tests.unit.steering.inside.test_alone import known

RING = "ring"  # the deployment whose provider has several keys


def limited(at: float = 0.1) -> Timetable:
    return refuses("limited", ErrorKind.RATE_LIMITED, 429, at=at, retry_after_s=30.0)


def dead(at: float = 0.1) -> Timetable:
    return refuses("dead", ErrorKind.PROVIDER_AUTH, 401, at=at)


def ring_of(*keys: Timetable) -> KeyRing:
    names = [f"key-{number}" for number, _ in enumerate(keys)]
    return KeyRing("acme", names, lambda name: keys[names.index(name)], clock=lambda: 1000.0)


def rotated(new: Timetable, former: Timetable) -> RotatedKey:
    return RotatedKey(["new", "former"], {"new": new, "former": former}.__getitem__, tell=lambda _: None)


def track(upstream: Upstream, *others: Timetable, **options: Any) -> Track:
    """Return a race of the deployment at ``upstream``, and of others beside it."""
    raced = Track(Timetable(RING), *others, price=Price(1e-6, 2e-6), **options)
    deployment = msgspec.structs.replace(raced.model.deployments[RING], upstream=upstream)
    raced.model = msgspec.structs.replace(raced.model, deployments={**raced.model.deployments, RING: deployment})
    return raced


def shown(attempts: Sequence[AttemptRecord]) -> list[tuple[str, str, str | None, int | None]]:
    return [(str(each.role), str(each.outcome), each.error_kind, each.status_code) for each in attempts]


@pytest.mark.parametrize(("refused", "status"), [(limited(0.8), 429), (dead(0.8), 401)], ids=["limited", "dead"])
@pytest.mark.parametrize("is_rotated", [False, True], ids=["ring", "rotated"])
def test_the_next_key_is_a_row_with_its_own_first_token(refused: Timetable, status: int, *, is_rotated: bool) -> None:
    good = answers("good", 0.2)
    if is_rotated and status == 429:  # that is not about a key that was replaced
        return
    upstream: Upstream = rotated(refused, good) if is_rotated else ring_of(refused, good)
    raced = track(upstream)
    record = run(raced.run())
    assert shown(record.attempts) == [("primary", "failed", "key_refused", status), ("key", "won", None, 200)]
    first, second = record.attempts
    assert (first.ttft_ms, first.headers_ms, first.sends, first.cost_high_usd) == (None, None, 1, 0)
    assert (second.launch_offset_ms, second.ttft_ms) == (pytest.approx(800), pytest.approx(200))
    assert (second.replaces, second.counts_as) == (first.id, Role.PRIMARY)
    assert (first.replaces, first.counts_as) == (None, None)
    assert (record.launched, record.extras, record.narrowed) == (2, 0, None)
    assert (record.ttft_ms, record.alone_ms) == (pytest.approx(1000), pytest.approx(1000))
    assert record.duplicate_cost_usd == 0
    assert raced.asked == []  # no budget
    assert record.winner_attempt_id == second.id


def test_a_rotated_key_of_a_ring_is_tried_before_the_rings_next_one() -> None:
    former = answers("former", 0.2)
    place, other = rotated(dead(), former), answers("other", 0.2)
    ring = KeyRing("acme", ["place", "other"], lambda name: place if name == "place" else other, clock=lambda: 1000.0)
    record = run(track(ring).run())
    assert shown(record.attempts) == [("primary", "failed", "key_refused", 401), ("key", "won", None, 200)]
    assert (len(former.requests), len(other.requests)) == (1, 0)
    assert {each.key_name for each in record.attempts} == {"#1"}


def test_where_all_places_and_keys_are_refused_each_was_asked_once() -> None:
    keys = [dead(), dead(), limited()]
    place = rotated(keys[0], keys[1])
    ring = KeyRing("acme", ["place", "x"], lambda name: place if name == "place" else keys[2], clock=lambda: 1000.0)
    raced = track(ring)
    with pytest.raises(ApiError, match="1 of 2 keys is rate-limited, 1 refused"):
        run(raced.run())
    rows = shown(raced.recorder.records[0].attempts)
    assert [row[0] for row in rows] == ["primary", "key", "key", "key"]  # the place's first is tried again at its end
    assert [row[2] for row in rows] == ["key_refused", "key_refused", "key_refused", "rate_limited"]
    assert [len(key.requests) for key in keys] == [2, 1, 1]


def test_a_ring_whose_last_key_works_is_answered() -> None:
    record = run(track(ring_of(*(limited(0.01) for _ in range(14)), answers("good", 0.2))).run())
    assert record.launched == 15
    assert [each.outcome for each in record.attempts] == [Outcome.FAILED] * 14 + [Outcome.WON]
    before = [None, *(each.id for each in record.attempts[:-1])]
    assert [each.replaces for each in record.attempts] == before
    assert {each.counts_as for each in record.attempts[1:]} == {Role.PRIMARY}
    assert sum(each.sends or 0 for each in record.attempts) == 15


def test_a_call_makes_so_many_requests_and_its_last_error_tells_that() -> None:
    keys = [limited(0.01) for _ in range(40)]
    raced = track(ring_of(*keys))
    with pytest.raises(ApiError):
        run(raced.run())
    [record] = raced.recorder.records
    assert (record.launched, sum(len(key.requests) for key in keys)) == (15, 15)
    last = record.attempts[-1]
    assert last.error_kind == ErrorKind.RATE_LIMITED
    assert last.error_message is not None
    assert last.error_message.endswith("this call has made 15 requests, its max_requests)")


def test_beside_another_it_is_no_extra_attempt_and_draws_no_budget() -> None:
    raced = track(ring_of(limited(), answers("good", 0.2)), answers("other", 1.0))
    record = run(raced.run())
    assert [each.role for each in record.attempts] == [Role.PRIMARY, Role.RACE, Role.KEY]
    assert [each.outcome for each in record.attempts] == [Outcome.FAILED, Outcome.LOST, Outcome.WON]
    assert [each.is_extra for each in record.attempts] == [False, True, False]
    assert (record.launched, record.extras, raced.asked) == (3, 1, [Role.RACE])
    assert record.alone_ms == pytest.approx(300)  # the primary itself has answered


def test_a_racer_with_another_key_costs_what_racing_costs() -> None:
    raced = track(
        ring_of(limited(), answers("good", 5.0)), answers("first", 1.0),
        launches=[("first", 0.0, Role.PRIMARY), (RING, 0.0, Role.RACE)],
    )  # fmt: skip
    record = run(raced.run())
    loser = next(each for each in record.attempts if each.role is Role.KEY)
    assert (loser.counts_as, loser.outcome) == (Role.RACE, Outcome.LOST)
    assert loser.cost_usd
    assert record.duplicate_cost_usd == loser.cost_usd


def test_an_overtaken_primary_is_the_one_with_its_last_key() -> None:
    raced = track(ring_of(limited(), answers("good", 5.0)), answers("quick", 0.4))
    raced.expects(known().of(RING))
    record = run(raced.run())
    key = next(each for each in record.attempts if each.role is Role.KEY)
    assert (key.is_overtaken, key.overtaken_at_ms) == (True, pytest.approx(300))
    expected_ms = 1000 * known().of(RING).expected_s(0.3)
    assert key.predicted_ms == pytest.approx(expected_ms)
    assert (record.alone_ms, record.alone_age_ms) == (None, pytest.approx(300))
    assert record.alone_predicted_ms == pytest.approx(100 + expected_ms)


def test_it_is_audited_as_the_refused_one_was() -> None:
    raced = track(ring_of(limited(), answers("good", 1.0)), answers("quick", 0.4), audited=[RING, "quick"])
    run(to_the_end(raced))
    [audited] = raced.recorder.audited
    assert (audited.role, audited.audited, audited.outcome) == (Role.KEY, True, Outcome.SUPERSEDED)
    assert audited.ttft_ms == pytest.approx(1000)


def test_a_loser_that_is_watched_is_not_asked_again_and_counts_against_nobody() -> None:
    good = answers("good", 1.0)
    raced = track(ring_of(limited(0.6), good), answers("quick", 0.4), audited=[RING, "quick"])
    run(to_the_end(raced))
    [audited] = raced.recorder.audited
    assert (audited.error_kind, audited.outcome) == ("key_refused", Outcome.FAILED)
    assert good.requests == []


def test_a_deployment_that_another_is_held_for_may_ask_with_another_key() -> None:
    slow = answers("slow", 0.2, *"abcdefgh", gap=1.0)
    ring = ring_of(limited(0.5), answers("good", 0.5))
    launches = [("slow", 0.0, Role.PRIMARY), (RING, 0.0, Role.RACE)]
    record = run(track(ring, slow, launches=launches, decode_s={"slow": 9.0, RING: 1.0}).run())
    assert record.held_for == RING
    assert record.ttft_ms == pytest.approx(1000)
    assert record.attempts[-1].outcome is Outcome.WON


def test_a_backup_with_another_key_answers_when_the_winner_breaks() -> None:
    broken = Timetable(
        "first", [*answers("first", 0.1)._timetables[0][:2], (3.0, UpstreamError(ErrorKind.DISCONNECTED, "reset"))]
    )
    launches = [("first", 0.0, Role.PRIMARY), (RING, 0.0, Role.RACE)]
    raced = track(
        ring_of(limited(0.5), answers("good", 1.0)), broken,
        launches=launches, sink=GatheringSink(CHAT), streamed=False, keep_rival=True,
    )  # fmt: skip
    record = run(raced.run())
    assert [(each.role, each.outcome) for each in record.attempts] == [
        (Role.PRIMARY, Outcome.FAILED),
        (Role.RACE, Outcome.FAILED),
        (Role.KEY, Outcome.WON),
    ]
    assert record.attempts[-1].is_kept is True


def test_all_keys_together_have_the_time_of_one_attempt() -> None:
    clocks = Clocks(connect_s=5.0, ttft_s=1.0, stall_s=5.0, total_s=None)
    raced = track(ring_of(limited(0.4), limited(0.4), answers("good", 5.0)), clocks=clocks)
    with pytest.raises(ApiError):
        run(raced.run())
    [record] = raced.recorder.records
    assert record.total_ms == pytest.approx(1000)
    assert [each.error_kind for each in record.attempts] == ["key_refused", "key_refused", "ttft_timeout"]


def test_it_keeps_the_seat_of_the_refused_one() -> None:
    seats = Seats()
    seats.limit({RING: 1}, 0.0, lambda _: ())
    record = run(track(ring_of(limited(), answers("good", 0.2)), seats=seats).run())
    assert record.attempts[-1].outcome is Outcome.WON


def test_a_client_that_leaves_meanwhile_has_left_the_last_one() -> None:
    raced = track(ring_of(limited(), answers("good", 5.0)))

    async def main() -> CallRecord:
        call = asyncio.ensure_future(raced.run())
        await asyncio.sleep(1.0)
        call.cancel()
        await asyncio.wait([call])
        return raced.recorder.records[0]

    assert shown(run(main()).attempts) == [("primary", "failed", "key_refused", 429), ("key", "client_gone", None, 200)]
