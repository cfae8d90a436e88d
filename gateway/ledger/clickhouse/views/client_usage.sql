-- Per client and model, how much was asked, answered and paid. Costs are of all attempts, also of those that ended after
-- their call, in the window of the call.
with asked as (select * from {calls}),
beside as (
  select call_id from {attempts} where number > 1 and outcome = 'won' and role in ('race', 'hedge', 'explore', 'probe')
),
paid as (
  select
    call_id,
    sum(cost_usd) as usd,
    sum(coalesce(cost_low_usd, cost_usd)) as low_usd,
    sum(coalesce(cost_high_usd, cost_usd)) as high_usd,
    sumIf(cost_usd, is_added) as added_usd
  from (
    select
      call_id, cost_usd, cost_low_usd, cost_high_usd,
      attempts.id <> coalesce(asked.winner_attempt_id, attempts.call_id) and (
        role in ('race', 'hedge', 'explore', 'probe')
        or (outcome in ('lost', 'superseded') and call_id in (select call_id from beside))
      ) as is_added
    from {attempts} as attempts
    join (select id, winner_attempt_id from asked) as asked on asked.id = attempts.call_id
  )
  group by call_id
),
summed as (
  select
    asked.client as client,
    asked.model as model,
    count() as n,
    countIf(error_kind is not null and (status_code in (424, 429) or status_code not between 400 and 499)) as n_failed,
    countIf(status_code = 499) as n_left,
    countIf(launched > 1) as n_raced,
    avg(ttft_ms) as ttft_mean_ms,
    avgIf(total_ms, error_kind is null) as total_mean_ms,
    sum(prompt_tokens) as prompt_tokens,
    sum(completion_tokens) as completion_tokens,
    sum(cost_usd) as own_usd, sum(usd) as usd,
    sum(cost_low_usd) as own_low_usd, sum(low_usd) as low_usd,
    sum(cost_high_usd) as own_high_usd, sum(high_usd) as high_usd,
    sum(duplicate_cost_usd) as own_added_usd, sum(added_usd) as added_usd,
    sum(abandoned_cost_high_usd) as abandoned_cost_high_usd,
    sum(cache_saved_usd) as cache_saved_usd,
    count(deadline_met) as n_deadlines,
    countIf(deadline_met) as n_met
  from asked
  left join paid on paid.call_id = asked.id
  group by client, model
)
select
  client, model, n, n_failed, n_left, n_raced, ttft_mean_ms, total_mean_ms, prompt_tokens, completion_tokens,
  greatest(coalesce(usd, own_usd), coalesce(own_usd, usd)) as cost_usd,
  greatest(coalesce(low_usd, own_low_usd), coalesce(own_low_usd, low_usd)) as cost_low_usd,
  greatest(coalesce(high_usd, own_high_usd), coalesce(own_high_usd, high_usd)) as cost_high_usd,
  greatest(coalesce(added_usd, own_added_usd), coalesce(own_added_usd, added_usd)) as duplicate_cost_usd,
  abandoned_cost_high_usd,
  cache_saved_usd,
  n_deadlines,
  n_met / nullif(n_deadlines, 0) as deadline_met_share
from summed
