-- Per model and deployment, what attempts were for that lost a race: another one answered, and they were cut or their answers
-- thrown away. waste_24h and _30d. Of whole windows.
--
-- n: these attempts, of n_attempts in all. prompt_tokens: what they were sent. answer_tokens: what was received of their
-- answers; of one that was cut before its first token, nothing. What was generated lies between answer_low_tokens and
-- answer_high_tokens, which are of the n_bounded attempts for which that is known: a vendor may generate on after the
-- connection is closed (attempts.wasted_high_tokens). cost_usd: the same in money, low and high at least and at most.
-- n_unpriced: those whose upper bound is unknown: of these only what is known is in the sum, so it is a bound where it is 0.
select
  s.model,
  s.deployment,
  s.provider,
  cast(sum(r.n) as bigint) as n_attempts,
  cast(sum(r.n_wasted) as bigint) as n,
  cast(sum(r.wasted_prompt_tokens) as bigint) as prompt_tokens,
  cast(sum(r.wasted_tokens) as bigint) as answer_tokens,
  cast(sum(r.n_bounded) as bigint) as n_bounded,
  cast(case when sum(r.n_bounded) > 0 then sum(r.wasted_low_tokens) end as bigint) as answer_low_tokens,
  cast(case when sum(r.n_bounded) > 0 then sum(r.wasted_high_tokens) end as bigint) as answer_high_tokens,
  sum(r.wasted_cost_usd) as cost_usd,
  sum(r.wasted_cost_low_usd) as cost_low_usd,
  sum(r.wasted_cost_high_usd) as cost_high_usd,
  cast(sum(r.n_wasted_unpriced) as bigint) as n_unpriced
from rollup_attempts as r
join rollup_series as s on s.id = r.series_id
where s.api <> 'probe' and {windows}
group by s.model, s.deployment, s.provider
having sum(r.n_wasted) > 0
