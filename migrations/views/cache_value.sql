-- Per model and deployment, what the provider's prompt cache saved: over all time, the last 7 days and the last 24 hours.
--
-- Of calls that were answered there, under the model that answered (after a fallback, not the one asked for). cached_share:
-- cached tokens / prompt tokens, over the answers whose provider said how many were cached (n_told); null without any.
-- cache_saved_usd: cached tokens at the price of input less their own, null while no price of cached input is known; what
-- writing the cache had cost (cache_write_tokens) is in cost_usd of the calls that wrote it. Of whole windows.
with spans as (
  select
    'all' as span, r.series_id, r.n_won, r.n_told, r.told_cached_tokens, r.told_prompt_tokens, r.cached_tokens, r.cache_write_tokens, r.cache_saved_usd
  from rollup_attempts as r
  where {windows}
  union all
  select
    '7d' as span, r.series_id, r.n_won, r.n_told, r.told_cached_tokens, r.told_prompt_tokens, r.cached_tokens, r.cache_write_tokens, r.cache_saved_usd
  from rollup_attempts as r
  where {windows 7d}
  union all
  select
    '24h' as span, r.series_id, r.n_won, r.n_told, r.told_cached_tokens, r.told_prompt_tokens, r.cached_tokens, r.cache_write_tokens, r.cache_saved_usd
  from rollup_attempts as r
  where {windows 24h}
)
select
  s.model,
  s.deployment,
  s.provider,
  cast(sum(r.n_won) filter (where span = 'all') as bigint) as n,
  cast(sum(r.n_told) filter (where span = 'all') as bigint) as n_told,
  cast(sum(r.told_cached_tokens) filter (where span = 'all') as double precision)
    / nullif(sum(r.told_prompt_tokens) filter (where span = 'all'), 0) as cached_share,
  cast(sum(r.cached_tokens) filter (where span = 'all') as bigint) as cached_tokens,
  cast(sum(r.cache_write_tokens) filter (where span = 'all') as bigint) as cache_write_tokens,
  sum(r.cache_saved_usd) filter (where span = 'all') as cache_saved_usd,
  cast(coalesce(sum(r.n_won) filter (where span = '7d'), 0) as bigint) as n_7d,
  cast(sum(r.told_cached_tokens) filter (where span = '7d') as double precision)
    / nullif(sum(r.told_prompt_tokens) filter (where span = '7d'), 0) as cached_7d_share,
  sum(r.cache_saved_usd) filter (where span = '7d') as cache_saved_7d_usd,
  cast(coalesce(sum(r.n_won) filter (where span = '24h'), 0) as bigint) as n_24h,
  cast(sum(r.told_cached_tokens) filter (where span = '24h') as double precision)
    / nullif(sum(r.told_prompt_tokens) filter (where span = '24h'), 0) as cached_24h_share,
  sum(r.cache_saved_usd) filter (where span = '24h') as cache_saved_24h_usd
from spans as r
join rollup_series as s on s.id = r.series_id
where s.api <> 'probe'
group by s.model, s.deployment, s.provider
having sum(r.n_won) filter (where span = 'all') > 0
