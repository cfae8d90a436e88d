"""The podium: what several races of one prompt came to, deployment by deployment."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from gateway.calls import AttemptRecord, CallRecord, Outcome
from gateway.cli.terminal import table

_CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED})
_COLUMNS = ("deployment", "launched", "won", "cancelled", "failed", "TTFT p50 ms when it won", "tok/s p50")


class Podium:
    """Counts finished calls."""

    def __init__(self) -> None:
        self._calls: list[CallRecord] = []

    def add(self, record: CallRecord) -> None:
        """Count one call."""
        self._calls.append(record)

    def rows(self) -> list[tuple[object, ...]]:
        """Return a row for each deployment, most wins first, and one for all calls together.

        A deployment's TTFT is that of its wins only, so it looks faster than it is; the leaderboard corrects for that.
        """
        by_name: dict[str, list[AttemptRecord]] = {}
        for call in self._calls:
            for attempt in call.attempts:
                by_name.setdefault(attempt.deployment, []).append(attempt)
        rows = sorted((_row(name, attempts) for name, attempts in by_name.items()), key=lambda row: -int(str(row[2])))
        answered = [call for call in self._calls if call.winner_attempt_id is not None]
        everybody = [attempt for attempts in by_name.values() for attempt in attempts]
        total = _row("all", everybody)
        return [*rows, (*total[:5], _p50([call.ttft_ms for call in answered]), total[6])]

    def table(self) -> Any:
        """Return the rows as a ``rich`` table."""
        title = f"{len(self._calls)} races"
        return table(_COLUMNS, self.rows(), title=title)


def _row(name: str, attempts: Sequence[AttemptRecord]) -> tuple[object, ...]:
    won = [attempt for attempt in attempts if attempt.outcome is Outcome.WON]
    cut = sum(attempt.outcome in _CUT for attempt in attempts)
    failed = sum(attempt.error_kind is not None for attempt in attempts)
    ttfts = [attempt.ttft_ms for attempt in won]
    return (name, len(attempts), len(won), cut, failed, _p50(ttfts), _p50([attempt.decode_tps for attempt in won]))


def _p50(values: Sequence[float | None]) -> float | int | None:
    known = [value for value in values if value is not None]
    return round(median(known)) if known else None
