-- Per client and model, how much was asked, answered and paid; client_usage_1h, _24h and _30d: lately.
--
-- client is null for calls without a key. n_failed: answered with an error that was not the client's own fault; n_left: its
-- client hung up. ttft_mean_ms and total_mean_ms are over answered calls. Tokens and costs are of all calls, low and high at
-- least and at most; duplicate_cost: what racing added; abandoned_cost: of answers whose clients left. n_deadlines: calls that
-- kept or missed a deadline of the first token, with the share that kept it.
create view client_usage as
select
  client,
  model,
  count(*) as n,
  count(*) filter (where error_kind is not null and (status_code in (424, 429) or status_code >= 500)) as n_failed,
  count(*) filter (where status_code = 499) as n_left,
  count(*) filter (where launched > 1) as n_raced,
  avg(ttft_ms) as ttft_mean_ms,
  avg(total_ms) filter (where error_kind is null) as total_mean_ms,
  sum(prompt_tokens) as prompt_tokens,
  sum(completion_tokens) as completion_tokens,
  sum(cost_usd) as cost_usd,
  sum(cost_low_usd) as cost_low_usd,
  sum(cost_high_usd) as cost_high_usd,
  sum(duplicate_cost_usd) as duplicate_cost_usd,
  sum(abandoned_cost_high_usd) as abandoned_cost_high_usd,
  sum(cache_saved_usd) as cache_saved_usd,
  count(deadline_met) as n_deadlines,
  cast(count(*) filter (where deadline_met) as double precision) / nullif(count(deadline_met), 0) as deadline_met_share
from calls
where true
-- and calls.started_at >= :since
group by client, model
