-- Per client and model, how much was asked, answered and paid, of whole windows.
--
-- client is null for calls without a key. n_failed: ended with an error that was not the client's own fault, also in the
-- middle of a stream, whose status is 200; n_left: its client hung up. ttft_mean_ms: of calls with a first token, total_mean_ms
-- of those without an error. Costs are of all attempts, low and high at least and at most, also of those that ended after
-- their call (race_...: added when their rows arrived, to the call's window). Where rows of attempts were deleted before
-- there were sums, the calls' own costs are more. duplicate_cost: what racing added; abandoned_cost: of answers whose clients
-- left. n_deadlines: calls that kept or missed a deadline of the first token, with the share that kept it. n_unpriced: attempts
-- whose upper bound is unknown: of these only what is known is in the sums, so they are bounds where it is 0.
select
  nullif(r.client, '') as client,
  r.model,
  cast(sum(r.n) as bigint) as n,
  cast(sum(r.n_failed) as bigint) as n_failed,
  cast(sum(r.n_left) as bigint) as n_left,
  cast(sum(r.n_raced) as bigint) as n_raced,
  sum(r.ttft_ms) / nullif(sum(r.n_ttft), 0) as ttft_mean_ms,
  sum(r.total_ms) / nullif(sum(r.n_total), 0) as total_mean_ms,
  cast(sum(r.prompt_tokens) as bigint) as prompt_tokens,
  cast(sum(r.completion_tokens) as bigint) as completion_tokens,
  sum({paid cost_usd}) as cost_usd,
  sum({paid cost_low_usd}) as cost_low_usd,
  sum({paid cost_high_usd}) as cost_high_usd,
  sum({paid duplicate_cost_usd}) as duplicate_cost_usd,
  sum(r.abandoned_cost_high_usd) as abandoned_cost_high_usd,
  sum(r.cache_saved_usd) as cache_saved_usd,
  cast(sum(r.n_deadlines) as bigint) as n_deadlines,
  cast(sum(r.deadlines_met) as double precision) / nullif(sum(r.n_deadlines), 0) as deadline_met_share,
  cast(sum(r.n_unpriced) as bigint) as n_unpriced
from rollup_calls as r
where {windows}
group by r.client, r.model
