"""docs/metrics.md: every family of metrics, as the registry has it."""

from collections.abc import Iterable, Sequence

from gateway.watching.series import Family

_HEAD = """# Metrics

`GET /metrics` returns them in Prometheus' text format, with the key of an admin or a viewer if keys are required.
Dashboards, alert rules and how to scrape: [monitoring.md](monitoring.md). This page is made from the code by
`python -m monitoring`; a test holds it.

- With several workers any of them returns the sums of all. Gauges that are not sums say so: *least* or *most* of all
  workers.
- A series begins with its first event, where it is not a gauge; a gauge of something that is not configured is absent.
- Names of models and deployments come from the configuration; all that clients name themselves are `adhoc`. `client`
  is a label of counters only; the first 1,000 clients have series of their own, later ones are `(others)`, calls
  without a key `anonymous`.
- A loser that was cut before its first token has no TTFT: histograms of attempts are of those that had one, and look
  better than the truth. What is published of a provider comes from the ledger, which corrects for it
  ([sql.md](sql.md)).
"""
_UNITS = (
    ("_tokens_per_second", "tokens/s"),
    ("_tokens_total", "tokens"),
    ("_seconds_total", "seconds"),
    ("_seconds", "seconds"),
    ("_s", "seconds"),
    ("_usd_total", "US dollars"),
    ("_usd", "US dollars"),
    ("_bytes", "bytes"),
    ("_ratio", "ratio"),
)
_MERGES = {"sum": "", "min": ", least", "max": ", most"}


def page(families: Iterable[Family]) -> str:
    """Return the text of docs/metrics.md."""
    listed = sorted(families, key=lambda family: family.name)
    rows = [_row(family) for family in listed]
    buckets = [f"- `{family.name}`: {_bounds(family.bounds)}" for family in listed if family.bounds]
    table = ["| name | type | labels | unit | meaning |", "|---|---|---|---|---|", *rows]
    return "\n".join([_HEAD, *table, "", "## Buckets", "", "Upper bounds, inclusive:", "", *buckets, ""])


def unit_of(family: Family) -> str:
    """Return the unit, which the name ends with; without one it counts."""
    return next((unit for end, unit in _UNITS if family.name.endswith(end)), "count")


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    kind = family.kind + _MERGES[family.merge]
    return f"| `{family.name}` | {kind} | {labels} | {unit_of(family)} | {family.documentation} |"


def _bounds(bounds: Sequence[float]) -> str:
    return ", ".join(f"{bound:.4g}" for bound in bounds)
