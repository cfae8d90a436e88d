-- As race_value, of whole windows; quantiles are of buckets 9 % wide, and right to some 3 %;
-- the intervals of what was saved of them are of whole buckets.
create view {view} as
with recursive sums as (
  select
    r.model,
    cast(sum(r.n) as bigint) as calls,
    cast(sum(r.n_raced) as bigint) as calls_with_extra,
    cast(sum(r.launched) as bigint) as launched,
    cast(sum(r.extra) as bigint) as extra,
    sum(r.abandoned_cost_low_usd) as abandoned_cost_low_usd,
    sum(r.abandoned_cost_high_usd) as abandoned_cost_high_usd,
    cast(sum(r.n_compared) as bigint) as n_compared,
    sum(r.compared_ttft_ms) as ttft_ms,
    sum(r.saved_seen_ms) as saved_seen_ms,
    cast(sum(r.n_sampled) as double precision) as n_sampled,
    sum(r.saved_predicted_ms) as predicted_ms,
    cast(sum(r.n_explored) as double precision) as n_explored,
    cast(sum(r.n_drawn) as double precision) as n,
    cast(sum(r.n_drawn_failed) as bigint) as n_failed,
    sum(r.seen) as y,
    sum(r.predicted) as x,
    sum(r.seen_seen) as yy,
    sum(r.seen_predicted) as xy,
    sum(r.predicted_predicted) as xx,
    sum(r.seen_cubed) as yyy,
    sum(r.seen_fourth) as yyyy,
    cast(sum(r.n_explored_seen) as bigint) as n_explored_seen,
    sum(r.explored_seen) / nullif(sum(r.n_explored_seen), 0) as explored_ms,
    cast(sum(r.overtaken) as bigint) as overtaken,
    cast(sum(r.rescued) as bigint) as rescued,
    sum(r.race_cost_usd) as cost_usd,
    sum(r.race_cost_low_usd) as cost_low_usd,
    sum(r.race_cost_high_usd) as cost_high_usd,
    sum(r.race_duplicate_cost_usd) as duplicate_cost_usd,
    sum(r.race_duplicate_cost_low_usd) as duplicate_cost_low_usd,
    sum(r.race_duplicate_cost_high_usd) as duplicate_cost_high_usd,
    sum(r.audit_cost_usd) as audit_cost_usd
  from rollup_calls as r
  where {windows}
  group by r.model
),
population as (
  select model, n_compared, ttft_ms, saved_seen_ms, n_sampled, predicted_ms, n_explored from sums where n_compared > 0
),
sample as (
  select model, n, n_failed, y, x, yy, xy, xx, yyy, yyyy, n_explored_seen as n_explored, explored_ms from sums
),
{estimate}
-- As first_tokens of race_value, of buckets.
histograms as (
  select s.model, r.metric, r.bucket, sum(r.n) as n
  from rollup_histograms as r
  join rollup_series as s on s.id = r.series_id
  where {windows} and r.metric in ('call_ttft', 'call_alone', 'audit_alone', 'explored_alone')
  group by s.model, r.metric, r.bucket
),
first_tokens as (
  select
    histograms.model,
    case metric when 'call_ttft' then 'ttft' else 'alone' end as what,
    (from_ms + to_ms) / 2 as ms,
    from_ms,
    to_ms,
    cast(histograms.n as double precision) * case metric
      when 'audit_alone' then n_sampled / saved.n
      when 'explored_alone' then saved.n_explored / (n_audits - saved.n)
      else 1
    end as weight,
    case metric when 'audit_alone' then histograms.n else 0 end as n_drawn
  from histograms
  join buckets on buckets.bucket = histograms.bucket
  join saved on saved.model = histograms.model
  where metric in ('call_ttft', 'call_alone') or basis <> 'curve'
),
{quantiles}
counts as (
  select model, calls, calls_with_extra, launched, extra, abandoned_cost_low_usd, abandoned_cost_high_usd from sums where calls > 0
),
costs as (
  select
    model, overtaken, rescued, cost_usd, cost_low_usd, cost_high_usd, duplicate_cost_usd, duplicate_cost_low_usd,
    duplicate_cost_high_usd, audit_cost_usd
  from sums
)
{figures}
