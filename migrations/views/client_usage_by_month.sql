-- Per calendar month (UTC, as 2026-11), client and model, how much was asked, answered and paid: for whom a month is charged.
--
-- The columns are those of client_usage. The month that runs is in it so far.
select
  {month} as month,
  nullif(r.client, '') as client,
  r.model,
  cast(sum(r.n) as bigint) as n,
  cast(sum(r.n_failed) as bigint) as n_failed,
  cast(sum(r.prompt_tokens) as bigint) as prompt_tokens,
  cast(sum(r.completion_tokens) as bigint) as completion_tokens,
  sum({paid cost_usd}) as cost_usd,
  sum({paid cost_low_usd}) as cost_low_usd,
  sum({paid cost_high_usd}) as cost_high_usd,
  sum({paid duplicate_cost_usd}) as duplicate_cost_usd,
  cast(sum(r.n_unpriced) as bigint) as n_unpriced
from rollup_calls as r
where {windows}
group by {month}, r.client, r.model
