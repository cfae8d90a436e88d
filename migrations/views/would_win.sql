-- Per model and deployment, how often it would have been first in the calls that did not ask it, of the last 24 hours.
--
-- would_win_share: over these calls (n_not_asked), the chance that its first token comes before the one that the client
-- got, as its attempts of the same day say: Kaplan-Meier over first tokens and attempts cut before theirs (n_censored), in
-- buckets 9 % wide; from 30 audits on the audited stand for all that were overtaken, below that it is biased as the
-- leaderboard is (is_biased): too low, as quick prompts cut it. Null below 30 first tokens (n_first_token). It holds all
-- prompts alike and the whole day for one. won_share: of the calls that asked it (n_asked), those that it answered (n_won).
-- Only what is raced counts.
with recent as materialized (
  select model, deployment, provider, bucket, token_ms, censored_ms, is_late, is_overtaken, is_watched
  from samples
  where started_at >= {since} and prompt_class < 10
),
basis as (
  select
    model, deployment,
    min(provider) as provider,
    count(token_ms) as n_first_token,
    count(censored_ms) as n_censored,
    count(*) filter (where is_watched) >= 30 as is_audited,
    cast(count(*) filter (where is_overtaken) as double precision) / nullif(count(*) filter (where is_watched), 0) as weight
  from recent
  group by model, deployment
),
histogram as (
  select
    model, deployment, bucket,
    case when is_audited
      then count(token_ms) filter (where not is_watched) + weight * count(token_ms) filter (where is_watched)
      else count(token_ms)
    end as events,
    case when is_audited
      then count(censored_ms) filter (where not is_overtaken) + weight * count(censored_ms) filter (where is_watched)
      else count(censored_ms)
    end as censored
  from recent
  join basis using (model, deployment)
  where bucket is not null and not (is_audited and is_late)
  group by model, deployment, bucket, is_audited, weight
),
at_risk as (
  select
    model, deployment, bucket, events,
    cast(sum(events + censored) over (partition by model, deployment order by bucket desc) as double precision) as n
  from histogram
),
survival as (
  select
    model, deployment, bucket,
    exp(sum(ln(case when n - events < 0.5 then 0.5 / n else 1 - events / n end)) over (partition by model, deployment order by bucket)) as waiting
  from at_risk
  where n >= 0.5
),
answered as materialized (
  select id, coalesce(answered_model, model) as model, {bucket ttft_ms} as bucket
  from calls
  where started_at >= {since} and ttft_ms is not null and prompt_class < 10
),
by_bucket as (
  select model, bucket, count(*) as n
  from answered
  group by model, bucket
),
asked as (
  select
    answered.model, attempts.deployment, answered.bucket,
    count(distinct answered.id) as n,
    count(distinct case when attempts.outcome = 'won' then answered.id end) as n_won
  from answered
  join attempts on attempts.call_id = answered.id and attempts.started_at >= {since}
  group by answered.model, attempts.deployment, answered.bucket
),
-- Of each deployment and each bucket of clients' first tokens: the chance that it is later still, before and after it.
chances as (
  select
    basis.model, basis.deployment, by_bucket.bucket, by_bucket.n,
    coalesce(min(case when survival.bucket < by_bucket.bucket then waiting end), 1) as waiting_before,
    coalesce(min(waiting), 1) as waiting
  from basis
  join by_bucket on by_bucket.model = basis.model
  left join survival
    on survival.model = basis.model and survival.deployment = basis.deployment and survival.bucket <= by_bucket.bucket
  group by basis.model, basis.deployment, by_bucket.bucket, by_bucket.n
),
summed as (
  select
    chances.model, chances.deployment,
    cast(sum(chances.n) as bigint) as n,
    cast(coalesce(sum(asked.n), 0) as bigint) as n_asked,
    cast(coalesce(sum(asked.n_won), 0) as bigint) as n_won,
    cast(sum((chances.n - coalesce(asked.n, 0)) * (1 - (waiting_before + waiting) / 2)) as double precision) as would_win
  from chances
  left join asked on asked.model = chances.model and asked.deployment = chances.deployment and asked.bucket = chances.bucket
  group by chances.model, chances.deployment
)
select
  summed.model,
  summed.deployment,
  basis.provider,
  summed.n,
  n_asked,
  n_won,
  cast(n_won as double precision) / nullif(n_asked, 0) as won_share,
  summed.n - n_asked as n_not_asked,
  case when n_first_token >= 30 then would_win / nullif(summed.n - n_asked, 0) end as would_win_share,
  n_first_token,
  n_censored,
  not is_audited and n_censored > 0 as is_biased
from summed
join basis on basis.model = summed.model and basis.deployment = summed.deployment
