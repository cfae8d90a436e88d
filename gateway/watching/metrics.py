"""Metrics of calls and attempts. The cells of a deployment or model are looked up once, and then only added to."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from math import nan
from pathlib import Path

from gateway.attempt_records import AttemptRecord, AttemptStart, WinOn
from gateway.calls import CallRecord
from gateway.watching import series
from gateway.watching.cells import observe, observe_gaps
from gateway.watching.exposition import CONTENT_TYPE, exposition
from gateway.watching.families import (
    ACCEPTED,
    ALERT_MESSAGES,
    ALERTS,
    ALERTS_RESOLVED,
    ATTEMPT_TTFT,
    ATTEMPTS,
    BROKEN,
    CALLS,
    CLIENT_CALLS,
    CLIENT_COST,
    CLIENT_REFUSALS,
    CLIENT_TOKENS,
    COST,
    CUT,
    DECODE,
    DRIBBLED,
    ERRORS,
    FAR_OFF,
    GAPS,
    IN_FLIGHT,
    KEPT,
    OVERHEAD,
    OVERHEAD_BUCKETS,
    PROBES,
    QUEUE_BUCKETS,
    REFUSALS,
    REFUSED,
    SENTENCE,
    SHED,
    TAKEOVERS,
    TOKENS,
    TPS_BUCKETS,
    TTFT,
    TTFT_BUCKETS,
    VALID,
    WAITED,
)
from gateway.watching.known_cells import KnownCells
from gateway.watching.series import Family, Series

MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the folder that several workers share
REFRESH_S = 1.0
_ERRORS = 400  # HTTP's first error

Readings = Mapping[tuple[str, ...], float]  # by the values of labels


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
        self._known = KnownCells(self._series, known_models)
        self._overhead = self._series.first_cell(OVERHEAD)
        self._accepted = self._series.first_cell(ACCEPTED)
        self._families = [
            CALLS, ATTEMPTS, ERRORS, REFUSED, REFUSALS, CLIENT_CALLS, CLIENT_TOKENS, CLIENT_COST, CLIENT_REFUSALS, SHED,
            TOKENS, FAR_OFF, COST, VALID, TAKEOVERS, KEPT, DRIBBLED, TTFT, SENTENCE, ATTEMPT_TTFT, DECODE, GAPS,
            OVERHEAD, WAITED, IN_FLIGHT, ACCEPTED, CUT, ALERTS, ALERTS_RESOLVED, ALERT_MESSAGES, PROBES,
        ]  # fmt: skip
        self._on_render: list[Callable[[], None]] = []
        self._read: list[Callable[[], None]] = []  # each reads from elsewhere into its cells

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read when metrics are rendered, and each second if there are several workers."""
        self._add(Family(name, documentation, "gauge"), read)

    def counter(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Add a counter that is kept elsewhere, and read like a gauge."""
        self._add(Family(name, documentation, "counter"), read)

    def _add(self, family: Family, read: Callable[[], float]) -> None:
        self.read_series(family, lambda: {(): float(read())})

    def read_series(self, family: Family, read: Callable[[], Readings]) -> None:
        """Add a family whose series are read like a gauge, by the values of their labels.

        Series that ``read`` no longer returns are no longer on the page.
        """
        self._families.append(family)
        cells: dict[tuple[str, ...], int] = {}

        def store() -> None:
            found = read()
            for values, number in found.items():
                cell = cells.get(values)
                if cell is None:
                    cell = cells[values] = self._series.first_cell(family, *values)
                self._cells[cell] = number
            for values in cells.keys() - found.keys():
                self._cells[cells[values]] = nan

        self._read.append(store)

    def on_render(self, act: Callable[[], None]) -> None:
        """Call ``act`` each time this process is asked for the page."""
        self._on_render.append(act)

    @property
    def families(self) -> Sequence[Family]:
        """All families, in the order of the page."""
        return self._families

    async def keep_fresh(self) -> None:
        """Store the gauges each second, for the worker that renders all. Runs until cancelled."""
        while True:
            self._refresh()
            await asyncio.sleep(REFRESH_S)

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """Count the start of an attempt."""
        self._cells[self._known.deployment(model, start.deployment).in_flight] += 1.0

    def attempt_ended(self, model: str, attempt: AttemptRecord) -> None:
        """Count the end of an attempt."""
        cells, deployment = self._cells, self._known.deployment(model, attempt.deployment)
        cells[deployment.in_flight] -= 1.0
        cells[deployment.outcome(attempt.outcome, attempt.role)] += 1.0
        if attempt.error_kind is not None:
            cells[self._series.first_cell(ERRORS, deployment.label, str(attempt.error_kind))] += 1.0
        if attempt.ttft_ms is not None:
            observe(cells, deployment.ttft, TTFT_BUCKETS, attempt.ttft_ms / 1000)
        if attempt.sentence_ms is not None:
            first = self._series.first_cell(SENTENCE, deployment.label)
            observe(cells, first, TTFT_BUCKETS, attempt.sentence_ms / 1000)
        if attempt.decode_tps is not None:
            observe(cells, deployment.decode, TPS_BUCKETS, attempt.decode_tps)
        if attempt.is_kept:
            cells[self._series.first_cell(KEPT, deployment.label, attempt.outcome)] += 1.0
        if attempt.would_take_over:
            cells[self._series.first_cell(DRIBBLED, deployment.label)] += 1.0
        if attempt.itl:
            observe_gaps(cells, deployment.gaps, attempt)
        if attempt.completion_tokens:
            cells[deployment.completion_tokens] += attempt.completion_tokens
        if attempt.prompt_tokens:
            cells[deployment.prompt_tokens] += attempt.prompt_tokens

    def launch_refused(self, model: str, limit: str) -> None:
        """Count an extra attempt that ``limit`` (budget, usd_per_day, max_in_flight, …) refused."""
        self._cells[self._series.first_cell(REFUSED, limit, self._known.model(model).label)] += 1.0

    def usage_far_off(self, model: str, deployment: str) -> None:
        """Count a comparison in which the tokens reported by ``deployment`` differed much from the others'."""
        self._cells[self._known.deployment(model, deployment).far_off] += 1.0

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
        first = self._series.first_cell(WAITED, how, self._known.model(model).label)
        observe(self._cells, first, QUEUE_BUCKETS, seconds)

    def call_finished(self, record: CallRecord) -> None:
        """Count a call."""
        cells, model = self._cells, self._known.model(record.model)
        status = BROKEN if record.status_code < _ERRORS and record.error_kind is not None else str(record.status_code)
        cells[model.call(record.mode, status)] += 1.0
        if record.ttft_ms is not None:
            observe(cells, model.ttft, TTFT_BUCKETS, record.ttft_ms / 1000)
        if record.win_on is WinOn.VALID:
            invalid = record.first_was_invalid
            first = "unknown" if invalid is None else "invalid" if invalid else "valid"
            cells[self._series.first_cell(VALID, first, model.label)] += 1.0
        if record.takeover is not None:
            cells[self._series.first_cell(TAKEOVERS, record.takeover, model.label)] += 1.0
        if record.overhead_ms is not None:
            observe(cells, self._overhead, OVERHEAD_BUCKETS, record.overhead_ms / 1000)
        if record.cost_usd is not None:
            duplicate_usd = record.duplicate_cost_usd or 0.0
            cells[model.answer_usd] += max(0.0, record.cost_usd - duplicate_usd)
            cells[model.duplicate_usd] += duplicate_usd
        client = self._known.clients.get(record.client) or self._known.client(record.client)
        cells[client.call(status)] += 1.0
        cells[client.usd] += record.cost_usd or 0.0
        cells[client.prompt_tokens] += record.prompt_tokens or 0
        cells[client.completion_tokens] += record.completion_tokens or 0

    def attempt_audited(self, model: str, attempt: AttemptRecord, duplicate_usd: float | None) -> None:
        """Add what an audited loser cost that has ended after its call."""
        if attempt.cost_usd is None:
            return
        cells, of_model, duplicate_usd = self._cells, self._known.model(model), duplicate_usd or 0.0
        cells[of_model.answer_usd] += max(0.0, attempt.cost_usd - duplicate_usd)
        cells[of_model.duplicate_usd] += duplicate_usd
        cells[(self._known.clients.get(attempt.client) or self._known.client(attempt.client)).usd] += attempt.cost_usd

    def probe_ended(self, deployment: str, outcome: str) -> None:
        """Count a probe of the gateway's own."""
        self._cells[self._series.first_cell(PROBES, deployment, outcome)] += 1.0

    def connection_accepted(self) -> None:
        """Count a connection."""
        self._cells[self._accepted] += 1.0

    def connection_cut(self, reason: str) -> None:
        """Count a connection that was closed because of a limit, one of a few."""
        self._cells[self._series.first_cell(CUT, reason)] += 1.0

    def alert_kind(self, kind: str) -> None:
        """Make the series of a kind of alert: one that starts at 1 shows no increase."""
        self._series.first_cell(ALERTS, kind)
        self._series.first_cell(ALERTS_RESOLVED, kind)

    def alert_opened(self, kind: str) -> None:
        """Count an alert that this process opened."""
        self._cells[self._series.first_cell(ALERTS, kind)] += 1.0

    def alert_resolved(self, kind: str) -> None:
        """Count an alert that this process resolved."""
        self._cells[self._series.first_cell(ALERTS_RESOLVED, kind)] += 1.0

    def alert_message(self, webhook: str, result: str) -> None:
        """Count an attempt to send a message; ``webhook`` is its configured name."""
        self._cells[self._series.first_cell(ALERT_MESSAGES, result, webhook)] += 1.0

    async def render(self) -> tuple[bytes, str]:
        """Return the text format and its content type, for all workers."""
        for act in self._on_render:
            act()
        self._refresh()
        return await exposition(self._families, self._series.tables()), CONTENT_TYPE

    def _refresh(self) -> None:
        for read in self._read:
            read()
