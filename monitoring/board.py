"""The parts of dashboards: boards, rows, panels and queries. Plain data, which ``grafana`` writes as JSON."""

from collections.abc import Iterator
from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """How a panel shows its queries."""

    TIMES = "timeseries"
    STAT = "stat"  # the latest value
    NAMES = "stat of names"  # the legends, where the value means nothing
    STATES = "state-timeline"


class Query(msgspec.Struct, frozen=True):
    """One PromQL expression, and the legend of its series."""

    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel. ``unit`` is one of Grafana's; ``red_above`` colours a stat.

    ``empty_when_healthy`` says why its queries may have no result: it is part of the description.
    """

    title: str
    queries: tuple[Query, ...]
    description: str
    unit: str = "short"
    kind: Kind = Kind.TIMES
    width: int = 8  # of 24
    stacked: bool = False
    red_above: float | None = None
    empty_when_healthy: str | None = None

    @property
    def is_instant(self) -> bool:
        """Whether the panel shows the latest values only."""
        return self.kind in {Kind.STAT, Kind.NAMES}

    @property
    def text(self) -> str:
        """The description as Grafana shows it."""
        return f"{self.description} {EMPTY} {self.empty_when_healthy}" if self.empty_when_healthy else self.description


class Row(msgspec.Struct, frozen=True):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


class Variable(msgspec.Struct, frozen=True):
    """A choice at the top of a board: the values of a label, of which several or all can be chosen."""

    name: str
    label: str
    metric: str


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One dashboard."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]

    def panels(self) -> Iterator[Panel]:
        """Yield the panels of all rows."""
        for row in self.rows:
            yield from row.panels


EMPTY = "Empty when healthy:"
HERE = 'job=~"$job",instance=~"$instance"'  # in each query: the processes chosen at the top of the board
JOB = Variable("job", "job", "holeshot_workers")
INSTANCE = Variable("instance", "instance", 'holeshot_workers{job=~"$job"}')


FAILED = 'status=~"5..|424|429|broken"'  # errors that are not the client's fault, as counted everywhere


def rate(metric: str, labels: str = "", *, by: str = "") -> str:
    """Return the rate of a counter, summed ``by`` labels."""
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({metric}{selected(labels)}[$__rate_interval]))"


def gauge(metric: str, labels: str = "", *, by: str = "", how: str = "sum") -> str:
    """Return a gauge over all processes, aggregated by ``how`` (sum, min, max), ``by`` labels."""
    together = f"{how} by ({by})" if by else how
    return f"{together} ({metric}{selected(labels)})"


def quantile(share: float, metric: str, labels: str = "", *, by: str) -> str:
    """Return a quantile of a histogram, ``by`` labels."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', labels, by=f'{by}, le')})"


def selected(labels: str) -> str:
    """Return the label selector of the chosen processes, with further ``labels``."""
    return f"{{{HERE},{labels}}}" if labels else f"{{{HERE}}}"
