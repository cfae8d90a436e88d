"""Faults planted into the rows of a run, one at a time: a comparison that misses one says nothing of that column."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import StatisticsError
from typing import Any, TypeAlias

import msgspec

from benchmarks.truth.columns import RULES
from benchmarks.truth.facts import Ledger, Row
from benchmarks.truth.rules import Figure
from gateway.ledger.tables import attempts, calls

TABLES = {"calls": calls, "attempts": attempts}
BENT = 1.2
# Figures that are only held to what is possible, for what they measure cannot be seen from outside the gateway.
COARSE = {
    "calls.overhead_ms": 100.0,
    "attempts.connect_ms": 1000.0,
    "attempts.predicted_ms": 1e4,
    "calls.held_gain_ms": 1e4,
}
# What of the views is compared, and bent.
FIGURES = {
    "race_value": (
        *("n", "n_overtaken", "saved_per_call_ms", "saved_per_call_low_ms", "saved_per_call_high_ms"),
        *("ttft_mean_ms", "alone_mean_ms", "ttft_p50_ms", "ttft_p95_ms", "alone_p50_ms", "alone_p95_ms"),
        *("abandoned_cost_low_usd", "abandoned_cost_high_usd"),
    ),
    "leaderboard": ("ttft_p50_ms", "ttft_p95_ms"),
    "slo": ("ttft_ok_share", "n_gave_up"),
    "provider_errors": ("n",),
    "client_usage": ("cost_usd", "cost_low_usd", "cost_high_usd", "duplicate_cost_usd", "prompt_tokens", "n_failed"),
    "tag_values": ("n", "n_failed", "ttft_mean_ms", "cost_mean_usd"),
    "cache_value": ("cached_tokens", "cache_saved_usd"),
    "throughput": ("n",),
    "limits": ("rpm", "tpm", "usd_per_day", "usd_per_month", "model"),
}


Compared: TypeAlias = Callable[[Ledger, str | None], Sequence[Figure]]  # of one column alone, or all there is


class Planted(msgspec.Struct, frozen=True):
    """One fault, and whether any figure did not hold any more because of it."""

    name: str
    is_noticed: bool


def bendable() -> list[str]:
    """Return what can be bent: ``calls.ttft_ms``, ``race_value.n``, …"""
    return [
        *(f"{table}.{column}" for table, rules in RULES.items() for column in rules),
        *(f"{view}.{column}" for view, names in FIGURES.items() for column in names),
    ]


def plant(ledger: Ledger, compared: Compared) -> Iterator[Planted]:
    """Plant each fault into a copy of ``ledger``, and see whether one more figure is off than before."""
    before = _off(compared, ledger)
    for name in bendable():
        table, column = name.split(".")
        ways = {"bent": _bent_by(COARSE.get(name, BENT))}
        if table not in TABLES or TABLES[table].c[column].nullable:
            ways["missing"] = _missing
        for way, change in ways.items():
            changed = _changed(ledger, name, change)
            off = (_off(compared, changed, name) if table in TABLES else set()) - before
            yield Planted(f"{name} {way}", bool(off or _off(compared, changed) - before))


def _off(compared: Compared, ledger: Ledger, column: str | None = None) -> set[str]:
    try:
        return {figure.name.partition(",")[0] for figure in compared(ledger, column) if not figure.holds}
    except (ArithmeticError, KeyError, StatisticsError, TypeError):  # it would end a run with a traceback
        return {"everything"}


def bend(ledger: Ledger, name: str) -> Ledger:
    """Return the ledger with one column bent."""
    return _changed(ledger, name, _bent_by(COARSE.get(name, BENT)))


def _changed(ledger: Ledger, name: str, change: Callable[[Any], Any]) -> Ledger:
    table, column = name.split(".")

    def rows(of: Sequence[Row]) -> list[Row]:
        return [{**row, column: change(row[column])} for row in of]

    if table == "calls":
        return msgspec.structs.replace(ledger, calls=rows(ledger.calls))
    if table == "attempts":
        return msgspec.structs.replace(ledger, attempts=rows(ledger.attempts))
    return msgspec.structs.replace(ledger, views={**ledger.views, table: rows(ledger.views[table])})


def _missing(value: Any) -> None:
    del value


def _bent_by(factor: float) -> Callable[[Any], Any]:
    ways: Mapping[type, Callable[[Any], Any]] = {
        type(None): lambda value: value,
        bool: lambda value: not value,
        int: lambda value: value + max(1, round(value * (factor - 1))),
        float: lambda value: value * factor,
        str: lambda value: value + "~",
        datetime: lambda value: value + timedelta(minutes=1),
        list: lambda value: [*value, "~"],
        dict: lambda value: {**value, "~": 1},
    }
    return lambda value: ways[type(value)](value)
