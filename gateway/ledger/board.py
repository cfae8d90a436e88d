"""The board's counts for a period, from the ledger: the fields of the board, summed in SQL."""

from datetime import datetime

from gateway.ledger import queries
from gateway.ledger.connections import Database
from gateway.ledger.reports.reader import words_of

# Instants are text, which both databases accept. Only sums are returned: an hour may have a million rows.
_QUERY = """
with recent as (select * from samples where {which}),
totals as (
  select
    model, slot, deployment, prompt_class / 10 as api,
    count(*) filter (where is_counted) as n, count(*) filter (where is_error) as err,
    count(*) filter (where is_rate_limited) as lim, count(*) filter (where is_won) as won,
    count(*) filter (where is_judged) as judged, count(*) filter (where is_flawed) as flawed,
    count(*) filter (where is_overtaken) as over_all, count(*) filter (where is_watched) as aud,
    count(*) filter (where is_overtaken and is_spoken) as spoken_over,
    count(*) filter (where is_watched and is_spoken) as spoken_aud,
    sum(decode_tokens) as tok, sum(decode_s) as sec, sum(e2e_tokens) as etok, sum(e2e_s) as esec, sum(stall_s) as stall
  from recent
  group by model, slot, deployment, prompt_class / 10
),
histogram as (
  select
    model, slot, deployment || '|' || prompt_class || '|' || spoken.mark as owner, bucket,
    count(token_ms) as events, count(token_ms) filter (where is_watched) as audited_events,
    count(censored_ms) as censored, count(censored_ms) filter (where is_watched) as audited_censored,
    count(token_ms) filter (where is_late) as late_events,
    count(censored_ms) filter (where not is_late and not is_overtaken) as fair_censored
  from recent
  join (select '' as mark union all select 's') as spoken on spoken.mark = '' or is_spoken
  where bucket is not null
  group by model, slot, deployment, prompt_class, spoken.mark, bucket
),
answers as (
  select
    model, deployment, slot, count(*) filter (where is_timed) as answers, count(*) filter (where is_burst) as bursts
  from recent
  group by model, deployment, slot
)
select model, slot, owner || 'e' || bucket as field, events as amount from histogram where events > 0
union all select model, slot, owner || 'ae' || bucket, audited_events from histogram where audited_events > 0
union all select model, slot, owner || 'c' || bucket, censored from histogram where censored > 0
union all select model, slot, owner || 'ac' || bucket, audited_censored from histogram where audited_censored > 0
union all select model, slot, owner || 'l' || bucket, late_events from histogram where late_events > 0
union all select model, slot, owner || 'g' || bucket, fair_censored from histogram where fair_censored > 0
union all select model, slot, deployment || '|over', over_all from totals
union all select model, slot, deployment || '|aud', aud from totals
union all select model, slot, deployment || '|sover', spoken_over from totals where spoken_over > 0
union all select model, slot, deployment || '|saud', spoken_aud from totals where spoken_aud > 0
union all select model, slot, deployment || '|n', n from totals
union all select model, slot, deployment || '|err', err from totals
union all select model, slot, deployment || '|' || api || '|ended', n from totals where api > 0 and n > 0
union all select model, slot, deployment || '|' || api || '|failed', err from totals where api > 0 and err > 0
union all select model, slot, deployment || '|lim', lim from totals
union all select model, slot, deployment || '|won', won from totals
union all select model, slot, deployment || '|judged', judged from totals
union all select model, slot, deployment || '|flawed', flawed from totals
union all select model, slot, deployment || '|tok', tok from totals where sec > 0
union all select model, slot, deployment || '|sec', sec from totals where sec > 0
union all select model, slot, deployment || '|etok', etok from totals where esec > 0
union all select model, slot, deployment || '|esec', esec from totals where esec > 0
union all select model, slot, deployment || '|stall', stall from totals where stall > 0
union all select model, slot, deployment || '|ans', answers from answers where answers > 0
union all select model, slot, deployment || '|burst', bursts from answers where bursts > 0
"""


async def counts_since(
    database: Database, since: datetime, until: datetime | None = None
) -> dict[str, dict[int, dict[str, float]]]:
    """Return the counts of attempts launched at ``since`` or later, before ``until``: model → slot → field → amount.

    The policy's own figures of first tokens are missing, as the ledger does not know the sizes of prompts.

    Raises:
        QueryError: the query takes too long.
        DatabaseUnreachableError: the database cannot be reached.
        DatabaseUrlError: as for ``parse_url``.

    """
    words = words_of(database)
    which = f"started_at >= {words.instant(since)}"
    if until is not None:
        which += f" and started_at < {words.instant(until)}"
    result = await queries.run(database, _QUERY.format(which=which))
    models: dict[str, dict[int, dict[str, float]]] = {}
    for model, slot, field, amount in result.rows:
        counts = models.setdefault(model, {}).setdefault(int(slot), {})
        counts[field] = counts.get(field, 0.0) + float(amount)
    return models
