-- As cache_value, of whole windows.
select
  s.model,
  s.deployment,
  s.provider,
  cast(sum(r.n_won) as bigint) as n,
  cast(sum(r.n_told) as bigint) as n_told,
  cast(sum(r.told_cached_tokens) as double precision) / nullif(sum(r.told_prompt_tokens), 0) as cached_share,
  cast(sum(r.cached_tokens) as bigint) as cached_tokens,
  cast(sum(r.cache_write_tokens) as bigint) as cache_write_tokens,
  sum(r.cache_saved_usd) as cache_saved_usd
from rollup_attempts as r
join rollup_series as s on s.id = r.series_id
where s.api <> 'probe' and {windows}
group by s.model, s.deployment, s.provider
having sum(r.n_won) > 0
