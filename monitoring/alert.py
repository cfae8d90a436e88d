"""The words that alert rules are made of: an expression, for how long it must hold, and examples for promtool."""

from collections.abc import Mapping
from typing import Literal

import msgspec


class Example(msgspec.Struct, frozen=True):
    """Series, in promtool's notation by name and labels, a value each minute; and the instant that is looked at."""

    series: Mapping[str, str]
    at: str = "30m"


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. ``fires`` must make exactly one alert with ``labels``, ``quiet`` none."""

    name: str
    expr: str
    lasting: str  # "5m"
    severity: Literal["critical", "warning", "info"]
    summary: str  # may hold {{ $labels.x }}
    description: str  # what to do
    labels: Mapping[str, str]  # beside the severity
    fires: Example
    quiet: Example
