-- Per tag (a client's own word for a call, x-holeshot-tags) and each of its values: calls, failures, and the mean and
-- variance of what two values are compared by; tag_values_30d: lately. Of whole windows; of rows where a tag has too many
-- values to be added up (rollup_wide_tags: '' for all tags).
--
-- Means and variances are over answered calls that have the figure (n_ttft, n_total, n_completion, n_cost), variances with n - 1.
-- cost_mean_usd is all that was paid, by such calls: also for attempts that ended after their call, and for calls without an
-- answer, as limits and invoices have it; of rows, what answered calls had cost when they ended. The view tag_differences sets
-- two values of a tag side by side.
with summed as (
  select
    r.tag, r.value, cast(sum(r.n) as bigint) as n, cast(sum(r.n_failed) as bigint) as n_failed,
    cast(sum(r.n_ttft) as bigint) as n_ttft, sum(r.ttft_ms) as ttft_ms, sum(r.ttft_ms_squared) as ttft_ms_squared,
    cast(sum(r.n_total) as bigint) as n_total, sum(r.total_ms) as total_ms, sum(r.total_ms_squared) as total_ms_squared,
    cast(sum(r.n_tokens) as bigint) as n_tokens, sum(r.tokens) as tokens, sum(r.tokens_squared) as tokens_squared,
    cast(sum(r.n_cost) as bigint) as n_cost, sum(r.cost_usd) as cost_usd, sum(r.cost_usd_squared) as cost_usd_squared,
    sum({greatest}(r.cost_usd, coalesce(r.all_cost_usd, 0))) as all_cost_usd
  from rollup_tags as r
  where {windows}
    and r.tag not in ({wide tags})
    and '' not in ({wide tags})
  group by r.tag, r.value
  union all
{postgresql}  select
{postgresql}    each.tag, each.value, each.n, each.n_failed, each.n_ttft, each.ttft_ms, each.ttft_ms_squared, each.n_total, each.total_ms,
{postgresql}    each.total_ms_squared, each.n_tokens, each.tokens, each.tokens_squared, each.n_cost, each.cost_usd, each.cost_usd_squared, each.cost_usd
{postgresql}  from (select distinct tags.tag from ({wide tags}) as tags) as wide
{postgresql}  cross join lateral values_of_wide_tag(wide.tag, {first}) as each
{postgresql}  where wide.tag = '' or '' not in ({wide tags})
{sqlite}  select each.key, cast(each.value as text), {tag sums}, {tag cost}
{sqlite}  from (select 1 where exists ({wide tags}) and '' not in ({wide tags})) as wide
{sqlite}  cross join calls as f
{sqlite}  cross join {tags of f} as each
{sqlite}  where exists ({wide tags})  -- asked once: where no tag is wide, no call is read
{sqlite}    and f.started_at >= {first} and f.tags <> '{}' and each.value is not null and each.key in ({wide tags})
{sqlite}  group by each.key, cast(each.value as text)
{sqlite}  union all
{sqlite}  select each.key, cast(each.value as text), {tag sums}, {tag cost}
{sqlite}  from (select distinct tags.tag from ({wide tags}) as tags where tags.tag = '') as wide
{sqlite}  cross join calls as f
{sqlite}  cross join {tags of f} as each
{sqlite}  where exists ({wide tags}) and f.started_at >= {first} and f.tags <> '{}' and each.value is not null
{sqlite}  group by each.key, cast(each.value as text)
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
  n_tokens as n_completion,
  tokens / nullif(n_tokens, 0) as completion_mean_tokens,
  {variance tokens n_tokens} as completion_variance,
  n_cost,
  all_cost_usd / nullif(n_cost, 0) as cost_mean_usd,
  {variance cost_usd n_cost} as cost_variance
from summed
