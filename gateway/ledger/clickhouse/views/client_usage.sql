-- Per client and model, how much was asked, answered and paid. Costs are of all attempts but those with clients' own keys,
-- also of those that ended after their call, in the window of the call. A client may be null, so the two are put together by group by and not by a join.
with paid as (
  select
    client,
    model,
    0 as n, 0 as n_failed, 0 as n_left, 0 as n_raced,
    0 as n_ttft, null as ttft_ms, 0 as n_total, null as total_ms,
    null as prompt_tokens, null as completion_tokens,
    null as own_usd, sumIf(cost_usd, is_own) as usd,
    null as own_low_usd, sumIf(coalesce(cost_low_usd, cost_usd), is_own) as low_usd,
    null as own_high_usd, sumIf(coalesce(cost_high_usd, cost_usd), is_own) as high_usd,
    null as own_added_usd, sumIf(cost_usd + lost_usd, is_added and is_own) as added_usd,
    null as abandoned_usd, null as saved_usd, 0 as n_deadlines, 0 as n_met,
    countIf(is_own and cost_high_usd is null and (cost_usd is null or cost_low_usd is not null)) as n_unpriced
  from (
    select
      of_call.client as client,
      of_call.model as model,
      cost_usd, cost_low_usd, cost_high_usd,
      {own} as is_own,
      {added_and_lost}
    from {attempts} as attempts
    join (
      select of_id, client, model, winner_id, is_beside, winner_usd, winner_saved_usd, is_winner_own
      from (select id as of_id, client, model, winner_attempt_id as winner_id from {calls}) as called
      left join (
        select id as beside_id, true as is_beside, cost_usd as winner_usd, coalesce(cache_saved_usd, 0) as winner_saved_usd,
          {own} as is_winner_own
        from {attempts}
        where coalesce(counts_as, role) in ('race', 'hedge', 'fallback', 'explore', 'probe')
      ) as beside on beside.beside_id = called.winner_id
    ) as of_call on of_call.of_id = attempts.call_id
  )
  group by client, model
),
asked as (
  select
    client,
    model,
    count() as n,
    countIf({failed}) as n_failed,
    countIf(status_code = 499) as n_left,
    countIf(coalesce(extras, launched - 1) > 0) as n_raced,
    count(calls.ttft_ms) as n_ttft,
    sum(calls.ttft_ms) as ttft_ms,
    countIf(error_kind is null and calls.total_ms is not null) as n_total,
    sumIf(calls.total_ms, error_kind is null) as total_ms,
    sum(calls.prompt_tokens) as prompt_tokens,
    sum(calls.completion_tokens) as completion_tokens,
    sum(cost_usd) as own_usd, null as usd,
    sum(cost_low_usd) as own_low_usd, null as low_usd,
    sum(cost_high_usd) as own_high_usd, null as high_usd,
    sum(duplicate_cost_usd) as own_added_usd, null as added_usd,
    sum(abandoned_cost_high_usd) as abandoned_usd,
    sum(cache_saved_usd) as saved_usd,
    count(deadline_met) as n_deadlines,
    countIf(deadline_met) as n_met,
    0 as n_unpriced
  from {calls} as calls
  group by client, model
)
select
  client,
  model,
  sum(both.n) as n,
  sum(both.n_failed) as n_failed,
  sum(both.n_left) as n_left,
  sum(both.n_raced) as n_raced,
  sum(both.ttft_ms) / nullif(sum(both.n_ttft), 0) as ttft_mean_ms,
  sum(both.total_ms) / nullif(sum(both.n_total), 0) as total_mean_ms,
  sum(both.prompt_tokens) as prompt_tokens,
  sum(both.completion_tokens) as completion_tokens,
  greatest(coalesce(sum(usd), sum(own_usd)), coalesce(sum(own_usd), sum(usd))) as cost_usd,
  greatest(coalesce(sum(low_usd), sum(own_low_usd)), coalesce(sum(own_low_usd), sum(low_usd))) as cost_low_usd,
  greatest(coalesce(sum(high_usd), sum(own_high_usd)), coalesce(sum(own_high_usd), sum(high_usd))) as cost_high_usd,
  greatest(coalesce(sum(added_usd), sum(own_added_usd)), coalesce(sum(own_added_usd), sum(added_usd))) as duplicate_cost_usd,
  sum(abandoned_usd) as abandoned_cost_high_usd,
  sum(saved_usd) as cache_saved_usd,
  sum(both.n_deadlines) as n_deadlines,
  sum(n_met) / nullif(sum(both.n_deadlines), 0) as deadline_met_share,
  sum(both.n_unpriced) as n_unpriced
from (select * from asked union all select * from paid) as both
group by client, model
