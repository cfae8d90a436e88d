"""Where the series of one deployment, model or client are: looked up once, and then only added to."""

from bisect import bisect_left
from collections.abc import MutableSequence

from gateway.attempt_records import AttemptRecord
from gateway.watching.families import (
    ATTEMPT_TTFT,
    ATTEMPTS,
    CALLS,
    CLIENT_CALLS,
    CLIENT_COST,
    CLIENT_TOKENS,
    COST,
    DECODE,
    FAR_OFF,
    GAP_BUCKETS,
    GAP_EDGES,
    GAPS,
    IN_FLIGHT,
    TOKENS,
    TTFT,
)
from gateway.watching.series import Series

_LEDGERS_BUCKETS = range(-56, 112)  # of gaps; eight per octave, number 0 begins at 10 ms
# Which of our buckets has all of a bucket of the ledger's, by its number as JSON.
_GAPS_AT = {str(number): bisect_left(GAP_EDGES, number + 1) for number in _LEDGERS_BUCKETS}


class ModelCells:
    """The cells of one model's calls."""

    __slots__ = ("_calls", "_series", "answer_usd", "duplicate_usd", "label", "ttft")

    def __init__(self, series: Series, label: str) -> None:
        self._series = series
        self._calls: dict[tuple[str, str], int] = {}
        self.label = label
        self.ttft = series.first_cell(TTFT, label)
        self.answer_usd = series.first_cell(COST, label, "answer")
        self.duplicate_usd = series.first_cell(COST, label, "duplicate")

    def call(self, mode: str, status: str) -> int:
        """Return the cell of calls that ended like this."""
        cell = self._calls.get((mode, status))
        if cell is None:
            cell = self._series.first_cell(CALLS, str(mode), self.label, status)
            self._calls[mode, status] = cell
        return cell


class DeploymentCells:
    """The cells of one deployment's attempts."""

    __slots__ = (
        "_outcomes",
        "_series",
        "completion_tokens",
        "decode",
        "far_off",
        "gaps",
        "in_flight",
        "label",
        "prompt_tokens",
        "ttft",
    )

    def __init__(self, series: Series, label: str) -> None:
        self._series = series
        self._outcomes: dict[tuple[str, str], int] = {}
        self.label = label
        self.in_flight = series.first_cell(IN_FLIGHT, label)
        self.ttft = series.first_cell(ATTEMPT_TTFT, label)
        self.decode = series.first_cell(DECODE, label)
        self.gaps = series.first_cell(GAPS, label)
        self.completion_tokens = series.first_cell(TOKENS, label, "completion")
        self.prompt_tokens = series.first_cell(TOKENS, label, "prompt")
        self.far_off = series.first_cell(FAR_OFF, label)  # starts at 0: a series that starts at 1 shows no increase

    def outcome(self, outcome: str, role: str) -> int:
        """Return the cell of attempts of this role that ended like this."""
        cell = self._outcomes.get((outcome, role))
        if cell is None:
            cell = self._outcomes[outcome, role] = self._series.first_cell(
                ATTEMPTS, self.label, str(outcome), str(role)
            )
        return cell


class ClientCells:
    """The cells of one client's calls."""

    __slots__ = ("_calls", "_series", "completion_tokens", "label", "prompt_tokens", "usd")

    def __init__(self, series: Series, label: str) -> None:
        self._series = series
        self._calls: dict[str, int] = {}
        self.label = label
        self.completion_tokens = series.first_cell(CLIENT_TOKENS, label, "completion")
        self.prompt_tokens = series.first_cell(CLIENT_TOKENS, label, "prompt")
        self.usd = series.first_cell(CLIENT_COST, label)

    def call(self, status: str) -> int:
        """Return the cell of calls that ended like this."""
        cell = self._calls.get(status)
        if cell is None:
            cell = self._calls[status] = self._series.first_cell(CLIENT_CALLS, self.label, status)
        return cell


def observe(cells: MutableSequence[float], first: int, bounds: tuple[float, ...], value: float) -> None:
    """Count ``value`` in the histogram that begins at ``first``."""
    cells[first + bisect_left(bounds, value)] += 1.0
    cells[first + len(bounds) + 1] += value


def observe_gaps(cells: MutableSequence[float], first: int, attempt: AttemptRecord) -> None:
    """Add an answer's gaps to the histogram that begins at ``first``; their sum is from the first to the last chunk."""
    number = 0
    for bucket, gaps in (attempt.itl or {}).items():
        cells[first + _GAPS_AT[bucket]] += gaps
        number += gaps
    if number and attempt.last_token_ms is not None and attempt.ttft_ms is not None:
        between = max(number, (attempt.chunks or 0) - 1)  # of very long answers some gaps are not kept
        cells[first + len(GAP_BUCKETS) + 1] += (attempt.last_token_ms - attempt.ttft_ms) / 1000 * number / between
