-- Per model and region, calls of the last hour or day by where their replica runs (setting region), so that regions compare.
--
-- region is null where a replica has none. n_failed: ended with an error that was not the client's own fault, also in the middle of
-- a stream. A quantile is the first value at which the share is reached, of n_ttft calls with a first token; total_mean_ms is of
-- calls without an error. extra_per_call: attempts that ran beside another one.
with judged as (
  select
    model, region, ttft_ms, total_ms, error_kind, cost_usd,
    coalesce(extras, case when launched > 1 then launched - 1 else 0 end) as extras,
    {failed} as is_failed
  from calls
  where started_at >= {since}
),
ranked as (
  select
    *,
    row_number() over (partition by model, region, ttft_ms is null order by ttft_ms) as ttft_rank,
    cast(count(ttft_ms) over (partition by model, region) as double precision) as ttft_n
  from judged
)
select
  model,
  region,
  count(*) as n,
  count(*) filter (where is_failed) as n_failed,
  count(ttft_ms) as n_ttft,
  min(ttft_ms) filter (where ttft_rank >= 0.50 * ttft_n) as ttft_p50_ms,
  min(ttft_ms) filter (where ttft_rank >= 0.95 * ttft_n) as ttft_p95_ms,
  min(ttft_ms) filter (where ttft_rank >= 0.99 * ttft_n) as ttft_p99_ms,
  avg(total_ms) filter (where error_kind is null) as total_mean_ms,
  cast(sum(extras) as double precision) / count(*) as extra_per_call,
  sum(cost_usd) as cost_usd
from ranked
group by model, region
