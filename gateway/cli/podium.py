"""The results of several races of one prompt, by deployment."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from gateway.attempt_records import AttemptRecord, Outcome
from gateway.calls import CallRecord
from gateway.cli.terminal import table
from gateway.terminal_text import counted

_CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED})
_COLUMNS = ("deployment", "launched", "won", "cancelled", "failed", "ttft_p50_ms", "decode_p50_tps")


def podium(calls: Sequence[CallRecord]) -> Any:
    """Return a ``rich`` table of ``calls``."""
    return table(_COLUMNS, rows(calls), title=f"{counted(len(calls), 'race')}, TTFT and speed of the wins")


def rows(calls: Sequence[CallRecord]) -> list[tuple[object, ...]]:
    """Return a row for each deployment, most wins first, and one for all calls together.

    A deployment's TTFT is that of its wins only, so it looks faster than it is; the leaderboard corrects this.
    """
    by_name: dict[str, list[AttemptRecord]] = {}
    for call in calls:
        for attempt in call.attempts:
            by_name.setdefault(attempt.deployment, []).append(attempt)
    ranked = sorted(by_name.items(), key=lambda item: -len(_won(item[1])))
    everybody = [attempt for attempts in by_name.values() for attempt in attempts]
    ttft_ms = _p50([call.ttft_ms for call in calls if call.winner_attempt_id is not None])
    return [
        *(_row(name, attempts, _p50([each.ttft_ms for each in _won(attempts)])) for name, attempts in ranked),
        _row("all", everybody, ttft_ms),
    ]


def _row(name: str, attempts: Sequence[AttemptRecord], ttft_ms: float | None) -> tuple[object, ...]:
    won = _won(attempts)
    cut = sum(attempt.outcome in _CUT for attempt in attempts)
    failed = sum(attempt.error_kind is not None for attempt in attempts)
    return (name, len(attempts), len(won), cut, failed, ttft_ms, _p50([attempt.decode_tps for attempt in won]))


def _won(attempts: Sequence[AttemptRecord]) -> list[AttemptRecord]:
    return [attempt for attempt in attempts if attempt.outcome is Outcome.WON]


def _p50(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
