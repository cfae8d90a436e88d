-- Per tag (a client's own word for a call, x-holeshot-tags) and each of its values: calls, failures, and the mean and
-- variance of what two values are compared by; tag_values_1h, _24h and _30d: lately.
--
-- Means and variances are over answered calls that have the figure (n_ttft, n_total, n_tokens, n_cost), variances with n - 1. The
-- view tag_differences sets two values of a tag side by side.
with tagged as (
  select
    each.key as tag, cast(each.value as text) as value,
    {failed calls.} as is_failed,
    case when calls.status_code = 200 then calls.ttft_ms end as ttft_ms,
    case when calls.status_code = 200 then calls.total_ms end as total_ms,
    case when calls.status_code = 200 then cast(calls.completion_tokens as double precision) end as tokens,
    case when calls.status_code = 200 then calls.cost_usd end as cost_usd
  from calls
  cross join {tags of calls} as each
  where true
    and calls.started_at >= {since}
)
select
  tag,
  value,
  count(*) as n,
  count(*) filter (where is_failed) as n_failed,
  count(ttft_ms) as n_ttft,
  avg(ttft_ms) as ttft_mean_ms,
  {var_samp ttft_ms} as ttft_variance,
  count(total_ms) as n_total,
  avg(total_ms) as total_mean_ms,
  {var_samp total_ms} as total_variance,
  count(tokens) as n_tokens,
  avg(tokens) as tokens_mean,
  {var_samp tokens} as tokens_variance,
  count(cost_usd) as n_cost,
  avg(cost_usd) as cost_mean_usd,
  {var_samp cost_usd} as cost_variance
from tagged
group by tag, value
