-- How fast each deployment is, over all time; throughput_1h, _24h and _30d: lately. Of whole windows.
--
-- Quantiles of TTFT (ms) are over attempts that had a first token; those cut before it are n_censored, and the more of
-- them, the more these quantiles flatter: the view leaderboard corrects for it. Speeds (tok/s) are over answers whose
-- tokens the provider reported; their slow tail is p05, the speed that 95 % of these reached. Quantiles are of buckets
-- 9 % wide: the value at which the share is reached, between the edges of its bucket; right to some 3 %.
-- error_rate: errors / (attempts with a first token or an error). Neither 429s (n_rate_limited) nor the client's own
-- faults (bad_request) are errors.
--
-- {window r.}: nothing, or what each window has a row by (throughput_5m).
with sums as (
  select
    {window r.}s.deployment, s.provider,
    cast(sum(r.n) as bigint) as n,
    cast(sum(r.n_first_token) as bigint) as n_first_token,
    cast(sum(r.n_censored) as bigint) as n_censored,
    cast(sum(r.n_errors) as bigint) as n_errors,
    cast(sum(r.n_tried) as bigint) as n_tried,
    cast(sum(r.n_rate_limited) as bigint) as n_rate_limited
  from rollup_attempts as r
  join rollup_series as s on s.id = r.series_id
  where {windows}
  group by {window r.}s.deployment, s.provider
),
per_series as (
  select {window r.}r.series_id, r.metric, r.bucket, sum(r.n) as n
  from rollup_histograms as r
  where {windows} and r.metric in ('ttft', 'tps', 'e2e')
  group by {window r.}r.series_id, r.metric, r.bucket
),
counts as (
  select {window h.}s.deployment, s.provider, h.metric, h.bucket, cast(sum(h.n) as double precision) as n
  from per_series as h
  join rollup_series as s on s.id = h.series_id
  group by {window h.}s.deployment, s.provider, h.metric, h.bucket
),
ordered as (
  select
    *,
    sum(n) over (partition by {window}deployment, provider, metric order by bucket) as so_far,
    sum(n) over (partition by {window}deployment, provider, metric) as total
  from counts
),
quantiles as (
  select
    {window o.}o.deployment, o.provider,
    max(case when o.metric = 'tps' then o.total end) as n_decode,
    {quantile ttft 0.50} as ttft_p50_ms,
    {quantile ttft 0.95} as ttft_p95_ms,
    {quantile ttft 0.99} as ttft_p99_ms,
    {quantile tps 0.50} as decode_p50_tps,
    {quantile tps 0.05} as decode_p05_tps,
    {quantile tps 0.01} as decode_p01_tps,
    {quantile e2e 0.50} as e2e_p50_tps,
    {quantile e2e 0.05} as e2e_p05_tps,
    {quantile e2e 0.01} as e2e_p01_tps
  from ordered as o
  join buckets as b on b.bucket = o.bucket
  group by {window o.}o.deployment, o.provider
)
select
  {window}deployment,
  provider,
  n,
  n_first_token,
  n_censored,
  n_errors,
  n_rate_limited,
  cast(n_errors as double precision) / nullif(n_tried, 0) as error_rate,
  ttft_p50_ms,
  ttft_p95_ms,
  ttft_p99_ms,
  cast(coalesce(n_decode, 0) as bigint) as n_decode,
  decode_p50_tps,
  decode_p05_tps,
  decode_p01_tps,
  e2e_p50_tps,
  e2e_p05_tps,
  e2e_p01_tps
from sums
left join quantiles using ({window}deployment, provider)
