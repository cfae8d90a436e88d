-- Per hour of the day (speed_by_hour, of the last week), hour (speed_hours, of the last week) or day (speed_days, of the last
-- 30), model and deployment, how fast it was. Quantiles are of first tokens that came, out of buckets 9 % wide: where many
-- attempts are raced the slow ones were cut, so compare times, not deployments. decode_tps_p05, also called _p95, is what
-- 95 % of the answers reach.
with groups as (  -- numbers are grouped in half the time that names take
  select id, min(id) over (partition by model, deployment) as group_id from rollup_series
),
sums as (
  select
    {slot} as {named}, g.group_id,
    cast(sum(r.n) as bigint) as n,
    cast(sum(r.n_first_token) as bigint) as n_first_token,
    cast(sum(r.n_errors) as bigint) as n_errors,
    cast(sum(r.n_rate_limited) as bigint) as n_rate_limited
  from rollup_attempts as r
  join groups as g on g.id = r.series_id
  where r.minutes = {minutes} and r.window_start >= {since}
  group by {slot}, g.group_id
),
counts as (
  select {slot} as {named}, g.group_id, r.metric, r.bucket, cast(sum(r.n) as double precision) as n
  from rollup_histograms as r
  join groups as g on g.id = r.series_id
  where r.minutes = {minutes} and r.window_start >= {since} and r.metric in ('ttft', 'tps')
  group by {slot}, g.group_id, r.metric, r.bucket
),
ordered as (
  select
    *,
    sum(n) over (partition by {named}, group_id, metric order by bucket) as so_far,
    sum(n) over (partition by {named}, group_id, metric) as total
  from counts
),
quantiles as (
  select
    o.{named}, o.group_id,
    {quantile ttft 0.50} as ttft_p50_ms,
    {quantile ttft 0.95} as ttft_p95_ms,
    {quantile tps 0.50} as decode_tps_p50,
    {quantile tps 0.05} as decode_tps_p95
  from ordered as o
  join buckets as b on b.bucket = o.bucket
  group by o.{named}, o.group_id
)
select
  sums.{named},
  s.model,
  s.deployment,
  s.provider,
  n,
  n_first_token,
  n_errors,
  n_rate_limited,
  ttft_p50_ms,
  ttft_p95_ms,
  decode_tps_p50,
  decode_tps_p95,
  decode_tps_p95 as decode_tps_p05
from sums
join rollup_series as s on s.id = sums.group_id
left join quantiles on quantiles.{named} = sums.{named} and quantiles.group_id = sums.group_id
