"""What ``holeshot sql`` understands of Postgres's words where the ledger is a file of SQLite.

``date_trunc`` and the two percentiles become functions of the connection; what stands otherwise in a statement there,
``percentile_cont(0.95) within group (order by ttft_ms)``, is written as a call that SQLite can read.
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
# What is left of an instant, by the unit that it is cut to.
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
    """Makes connections that have these functions; ``wrong`` says what one of them was asked that it cannot answer."""

    def __init__(self) -> None:
        self.wrong: str | None = None

    def connection(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """Return a connection: the ``factory`` of ``sqlite3.connect``."""
        made = sqlite3.Connection(*arguments, **options)
        made.create_function("date_trunc", -1, self._date_trunc, deterministic=True)
        for name in _PERCENTILES:
            made.create_aggregate(name, -1, partial(_Percentile, self, name))
        return made

    def refused(self, why: str) -> ValueError:
        """Return an error to be raised, and keep why: SQLite does not tell it."""
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
    """An aggregate; nulls do not count."""

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
    """Return when the unit began in which an instant is, in the zone's time: UTC, in the form of SQLite's rows.

    Raises:
        ValueError: the unit, the instant or the zone is none.

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
    """Return what Postgres's function of this name returns of these values, which are not null.

    Raises:
        ValueError: ``share`` is not between 0 and 1.
        TypeError: a text is to be interpolated, or texts and numbers are among the values.

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
    """Return ``sql`` with ``percentile_cont(0.5) within group (order by x)`` as ``percentile_cont(x, 0.5)``."""
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
    """Return the place of the bracket that closes the one at ``opening``; the last one if none does."""
    depth = 0
    for place in range(opening, len(plain)):
        depth += (plain[place] == "(") - (plain[place] == ")")
        if not depth:
            return place
    return len(plain) - 1
