-- Per model and deployment, what the provider's prompt cache saved: over all time, the last 7 days and the last 24 hours.
--
-- Of calls that were answered there, under the model that answered (after a fallback, not the one asked for). cached_share:
-- cached tokens / prompt tokens, over the answers whose provider said how many were cached (n_told); null without any.
-- cache_saved_usd: cached tokens at the price of input less their own, null while no price of cached input is known; what
-- writing the cache had cost (cache_write_tokens) is in cost_usd of the calls that wrote it.
with answered as (
  select
    coalesce(calls.answered_model, calls.model) as model,
    winner.deployment, winner.provider, winner.prompt_tokens, winner.cached_tokens, winner.cache_write_tokens,
    winner.cache_saved_usd,
    winner.prompt_tokens is not null and winner.cached_tokens is not null as is_told,
    winner.started_at > {ago 24 hours} as of_24h,
    winner.started_at > {ago 7 days} as of_7d
  from attempts as winner
  join calls on calls.winner_attempt_id = winner.id and calls.id = winner.call_id
)
select
  model,
  deployment,
  provider,
  count(*) as calls,
  count(*) filter (where is_told) as n_told,
  cast(sum(cached_tokens) filter (where is_told) as double precision)
    / nullif(sum(prompt_tokens) filter (where is_told), 0) as cached_share,
  sum(cached_tokens) as cached_tokens,
  sum(cache_write_tokens) as cache_write_tokens,
  sum(cache_saved_usd) as cache_saved_usd,
  count(*) filter (where of_7d) as calls_7d,
  cast(sum(cached_tokens) filter (where is_told and of_7d) as double precision)
    / nullif(sum(prompt_tokens) filter (where is_told and of_7d), 0) as cached_share_7d,
  sum(cache_saved_usd) filter (where of_7d) as cache_saved_usd_7d,
  count(*) filter (where of_24h) as calls_24h,
  cast(sum(cached_tokens) filter (where is_told and of_24h) as double precision)
    / nullif(sum(prompt_tokens) filter (where is_told and of_24h), 0) as cached_share_24h,
  sum(cache_saved_usd) filter (where of_24h) as cache_saved_usd_24h
from answered
group by model, deployment, provider
