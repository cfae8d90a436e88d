-- Per day (UTC) and model, the share of calls within the objective: TTFT under 500 ms, and over 45 tok/s.
--
-- A failed call is bad for TTFT, and so is one whose client left after 500 ms without a token (n_gave_up). Who left sooner
-- (n_left) is censored: nobody knows what it would have been, so it counts in neither, nor do the client's own faults (4xx
-- but 424 and 429) or a figure that is null. A client that leaves an answer that has begun had its first token. Speeds are of
-- answers whose provider counted the tokens. Only calls that are raced have these figures.
with judged as (
  select
    {day} as day,
    calls.model,
    calls.ttft_ms,
    calls.status_code = 499 and calls.ttft_ms is null and calls.total_ms >= 500 as gave_up,
    calls.status_code = 499 and calls.ttft_ms is null and calls.total_ms < 500 as has_left,
    calls.error_kind is not null
      and (calls.status_code in (424, 429) or calls.status_code not between 400 and 499) as is_failed,
    calls.status_code between 400 and 498 and calls.status_code not in (424, 429) as is_clients_own,
    case when winner.tokens_source = 'reported' then winner.decode_tps end as decode_tps
  from calls
  left join attempts as winner on winner.id = calls.winner_attempt_id
  where calls.endpoint in ('chat.completions', 'completions', 'messages', 'responses')
)
select
  day,
  model,
  count(*) as n,
  count(*) filter (where is_failed) as n_failed,
  count(*) filter (where gave_up) as n_gave_up,
  count(*) filter (where has_left) as n_left,
  count(*) filter (where not is_clients_own and (is_failed or gave_up or ttft_ms is not null)) as n_ttft,
  cast(count(*) filter (where not is_clients_own and not is_failed and ttft_ms < 500) as double precision)
    / nullif(count(*) filter (where not is_clients_own and (is_failed or gave_up or ttft_ms is not null)), 0)
    as ttft_ok_share,
  count(decode_tps) as n_tps,
  cast(count(*) filter (where decode_tps > 45) as double precision) / nullif(count(decode_tps), 0) as tps_ok_share
from judged
group by day, model
