"""Metrics of calls and attempts. The cells of a deployment or model are looked up once, and then only added to."""

import asyncio
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from math import isnan, nan
from operator import add
from pathlib import Path

from gateway import __version__
from gateway.core.attempts import AttemptRecord, AttemptStart, TokensSource, WinOn
from gateway.core.calls import CallRecord
from gateway.core.tasks import end_if_cancelled
from gateway.watching import series
from gateway.watching.series import (
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
    CellTable,
    Family,
    KnownCells,
    Series,
    ShownAs,
    observe,
    observe_gaps,
)

# The metrics page: the sums of all workers' series in Prometheus' text format 0.0.4.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CELLS_A_TURN = 512  # handled without a pause, in a millisecond or two; then the event loop runs other tasks

MERGES: Mapping[str, Callable[[float, float], float]] = {"sum": add, "min": min, "max": max}

Sums = dict[str, dict[tuple[str, ...], Sequence[float]]]  # by family and label values


async def exposition(families: Iterable[Family], tables: Iterable[CellTable | None]) -> list[bytes]:
    """Return the page in parts, families in the given order. It never blocks the event loop for long."""
    by_name = {family.name: family for family in families}
    sums: Sums = {name: {} for name in by_name}
    for table in tables:
        await (asyncio.sleep(0) if table is None else _add(sums, by_name, table))
    blocks: list[bytes] = []
    pace = _Pace()
    for family in by_name.values():
        lines = [f"# HELP {family.name} {_escaped(family.documentation)}\n# TYPE {family.name} {family.kind}\n"]
        for values, numbers in sums[family.name].items():
            lines.append(_lines(family, values, numbers))
            if pace.is_over(family.width):
                blocks.append("".join(lines).encode())
                lines.clear()
                await asyncio.sleep(0)
        blocks.append("".join(lines).encode())
    return blocks


class _Pace:
    """Says when a turn of the event loop has had its share of cells."""

    def __init__(self) -> None:
        self._cells = 0

    def is_over(self, cells: int) -> bool:
        """Whether other tasks should run, after so many more cells."""
        self._cells += cells
        if self._cells < CELLS_A_TURN:
            return False
        self._cells = 0
        return True


async def _add(sums: Sums, families: Mapping[str, Family], table: CellTable) -> None:
    pace = _Pace()
    for place in table.places:
        family = families.get(place.family)
        if pace.is_over(1 if family is None else family.width):
            await asyncio.sleep(0)
        if family is None or (family.kind == "gauge" and not table.alive):
            continue
        numbers = list(table.cells[place.first : place.first + family.width])
        if isnan(numbers[0]):  # a gauge of something that is no longer configured, or not known
            continue
        known = sums[family.name].get(place.values)
        merged = numbers if known is None else list(map(MERGES[family.merge], known, numbers))
        sums[family.name][place.values] = merged


def _lines(family: Family, values: Sequence[str], numbers: Sequence[float]) -> str:
    name = family.name
    pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(family.labels, values, strict=True)]
    labels = f"{{{','.join(pairs)}}}" if pairs else ""
    if family.kind != "histogram":
        return f"{name}{labels} {numbers[0]!r}\n"
    *buckets, total = numbers
    up_to = list(accumulate(buckets))
    inside = "".join(f"{pair}," for pair in pairs)
    bounds = _written(family.bounds)
    lines = [f'{name}_bucket{{{inside}le="{le}"}} {count!r}\n' for le, count in zip(bounds, up_to, strict=True)]
    return f"{''.join(lines)}{name}_count{labels} {up_to[-1]!r}\n{name}_sum{labels} {total!r}\n"


@cache
def _written(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(repr(float(bound)) for bound in bounds), "+Inf")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


MULTIPROCESS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # the folder that several workers share
REFRESH_S = 1.0
_ERRORS = 400  # HTTP's first error

Readings = Mapping[tuple[str, ...], float]  # by the values of labels
ManyReadings = Iterable[tuple[tuple[str, ...], float]]


def forget_process(pid: int) -> None:
    """Remove a dead worker's gauges from the sums."""
    series.forget_process(Path(os.environ[MULTIPROCESS_FOLDER]), pid)


class Metrics:
    """Counts the recorder's events. One per process; ``render`` returns the sums of all workers."""

    def __init__(
        self, known_models: Callable[[], Mapping[str, object]], shown_as: ShownAs = lambda: lambda *_: None
    ) -> None:
        folder = os.environ.get(MULTIPROCESS_FOLDER)
        self.shared = folder is not None  # there are several workers
        self._series = Series(Path(folder) if folder is not None else None)
        self._cells = self._series.cells
        self._known = KnownCells(self._series, known_models, shown_as)
        self._overhead = self._series.first_cell(OVERHEAD)
        self._accepted = self._series.first_cell(ACCEPTED)
        self._families = [
            CALLS, ATTEMPTS, ERRORS, REFUSED, REFUSALS, CLIENT_CALLS, CLIENT_TOKENS, CLIENT_COST, CLIENT_REFUSALS, SHED,
            TOKENS, FAR_OFF, COST, VALID, TAKEOVERS, KEPT, DRIBBLED, TTFT, SENTENCE, ATTEMPT_TTFT, DECODE, GAPS,
            OVERHEAD, WAITED, IN_FLIGHT, ACCEPTED, CUT, ALERTS, ALERTS_RESOLVED, ALERT_MESSAGES, PROBES,
        ]  # fmt: skip
        self._running: dict[str, int] = {}  # the cell of each attempt in flight, by id: a reload may change its label
        self._on_render: list[Callable[[], None]] = []
        self._read: list[Callable[[], Iterator[None]]] = []  # each reads from elsewhere into its cells, in steps

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
        self.read_many(family, lambda: read().items())

    def read_many(self, family: Family, read: Callable[[], ManyReadings]) -> None:
        """Do so for as many series as there are models: what ``read`` returns is iterated a part in a turn."""
        self._families.append(family)
        cells: dict[tuple[str, ...], int] = {}

        def store() -> Iterator[None]:
            found: set[tuple[str, ...]] = set()
            for values, number in read():
                cell = cells.get(values)
                if cell is None:
                    cell = cells[values] = self._series.first_cell(family, *values)
                self._cells[cell] = number
                found.add(values)
                if len(found) % CELLS_A_TURN == 0:
                    yield
            for values in cells.keys() - found:
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
            await self._refresh()
            end_if_cancelled()
            await asyncio.sleep(REFRESH_S)

    def attempt_started(self, model: str, start: AttemptStart) -> None:
        """Count the start of an attempt."""
        cell = self._running[start.id] = self._known.deployment(model, start.deployment).in_flight
        self._cells[cell] += 1.0

    def attempt_ended(self, model: str, attempt: AttemptRecord) -> None:
        """Count the end of an attempt."""
        cells, deployment = self._cells, self._known.deployment(model, attempt.deployment)
        cells[self._running.pop(attempt.id, deployment.in_flight)] -= 1.0
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
        if attempt.tokens_source is TokensSource.REPORTED:  # both or none: a loser's are not known
            cells[deployment.completion_tokens] += attempt.completion_tokens or 0
            cells[deployment.prompt_tokens] += attempt.prompt_tokens or 0

    def launch_refused(self, model: str, limit: str) -> None:
        """Count an extra attempt that ``limit`` (budget, usd_per_day, max_in_flight, …) refused."""
        self._cells[self._series.first_cell(REFUSED, limit, self._known.model(model).label)] += 1.0

    def usage_far_off(self, model: str, deployment: str) -> None:
        """Count a comparison in which the tokens reported by ``deployment`` differed much from the others'."""
        self._cells[self._known.deployment(model, deployment).far_off] += 1.0

    def refused(self, status: int, reason: str, client: str | None) -> None:
        """Count a request that did not become a call; ``reason`` is from a small set, ``client`` a configured name."""
        self._cells[self._series.first_cell(REFUSALS, reason, str(status))] += 1.0
        if client is not None:
            self._cells[self._series.first_cell(CLIENT_REFUSALS, client, reason)] += 1.0

    def shed(self, reason: str, limit: str) -> None:
        """Count a call that was refused under overload; both labels are from small sets."""
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
        """Add the cost of an audited loser that ended after its call."""
        if attempt.cost_usd is None or attempt.learnt_as is not None:
            return
        cells, of_model = self._cells, self._known.model(model)
        duplicate_usd = min(duplicate_usd or 0.0, attempt.cost_usd)  # lost caches are in the call's own
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
        """Count a connection that was closed because of a limit; ``reason`` is from a small set."""
        self._cells[self._series.first_cell(CUT, reason)] += 1.0

    def alert_kind(self, kind: str) -> None:
        """Create the series of a kind of alert with 0: a series that starts at 1 shows no increase."""
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
        parts, content_type = await self.parts()
        return b"".join(parts), content_type

    async def parts(self) -> tuple[list[bytes], str]:
        """Return the metrics in parts: with thousands of models to join them would stop all else."""
        for act in self._on_render:
            act()
        await self._refresh()
        return await exposition(self._families, self._series.tables()), CONTENT_TYPE

    async def _refresh(self) -> None:
        self._series.share_new()
        for read in self._read:
            for _ in read():
                await asyncio.sleep(0)


# The metrics of the process itself, with the names that Prometheus' client libraries use.

BUILD = Family("holeshot_build_info", "The running version; always 1.", "gauge", ("python", "version"), merge="max")
WORKERS = Family("holeshot_workers", "Worker processes that are running.", "gauge")
STARTED = Family("process_start_time_seconds", "Unix time at which the oldest worker started.", "gauge", merge="min")
CPU = Family("process_cpu_seconds_total", "CPU time, user and system, of all workers.", "counter")
MEMORY = Family("process_resident_memory_bytes", "Resident memory of all workers; Linux only.", "gauge")

_STATM = Path("/proc/self/statm")


def add_process_figures(metrics: Metrics) -> None:
    """Add the figures of this process to ``metrics``."""
    started_s = time.time()
    build = (platform.python_version(), __version__)
    metrics.read_series(BUILD, lambda: {build: 1.0})
    metrics.read_series(WORKERS, lambda: {(): 1.0})
    metrics.read_series(STARTED, lambda: {(): started_s})
    metrics.read_series(CPU, lambda: {(): time.process_time()})
    metrics.read_series(MEMORY, _memory)


def _memory() -> Mapping[tuple[str, ...], float]:
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return {}
    return {(): float(pages * os.sysconf("SC_PAGE_SIZE"))}
