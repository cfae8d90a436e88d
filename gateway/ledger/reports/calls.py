"""The list of calls, and single calls: from the ledger, and from memory before rows are stored; calls by region."""

import uuid
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord, CallStart
from gateway.core.columns import names_of
from gateway.core.reports import OF_WINNER, CallEnd, CallsFilter, FoundCall, SoleUser, Table, Window
from gateway.core.rules import CLIENT_LEFT
from gateway.ledger.entries import ATTEMPT_COLUMNS, CALL_COLUMNS, Audited, Finished, Shippable
from gateway.ledger.reports import reader as shapes
from gateway.ledger.reports.reader import Reader, Words, conditions
from gateway.ledger.sums import all_cost

_OF_CALL, _OF_ATTEMPT = names_of(CallRecord, "listed"), names_of(AttemptRecord, "listed")
_OUR_VERSION = 7  # of UUIDs
_A_MINUTE = timedelta(minutes=1)  # by which a clock may be set back between a call and its attempts
_A_DAY = timedelta(days=1)  # longer than the time between an id and its row, or between a call and its attempts


async def listed(reader: Reader, unshipped: Iterable[Shippable], wanted: CallsFilter, since: datetime | None) -> Table:
    """Return the page of calls after ``wanted.after``, from ``since`` on, plus one call if there are more.

    ``unshipped`` must be read before this, so that no call is missing in both.
    """
    recent = [
        _listed(entry.call, attempts=wanted.attempts)
        for entry in unshipped
        if isinstance(entry, Finished) and _fits(wanted, since, entry.call)
    ]
    records = shapes.rows(await reader.run(_list_sql(reader.words, wanted, since, wanted.limit + 1)))
    rows = [{**row, "id": str(row["id"]), "is_stored": True} for row in records]
    stored = {row["id"] for row in rows}
    rows += [row for row in recent if row["id"] not in stored]
    rows.sort(key=lambda row: (row["started_at"], row["id"]), reverse=True)
    if wanted.attempts:
        await _add_attempts(reader, [row for row in rows[: wanted.limit] if row["is_stored"]])
    return Table(rows[: wanted.limit + 1], _list_sql(reader.words, wanted, since, wanted.limit))


async def _add_attempts(reader: Reader, calls: list[dict[str, Any]]) -> None:
    """Add to each of these rows the call's attempts, read in one statement."""
    by_call: dict[str, list[dict[str, Any]]] = {row["id"]: row.setdefault("attempts", []) for row in calls}
    if not by_call:
        return
    words, columns = reader.words, ", ".join(_OF_ATTEMPT)
    ids = ", ".join(words.text(each) for each in by_call)
    sql = f"select {columns} from attempts where call_id in ({ids})"  # noqa: S608 - quoted
    if words.is_postgres:  # the time selects the partitions
        begun = [row["started_at"] for row in calls]
        since, until = words.instant(min(begun) - _A_MINUTE), words.instant(max(begun) + _A_DAY)
        sql += f" and started_at >= {since} and started_at < {until}"
    for each in sorted(shapes.rows(await reader.run(sql)), key=_number):
        by_call[str(each["call_id"])].append(each)


async def exist(reader: Reader, unshipped: Iterable[Shippable]) -> bool:
    """Whether there is any call, in memory or in the ledger."""
    if any(isinstance(entry, Finished) for entry in unshipped):
        return True
    return bool((await reader.run("select 1 from calls limit 1")).rows)


async def found(
    reader: Reader,
    unshipped: Iterable[Shippable],
    running: CallStart | None,
    call_id: str,
    *,
    own: SoleUser | None = None,
) -> FoundCall | None:
    """Return one call; None if neither memory nor the ledger has the call, or if it is not one of ``own``.

    ``running``: the call's start, if the call has not ended.
    """
    there = f"= '{call_id}'{_around(reader.words, call_id)}"
    call_sql = " and ".join((f"select * from calls where id {there}", *_of_own(reader.words, own)))  # noqa: S608 - a UUID
    sql = f"select * from attempts where call_id {there} order by number"  # noqa: S608 - a UUID
    late: list[dict[str, Any]] = []
    finished: CallRecord | None = None
    for entry in unshipped:
        if isinstance(entry, Finished) and entry.call.id == call_id:
            finished = entry.call
        elif isinstance(entry, Audited) and entry.call_id == call_id:
            late += [shapes.of_record(attempt, ATTEMPT_COLUMNS) for attempt in entry.attempts]
    record = finished or running
    if record is not None and own is not None and not own.has(record.client, record.tags):
        return None
    if finished is not None:
        attempts = [*(shapes.of_record(each, ATTEMPT_COLUMNS) for each in finished.attempts), *late]
        call = shapes.of_record(finished, CALL_COLUMNS)
        return FoundCall(call, sorted(attempts, key=_number), "memory", sql, call_sql)
    if running is not None:
        call = shapes.of_record(running, CALL_COLUMNS) | {"api": running.endpoint, "launched": len(running.attempts)}
        attempts = [shapes.of_record(each, ATTEMPT_COLUMNS) | {"call_id": call_id} for each in running.attempts]
        return FoundCall(call, attempts, "running", sql, call_sql)
    rows = shapes.rows(await reader.run(call_sql))
    if not rows:
        return None
    attempts = shapes.rows(await reader.run(sql))
    stored = {str(each["id"]) for each in attempts}
    attempts += [each for each in late if each["id"] not in stored]
    return FoundCall(rows[0], sorted(attempts, key=_number), "ledger", sql, call_sql)


async def by_region(reader: Reader, window: Window) -> Table:
    """Return the calls of an hour or a day by model and region."""
    sql = f"select * from regions_{window} order by model, region"  # noqa: S608 - our own values
    return Table(shapes.rows(await reader.run(sql)), sql)


async def used_by(reader: Reader, own: SoleUser, since: datetime) -> Table:
    """Return one person's usage and speeds: of all models (null), and of each model, the most used first.

    A quantile is the value of a call: e.g. the p95 of a time is the least value that 95 % of calls do not exceed; of a
    speed, the value that they reach.
    """
    words = reader.words
    which = "\n    and ".join([f"started_at >= {words.instant(since)}", *_of_own(words, own)])
    places = ",\n    ".join(
        f"row_number() over (partition by model order by {name} is null, {name}) as {name}_place,"
        f" count({name}) over (partition by model) as {name}_n"
        for name in ("ttft_ms", "decode_tps")
    )
    quantiles = ", ".join(
        f"min({name}) filter (where {name}_place >= {share} * {name}_n and {name} is not null) as {column}"
        for column, name, share in _QUANTILES
    )
    sql = f"""\
with mine as (
  select
    c.model, c.ttft_ms, winner.decode_tps, c.prompt_tokens, c.completion_tokens, c.error_kind, c.status_code,
    {all_cost(words, "c.cost_usd")} as cost_usd
  from (
    select * from calls
    where {which}
  ) as c
  left join attempts as winner on {_WINNER[words.is_postgres].replace("calls.", "c.")}
),
listed as (
  select * from mine
  union all
  select null, ttft_ms, decode_tps, prompt_tokens, completion_tokens, error_kind, status_code, cost_usd from mine
),
placed as (
  select *, {places}
  from listed
)
select
  model, count(*) as calls, count(*) filter (where {conditions()["failed"]}) as failed,
  cast(sum(prompt_tokens) as bigint) as prompt_tokens, cast(sum(completion_tokens) as bigint) as completion_tokens,
  sum(cost_usd) as cost_usd, {quantiles}
from placed
group by model
order by model is not null, count(*) desc, model"""  # noqa: S608 - values are quoted by ``Words``
    return Table(shapes.rows(await reader.run(sql)), sql)


_QUANTILES = (
    ("ttft_p50_ms", "ttft_ms", 0.5),
    ("ttft_p95_ms", "ttft_ms", 0.95),
    ("decode_p50_tps", "decode_tps", 0.5),
    ("decode_p05_tps", "decode_tps", 0.05),
)


def _list_sql(words: Words, wanted: CallsFilter, since: datetime | None, limit: int) -> str:
    columns = ", ".join(f"calls.{name}" for name in _OF_CALL)
    of_winner = ", ".join(f"winner.{name}" for name in OF_WINNER)
    conditions = "\n    and ".join(_conditions(words, wanted, since)) or "true"
    return f"""\
select {columns},
  coalesce(calls.api, calls.endpoint) as api, {of_winner}
from (
  select * from calls
  where {conditions}
  order by started_at desc, id desc limit {limit}
) as calls
left join attempts as winner on {_WINNER[words.is_postgres]}
order by calls.started_at desc, calls.id desc"""  # noqa: S608 - values are quoted by ``Words``


# On Postgres with a condition on time, which selects the partition.
_WINNER = {
    False: "winner.id = calls.winner_attempt_id and winner.call_id = calls.id",
    True: (
        "winner.id = calls.winner_attempt_id and winner.call_id = calls.id\n"
        "  and winner.started_at >= calls.started_at - interval '1 minute'"
        " and winner.started_at < calls.started_at + interval '1 day'"
    ),
}


def _conditions(words: Words, wanted: CallsFilter, since: datetime | None) -> list[str]:
    """Return the SQL conditions for the wanted calls; ``_fits`` has the same rules for records."""
    criteria = [] if since is None else [f"started_at >= {words.instant(since)}"]
    criteria += _of_own(words, wanted.own)
    if (after := wanted.after) is not None:
        at = words.instant(after.started_at)
        criteria += [f"started_at <= {at}", f"(started_at < {at} or id < {words.text(after.id)})"]
    if wanted.model is not None:
        criteria.append(f"model = {words.text(wanted.model)}")
    if wanted.client is not None:
        criteria.append(f"client = {words.text(wanted.client)}" if wanted.client else "client is null")
    if wanted.tag is not None:
        criteria.append(words.has_tag(*wanted.tag))
    if wanted.error is not None:
        criteria.append(f"error_kind = {words.text(wanted.error)}")
    if wanted.request_id is not None:
        criteria.append(f"request_id = {words.text(wanted.request_id)}")
    if wanted.slower_than_ms is not None:
        criteria.append(f"coalesce(ttft_ms, total_ms) > {wanted.slower_than_ms!r}")
    if wanted.outcome is not None:
        criteria.append(_ENDED[wanted.outcome])
    if wanted.deployment is not None:
        winner = f"{_WINNER[words.is_postgres]} and winner.deployment = {words.text(wanted.deployment)}"
        criteria.append(f"exists (select 1 from attempts as winner where {winner})")  # noqa: S608 - quoted
    return criteria


def _of_own(words: Words, own: SoleUser | None) -> list[str]:
    """Return the SQL conditions for one person's calls; ``SoleUser.has`` has the same rules. None: no condition."""
    if own is None:
        return []
    tags = own.tags.items()
    return [
        f"client = {words.text(own.client)}",
        *(f"{words.tag(name)} is null" if value is None else words.has_tag(name, value) for name, value in tags),
    ]


_ENDED = {
    CallEnd.OK: "error_kind is null",
    CallEnd.FAILED: conditions()["failed"],
    CallEnd.REJECTED: f"error_kind is not null and {conditions()['own_fault']}",
    CallEnd.LEFT: f"error_kind is not null and status_code = {CLIENT_LEFT}",
}


def _fits(wanted: CallsFilter, since: datetime | None, call: CallRecord) -> bool:
    """Whether a record in memory is wanted; ``_conditions`` has the same rules for rows."""
    after = wanted.after
    waited_ms = call.total_ms if call.ttft_ms is None else call.ttft_ms
    return (
        (since is None or call.started_at >= since)
        and (after is None or (call.started_at, call.id) < (after.started_at, after.id))
        and wanted.model in {None, call.model}
        and wanted.client in {None, call.client or ""}
        and (wanted.tag is None or call.tags.get(wanted.tag[0]) == wanted.tag[1])
        and (wanted.own is None or wanted.own.has(call.client, call.tags))
        and wanted.error in {None, call.error_kind}
        and wanted.request_id in {None, call.request_id}
        and (wanted.slower_than_ms is None or waited_ms > wanted.slower_than_ms)
        and wanted.outcome in {None, _ended(call)}
        and wanted.deployment in {None, _of_winner(call)["deployment"]}
    )


def _ended(call: CallRecord) -> CallEnd:
    if call.error_kind is None:
        return CallEnd.OK
    if call.failed:
        return CallEnd.FAILED
    return CallEnd.LEFT if call.status_code == CLIENT_LEFT else CallEnd.REJECTED


def _of_winner(call: CallRecord) -> dict[str, Any]:
    winner = next((each for each in call.attempts if each.id == call.winner_attempt_id), None)
    return {name: getattr(winner, name, None) for name in OF_WINNER}


def _listed(call: CallRecord, *, attempts: bool) -> dict[str, Any]:
    row = shapes.of_record(call, _OF_CALL)
    row |= {"api": call.api or call.endpoint, **_of_winner(call), "is_stored": False}
    if attempts:
        ordered = sorted(call.attempts, key=lambda each: each.number)
        row["attempts"] = [shapes.of_record(each, _OF_ATTEMPT) for each in ordered]
    return row


def _number(attempt: dict[str, Any]) -> int:
    return int(attempt["number"])


def _around(words: Words, call_id: str) -> str:
    """Return a condition that limits Postgres to some partitions, as our ids begin with their time."""
    uuid_of_call = uuid.UUID(call_id)
    if not words.is_postgres or uuid_of_call.version != _OUR_VERSION:
        return ""
    try:
        at = datetime.fromtimestamp((uuid_of_call.int >> 80) / 1000, UTC)
        return f" and started_at > {words.instant(at - _A_DAY)} and started_at < {words.instant(at + _A_DAY)}"
    except (ValueError, OverflowError):  # after the year 9999: not our id
        return ""
