"""The usage of clients, teams, end users and models since some instants: from this usage limits go on after a start.

The gateway counts its own calls itself, and the database may have been unreachable until now. So the figures are of the
time before the gateway's start: days, then hours of the first and the last day, then five minutes of the first and the
last hour. In the five minutes around the start, all calls of others count (they report this usage in Redis); the
gateway's own calls since the start do not. The first hour counts as a whole if its windows of five minutes are no
longer kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf

import msgspec

from gateway.core.calls import LimitUse
from gateway.core.records import PROBES
from gateway.ledger import queries
from gateway.ledger.connections import Database
from gateway.ledger.reports.reader import Words, conditions, words_of

TIMEOUT_S = 10.0
KEPT_FINE = timedelta(days=1, hours=22)  # windows of five minutes are kept for two days
_STEPS = {5: timedelta(minutes=5), 60: timedelta(hours=1), 1440: timedelta(days=1)}


_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)


def _floor(at: datetime, minutes: int) -> datetime:
    return at - (at - _ORIGIN) % _STEPS[minutes]


def _ceiling(at: datetime, minutes: int) -> datetime:
    return at + (_ORIGIN - at) % _STEPS[minutes]


def windows_between(since: datetime, until: datetime) -> list[tuple[int, datetime, datetime]]:
    """Return the windows that cover the time between two instants: minutes, the first beginning, and the end."""
    if since >= until:
        return []
    if until - since > KEPT_FINE:
        since = _floor(since, 60)
    last = _last(until)
    first_hour, last_hour = _ceiling(since, 60), _floor(until, 60)
    if first_hour > last_hour:
        return [(5, _floor(since, 5), last)]
    first_day, last_day = _ceiling(since, 1440), _floor(until, 1440)
    windows = [(5, _floor(since, 5), first_hour)]
    if first_day <= last_day:
        windows += [(60, first_hour, first_day), (1440, first_day, last_day), (60, last_day, last_hour)]
    else:
        windows.append((60, first_hour, last_hour))
    windows.append((5, last_hour, last))
    return [each for each in windows if each[1] < each[2]]


def _last(until: datetime) -> datetime:
    """Return the end of the last five minutes, which count as a whole."""
    return _floor(until, 5) + _STEPS[5]


def _within(words: Words, since: datetime, until: datetime) -> str:
    each = [
        f"(minutes = {minutes} and window_start >= {words.window(first)} and window_start < {words.window(end)})"
        for minutes, first, end in windows_between(since, until)
    ]
    return f"({' or '.join(each)})" if each else "false"


_ITS_OWN = -1  # the place of a replica's own usage, in no list of instants
_CLIENTS = """
select {place} as place, client, null as model, coalesce(sum({paid}), 0) as usd,
  coalesce(sum(coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0)), 0) as tokens
from rollup_calls where {within} group by client
"""
_MODELS = """
select {place} as place, null as client, s.model, coalesce(sum(r.cost_usd), 0) as usd,
  coalesce(sum(r.won_tokens), 0) as tokens
from rollup_attempts as r join rollup_series as s on s.id = r.series_id
where s.api <> '{probes}' and {within} group by s.model
"""
OWN = conditions()["own"]
_MODEL = "coalesce(model, (select calls.model from calls where calls.id = attempts.call_id), '')"  # as in the sums
_TOKENS = "coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0)"
# Totals have no windows: calls that began later are subtracted, unless they are not in the totals yet. One statement
# has one snapshot, so it does not matter which rows are added up meanwhile.
_TOTALS = """
select {place} as place, case when model = '' then client end as client, case when model <> '' then model end as model,
  coalesce(sum(usd), 0) as usd, coalesce(sum(tokens), 0) as tokens
from (
  select client, model, usd, tokens from used_totals
  union all select coalesce(client, ''), '', -cost_usd, -({tokens}) from calls
    where {later} and not {new_calls}
  union all select '', {model}, -cost_usd, case when outcome = 'won' then -({tokens}) else 0 end from attempts
    where started_at >= {least} and call_id in (select id from calls where {later})
      and coalesce(api, '') <> '{probes}' and {own} and not {new_attempts}
) as each_one
group by 2, 3
"""


# The windows also have what one replica has counted itself since its start, unless it is not added up yet.
_SINCE = "started_at >= {since} and started_at < {last}"
_OF_REPLICA = f"""
select {_ITS_OWN} as place, client, null as model, coalesce(sum(cost_usd), 0) as usd,
  coalesce(sum({_TOKENS}), 0) as tokens
from calls where {_SINCE} and replica = {{replica}} and not {{new_calls}} group by client
union all
select {_ITS_OWN}, null, {_MODEL}, coalesce(sum(cost_usd), 0),
  coalesce(sum(case when outcome = 'won' then {_TOKENS} end), 0)
from attempts
where {_SINCE} and coalesce(api, '') <> '{PROBES}' and {OWN} and not {{new_attempts}}
  and call_id in (select id from calls where {_SINCE} and replica = {{replica}})
group by {_MODEL}
"""  # noqa: S608 - our own words


def _is_new(words: Words, table: str) -> str:
    """Return the condition for a row of ``calls`` or ``attempts`` that is in no sum yet."""
    kind = "is_call" if table == "calls" else "not is_call"
    notes = f"rollup_fresh as new where {kind} and" if words.is_postgres else f"rollup_fresh_{table} as new where"
    return f"exists (select 1 from {notes} new.id = {table}.id)"  # noqa: S608 - our own names


class OwnRows(msgspec.Struct, frozen=True):
    """The calls that a replica has counted itself: those that began at ``since`` or later, by its own clock."""

    replica: str
    since: datetime


async def used(
    database: Database, since_s: Sequence[float], until: datetime, own: OwnRows | None = None
) -> list[LimitUse]:
    """Return the usage of clients and models before ``until``, since each of ``since_s`` (Unix seconds; -inf: ever).

    In windows, the usage of others in the five minutes around ``until`` counts, too; that of ``own`` rows does not.

    Raises:
        LedgerError: the database cannot be reached, or its schema is older.

    """
    words, parts = words_of(database), []
    new = {f"new_{table}": _is_new(words, table) for table in ("calls", "attempts")}
    later, least, of_replica = f"started_at >= {words.instant(until)}", words.instant(until), ""
    if own is not None:
        name, since = words.text(own.replica), words.instant(own.since)
        last = words.instant(_last(until.astimezone(UTC)))
        of_replica = _OF_REPLICA.format(since=since, last=last, replica=name, **new)
        later = f"(replica <> {name} and {later} or replica = {name} and started_at >= {since})"
        least = words.instant(min(until, own.since))
    for place, each_s in enumerate(since_s):
        if each_s == -inf:
            parts.append(
                _TOTALS.format(
                    place=place, later=later, least=least, tokens=_TOKENS, model=_MODEL, probes=PROBES, own=OWN, **new
                )
            )
            continue
        within = _within(words, datetime.fromtimestamp(each_s, UTC), until.astimezone(UTC))
        if within != "false":
            parts.append(_CLIENTS.format(place=place, paid=words.paid("cost_usd"), within=within))
            parts.append(_MODELS.format(place=place, probes=PROBES, within=within))
    if not parts:
        return []
    if of_replica:
        parts.append(of_replica)
    sql = " union all ".join(f"select * from ({each}) as part" for each in parts)  # noqa: S608 - our own values
    result = await queries.run(database, sql, timeout_s=TIMEOUT_S)
    rows = [
        (place, client or None, model, float(usd), float(tokens)) for place, client, model, usd, tokens in result.rows
    ]
    pairs_own = {(client, model): (usd, tokens) for place, client, model, usd, tokens in rows if place == _ITS_OWN}
    return [
        _without(LimitUse(since_s[place], usd, tokens, client=client, model=model), pairs_own)
        for place, client, model, usd, tokens in rows
        if place != _ITS_OWN and (usd or tokens)
    ]


def _without(each: LimitUse, own: Mapping[tuple[str | None, str | None], tuple[float, float]]) -> LimitUse:
    """Return the usage without a replica's own part; totals have no such part."""
    usd, tokens = (0.0, 0.0) if each.since_s == -inf else own.get((each.client, each.model), (0.0, 0.0))
    return msgspec.structs.replace(each, usd=max(0.0, each.usd - usd), tokens=max(0.0, each.tokens - tokens))


# For teams and end users rows are read: sums are by single tags, and days with many end users have none.
MOST_PAYERS = 50_000  # those with most usage; each is some hundred bytes of memory
_PAYERS = """
select client, {team} as team, {end_user} as end_user, {sums}
from calls
where started_at >= {since} and started_at < {until} and (cost_usd > 0 or {tokens} > 0)
  and ({team} is not null or {end_user} is not null)
group by 1, 2, 3
order by 4 desc
limit {most}
"""
_PAYERS_TOTALS = """
select client, team, end_user, sum(usd) as usd, sum(tokens) as tokens
from (
  select client, team, end_user, usd, tokens from used_totals where team <> '' or end_user <> ''
  union all
  select coalesce(client, ''), coalesce({team}, ''), coalesce({end_user}, ''), -cost_usd, -({tokens})
  from calls where started_at >= {until} and ({team} is not null or {end_user} is not null) and not {new_calls}
) as each_one
group by 1, 2, 3
order by 4 desc
limit {most}
"""


async def used_by_payers(database: Database, since_s: Iterable[float], until: datetime) -> list[LimitUse]:
    """Return the usage of teams and end users before ``until``, since each of ``since_s`` (-inf: ever).

    Raises:
        LedgerError: the database cannot be reached, or its schema is older.

    """
    words, since_s = words_of(database), sorted(since_s)
    names = {"team": words.tag("team"), "end_user": words.tag("end_user"), "until": words.instant(until)}
    finite = [each_s for each_s in since_s if each_s > -inf and each_s < until.timestamp()]
    uses: list[LimitUse] = []
    if finite:
        starts = [words.instant(datetime.fromtimestamp(each_s, UTC)) for each_s in finite]
        sums = ", ".join(
            f"coalesce(sum(case when started_at >= {start} then {amount} end), 0)"
            for start in starts
            for amount in ("cost_usd", _TOKENS)
        )
        sql = _PAYERS.format(**names, sums=sums, tokens=_TOKENS, since=starts[0], most=MOST_PAYERS)
        for client, team, end_user, *amounts in (await queries.run(database, sql, timeout_s=TIMEOUT_S)).rows:
            uses += [
                LimitUse(each_s, float(usd), float(tokens), client=client, team=team, end_user=end_user)
                for each_s, usd, tokens in zip(finite, amounts[::2], amounts[1::2], strict=True)
                if usd or tokens
            ]
    if -inf in since_s:
        sql = _PAYERS_TOTALS.format(**names, tokens=_TOKENS, most=MOST_PAYERS, new_calls=_is_new(words, "calls"))
        uses += [
            LimitUse(
                -inf,
                max(0.0, float(usd or 0.0)),
                max(0.0, float(tokens or 0.0)),
                client=client or None,
                team=team or None,
                end_user=end_user or None,
            )
            for client, team, end_user, usd, tokens in (await queries.run(database, sql, timeout_s=TIMEOUT_S)).rows
        ]
    return uses
