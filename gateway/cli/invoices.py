"""Vendors' own exports of what they bill, as files: each format with its unit, and with the costs that it lacks.

A file is the JSON that a documented endpoint answers; an answer in several pages is several files. Sources, seen on
2026-11-26 (their examples are in tests/unit/cli/invoices):

* OpenAI's costs: https://platform.openai.com/docs/api-reference/usage/costs; the names of line items:
  https://cookbook.openai.com/examples/completions_usage_api
* Anthropic's cost report: https://platform.claude.com/docs/en/api/admin/cost_report/retrieve; without Priority Tier:
  https://platform.claude.com/docs/en/manage-claude/usage-cost-api
* OpenRouter's activity: https://openrouter.ai/docs/api/api-reference/analytics/get-user-activity
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

_T = TypeVar("_T")
_Instant = Annotated[datetime, msgspec.Meta(tz=True)]

EVERYTHING = "all models"  # the line of a day that the vendor does not divide
_DATED = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")
_PLACE = re.compile(r" \(byte (\d+)\)$")


class InvoiceError(Exception):
    """A file that is no export of a known form; the message says where, and what was expected."""


class InvoiceLine(msgspec.Struct, frozen=True):
    """What a vendor bills for one day and one thing."""

    day: date
    what: str  # a model without its date, a unit of the ledger (`web_search`), EVERYTHING, or in the vendor's words
    usd: float
    models: tuple[str, ...] = ()  # the model's names, as the ledger may have them
    reason: str | None = None  # why the ledger has no cost to compare with this line


class ExportFormat(msgspec.Struct, frozen=True):
    """The format of one vendor's export."""

    name: str
    provider: str  # the provider's usual name in the configuration
    source: str  # the endpoint with this export
    unit: str
    lacks: tuple[str, ...]  # costs that the export does not contain, in words
    lacking_tiers: tuple[str, ...]  # the ledger's tiers that the export does not contain
    units_apart: tuple[str, ...]  # the ledger's units that have lines of their own, outside those of models
    zone: str = "UTC"


class Invoice(msgspec.Struct, frozen=True):
    """One export, of one file or several."""

    format: ExportFormat
    days: frozenset[date]  # the days that the export covers
    lines: tuple[InvoiceLine, ...]
    is_whole: bool  # False: the vendor has more pages than were given, or a day in between is missing


def undated(name: str) -> str:
    """Return a model's name without the date of its version: ``gpt-5-2025-08-07`` is ``gpt-5``."""
    if name.startswith("ft:"):  # the vendor bills all models that were tuned from one model together
        name = f"ft-{name.split(':')[1]}"
    return _DATED.sub("", name.lower())


def _of_model(day: date, usd: float, *models: str, reason: str | None = None) -> InvoiceLine:
    return InvoiceLine(day, undated(models[0]), usd, models, reason)


class _Page(msgspec.Struct, frozen=True):
    data: list[msgspec.Raw]
    has_more: bool = False
    next_page: str | None = None


class _Amount(msgspec.Struct, frozen=True):
    value: float | str  # a text with more digits than a number has, from some vendors
    currency: Literal["usd", "USD"]


class _OpenAICost(msgspec.Struct, frozen=True):
    object: Literal["organization.costs.result"]
    amount: _Amount
    line_item: str | None = None


class _OpenAIBucket(msgspec.Struct, frozen=True):
    start_time: int
    end_time: int
    results: list[msgspec.Raw]


class _AnthropicCost(msgspec.Struct, frozen=True):
    amount: str
    currency: Literal["USD"]
    cost_type: str | None = None
    description: str | None = None
    model: str | None = None
    service_tier: str | None = None


class _AnthropicBucket(msgspec.Struct, frozen=True):
    starting_at: _Instant
    ending_at: _Instant
    results: list[msgspec.Raw]


class _OpenRouterItem(msgspec.Struct, frozen=True):
    date: str
    model: str
    usage: float
    byok_usage_inference: float = 0.0
    model_permaslug: str | None = None


class _Element(msgspec.Struct, frozen=True):
    """An element of a list, with the place of its first byte in the file."""

    raw: bytes
    at: int


class _MisreadError(Exception):
    """A problem in the file, and the place of its byte."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at = at


def _elements(text: bytes, raws: Iterable[msgspec.Raw], at: int) -> Iterator[_Element]:
    """Yield the elements of a list that begins at or after byte ``at``."""
    for each in raws:
        raw = bytes(each)
        at = text.index(raw, at)
        yield _Element(raw, at)
        at += len(raw)


def _decoded(element: _Element, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(element.raw, type=kind)
    except msgspec.DecodeError as error:  # also ValidationError
        problem = str(error)
        place = _PLACE.search(problem)
        raise _MisreadError(element.at + (int(place[1]) if place else 0), _PLACE.sub("", problem)) from None


def _number(value: float | str, element: _Element) -> float:
    try:
        number = float(value)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise _MisreadError(element.at, f"{value!r} is no amount")
    return number


def _day(begins: datetime, ends: datetime, element: _Element) -> date:
    """Return the day of a bucket."""
    try:
        begins, ends = begins.astimezone(UTC), ends.astimezone(UTC)
    except OverflowError:
        raise _MisreadError(element.at, f"it is from {begins} to {ends}, which are no days of UTC") from None
    if not timedelta() < ends - begins <= timedelta(days=1) or begins.time() != time():
        raise _MisreadError(element.at, f"it is from {begins} to {ends}, which is not one day (UTC)")
    return begins.date()


def _openai(text: bytes, element: _Element) -> tuple[date, list[InvoiceLine]]:
    bucket, lines = _decoded(element, _OpenAIBucket), list[InvoiceLine]()
    try:
        begins, ends = (datetime.fromtimestamp(at, UTC) for at in (bucket.start_time, bucket.end_time))
    except (ValueError, OverflowError, OSError):  # out of range: of a date, or of the platform's clock
        between = f"{bucket.start_time} to {bucket.end_time}"
        raise _MisreadError(element.at, f"it is from {between}, which are not seconds since 1970") from None
    day = _day(begins, ends, element)
    for each in _elements(text, bucket.results, element.at):
        cost = _decoded(each, _OpenAICost)
        usd = _number(cost.amount.value, each)
        model, comma, _ = (cost.line_item or "").rpartition(",")
        if cost.line_item is None:
            lines.append(InvoiceLine(day, EVERYTHING, usd))
        elif comma and "|" not in model:
            lines.append(_of_model(day, usd, model.split(" ")[0]))  # after a space: the kind of tokens
        elif cost.line_item.startswith("web search"):
            lines.append(InvoiceLine(day, "web_search", usd))
        else:
            lines.append(InvoiceLine(day, cost.line_item, usd, reason="it is not of one model's tokens"))
    return day, lines


def _anthropic(text: bytes, element: _Element) -> tuple[date, list[InvoiceLine]]:
    bucket, lines = _decoded(element, _AnthropicBucket), list[InvoiceLine]()
    day = _day(bucket.starting_at, bucket.ending_at, element)
    for each in _elements(text, bucket.results, element.at):
        cost = _decoded(each, _AnthropicCost)
        usd = _number(cost.amount, each) / 100
        if cost.cost_type is None and cost.model is None:
            lines.append(InvoiceLine(day, EVERYTHING, usd))
        elif cost.cost_type == "web_search":
            lines.append(InvoiceLine(day, "web_search", usd))
        elif cost.model is None or cost.cost_type not in {None, "tokens"}:
            what = cost.description or str(cost.cost_type)
            lines.append(InvoiceLine(day, what, usd, reason="it is not of one model's tokens"))
        elif cost.service_tier == "batch":
            lines.append(InvoiceLine(day, f"{cost.model} (batch)", usd, reason="batches do not go through the gateway"))
        else:
            lines.append(_of_model(day, usd, cost.model))
    return day, lines


def _openrouter(_: bytes, element: _Element) -> tuple[date, list[InvoiceLine]]:
    item = _decoded(element, _OpenRouterItem)
    try:
        day = date.fromisoformat(item.date[:10])
    except ValueError:
        raise _MisreadError(element.at, f"the date is {item.date!r}, and not as 2026-11-30") from None
    usd, own_usd = _number(item.usage, element), _number(item.byok_usage_inference, element)
    models = (item.model, item.model_permaslug) if item.model_permaslug else (item.model,)
    reason = f"${own_usd:.6g} more were spent with keys of one's own, which their vendors bill" if own_usd else None
    return day, [_of_model(day, usd, *models, reason=reason)]


OPENAI = ExportFormat(
    name="OpenAI's costs",
    provider="openai",
    source="GET /v1/organization/costs?group_by=line_item",
    unit="US dollars",
    lacks=("projects that project_ids left out",),
    lacking_tiers=(),
    units_apart=("web_search",),
)
ANTHROPIC = ExportFormat(
    name="Anthropic's cost report",
    provider="anthropic",
    source="GET /v1/organizations/cost_report?group_by[]=description",
    unit="US cents",
    lacks=("Priority Tier",),
    lacking_tiers=("priority",),
    units_apart=("web_search",),
)
OPENROUTER = ExportFormat(
    name="OpenRouter's activity",
    provider="openrouter",
    source="GET /api/v1/activity",
    unit="US dollars (credits)",
    lacks=("what vendors bill for keys of one's own", "days before the last 30"),
    lacking_tiers=(),
    units_apart=(),
)
# By the fields of the first element of `data`: the format, and how an element is read.
_READERS: Sequence[tuple[frozenset[str], ExportFormat, Callable[[bytes, _Element], tuple[date, list[InvoiceLine]]]]] = (
    (frozenset({"start_time", "results"}), OPENAI, _openai),
    (frozenset({"starting_at", "results"}), ANTHROPIC, _anthropic),
    (frozenset({"date", "usage"}), OPENROUTER, _openrouter),
)
KNOWN = "; ".join(f"{each.name} ({each.source})" for _, each, _ in _READERS)


def read_invoice(paths: Sequence[Path]) -> Invoice:
    """Return the export that the files contain, each file a page.

    Raises:
        InvoiceError: a file cannot be read, has no known form, or a day is there twice.

    """
    invoices = [_read(path) for path in paths]
    first, *others = invoices
    whose = dict.fromkeys(first.days, paths[0])
    for path, invoice in zip(paths[1:], others, strict=True):
        if invoice.format != first.format:
            raise InvoiceError(f"{path} is {invoice.format.name}, but {paths[0]} is {first.format.name}")
        if twice := min(invoice.days & whose.keys(), default=None):
            raise InvoiceError(f"{twice} is in {whose[twice]} and in {path}: give each page once")
        whose |= dict.fromkeys(invoice.days, path)
    lines = tuple(line for invoice in invoices for line in invoice.lines)
    days, form = frozenset(whose), first.format
    if form is OPENROUTER:  # OpenRouter has no row for a day without requests
        days = frozenset[date]().union(*(through(invoice.days) for invoice in invoices))
    has_last = any(invoice.is_whole for invoice in invoices)
    return Invoice(form, days, lines, is_whole=has_last and days == through(days))


def through(days: frozenset[date]) -> frozenset[date]:
    """Return all days from the first to the last."""
    return frozenset(min(days) + timedelta(n) for n in range((max(days) - min(days)).days + 1))


def _read(path: Path) -> Invoice:
    """Return the content of one file; it is whole if the vendor has no further page."""
    try:
        text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise InvoiceError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return _invoice(text)
    except _MisreadError as error:
        line = text.count(b"\n", 0, error.at) + 1
        raise InvoiceError(f"{path}, line {line}: {error}. What can be read is JSON of {KNOWN}") from None


def _invoice(text: bytes) -> Invoice:
    try:
        text.decode()
    except UnicodeDecodeError as error:
        raise _MisreadError(error.start, f"the byte 0x{text[error.start]:02x} is not UTF-8: save it as that") from None
    page = _decoded(_Element(text, 0), _Page)
    elements = list(_elements(text, page.data, max(0, text.find(b'"data"'))))
    if not elements:
        raise _MisreadError(0, "data is empty: nothing was billed in that time, or it is the answer to something else")
    names = _decoded(elements[0], dict[str, msgspec.Raw]).keys()
    known = next(((form, read) for fields, form, read in _READERS if fields <= names), None)
    if known is None:
        raise _MisreadError(elements[0].at, f"the elements of data have the fields {', '.join(names) or 'none'}")
    form, read = known
    days, lines = set[date](), list[InvoiceLine]()
    for each in elements:
        day, of_day = read(text, each)
        if day in days and form is not OPENROUTER:  # OpenRouter has a row for each model
            raise _MisreadError(each.at, f"{day} is there a second time: give each page once, as a file of its own")
        days.add(day)
        lines += of_day
    return Invoice(form, frozenset(days), tuple(lines), is_whole=not page.has_more)
