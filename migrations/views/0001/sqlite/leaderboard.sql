-- Per model, its deployments in the order of their TTFT over the last 24 hours, losers included.
--
-- An attempt cut before its first token is known to have been slower than its age: quantiles are Kaplan-Meier's, over
-- first tokens (events) and cut attempts (censored). Null: not reached, or no first token. n_censored says how much
-- hangs on it. Ranked by the median, then by the p95; speed is the median of what the provider reported.
--
-- SQLite may be built without ln and exp, so the product is taken step by step.
create view leaderboard as
with recursive recent as materialized (
  select
    calls.model, attempts.deployment, attempts.provider, attempts.ttft_ms, attempts.censored_at_ms,
    case when attempts.tokens_source = 'reported' then attempts.decode_tps end as decode_tps,
    attempts.outcome in ('failed', 'timeout', 'stalled')
      and coalesce(attempts.error_kind, '') not in ('rate_limited', 'bad_request') as is_error
  from attempts
  join calls on calls.id = attempts.call_id
  where attempts.started_at > datetime('now', '-24 hours')
),
at_risk as materialized (
  select
    model, deployment, provider,
    ttft_ms is not null as is_event,
    coalesce(ttft_ms, censored_at_ms) as age_ms,
    count(*) over (partition by model, deployment, provider)
      - row_number() over by_age + 1 as at_risk,
    row_number() over by_age as position
  from recent
  where coalesce(ttft_ms, censored_at_ms) is not null
  window by_age as (partition by model, deployment, provider order by coalesce(ttft_ms, censored_at_ms), ttft_ms is null)
),
survival as (  -- the share of attempts still without a first token at age_ms: the product of (1 - 1 / at_risk) at events
  select distinct model, deployment, provider, 0 as position, null as age_ms, 1.0 as waiting from at_risk
  union all
  select
    model, deployment, provider, at_risk.position, at_risk.age_ms,
    waiting * (1 - is_event * 1.0 / at_risk.at_risk)
  from survival
  join at_risk using (model, deployment, provider)
  where at_risk.position = survival.position + 1
),
quantiles as (
  select
    model, deployment, provider,
    min(age_ms) filter (where waiting <= 0.50 + 1.0e-9) as ttft_p50_ms,
    min(age_ms) filter (where waiting <= 0.05 + 1.0e-9) as ttft_p95_ms
  from survival
  group by model, deployment, provider
),
ranked as (
  select
    *,
    row_number() over (partition by model, deployment, provider, decode_tps is null order by decode_tps) - 1
      as decode_tps_rank,
    count(decode_tps) over (partition by model, deployment, provider) - 1 as decode_tps_last
  from recent
),
counts as (
  select
    model, deployment, provider,
    count(*) as n,
    count(ttft_ms) as n_first_token,
    count(*) filter (where ttft_ms is null and censored_at_ms is not null) as n_censored,
    cast(count(*) filter (where is_error) as double precision)
      / nullif(count(*) filter (where is_error or ttft_ms is not null), 0) as error_rate,
    sum(decode_tps * max(0.0, 1 - abs(decode_tps_rank - 0.50 * decode_tps_last))) as decode_tps_p50
  from ranked
  group by model, deployment, provider
)
select
  model,
  row_number() over (
    partition by model order by ttft_p50_ms nulls last, ttft_p95_ms nulls last, deployment, provider
  ) as rank,
  deployment,
  provider,
  n,
  n_first_token,
  n_censored,
  error_rate,
  ttft_p50_ms,
  ttft_p95_ms,
  decode_tps_p50
from counts
left join quantiles using (model, deployment, provider)
