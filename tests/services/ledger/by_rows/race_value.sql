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
-- Their intervals of 95 % hold what audits leave open: nothing with the basis 'seen', null where audits are too few.
with recursive compared as (  -- calls of which it is known, or can be estimated, when the primary's first token was due
  select
    id, model, ttft_ms, alone_ms,
    alone_predicted_ms is not null as is_sampled,
    alone_age_ms is not null and alone_predicted_ms is null as is_explored,  -- watched for another reason than by the draw
    alone_predicted_ms - ttft_ms as predicted_ms
  from calls
  where ttft_ms is not null and (alone_ms is not null or alone_age_ms is not null)
),
audits as (  -- overtaken primaries that were watched on. seen and predicted: after they were overtaken
  select
    compared.model,
    compared.is_sampled,
    attempts.outcome in ('failed', 'timeout', 'stalled') and attempts.token_ms is null as is_failed,
    attempts.launch_offset_ms + coalesce(attempts.token_ms, attempts.censored_at_ms) as alone_ms,
    coalesce(attempts.token_ms, attempts.censored_at_ms, attempts.overtaken_at_ms) - attempts.overtaken_at_ms as seen_ms,
    attempts.predicted_ms - attempts.overtaken_at_ms as predicted_ms
  from attempts
  join compared on compared.id = attempts.call_id
  where attempts.number = 1 and attempts.audited and attempts.is_overtaken
    and attempts.outcome in ('superseded', 'lost', 'failed', 'timeout', 'stalled')
),
population as (
  select
    model,
    count(*) as n_compared,
    sum(ttft_ms) as ttft_ms,
    coalesce(sum(alone_ms - ttft_ms), 0) as saved_seen_ms,
    cast(count(*) filter (where is_sampled) as double precision) as n_sampled,
    coalesce(sum(predicted_ms), 0) as predicted_ms,
    cast(count(*) filter (where is_explored) as double precision) as n_explored
  from compared
  group by model
),
sample as (
  select
    model,
    cast(count(*) filter (where is_sampled) as double precision) as n,
    count(*) filter (where is_failed) as n_failed,
    sum(seen_ms) filter (where is_sampled) as y,
    sum(predicted_ms) as x,
    sum(seen_ms * seen_ms) filter (where is_sampled) as yy,
    sum(seen_ms * predicted_ms) as xy,
    sum(predicted_ms * predicted_ms) as xx,
    sum(seen_ms * seen_ms * seen_ms) filter (where is_sampled) as yyy,
    sum(seen_ms * seen_ms * seen_ms * seen_ms) filter (where is_sampled) as yyyy,
    count(*) filter (where not is_sampled) as n_explored,
    avg(seen_ms) filter (where not is_sampled) as explored_ms
  from audits
  group by model
),
-- A ratio estimate: saved = y / x * predicted. Its relative variance is that of the residuals y - y/x * predicted of n of
-- n_sampled calls. How sure that variance is depends on the tail: Student's t with 2 n / (kurtosis - 1) degrees of freedom.
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
    case when n >= 30 and yy > y * y / n then
      (yyyy / n - 4 * y / n * yyy / n + 6 * y / n * y / n * yy / n - 3 * y / n * y / n * y / n * y / n)
        / ((yy / n - y / n * y / n) * (yy / n - y / n * y / n))
    end as kurtosis
  from population
  left join sample using (model)
),
-- half_width: of ln(saved), t * sqrt(relative variance). Newton's method: not every SQLite knows square roots.
roots as (
  select model, relative_variance as square, (1 + relative_variance) / 2 as root, 0 as step
  from ratio
  where relative_variance > 0
  union all
  select model, square, (root + square / root) / 2, step + 1 from roots where step < 20
),
half_widths as (
  select model, (1.96 + 1.186 * (coalesce(kurtosis, 3) - 1) / n) * coalesce(root, 0) as half_width
  from ratio
  left join (select * from roots where step = 20) as found using (model)
  where basis = 'audited'
),
-- exp(half_width) = (1 + h) / (1 - h) with h = half_width / 16, to the eighth power; 0.1 % off where it is 1.
factors as (
  select model, doubled_twice * doubled_twice as factor
  from (
    select model, doubled * doubled as doubled_twice
    from (
      select model, (16 + half_width) / (16 - half_width) * (16 + half_width) / (16 - half_width) as doubled
      from half_widths
      where half_width < 8
    ) as once
  ) as twice
),
saved as (
  select
    ratio.*,
    saved_seen_ms + saved_explored_ms + ratio * predicted_ms as saved_ms,
    case basis
      when 'seen' then saved_seen_ms + saved_explored_ms
      when 'audited' then saved_seen_ms + saved_explored_ms + ratio * predicted_ms / factor
    end as saved_low_ms,
    case basis
      when 'seen' then saved_seen_ms + saved_explored_ms
      when 'audited' then saved_seen_ms + saved_explored_ms + ratio * predicted_ms * factor
    end as saved_high_ms
  from ratio
  left join factors using (model)
),
-- First tokens with racing, and without: an audited primary stands for all that were overtaken. n_drawn: audits by the draw.
first_tokens as (
  select model, 'ttft' as what, ttft_ms as ms, ttft_ms as from_ms, ttft_ms as to_ms,
    cast(1 as double precision) as weight, 0 as n_drawn
  from compared
  union all
  select model, 'alone', alone_ms, alone_ms, alone_ms, 1, 0 from compared where alone_ms is not null
  union all
  select
    audits.model, 'alone', audits.alone_ms, audits.alone_ms, audits.alone_ms,
    case when is_sampled then n_sampled / n else saved.n_explored / (n_audits - n) end,
    case when is_sampled then 1 else 0 end
  from audits
  join saved on saved.model = audits.model
  where audits.alone_ms is not null and basis <> 'curve'
),
ranked as (
  select
    model, what, ms, from_ms, to_ms,
    sum(weight) over (partition by model, what order by ms) / sum(weight) over (partition by model, what) as reached,
    sum(weight) over (partition by model, what) as total,
    sum(n_drawn) over (partition by model, what order by ms) as drawn_so_far
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
    min(case when what = 'ttft' and reached >= 0.50 - 1e-9 then ms end) as ttft_p50_ms,
    min(case when what = 'ttft' and reached >= 0.95 - 1e-9 then ms end) as ttft_p95_ms,
    min(case when what = 'ttft' and reached >= 0.99 - 1e-9 then ms end) as ttft_p99_ms,
    min(case when what = 'alone' and reached >= 0.50 - 1e-9 then ms end) as alone_p50_ms,
    min(case when what = 'alone' and reached >= 0.95 - 1e-9 then ms end) as alone_p95_ms,
    min(case when what = 'alone' and reached >= 0.99 - 1e-9 then ms end) as alone_p99_ms,
    min(case when what = 'alone' and (reached >= 0.50 - 1e-9 or (reached - 0.50) * (reached - 0.50) <= doubt)
      then case when doubt > 0 then from_ms else ms end end) as low_p50_ms,
    min(case when what = 'alone' and reached >= 0.50 - 1e-9 and (reached - 0.50) * (reached - 0.50) >= doubt
      then case when doubt > 0 then to_ms else ms end end) as high_p50_ms,
    min(case when what = 'alone' and (reached >= 0.95 - 1e-9 or (reached - 0.95) * (reached - 0.95) <= doubt)
      then case when doubt > 0 then from_ms else ms end end) as low_p95_ms,
    min(case when what = 'alone' and reached >= 0.95 - 1e-9 and (reached - 0.95) * (reached - 0.95) >= doubt
      then case when doubt > 0 then to_ms else ms end end) as high_p95_ms,
    min(case when what = 'alone' and (reached >= 0.99 - 1e-9 or (reached - 0.99) * (reached - 0.99) <= doubt)
      then case when doubt > 0 then from_ms else ms end end) as low_p99_ms,
    min(case when what = 'alone' and reached >= 0.99 - 1e-9 and (reached - 0.99) * (reached - 0.99) >= doubt
      then case when doubt > 0 then to_ms else ms end end) as high_p99_ms
  from doubted
  group by model
),
counts as (
  select
    model,
    count(*) as calls,
    count(*) filter (where launched > 1) as calls_with_extra,
    sum(launched) as launched,
    sum(case when launched > 1 then launched - 1 else 0 end) as extra,
    sum(abandoned_cost_low_usd) as abandoned_cost_low_usd,
    sum(abandoned_cost_high_usd) as abandoned_cost_high_usd
  from calls
  where true
  group by model
),
beside as (  -- calls won by an attempt that racing had added
  select call_id
  from attempts
  where number > 1 and outcome = 'won' and role in ('race', 'hedge', 'explore', 'probe')
),
tried as (
  select
    calls.model,
    attempts.number,
    attempts.audited and coalesce(attempts.is_overtaken, false) as is_audit,
    calls.winner_attempt_id is not null and calls.winner_attempt_id <> attempts.id as is_beaten,
    attempts.outcome in ('failed', 'timeout', 'stalled') and not coalesce(attempts.is_overtaken, false) as is_failed,
    attempts.id <> coalesce(calls.winner_attempt_id, attempts.call_id) and (
      attempts.role in ('race', 'hedge', 'explore', 'probe')
      or (attempts.outcome in ('lost', 'superseded') and beside.call_id is not null)
    ) as is_added,
    attempts.cost_usd,
    coalesce(attempts.cost_low_usd, attempts.cost_usd) as low_usd,
    coalesce(attempts.cost_high_usd, attempts.cost_usd) as high_usd
  from attempts
  join calls on calls.id = attempts.call_id
  left join beside on beside.call_id = attempts.call_id
  where true
),
costs as (
  select
    model,
    count(*) filter (where number = 1 and is_beaten) as overtaken,
    count(*) filter (where number = 1 and is_beaten and is_failed) as rescued,
    sum(cost_usd) as cost_usd,
    sum(low_usd) as cost_low_usd,
    sum(high_usd) as cost_high_usd,
    sum(cost_usd) filter (where is_added) as duplicate_cost_usd,
    sum(low_usd) filter (where is_added) as duplicate_cost_low_usd,
    sum(high_usd) filter (where is_added) as duplicate_cost_high_usd,
    sum(cost_usd) filter (where is_audit) as audit_cost_usd
  from tried
  group by model
)
select
  model,
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
  case when basis <> 'curve' then low_p50_ms - ttft_p50_ms end as saved_p50_low_ms,
  case when basis <> 'curve' then high_p50_ms - ttft_p50_ms end as saved_p50_high_ms,
  case when basis <> 'curve' then alone_p95_ms - ttft_p95_ms end as saved_p95_ms,
  case when basis <> 'curve' then low_p95_ms - ttft_p95_ms end as saved_p95_low_ms,
  case when basis <> 'curve' then high_p95_ms - ttft_p95_ms end as saved_p95_high_ms,
  case when basis <> 'curve' then alone_p99_ms - ttft_p99_ms end as saved_p99_ms,
  case when basis <> 'curve' then low_p99_ms - ttft_p99_ms end as saved_p99_low_ms,
  case when basis <> 'curve' then high_p99_ms - ttft_p99_ms end as saved_p99_high_ms,
  cost_usd,
  cost_low_usd,
  cost_high_usd,
  duplicate_cost_usd,
  duplicate_cost_low_usd,
  duplicate_cost_high_usd,
  duplicate_cost_usd / nullif(cost_usd, 0) as duplicate_cost_share,
  abandoned_cost_low_usd,
  abandoned_cost_high_usd,
  audit_cost_usd
from counts
left join costs using (model)
left join saved using (model)
left join quantiles using (model)
