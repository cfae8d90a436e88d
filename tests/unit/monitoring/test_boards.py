"""Dashboards and rules ask for metrics and labels that exist. ``tests/monitoring`` runs the queries."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from gateway.watching import Family
from tests.monitoring.panels import filled, panels, queries, variables
from tools.monitoring.__main__ import FOLDER, ROOT, texts
from tools.monitoring.alerts import ALERTS
from tools.monitoring.registry import families

_METRIC = re.compile(r"\b((?:holeshot|process)_\w+)(?:\{([^}]*)\})?")
_OF_PROMETHEUS = frozenset({"job", "instance"})
BOARDS = sorted((ROOT / FOLDER / "dashboards").glob("*.json"))


@cache
def known() -> Mapping[str, Family]:
    return {name: family for family in asyncio.run(families()) for name in names(family)}


def names(family: Family) -> list[str]:
    return [family.name + end for end in (("_bucket", "_count", "_sum") if family.bounds else ("",))]


def expressions() -> Iterator[tuple[str, str]]:
    for file in BOARDS:
        for variable in variables(file):
            yield f"{file.stem}: ${variable.name}", variable.series
        for query in queries(file):
            yield f"{file.stem}: {query.panel}", query.expr
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
    assert stale == [], "run python -m tools.monitoring"


def test_nobody_names_clients_but_counters() -> None:
    assert {family.kind for family in known().values() if "client" in family.labels} == {"counter"}
    assert [family.name for family in known().values() if family.kind == "gauge" and "client" in family.labels] == []


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_a_dashboard_asks_the_chosen_prometheus_with_its_own_variables(file: Path) -> None:
    board = json.loads(file.read_text(encoding="utf-8"))
    assert board["uid"] == f"holeshot-{file.stem}"
    assert board["editable"] is False, "it would be lost with the container: edit the file"
    known = dict.fromkeys((each.name for each in variables(file)), "x")
    assert known
    for query in queries(file):
        filled(query.expr, known)
    for panel in panels(file):
        assert panel["description"], panel["title"]
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_panels_have_titles_of_their_own_and_fill_their_rows(file: Path) -> None:
    titles = [panel["title"] for panel in panels(file)]
    assert titles
    assert len(set(titles)) == len(titles)
    widths: dict[int, int] = {}
    for place in (panel["gridPos"] for panel in panels(file)):
        widths[place["y"]] = widths.get(place["y"], 0) + place["w"]
    assert set(widths.values()) == {24}


def test_alerts_have_names_of_their_own() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
