"""Every column of ``calls`` and ``attempts`` held against what clients and providers saw."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from benchmarks.truth.attempts import ATTEMPTS
from benchmarks.truth.calls import CALLS
from benchmarks.truth.facts import Facts
from benchmarks.truth.figure import Figure
from benchmarks.truth.rules import Rule

RULES: Mapping[str, Mapping[str, Sequence[Rule]]] = {"calls": CALLS, "attempts": ATTEMPTS}


def columns(facts: Facts, only: str | None = None) -> Iterator[Figure]:
    """Compare all columns, or one: ``calls.ttft_ms``."""
    for table, rows in (("calls", facts.calls), ("attempts", facts.attempts)):
        for column, rules in RULES[table].items():
            for rule in rules if only in {None, f"{table}.{column}"} else ():
                for figure in rule(column, rows):
                    yield msgspec.structs.replace(figure, name=f"{table}.{figure.name}")
