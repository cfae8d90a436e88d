-- Of the last 24 hours, per model that answered: what reading from prompt caches saved, beside what it did to the TTFT.
--
-- Compared are answered calls whose provider said how many tokens were cached: warm ones (some were) with cold ones (none
-- were, of at least the 1,024 tokens below which vendors cache nothing). Their TTFT is the client's. Both are compared
-- size class by size class and weighted by the warm calls of each, where both have at least two.
-- difference_ms: warm - cold, negative where warm calls were sooner; with an interval of 95 %. That is what was seen, not
-- what was caused: nobody draws which calls are warm, later turns of a conversation are, and both may be at different
-- deployments.
with answered as (
  select
    coalesce(calls.answered_model, calls.model) as model,
    calls.size_class,
    calls.ttft_ms,
    winner.cached_tokens > 0 as is_warm,
    case when {own winner.} then winner.cache_saved_usd end as cache_saved_usd
  from calls
  join attempts as winner on winner.id = calls.winner_attempt_id and winner.call_id = calls.id
  where calls.started_at >= {ago 24 hours} and winner.started_at >= {ago 24 hours}
    and calls.ttft_ms is not null and (winner.cached_tokens > 0 or (winner.cached_tokens = 0 and winner.prompt_tokens >= 1024))
),
classes as (
  select
    model,
    size_class,
    count(*) filter (where is_warm) as n_warm,
    count(*) filter (where not is_warm) as n_cold,
    sum(cache_saved_usd) as cache_saved_usd,
    avg(ttft_ms) filter (where is_warm) as warm_ms,
    avg(ttft_ms) filter (where not is_warm) as cold_ms,
    avg(ttft_ms * ttft_ms) filter (where is_warm) as warm_squared,
    avg(ttft_ms * ttft_ms) filter (where not is_warm) as cold_squared
  from answered
  group by model, size_class
),
-- Squared standard errors of the means; what is less than the rounding of the squares is 0.
known as (
  select
    classes.*,
    n_warm > 1 and n_cold > 1 as is_compared,
    case when n_warm > 1 and n_cold > 1 then
      case when warm_squared > warm_ms * warm_ms then (warm_squared - warm_ms * warm_ms) / (n_warm - 1) else 0.0 end
      + case when cold_squared > cold_ms * cold_ms then (cold_squared - cold_ms * cold_ms) / (n_cold - 1) else 0.0 end
    end as error_squared
  from classes
),
summed as (
  select
    model,
    cast(sum(n_warm) as bigint) as n_warm,
    cast(sum(n_cold) as bigint) as n_cold,
    sum(cache_saved_usd) as cache_saved_usd,
    cast(coalesce(sum(n_warm) filter (where is_compared), 0) as bigint) as n_compared,
    cast(sum(n_warm * warm_ms) filter (where is_compared) as double precision)
      / sum(n_warm) filter (where is_compared) as warm_ms,
    cast(sum(n_warm * cold_ms) filter (where is_compared) as double precision)
      / sum(n_warm) filter (where is_compared) as cold_ms,
    sqrt(cast(sum(n_warm * n_warm * error_squared) as double precision))
      / sum(n_warm) filter (where is_compared) as error_ms
  from known
  group by model
)
select
  model,
  n_warm,
  n_cold,
  cache_saved_usd,
  n_compared,
  warm_ms as ttft_warm_ms,
  cold_ms as ttft_cold_ms,
  warm_ms - cold_ms as difference_ms,
  warm_ms - cold_ms - 1.96 * error_ms as difference_low_ms,
  warm_ms - cold_ms + 1.96 * error_ms as difference_high_ms
from summed
