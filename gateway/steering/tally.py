"""Counts as the board keeps them: flat fields that add up, and the tally of a deployment read from them.

A slot is a mapping of fields to numbers, in memory as in a Redis hash, so that replicas merge by adding:
``deployment|class|e17`` first tokens by bucket of the attempt's TTFT, ``deployment|class|c17`` cut attempts by bucket
of their age, ``deployment|n``, ``|err`` (attempts ended with a first token or an error), ``|tok``, ``|sec`` (decode),
``|won``, and for the whole model ``req``, ``out`` (calls answered and their output tokens).
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from gateway.steering.histogram import bucket

Counts: TypeAlias = dict[str, float]
Sparse: TypeAlias = dict[int, float]  # bucket -> count

REQUESTS, OUTPUT_TOKENS = "req", "out"


def event_field(deployment: str, prompt_class: int, ttft_s: float) -> str:
    """Name the count of first tokens like this one."""
    return f"{deployment}|{prompt_class}|e{bucket(ttft_s)}"


def censored_field(deployment: str, prompt_class: int, age_s: float) -> str:
    """Name the count of attempts cut at such an age."""
    return f"{deployment}|{prompt_class}|c{bucket(age_s)}"


def add_counts(into: Counts, more: Mapping[str, float], weight: float = 1.0) -> None:
    """Add ``weight`` times ``more`` to ``into``."""
    for field, amount in more.items():
        into[field] = into.get(field, 0.0) + weight * amount


class Tally(msgspec.Struct):
    """What is known of one deployment: counts, possibly weighted. Histograms are by prompt class."""

    n: float = 0.0
    err: float = 0.0
    tok: float = 0.0
    sec: float = 0.0
    won: float = 0.0
    events: dict[int, Sparse] = {}
    censored: dict[int, Sparse] = {}


def read_tallies(counts: Mapping[str, float]) -> dict[str, Tally]:
    """Sort the fields of one model by deployment. Fields unknown to this version are passed over."""
    tallies: dict[str, Tally] = {}
    for field, amount in counts.items():
        owner, _, name = field.rpartition("|")
        if not owner:
            continue
        if name in _TOTALS:
            tally = _of(tallies, owner)
            setattr(tally, name, getattr(tally, name) + amount)
            continue
        deployment, _, prompt_class = owner.rpartition("|")
        if name[:1] in _HISTOGRAMS and name[1:].isdecimal() and prompt_class.isdecimal():
            tally = _of(tallies, deployment)
            histograms = tally.events if name[0] == "e" else tally.censored
            histograms.setdefault(int(prompt_class), {})[int(name[1:])] = amount
    return tallies


def merged(histograms: Iterable[Sparse]) -> Sparse:
    """Return the sum of histograms."""
    total: Sparse = {}
    for histogram in histograms:
        for index, amount in histogram.items():
            total[index] = total.get(index, 0.0) + amount
    return total


def _of(tallies: dict[str, Tally], deployment: str) -> Tally:
    tally = tallies.get(deployment)
    if tally is None:
        tally = tallies[deployment] = Tally()
    return tally


_TOTALS = frozenset({"n", "err", "tok", "sec", "won"})
_HISTOGRAMS = frozenset({"e", "c"})
