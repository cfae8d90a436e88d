"""What a soak found, what of it is wrong, and both in plain words."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from benchmarks.soak.books import Books
from benchmarks.soak.growth import Growth
from benchmarks.soak.samples import Sample

TURNED_AWAY = 0.01  # of all calls, though they met no fault; that is more than the faults of others explain
RSS_GROWTH = 0.05  # between the second quarter and the last; more than that is a leak
_NAMED = 5  # calls, in a sentence


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole soak. ``start`` and ``end`` are the gateway at rest; a growth is None where the run was too short."""

    interpreter: str
    seed: int
    calls: int
    warm_up_calls: int
    seconds: float  # of the load
    reloads: int
    reloads_seen: int  # by providers, in what they were sent
    faults: Mapping[str, int]  # how many calls met each
    endings: Mapping[str, int]
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
    yield f"{report.interpreter}, seed {report.seed}."


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in sorted(counts.items(), key=lambda each: -each[1]))


def _some(names: Sequence[str]) -> str:
    return "; ".join(names[:_NAMED]) + (" …" if len(names) > _NAMED else "")
