-- Per model, what racing saved and what it cost: Postgres's arithmetic (docs/sql.md), over rows instead of sums. Each part
-- is named once: ClickHouse runs a part as often as it is named.
with asked as (
  select
    model,
    count() as calls,
    countIf(coalesce(calls.extras, calls.launched - 1) > 0) as calls_with_extra,
    sum(calls.launched) as launched,
    sum(coalesce(calls.extras, greatest(calls.launched - 1, 0))) as extra,
    sum(calls.abandoned_cost_low_usd) as abandoned_cost_low_usd,
    sum(calls.abandoned_cost_high_usd) as abandoned_cost_high_usd,
    countIf(is_compared) as n_compared,
    sumIf(calls.ttft_ms, is_compared) as ttft_ms,
    coalesce(sumIf(calls.alone_ms - calls.ttft_ms, is_compared), 0) as saved_seen_ms,
    coalesce(sumIf(pow(calls.alone_ms - calls.ttft_ms, 2), is_compared), 0) as saved_seen_squared,
    countIf(is_compared and alone_predicted_ms is not null) as n_sampled,
    coalesce(sumIf(calls.alone_predicted_ms - calls.ttft_ms, is_compared), 0) as predicted_ms,
    countIf(is_compared and alone_age_ms is not null and alone_predicted_ms is null) as n_explored,
    countIf(is_compared and calls.held_ms is not null) as n_held,
    coalesce(sumIf(calls.held_ms, is_compared), 0) as held_ms,
    sumMapIf(map(ttft_bucket, toUInt64(1)), is_compared) as ttft_buckets,
    sumMapIf(map(alone_bucket, toUInt64(1)), is_compared and calls.alone_ms is not null) as alone_buckets
  from (
    -- calls of which it is known, or can be estimated, when the primary's first token was due
    select
      *,
      ttft_ms is not null and (alone_ms is not null or alone_age_ms is not null) as is_compared,
      toInt16(greatest(-56, least(111, floor(8 * log2(greatest(coalesce(ttft_ms, 0), 0.01) * 1.0000000001 / 10))))) as ttft_bucket,
      toInt16(greatest(-56, least(111, floor(8 * log2(greatest(coalesce(alone_ms, 0), 0.01) * 1.0000000001 / 10))))) as alone_bucket
    from {calls}
  ) as calls
  group by model
),
tried as (
  select
    model,
    countIf(is_first and is_beaten) as overtaken,
    countIf(is_first and is_beaten and has_broken and not was_overtaken) as rescued,
    sum(usd) as cost_usd,
    sum(low_usd) as cost_low_usd,
    sum(high_usd) as cost_high_usd,
    sumIf(usd + lost_usd, is_added) as duplicate_cost_usd,
    sumIf(low_usd + known_lost_usd, is_added) as duplicate_cost_low_usd,
    sumIf(high_usd + known_lost_usd, is_added) as duplicate_cost_high_usd,
    sumIf(usd, is_audit) as audit_cost_usd,
    countIf(is_unpriced) as n_unpriced,
    -- Audits of primaries: what they saw, and those drawn (of the overtaken calls that were predicted) beside the prediction.
    toFloat64(countIf(is_seen and is_drawn)) as n,
    countIf(is_seen and has_broken and token_ms is null) as n_failed,
    coalesce(sumIf(seen_ms, is_seen and is_drawn), 0) as y,
    coalesce(sumIf(expected_ms, is_seen), 0) as x,
    coalesce(sumIf(seen_ms * seen_ms, is_seen and is_drawn), 0) as yy,
    coalesce(sumIf(seen_ms * expected_ms, is_seen), 0) as xy,
    coalesce(sumIf(expected_ms * expected_ms, is_seen), 0) as xx,
    coalesce(sumIf(seen_ms * seen_ms * seen_ms, is_seen and is_drawn), 0) as yyy,
    countIf(is_seen and not is_drawn) as n_explored_seen,
    coalesce(sumIf(seen_ms, is_seen and not is_drawn), 0) as explored_seen,
    coalesce(sumIf(seen_ms * seen_ms, is_seen and not is_drawn), 0) as explored_seen_squared,
    sumMapIf(map(bucket, toUInt64(1)), is_seen and is_drawn and came_ms is not null) as drawn_buckets,
    sumMapIf(map(bucket, toUInt64(1)), is_seen and not is_drawn and came_ms is not null) as explored_buckets
  from (
    select
      of_call.model as model,
      token_ms,
      -- a primary whose keys or forms were refused is the one with the last of them
      coalesce(number = 1 or counts_as = 'primary', false) and coalesce(error_kind, '') not in {steps} as is_first,
      {broken} as has_broken,
      coalesce(is_overtaken, false) as was_overtaken,
      audited and was_overtaken as is_audit,
      is_first and is_audit and of_call.is_overtaken_call and (has_broken or {beaten}) as is_seen,
      of_call.is_predicted as is_drawn,
      launch_offset_ms + coalesce(token_ms, censored_at_ms) as came_ms,
      toInt16(greatest(-56, least(111, floor(8 * log2(greatest(coalesce(came_ms, 0), 0.01) * 1.0000000001 / 10))))) as bucket,
      coalesce(token_ms, censored_at_ms, overtaken_at_ms) - overtaken_at_ms as seen_ms,
      predicted_ms - overtaken_at_ms as expected_ms,
      of_call.winner_id is not null and of_call.winner_id <> attempts.id as is_beaten,
      {added_and_lost},
      if(cached_tokens is null, 0, lost_usd) as known_lost_usd,
      {own} as is_own,  -- clients pay for their own keys
      if(is_own, cost_usd, null) as usd,
      if(is_own, coalesce(cost_low_usd, cost_usd), null) as low_usd,
      if(is_own, coalesce(cost_high_usd, cost_usd), null) as high_usd,
      is_own and cost_high_usd is null and (cost_usd is null or cost_low_usd is not null) as is_unpriced
    from {attempts} as attempts
    join (
      select
        of_id, model, winner_id, is_overtaken_call, is_predicted, is_beside, winner_usd, winner_saved_usd, is_winner_own
      from (
        select
          id as of_id, model, winner_attempt_id as winner_id, ttft_ms is not null and alone_age_ms is not null as is_overtaken_call,
          alone_predicted_ms is not null as is_predicted
        from {calls}
      ) as called
      left join (
        select id as beside_id, true as is_beside, cost_usd as winner_usd, coalesce(cache_saved_usd, 0) as winner_saved_usd,
          {own} as is_winner_own
        from {attempts}
        where coalesce(counts_as, role) in ('race', 'hedge', 'fallback', 'explore', 'probe')
      ) as beside on beside.beside_id = called.winner_id
    ) as of_call on of_call.of_id = attempts.call_id
  )
  group by model
),
-- What is made of audits, and the ends of the interval: the view of SQL has the reasons.
ratio as (
  select
    *,
    n_compared > 0 as is_known,
    toInt64(n + n_explored_seen) as n_audits,
    n_compared >= 30 and (n_explored_seen >= 6 or 2 * n_explored_seen >= n_explored) as is_enough,
    n_sampled = 0 or (x > 0 and (n >= 6 or (n_compared >= 30 and 2 * n >= n_sampled))) as is_audited,
    n_compared >= 30 and (n_sampled = 0 or (n >= 30 and x > 0 and y > 0)) as has_quantiles,
    is_audited and n > 0 as has_audits,
    multiIf(n_sampled = 0, 'seen', is_audited, 'audited', 'curve') as basis,
    if(has_audits and x > 0, y / x, 1) as ratio,
    if(n_sampled > 0, predicted_ms / n_sampled, 0) as each_ms,
    if(n_explored_seen > 0, n_explored / n_explored_seen, 0) as explored_weight,
    saved_seen_ms + explored_weight * explored_seen + ratio * predicted_ms as saved_ms,
    saved_ms + held_ms as gross_ms,
    if(has_audits, n_sampled * yy / n, 2 * predicted_ms * each_ms) as sampled_squared,
    saved_seen_squared + explored_weight * explored_seen_squared + sampled_squared as squared,
    yy - 2 * ratio * xy + ratio * ratio * xx as residual,
    saved_seen_squared + explored_weight * explored_weight * explored_seen_squared + sampled_squared
      + if(has_audits and n > 1 and n < n_sampled and residual > 0,
        (n_sampled - n) / n_sampled * residual * n / (n - 1) * pow(predicted_ms / x, 2), 0) as variance,
    if(saved_seen_ms <> 0, 1.5 * saved_seen_squared * saved_seen_squared / abs(saved_seen_ms), 0)
      + if(explored_seen <> 0, 1.5 * explored_weight * explored_seen_squared * explored_seen_squared / explored_seen, 0)
      + if(has_audits, n_sampled * yyy / n, 0) as cubed,
    multiIf(not is_audited, 2 * predicted_ms + 4 * each_ms,
      ratio < 1, 12 * each_ms * (1 - ratio) / (x + 12 * each_ms) * predicted_ms, 0) as more_ms,
    multiIf(
      calls_with_extra = 0, 0,
      squared = 0 and n_sampled > 0, each_ms,
      squared = 0, least(250, ttft_ms / n_compared / 2),
      greatest(cubed / squared * variance / squared / 2, if(n_audits < 6, each_ms, 0))) as one_ms,
    gross_ms + more_ms + one_ms as most_ms,
    if(gross_ms > 0, variance / (gross_ms * gross_ms), 0) as low_square,
    if(most_ms > 0, (variance * if(gross_ms > 0, pow(1 + more_ms / gross_ms, 2), 1) + one_ms * one_ms) / (most_ms * most_ms), 0)
      as high_square,
    if(n_held > 0, 1.96 * sqrt(2 / n_held), 0) as held_error,
    multiIf(
      not is_audited, least(saved_seen_ms, 0),
      gross_ms > 0, gross_ms * pow(greatest(0, 1 - low_square / 9 - 1.96 * sqrt(low_square) / 3), 3),
      gross_ms) - held_ms * (1 + held_error) as low_ms,
    most_ms * pow(1 - high_square / 9 + 1.96 * sqrt(high_square) / 3, 3) - held_ms * (1 - held_error) as high_ms,
    is_enough and (is_audited or high_ms <= 5 * n_compared or high_ms <= 0.05 * ttft_ms) as is_told,
    greatest(1, high_ms / 5 - n_compared) as few,  -- calls more that bring what is allowed to 5 ms a call
    multiIf(
      n_compared < 30 and (is_audited or n_compared * 6 < 30 * n), 30 - toFloat64(n_compared),
      is_enough and is_audited, few,
      n > 0, least(n_compared * (6 - n) / n, few),
      n_sampled < 100, least(toFloat64(n_compared) * 6, few),
      null) as more
  from asked
  left join tried using (model)
),
saved as (
  select
    *,
    if(is_told, low_ms, null) as saved_low_ms,
    if(is_told, high_ms, null) as saved_high_ms,
    -- First tokens with racing, and without: an audited primary stands for all that were overtaken.
    mapKeys(ttft_buckets) as ttft_at,
    arraySort(arrayDistinct(arrayConcat(mapKeys(alone_buckets), mapKeys(drawn_buckets), mapKeys(explored_buckets)))) as alone_at,
    arrayCumSum(mapValues(ttft_buckets)) as ttft_reached,
    arrayCumSum(arrayMap(
      at -> alone_buckets[at] + drawn_buckets[at] * if(n > 0, n_sampled / n, 0) + explored_buckets[at] * explored_weight,
      alone_at)) as alone_reached,
    -- How far the share of calls below a value may be off, squared, with 95 % confidence: n of n_sampled overtaken calls
    -- were drawn. Two more on either side of the value (Agresti and Coull), as a share of none or of all is never certain.
    arrayMap(
      drawn -> if(has_quantiles and n_sampled > 0, 3.8416 * (1 - n / n_sampled) * pow(n_sampled / alone_reached[-1], 2)
        * (drawn + 2) * (n + 2 - drawn) / pow(n + 4, 3), 0),
      arrayCumSum(arrayMap(at -> drawn_buckets[at], alone_at))) as doubts
  from ratio
),
-- At each of three shares: which bucket reaches it with racing and without, and the first ones that may, and that surely do.
placed as (
  select
    *,
    arrayMap(share -> arrayFirstIndex(reached -> reached / ttft_reached[-1] >= share - 1e-9, ttft_reached), [0.50, 0.95, 0.99]) as ttft_places,
    arrayMap(share -> arrayFirstIndex(reached -> reached / alone_reached[-1] >= share - 1e-9, alone_reached), [0.50, 0.95, 0.99]) as alone_places,
    arrayMap(share -> arrayFirstIndex((reached, doubt) -> reached / alone_reached[-1] >= share - 1e-9
      or pow(reached / alone_reached[-1] - share, 2) <= doubt, alone_reached, doubts), [0.50, 0.95, 0.99]) as low_places,
    arrayMap(share -> arrayFirstIndex((reached, doubt) -> reached / alone_reached[-1] >= share - 1e-9
      and pow(reached / alone_reached[-1] - share, 2) >= doubt, alone_reached, doubts), [0.50, 0.95, 0.99]) as high_places,
    arrayMap((share, place) -> if(place = 0, null,
      10 * exp2(ttft_at[place] / 8) * (1 + (exp2(1 / 8) - 1)
      * (share * ttft_reached[-1] - ttft_reached[place - 1]) / (ttft_reached[place] - ttft_reached[place - 1]))), [0.50, 0.95, 0.99], ttft_places) as ttft,
    arrayMap((share, place) -> if(place = 0 or not has_quantiles, null,
      10 * exp2(alone_at[place] / 8) * (1 + (exp2(1 / 8) - 1)
      * (share * alone_reached[-1] - alone_reached[place - 1]) / (alone_reached[place] - alone_reached[place - 1]))), [0.50, 0.95, 0.99], alone_places) as alone,
    arrayMap((low, place) -> if(low = 0 or place = 0 or not has_quantiles, null,
      10 * exp2(alone_at[low] / 8) - 10 * exp2((ttft_at[place] + 1) / 8)), low_places, ttft_places) as saved_low,
    arrayMap((high, place) -> if(high = 0 or place = 0 or not has_quantiles, null,
      10 * exp2((alone_at[high] + 1) / 8) - 10 * exp2(ttft_at[place] / 8)), high_places, ttft_places) as saved_high
  from saved
)
select
  model,
  calls as n,
  calls_with_extra as n_raced,
  launched as n_launched,
  extra / calls as extra_per_call,
  overtaken as n_overtaken,
  rescued as n_rescued,
  n_compared,
  if(is_known, basis, null) as basis,
  if(is_known, n_audits, null) as n_audited,
  if(is_known, n_failed, null) as n_audited_failed,
  if(is_known, saved_ms, null) as saved_ms,
  if(is_known, saved_low_ms, null) as saved_low_ms,
  if(is_known, saved_high_ms, null) as saved_high_ms,
  if(n_compared >= 30, saved_ms / n_compared, null) as saved_per_call_ms,
  saved_low_ms / nullif(n_compared, 0) as saved_per_call_low_ms,
  saved_high_ms / nullif(n_compared, 0) as saved_per_call_high_ms,
  ttft_ms / nullif(n_compared, 0) as ttft_mean_ms,
  ttft[1] as ttft_p50_ms,
  ttft[2] as ttft_p95_ms,
  ttft[3] as ttft_p99_ms,
  (ttft_ms + saved_ms) / nullif(n_compared, 0) as alone_mean_ms,
  alone[1] as alone_p50_ms,
  alone[2] as alone_p95_ms,
  alone[3] as alone_p99_ms,
  alone[1] - ttft[1] as saved_p50_ms,
  saved_low[1] as saved_p50_low_ms,
  saved_high[1] as saved_p50_high_ms,
  alone[2] - ttft[2] as saved_p95_ms,
  saved_low[2] as saved_p95_low_ms,
  saved_high[2] as saved_p95_high_ms,
  alone[3] - ttft[3] as saved_p99_ms,
  saved_low[3] as saved_p99_low_ms,
  saved_high[3] as saved_p99_high_ms,
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
  if(is_known, n_held, null) as n_held,
  if(is_known, held_ms, null) as held_ms,
  held_ms / nullif(n_compared, 0) as held_per_call_ms,
  multiIf(
    not is_known or calls_with_extra = 0, null,
    n_compared < 30, 'too few calls',
    not is_told, 'not yet',
    high_ms < 0, 'lost',
    high_ms <= 5 * n_compared or high_ms <= 0.01 * ttft_ms, 'nothing worth its price',
    low_ms <= 0, 'not yet',
    'saved') as verdict,
  if(
    is_known and calls_with_extra > 0
      and (not is_told or (low_ms <= 0 and high_ms > 5 * n_compared and high_ms > 0.01 * ttft_ms)),
    toInt64(round(more + 0.499)), null) as n_more,
  coalesce(n_unpriced, 0) as n_unpriced
from placed
