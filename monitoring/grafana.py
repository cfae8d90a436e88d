"""Boards as Grafana's JSON, built with grafana-foundation-sdk (requirements/monitoring.lock)."""

from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueTextMode, DataSourceRef, StackingMode, VizOrientation
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from monitoring.board import Board, Kind, Panel, Query, Variable

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
HEIGHT, STAT_HEIGHT = 8, 4


def as_json(board: Board) -> str:
    """Return a board as the text of its JSON file."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["holeshot"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in board.variables:
        made.with_variable(_variable(variable))
    for row in board.rows:
        made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made.with_panel(_panel(panel))
    return f"{JSONEncoder(indent=2, sort_keys=True).encode(made.build())}\n"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(SOURCE)
        .query(f"label_values({variable.metric}, {variable.name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".+")
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> Any:
    made = _of_kind(panel)
    made.title(panel.title).description(panel.text).unit(panel.unit).datasource(SOURCE).span(panel.width)
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        made.with_target(_target(query, letter, instant=panel.is_instant))
    return made


def _of_kind(panel: Panel) -> Any:
    if panel.is_instant:
        latest = common.ReduceDataOptions().calcs(["lastNotNull"])
        shown = stat.Panel().height(STAT_HEIGHT).orientation(VizOrientation.AUTO).reduce_options(latest)
        if panel.kind is Kind.NAMES:
            shown.text_mode(BigValueTextMode.NAME)
        if panel.red_above is not None:
            steps = [Threshold(color="green"), Threshold(value=panel.red_above, color="red")]
            shown.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        return shown
    if panel.kind is Kind.STATES:
        return statetimeline.Panel().height(HEIGHT)
    lines = timeseries.Panel().height(HEIGHT).fill_opacity(10)
    if panel.stacked:
        lines.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return lines


def _target(query: Query, letter: str, *, instant: bool) -> prometheus.Dataquery:
    made = prometheus.Dataquery().datasource(SOURCE).expr(query.expr).legend_format(query.legend).ref_id(letter)
    return made.instant() if instant else made.range()
