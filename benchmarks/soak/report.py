"""What a soak found: rows beside calls, growth of what was sampled, and what is wrong, in plain words."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine

from benchmarks.harness import machine
from benchmarks.soak.jobs import Ending, Made
from benchmarks.soak.provider import NOWHERE
from gateway.ledger import tables
from providers import ErrorKind
from tests.support.measured.servers import Server, fetch, gauges

GAUGES = ("holeshot_tasks", "holeshot_ledger_pending")
LEAST_SAMPLES = 5  # in a quarter, or nothing is said
_MOST = 100  # calls whose attempts are told
TURNED_AWAY = 0.01  # of all calls, though they met no fault; that is more than the faults of others explain
RSS_GROWTH = 0.05  # between the second quarter and the last; more than that is a leak
_NAMED = 5  # calls, in a sentence


class Sample(msgspec.Struct, frozen=True):
    """One look. ``calls`` have ended by then; ``pending`` of them are not in SQL yet."""

    at_s: float  # since the first call
    rss_mb: float  # resident, 10^6 bytes
    descriptors: int
    tasks: int  # of its event loop, the one that answers included
    pending: int
    spool_kb: float  # on disk, 10^3 bytes
    calls: int = 0


def look(gateway: Server, spool: Path, at_s: float, calls: int = 0) -> Sample:
    """Return what is seen now."""
    tasks, pending = (int(value) for value in gauges(fetch(gateway.port, "/metrics", gateway.headers).decode(), GAUGES))
    return Sample(
        at_s=at_s,
        rss_mb=machine.memory_mb(gateway.pid),
        descriptors=machine.descriptors(gateway.pid),
        tasks=tasks,
        pending=pending,
        spool_kb=sum(_size(path) for path in spool.rglob("*")) / 1000,
        calls=calls,
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # shipped meanwhile
        return 0


class Growth(msgspec.Struct, frozen=True):
    """Medians of what was sampled in the second quarter and in the last."""

    second: float
    last: float

    @property
    def share(self) -> float:
        """Return by what share of the second quarter's it grew; less than 0 where it shrank."""
        return self.last / self.second - 1 if self.second else 0.0


def growth(samples: Sequence[Sample], read: Callable[[Sample], float]) -> Growth | None:
    """Return how what ``read`` reads grew over a run, quarters being of its time; None where it was too short."""
    if not samples:
        return None
    first_s, last_s = samples[0].at_s, samples[-1].at_s
    quarters: list[list[float]] = [[], [], [], []]
    for sample in samples:
        share = (sample.at_s - first_s) / (last_s - first_s) if last_s > first_s else 0.0
        quarters[min(3, int(4 * share))].append(read(sample))
    if min(len(quarters[1]), len(quarters[3])) < LEAST_SAMPLES:
        return None
    return Growth(median(quarters[1]), median(quarters[3]))


class Row(msgspec.Struct, frozen=True):
    """A row of ``calls``, as far as it is looked at."""

    request_id: str
    status: int


class Books(msgspec.Struct, frozen=True):
    """What was found. ``unbegun``: their clients left before the gateway had read them, and no provider was asked.

    Others are request ids: ``missing`` have no row, ``doubled`` several; ``strange`` are of no call; ``misjudged``
    were answered in whole, and their rows say something else.
    """

    rows: int
    unbegun: int
    missing: Sequence[str]
    doubled: Sequence[str]
    strange: Sequence[str]
    misjudged: Sequence[str]

    @property
    def balance(self) -> bool:
        """Whether every call has its one row."""
        return not (self.missing or self.doubled or self.strange or self.misjudged)


async def read(engine: AsyncEngine) -> tuple[list[Row], int]:
    """Return the rows of all calls, and how many attempts met a closed port."""
    calls, attempts = tables.calls, tables.attempts
    refused = select(func.count()).where(
        attempts.c.provider == NOWHERE, attempts.c.error_kind == ErrorKind.CONNECT_ERROR.value
    )
    async with engine.connect() as connection:
        found = await connection.execute(select(calls.c.request_id, calls.c.status_code))
        rows = [Row(request_id or "", status) for request_id, status in found]
        return rows, int((await connection.execute(refused)).scalar_one())


async def narrowed(engine: AsyncEngine) -> dict[str, int]:
    """Return how many calls had fewer attempts than asked for, by model and reason: a question of the guide to SQL."""
    calls = tables.calls
    asked = (
        select(calls.c.model, calls.c.narrowed, func.count())
        .where(calls.c.narrowed.is_not(None))
        .group_by("model", "narrowed")
    )
    async with engine.connect() as connection:
        return {f"{model} {reason}": number for model, reason, number in await connection.execute(asked)}


async def attempts_of(engine: AsyncEngine, request_ids: Collection[str]) -> dict[str, list[str]]:
    """Return how the attempts of some calls went, in the order of their launch, by request id."""
    calls, attempts = tables.calls, tables.attempts
    columns = (attempts.c[name] for name in ("deployment", "role", "outcome", "error_kind", "launch_offset_ms"))
    query = select(calls.c.request_id, *columns).join(attempts, attempts.c.call_id == calls.c.id)
    told: dict[str, list[str]] = {}
    async with engine.connect() as connection:
        asked = query.where(calls.c.request_id.in_(list(request_ids)[:_MOST])).order_by(attempts.c.number)
        for request_id, deployment, role, outcome, error_kind, at_ms in await connection.execute(asked):
            why = f" ({error_kind})" if error_kind else ""
            told.setdefault(request_id, []).append(f"{deployment} {role} at {at_ms:.0f} ms: {outcome}{why}")
    return told


def compared(rows: Iterable[Row], made: Iterable[Made], seen: Collection[int]) -> Books:
    """Return how rows and calls compare; ``seen`` are the numbers of calls that reached a provider."""
    statuses: dict[str, int] = {}
    times: Counter[str] = Counter()
    for row in rows:
        times[row.request_id] += 1
        statuses[row.request_id] = row.status
    by_id = {one.job.request_id: one for one in made}
    without = [one for name, one in by_id.items() if name not in times]
    unbegun = [one for one in without if one.ending is Ending.LEFT and one.job.number not in seen]
    return Books(
        rows=times.total(),
        unbegun=len(unbegun),
        missing=sorted({one.job.request_id for one in without} - {one.job.request_id for one in unbegun}),
        doubled=sorted(name for name, number in times.items() if number > 1),
        strange=sorted(times.keys() - by_id.keys()),
        misjudged=sorted(
            name
            for name, one in by_id.items()
            if one.ending is Ending.ANSWERED and one.job.leave_s is None and statuses.get(name, 200) != 200
        ),
    )


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole soak. ``start`` and ``end`` are the gateway at rest; a growth is None where the run was too short."""

    seed: int
    calls: int
    warm_up_calls: int
    seconds: float  # of the load
    reloads: int
    reloads_seen: int  # by providers, in what they were sent
    faults: Mapping[str, int]  # how many calls met each
    endings: Mapping[str, int]
    narrowed: Mapping[str, int]  # calls with fewer attempts than asked for, by model and reason
    amiss: Sequence[str]  # calls that ended as they must not
    turned_away: Sequence[str]  # calls that met nothing themselves; in ``endings`` are also those that did
    crashes: Sequence[str]  # lines of the gateway's log
    books: Books
    start: Sample
    end: Sample
    rss_mb: Growth | None
    descriptors: Growth | None
    tasks: Growth | None
    samples: Sequence[Sample]


def problems(report: Report) -> Iterator[str]:
    """Yield a sentence for each thing that is wrong; none: all is well."""
    if report.amiss:
        yield f"{len(report.amiss):,} calls did not end as they must: {_some(report.amiss)}"
    if len(report.turned_away) > TURNED_AWAY * report.calls:
        yield f"{len(report.turned_away):,} calls without a fault were turned away: {_some(report.turned_away)}"
    yield from _of_books(report)
    yield from _of_rest(report)
    if report.rss_mb is not None and report.rss_mb.share > RSS_GROWTH:
        yield f"resident memory grew by {report.rss_mb.share:.1%} between the second quarter and the last"
    if report.reloads_seen < report.reloads - 1:  # the last may have come after the last request
        yield f"{report.reloads} reloads were asked for, and {report.reloads_seen} were seen by providers"
    if report.crashes:
        yield f"{len(report.crashes):,} errors in the gateway's log: {_some(report.crashes)}"


def _of_books(report: Report) -> Iterator[str]:
    books = report.books
    made = report.calls + report.warm_up_calls
    if not books.balance or books.rows != made - books.unbegun:
        yield f"{books.rows:,} rows in the ledger for {made - books.unbegun:,} calls"
    for what, names in (
        ("have no row", books.missing),
        ("have several rows", books.doubled),
        ("are in rows, but were never made", books.strange),
        ("were answered, and their rows do not say so", books.misjudged),
    ):
        if names:
            yield f"{len(names):,} calls {what}: {_some(names)}"


def _of_rest(report: Report) -> Iterator[str]:
    for what, start, end in (
        ("descriptors are open", report.start.descriptors, report.end.descriptors),
        ("tasks are left", report.start.tasks, report.end.tasks),
    ):
        if end > start:
            yield f"{end} {what} after the end; before the load there were {start}"
    if report.end.pending:
        yield f"{report.end.pending:,} calls are not in SQL a minute after the end"


def lines(report: Report) -> Iterator[str]:
    """Yield the report in plain words."""
    rate = report.calls / report.seconds
    yield f"{report.calls:,} calls in {report.seconds:.0f} s ({rate:.0f}/s), and {report.reloads} reloads."
    yield f"Faults met: {sum(report.faults.values()):,} ({_listed(report.faults)})."
    as_must = report.calls + report.warm_up_calls - len(report.amiss)
    yield f"Ended as they must: {as_must:,} ({_listed(report.endings)}); otherwise: {len(report.amiss):,}."
    yield f"Fewer attempts than asked for: {_listed(report.narrowed) or 'never'}."
    unbegun = (
        f"; {report.books.unbegun:,} clients left before the gateway had read their calls"
        if report.books.unbegun
        else ""
    )
    yield f"Rows in the ledger: {report.books.rows:,}, with {report.warm_up_calls} calls to warm up{unbegun}."
    for name, unit, each in (
        ("Resident memory", " MB", report.rss_mb),
        ("Descriptors", "", report.descriptors),
        ("Tasks", "", report.tasks),
    ):
        if each is None:
            yield f"{name}: the run was too short to see growth."
        else:
            grown = f"{each.second:.0f}{unit} in the second quarter, {each.last:.0f}{unit} in the last"
            yield f"{name}: {grown} ({each.share:+.1%})."
    start, end = report.start, report.end
    yield (
        f"At rest before and after: {start.descriptors} and {end.descriptors} descriptors, {start.tasks} and "
        f"{end.tasks} tasks, {start.rss_mb:.0f} and {end.rss_mb:.0f} MB."
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items(), key=lambda each: -each[1]))


def _some(names: Sequence[str]) -> str:
    return "; ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
