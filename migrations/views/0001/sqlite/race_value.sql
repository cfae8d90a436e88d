-- Per model, what racing saved and what it cost.
--
-- extra_per_call: attempts beyond the first of each call. overtaken: calls answered by another attempt than the primary.
-- rescued: calls answered although the primary failed. saved_ms_at_least: how much later the primary's own first token
-- would have come, summed over overtaken calls and averaged over all; a primary cut at the claim is known only to have
-- been slower than its age, so both are lower bounds. cost_usd: winners and losers, those
-- that were watched beyond the end of their call too, as far as prices are known; duplicate_cost_usd: the losers alone.
create view race_value as
with costs as (
  select
    attempts.call_id,
    sum(attempts.cost_usd) as cost_usd,
    sum(attempts.cost_usd) filter (where attempts.id is not calls.winner_attempt_id) as duplicate_cost_usd
  from attempts
  join calls on calls.id = attempts.call_id
  group by attempts.call_id
),
raced as (
  select
    calls.model, calls.launched, calls.ttft_ms, costs.cost_usd, costs.duplicate_cost_usd,
    calls.winner_attempt_id is not null and calls.winner_attempt_id <> first.id as overtaken,
    first.outcome in ('failed', 'timeout', 'stalled') as primary_failed,
    first.launch_offset_ms + coalesce(first.ttft_ms, first.censored_at_ms) as primary_at_least_ms
  from calls
  left join attempts as first on first.call_id = calls.id and first.number = 1
  left join costs on costs.call_id = calls.id
),
saved as (
  select
    *,
    case
      when overtaken and not primary_failed and primary_at_least_ms > ttft_ms then primary_at_least_ms - ttft_ms
      else 0.0
    end as saved_ms
  from raced
)
select
  model,
  count(*) as calls,
  count(*) filter (where launched > 1) as calls_with_extra,
  sum(launched) as launched,
  cast(sum(case when launched > 1 then launched - 1 else 0 end) as double precision) / count(*) as extra_per_call,
  count(*) filter (where overtaken) as overtaken,
  count(*) filter (where overtaken and primary_failed) as rescued,
  sum(saved_ms) as saved_ms_at_least,
  sum(saved_ms) / count(*) as saved_ms_at_least_per_call,
  sum(cost_usd) as cost_usd,
  sum(duplicate_cost_usd) as duplicate_cost_usd,
  sum(duplicate_cost_usd) / nullif(sum(cost_usd), 0) as duplicate_cost_share
from saved
group by model
