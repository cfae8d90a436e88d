-- Inter-token latency: per model and deployment, the gaps between the chunks of all answers together (ms), as their readers
-- saw them. Of whole windows, quantiles of buckets 9 % wide.
with per_series as (
  select r.series_id, r.bucket, sum(r.n) as n
  from rollup_histograms as r
  where {windows} and r.metric = 'itl'
  group by r.series_id, r.bucket
),
counts as (
  select s.model, s.deployment, s.provider, 'itl' as metric, h.bucket, cast(sum(h.n) as double precision) as n
  from per_series as h
  join rollup_series as s on s.id = h.series_id
  where s.deployment <> ''
  group by s.model, s.deployment, s.provider, h.bucket
),
ordered as (
  select
    *,
    sum(n) over (partition by model, deployment, provider order by bucket) as so_far,
    sum(n) over (partition by model, deployment, provider) as total
  from counts
)
select
  o.model,
  o.deployment,
  o.provider,
  cast(max(o.total) as bigint) as n,
  {quantile itl 0.50} as itl_p50_ms,
  {quantile itl 0.95} as itl_p95_ms,
  {quantile itl 0.99} as itl_p99_ms
from ordered as o
join buckets as b on b.bucket = o.bucket
group by o.model, o.deployment, o.provider
