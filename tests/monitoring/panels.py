"""The queries of the committed dashboards, as Grafana would send them."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

EMPTY = "Empty when healthy:"  # begins a part of the description of a panel whose queries may have no result
RATE_INTERVAL = "15s"
_VARIABLE = re.compile(r"label_values\((.*), (\w+)\)")


class Asked(msgspec.Struct, frozen=True):
    """One query of one panel."""

    board: str
    panel: str
    letter: str
    expr: str
    is_instant: bool
    may_be_empty: bool


class Variable(msgspec.Struct, frozen=True):
    """A choice at the top of a board: of the values that ``label`` has in the series that ``series`` selects."""

    board: str
    name: str
    series: str
    label: str
    all_value: str


def queries(file: Path) -> Iterator[Asked]:
    """Yield the queries of a dashboard."""
    for panel in panels(file):
        for target in panel["targets"]:
            yield Asked(
                file.stem,
                panel["title"],
                target["refId"],
                target["expr"],
                bool(target.get("instant")),
                EMPTY in panel["description"],
            )


def variables(file: Path) -> Iterator[Variable]:
    """Yield the variables of a dashboard that are asked of Prometheus, in their order."""
    board = json.loads(file.read_text(encoding="utf-8"))
    for each in board["templating"]["list"]:
        if each["type"] == "query":
            found = _VARIABLE.fullmatch(each["query"])
            assert found is not None, each
            yield Variable(file.stem, each["name"], found[1], found[2], each["allValue"])


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return an expression with its variables filled in.

    Raises:
        KeyError: it uses one that the dashboard does not have.

    """
    known = {"__rate_interval": RATE_INTERVAL, **values}
    return re.sub(r"\$(\w+)", lambda found: known[found[1]], text)


def panels(file: Path) -> Iterator[Any]:
    """Yield the panels of a dashboard, as Grafana's objects."""
    for panel in json.loads(file.read_text(encoding="utf-8"))["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", ())
        else:
            yield panel
