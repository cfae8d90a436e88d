"""Sums of windows (rollups), kept by the database itself as rows arrive.

On Postgres a trigger adds up each batch that is stored, from every process. SQLite's triggers see one row at a time:
there they note which rows are new, and who has stored a batch says ``delete from rollup_pending``, which adds up all of
them. Either way a row that was there already counts once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None
only_adds = True

# Windows of five minutes, an hour and a day (UTC), and for how many days those of a kind are kept: those of a day as
# long as the operator says.
PERIODS = [(5, 2), (60, 8), (1440, None)]

# Values below 10 ms too, in the same eight buckets an octave: gaps between tokens, and speeds.
LOWEST, HIGHEST = -56, 111
FINER = [
    {"bucket": bucket, "from_ms": 10.0 * 2 ** (bucket / 8), "to_ms": 10.0 * 2 ** ((bucket + 1) / 8)}
    for bucket in range(LOWEST, 0)
]

# By column: what is summed. A sum of nothing known stays null.
BROKEN = "f.outcome in ('failed', 'timeout', 'stalled')"
ERROR = f"{BROKEN} and coalesce(f.error_kind, '') not in ('rate_limited', 'bad_request')"
STATED = (
    "f.outcome = 'won' and f.tokens_source = 'reported' and f.chars >= 40 and f.completion_tokens > 0 "
    "and coalesce(f.reasoning_tokens, 0) = 0"
)
TOLD = "f.outcome = 'won' and f.prompt_tokens is not null and f.cached_tokens is not null"
ATTEMPT_SUMS = {
    "n": "count(*)",
    "n_won": "count(*) filter (where f.outcome = 'won')",
    "n_first_token": "count(f.ttft_ms)",
    "n_censored": "count(*) filter (where f.ttft_ms is null and f.censored_at_ms is not null)",
    "n_errors": f"count(*) filter (where {ERROR})",
    "n_rate_limited": "count(*) filter (where f.error_kind = 'rate_limited')",
    "n_stated": f"count(*) filter (where {STATED})",
    "stated_tokens": f"coalesce(sum(f.completion_tokens) filter (where {STATED}), 0)",
    "stated_chars": f"coalesce(sum(f.chars) filter (where {STATED}), 0)",
    "n_told": f"count(*) filter (where {TOLD})",
    "told_prompt_tokens": f"coalesce(sum(f.prompt_tokens) filter (where {TOLD}), 0)",
    "told_cached_tokens": f"coalesce(sum(f.cached_tokens) filter (where {TOLD}), 0)",
}
ATTEMPT_MONEY = {
    "cost_usd": "sum(f.cost_usd)",
    "cost_low_usd": "sum(coalesce(f.cost_low_usd, f.cost_usd))",
    "cost_high_usd": "sum(coalesce(f.cost_high_usd, f.cost_usd))",
    "cached_tokens": "sum(f.cached_tokens) filter (where f.outcome = 'won')",
    "cache_write_tokens": "sum(f.cache_write_tokens) filter (where f.outcome = 'won')",
    "cache_saved_usd": "sum(f.cache_saved_usd) filter (where f.outcome = 'won')",
}
RACED = "f.endpoint in ('chat.completions', 'completions', 'messages', 'responses')"
# 424: the operator's fault; 429: nobody's, and no answer all the same.
FAILED = "f.error_kind is not null and (f.status_code in (424, 429) or f.status_code not between 400 and 499)"
OWN_FAULT = "(f.status_code between 400 and 498 and f.status_code not in (424, 429))"
GONE = "f.status_code = 499 and f.ttft_ms is null and f.total_ms"
JUDGED = f"{RACED} and not {OWN_FAULT} and ({FAILED} or ({GONE} >= 500) or f.ttft_ms is not null)"
COMPARED = "f.ttft_ms is not null and (f.alone_ms is not null or f.alone_age_ms is not null)"
CALL_SUMS = {
    "n": "count(*)",
    "n_failed": (
        "count(*) filter (where f.error_kind is not null and (f.status_code in (424, 429) or f.status_code >= 500))"
    ),
    "n_left": "count(*) filter (where f.status_code = 499)",
    "n_raced": "count(*) filter (where f.launched > 1)",
    "launched": "sum(f.launched)",
    "extra": "sum(case when f.launched > 1 then f.launched - 1 else 0 end)",
    "n_ttft": "count(f.ttft_ms)",
    "ttft_ms": "coalesce(sum(f.ttft_ms), 0)",
    "n_total": "count(f.total_ms) filter (where f.error_kind is null)",
    "total_ms": "coalesce(sum(f.total_ms) filter (where f.error_kind is null), 0)",
    "slo_n": f"count(*) filter (where {RACED})",
    "slo_failed": f"count(*) filter (where {RACED} and {FAILED})",
    "slo_gave_up": f"count(*) filter (where {RACED} and {GONE} >= 500)",
    "slo_left": f"count(*) filter (where {RACED} and {GONE} < 500)",
    "slo_judged": f"count(*) filter (where {JUDGED})",
    "slo_in_time": f"count(*) filter (where {RACED} and not {OWN_FAULT} and not ({FAILED}) and f.ttft_ms < 500)",
    "n_deadlines": "count(f.deadline_met)",
    "deadlines_met": "count(*) filter (where f.deadline_met)",
    "n_compared": f"count(*) filter (where {COMPARED})",
    "compared_ttft_ms": f"coalesce(sum(f.ttft_ms) filter (where {COMPARED}), 0)",
    "saved_seen_ms": f"coalesce(sum(f.alone_ms - f.ttft_ms) filter (where {COMPARED}), 0)",
    "n_sampled": f"count(*) filter (where {COMPARED} and f.alone_predicted_ms is not null)",
    "saved_predicted_ms": f"coalesce(sum(f.alone_predicted_ms - f.ttft_ms) filter (where {COMPARED}), 0)",
    "n_explored": f"count(*) filter (where {COMPARED} and f.alone_age_ms is not null and f.alone_predicted_ms is null)",
}
CALL_MONEY = {
    "prompt_tokens": "sum(f.prompt_tokens)",
    "completion_tokens": "sum(f.completion_tokens)",
    "cost_usd": "sum(f.cost_usd)",
    "cost_low_usd": "sum(f.cost_low_usd)",
    "cost_high_usd": "sum(f.cost_high_usd)",
    "duplicate_cost_usd": "sum(f.duplicate_cost_usd)",
    "abandoned_cost_low_usd": "sum(f.abandoned_cost_low_usd)",
    "abandoned_cost_high_usd": "sum(f.abandoned_cost_high_usd)",
    "cache_saved_usd": "sum(f.cache_saved_usd)",
}
# Of attempts, beside their call (c) and its winner (w): what racing cost, and what audits saw (views/race_value).
AUDIT = (
    "f.number = 1 and f.audited and f.is_overtaken and c.ttft_ms is not null and c.alone_age_ms is not null "
    "and f.outcome in ('superseded', 'lost', 'failed', 'timeout', 'stalled')"
)
DRAWN = f"{AUDIT} and c.alone_predicted_ms is not null"
EXPLORED = f"{AUDIT} and c.alone_predicted_ms is null"
SEEN = "(coalesce(f.token_ms, f.censored_at_ms, f.overtaken_at_ms) - f.overtaken_at_ms)"
PREDICTED = "(f.predicted_ms - f.overtaken_at_ms)"
BEATEN = "f.number = 1 and c.winner_attempt_id is not null and c.winner_attempt_id <> f.id"
BESIDE = "('race', 'hedge', 'explore', 'probe')"
ADDED = (
    f"f.id <> coalesce(c.winner_attempt_id, f.call_id) and (f.role in {BESIDE} or (f.outcome in ('lost', 'superseded') "
    f"and w.number > 1 and w.outcome = 'won' and w.role in {BESIDE}))"
)
# Of calls by each of their tags. Of what is compared there are squares too, of which a variance is made.
ANSWERED = "f.status_code = 200"
TAG_FIGURES = {
    "ttft": ("ttft_ms", "f.ttft_ms"),
    "total": ("total_ms", "f.total_ms"),
    "tokens": ("tokens", "cast(f.completion_tokens as double precision)"),
    "cost": ("cost_usd", "f.cost_usd"),
}
TAG_SUMS = {
    "n": CALL_SUMS["n"],
    "n_failed": CALL_SUMS["n_failed"],
    **{
        column: expression
        for short, (name, figure) in TAG_FIGURES.items()
        for column, expression in (
            (f"n_{short}", f"count({figure}) filter (where {ANSWERED})"),
            (name, f"coalesce(sum({figure}) filter (where {ANSWERED}), 0)"),
            (f"{name}_squared", f"coalesce(sum({figure} * {figure}) filter (where {ANSWERED}), 0)"),
        )
    },
}
# Of a day. A tag with more values is not added up, and with more pairs of tag and value no tag is: the views read the
# rows of these instead, so that a client's ids in a tag cost no more than they did.
MOST_VALUES = 1000
MOST_PAIRS = 10_000
LONGEST_PAIR = 256  # characters, as the gateway takes them: a key of an index has an end
FAST = "f.outcome = 'won' and f.id = c.winner_attempt_id and f.tokens_source = 'reported'"


def _known(total: str, condition: str) -> str:
    return f"coalesce(sum({total}) filter (where {condition}), 0)"


RACE_SUMS = {
    "slo_tps": f"count(f.decode_tps) filter (where {FAST} and c.{RACED[2:]})",
    "slo_fast": f"count(*) filter (where {FAST} and c.{RACED[2:]} and f.decode_tps > 45)",
    "overtaken": f"count(*) filter (where {BEATEN})",
    "rescued": (
        f"count(*) filter (where {BEATEN} and f.outcome in ('failed', 'timeout', 'stalled') "
        "and not coalesce(f.is_overtaken, false))"
    ),
    "n_drawn": f"count(*) filter (where {DRAWN})",
    "n_drawn_failed": (
        f"count(*) filter (where {AUDIT} and f.outcome in ('failed', 'timeout', 'stalled') and f.token_ms is null)"
    ),
    "seen": _known(SEEN, DRAWN),
    "predicted": _known(PREDICTED, AUDIT),
    "seen_seen": _known(f"{SEEN} * {SEEN}", DRAWN),
    "seen_predicted": _known(f"{SEEN} * {PREDICTED}", AUDIT),
    "predicted_predicted": _known(f"{PREDICTED} * {PREDICTED}", AUDIT),
    "seen_cubed": _known(f"{SEEN} * {SEEN} * {SEEN}", DRAWN),
    "seen_fourth": _known(f"{SEEN} * {SEEN} * {SEEN} * {SEEN}", DRAWN),
    "n_explored_seen": f"count(*) filter (where {EXPLORED})",
    "explored_seen": _known(SEEN, EXPLORED),
}
RACE_MONEY = {
    "race_cost_usd": "sum(f.cost_usd)",
    "race_cost_low_usd": "sum(coalesce(f.cost_low_usd, f.cost_usd))",
    "race_cost_high_usd": "sum(coalesce(f.cost_high_usd, f.cost_usd))",
    "race_duplicate_cost_usd": f"sum(f.cost_usd) filter (where {ADDED})",
    "race_duplicate_cost_low_usd": f"sum(coalesce(f.cost_low_usd, f.cost_usd)) filter (where {ADDED})",
    "race_duplicate_cost_high_usd": f"sum(coalesce(f.cost_high_usd, f.cost_usd)) filter (where {ADDED})",
    "audit_cost_usd": "sum(f.cost_usd) filter (where f.audited and f.is_overtaken)",
}


class Dialect:
    """How a database writes what the two do not write alike."""

    def __init__(self, name: str) -> None:
        self.is_postgres = name == "postgresql"

    @property
    def now(self) -> str:
        """Return seconds since 1970, of now."""
        return self.epoch("now()" if self.is_postgres else "'now'")

    def epoch(self, instant: str) -> str:
        """Return seconds since 1970, whole."""
        if self.is_postgres:
            return f"cast(floor(extract(epoch from {instant})) as bigint)"
        return f"cast(strftime('%s', {instant}) as integer)"

    def instant(self, epoch: str) -> str:
        """Return the instant of so many seconds since 1970."""
        return f"to_timestamp({epoch})" if self.is_postgres else f"datetime({epoch}, 'unixepoch')"

    def bucket(self, value: str) -> str:
        """Return the number of the bucket that a value is in; what is beyond either end is in the last one there."""
        if self.is_postgres:
            index = f"floor(8 * ln(greatest({value}, 0.01) / 10) / ln(2) + 1e-9)"
            return f"cast(greatest({LOWEST}, least({HIGHEST}, {index})) as smallint)"
        edge = f"{value} * 1.0000000001 order by from_ms desc limit 1"
        return f"coalesce((select bucket from buckets where from_ms <= {edge}), {LOWEST})"

    def tagged(self, fresh: str) -> str:
        """Return what yields calls (f) beside each of their tags (each), whose ``value`` is to be text."""
        each = "jsonb_each_text(f.tags)" if self.is_postgres else "json_each(f.tags)"
        return f"{fresh} cross join {each} as each where f.tags <> '{{}}' and each.value is not null"

    def pairs(self, json: str) -> str:
        """Return what yields the keys and values of a JSON object, to be joined."""
        return f"json_each_text({json})" if self.is_postgres else f"json_each({json})"


# How an attempt, and a client's share of a model, are found among the series. A model's races are its clients'.
Point = tuple[str, Sequence[str], str, str, str, str, str]  # window, key, metric, bucket, count, where from, condition
Plain = tuple[str, str, str]  # metric, value, condition
# Sums that later revisions add, or define otherwise: by table (calls, attempts), of calls by their tags (tags), and of
# attempts by their calls (races).
Added = Mapping[str, Mapping[str, str]]
NOTHING_MORE: Mapping[str, str] = {}
NOTHING: Added = {}
KEY = ("deployment", "provider", "model", "api", "size_class", "client")
MODEL = "coalesce(f.model, (select calls.model from calls where calls.id = f.call_id), '')"
OF_ATTEMPT = ("f.deployment", "f.provider", MODEL, "coalesce(f.api, '')", "coalesce(f.size_class, -1)", "''")
OF_CLIENT = ("''", "''", MODEL, "''", "-1", "coalesce(f.client, '')")
OF_CALL = ("''", "''", "{}.model", "''", "-1", "coalesce({}.client, '')")


def upgrade() -> None:
    dialect = Dialect(op.get_bind().dialect.name)
    _make_tables()
    for table in ("calls", "attempts"):  # what is there already
        for statement in _statements(dialect, table, f"{table} as f"):
            op.get_bind().exec_driver_sql(statement)
    for statement in _triggers(dialect):
        op.get_bind().exec_driver_sql(statement)


def downgrade() -> None:
    if Dialect(op.get_bind().dialect.name).is_postgres:
        for table in ("calls", "attempts"):
            op.execute(f"drop trigger roll_up on {table}")
            op.execute(f"drop function roll_up_{table}()")
    else:
        for table in ("calls", "attempts"):
            op.execute(f"drop trigger note_{table}")
        op.execute("drop view rollup_pending")
        op.execute("drop table rollup_fresh_attempts")
        op.execute("drop table rollup_fresh_calls")
    for table in ("wide_tags", "tags", "histograms", "errors", "calls", "attempts", "periods", "series"):
        op.drop_table(f"rollup_{table}")
    op.execute("delete from buckets where bucket < 0")


def _make_tables() -> None:
    def table(name: str, columns: list[sa.Column[Any]], *key: str, before: tuple[str, ...] = ()) -> None:
        window: list[sa.Column[Any]] = [
            sa.Column("minutes", sa.SmallInteger, nullable=False),
            sa.Column("window_start", sa.DateTime(timezone=True), nullable=False),
        ]
        whole = sa.PrimaryKeyConstraint("minutes", *before, "window_start", *key, name=f"{name}_pkey")
        op.create_table(name, *window, *columns, whole, sqlite_with_rowid=False)

    def series() -> sa.Column[Any]:
        return sa.Column("series_id", sa.Integer, nullable=False)

    periods = op.create_table(
        "rollup_periods",
        sa.Column("minutes", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("keep_days", sa.Integer),
    )
    op.bulk_insert(periods, [{"minutes": minutes, "keep_days": days} for minutes, days in PERIODS])
    op.create_table(
        "rollup_series",
        sa.Column("id", sa.Integer, primary_key=True),
        *(sa.Column(name, sa.SmallInteger if name == "size_class" else sa.Text, nullable=False) for name in KEY),
        sa.UniqueConstraint("model", "deployment", "client", "api", "size_class", "provider", name="rollup_series_key"),
    )
    table("rollup_attempts", [series(), *_sums(ATTEMPT_SUMS, ATTEMPT_MONEY)], "series_id")
    table(
        "rollup_errors",
        [
            series(),
            sa.Column("error_kind", sa.Text, nullable=False),
            sa.Column("status_code", sa.SmallInteger, nullable=False),
            sa.Column("n", sa.BigInteger, nullable=False),
            sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
            sa.Column("last_message", sa.Text),
        ],
        *("series_id", "error_kind", "status_code"),
    )
    table(
        "rollup_histograms",
        [
            series(),
            sa.Column("metric", sa.Text, nullable=False),
            sa.Column("bucket", sa.SmallInteger, nullable=False),
            sa.Column("n", sa.BigInteger, nullable=False),
        ],
        *("series_id", "bucket"),
        before=("metric",),  # who asks, asks for one or two of them
    )
    who: list[sa.Column[Any]] = [
        sa.Column("client", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
    ]
    sums = _sums(CALL_SUMS | RACE_SUMS, CALL_MONEY | RACE_MONEY)
    table("rollup_calls", [*who, *sums], "client", "model")
    tag = [sa.Column(name, sa.Text, nullable=False) for name in ("tag", "value")]
    table("rollup_tags", [*tag, *_sums(TAG_SUMS, {})], "tag", "value")
    table("rollup_wide_tags", [sa.Column("tag", sa.Text, nullable=False)], "tag")
    op.bulk_insert(sa.table("buckets", sa.column("bucket"), sa.column("from_ms"), sa.column("to_ms")), FINER)


def _sums(always: Mapping[str, str], known: Mapping[str, str]) -> list[sa.Column[Any]]:
    """Return columns: of ``always`` never null, of ``known`` null until something is."""

    def kind(expression: str) -> sa.types.TypeEngine[Any]:
        whole = (
            expression.startswith("count")
            or ("tokens" in expression and "double" not in expression)
            or "chars" in expression
            or "launched" in expression
        )
        return sa.BigInteger() if whole else sa.Double()

    filled = [sa.Column(name, kind(one), nullable=False, server_default="0") for name, one in always.items()]
    return [*filled, *(sa.Column(name, kind(one)) for name, one in known.items())]


def _statements(  # noqa: PLR0917 - what later revisions choose
    dialect: Dialect, table: str, fresh: str, more: Sequence[Plain] = (), added: Added = NOTHING, called: str = ""
) -> list[str]:
    """Return what adds up rows of ``table``: ``fresh`` (f); ``more``: histograms; ``called``: attempts beside calls."""
    window = f"{dialect.epoch('f.started_at')} / 300 * 300"
    if table == "calls":
        client = [expression.format("f") for expression in OF_CALL]
        points = [
            (
                window,
                client,
                metric,
                dialect.bucket(f"f.{column}"),
                "1",
                fresh,
                f"{COMPARED} and f.{column} is not null",
            )
            for metric, column in (("call_ttft", "ttft_ms"), ("call_alone", "alone_ms"))
        ]
        sums = {**CALL_SUMS, **CALL_MONEY, **added.get(table, {})}
        who = "coalesce(f.client, '') as client, f.model as model"
        grouped = f"select {window} as w, {who}, {_named(sums)} from {fresh} group by 1, 2, 3"
        return [
            _series([(client, fresh, COMPARED)]),
            _add_up(dialect, "rollup_calls", ("client", "model"), sums, grouped),
            _histograms(dialect, points),
            *_tags(dialect, fresh, added.get("tags", NOTHING_MORE)),
        ]
    return _attempt_statements(dialect, fresh, window, more, added, called or _called(dialect, fresh))


def _attempt_statements(  # noqa: PLR0917 - likewise
    dialect: Dialect, fresh: str, window: str, more: Sequence[Plain], added: Added, called: str
) -> list[str]:
    reported = "f.tokens_source = 'reported'"
    pairs = dialect.pairs("f.itl")
    gaps = f"{fresh} cross join {pairs} as gap"
    plain = [
        ("ttft", "f.ttft_ms", "f.ttft_ms is not null"),
        ("tps", "f.decode_tps", f"{reported} and f.decode_tps > 0"),
        ("e2e", "f.e2e_tps", f"{reported} and f.e2e_tps > 0"),
        *more,
    ]
    points: list[Point] = [
        (window, OF_ATTEMPT, metric, dialect.bucket(value), "1", fresh, condition) for metric, value, condition in plain
    ]
    number, count = "cast(gap.key as smallint)", "cast(gap.value as bigint)"
    points += [
        (window, key, metric, number, count, gaps, "f.itl is not null")
        for key, metric in ((OF_ATTEMPT, "itl"), (OF_CLIENT, "load_itl"))
    ]
    call_window = f"{dialect.epoch('c.started_at')} / 300 * 300"
    audited = "f.launch_offset_ms + coalesce(f.token_ms, f.censored_at_ms)"
    points += [
        (
            call_window,
            [one.format("c") for one in OF_CALL],
            metric,
            dialect.bucket(f"({audited})"),
            "1",
            called,
            condition,
        )
        for metric, condition in (
            ("audit_alone", f"{DRAWN} and {audited} is not null"),
            ("explored_alone", f"{EXPLORED} and {audited} is not null"),
        )
    ]
    sums = {**ATTEMPT_SUMS, **ATTEMPT_MONEY, **added.get("attempts", {})}
    by_series = _by_series(fresh, window, sums)
    races = {**RACE_SUMS, **RACE_MONEY, **added.get("races", {})}
    raced = _by_race(dialect, called, races)
    return [
        _series([(OF_ATTEMPT, fresh, "true"), (OF_CLIENT, fresh, "f.itl is not null")]),
        _add_up(dialect, "rollup_attempts", ("series_id",), sums, by_series),
        _errors(dialect, fresh, window),
        _histograms(dialect, points),
        _add_up(dialect, "rollup_calls", ("client", "model"), races, raced),
    ]


# On Postgres, so that a call is looked for in one or two partitions.
SAME_DAY = "c.started_at <= f.started_at + interval '1 minute' and c.started_at > f.started_at - interval '1 day'"


def _called(dialect: Dialect, fresh: str) -> str:
    same_day = SAME_DAY if dialect.is_postgres else "true"
    return f"{fresh} join calls as c on c.id = f.call_id and {same_day}"


def _by_race(dialect: Dialect, called: str, sums: Mapping[str, str]) -> str:
    """Return sums of attempts (f) of ``called``, by the client and model of their call (c), beside its winner (w)."""
    won = "w.id = c.winner_attempt_id and w.call_id = c.id" + (
        " and w.started_at >= c.started_at - interval '1 minute' and w.started_at < c.started_at + interval '1 day'"
        if dialect.is_postgres
        else ""
    )
    return (
        f"select {dialect.epoch('c.started_at')} / 300 * 300 as w, coalesce(c.client, '') as client, "
        f"c.model as model, {_named(sums)} from {called} left join attempts as w on {won} group by 1, 2, 3"
    )


def _by_series(fresh: str, window: str, sums: Mapping[str, str]) -> str:
    return (
        f"select {window} as w, s.id as series_id, {_named(sums)} "
        f"from {fresh} join rollup_series as s on {_is(OF_ATTEMPT)} group by 1, 2"
    )


def _named(sums: Mapping[str, str]) -> str:
    return ", ".join(f"{expression} as {name}" for name, expression in sums.items())


def _is(key: Sequence[str]) -> str:
    return " and ".join(f"s.{name} = {expression}" for name, expression in zip(KEY, key, strict=True))


def _series(keys: Sequence[tuple[Sequence[str], str, str]]) -> str:
    """Note series that are new. Those that are there are left out first, or each batch would use up numbers."""
    found = " union ".join(
        f"select {_named(dict(zip(KEY, key, strict=True)))} from {fresh} where {condition}"
        for key, fresh, condition in keys
    )
    names = ", ".join(KEY)
    return (
        f"insert into rollup_series ({names}) select {names} "
        f"from ({found} except select {names} from rollup_series) as new_ones "
        f"where true order by {names} on conflict do nothing"
    )


def _fan_out(dialect: Dialect, key: tuple[str, ...], columns: str, grouped: str, condition: str = "true") -> str:
    """Return rows of five minutes as rows of each kind of window, in the order in which all lock them."""
    keys = ", ".join(f"g.{name}" for name in key)
    start = dialect.instant("g.w - g.w % (p.minutes * 60)")
    return (
        f"select p.minutes, {start}, {keys}, {columns} from ({grouped}) as g cross join rollup_periods as p "
        f"where (p.keep_days is null or g.w >= {dialect.now} - 86400 * p.keep_days) and {condition} "
        f"group by 1, 2, {keys} order by 1, 2, {keys}"
    )


def _add_up(  # noqa: PLR0917 - the parts of one statement
    dialect: Dialect, table: str, key: tuple[str, ...], sums: Mapping[str, str], grouped: str, condition: str = "true"
) -> str:
    keys = ", ".join(("minutes", "window_start", *key))
    rows = _fan_out(dialect, key, ", ".join(f"sum(g.{name})" for name in sums), grouped, condition)
    added = ", ".join(
        f"{name} = coalesce({table}.{name} + excluded.{name}, {table}.{name}, excluded.{name})" for name in sums
    )
    return f"insert into {table} ({keys}, {', '.join(sums)}) {rows} on conflict ({keys}) do update set {added}"


def _histograms(dialect: Dialect, points: Sequence[Point]) -> str:
    every = " union all ".join(
        f"select {window} as w, s.id as series_id, '{metric}' as metric, {bucket} as bucket, {count} as n "
        f"from {fresh} join rollup_series as s on {_is(key)} where {condition}"
        for window, key, metric, bucket, count, fresh, condition in points
    )
    grouped = f"select w, series_id, metric, bucket, sum(n) as n from ({every}) as each_one group by 1, 2, 3, 4"
    is_asked_for = "(p.minutes = 5 or g.metric <> 'load_itl')"
    return _add_up(dialect, "rollup_histograms", ("series_id", "metric", "bucket"), {"n": ""}, grouped, is_asked_for)


def _tags(dialect: Dialect, fresh: str, added: Mapping[str, str] = NOTHING_MORE) -> list[str]:
    """Return what adds up calls by tag, in windows of a day; first it notes the tags that have too many values for it.

    A tag that is noted stays so for its day. Who has not seen the note yet adds to sums that are not read.
    """
    sums = {**TAG_SUMS, **added}
    day = f"{dialect.epoch('f.started_at')} / 86400 * 86400"
    window = dialect.instant("found.w")
    found = (
        f"select distinct {day} as w, each.key as tag, cast(each.value as text) as value from {dialect.tagged(fresh)}"
    )
    there = "select {} from rollup_tags as r where r.minutes = 1440 and r.window_start = {}"
    noted = "select 1 from rollup_wide_tags as w where w.minutes = 1440 and w.window_start = {} and w.tag in ({}, '')"
    new_ones = (
        f"(select {window} as day, found.tag, found.value from ({found}) as found "
        f"where not exists ({there.format('1', window)} and r.tag = found.tag and r.value = found.value) "
        f"and not exists ({noted.format(window, 'found.tag')})) as new_ones"
    )
    there_already = there.format("count(*)", "new_ones.day")
    too_many = f"count(*) + ({there_already} and r.tag = new_ones.tag) > {MOST_VALUES}"
    far_too_many = f"count(*) + ({there_already}) > {MOST_PAIRS}"
    too_long = f"max(length(new_ones.tag) + length(new_ones.value)) > {LONGEST_PAIR}"
    note = "insert into rollup_wide_tags (minutes, window_start, tag) select 1440, day,"
    grouped = (
        f"select {day} as w, each.key as tag, cast(each.value as text) as value, {_named(sums)} "
        f"from {dialect.tagged(fresh)} group by 1, 2, 3"
    )
    is_kept = f"p.minutes = 1440 and not exists ({noted.format(dialect.instant('g.w'), 'g.tag')})"
    return [
        f"{note} tag from {new_ones} group by day, tag having {too_many} order by 2, 3 on conflict do nothing",
        f"{note} '' from {new_ones} group by day having {too_long} or {far_too_many} order by 2 on conflict do nothing",
        _add_up(dialect, "rollup_tags", ("tag", "value"), sums, grouped, is_kept),
    ]


def _errors(dialect: Dialect, fresh: str, window: str) -> str:
    keys = "minutes, window_start, series_id, error_kind, status_code"
    latest = "(array_agg({} order by {} desc))[1]" if dialect.is_postgres else "{}"  # SQLite: of the row of max()
    message = latest.format("f.error_message", "f.started_at")
    grouped = (
        f"select {window} as w, s.id as series_id, f.error_kind as error_kind, "
        "coalesce(f.status_code, -1) as status_code, "
        f"count(*) as n, max(f.started_at) as last_seen_at, {message} as last_message "
        f"from {fresh} join rollup_series as s on {_is(OF_ATTEMPT)} "
        "where f.error_kind is not null and f.outcome in ('failed', 'timeout', 'stalled') group by 1, 2, 3, 4"
    )
    columns = f"sum(g.n), max(g.last_seen_at), {latest.format('g.last_message', 'g.last_seen_at')}"
    rows = _fan_out(dialect, ("series_id", "error_kind", "status_code"), columns, grouped)
    is_later = "excluded.last_seen_at >= rollup_errors.last_seen_at"
    return (
        f"insert into rollup_errors ({keys}, n, last_seen_at, last_message) {rows} on conflict ({keys}) do update set "
        "n = rollup_errors.n + excluded.n, "
        f"last_message = case when {is_later} then excluded.last_message else rollup_errors.last_message end, "
        f"last_seen_at = case when {is_later} then excluded.last_seen_at else rollup_errors.last_seen_at end"
    )


def _triggers(dialect: Dialect, more: Sequence[Plain] = (), added: Added = NOTHING) -> list[str]:
    if dialect.is_postgres:
        return [one for table in ("calls", "attempts") for one in _postgres_trigger(dialect, table)]
    new = "(select {0}.* from {0} join rollup_fresh_{0} as new_ones on new_ones.id = {0}.id) as f"
    made = []
    for table in ("calls", "attempts"):
        made.append(f"create table rollup_fresh_{table} (id char(36) not null)")
        noted = f"insert into rollup_fresh_{table} values (new.id);"
        made.append(f"create trigger note_{table} after insert on {table} begin {noted} end")
    counts = ", ".join(f"(select count(*) from rollup_fresh_{table}) as {table}" for table in ("calls", "attempts"))
    made.append(f"create view rollup_pending as select {counts}")
    adding = [
        one for table in ("calls", "attempts") for one in _statements(dialect, table, new.format(table), more, added)
    ]
    adding += [f"delete from rollup_fresh_{table}" for table in ("calls", "attempts")]
    made.append(f"create trigger roll_up instead of delete on rollup_pending begin {'; '.join(adding)}; end")
    return made


def _postgres_trigger(dialect: Dialect, table: str, more: Sequence[Plain] = (), added: Added = NOTHING) -> list[str]:
    """Return a function and its trigger. Who stores rows needs no right to the sums; each look-up is by an index."""
    body = "; ".join(_statements(dialect, table, "fresh as f", more, added))
    path = op.get_bind().scalar(sa.text("select current_schema()"))
    function = (
        f"create function roll_up_{table}() returns trigger language plpgsql security definer "
        f'set search_path = "{path}", pg_temp set enable_hashjoin = off set enable_mergejoin = off set jit = off '
        f"as $$ begin {body}; return null; end $$"
    )
    trigger = (
        f"create trigger roll_up after insert on {table} referencing new table as fresh "
        f"for each statement execute function roll_up_{table}()"
    )
    return [function, trigger]
