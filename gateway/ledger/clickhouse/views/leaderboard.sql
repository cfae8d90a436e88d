-- Per model, its deployments over the last ten minutes: Postgres's arithmetic (docs/sql.md), over rows that have arrived.
-- A call is looked for among those of the hour before the window: of one that is older its late attempts are not counted.
with sampled as (
  select
    if(attempts.model = '', of_call.model, attempts.model) as model,
    deployment,
    provider,
    number,
    outcome,
    censored_at_ms,
    toInt64(floor(toUnixTimestamp(started_at) / 30)) as slot,
    multiIf(
      coalesce(of_call.call_win_on, win_on) = 'answer', ttft_answer_ms,
      coalesce(of_call.call_win_on, win_on) = 'sentence', sentence_ms,
      coalesce(of_call.call_win_on, win_on) = 'valid', valid_ms,
      ttft_ms) as first_ms,
    coalesce(counts_as, role) as counted_role,
    not (
      counted_role in ('race', 'explore', 'probe') or (counted_role = 'primary' and (number = 1 or counts_as is not null))
    ) as is_late,
    not is_late and coalesce(is_overtaken, outcome = 'lost') and not (  -- exploring races are no random sample
      audited and (counted_role in ('explore', 'probe') or (counted_role = 'primary' and predicted_ms is null))
    ) and coalesce(error_kind, '') not in {steps} as is_beaten,
    {broken} as has_broken,
    is_beaten and audited and (has_broken or {beaten}) as is_watched,
    has_broken and {own} and coalesce(error_kind, '') not in {no errors} as is_error,
    has_broken and {own} and coalesce(error_kind, '') = 'rate_limited' as is_limited,
    if({cut}, censored_at_ms, null) as cut_ms,
    judged_as is not null as is_judged,
    flaw is not null as is_flawed,
    coalesce(first_ms, censored_at_ms) as came_ms,
    came_ms is not null as has_bucket,
    toInt16(if(came_ms >= 10, least(111, floor(8 * log(assumeNotNull(came_ms) / 10) / log(2) + 1e-9)), 0)) as bucket,
    (last_token_ms - ttft_ms) / 1000 as span_s,
    decode_tps as tps,
    completion_tokens,
    last_token_ms,
    coalesce(tokens_source = 'reported' and (outcome = 'won' or {cut})
      and (outcome = 'won' or censored_at_ms is null) and ttft_ms is not null and last_token_ms is not null, false) as is_measured,
    coalesce(is_measured and decode_tps is null and completion_tokens - coalesce(reasoning_tokens, 0) > 1
      and (span_s < 0.020 or completion_tokens - 1 > 5000 * span_s), false) as is_burst,
    is_measured and (decode_tps is not null or is_burst) as is_timed
  from (
    select * from {attempts} where started_at >= fromUnixTimestamp(toInt64((floor(toUnixTimestamp(now()) / 30) - 19) * 30))
  ) as attempts
  left join (
    select id as of_id, model, toNullable(prompt_class) as call_class, toNullable(win_on) as call_win_on
    from {calls} where started_at >= now() - interval 70 minute
  ) as of_call on of_call.of_id = attempts.call_id
  where coalesce(of_call.call_class < 100, false) or (number = 0 and role = 'probe')
),
totals as (
  select
    model,
    deployment,
    min(sampled.provider) as provider,
    countIf(is_error or outcome = 'won' or ({cut} and censored_at_ms is null)) as n,
    countIf(is_error) as n_errors,
    countIf(outcome = 'won' and number > 0) as n_won,
    countIf(is_limited) as rate_limited,
    countIf(is_judged) as judged,
    countIf(is_flawed) as flawed,
    count(first_ms) as events,
    count(cut_ms) as censored,
    countIf(is_watched and (first_ms is not null or cut_ms is not null)) as audited,
    toFloat64(countIf(is_beaten)) as overtaken,
    toFloat64(countIf(is_watched)) as watched,
    sumIf(tps * span_s, is_measured) / nullif(sumIf(span_s, is_measured and tps is not null), 0) as decode_tps,
    sumIf(completion_tokens, is_measured and last_token_ms > 0 and completion_tokens > 0)
      / nullif(sumIf(last_token_ms / 1000, is_measured and last_token_ms > 0 and completion_tokens > 0), 0) as e2e_tps,
    -- by bucket, how many came, and how many were cut; of those watched, launched late, and cut unwatched, apart
    sumMapIf(map(bucket, toFloat64(1)), has_bucket and first_ms is not null and not is_watched and not is_late) as came,
    sumMapIf(map(bucket, toFloat64(1)), has_bucket and first_ms is not null and is_watched) as watched_came,
    sumMapIf(map(bucket, toFloat64(1)), has_bucket and first_ms is not null and is_late) as late_came,
    sumMapIf(map(bucket, toFloat64(1)), has_bucket and cut_ms is not null and not is_beaten and not is_late) as cut,
    sumMapIf(map(bucket, toFloat64(1)), has_bucket and cut_ms is not null and is_watched) as watched_cut,
    sumMapIf(map(bucket, toFloat64(1)), has_bucket and cut_ms is not null and (is_late or (is_beaten and not is_watched))) as other_cut,
    -- the last 20 answers that could be timed, by whole half-minutes, the newest first
    sumMap(map(-slot, toInt64(is_timed))) as timed,
    sumMap(map(-slot, toInt64(is_burst))) as bursts,
    watched >= 30 as is_audited
  from sampled
  group by model, deployment
),
-- Of audited deployments the watched stand for all that were overtaken, and those launched late are left out.
at_risk as (
  select
    *,
    if(is_audited, overtaken / watched, 1) as weight,
    arraySort(arrayDistinct(arrayConcat(mapKeys(came), mapKeys(watched_came), mapKeys(late_came), mapKeys(cut), mapKeys(watched_cut),
      mapKeys(other_cut)))) as buckets,
    arrayMap(at -> came[at] + weight * watched_came[at] + if(is_audited, 0, late_came[at]), buckets) as came_at,
    arrayMap(at -> cut[at] + weight * watched_cut[at] + if(is_audited, 0, other_cut[at]), buckets) as cut_at,
    arraySum(mapValues(came)) + arraySum(mapValues(watched_came)) + if(is_audited, 0, arraySum(mapValues(late_came))) >= 3 as is_enough,
    arrayReverse(arrayCumSum(arrayReverse(arrayMap((came, cut) -> came + cut, came_at, cut_at)))) as risk_at
  from totals
),
-- The share still waiting for a first token at the end of each bucket. For the interval, and so that the last event has
-- a variance too, at least half an attempt is taken to remain; greenwood sums the variance of ln(remaining).
survival as (
  select
    *,
    arrayMap((came, risk) -> if(came = 0, 1, 1 - came / risk), came_at, risk_at) as kept,
    arrayMap((came, risk) -> if(came = 0, 1, greatest(risk - came, 0.5) / risk), came_at, risk_at) as left_over,
    arrayMap(place -> arrayProduct(arraySlice(kept, 1, place)), arrayEnumerate(kept)) as waiting,
    arrayMap(place -> arrayProduct(arraySlice(left_over, 1, place)), arrayEnumerate(kept)) as remaining,
    arrayCumSum(arrayMap((came, risk) -> multiIf(came = 0, 0, risk - came < 0.5, (risk - 0.5) / (risk * 0.5),
      came / (risk * (risk - came))), came_at, risk_at)) as greenwood,
    -- the share of audited attempts with a first token, of both kinds one more
    arrayMap(came -> (came + 1) / (audited + 2), arrayCumSum(arrayMap(at -> watched_came[at], buckets))) as of_watched,
    -- how sure that share is: the square of their part of all times (1 / watched - 1 / overtaken)
    if(is_audited and watched < overtaken, pow(weight * audited / risk_at[1], 2) * (1 / watched - 1 / overtaken), 0) as unknown
  from at_risk
),
-- Per quantile: the first bucket that reaches it, and the first and last whose survival does not differ significantly
-- from 1 - share, where n attempts would give it the variance share (1 - share) / n.
reached as (
  select
    *,
    arrayMap(share -> arrayMap((waits, remains, summed, seen) -> pow(waits - (1 - share), 2) >= 1.96 * 1.96 * if(is_audited,
      share * (1 - share) / risk_at[1] + unknown * seen * (1 - seen), share * (1 - share) * remains * summed / (1 - remains)),
      waiting, remaining, greenwood, of_watched), [0.50, 0.95, 0.99]) as outside,
    arrayMap(share -> arrayFirstIndex((waits, summed) -> is_enough and summed > 0 and 1 - waits >= share - 1e-9, waiting, greenwood),
      [0.50, 0.95, 0.99]) as places,
    arrayMap((share, outsides) -> arrayFirstIndex((waits, summed, is_outside) -> is_enough and summed > 0
      and (waits <= 1 - share or not is_outside), waiting, greenwood, outsides), [0.50, 0.95, 0.99], outside) as low_places,
    arrayMap((share, outsides) -> arrayFirstIndex((waits, summed, is_outside) -> is_enough and summed > 0
      and waits <= 1 - share and is_outside, waiting, greenwood, outsides), [0.50, 0.95, 0.99], outside) as high_places
  from survival
),
figures as (
  select
    *,
    arrayMap((share, place) -> if(place = 0, null, 10 * exp2((buckets[place] + multiIf(
      if(place > 1, waiting[place - 1], 1) <= 1 - share, 0,
      waiting[place] >= 1 - share, 1,
      (share - (1 - if(place > 1, waiting[place - 1], 1))) / (if(place > 1, waiting[place - 1], 1) - waiting[place]))) / 8)),
      [0.50, 0.95, 0.99], places) as ttft,
    arrayMap(place -> if(place = 0, null, 10 * exp2(buckets[place] / 8)), low_places) as low,
    arrayMap(place -> if(place = 0, null, 10 * exp2((buckets[place] + 1) / 8)), high_places) as high,
    arrayFilter((n, so_far) -> so_far - n < 20, mapValues(timed), arrayCumSum(mapValues(timed))) as timed_lately,
    arraySum(timed_lately) >= 3 and arraySum(arraySlice(arrayMap(at -> bursts[at], mapKeys(timed)), 1, length(timed_lately)))
      >= 0.5 * arraySum(timed_lately) as buffered,
    if(buffered, e2e_tps, decode_tps) as speed_tps,
    n_won / nullif(sum(n_won) over (partition by model), 0) as win_share,
    row_number() over (partition by model order by round(ttft[1], 1) nulls last, round(ttft[2], 1) nulls last, deployment) as place,
    row_number() over (partition by model order by round(speed_tps, 1) desc nulls last, deployment) as speed_place
  from reached
)
select
  model,
  if(ttft[1] is null, null, place) as rank,
  deployment,
  provider,
  n,
  events as n_first_token,
  censored as n_censored,
  rate_limited as n_rate_limited,
  audited as n_audited,
  if(is_audited, 'audited', 'all') as basis,
  not is_audited and censored > 0 as is_biased,
  ttft[1] as ttft_p50_ms, low[1] as ttft_p50_low_ms, high[1] as ttft_p50_high_ms,
  ttft[2] as ttft_p95_ms, low[2] as ttft_p95_low_ms, high[2] as ttft_p95_high_ms,
  ttft[3] as ttft_p99_ms, low[3] as ttft_p99_low_ms, high[3] as ttft_p99_high_ms,
  decode_tps as decode_mean_tps,
  e2e_tps as e2e_mean_tps,
  buffered as is_buffered,
  if(speed_tps is null, null, speed_place) as speed_rank,
  n_errors / nullif(n, 0) as error_rate,
  win_share,
  judged as n_judged,
  flawed / nullif(judged, 0) as flaw_rate
from figures
