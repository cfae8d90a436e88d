-- System throughput, as the field defines it: per window of five minutes (UTC), model and client, calls and tokens of all
-- calls together over the wall clock, of the last 24 hours.
--
-- A call counts where it began. load_rps and load_tps: calls, and completion tokens, a second of the window (300 s).
-- itl_...: the gaps between the chunks of all attempts together (ms), null where no answer had two.
with gaps as (  -- a client's share of a model is one series; by their numbers they are in the index's order
  select r.window_start, r.series_id, 'itl' as metric, r.bucket, cast(r.n as double precision) as n
  from rollup_histograms as r
  where r.minutes = 5 and r.window_start >= {ago 24 hours} and r.metric = 'load_itl'
),
ordered as (
  select
    *,
    sum(n) over (partition by window_start, series_id order by bucket rows unbounded preceding) as so_far,
    sum(n) over (partition by window_start, series_id) as total
  from gaps
),
itl as (
  select
    o.window_start, s.model, s.client,
    {quantile itl 0.50} as itl_p50_ms,
    {quantile itl 0.95} as itl_p95_ms,
    {quantile itl 0.99} as itl_p99_ms
  from ordered as o
  join buckets as b on b.bucket = o.bucket
  join rollup_series as s on s.id = o.series_id
  where o.so_far >= 0.50 * o.total  -- buckets below have none of these
  group by o.window_start, s.model, s.client
)
select
  r.window_start,
  r.model,
  nullif(r.client, '') as client,
  r.n,
  cast(r.n as double precision) / 300 as load_rps,
  r.prompt_tokens,
  r.completion_tokens,
  cast(coalesce(r.completion_tokens, 0) as double precision) / 300 as load_tps,
  itl_p50_ms,
  itl_p95_ms,
  itl_p99_ms
from rollup_calls as r
left join itl on itl.window_start = r.window_start and itl.model = r.model and itl.client = r.client
where r.minutes = 5 and r.window_start >= {ago 24 hours} and r.n > 0
