"""docs/reference/metrics.md: every family of metrics in the registry, by topic, and every alert rule."""

import re
from collections.abc import Iterable, Mapping, Sequence

from gateway.watching import Family
from tools.documentation.tables import marked
from tools.monitoring.alert import Alert

_HEAD = """# Metrics and alert rules

What each metric of `GET /metrics` counts, in Prometheus' text format, and [when each alert rule fires](#alert-rules).
[Monitoring](../monitoring.md#monitoring) says how to scrape it; begin there.

- **Entries**: the type, the labels, and what it counts.
- **Types**: a *counter* only grows, so look at its rate; a *gauge* is a value of now; a *histogram* counts by
  buckets, which `/metrics` names.
- **Several workers**: any of them returns the sums of all. Gauges that are not sums say so: *least* or *most* of all
  workers.
- **No series yet**: a counter or histogram begins with its first event. A gauge of something that is not configured is
  absent.
- **Names**: models and deployments that clients name themselves are `adhoc`, or the pattern that
  covers them. Only counters have the label `client`: the
  first 1,000 clients have series of their own, later ones are `(others)`, calls without a key `anonymous`.
- **Do not compare providers by these histograms.** A loser that was cancelled before its first token has no time to
  first token (TTFT), so they look better than the truth. The leaderboard and [SQL](../sql.md) correct for it.
"""
# Topics of metrics, by prefixes of their names after ``holeshot_``. The longest matching prefix decides.
_TOPICS: Mapping[str, Sequence[str]] = {
    "Calls": ("calls_", "ttft_", "decode_", "overhead_", "tokens_", "cost_", "takeovers_", "win_on_", "would_"),
    "Attempts and deployments": (
        *("attempt", "in_flight_", "gap_", "breaker_", "cooling_", "deployment_", "headroom_", "extra_"),
        *("refused_launches_", "kept_rivals_", "usage_far_off_"),
    ),
    "Clients": ("client_",),
    "Limits": ("model_", "limits_"),
    "Overload and queues": (
        "calls_limit",
        "calls_queued",
        "calls_in",
        "shed_",
        "queue_",
        "waiting_calls",
        "loop_",
        "token_batch",
    ),
    "Refusals and keys": ("refusals_", "delayed_", "undelayed_", "guessing_", "waiting_refusals", "keys_"),
    "Ledger": ("ledger_", "clickhouse_"),
    "Redis": ("redis_",),
    "Alerts, targets and probes": ("alert", "target_", "probes_"),
    "Connections from clients": ("connections",),
}
_RULES = """## Alert rules

For Prometheus, with their expressions in
[holeshot.rules.yml](../../config/monitoring/holeshot.rules.yml). `page`: look now; `ticket`: look today, as in
[the gateway's own alerts](../monitoring.md#alerts-and-targets). Each fires when it has held for the time beside it.
"""
_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
_OTHERS = "The process"
# How a text says for people who read only it what the type says here.
_MERGED = re.compile(
    r"[;.] (?:[Tt]he )?(?:longest|oldest|least|most) (?:of all workers|that a worker (?:knows of|sees))\b"
)
_MERGES = {"sum": "", "min": ", least", "max": ", most"}


def page(families: Iterable[Family], alerts: Iterable[Alert]) -> str:
    """Return the text of docs/reference/metrics.md."""
    listed = sorted(families, key=lambda family: family.name)
    by_topic: dict[str, list[str]] = {topic: [] for topic in (*_TOPICS, _OTHERS)}
    for family in listed:
        by_topic[topic_of(family.name)] += _entry(family)
    lines = [line for topic, entries in by_topic.items() for line in (f"## {topic}", "", *entries)]
    return "\n".join([_HEAD, *lines, *rules(alerts)])


def rules(alerts: Iterable[Alert]) -> list[str]:
    """Return the lines about the alert rules."""
    return [_RULES, *(line for alert in alerts for line in _rule(alert))]


def topic_of(name: str) -> str:
    """Return the topic (heading) of a metric."""
    bare = name.removeprefix("holeshot_")
    fitting = [(len(begin), topic) for topic, begins in _TOPICS.items() for begin in begins if bare.startswith(begin)]
    return max(fitting, default=(0, _OTHERS))[1]


def _entry(family: Family) -> list[str]:
    facts = [family.kind + _MERGES[family.merge]]
    facts += [f"by {', '.join(f'`{label}`' for label in family.labels)}"] if family.labels else []
    return [f"**`{family.name}`** ({'; '.join(facts)})", f": {_MERGED.sub('', family.documentation)}", ""]


def _rule(alert: Alert) -> list[str]:
    lasts = "" if alert.lasting.startswith("0") else f"; for {alert.lasting}"
    summary = _LABEL.sub(lambda match: match[1].upper(), alert.summary)
    return [
        f"**{alert.name}** ({alert.severity}{lasts})",
        f": {summary} *Do:* {marked(_LABEL.sub(lambda match: match[1].upper(), alert.description))}",
        "",
    ]
