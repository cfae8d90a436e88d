"""The views of a month, and some of an hour and a day, read the sums of windows instead of rows."""

import re
from pathlib import Path
from typing import Any

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None
only_adds = True

VIEWS_FOLDER = Path(__file__).resolve().parents[1] / "views"
SPANS = {"1h": (5, 5), "24h": (5, 60), "30d": (1440, 1440)}  # minutes of the windows at the edge, and of those within
SECONDS = {"1h": 3600, "24h": 86400, "30d": 30 * 86400}

# Views in the order in which they are made: the file each is made of, and the time it is of. The others stay.
VIEWS: dict[str, tuple[str, str | None]] = {
    **{f"slo_{span}": ("slo_sums", span) for span in SPANS},
    **{f"race_value_{span}": ("race_value_sums", span) for span in ("24h", "30d")},
    "throughput_30d": ("throughput_sums", "30d"),
    "provider_errors_30d": ("provider_errors_sums", "30d"),
    "client_usage_30d": ("client_usage_sums", "30d"),
    **{f"gaps_{span}": ("gaps", span) for span in SPANS},
    **{f"cache_value_{span}": ("cache_value_sums", span) for span in SPANS},
    "cache_latency_24h": ("cache_latency", None),
    "speed_by_hour": ("speed", None),
    "speed_days": ("speed", None),
    "tag_values_30d": ("tag_values_sums", "30d"),
    "tag_differences": ("tag_differences", None),
    "load_5m": ("load_5m", None),
    "load_peaks": ("load_peaks", None),
}


def upgrade() -> None:
    for name in reversed(VIEWS):
        op.execute(f"drop view if exists {name}")
    for name in VIEWS:
        create(name)
    if op.get_bind().dialect.name == "postgresql":
        op.get_bind().exec_driver_sql(_samples(_LOOKED_UP, _COMPUTED))


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.get_bind().exec_driver_sql(_samples("", ""))
    for name in reversed(VIEWS):
        op.execute(f"drop view {name}")
    before = _revision("0004")
    for name in VIEWS:
        if name in before.VIEWS:
            before.create(name)


def _revision(name: str) -> Any:
    """Return the module of a revision."""
    script = op.get_context().script
    if script is None:
        raise RuntimeError("a revision of its own has no others to ask")
    return script.get_revision(name).module


# The bucket of a sample: computed it takes a tenth of the time. Postgres's least() takes no notice of nulls.
_LOOKED_UP = """    else (
      select bucket from buckets
      where from_ms <= coalesce(token_ms, censored_ms) * 1.0000000001  -- an edge belongs to the bucket above it
      order by from_ms desc
      limit 1
    )
"""
_COMPUTED = """    when coalesce(token_ms, censored_ms) >= 10 then
      cast(least(111, floor(8 * ln(coalesce(token_ms, censored_ms) / 10) / ln(2) + 1e-9)) as smallint)
"""

_OF_HOURS = {"minutes": "60", "since": "{the last week}", "slot": "{hour}", "named": "hour"}
_OF_DAYS = {"minutes": "1440", "since": "{the last month}", "slot": "r.window_start", "named": "window_start"}


def _samples(there: str, instead: str) -> str:
    """Return what makes the view again that is there, with ``instead`` in the place of what is ``there``."""
    definition = (VIEWS_FOLDER / "0004" / "postgresql" / "samples.sql").read_text(encoding="utf-8")
    return definition.replace("create view", "create or replace view").replace(there, instead)


def create(name: str) -> None:
    file, span = VIEWS[name]
    path = VIEWS_FOLDER / revision / f"{file}.sql"
    definition = (path if path.exists() else _revision("0004").file_of("0004", file)).read_text(encoding="utf-8")
    of_span = ("", "") if span is None else (windows(span), _first(span))
    op.get_bind().exec_driver_sql(defined(definition, name, *of_span))


def defined(definition: str, name: str, of_windows: str, first: str) -> str:
    """Return the definition of a view of these windows, the first of which begins at ``first``."""
    is_postgres = op.get_bind().dialect.name == "postgresql"
    before = _revision("0004")
    tag_sums = ", ".join(f"{expression} as {column}" for column, expression in _revision("0006").TAG_SUMS.items())
    race_value = before.file_of("0004", "race_value").read_text(encoding="utf-8")
    hour = "extract(hour from r.window_start at time zone 'UTC')" if is_postgres else "strftime('%H', r.window_start)"
    words = {
        "view": name,
        "day": "cast(r.window_start at time zone 'UTC' as date)" if is_postgres else "date(r.window_start)",
        "greatest": "greatest" if is_postgres else "max",
        "decimal": "numeric" if is_postgres else "real",
        "ago 24 hours": _instant("{now} / 300 * 300 - 86400"),
        **(_OF_HOURS if name == "speed_by_hour" else _OF_DAYS),
        "hour": f"cast({hour} as integer)",
        "the last week": _instant("{now} / 3600 * 3600 - 604800"),
        "the last month": _instant("{now} / 86400 * 86400 - 2592000"),
        "wide": _WIDE[is_postgres],
        "each is wide": _IS_WIDE[is_postgres],
        "wide tags": "select r.tag from rollup_wide_tags as r where {windows}",
        "windows": of_windows,
        "first": first,
        "each tag": "jsonb_each_text(f.tags)" if is_postgres else "json_each(f.tags)",
        "tag sums": tag_sums,
        # The estimate itself is that of the view over rows.
        "estimate": _between(race_value, "\nratio as (", "\n-- First tokens"),
        "quantiles": _between(race_value, "\nranked as (", "\ncounts as ("),
        "figures": _between(race_value, "\nselect\n  model,\n  calls,", None),
    }
    definition = re.sub(r"\{variance (\w+) (\w+)\}", lambda found: _variance(found[1], found[2]), definition)
    definition = re.sub(r"\{quantile (\w+) ([\d.]+)\}", lambda found: _quantile(found[1], found[2]), definition)
    for word, text in words.items():
        definition = definition.replace(f"{{{word}}}", text)
    return definition


def _between(text: str, first: str, last: str | None) -> str:
    start = text.index(first) + 1
    return text[start:] if last is None else text[start : text.index(last, start)].rstrip()


def _quantile(metric: str, q: str) -> str:
    """Return the value below which the share ``q`` of a metric lies: inside its bucket, between its edges."""
    is_there = f"o.metric = '{metric}' and o.so_far >= {q} * o.total and o.so_far - o.n < {q} * o.total"
    inside = f"b.from_ms + (b.to_ms - b.from_ms) * ({q} * o.total - (o.so_far - o.n)) / o.n"
    return f"max(case when {is_there} then {inside} end)"


# Tags that have too many values to be added up, unless all are read from rows. If there are none, neither database
# reads a single call: SQLite because this comes first, Postgres because of exists(). Postgres reads none either when
# only a tag that is not among them is asked for (wide.tag); the array spares it a join for each call.
_WIDE = {
    True: "(select distinct tags.tag from ({wide tags}) as tags where '' not in ({wide tags}))",
    False: "(select 1 where exists ({wide tags}) and '' not in ({wide tags}))",
}
_IS_WIDE = {
    True: "each.key = wide.tag and exists ({wide tags}) and each.key = any (array({wide tags}))",
    False: "each.key in ({wide tags})",
}


def _variance(figure: str, number: str) -> str:
    """Return the sample variance out of sums; what is no more than their rounding is 0."""
    squares = f"({figure}_squared - {figure} * {figure} / nullif({number}, 0))"
    return (
        f"case when {number} > 1 then case when {squares} > 1e-12 * {figure}_squared "
        f"then {squares} / ({number} - 1) else 0.0 end end"
    )


def _instant(epoch: str) -> str:
    """Return what makes an instant of seconds since 1970; ``{now}`` are those of now."""
    if op.get_bind().dialect.name == "postgresql":
        seconds = epoch.format(now="cast(floor(extract(epoch from now())) as bigint)")
        return f"to_timestamp({seconds})"
    seconds = epoch.format(now="cast(strftime('%s', 'now') as integer)")
    return f"datetime({seconds}, 'unixepoch')"


def _first(span: str) -> str:
    """Return when the first window of the last hour, day or month begins."""
    since = f"({{now}} - {SECONDS[span]})"
    return _instant(f"{since} - {since} % {SPANS[span][0] * 60}")


def windows(span: str) -> str:
    """Return what is true of the windows (r) of the last hour, day or month: small ones until the first large one."""
    small, large = SPANS[span]
    since = f"({{now}} - {SECONDS[span]})"
    first = _first(span)
    if small == large:
        return f"r.minutes = {small} and r.window_start >= {first}"
    turn = _instant(f"{since} - {since} % {large * 60} + {large * 60}")
    return (
        f"((r.minutes = {large} and r.window_start >= {turn}) "
        f"or (r.minutes = {small} and r.window_start >= {first} and r.window_start < {turn}))"
    )
