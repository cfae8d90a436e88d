"""Metrics of calls and attempts. The cells of a deployment or model are looked up once, and then only added to."""

import asyncio
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, MutableSequence
from pathlib import Path

from gateway.attempt_records import AttemptRecord, AttemptStart
from gateway.calls import CallRecord
from gateway.watching import series
from gateway.watching.exposition import CONTENT_TYPE, exposition
from gateway.watching.families import (
    ACCEPTED,
    ATTEMPT_TTFT,
    ATTEMPTS,
    CALLS,
    CLIENT_REFUSALS,
    COST,
    CUT,
    DECODE,
    ERRORS,
    FAR_OFF,
    IN_FLIGHT,
    OVERHEAD,
    OVERHEAD_BUCKETS,
    QUEUE_BUCKETS,
    REFUSALS,
    REFUSED,
    SHED,
    TOKENS,
    TPS_BUCKETS,
    TTFT,
    TTFT_BUCKETS,
    WAITED,
)
from gateway.watching.series import Family, Series

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the folder that several workers share
REFRESH_S = 1.0
ADHOC_LABEL = "adhoc"  # names invented by clients must not become time series


def forget_process(pid: int) -> None:
    """Remove a dead worker's gauges from the sums."""
    series.forget_process(Path(os.environ[MULTIPROCESS_FOLDER]), pid)


class Metrics:
    """Counts the recorder's events. One per process; ``render`` returns the sums of all workers."""

    def __init__(self, known_models: Callable[[], Mapping[str, object]]) -> None:
        folder = os.environ.get(MULTIPROCESS_FOLDER)
        self.shared = folder is not None  # there are several workers
        self._series = Series(Path(folder) if folder is not None else None)
        self._cells = self._series.cells
        self._known_models = known_models
        self._looked_up_in: object = None  # the known models for which the following was looked up
        self._models: dict[str, _Model] = {}
        self._deployments: dict[tuple[str, str], _Deployment] = {}  # by model and name, only known ones
        self._overhead = self._series.first_cell(OVERHEAD)
        self._accepted = self._series.first_cell(ACCEPTED)
        self._families = [
            CALLS, ATTEMPTS, ERRORS, REFUSED, REFUSALS, CLIENT_REFUSALS, SHED, TOKENS, FAR_OFF, COST, TTFT,
            ATTEMPT_TTFT, DECODE, OVERHEAD, WAITED, IN_FLIGHT, ACCEPTED, CUT,
        ]  # fmt: skip
        self._read: list[tuple[int, Callable[[], float]]] = []  # read from elsewhere into these cells

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when metrics are rendered, and each second if there are several workers."""
        self._add(Family(name, documentation, "gauge"), read)

    def counter(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Add a counter that is kept elsewhere, and read like a gauge."""
        self._add(Family(name, documentation, "counter"), read)

    def _add(self, family: Family, read: Callable[[], float]) -> None:
        self._families.append(family)
        self._read.append((self._series.first_cell(family), read))

    async def keep_fresh(self) -> None:
        """Store the gauges each second, for the worker that renders all. Runs until cancelled."""
        while True:
            self._refresh()
            await asyncio.sleep(REFRESH_S)

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """Count the start of an attempt."""
        self._cells[self._deployment(model, start.deployment).in_flight] += 1.0

    def attempt_ended(self, model: str, attempt: AttemptRecord) -> None:
        """Count the end of an attempt."""
        cells, deployment = self._cells, self._deployment(model, attempt.deployment)
        cells[deployment.in_flight] -= 1.0
        cells[deployment.outcome(attempt.outcome, attempt.role)] += 1.0
        if attempt.error_kind is not None:
            cells[self._series.first_cell(ERRORS, deployment.label, str(attempt.error_kind))] += 1.0
        if attempt.ttft_ms is not None:
            _observe(cells, deployment.ttft, TTFT_BUCKETS, attempt.ttft_ms / 1000)
        if attempt.decode_tps is not None:
            _observe(cells, deployment.decode, TPS_BUCKETS, attempt.decode_tps)
        if attempt.completion_tokens:
            cells[deployment.completion_tokens] += attempt.completion_tokens
        if attempt.prompt_tokens:
            cells[deployment.prompt_tokens] += attempt.prompt_tokens

    def launch_refused(self, model: str, limit: str) -> None:
        """Count an extra attempt that ``limit`` (budget, usd_per_day, max_in_flight, …) refused."""
        self._cells[self._series.first_cell(REFUSED, limit, self._model(model).label)] += 1.0

    def usage_far_off(self, model: str, deployment: str) -> None:
        """Count a comparison in which the tokens reported by ``deployment`` differed much from the others'."""
        self._cells[self._deployment(model, deployment).far_off] += 1.0

    def refused(self, status: int, reason: str, client: str | None) -> None:
        """Count a request that did not become a call; ``reason`` is one of a few, ``client`` a configured name."""
        self._cells[self._series.first_cell(REFUSALS, reason, str(status))] += 1.0
        if client is not None:
            self._cells[self._series.first_cell(CLIENT_REFUSALS, client, reason)] += 1.0

    def shed(self, reason: str, limit: str) -> None:
        """Count a call that was refused under overload; both are of a few."""
        self._cells[self._series.first_cell(SHED, limit, reason)] += 1.0

    def call_waited(self, model: str, how: str, seconds: float) -> None:
        """Count a call that has waited under max_in_flight: seated, timed_out or left."""
        first = self._series.first_cell(WAITED, how, self._model(model).label)
        _observe(self._cells, first, QUEUE_BUCKETS, seconds)

    def call_finished(self, record: CallRecord) -> None:
        """Count a call."""
        cells, model = self._cells, self._model(record.model)
        cells[model.call(record.mode, record.status_code)] += 1.0
        if record.ttft_ms is not None:
            _observe(cells, model.ttft, TTFT_BUCKETS, record.ttft_ms / 1000)
        if record.overhead_ms is not None:
            _observe(cells, self._overhead, OVERHEAD_BUCKETS, record.overhead_ms / 1000)
        if record.cost_usd is not None:
            duplicate_usd = record.duplicate_cost_usd or 0.0
            cells[model.answer_usd] += max(0.0, record.cost_usd - duplicate_usd)
            cells[model.duplicate_usd] += duplicate_usd

    def connection_accepted(self) -> None:
        """Count a connection."""
        self._cells[self._accepted] += 1.0

    def connection_cut(self, reason: str) -> None:
        """Count a connection that was closed because of a limit, one of a few."""
        self._cells[self._series.first_cell(CUT, reason)] += 1.0

    async def render(self) -> tuple[bytes, str]:
        """Return the text format and its content type, for all workers."""
        self._refresh()
        return await exposition(self._families, self._series.tables()), CONTENT_TYPE

    def _refresh(self) -> None:
        for cell, read in self._read:
            self._cells[cell] = float(read())

    def _model(self, name: str) -> "_Model":
        models = self._known_models()
        if models is not self._looked_up_in:
            self._look_again(models)
        found = self._models.get(name)
        if found is None:
            known = name in models
            found = _Model(self._series, name if known else ADHOC_LABEL)
            if known:
                self._models[name] = found
        return found

    def _deployment(self, model: str, name: str) -> "_Deployment":
        models = self._known_models()
        if models is not self._looked_up_in:
            self._look_again(models)
        found = self._deployments.get((model, name))
        if found is None:
            known = model in models
            found = _Deployment(self._series, name if known else ADHOC_LABEL)
            if known:
                self._deployments[model, name] = found
        return found

    def _look_again(self, models: Mapping[str, object]) -> None:
        """Look everything up again after a change of the configuration."""
        self._looked_up_in = models
        self._models, self._deployments = {}, {}


class _Model:
    """The cells of one model's calls."""

    __slots__ = ("_calls", "_series", "answer_usd", "duplicate_usd", "label", "ttft")

    def __init__(self, series: Series, label: str) -> None:
        self._series = series
        self._calls: dict[tuple[str, int], int] = {}
        self.label = label
        self.ttft = series.first_cell(TTFT, label)
        self.answer_usd = series.first_cell(COST, label, "answer")
        self.duplicate_usd = series.first_cell(COST, label, "duplicate")

    def call(self, mode: str, status_code: int) -> int:
        cell = self._calls.get((mode, status_code))
        if cell is None:
            cell = self._series.first_cell(CALLS, str(mode), self.label, str(status_code))
            self._calls[mode, status_code] = cell
        return cell


class _Deployment:
    """The cells of one deployment's attempts."""

    __slots__ = (
        "_outcomes",
        "_series",
        "completion_tokens",
        "decode",
        "far_off",
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
        self.completion_tokens = series.first_cell(TOKENS, label, "completion")
        self.prompt_tokens = series.first_cell(TOKENS, label, "prompt")
        self.far_off = series.first_cell(FAR_OFF, label)  # starts at 0: a series that starts at 1 shows no increase

    def outcome(self, outcome: str, role: str) -> int:
        cell = self._outcomes.get((outcome, role))
        if cell is None:
            cell = self._outcomes[outcome, role] = self._series.first_cell(
                ATTEMPTS, self.label, str(outcome), str(role)
            )
        return cell


def _observe(cells: MutableSequence[float], first: int, bounds: tuple[float, ...], value: float) -> None:
    """Count ``value`` in the histogram that begins at ``first``."""
    cells[first + bisect_left(bounds, value)] += 1.0
    cells[first + len(bounds) + 1] += value
