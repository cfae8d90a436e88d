"""``holeshot costs``: what the ledger says that answers cost, by itself or beside what a vendor bills."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from gateway.cli.configuration import ConfigOption, read_database_url
from gateway.cli.invoices import EVERYTHING, Invoice, InvoiceError, InvoiceLine, read_invoice, through, undated
from gateway.cli.terminal import MISUSED, UNKNOWN, fail, prose, write_json, write_table
from gateway.core.terminal_text import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.ledger import Words

    _Ask = Callable[[str], Awaitable[list[tuple[Any, ...]]]]

_LATEST_DAYS = 7  # shown without a bill and a month
_WIDE = 2.0  # times; above that the bound is explained: $4.95 beside $0.004 after thirty calls of the demo
_WHY_WIDE = (
    "low_usd, high_usd: the least and the most that vendors may bill. A cancelled attempt may be billed as the longest"
    " answer that its request allows: with max_tokens in requests, high_usd is lower."
    f" {UNKNOWN}: a price is not known."
)
ROUNDING_USD = 1e-6  # vendors round, and so do sums
# One row for each day, deployment, version of the model and tier.
_KEYS = "provider, deployment, model_version, tier_served"
_ROWS = """
select {day} as day, {keys}, count(*) as attempts, sum(cost_low_usd) as low_usd, sum(cost_usd) as known_usd,
  sum(cost_high_usd) as high_usd, sum(case when cost_high_usd is null then 1 else 0 end) as n_open
from attempts where {within} group by 1, {keys}
"""
_UNITS = """
select {day} as day, {keys}, count(*) as attempts, unit.key as unit,
  sum(cast(unit.value ->> 'n' as double precision) * cast(unit.value ->> 'usd' as double precision)) as known_usd,
  sum(case when unit.value ->> 'usd' is null then 1 else 0 end) as n_open
from attempts, json_each(units) as unit
where units is not null and {within} and unit.key in {units} group by 1, {keys}, unit.key
"""
# Attempts may be kept shorter than calls. On Postgres no index finds the first attempt, so any earlier attempt will do.
_BEGINS = """
select coalesce(
  (select started_at from attempts where started_at < {since} limit 1),
  (select min(started_at) from attempts where started_at >= {since} and started_at <= {until}),
  (select min(started_at) from calls where started_at > {until}))
"""


class BookedCosts(msgspec.Struct):
    """The cost of one thing on one day in the ledger, in US dollars; ``high_usd`` None: no upper bound is known."""

    attempts: int = 0
    low_usd: float = 0.0
    known_usd: float = 0.0
    high_usd: float | None = 0.0

    def add(self, other: "BookedCosts", sign: int = 1) -> None:
        """Add ``other``, or with ``sign`` -1 subtract it."""
        self.attempts += sign * other.attempts
        self.low_usd += sign * other.low_usd
        self.known_usd += sign * other.known_usd
        if sign > 0 and (self.high_usd is None or other.high_usd is None):
            self.high_usd = None
        elif self.high_usd is not None:
            self.high_usd += sign * (other.high_usd or 0.0)


class ComparedCost(msgspec.Struct, frozen=True):
    """One day and one thing: the ledger beside the bill. ``day`` None: all days that can be compared."""

    day: date | None
    what: str
    attempts: int
    low_usd: float
    known_usd: float
    high_usd: float | None
    bill_usd: float | None  # None: the bill has no such line
    verdict: str  # "within", "above", "below", "open", "not comparable"
    by_usd: float | None = None  # how far the bill is above the upper bound, or below the lower one
    reason: str | None = None


def costs(
    invoice: Annotated[
        list[Path] | None,
        typer.Option("--invoice", metavar="FILE", help="The vendor's export; once for each of its pages."),
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(
            "--provider",
            help="Only this provider; the one that the bill is for. [default: all, of a bill the one named like the"
            " vendor]",
        ),
    ] = None,
    month: Annotated[
        str | None,
        typer.Option(
            metavar="YYYY-MM", help="Only this month. [default: the last seven days, of a bill all of its days]"
        ),
    ] = None,
    config: ConfigOption = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what answers cost by day, or beside a vendor's bill.

    A vendor's bill (--invoice) should lie between the least and the most that the ledger says. The page 'Limits' of
    the documentation says which exports are read, and what cannot be compared. No key is needed, and nothing is sent.


    Example: holeshot costs --invoice anthropic-2026-10.json --month 2026-10
    """
    if not invoice:
        _show_spending(config, provider or (), month, as_json=as_json)
        return
    try:
        bill = read_invoice(invoice)
    except InvoiceError as error:
        fail(str(error))
    days = bill.days if month is None else _of_month(bill, month)
    from gateway.ledger import LedgerError  # noqa: PLC0415 - SQLAlchemy only here

    providers = provider or [bill.format.provider]
    try:
        ledger = asyncio.run(from_ledger(read_database_url(config, for_reports=True), bill, providers, days))
    except LedgerError as error:
        fail(str(error))
    rows = compared(bill, days, ledger, datetime.now(UTC).date())
    notes = _notes(bill)
    if not ledger.rows:
        known, named = ", ".join(ledger.providers) or "none", ", ".join(providers)
        notes.append(
            f"the ledger has no attempts at {named} with your own keys on these days; --provider names others: {known}"
        )
    if as_json:
        write_json(_as_object(bill, days, providers, rows, notes))
    else:
        _write(rows, notes)


def _show_spending(config: Path | None, providers: Sequence[str], month: str | None, *, as_json: bool) -> None:
    """Print the ledger's costs of the last days, or of ``month``, by day and deployment, and their sum."""
    today = datetime.now(UTC).date()
    first, last = today - timedelta(days=_LATEST_DAYS - 1), today
    if month is not None:
        first = _first_of(month)
        last = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
    from gateway.ledger import LedgerError  # noqa: PLC0415 - SQLAlchemy only here

    try:
        rows = asyncio.run(spent(read_database_url(config, for_reports=True), providers, first, last))
    except LedgerError as error:
        fail(str(error))
    total = BookedCosts()
    for booked in rows.values():
        total.add(booked)
    if as_json:
        each = [{"day": day, "deployment": name, **msgspec.structs.asdict(one)} for (day, name), one in rows.items()]
        write_json({"from": first, "to": last, "rows": each, "total": msgspec.structs.asdict(total)})
        return
    if rows:
        lines = [[day.isoformat(), name, *msgspec.structs.astuple(one)] for (day, name), one in rows.items()]
        lines.append(["all days", "all", *msgspec.structs.astuple(total)])
        write_table(["day", "deployment", "attempts", "low_usd", "known_usd", "high_usd"], lines)
        if total.high_usd is None or total.high_usd > _WIDE * total.known_usd:
            prose(_WHY_WIDE)
    else:
        prose(f"the ledger has no attempts from {first} to {last} (UTC)")


async def spent(url: str, providers: Sequence[str], first: date, last: date) -> dict[tuple[date, str], BookedCosts]:
    """Return the cost of each day and deployment from ``first`` to ``last``, the newest day first.

    ``providers``: only of these; empty: all. Attempts with keys that clients bring are not the operator's costs.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    found: dict[tuple[date, str], BookedCosts] = {}
    ask, words = _open(url)
    for row in await _costs_by_day(ask, words, _within(words, providers, *_bounds(words, frozenset((first, last))))):
        found.setdefault((row.day, row.deployment), BookedCosts()).add(row.booked)
    return dict(sorted(found.items(), key=lambda each: (-each[0][0].toordinal(), -each[1].known_usd, each[0][1])))


def _first_of(month: str) -> date:
    try:
        return date.fromisoformat(f"{month}-01")
    except ValueError:
        fail(f"--month {month} is not a month: write it as 2026-10", MISUSED)


def _of_month(bill: Invoice, month: str) -> frozenset[date]:
    first = _first_of(month)
    days = frozenset(day for day in bill.days if (day.year, day.month) == (first.year, first.month))
    if not days:
        fail(f"the export has nothing of {month}: it is from {min(bill.days)} to {max(bill.days)}", MISUSED)
    return days


class LedgerCost(msgspec.Struct, frozen=True):
    """The ledger's cost of one day, deployment, version of its model and tier; of one ``unit``, None: of all."""

    day: date
    deployment: str
    version: str | None
    tier: str | None
    booked: BookedCosts
    unit: str | None = None


class FromLedger(msgspec.Struct, frozen=True):
    """The ledger's rows for the days and providers of a bill."""

    rows: list[LedgerCost]
    units: list[LedgerCost]  # the parts of `rows` that the vendor bills apart
    begins: date | None  # a day with an attempt: the first day, unless there are attempts from before the bill's days
    providers: list[str]  # the providers that the ledger knows


async def from_ledger(url: str, bill: Invoice, providers: Sequence[str], days: frozenset[date]) -> FromLedger:
    """Return the ledger's rows of the providers from the first of the days to the last.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    ask, words = _open(url)
    since, until = _bounds(words, days)
    within = _within(words, providers, since, until)
    rows = await _costs_by_day(ask, words, within)
    units = []
    if rows and bill.format.units_apart:
        listed = f"({', '.join(map(words.text, bill.format.units_apart))})"
        for at, _, deployment, version, tier, n, unit, known, n_open in await ask(
            _UNITS.format(day=_day(words), keys=_KEYS, within=within, units=listed)
        ):
            booked = BookedCosts(n, known or 0.0, known or 0.0, None if n_open else known or 0.0)
            units.append(LedgerCost(_date(at), deployment, version, tier, booked, unit))
    ((begins,),) = await ask(_BEGINS.format(since=since, until=until))
    others = [] if rows else await ask("select distinct provider from attempts order by 1")
    return FromLedger(rows, units, None if begins is None else _date(begins), [str(name) for (name,) in others])


def _open(url: str) -> "tuple[_Ask, Words]":
    """Return a function that asks the ledger, and the words of its database."""
    from gateway.ledger import Words, is_sqlite, parse_url, queries  # noqa: PLC0415 - as above

    async def ask(sql: str) -> "list[tuple[Any, ...]]":
        result: queries.Result = await queries.run(url, sql)
        return result.rows

    return ask, Words(is_postgres=not is_sqlite(parse_url(url)))


async def _costs_by_day(ask: "_Ask", words: "Words", within: str) -> list[LedgerCost]:
    return [
        LedgerCost(
            _date(at),
            deployment,
            version,
            tier,
            BookedCosts(n, low or 0.0, known or 0.0, None if n_open else high or 0.0),
        )
        for at, _, deployment, version, tier, n, low, known, high, n_open in await ask(
            _ROWS.format(day=_day(words), keys=_KEYS, within=within)
        )
    ]


def _day(words: "Words") -> str:
    return "cast(started_at at time zone 'UTC' as date)" if words.is_postgres else "date(started_at)"


def _within(words: "Words", providers: Sequence[str], since: str, until: str) -> str:
    """Return the condition for attempts at the providers (none: all) with the operator's keys, between two instants."""
    from gateway.core.calls import TENANT  # noqa: PLC0415 - as above

    named = f" and provider in ({', '.join(map(words.text, providers))})" if providers else ""
    return f"started_at >= {since} and started_at <= {until}{named} and coalesce(key_name, '') <> '{TENANT}'"


def _bounds(words: "Words", days: frozenset[date]) -> tuple[str, str]:
    """Return the first instant of the days and the last."""
    first, last = datetime.combine(min(days), time.min, UTC), datetime.combine(max(days), time.max, UTC)
    return words.instant(first), words.instant(last)


def _date(value: object) -> date:
    """Return a column of either database as a day; of an instant, its day in UTC."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).date()
    return value if isinstance(value, date) else date.fromisoformat(str(value)[:10])


def compared(bill: Invoice, days: frozenset[date], ledger: FromLedger, today: date) -> list[ComparedCost]:
    """Return a row for each day and thing, in this order; then sums of all comparable days, by thing and of all."""
    lines = [line for line in bill.lines if line.day in days]
    booked, lacking = _booked(bill, lines, [row for row in (*ledger.rows, *ledger.units) if row.day in days])
    billed: dict[tuple[date, str], float] = defaultdict(float)
    reasons: dict[tuple[date, str], str] = {}
    for line in lines:
        billed[line.day, line.what] += line.usd
        if line.reason is not None:
            reasons[line.day, line.what] = line.reason
    rows = []
    for day, what in {*booked, *billed}:
        reason = reasons.get((day, what))
        if reason is None and day >= today:
            reason = "the day is not over"
        elif reason is None and (
            ledger.begins is None or day <= ledger.begins
        ):  # of the first day the ledger has only a part
            reason = f"the ledger begins on {ledger.begins}" if ledger.begins else "the ledger is empty"
        rows.append(_judged(day, what, booked.get((day, what), BookedCosts()), billed.get((day, what), 0.0), reason))
    not_on_it = f"{bill.format.name} does not contain it"
    rows += [_judged(day, what, each, None, not_on_it) for (day, what), each in lacking.items()]
    return [*sorted(rows, key=lambda row: (str(row.day), row.what)), *_totals(rows)]


_ByDay = dict[tuple[date, str], BookedCosts]


def _booked(bill: Invoice, lines: Sequence[InvoiceLine], rows: Sequence[LedgerCost]) -> tuple[_ByDay, _ByDay]:
    """Return the ledger's costs by day and thing as the bill names them, and those that the bill lacks."""
    called = _Names(lines, [row for row in rows if row.unit is None])
    is_divided = not any(line.what == EVERYTHING for line in lines)
    booked: _ByDay = defaultdict(BookedCosts)
    lacking: _ByDay = defaultdict(BookedCosts)
    for row in rows:
        name = called.of(row) if is_divided else EVERYTHING
        if row.tier in bill.format.lacking_tiers:
            if row.unit is None:
                lacking[row.day, f"{called.of(row)} ({row.tier})"].add(row.booked)
        elif row.unit is None:
            booked[row.day, name].add(row.booked)
        elif is_divided:
            booked[row.day, name].add(msgspec.structs.replace(row.booked, attempts=0), -1)
            booked[row.day, row.unit].add(row.booked)
    return booked, lacking


class _Names:
    """Finds the name under which a row of the ledger is on the bill."""

    def __init__(self, lines: Iterable[InvoiceLine], rows: Iterable[LedgerCost]) -> None:
        self._billed: dict[str, str] = {}
        for line in lines:
            for name in line.models:
                self._billed.setdefault(undated(name), line.what)
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        for row in rows:
            if row.version is not None:
                seen[row.deployment][row.version] += row.booked.attempts
        self._version: Mapping[str, str] = {name: each.most_common(1)[0][0] for name, each in seen.items()}

    def of(self, row: LedgerCost) -> str:
        """Return the name of the model in the answer; for a cut attempt, the name in its deployment's other answers."""
        own = row.deployment.partition("/")[2] or row.deployment
        names = [undated(each) for each in (row.version or self._version.get(row.deployment), own) if each]
        return next((self._billed[name] for name in names if name in self._billed), names[0])


def _judged(
    day: date | None, what: str, booked: BookedCosts, bill_usd: float | None, reason: str | None
) -> ComparedCost:
    low, high = max(0.0, booked.low_usd), booked.high_usd
    verdict, by_usd = "within", None
    if reason is not None or bill_usd is None:
        verdict = "not comparable"
    elif bill_usd < low - ROUNDING_USD:
        verdict, by_usd = "below", low - bill_usd
    elif high is None:
        verdict = "open"
    elif bill_usd > high + ROUNDING_USD:
        verdict, by_usd = "above", bill_usd - high
    return ComparedCost(day, what, booked.attempts, low, booked.known_usd, high, bill_usd, verdict, by_usd, reason)


def _totals(rows: Iterable[ComparedCost]) -> list[ComparedCost]:
    """Return the comparable costs of each thing over all days, then of all things."""
    by_name: dict[str, BookedCosts] = defaultdict(BookedCosts)
    bills: dict[str, float] = defaultdict(float)
    for row in rows:
        if row.verdict == "not comparable":
            continue
        for name in (row.what, EVERYTHING) if row.what != EVERYTHING else (EVERYTHING,):
            by_name[name].add(BookedCosts(row.attempts, row.low_usd, row.known_usd, row.high_usd))
            bills[name] += row.bill_usd or 0.0
    names = sorted(by_name, key=lambda name: (name == EVERYTHING, name))
    return [_judged(None, name, by_name[name], bills[name], None) for name in names]


def _notes(bill: Invoice) -> list[str]:
    form = bill.format
    notes = [f"{form.name}, in {form.unit}, days of {form.zone}; it does not contain: {', '.join(form.lacks)}"]
    if missing := sorted(through(bill.days) - bill.days):
        lacking = f"{counted(len(missing), 'day')}, from {missing[0]} to {missing[-1]}"
        notes.append(f"missing between the first day and the last: {lacking}; not compared, so give their pages, too")
    elif not bill.is_whole:
        notes.append("the export says that more pages follow: give each of them, or days are missing")
    if any(line.what == EVERYTHING for line in bill.lines):
        notes.append(f"it is not divided by model: ask for {form.source}")
    return notes


_TOLD = {"within": "within", "open": "no upper bound", "not comparable": "not comparable"}


def _write(rows: Sequence[ComparedCost], notes: Sequence[str]) -> None:
    columns = ["day", "model", "attempts", "low_usd", "known_usd", "high_usd", "bill_usd", "verdict"]
    cells = []
    for row in rows:
        told = _TOLD.get(row.verdict) or f"{row.verdict} by ${row.by_usd:.6f}"
        if row.reason is not None:
            told = f"{told}: {row.reason}"
        day = "all days" if row.day is None else row.day.isoformat()
        figures = (row.attempts, row.low_usd, row.known_usd, row.high_usd, row.bill_usd)
        cells.append([day, row.what, *figures, told])
    write_table(columns, cells)
    for note in notes:
        prose(note)
    outside = [row for row in rows if row.day is None and row.what != EVERYTHING and row.by_usd is not None]
    if outside:
        prose(f"outside over all days: {', '.join(row.what for row in outside)}")


def _as_object(
    bill: Invoice, days: frozenset[date], providers: Sequence[str], rows: Sequence[ComparedCost], notes: Sequence[str]
) -> dict[str, Any]:
    form = bill.format
    each = [msgspec.structs.asdict(row) for row in rows]
    return {
        "format": form.name,
        "unit": form.unit,
        "zone": form.zone,
        "lacks": list(form.lacks),
        "providers": list(providers),
        "from": min(days),
        "to": max(days),
        "is_whole": bill.is_whole,
        "rows": [row for row in each if row["day"] is not None],
        "totals": [{name: value for name, value in row.items() if name != "day"} for row in each if row["day"] is None],
        "notes": list(notes),
    }
