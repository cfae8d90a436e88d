"""What is generated is current, and asks for metrics and labels that exist. ``tests/monitoring`` runs the queries."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from gateway.watching.series import Family
from monitoring.__main__ import FOLDER, ROOT, texts
from monitoring.alerts import ALERTS
from monitoring.board import Board
from monitoring.boards import BOARDS
from monitoring.registry import families
from tests.monitoring.panels import filled, queries, variables

_METRIC = re.compile(r"\b((?:holeshot|process)_\w+)(?:\{([^}]*)\})?")
_OF_PROMETHEUS = frozenset({"job", "instance"})


@cache
def known() -> Mapping[str, Family]:
    return {name: family for family in asyncio.run(families()) for name in names(family)}


def names(family: Family) -> list[str]:
    return [family.name + end for end in (("_bucket", "_count", "_sum") if family.bounds else ("",))]


def expressions() -> Iterator[tuple[str, str]]:
    for board in BOARDS.values():
        for variable in board.variables:
            yield f"{board.uid}: ${variable.name}", variable.metric
        for panel in board.panels():
            for query in panel.queries:
                yield f"{board.uid}: {panel.title}", query.expr
    for alert in ALERTS:
        yield alert.name, alert.expr
        for example in (alert.fires, alert.quiet):
            for series in example.series:
                yield f"{alert.name}'s example", series


@pytest.mark.parametrize(("where", "expr"), list(expressions()))
def test_what_is_asked_for_is_a_metric_with_these_labels(where: str, expr: str) -> None:
    for name, selector in _METRIC.findall(expr):
        assert name in known(), f"{where} asks for {name}"
        labels = set(re.findall(r"(\w+)\s*[=!]~?", selector or ""))
        assert labels <= {*known()[name].labels, *_OF_PROMETHEUS}, where


def committed(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_list_of_metrics_and_the_alert_rules_are_current() -> None:
    stale = [path for path, text in texts().items() if committed(path) != text]
    assert stale == [], "run python -m monitoring (requirements/monitoring.lock)"


@pytest.mark.parametrize(("name", "board"), list(BOARDS.items()))
def test_a_dashboard_has_the_panels_and_queries_of_its_source(name: str, board: Board) -> None:
    file = ROOT / FOLDER / "dashboards" / f"{name}.json"
    made: Any = json.loads(file.read_text(encoding="utf-8"))
    assert (made["uid"], made["title"], made["description"]) == (board.uid, board.title, board.description)
    asked = [(each.panel, each.expr, each.is_instant, each.may_be_empty) for each in queries(file)]
    assert asked == [
        (panel.title, query.expr, panel.is_instant, panel.empty_when_healthy is not None)
        for panel in board.panels()
        for query in panel.queries
    ]
    assert [each.name for each in variables(file)] == [each.name for each in board.variables]
    for each in queries(file):
        filled(each.expr, {variable.name: "x" for variable in board.variables})


def test_nobody_names_clients_but_counters() -> None:
    assert {family.kind for family in known().values() if "client" in family.labels} == {"counter"}
    assert [family.name for family in known().values() if family.kind == "gauge" and "client" in family.labels] == []


def test_dashboards_and_panels_have_titles_of_their_own() -> None:
    assert len({board.uid for board in BOARDS.values()}) == len(BOARDS)
    for board in BOARDS.values():
        titles = [panel.title for panel in board.panels()]
        assert len(set(titles)) == len(titles)
        assert all(sum(panel.width for panel in row.panels) % 24 == 0 for row in board.rows)


def test_alerts_have_names_of_their_own() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
