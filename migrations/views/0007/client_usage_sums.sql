-- As client_usage, of whole windows.
create view {view} as
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
  sum(r.cost_usd) as cost_usd,
  sum(r.cost_low_usd) as cost_low_usd,
  sum(r.cost_high_usd) as cost_high_usd,
  sum(r.duplicate_cost_usd) as duplicate_cost_usd,
  sum(r.abandoned_cost_high_usd) as abandoned_cost_high_usd,
  sum(r.cache_saved_usd) as cache_saved_usd,
  cast(sum(r.n_deadlines) as bigint) as n_deadlines,
  cast(sum(r.deadlines_met) as double precision) / nullif(sum(r.n_deadlines), 0) as deadline_met_share
from rollup_calls as r
where {windows}
group by r.client, r.model
