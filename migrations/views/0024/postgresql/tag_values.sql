-- As tag_values, of whole windows; of rows where a tag has too many values to be added up (rollup_wide_tags: '' for all tags).
create view {view} as
with summed as (
  select
    r.tag, r.value, cast(sum(r.n) as bigint) as n, cast(sum(r.n_failed) as bigint) as n_failed,
    cast(sum(r.n_ttft) as bigint) as n_ttft, sum(r.ttft_ms) as ttft_ms, sum(r.ttft_ms_squared) as ttft_ms_squared,
    cast(sum(r.n_total) as bigint) as n_total, sum(r.total_ms) as total_ms, sum(r.total_ms_squared) as total_ms_squared,
    cast(sum(r.n_tokens) as bigint) as n_tokens, sum(r.tokens) as tokens, sum(r.tokens_squared) as tokens_squared,
    cast(sum(r.n_cost) as bigint) as n_cost, sum(r.cost_usd) as cost_usd, sum(r.cost_usd_squared) as cost_usd_squared
  from rollup_tags as r
  where {windows}
    and r.tag not in ({wide tags})
    and '' not in ({wide tags})
  group by r.tag, r.value
  union all
  select
    each.tag, each.value, each.n, each.n_failed, each.n_ttft, each.ttft_ms, each.ttft_ms_squared, each.n_total, each.total_ms,
    each.total_ms_squared, each.n_tokens, each.tokens, each.tokens_squared, each.n_cost, each.cost_usd, each.cost_usd_squared
  from (select distinct tags.tag from ({wide tags}) as tags) as wide
  cross join lateral values_of_wide_tag(wide.tag, {first}) as each
  where wide.tag = '' or '' not in ({wide tags})
)
select
  tag,
  value,
  n,
  n_failed,
  n_ttft,
  ttft_ms / nullif(n_ttft, 0) as ttft_mean_ms,
  {variance ttft_ms n_ttft} as ttft_variance,
  n_total,
  total_ms / nullif(n_total, 0) as total_mean_ms,
  {variance total_ms n_total} as total_variance,
  n_tokens,
  tokens / nullif(n_tokens, 0) as tokens_mean,
  {variance tokens n_tokens} as tokens_variance,
  n_cost,
  cost_usd / nullif(n_cost, 0) as cost_mean_usd,
  {variance cost_usd n_cost} as cost_variance
from summed
