"""The parts of an alert rule: an expression, how long it must hold, and examples for promtool."""

from collections.abc import Mapping
from typing import Literal

import msgspec


class Example(msgspec.Struct, frozen=True):
    """Series by name and labels, one value a minute in promtool's notation, and when the rule is evaluated."""

    series: Mapping[str, str]
    at: str = "30m"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. With the series of ``fires`` there must be exactly one alert, with ``labels``; with ``quiet`` none."""

    name: str
    expr: str
    lasting: str  # how long the expression must hold: "5m"
    severity: Literal["page", "ticket"]  # look now, or today: as the gateway's own alerts
    summary: str  # may contain {{ $labels.x }}
    description: str  # what to do
    labels: Mapping[str, str]  # without the severity
    fires: Example
    quiet: Example
