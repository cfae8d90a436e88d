"""The sums of windows (``rollup_…``): tables of expressions, and the SQL that adds up new rows.

On Postgres the function ``roll_up_fresh`` (``migrations/functions``) adds up; on SQLite a trigger of DELETE on
``rollup_pending``. In expressions, ``f`` is a new row. In expressions of races, ``f`` is an attempt, ``c`` the call,
and ``w`` the call's winner. A sum without any known value stays null; all others begin at 0.
"""

from collections.abc import Collection, Mapping, Sequence

from gateway.core import rules
from gateway.core.records import PROBES
from gateway.ledger.reports.reader import Words, conditions, has_failed, listed

_RULES = conditions("f.")
BROKEN, LOST, ERROR, RACED = (_RULES[name] for name in ("broken", "beaten", "error", "raced"))
OWN_FAULT, OWN, FAILED = _RULES["own_fault"], _RULES["own"], has_failed("f.")
RACED_CALL = conditions("c.")["raced"]
STATED = (
    "f.outcome = 'won' and f.tokens_source = 'reported' and f.chars >= 40 and f.completion_tokens > 0 "
    "and coalesce(f.reasoning_tokens, 0) = 0"
)
TOLD = "f.outcome = 'won' and f.prompt_tokens is not null and f.cached_tokens is not null"
GONE = f"f.status_code = {rules.CLIENT_LEFT} and f.ttft_ms is null and f.total_ms"
JUDGED = f"{RACED} and not {OWN_FAULT} and ({FAILED} or ({GONE} >= 500) or f.ttft_ms is not null)"
COMPARED = "f.ttft_ms is not null and (f.alone_ms is not null or f.alone_age_ms is not null)"
ANSWERED = "f.status_code = 200"
# What racing cost, and what audits saw.
# If keys or forms were refused, the primary is the attempt with the last key or form.
_LAST = "coalesce(f.error_kind, '') {}"
FIRST = f"(f.number = 1 or f.counts_as = 'primary') and {_LAST}".format(f"not in {listed(rules.STEPS)}")
AUDIT = (
    f"{FIRST} and f.audited and f.is_overtaken and c.ttft_ms is not null and c.alone_age_ms is not null "
    f"and f.outcome in {listed((*reversed(rules.BEATEN), *rules.BROKEN))}"
)
DRAWN = f"{AUDIT} and c.alone_predicted_ms is not null"
EXPLORED = f"{AUDIT} and c.alone_predicted_ms is null"
SEEN = "(coalesce(f.token_ms, f.censored_at_ms, f.overtaken_at_ms) - f.overtaken_at_ms)"
PREDICTED = "(f.predicted_ms - f.overtaken_at_ms)"
BEATEN = f"{FIRST} and c.winner_attempt_id is not null and c.winner_attempt_id <> f.id"
_ROLE, _WINNERS_ROLE = "coalesce(f.counts_as, f.role)", "coalesce(w.counts_as, w.role)"
BESIDE, BESIDE_BEFORE = "('race', 'hedge', 'fallback', 'explore', 'probe')", "('race', 'hedge', 'explore', 'probe')"
ADDED, ADDED_BEFORE = (  # as in ``gateway.racing.costs``
    f"f.id <> coalesce(c.winner_attempt_id, f.call_id) and ({own} in {roles} or ({LOST} and {winners} in {roles}))"
    for own, winners, roles in (
        (_ROLE, _WINNERS_ROLE, BESIDE),
        ("f.role", "w.role", BESIDE_BEFORE),
    )
)
# The savings by cache of an overtaken primary, less those of its winner, and at most the winner's cost: racing added
# this part of the cost, if the operator paid. If the winner's cached tokens are unknown, the bounds are of a whole
# prompt at either price already.
_LOST_USD = "(f.cache_saved_usd - coalesce(w.cache_saved_usd, 0))"
LOST_CACHE = (
    f"case when {_ROLE} in {BESIDE} or not coalesce({_LOST_USD} > 0, false) or not ({conditions('w.')['own']}) then 0 "
    f"when w.cost_usd < {_LOST_USD} then w.cost_usd else {_LOST_USD} end"
)
LOST_CACHE_KNOWN = f"case when f.cached_tokens is null then 0 else {LOST_CACHE} end"
FAST = "f.outcome = 'won' and f.id = c.winner_attempt_id and f.tokens_source = 'reported'"
SAVED = "(f.alone_ms - f.ttft_ms)"
# Rows of older versions have only one cost, which was the maximum.
UNPRICED = "f.cost_high_usd is null and (f.cost_usd is null or f.cost_low_usd is not null)"


def _count(condition: str) -> str:
    return f"count(*) filter (where {condition})"


def _known(total: str, condition: str) -> str:
    return f"coalesce(sum({total}) filter (where {condition}), 0)"


TOKENS = "coalesce(f.prompt_tokens, 0) + coalesce(f.completion_tokens, 0)"


# By column of rollup_attempts.
ATTEMPTS = {
    "n": "count(*)",
    "n_won": _count("f.outcome = 'won'"),
    "n_first_token": "count(f.ttft_ms)",
    "n_censored": _count("f.ttft_ms is null and f.censored_at_ms is not null"),
    "n_errors": _count(f"({ERROR}) and {OWN}"),
    "n_rate_limited": _count(f"f.error_kind = 'rate_limited' and {OWN}"),
    "n_stated": _count(STATED),
    "stated_tokens": _known("f.completion_tokens", STATED),
    "stated_chars": _known("f.chars", STATED),
    "n_told": _count(TOLD),
    "told_prompt_tokens": _known("f.prompt_tokens", TOLD),
    "told_cached_tokens": _known("f.cached_tokens", TOLD),
    "cost_usd": f"sum(f.cost_usd) filter (where {OWN})",
    "cost_low_usd": f"sum(coalesce(f.cost_low_usd, f.cost_usd)) filter (where {OWN})",
    "cost_high_usd": f"sum(coalesce(f.cost_high_usd, f.cost_usd)) filter (where {OWN})",
    "cached_tokens": "sum(f.cached_tokens) filter (where f.outcome = 'won')",
    "cache_write_tokens": "sum(f.cache_write_tokens) filter (where f.outcome = 'won')",
    "cache_saved_usd": f"sum(f.cache_saved_usd) filter (where f.outcome = 'won' and {OWN})",
    "n_tried": _count(f"f.ttft_ms is not null or (({ERROR}) and {OWN})"),
    "n_wasted": _count(LOST),
    "n_bounded": f"count(f.wasted_high_tokens) filter (where {LOST})",
    "wasted_prompt_tokens": _known("f.prompt_tokens", LOST),
    "wasted_tokens": _known("f.completion_tokens", LOST),
    "wasted_low_tokens": _known("f.wasted_low_tokens", LOST),
    "wasted_high_tokens": _known("f.wasted_high_tokens", LOST),
    "wasted_cost_usd": f"sum(f.cost_usd) filter (where {LOST} and {OWN})",
    "wasted_cost_low_usd": f"sum(coalesce(f.cost_low_usd, f.cost_usd)) filter (where {LOST} and {OWN})",
    "wasted_cost_high_usd": f"sum(coalesce(f.cost_high_usd, f.cost_usd)) filter (where {LOST} and {OWN})",
    "n_wasted_unpriced": _count(f"{LOST} and {UNPRICED} and {OWN}"),
    "won_tokens": f"sum({TOKENS}) filter (where f.outcome = 'won')",
}
# By column of rollup_calls: sums of calls; sums of attempts follow.
CALLS = {
    "n": "count(*)",
    "n_failed": _count(FAILED),
    "n_left": _count(f"f.status_code = {rules.CLIENT_LEFT}"),
    "n_raced": _count("coalesce(f.extras, f.launched - 1) > 0"),
    "launched": "sum(f.launched)",
    "extra": "sum(coalesce(f.extras, case when f.launched > 1 then f.launched - 1 else 0 end))",
    "n_ttft": "count(f.ttft_ms)",
    "ttft_ms": "coalesce(sum(f.ttft_ms), 0)",
    "n_total": "count(f.total_ms) filter (where f.error_kind is null)",
    "total_ms": _known("f.total_ms", "f.error_kind is null"),
    "slo_n": _count(RACED),
    "slo_failed": _count(f"{RACED} and {FAILED}"),
    "slo_gave_up": _count(f"{RACED} and {GONE} >= 500"),
    "slo_left": _count(f"{RACED} and {GONE} < 500"),
    "slo_judged": _count(JUDGED),
    "slo_in_time": _count(f"{RACED} and not {OWN_FAULT} and not ({FAILED}) and f.ttft_ms < 500"),
    "n_deadlines": "count(f.deadline_met)",
    "deadlines_met": _count("f.deadline_met"),
    "n_compared": _count(COMPARED),
    "compared_ttft_ms": _known("f.ttft_ms", COMPARED),
    "saved_seen_ms": _known("f.alone_ms - f.ttft_ms", COMPARED),
    "n_sampled": _count(f"{COMPARED} and f.alone_predicted_ms is not null"),
    "saved_predicted_ms": _known("f.alone_predicted_ms - f.ttft_ms", COMPARED),
    "n_explored": _count(f"{COMPARED} and f.alone_age_ms is not null and f.alone_predicted_ms is null"),
    "prompt_tokens": "sum(f.prompt_tokens)",
    "completion_tokens": "sum(f.completion_tokens)",
    "cost_usd": "sum(f.cost_usd)",
    "cost_low_usd": "sum(f.cost_low_usd)",
    "cost_high_usd": "sum(f.cost_high_usd)",
    "duplicate_cost_usd": "sum(f.duplicate_cost_usd)",
    "abandoned_cost_low_usd": "sum(f.abandoned_cost_low_usd)",
    "abandoned_cost_high_usd": "sum(f.abandoned_cost_high_usd)",
    "cache_saved_usd": "sum(f.cache_saved_usd)",
    "n_held": f"count(f.held_ms) filter (where {COMPARED})",
    "held_ms": _known("f.held_ms", COMPARED),
    "saved_seen_squared": _known(f"{SAVED} * {SAVED}", COMPARED),
}
RACES = {
    "slo_tps": f"count(f.decode_tps) filter (where {FAST} and {RACED_CALL})",
    "slo_fast": _count(f"{FAST} and {RACED_CALL} and f.decode_tps > 45"),
    "overtaken": _count(BEATEN),
    "rescued": _count(f"{BEATEN} and {BROKEN} and not coalesce(f.is_overtaken, false)"),
    "n_drawn": _count(DRAWN),
    "n_drawn_failed": _count(f"{AUDIT} and {BROKEN} and f.token_ms is null"),
    "seen": _known(SEEN, DRAWN),
    "predicted": _known(PREDICTED, AUDIT),
    "seen_seen": _known(f"{SEEN} * {SEEN}", DRAWN),
    "seen_predicted": _known(f"{SEEN} * {PREDICTED}", AUDIT),
    "predicted_predicted": _known(f"{PREDICTED} * {PREDICTED}", AUDIT),
    "seen_cubed": _known(f"{SEEN} * {SEEN} * {SEEN}", DRAWN),
    "seen_fourth": _known(f"{SEEN} * {SEEN} * {SEEN} * {SEEN}", DRAWN),
    "n_explored_seen": _count(EXPLORED),
    "explored_seen": _known(SEEN, EXPLORED),
    "explored_seen_squared": _known(f"{SEEN} * {SEEN}", EXPLORED),
    "race_cost_usd": f"sum(f.cost_usd) filter (where {OWN})",
    "race_cost_low_usd": f"sum(coalesce(f.cost_low_usd, f.cost_usd)) filter (where {OWN})",
    "race_cost_high_usd": f"sum(coalesce(f.cost_high_usd, f.cost_usd)) filter (where {OWN})",
    **{
        column: f"sum({usd} + {lost}) filter (where {ADDED} and {OWN})"
        for column, usd, lost in (
            ("race_duplicate_cost_usd", "f.cost_usd", LOST_CACHE),
            ("race_duplicate_cost_low_usd", "coalesce(f.cost_low_usd, f.cost_usd)", LOST_CACHE_KNOWN),
            ("race_duplicate_cost_high_usd", "coalesce(f.cost_high_usd, f.cost_usd)", LOST_CACHE_KNOWN),
        )
    },
    "audit_cost_usd": f"sum(f.cost_usd) filter (where f.audited and f.is_overtaken and {OWN})",
    "n_unpriced": _count(f"{UNPRICED} and {OWN}"),
}
# By column of rollup_tags: sums of calls by tag, with squares where a variance is needed.
TAGS = {
    "n": CALLS["n"],
    "n_failed": CALLS["n_failed"],
    **{
        column: expression
        for short, name, figure in (
            ("ttft", "ttft_ms", "f.ttft_ms"),
            ("total", "total_ms", "f.total_ms"),
            ("tokens", "tokens", "cast(f.completion_tokens as double precision)"),
            ("cost", "cost_usd", "f.cost_usd"),
        )
        for column, expression in (
            (f"n_{short}", f"count({figure}) filter (where {ANSWERED})"),
            (name, _known(figure, ANSWERED)),
            (f"{name}_squared", _known(f"{figure} * {figure}", ANSWERED)),
        )
    },
}
# By column of rollup_tags: sums of all attempts at such calls, also of later ones.
TAG_RACES = {"all_cost_usd": f"sum(f.cost_usd) filter (where {OWN})"}
# By revision: the kinds of errors that did not count as errors of the deployment before that revision.
NO_ERRORS_BEFORE = {
    "0054": ("rate_limited", "bad_request"),
    "0057": ("no_such_api", "rate_limited", "bad_request", "no_place"),
    "0059": ("no_such_api", "rate_limited", "key_refused", "bad_request", "no_place"),
}
# Expressions from before an attempt could replace another with another key, and later in another form.
_KEYS, _FORMS = "0057", "0059"
_BEFORE_STEPS = {
    _KEYS: {
        FIRST: "f.number = 1",
        _ROLE: "f.role",
        _WINNERS_ROLE: "w.role",
        listed(rules.NO_ERRORS): listed(NO_ERRORS_BEFORE[_KEYS]),
    },
    _FORMS: {
        FIRST: f"(f.number = 1 or f.counts_as = 'primary') and {_LAST}".format("<> 'key_refused'"),
        listed(rules.NO_ERRORS): listed(NO_ERRORS_BEFORE[_FORMS]),
    },
}
ERROR_BEFORE = f"{BROKEN} and coalesce(f.error_kind, '') not in {listed(NO_ERRORS_BEFORE['0054'])}"


def no_errors(revision: str) -> Sequence[str]:
    """Return the kinds of errors that are no errors of a deployment at a revision; "": today's."""
    return next((each for since, each in NO_ERRORS_BEFORE.items() if revision and revision < since), rules.NO_ERRORS)


# By revision: the APIs that were raced before it. A new API is appended to ``rules.RACED``.
RACED_BEFORE = {"0064": rules.RACED[:5]}


def _raced_at(expression: str, revision: str) -> str:
    """Return an expression with the APIs that were raced at a revision."""
    before = next((each for since, each in RACED_BEFORE.items() if revision < since), rules.RACED)
    return expression.replace(listed(rules.RACED), listed(before))


def _before(revision: str, expression: str) -> str:
    for now, before in _BEFORE_STEPS[revision].items():
        expression = expression.replace(now, before)
    return expression


def _changed_by(revision: str) -> dict[str, str]:
    """Return sums that a step of the ladder changed at this revision, in the former form."""
    return {
        name: before
        for name, each in {**ATTEMPTS, **RACES}.items()
        if (before := _before(revision, each)) != each  # other sums have similar names
    }


# By sum: the revision that added it, if not the first. By revision: the expressions before it.
SINCE: dict[str, str] = {"all_cost_usd": "0053", "won_tokens": "0062"}
BEFORE = {
    "0047": {
        f"race_duplicate_{name}": f"sum({usd}) filter (where {ADDED_BEFORE} and {OWN})"
        for name, usd in (
            ("cost_usd", "f.cost_usd"),
            ("cost_low_usd", "coalesce(f.cost_low_usd, f.cost_usd)"),
            ("cost_high_usd", "coalesce(f.cost_high_usd, f.cost_usd)"),
        )
    },
    _KEYS: _changed_by(_KEYS),
    _FORMS: _changed_by(_FORMS),
    "0054": {
        "n_errors": _count(f"({ERROR_BEFORE}) and {OWN}"),
        "n_tried": _count(f"f.ttft_ms is not null or (({ERROR_BEFORE}) and {OWN})"),
    },
}

# Of a day. A tag with more values is not added up; with more pairs of tag and value, no tag is. Views read rows
# instead, so that ids in a client's tags cost no more than before.
MOST_VALUES = 1000
MOST_PAIRS = 10_000
# The usage of each client, team, end user and model in all. Clients name end users, so end users beyond this number
# have no totals: their usage counts for the client and the team.
TOTALS_SINCE = "0062"
MOST_TOTALS = 100_000
LONGEST_PAIR = 256  # characters, as accepted by the gateway: an index's key has a maximum

# The key of an attempt, and of a client's part of a model, among the series. A model's races belong to clients.
KEY = ("deployment", "provider", "model", "api", "size_class", "client")
MODEL = "coalesce(f.model, (select calls.model from calls where calls.id = f.call_id), '')"
OF_ATTEMPT = ("f.deployment", "f.provider", MODEL, "coalesce(f.api, '')", "coalesce(f.size_class, -1)", "''")
OF_CLIENT = ("''", "''", MODEL, "''", "-1", "coalesce(f.client, '')")
OF_CALL = ("''", "''", "{}.model", "''", "-1", "coalesce({}.client, '')")
# On Postgres, so that only one or two partitions are searched for the call.
SAME_DAY = "c.started_at <= f.started_at + interval '1 minute' and c.started_at > f.started_at - interval '1 day'"
WINDOW = "g.w - g.w % (p.minutes * 60)"  # the start of the window of kind p around a window of five minutes

Point = tuple[str, Sequence[str], str, str, str, str, str]  # window, key, metric, bucket, count, source, condition


def listing(sums: Mapping[str, str]) -> str:
    """Return expressions with column names, for a SELECT."""
    return ", ".join(f"{expression} as {name}" for name, expression in sums.items())


class Summing:
    """The statements that add up rows, for one of the databases, at a revision of the schema."""

    def __init__(self, words: Words, revision: str) -> None:
        self._words = words
        self._revision = revision
        self._five_minutes = f"{words.epoch('f.started_at')} / 300 * 300"

    def of_calls(self, fresh: str) -> list[str]:
        """Return the statements that add up calls; ``fresh``: yields the calls as ``f``."""
        client = [expression.format("f") for expression in OF_CALL]
        points = [
            (
                self._five_minutes,
                client,
                metric,
                self._words.bucket(f"f.{column}"),
                "1",
                fresh,
                f"{COMPARED} and f.{column} is not null",
            )
            for metric, column in (("call_ttft", "ttft_ms"), ("call_alone", "alone_ms"))
        ]
        sums = self._of_revision(CALLS)
        return [
            _series([(client, fresh, COMPARED)]),
            self._add_up("rollup_calls", ("client", "model"), sums, self._by_client(fresh, sums)),
            self._histograms(points),
            *self._tags(fresh),
            *self._totals(self._who("f"), "0", TOKENS, fresh),
        ]

    def of_attempts(self, fresh: str, called: str = "") -> list[str]:
        """Return the statements that add up attempts; ``called``: yields attempts as ``f`` with calls as ``c``."""
        called = called or self.called(fresh)
        sums, races = self._of_revision(ATTEMPTS), self._of_revision(RACES)
        of_tags = self._of_revision(TAG_RACES)
        return [
            _series([(OF_ATTEMPT, fresh, "true"), (OF_CLIENT, fresh, "f.itl is not null")]),
            self._add_up("rollup_attempts", ("series_id",), sums, self._by_series(fresh, sums)),
            self._errors(fresh),
            self._histograms(self._points(fresh, called)),
            self._add_up("rollup_calls", ("client", "model"), races, self._by_race(called, races)),
            *([self._add_up_by_tags(of_tags, self._by_tags(called, "c", of_tags))] if of_tags else ()),
            *self._totals(self._who("c"), f"case when {OWN} then f.cost_usd else 0 end", "0", called),
            *self._totals(
                ("''", "''", "''", MODEL),
                f"case when {OWN} and coalesce(f.api, '') <> '{PROBES}' then f.cost_usd else 0 end",
                f"case when f.outcome = 'won' then {TOKENS} else 0 end",
                fresh,
            ),
        ]

    def of_races(self, called: str) -> str:
        """Return the statement that notes the series of races, before ``of_attempts`` uses them."""
        audited = self._as_of(f"({DRAWN}) or ({EXPLORED})")
        return _series([([expression.format("c") for expression in OF_CALL], called, audited)])

    def added_later(self, names: Collection[str]) -> list[str]:
        """Return the statements that add new kinds of sums of existing rows to existing windows."""
        calls, races, attempts = (
            {name: sums[name] for name in names if name in sums} for sums in (CALLS, RACES, ATTEMPTS)
        )
        by_client, by_series = ("client", "model"), ("series_id",)
        grouped = (
            ("rollup_calls", by_client, calls, self._by_client("calls as f", calls)),
            ("rollup_calls", by_client, races, self._by_race(self.called("attempts as f"), races)),
            ("rollup_attempts", by_series, attempts, self._by_series("attempts as f", attempts)),
        )
        return [
            self._add_up(table, key, sums, rows, self._is_there(table, key))
            for table, key, sums, rows in grouped
            if sums
        ]

    def _is_there(self, table: str, key: Sequence[str]) -> str:
        """Return the condition that a window has a row for ``g`` already: deleted windows are not made again."""
        same = " and ".join(f"r.{name} = g.{name}" for name in key)
        window = f"r.minutes = p.minutes and r.window_start = {self._words.moment(WINDOW)}"
        return f"exists (select 1 from {table} as r where {window} and {same})"

    def called(self, fresh: str) -> str:
        """Return the join of attempts with their calls."""
        same_day = SAME_DAY if self._words.is_postgres else "true"
        return f"{fresh} join calls as c on c.id = f.call_id and {same_day}"

    def _as_of(self, condition: str) -> str:
        changed = next((each for each in _BEFORE_STEPS if self._revision < each), None)
        return _raced_at(condition if changed is None else _before(changed, condition), self._revision)

    def _of_revision(self, sums: Mapping[str, str]) -> dict[str, str]:
        of_revision = {name: each for name, each in sums.items() if SINCE.get(name, "") <= self._revision}
        for changed in sorted(BEFORE, reverse=True):
            if self._revision < changed:
                of_revision |= {name: each for name, each in BEFORE[changed].items() if name in of_revision}
        return {name: _raced_at(each, self._revision) for name, each in of_revision.items()}

    def _by_client(self, fresh: str, sums: Mapping[str, str]) -> str:
        who = "coalesce(f.client, '') as client, f.model as model"
        return f"select {self._five_minutes} as w, {who}, {listing(sums)} from {fresh} group by 1, 2, 3"

    def _by_series(self, fresh: str, sums: Mapping[str, str]) -> str:
        return (
            f"select {self._five_minutes} as w, s.id as series_id, {listing(sums)} "
            f"from {fresh} join rollup_series as s on {_is(OF_ATTEMPT)} group by 1, 2"
        )

    def _by_race(self, called: str, sums: Mapping[str, str]) -> str:
        won = "w.id = c.winner_attempt_id and w.call_id = c.id" + (
            " and w.started_at >= c.started_at - interval '1 minute' and w.started_at < c.started_at + interval '1 day'"
            if self._words.is_postgres
            else ""
        )
        return (
            f"select {self._words.epoch('c.started_at')} / 300 * 300 as w, coalesce(c.client, '') as client, "
            f"c.model as model, {listing(sums)} from {called} left join attempts as w on {won} group by 1, 2, 3"
        )

    def _points(self, fresh: str, called: str) -> list[Point]:
        """Return the histograms of attempts: times and speeds, gaps, and the times of audited attempts alone."""
        words, window = self._words, self._five_minutes
        reported = "f.tokens_source = 'reported'"
        gaps = f"{fresh} cross join {words.entries_of('f.itl', 'json')} as gap"
        points: list[Point] = [
            (window, OF_ATTEMPT, metric, words.bucket(value), "1", fresh, condition)
            for metric, value, condition in (
                ("ttft", "f.ttft_ms", "f.ttft_ms is not null"),
                ("tps", "f.decode_tps", f"{reported} and f.decode_tps > 0"),
                ("e2e", "f.e2e_tps", f"{reported} and f.e2e_tps > 0"),
                ("ttft_cut", "f.censored_at_ms", "f.ttft_ms is null and f.censored_at_ms is not null"),
            )
        ]
        number, count = "cast(gap.key as smallint)", "cast(gap.value as bigint)"
        points += [
            (window, key, metric, number, count, gaps, "f.itl is not null")
            for key, metric in ((OF_ATTEMPT, "itl"), (OF_CLIENT, "load_itl"))
        ]
        of_call, client = f"{words.epoch('c.started_at')} / 300 * 300", [each.format("c") for each in OF_CALL]
        audited = "f.launch_offset_ms + coalesce(f.token_ms, f.censored_at_ms)"
        points += [
            (
                of_call,
                client,
                metric,
                words.bucket(f"({audited})"),
                "1",
                called,
                f"{condition} and {audited} is not null",
            )
            for metric, condition in (("audit_alone", self._as_of(DRAWN)), ("explored_alone", self._as_of(EXPLORED)))
        ]
        return points

    def _fan_out(self, key: tuple[str, ...], columns: str, grouped: str, condition: str = "true") -> str:
        """Return rows of five minutes as rows of each kind of window, in the order in which all processes lock them."""
        keys = ", ".join(f"g.{name}" for name in key)
        start = self._words.moment(WINDOW)
        return (
            f"select p.minutes, {start}, {keys}, {columns} from ({grouped}) as g cross join rollup_periods as p "
            f"where (p.keep_days is null or g.w >= {self._words.now_s} - 86400 * p.keep_days) and {condition} "
            f"group by 1, 2, {keys} order by 1, 2, {keys}"
        )

    def _add_up(
        self, table: str, key: tuple[str, ...], sums: Mapping[str, str], grouped: str, condition: str = "true"
    ) -> str:
        keys = ", ".join(("minutes", "window_start", *key))
        rows = self._fan_out(key, ", ".join(f"sum(g.{name})" for name in sums), grouped, condition)
        added = ", ".join(
            f"{name} = coalesce({table}.{name} + excluded.{name}, {table}.{name}, excluded.{name})" for name in sums
        )
        return f"insert into {table} ({keys}, {', '.join(sums)}) {rows} on conflict ({keys}) do update set {added}"

    def _histograms(self, points: Sequence[Point]) -> str:
        every = " union all ".join(
            f"select {window} as w, s.id as series_id, '{metric}' as metric, {bucket} as bucket, {count} as n "
            f"from {fresh} join rollup_series as s on {_is(key)} where {condition}"
            for window, key, metric, bucket, count, fresh, condition in points
        )
        grouped = f"select w, series_id, metric, bucket, sum(n) as n from ({every}) as each_one group by 1, 2, 3, 4"
        is_asked_for = "(p.minutes = 5 or g.metric <> 'load_itl')"
        return self._add_up("rollup_histograms", ("series_id", "metric", "bucket"), {"n": ""}, grouped, is_asked_for)

    def _tags(self, fresh: str) -> list[str]:
        """Return the statements that add up calls by tag and day; the first ones note tags with too many values.

        A noted tag stays so for the day. A process that has not seen the note yet adds to sums that are not read.
        """
        window = self._words.moment("found.w")
        day, tagged = self._tagged(fresh, "f")
        found = f"select distinct {day} as w, each.key as tag, cast(each.value as text) as value from {tagged}"
        there = "select {} from rollup_tags as r where r.minutes = 1440 and r.window_start = {}"
        new_ones = (
            f"(select {window} as day, found.tag, found.value from ({found}) as found "
            f"where not exists ({there.format('1', window)} and r.tag = found.tag and r.value = found.value) "
            f"and not exists ({_NOTED.format(window, 'found.tag')})) as new_ones"
        )
        there_already = there.format("count(*)", "new_ones.day")
        too_many = f"count(*) + ({there_already} and r.tag = new_ones.tag) > {MOST_VALUES}"
        far_too_many = f"count(*) + ({there_already}) > {MOST_PAIRS}"
        too_long = f"max(length(new_ones.tag) + length(new_ones.value)) > {LONGEST_PAIR}"
        beyond = f"{too_long} or {far_too_many}"
        note, sums = (
            "insert into rollup_wide_tags (minutes, window_start, tag) select 1440, day,",
            self._of_revision(TAGS),
        )
        return [
            f"{note} tag from {new_ones} group by day, tag having {too_many} order by 2, 3 on conflict do nothing",
            f"{note} '' from {new_ones} group by day having {beyond} order by 2 on conflict do nothing",
            self._add_up_by_tags(sums, self._by_tags(fresh, "f", sums)),
        ]

    def _who(self, call: str) -> tuple[str, str, str, str]:
        """Return the columns of a call's totals: its client, team and end user."""
        tags = f"{call}.tags" if self._words.is_postgres else f"case when json_valid({call}.tags) then {call}.tags end"
        team, end_user = (
            f"{tags} ->> '{name}'" if self._words.is_postgres else f"json_extract({tags}, '$.{name}')"
            for name in ("team", "end_user")
        )
        return (f"coalesce({call}.client, '')", f"coalesce({team}, '')", f"coalesce({end_user}, '')", "''")

    def _totals(self, who: Sequence[str], usd: str, tokens: str, rows: str) -> list[str]:
        """Return the statement that adds up total usage."""
        if self._revision < TOTALS_SINCE:
            return []
        keys = "client, team, end_user, model"
        named = ", ".join(f"{each} as {name}" for each, name in zip(who, keys.split(", "), strict=True))
        totals = f"select {named}, coalesce({usd}, 0) as usd, coalesce({tokens}, 0) as tokens from {rows}"
        there = " and ".join(f"t.{name} = each.{name}" for name in keys.split(", "))
        has_own = (
            f"each.end_user = '' or exists (select 1 from used_totals as t where {there}) "
            f"or (select count(*) from used_totals) < {MOST_TOTALS}"
        )
        counted = (
            f"select client, team, case when {has_own} then end_user else '' end as end_user, model, usd, tokens "
            f"from ({totals}) as each where each.usd > 0 or each.tokens > 0"
        )
        added = (
            f"insert into used_totals ({keys}, usd, tokens) select {keys}, sum(usd), sum(tokens) "
            f"from ({counted}) as counted where true group by {keys} order by {keys} "
            f"on conflict ({keys}) do update set "
            "usd = used_totals.usd + excluded.usd, tokens = used_totals.tokens + excluded.tokens"
        )
        return [added]

    def _tagged(self, rows: str, call: str) -> tuple[str, str]:
        """Return the day of a call among ``rows``, and the join of the call with each of its tags."""
        day = f"{self._words.epoch(f'{call}.started_at')} / 86400 * 86400"
        tagged = f"{rows} cross join {self._words.entries_of(f'{call}.tags', 'jsonb')} as each"
        return day, f"{tagged} where {call}.tags <> '{{}}' and each.value is not null"

    def _by_tags(self, rows: str, call: str, sums: Mapping[str, str]) -> str:
        day, tagged = self._tagged(rows, call)
        return (
            f"select {day} as w, each.key as tag, cast(each.value as text) as value, {listing(sums)} "
            f"from {tagged} group by 1, 2, 3"
        )

    def _add_up_by_tags(self, sums: Mapping[str, str], grouped: str) -> str:
        noted = _NOTED.format(self._words.moment("g.w"), "g.tag")
        is_kept = f"p.minutes = 1440 and not exists ({noted})"
        return self._add_up("rollup_tags", ("tag", "value"), sums, grouped, is_kept)

    def _errors(self, fresh: str) -> str:
        keys = "minutes, window_start, series_id, error_kind, status_code"
        # SQLite takes the other columns from the row of max().
        latest = "(array_agg({} order by {} desc))[1]" if self._words.is_postgres else "{}"
        message = latest.format("f.error_message", "f.started_at")
        grouped = (
            f"select {self._five_minutes} as w, s.id as series_id, f.error_kind as error_kind, "
            "coalesce(f.status_code, -1) as status_code, "
            f"count(*) as n, max(f.started_at) as last_seen_at, {message} as last_message "
            f"from {fresh} join rollup_series as s on {_is(OF_ATTEMPT)} "
            f"where f.error_kind is not null and {BROKEN} and {OWN} group by 1, 2, 3, 4"
        )
        columns = f"sum(g.n), max(g.last_seen_at), {latest.format('g.last_message', 'g.last_seen_at')}"
        rows = self._fan_out(("series_id", "error_kind", "status_code"), columns, grouped)
        is_later = "excluded.last_seen_at >= rollup_errors.last_seen_at"
        return (
            f"insert into rollup_errors ({keys}, n, last_seen_at, last_message) {rows} "
            f"on conflict ({keys}) do update set n = rollup_errors.n + excluded.n, "
            f"last_message = case when {is_later} then excluded.last_message else rollup_errors.last_message end, "
            f"last_seen_at = case when {is_later} then excluded.last_seen_at else rollup_errors.last_seen_at end"
        )


_NOTED = "select 1 from rollup_wide_tags as w where w.minutes = 1440 and w.window_start = {} and w.tag in ({}, '')"


def all_cost(words: Words, otherwise: str = f"case when {ANSWERED.replace('f.', 'c.')} then c.cost_usd end") -> str:
    """Return the cost of all attempts at a call (c), also of later ones; ``otherwise`` if no cost is known."""
    is_own = conditions("a.")["own"]
    same_day = SAME_DAY.replace("f.", "a.") if words.is_postgres else "true"
    cost = f"(select sum(a.cost_usd) from attempts as a where a.call_id = c.id and {same_day} and {is_own})"
    return f"coalesce({cost}, {otherwise})"


def _is(key: Sequence[str]) -> str:
    return " and ".join(f"s.{name} = {expression}" for name, expression in zip(KEY, key, strict=True))


def _series(keys: Sequence[tuple[Sequence[str], str, str]]) -> str:
    """Return the statement that notes new series. Existing ones are left out first, or each batch would use up ids."""
    series = " union ".join(
        f"select {listing(dict(zip(KEY, key, strict=True)))} from {fresh} where {condition}"
        for key, fresh, condition in keys
    )
    names = ", ".join(KEY)
    return (
        f"insert into rollup_series ({names}) select {names} "
        f"from ({series} except select {names} from rollup_series) as new_ones "
        f"where true order by {names} on conflict do nothing"
    )
