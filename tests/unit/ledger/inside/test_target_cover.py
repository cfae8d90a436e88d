"""The windows that a target's time is made of: each instant is in one of them, and few are needed."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from gateway.ledger.reports.reader import floor
from gateway.ledger.targets.statements import begin, cover

NOON = datetime(2026, 3, 4, 12, 34, 56, tzinfo=UTC)


@pytest.mark.parametrize("tens", range(30))
def test_each_instant_is_in_one_window(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        is_in_one_window(random.Random(seed))


def is_in_one_window(draw: random.Random) -> None:
    now = NOON + timedelta(seconds=draw.randrange(3 * 86_400))
    length = timedelta(
        seconds=draw.choice([1800, 3600, 6 * 3600, 7 * 3600, 86_400, 3 * 86_400, 7 * 86_400, 28 * 86_400])
    )
    since = begin(length, now)
    pieces = cover(since, now)
    assert since <= now - length
    assert pieces[0].since == since
    assert [piece.until for piece in pieces[:-1]] == [piece.since for piece in pieces[1:]]
    assert pieces[-1].until is None
    for piece in pieces:
        assert floor(piece.since, piece.minutes) == piece.since
        assert piece.until is None or (piece.until - piece.since) % timedelta(minutes=piece.minutes) == timedelta(0)
    number = sum(((piece.until or now) - piece.since) // timedelta(minutes=piece.minutes) + 1 for piece in pieces)
    assert number < 100
    assert (now - pieces[-1].since) < timedelta(hours=2)  # five minutes are kept for two days only


def test_short_times_are_exact() -> None:
    assert begin(timedelta(minutes=5), NOON) == NOON - timedelta(minutes=5)


def test_a_month_begins_at_midnight_as_in_the_views() -> None:
    assert begin(timedelta(days=28), NOON) == datetime(2026, 2, 4, tzinfo=UTC)
