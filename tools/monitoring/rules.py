"""Alert rules and their tests as Prometheus' YAML."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tools.monitoring.alert import Alert, Example

RULES_FILE = "holeshot.rules.yml"
_HEAD = "# Made by python -m tools.monitoring from tools/monitoring/alerts.py; a test holds it.\n"
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")


def rules(alerts: Iterable[Alert]) -> str:
    """Return the file of rules."""
    made = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.lasting,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.description},
        }
        for alert in alerts
    ]
    return _HEAD + _yaml({"groups": [{"name": "holeshot", "rules": made}]})


def rule_tests(alerts: Iterable[Alert]) -> str:
    """Return the file for ``promtool test rules``: for each rule a case in which it fires, and one in which not."""
    cases = []
    for alert in alerts:
        labels = {"severity": alert.severity, **alert.labels}
        annotations = {"summary": _filled(alert.summary, alert.labels), "description": alert.description}
        cases += [
            _case(alert, alert.fires, "fires", [{"exp_labels": labels, "exp_annotations": annotations}]),
            _case(alert, alert.quiet, "stays quiet", []),
        ]
    return _HEAD + _yaml({"rule_files": [RULES_FILE], "evaluation_interval": "1m", "tests": cases})


def _case(alert: Alert, example: Example, what: str, expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": f"{alert.name} {what}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in example.series.items()],
        "alert_rule_test": [{"eval_time": example.at, "alertname": alert.name, "exp_alerts": expected}],
    }


def _filled(text: str, labels: Mapping[str, str]) -> str:
    return _LABEL.sub(lambda found: labels[found[1]], text)


def _yaml(what: object) -> str:
    return yaml.safe_dump(what, sort_keys=False, width=120, allow_unicode=True)
