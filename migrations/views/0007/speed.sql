-- Per hour (speed_hours, of the last week) or day (speed_days, of the last two months), model and deployment, how fast it
-- was. Quantiles are of first tokens that came, out of buckets 9 % wide: where many attempts are raced the slow ones were
-- cut, so compare times, not deployments.
create view {view} as
with sums as (
  select
    r.window_start, s.model, s.deployment, s.provider,
    cast(sum(r.n) as bigint) as n,
    cast(sum(r.n_first_token) as bigint) as n_first_token,
    cast(sum(r.n_errors) as bigint) as n_errors,
    cast(sum(r.n_rate_limited) as bigint) as n_rate_limited
  from rollup_attempts as r
  join rollup_series as s on s.id = r.series_id
  where r.minutes = {minutes} and r.window_start >= {since}
  group by r.window_start, s.model, s.deployment, s.provider
),
counts as (
  select r.window_start, s.model, s.deployment, r.metric, r.bucket, cast(sum(r.n) as double precision) as n
  from rollup_histograms as r
  join rollup_series as s on s.id = r.series_id
  where r.minutes = {minutes} and r.window_start >= {since} and r.metric in ('ttft', 'tps')
  group by r.window_start, s.model, s.deployment, r.metric, r.bucket
),
ordered as (
  select
    *,
    sum(n) over (partition by window_start, model, deployment, metric order by bucket) as so_far,
    sum(n) over (partition by window_start, model, deployment, metric) as total
  from counts
),
quantiles as (
  select
    o.window_start, o.model, o.deployment,
    {quantile ttft 0.50} as ttft_p50_ms,
    {quantile ttft 0.95} as ttft_p95_ms,
    {quantile tps 0.50} as decode_tps_p50,
    {quantile tps 0.05} as decode_tps_p95
  from ordered as o
  join buckets as b on b.bucket = o.bucket
  group by o.window_start, o.model, o.deployment
)
select
  sums.window_start,
  sums.model,
  sums.deployment,
  sums.provider,
  n,
  n_first_token,
  n_errors,
  n_rate_limited,
  ttft_p50_ms,
  ttft_p95_ms,
  decode_tps_p50,
  decode_tps_p95
from sums
left join quantiles
  on quantiles.window_start = sums.window_start and quantiles.model = sums.model and quantiles.deployment = sums.deployment
