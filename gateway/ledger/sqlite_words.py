"""The words of Postgres that ``holeshot sql`` understands when the ledger is a SQLite file.

``date_trunc`` and the two percentiles become functions of the connection. ``percentile_cont(0.95) within group (order
by ttft_ms)``, which SQLite cannot parse, is rewritten as a plain call.
"""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil, floor
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

TOKEN = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*(?:\]|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)"""
    r"""|\w+|\s+|[<>!=]=|<>|.""",
    re.DOTALL,
)
_PERCENTILES = ("percentile_cont", "percentile_disc")
_WITHIN = ["within", "group", "(", "order", "by"]
# By unit, the parts of an instant to replace.
_STARTS: Mapping[str, Mapping[str, Any]] = {
    "second": {},
    "minute": {"second": 0},
    "hour": {"minute": 0, "second": 0},
    "day": {"hour": 0, "minute": 0, "second": 0},
    "month": {"day": 1, "hour": 0, "minute": 0, "second": 0},
    "year": {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0},
}
_UNITS = (*_STARTS, "week", "quarter")


class SqliteWords:
    """Makes connections with these functions; ``wrong`` says why a function failed."""

    def __init__(self) -> None:
        self.wrong: str | None = None

    def connection(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """Return a connection; for ``sqlite3.connect`` as ``factory``."""
        new_connection = sqlite3.Connection(*arguments, **options)
        new_connection.create_function("date_trunc", -1, self._date_trunc, deterministic=True)
        for name in _PERCENTILES:
            new_connection.create_aggregate(name, -1, partial(_Percentile, self, name))
        return new_connection

    def refused(self, why: str) -> ValueError:
        """Return an error to raise, and note ``why``: SQLite does not pass on the message."""
        self.wrong = self.wrong or why
        return ValueError(why)

    def _date_trunc(self, *given: Any) -> str | None:
        if len(given) not in {2, 3}:
            raise self.refused("date_trunc takes a unit and an instant: date_trunc('hour', started_at)")
        unit, instant, zone = (*given, "UTC")[:3]
        if instant is None or unit is None or zone is None:
            return None
        try:
            return date_trunc(str(unit), str(instant), str(zone))
        except ValueError as error:
            raise self.refused(str(error)) from error


class _Percentile:
    """An aggregate function; nulls do not count."""

    def __init__(self, words: SqliteWords, name: str) -> None:
        self._words = words
        self._name = name
        self._values: list[Any] = []
        self._share: Any = None
        self._descends = False

    def step(self, *given: Any) -> None:
        if len(given) not in {2, 3}:
            raise self._words.refused(f"write {self._name}(0.95) within group (order by ttft_ms)")
        value, self._share, self._descends = (*given, False)[:3]
        if value is not None:
            self._values.append(value)

    def finalize(self) -> Any:
        if self._share is None or not self._values:
            return None
        try:
            return percentile(self._name, float(self._share), self._values, descends=bool(self._descends))
        except (TypeError, ValueError) as error:
            raise self._words.refused(str(error)) from error


def date_trunc(unit: str, instant: str, zone: str = "UTC") -> str:
    """Return the start of the hour, day, … around an instant, by the zone's clock: UTC, in the form of SQLite's rows.

    Raises:
        ValueError: there is no such unit, instant or zone.

    """
    name = unit.lower()
    if name not in _UNITS:
        raise ValueError(f"date_trunc knows no unit {unit!r}: {', '.join(_UNITS)}")
    try:
        at = datetime.fromisoformat(instant)
        local = (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"date_trunc cannot read {instant!r} in the zone {zone!r}") from error
    if name == "week":
        local = local.replace(tzinfo=None) - timedelta(days=local.weekday())
        local = local.replace(tzinfo=ZoneInfo(zone))
    elif name == "quarter":
        local = local.replace(day=1, month=(local.month - 1) // 3 * 3 + 1)
    start = local.replace(microsecond=0, **_STARTS.get(name, _STARTS["day"]))
    return f"{start.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def percentile(name: str, share: float, values: Sequence[Any], *, descends: bool = False) -> Any:
    """Return the result of Postgres's function ``name`` for values without nulls.

    Raises:
        ValueError: ``share`` is not between 0 and 1.
        TypeError: a text would be interpolated, or there are both texts and numbers.

    """
    if not 0 <= share <= 1:
        raise ValueError(f"{name} takes a share between 0 and 1, not {share:g}")
    ranked = sorted(values, reverse=descends)
    if name == "percentile_disc":
        return ranked[max(0, ceil(share * len(ranked)) - 1)]
    if isinstance(ranked[0], str):
        raise TypeError("percentile_cont is of numbers: use percentile_disc")
    place = share * (len(ranked) - 1)
    low, high = float(ranked[floor(place)]), float(ranked[ceil(place)])
    return low + (high - low) * (place - floor(place))


def with_percentiles(sql: str) -> str:
    """Return ``sql`` with ``percentile_cont(0.5) within group (order by x)`` written as ``percentile_cont(x, 0.5)``."""
    tokens = TOKEN.findall(sql)
    words = [at for at, token in enumerate(tokens) if not (token.isspace() or token.startswith(("--", "/*")))]
    plain = [tokens[at].lower() for at in words]
    for place, word in enumerate(plain):
        if word not in _PERCENTILES or plain[place + 1 : place + 2] != ["("]:
            continue
        close = _closing(plain, place + 1)
        if plain[close + 1 : close + 6] != _WITHIN:
            continue
        end = _closing(plain, close + 3)
        if plain[end] != ")":
            continue
        is_told = plain[end - 1] in {"asc", "desc"}
        last = words[end - 1] if is_told else words[end]
        ordered = "".join(tokens[words[close + 5] + 1 : last]).strip()
        tokens[words[place + 1]] = f"({ordered}, "
        tokens[words[close]] = ", 1)" if plain[end - 1] == "desc" else ")"
        for at in range(words[close] + 1, words[end] + 1):
            tokens[at] = ""
    return "".join(tokens)


def _closing(plain: Sequence[str], opening: int) -> int:
    """Return the place of the bracket that closes the bracket at ``opening``; without one, the last place."""
    depth = 0
    for place in range(opening, len(plain)):
        depth += (plain[place] == "(") - (plain[place] == ")")
        if not depth:
            return place
    return len(plain) - 1
