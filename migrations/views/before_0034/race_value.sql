-- Per model, what racing saved and what it cost.
--
-- Without racing the primary runs alone, and when it fails the next one is launched then. saved_ms: how much later first
-- tokens would have come so, all calls together, with its 95 % interval. Of calls whose primary was not overtaken that is
-- seen (calls.alone_ms). An overtaken one is cut, unless the call was drawn to be audited: of the others the prediction
-- made at the cut counts, times what audits saw over what was predicted for them. basis: 'seen', nothing had to be
-- estimated; 'audited'; 'curve': below 30 audits (n_audits) the bare prediction, mostly 0.8 to 1.5 times the truth, so
-- there is no interval and no quantile. A wait of more than 30 s counts as 30 s, a primary that fails once overtaken (of
-- audited ones n_audits_failed) as no saving. ttft_...: with racing, alone_...: without, of the same calls (n_compared).
-- extra_per_call: attempts beyond the first of each call. overtaken: calls answered by another attempt than the primary.
-- rescued: calls answered although the primary failed. cost_usd: all attempts, as far as prices are known;
-- duplicate_cost_usd: what racing added; abandoned_cost: of answers whose clients left; audit_cost_usd: overtaken
-- attempts that were watched on, part of duplicate_cost_usd. low and high: at least and at most.
-- saved_p50_ms and so on: alone_... - ttft_...; what racing took off the quantile, not the quantile of what calls saved.
-- Their intervals of 95 % hold what audits leave open (null where audits are too few), and that either quantile may be
-- anywhere in its bucket.
-- held_ms: how long first tokens were held back because calls asked for that, all n_held calls together. It is in ttft_...,
-- so it is taken off saved_... already.
-- Of whole windows; quantiles are of buckets 9 % wide, as if values were spread evenly in them, and right to some 3 %.
with recursive sums as (
  select
    r.{key} as model,
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
    cast(sum(r.n_held) as bigint) as n_held,
    sum(r.held_ms) as held_ms,
    cast(sum(r.n_drawn) as double precision) as n,
    cast(sum(r.n_drawn_failed) as bigint) as n_failed,
    sum(r.seen) as y,
    sum(r.predicted) as x,
    sum(r.seen_seen) as yy,
    sum(r.seen_predicted) as xy,
    sum(r.predicted_predicted) as xx,
    sum(r.seen_cubed) as yyy,
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
  group by r.{key}
),
population as (
  select model, n_compared, ttft_ms, saved_seen_ms, n_sampled, predicted_ms, n_explored, n_held, held_ms from sums where n_compared > 0
),
sample as (
  select model, n, n_failed, y, x, yy, xy, xx, yyy, n_explored_seen as n_explored, explored_ms from sums
),
ratio as (
  select
    population.*,
    coalesce(n, 0) as n,
    coalesce(n_failed, 0) as n_failed,
    coalesce(n, 0) + coalesce(sample.n_explored, 0) as n_audits,
    case when n_sampled = 0 then 'seen' when n >= 30 and y > 0 and x > 0 then 'audited' else 'curve' end as basis,
    case when n >= 30 and y > 0 and x > 0 then y / x else 1 end as ratio,
    coalesce(population.n_explored * sample.explored_ms, 0) as saved_explored_ms,
    case when n >= 30 and y > 0 and x > 0 then
      (case when n < n_sampled then 1 - n / n_sampled else 0 end)
        * (yy - 2 * y / x * xy + y / x * y / x * xx) / (n - 1) * n / (y * y)
    end as relative_variance,
    -- Of what audits saw: its variance in parts of the squared mean, and its third moment in parts of the cubed mean.
    case when n >= 30 and y > 0 and yy > y * y / n then yy * n / (y * y) - 1 end as spread,
    case when n >= 30 and y > 0 then (yyy * n / y - 3 * yy) * n / (y * y) + 2 end as third
  from population
  left join sample using (model)
),
-- Square roots by Newton's method: not every SQLite knows them.
squares as (
  select model, 'error' as what, relative_variance as square from ratio where relative_variance > 0
  union all
  select model, 'mean', spread / n from ratio where spread > 0
),
roots as (
  select model, what, square, (1 + square) / 2 as root, 0 as step from squares
  union all
  select model, what, square, (root + square / root) / 2, step + 1 from roots where step < 20
),
found as (
  select
    model, max(case when what = 'error' then root end) as error, max(case when what = 'mean' then root end) as root
  from roots where step = 20 group by model
),
-- Of ln(saved): 1.96 standard errors down; up more, as waits have long tails of which a sample sees too little: by 3.2
-- skewness / sqrt(n). Measured over simulated fleets (docs/steering.md).
half_widths as (
  select
    model,
    1.96 * coalesce(error, 0) as low_width,
    (1.96 + case when third > 0 and spread > 0 then 3.2 * third / (spread * spread) * root else 0 end)
      * coalesce(error, 0) as high_width
  from ratio
  left join found using (model)
  where basis = 'audited'
),
-- exp(width) = (1 + h) / (1 - h) with h = width / 16, to the eighth power; 0.1 % off where it is 1.
factors as (
  select model, low_twice * low_twice as low_factor, high_twice * high_twice as high_factor
  from (
    select model, low_once * low_once as low_twice, high_once * high_once as high_twice
    from (
      select
        model,
        (16 + low_width) / (16 - low_width) * (16 + low_width) / (16 - low_width) as low_once,
        (16 + high_width) / (16 - high_width) * (16 + high_width) / (16 - high_width) as high_once
      from half_widths
      where high_width < 8
    ) as once
  ) as twice
),
saved as (
  select
    ratio.*,
    saved_seen_ms + saved_explored_ms + ratio * predicted_ms as saved_ms,
    case basis
      when 'seen' then saved_seen_ms + saved_explored_ms
      when 'audited' then saved_seen_ms + saved_explored_ms + ratio * predicted_ms / low_factor
    end as saved_low_ms,
    case basis
      when 'seen' then saved_seen_ms + saved_explored_ms
      when 'audited' then saved_seen_ms + saved_explored_ms + ratio * predicted_ms * high_factor
    end as saved_high_ms
  from ratio
  left join factors using (model)
),
-- First tokens with racing, and without: an audited primary stands for all that were overtaken. n_drawn: audits by the draw.
histograms as (
  select s.{key} as model, r.metric, r.bucket, sum(r.n) as n
  from rollup_histograms as r
  join rollup_series as s on s.id = r.series_id
  where {windows} and r.metric in ('call_ttft', 'call_alone', 'audit_alone', 'explored_alone')
  group by s.{key}, r.metric, r.bucket
),
first_tokens as (
  select
    histograms.model,
    case metric when 'call_ttft' then 'ttft' else 'alone' end as what,
    from_ms,
    to_ms,
    sum(cast(histograms.n as double precision) * case metric
      when 'audit_alone' then n_sampled / saved.n
      when 'explored_alone' then saved.n_explored / (n_audits - saved.n)
      else 1
    end) as weight,
    sum(case metric when 'audit_alone' then histograms.n else 0 end) as n_drawn
  from histograms
  join buckets on buckets.bucket = histograms.bucket
  join saved on saved.model = histograms.model
  where metric in ('call_ttft', 'call_alone') or basis <> 'curve'
  group by histograms.model, case metric when 'call_ttft' then 'ttft' else 'alone' end, from_ms, to_ms
),
ranked as (
  select
    model, what, from_ms, to_ms,
    weight / sum(weight) over (partition by model, what) as share,
    sum(weight) over (partition by model, what order by from_ms) / sum(weight) over (partition by model, what) as reached,
    sum(weight) over (partition by model, what) as total,
    sum(n_drawn) over (partition by model, what order by from_ms) as drawn_so_far
  from first_tokens
),
-- How far the share of calls below a value may be off, squared, with 95 % confidence: n of n_sampled overtaken calls were
-- drawn. Two more on either side of the value (Agresti and Coull), as a share of none or of all is never certain.
doubted as (
  select
    ranked.*,
    case when what = 'alone' and basis = 'audited' then
      3.8416 * (1 - n / n_sampled) * n_sampled / total * n_sampled / total
        * (drawn_so_far + 2) * (n + 2 - drawn_so_far) / ((n + 4) * (n + 4) * (n + 4))
    else 0 end as doubt
  from ranked
  join saved using (model)
),
quantiles as (
  select
    model,
    max(case when what = 'ttft' and reached >= 0.50 - 1e-9 and reached - share < 0.50 - 1e-9
      then from_ms + (to_ms - from_ms) * (0.50 - reached + share) / share end) as ttft_p50_ms,
    max(case when what = 'alone' and reached >= 0.50 - 1e-9 and reached - share < 0.50 - 1e-9
      then from_ms + (to_ms - from_ms) * (0.50 - reached + share) / share end) as alone_p50_ms,
    max(case when what = 'ttft' and reached >= 0.50 - 1e-9 and reached - share < 0.50 - 1e-9 then from_ms end) as ttft_p50_from_ms,
    max(case when what = 'ttft' and reached >= 0.50 - 1e-9 and reached - share < 0.50 - 1e-9 then to_ms end) as ttft_p50_to_ms,
    min(case when what = 'alone' and (reached >= 0.50 - 1e-9 or (reached - 0.50) * (reached - 0.50) <= doubt)
      then from_ms end) as low_p50_ms,
    min(case when what = 'alone' and reached >= 0.50 - 1e-9 and (reached - 0.50) * (reached - 0.50) >= doubt
      then to_ms end) as high_p50_ms,
    max(case when what = 'ttft' and reached >= 0.95 - 1e-9 and reached - share < 0.95 - 1e-9
      then from_ms + (to_ms - from_ms) * (0.95 - reached + share) / share end) as ttft_p95_ms,
    max(case when what = 'alone' and reached >= 0.95 - 1e-9 and reached - share < 0.95 - 1e-9
      then from_ms + (to_ms - from_ms) * (0.95 - reached + share) / share end) as alone_p95_ms,
    max(case when what = 'ttft' and reached >= 0.95 - 1e-9 and reached - share < 0.95 - 1e-9 then from_ms end) as ttft_p95_from_ms,
    max(case when what = 'ttft' and reached >= 0.95 - 1e-9 and reached - share < 0.95 - 1e-9 then to_ms end) as ttft_p95_to_ms,
    min(case when what = 'alone' and (reached >= 0.95 - 1e-9 or (reached - 0.95) * (reached - 0.95) <= doubt)
      then from_ms end) as low_p95_ms,
    min(case when what = 'alone' and reached >= 0.95 - 1e-9 and (reached - 0.95) * (reached - 0.95) >= doubt
      then to_ms end) as high_p95_ms,
    max(case when what = 'ttft' and reached >= 0.99 - 1e-9 and reached - share < 0.99 - 1e-9
      then from_ms + (to_ms - from_ms) * (0.99 - reached + share) / share end) as ttft_p99_ms,
    max(case when what = 'alone' and reached >= 0.99 - 1e-9 and reached - share < 0.99 - 1e-9
      then from_ms + (to_ms - from_ms) * (0.99 - reached + share) / share end) as alone_p99_ms,
    max(case when what = 'ttft' and reached >= 0.99 - 1e-9 and reached - share < 0.99 - 1e-9 then from_ms end) as ttft_p99_from_ms,
    max(case when what = 'ttft' and reached >= 0.99 - 1e-9 and reached - share < 0.99 - 1e-9 then to_ms end) as ttft_p99_to_ms,
    min(case when what = 'alone' and (reached >= 0.99 - 1e-9 or (reached - 0.99) * (reached - 0.99) <= doubt)
      then from_ms end) as low_p99_ms,
    min(case when what = 'alone' and reached >= 0.99 - 1e-9 and (reached - 0.99) * (reached - 0.99) >= doubt
      then to_ms end) as high_p99_ms
  from doubted
  group by model
),
counts as (
  select model, calls, calls_with_extra, launched, extra, abandoned_cost_low_usd, abandoned_cost_high_usd from sums where calls > 0
),
costs as (
  select
    model, overtaken, rescued, cost_usd, cost_low_usd, cost_high_usd, duplicate_cost_usd, duplicate_cost_low_usd,
    duplicate_cost_high_usd, audit_cost_usd
  from sums
)
select
  {named key},
  calls,
  calls_with_extra,
  launched,
  cast(extra as double precision) / calls as extra_per_call,
  coalesce(overtaken, 0) as overtaken,
  coalesce(rescued, 0) as rescued,
  coalesce(n_compared, 0) as n_compared,
  basis,
  cast(n_audits as bigint) as n_audits,
  n_failed as n_audits_failed,
  saved_ms,
  saved_low_ms,
  saved_high_ms,
  saved_ms / n_compared as saved_ms_per_call,
  saved_low_ms / n_compared as saved_low_ms_per_call,
  saved_high_ms / n_compared as saved_high_ms_per_call,
  ttft_ms / n_compared as ttft_mean_ms,
  ttft_p50_ms,
  ttft_p95_ms,
  ttft_p99_ms,
  (ttft_ms + saved_ms) / n_compared as alone_mean_ms,
  case when basis <> 'curve' then alone_p50_ms end as alone_p50_ms,
  case when basis <> 'curve' then alone_p95_ms end as alone_p95_ms,
  case when basis <> 'curve' then alone_p99_ms end as alone_p99_ms,
  case when basis <> 'curve' then alone_p50_ms - ttft_p50_ms end as saved_p50_ms,
  case when basis <> 'curve' then low_p50_ms - ttft_p50_to_ms end as saved_p50_low_ms,
  case when basis <> 'curve' then high_p50_ms - ttft_p50_from_ms end as saved_p50_high_ms,
  case when basis <> 'curve' then alone_p95_ms - ttft_p95_ms end as saved_p95_ms,
  case when basis <> 'curve' then low_p95_ms - ttft_p95_to_ms end as saved_p95_low_ms,
  case when basis <> 'curve' then high_p95_ms - ttft_p95_from_ms end as saved_p95_high_ms,
  case when basis <> 'curve' then alone_p99_ms - ttft_p99_ms end as saved_p99_ms,
  case when basis <> 'curve' then low_p99_ms - ttft_p99_to_ms end as saved_p99_low_ms,
  case when basis <> 'curve' then high_p99_ms - ttft_p99_from_ms end as saved_p99_high_ms,
  cost_usd,
  cost_low_usd,
  cost_high_usd,
  duplicate_cost_usd,
  duplicate_cost_low_usd,
  duplicate_cost_high_usd,
  duplicate_cost_usd / nullif(cost_usd, 0) as duplicate_cost_share,
  abandoned_cost_low_usd,
  abandoned_cost_high_usd,
  audit_cost_usd,
  n_held,
  held_ms,
  held_ms / n_compared as held_ms_per_call
from counts
left join costs using (model)
left join saved using (model)
left join quantiles using (model)
