"""The metrics page: the sums of all workers' series in Prometheus' text format 0.0.4."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import isnan
from operator import add

from gateway.watching.series import Family, Table

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SLICE = 32  # series processed without a pause, at most about 0.3 ms; then the event loop runs other tasks

MERGES: Mapping[str, Callable[[float, float], float]] = {"sum": add, "min": min, "max": max}

Sums = dict[str, dict[tuple[str, ...], Sequence[float]]]  # by family and label values


async def exposition(families: Iterable[Family], tables: Iterable[Table]) -> bytes:
    """Return the page, families in the given order. It never blocks the event loop for long."""
    by_name = {family.name: family for family in families}
    sums: Sums = {name: {} for name in by_name}
    for table in tables:
        await _add(sums, by_name, table)
    blocks: list[str] = []
    for family in by_name.values():
        blocks.append(f"# HELP {family.name} {_escaped(family.documentation)}\n# TYPE {family.name} {family.kind}\n")
        for number, (values, numbers) in enumerate(sums[family.name].items(), start=1):
            blocks.append(_lines(family, values, numbers))
            if number % SLICE == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0)
    return "".join(blocks).encode()


async def _add(sums: Sums, families: Mapping[str, Family], table: Table) -> None:
    for number, place in enumerate(table.places, start=1):
        family = families.get(place.family)
        if family is None or (family.kind == "gauge" and not table.alive):
            continue
        numbers = list(table.cells[place.first : place.first + family.width])
        if isnan(numbers[0]):  # a gauge of something that is no longer configured, or not known
            continue
        known = sums[family.name].get(place.values)
        merged = numbers if known is None else list(map(MERGES[family.merge], known, numbers))
        sums[family.name][place.values] = merged
        if number % SLICE == 0:
            await asyncio.sleep(0)


def _lines(family: Family, values: Sequence[str], numbers: Sequence[float]) -> str:
    name = family.name
    pairs = [f'{label}="{_escaped(value)}"' for label, value in zip(family.labels, values, strict=True)]
    labels = f"{{{','.join(pairs)}}}" if pairs else ""
    if family.kind != "histogram":
        return f"{name}{labels} {numbers[0]!r}\n"
    *buckets, total = numbers
    up_to = list(accumulate(buckets))
    inside = "".join(f"{pair}," for pair in pairs)
    bounds = (*(repr(float(bound)) for bound in family.bounds), "+Inf")
    lines = [f'{name}_bucket{{{inside}le="{le}"}} {count!r}\n' for le, count in zip(bounds, up_to, strict=True)]
    return f"{''.join(lines)}{name}_count{labels} {up_to[-1]!r}\n{name}_sum{labels} {total!r}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
