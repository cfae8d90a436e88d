-- Per model, what racing saved and what it cost: Postgres's arithmetic (docs/sql.md), over rows instead of sums.
with asked as (select * from {calls}),
compared as (  -- calls of which it is known, or can be estimated, when the primary's first token was due
  select
    id, model, ttft_ms, alone_ms, held_ms,
    alone_predicted_ms is not null as is_sampled,
    alone_age_ms is not null and alone_predicted_ms is null as is_explored,
    alone_predicted_ms - ttft_ms as predicted_ms
  from asked
  where ttft_ms is not null and (alone_ms is not null or alone_age_ms is not null)
),
beside as (
  select call_id from {attempts} where number > 1 and outcome = 'won' and role in ('race', 'hedge', 'explore', 'probe')
),
tried as (
  select
    asked.model as model,
    attempts.number as number,
    attempts.audited and coalesce(attempts.is_overtaken, false) as is_audit,
    attempts.number = 1 and attempts.audited and coalesce(attempts.is_overtaken, false) and asked.ttft_ms is not null
      and asked.alone_age_ms is not null
      and attempts.outcome in ('superseded', 'lost', 'failed', 'timeout', 'stalled') as is_seen,
    asked.alone_predicted_ms is not null as is_sampled,
    attempts.outcome in ('failed', 'timeout', 'stalled') and attempts.token_ms is null as has_failed,
    attempts.launch_offset_ms + coalesce(attempts.token_ms, attempts.censored_at_ms) as alone_ms,
    coalesce(attempts.token_ms, attempts.censored_at_ms, attempts.overtaken_at_ms) - attempts.overtaken_at_ms as seen_ms,
    attempts.predicted_ms - attempts.overtaken_at_ms as predicted_ms,
    asked.winner_attempt_id is not null and asked.winner_attempt_id <> attempts.id as is_beaten,
    attempts.outcome in ('failed', 'timeout', 'stalled') and not coalesce(attempts.is_overtaken, false) as is_failed,
    attempts.id <> coalesce(asked.winner_attempt_id, attempts.call_id) and (
      attempts.role in ('race', 'hedge', 'explore', 'probe')
      or (attempts.outcome in ('lost', 'superseded') and attempts.call_id in (select call_id from beside))
    ) as is_added,
    attempts.cost_usd as usd,
    coalesce(attempts.cost_low_usd, attempts.cost_usd) as low_usd,
    coalesce(attempts.cost_high_usd, attempts.cost_usd) as high_usd
  from {attempts} as attempts
  join (select id, model, ttft_ms, alone_age_ms, alone_predicted_ms, winner_attempt_id from asked) as asked
    on asked.id = attempts.call_id
),
population as (
  select
    model,
    count() as n_compared,
    sum(compared.ttft_ms) as ttft_ms,
    coalesce(sum(compared.alone_ms - compared.ttft_ms), 0) as saved_seen_ms,
    countIf(is_sampled) as n_sampled,
    coalesce(sum(compared.predicted_ms), 0) as predicted_ms,
    countIf(is_explored) as n_explored,
    count(compared.held_ms) as n_held,
    coalesce(sum(compared.held_ms), 0) as held_ms
  from compared
  group by model
),
sample as (
  select
    model,
    toFloat64(countIf(is_sampled)) as n,
    countIf(has_failed) as n_failed,
    coalesce(sumIf(seen_ms, is_sampled), 0) as y,
    coalesce(sum(predicted_ms), 0) as x,
    coalesce(sumIf(seen_ms * seen_ms, is_sampled), 0) as yy,
    coalesce(sum(seen_ms * predicted_ms), 0) as xy,
    coalesce(sum(predicted_ms * predicted_ms), 0) as xx,
    coalesce(sumIf(seen_ms * seen_ms * seen_ms, is_sampled), 0) as yyy,
    countIf(not is_sampled) as n_explored,
    avgIf(seen_ms, not is_sampled) as explored_ms
  from tried
  where is_seen
  group by model
),
ratio as (
  select
    population.*,
    coalesce(sample.n, 0) as n,
    coalesce(sample.n_failed, 0) as n_failed,
    toInt64(coalesce(sample.n, 0) + coalesce(sample.n_explored, 0)) as n_audits,
    sample.n >= 30 and y > 0 and x > 0 as is_audited,
    multiIf(n_sampled = 0, 'seen', is_audited, 'audited', 'curve') as basis,
    if(is_audited, y / x, 1) as ratio,
    coalesce(population.n_explored * sample.explored_ms, 0) as saved_explored_ms,
    if(is_audited, if(n < n_sampled, 1 - n / n_sampled, 0)
      * (yy - 2 * y / x * xy + y / x * y / x * xx) / (n - 1) * n / (y * y), null) as relative_variance,
    if(n >= 30 and y > 0 and yy > y * y / n, yy * n / (y * y) - 1, null) as spread,
    if(n >= 30 and y > 0, (yyy * n / y - 3 * yy) * n / (y * y) + 2, null) as third
  from population
  left join sample on sample.model = population.model
),
half_widths as (
  select
    model,
    if(relative_variance > 0, sqrt(relative_variance), 0) as error,
    1.96 * error as low_width,
    (1.96 + if(third > 0 and spread > 0, 3.2 * third / (spread * spread) * sqrt(spread / n), 0)) * error as high_width
  from ratio
  where basis = 'audited'
),
factors as (
  select
    model,
    toNullable(pow((16 + low_width) / (16 - low_width), 8)) as low_factor,
    toNullable(pow((16 + high_width) / (16 - high_width), 8)) as high_factor
  from half_widths
  where high_width < 8
),
saved as (
  select
    ratio.*,
    saved_seen_ms + saved_explored_ms + ratio * predicted_ms as saved_ms,
    multiIf(basis = 'seen', saved_seen_ms + saved_explored_ms,
      basis = 'audited', saved_seen_ms + saved_explored_ms + ratio * predicted_ms / low_factor, null) as saved_low_ms,
    multiIf(basis = 'seen', saved_seen_ms + saved_explored_ms,
      basis = 'audited', saved_seen_ms + saved_explored_ms + ratio * predicted_ms * high_factor, null) as saved_high_ms
  from ratio
  left join factors on factors.model = ratio.model
),
-- First tokens with racing, and without: an audited primary stands for all that were overtaken. n_drawn: audits by the draw.
histograms as (
  select model, metric, greatest(-56, least(111, toInt64(floor(8 * log2(greatest(ms, 0.01) * 1.0000000001 / 10))))) as bucket, count() as n
  from (
    select model, 'call_ttft' as metric, assumeNotNull(ttft_ms) as ms from compared
    union all
    select model, 'call_alone', assumeNotNull(alone_ms) from compared where alone_ms is not null
    union all
    select model, if(is_sampled, 'audit_alone', 'explored_alone'), assumeNotNull(alone_ms)
    from tried where is_seen and alone_ms is not null
  )
  group by model, metric, bucket
),
first_tokens as (
  select
    histograms.model as model,
    if(metric = 'call_ttft', 'ttft', 'alone') as what,
    10 * exp2(histograms.bucket / 8) as from_ms,
    10 * exp2((histograms.bucket + 1) / 8) as to_ms,
    sum(histograms.n * multiIf(
      metric = 'audit_alone', n_sampled / saved.n,
      metric = 'explored_alone', saved.n_explored / (n_audits - saved.n), 1)) as weight,
    sumIf(histograms.n, metric = 'audit_alone') as n_drawn
  from histograms
  join saved on saved.model = histograms.model
  where metric in ('call_ttft', 'call_alone') or basis <> 'curve'
  group by model, what, histograms.bucket
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
    ranked.model as model, what, from_ms, to_ms, share, reached,
    case when what = 'alone' and basis = 'audited' then
      3.8416 * (1 - n / n_sampled) * n_sampled / total * n_sampled / total
        * (drawn_so_far + 2) * (n + 2 - drawn_so_far) / ((n + 4) * (n + 4) * (n + 4))
    else 0 end as doubt
  from ranked
  join (select model, basis, n, n_sampled from saved) as saved on saved.model = ranked.model
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
  select
    model,
    count() as calls,
    countIf(asked.launched > 1) as calls_with_extra,
    sum(asked.launched) as launched,
    sum(greatest(asked.launched - 1, 0)) as extra,
    sum(asked.abandoned_cost_low_usd) as abandoned_cost_low_usd,
    sum(asked.abandoned_cost_high_usd) as abandoned_cost_high_usd
  from asked
  group by model
),
costs as (
  select
    model,
    countIf(number = 1 and is_beaten) as overtaken,
    countIf(number = 1 and is_beaten and is_failed) as rescued,
    sum(usd) as cost_usd,
    sum(low_usd) as cost_low_usd,
    sum(high_usd) as cost_high_usd,
    sumIf(usd, is_added) as duplicate_cost_usd,
    sumIf(low_usd, is_added) as duplicate_cost_low_usd,
    sumIf(high_usd, is_added) as duplicate_cost_high_usd,
    sumIf(usd, is_audit) as audit_cost_usd
  from tried
  group by model
)
select
  model,
  calls,
  calls_with_extra,
  launched,
  extra / calls as extra_per_call,
  coalesce(overtaken, 0) as overtaken,
  coalesce(rescued, 0) as rescued,
  coalesce(n_compared, 0) as n_compared,
  basis,
  n_audits,
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
settings join_use_nulls = 1
