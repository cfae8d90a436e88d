-- Per day (UTC) and model, the share of calls within the objective: TTFT under 500 ms, and over 45 tok/s.
with judged as (
  select
    toDate(calls.started_at, 'UTC') as day,
    calls.model as model,
    calls.ttft_ms as ttft_ms,
    calls.status_code = 499 and calls.ttft_ms is null and calls.total_ms >= 500 as gave_up,
    calls.status_code = 499 and calls.ttft_ms is null and calls.total_ms < 500 as has_left,
    {calls.failed} as is_failed,
    {calls.own_fault} as is_clients_own,
    if(winner.tokens_source = 'reported', winner.decode_tps, null) as decode_tps
  from {calls} as calls
  left join (select id, tokens_source, decode_tps from {attempts} where outcome = 'won') as winner
    on winner.id = calls.winner_attempt_id
  where {calls.raced}
)
select
  day,
  model,
  count() as n,
  countIf(is_failed) as n_failed,
  countIf(gave_up) as n_gave_up,
  countIf(has_left) as n_left,
  countIf(not is_clients_own and (is_failed or gave_up or ttft_ms is not null)) as n_ttft,
  countIf(not is_clients_own and not is_failed and ttft_ms < 500) / nullif(n_ttft, 0) as ttft_ok_share,
  count(decode_tps) as n_decode,
  countIf(decode_tps > 45) / nullif(n_decode, 0) as decode_ok_share
from judged
group by day, model
