-- Per model, what racing saved and what it cost.
--
-- Without racing the primary runs alone, and when it fails the next one is launched then. saved_ms: how much later first
-- tokens would have come so, all calls together. Where nobody overtook the primary that is 0, or what calls.alone_ms
-- says: it failed, or was held. An overtaken one is cut, unless the call was drawn to be audited: of the others the
-- prediction made at the cut counts, times what audits saw over what was predicted for them.
-- saved_low_ms and saved_high_ms: the 95 % interval, of what racing saves such calls: it holds what audits leave open, and
-- that these calls are a sample. It is there from 30 calls on if half of the overtaken ones were audited, or six; or if even
-- three times the prediction would be little (5 ms a call, or a twentieth of the time to first token).
-- verdict: 'saved', as much as the interval says; 'nothing worth its price', at most 5 ms a call, or a hundredth of the time
-- to first token; 'not yet', about n_more calls more (null: none were audited), also where the interval has both
-- nothing and more than that in it; 'lost'. Null where nothing was raced.
-- basis: 'seen', nothing had to be estimated; 'audited'; 'curve': the bare prediction, mostly 0.8 to 1.5 times the truth,
-- as audits (n_audited) are too few. Below 30 of these, and below 30 calls, there are no quantiles without racing.
-- A wait of more than 30 s counts as 30 s, a primary that fails once overtaken (of audited ones n_audited_failed) as no
-- saving. ttft_...: with racing, alone_...: without, of the same calls (n_compared).
-- extra_per_call: attempts that started while another one of their call ran (calls.extras). n_overtaken: calls answered by
-- another attempt than the primary. n_rescued: calls answered although the primary failed. cost_usd: all attempts, as far as prices are known;
-- duplicate_cost_usd: what racing added; abandoned_cost: of answers whose clients left; audit_cost_usd: overtaken
-- attempts that were watched on, part of duplicate_cost_usd. low and high: at least and at most. n_unpriced: attempts whose
-- upper bound is unknown: of these only what is known is in the sums, so these are bounds where it is 0.
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
    sum(r.saved_seen_squared) as saved_seen_squared,
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
    cast(sum(r.n_explored_seen) as double precision) as n_explored_seen,
    sum(r.explored_seen) as explored_seen,
    sum(r.explored_seen_squared) as explored_seen_squared,
    cast(sum(r.overtaken) as bigint) as overtaken,
    cast(sum(r.rescued) as bigint) as rescued,
    sum(r.race_cost_usd) as cost_usd,
    sum(r.race_cost_low_usd) as cost_low_usd,
    sum(r.race_cost_high_usd) as cost_high_usd,
    sum(r.race_duplicate_cost_usd) as duplicate_cost_usd,
    sum(r.race_duplicate_cost_low_usd) as duplicate_cost_low_usd,
    sum(r.race_duplicate_cost_high_usd) as duplicate_cost_high_usd,
    sum(r.audit_cost_usd) as audit_cost_usd,
    cast(sum(r.n_unpriced) as bigint) as n_unpriced
  from rollup_calls as r
  where {windows}
  group by r.{key}
),
-- What audits tell of the others: enough are six, or half of the overtaken calls.
ratio as (
  select
    model, n_compared, ttft_ms, saved_seen_ms, saved_seen_squared, n_sampled, predicted_ms, n_explored, n_held, held_ms,
    n, n_failed, y, x, yy, xy, xx, yyy, explored_seen, explored_seen_squared,
    calls_with_extra > 0 as is_raced,
    n + n_explored_seen as n_audits,
    n_compared >= 30 and (n_explored_seen >= 6 or 2 * n_explored_seen >= n_explored) as is_known,
    n_sampled = 0 or (x > 0 and (n >= 6 or (n_compared >= 30 and 2 * n >= n_sampled))) as is_audited,
    n_compared >= 30 and (n_sampled = 0 or (n >= 30 and x > 0 and y > 0)) as has_quantiles,
    case when x > 0 and (n >= 6 or (n_compared >= 30 and 2 * n >= n_sampled)) then y / x else 1 end as ratio,
    coalesce(predicted_ms / nullif(n_sampled, 0), 0) as each_ms,
    coalesce(n_explored / nullif(n_explored_seen, 0), 0) as explored_weight
  from sums
  where n_compared > 0
),
-- What was saved but for holds; the sum of its squares; its variance with what audits leave open; and the sum of cubes, of
-- which only that of audits is kept: of the others it is taken for that of an exponential distribution.
moments as (
  select
    ratio.*,
    saved_seen_ms + explored_weight * explored_seen + ratio * predicted_ms as saved_ms,
    saved_seen_ms + held_ms + explored_weight * explored_seen + ratio * predicted_ms as gross_ms,
    saved_seen_squared + explored_weight * explored_seen_squared
      + case when is_audited and n > 0 then n_sampled * yy / n else 2 * predicted_ms * each_ms end as squared,
    saved_seen_squared + explored_weight * explored_weight * explored_seen_squared
      + case when is_audited and n > 0 then
        n_sampled * yy / n + case when n > 1 and n < n_sampled and yy - 2 * ratio * xy + ratio * ratio * xx > 0 then
          (n_sampled - n) / n_sampled * (yy - 2 * ratio * xy + ratio * ratio * xx) * n / (n - 1) * predicted_ms / x * predicted_ms / x
        else 0 end
      else 2 * predicted_ms * each_ms end as variance,
    coalesce(1.5 * saved_seen_squared * saved_seen_squared / nullif(abs(saved_seen_ms), 0), 0)
      + coalesce(1.5 * explored_weight * explored_seen_squared * explored_seen_squared / nullif(explored_seen, 0), 0)
      + case when is_audited and n > 0 then n_sampled * yyy / n else 0 end as cubed
  from ratio
),
-- The upper end allows for one more call that saves half as much as large ones did (after Fay and Feuer), and for a dozen
-- more audits that see what was predicted: few mostly see too little of a long tail, which curves know. Where they are too
-- few, for three times the prediction.
allowed as (
  select
    moments.*,
    case when is_audited then
      case when ratio < 1 then 12 * each_ms * (1 - ratio) / (x + 12 * each_ms) * predicted_ms else 0 end
    else 2 * predicted_ms + 4 * each_ms end as more_ms,
    case
      when not is_raced then 0
      when squared = 0 and n_sampled > 0 then each_ms
      when squared = 0 and ttft_ms < 500 * n_compared then ttft_ms / n_compared / 2
      when squared = 0 then 250
      when n_audits < 6 and cubed / squared * variance / squared / 2 < each_ms then each_ms
      else cubed / squared * variance / squared / 2
    end as one_ms
  from moments
),
-- Variances in parts of the squared mean, and their roots by Newton's method: not every SQLite knows these.
squares as (
  select model, 'low' as what, variance / (gross_ms * gross_ms) as square from allowed where gross_ms > 0 and variance > 0
  union all
  select
    model, 'high',
    (variance * case when gross_ms > 0 then (1 + more_ms / gross_ms) * (1 + more_ms / gross_ms) else 1 end + one_ms * one_ms)
      / ((gross_ms + more_ms + one_ms) * (gross_ms + more_ms + one_ms))
  from allowed
  where gross_ms + more_ms + one_ms > 0 and variance + one_ms > 0
  union all
  select model, 'held', 2.0 / n_held from allowed where n_held > 0
),
roots as (
  select model, what, square, (1 + square) / 2 as root, 0 as step from squares
  union all
  select model, what, square, (root + square / root) / 2, step + 1 from roots where step < 24
),
-- The quantiles of gamma distributions of these means and variances, by Wilson and Hilferty.
ends as (
  select
    model,
    max(case when what = 'low' then 1 - square / 9 - 1.96 * root / 3 end) as low_root,
    max(case when what = 'high' then 1 - square / 9 + 1.96 * root / 3 end) as high_root,
    max(case when what = 'held' then 1.96 * root end) as held_error
  from roots where step = 24 group by model
),
bounded as (
  select
    allowed.*,
    case
      when not is_audited then case when saved_seen_ms < 0 then saved_seen_ms else 0 end
      when gross_ms > 0 then
        gross_ms * case when low_root > 0 then low_root * low_root * low_root when variance > 0 then 0 else 1 end
      else gross_ms
    end - held_ms * (1 + coalesce(held_error, 0)) as low_ms,
    (gross_ms + more_ms + one_ms) * coalesce(high_root * high_root * high_root, 1)
      - held_ms * (1 - coalesce(held_error, 0)) as high_ms
  from allowed
  left join ends using (model)
),
saved as (
  select
    bounded.*,
    case when n_sampled = 0 then 'seen' when is_audited then 'audited' else 'curve' end as basis,
    is_known and (is_audited or high_ms <= 5 * n_compared or high_ms <= 0.05 * ttft_ms) as is_told,
    case
      when n_compared < 30 and (is_audited or n_compared * 6 < 30 * n) then 30 - n_compared
      when is_known and is_audited then few
      when n > 0 and n_compared * (6 - n) < few * n then n_compared * (6 - n) / n
      when n > 0 or n_sampled < 100 then case when few < n_compared * 6 then few else n_compared * 6 end
    end as more
  from (
    -- few: how many calls more bring what an interval allows to 5 ms a call, as the sum of it hardly grows.
    select bounded.*, case when high_ms > 5 * (n_compared + 1) then high_ms / 5 - n_compared else 1 end as few from bounded
  ) as bounded
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
      when 'explored_alone' then explored_weight
      else 1
    end) as weight,
    sum(case metric when 'audit_alone' then histograms.n else 0 end) as n_drawn
  from histograms
  join buckets on buckets.bucket = histograms.bucket
  join saved on saved.model = histograms.model
  where metric in ('call_ttft', 'call_alone') or has_quantiles
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
    case when what = 'alone' and has_quantiles and n_sampled > 0 then
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
    duplicate_cost_high_usd, audit_cost_usd, n_unpriced
  from sums
)
select
  {named key},
  calls as n,
  calls_with_extra as n_raced,
  launched as n_launched,
  cast(extra as double precision) / calls as extra_per_call,
  coalesce(overtaken, 0) as n_overtaken,
  coalesce(rescued, 0) as n_rescued,
  coalesce(n_compared, 0) as n_compared,
  basis,
  cast(n_audits as bigint) as n_audited,
  n_failed as n_audited_failed,
  saved_ms,
  case when is_told then low_ms end as saved_low_ms,
  case when is_told then high_ms end as saved_high_ms,
  saved_ms / n_compared as saved_per_call_ms,
  case when is_told then low_ms / n_compared end as saved_per_call_low_ms,
  case when is_told then high_ms / n_compared end as saved_per_call_high_ms,
  ttft_ms / n_compared as ttft_mean_ms,
  ttft_p50_ms,
  ttft_p95_ms,
  ttft_p99_ms,
  (ttft_ms + saved_ms) / n_compared as alone_mean_ms,
  case when has_quantiles then alone_p50_ms end as alone_p50_ms,
  case when has_quantiles then alone_p95_ms end as alone_p95_ms,
  case when has_quantiles then alone_p99_ms end as alone_p99_ms,
  case when has_quantiles then alone_p50_ms - ttft_p50_ms end as saved_p50_ms,
  case when has_quantiles then low_p50_ms - ttft_p50_to_ms end as saved_p50_low_ms,
  case when has_quantiles then high_p50_ms - ttft_p50_from_ms end as saved_p50_high_ms,
  case when has_quantiles then alone_p95_ms - ttft_p95_ms end as saved_p95_ms,
  case when has_quantiles then low_p95_ms - ttft_p95_to_ms end as saved_p95_low_ms,
  case when has_quantiles then high_p95_ms - ttft_p95_from_ms end as saved_p95_high_ms,
  case when has_quantiles then alone_p99_ms - ttft_p99_ms end as saved_p99_ms,
  case when has_quantiles then low_p99_ms - ttft_p99_to_ms end as saved_p99_low_ms,
  case when has_quantiles then high_p99_ms - ttft_p99_from_ms end as saved_p99_high_ms,
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
  held_ms / n_compared as held_per_call_ms,
  case
    when n_compared is null or not is_raced then null
    when not is_told then 'not yet'
    when high_ms < 0 then 'lost'
    when high_ms <= 5 * n_compared or high_ms <= 0.01 * ttft_ms then 'nothing worth its price'
    when low_ms <= 0 then 'not yet'
    else 'saved'
  end as verdict,
  case
    when is_raced and (not is_told or (low_ms <= 0 and high_ms > 5 * n_compared and high_ms > 0.01 * ttft_ms))
      then cast(round(more + 0.499) as bigint)
  end as n_more,
  coalesce(n_unpriced, 0) as n_unpriced
from counts
left join costs using (model)
left join saved using (model)
left join quantiles using (model)
