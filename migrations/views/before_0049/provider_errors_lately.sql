-- What goes wrong at each deployment: how often, what share of its attempts, when first and last, and the provider's last
-- words; provider_errors_1h, _24h and _30d: lately.
--
-- share: of the deployment's attempts (n_attempts). What fails with a key that a client has brought is left out.
-- error_kind usage_far_off is none of an attempt: of the n answers the provider states far more or fewer tokens per
-- character than the other deployments of the model do (by more than 1.6 times, from 20 answers on; with only one other,
-- who is farther from four characters a token). Thoughts in silence have no characters: answers with any are left out.
with attempted as (
  select
    model, provider, deployment, started_at, outcome, status_code, error_kind, error_message, tokens_source,
    completion_tokens, reasoning_tokens, chars, key_name
  from attempts
  where true
    and attempts.started_at >= {since}
),
totals as (
  select provider, deployment, count(*) as n_attempts from attempted group by provider, deployment
),
stated as (
  select
    model, provider, deployment, count(*) as n, max(started_at) as last_seen_at, min(started_at) as first_seen_at,
    1.0 * sum(completion_tokens) / sum(chars) as per_char
  from attempted
  where outcome = 'won' and tokens_source = 'reported' and chars >= 40 and completion_tokens > 0
    and coalesce(reasoning_tokens, 0) = 0
  group by model, provider, deployment
  having count(*) >= 20
),
{text usage_far_off},
failed as (
  select
    provider, deployment, error_kind, status_code, error_message, started_at,
    row_number() over (partition by provider, deployment, error_kind, status_code order by started_at desc) as place
  from attempted
  where error_kind is not null and {broken} and {own}
)
select
  failed.provider,
  failed.deployment,
  failed.error_kind,
  failed.status_code,
  count(*) as n,
  max(failed.started_at) as last_seen_at,
  max(case when place = 1 then failed.error_message end) as last_message,
  max(totals.n_attempts) as n_attempts,
  cast(count(*) as double precision) / max(totals.n_attempts) as share,
  min(failed.started_at) as first_seen_at
from failed
join totals on totals.provider = failed.provider and totals.deployment = failed.deployment
group by failed.provider, failed.deployment, failed.error_kind, failed.status_code
union all
select
  far_off.provider,
  far_off.deployment,
  'usage_far_off',
  null,
  far_off.n,
  far_off.last_seen_at,
  'states ' || round(cast(far_off.times as {decimal}), 2) || ' times as many tokens per character as the others',
  totals.n_attempts,
  cast(far_off.n as double precision) / totals.n_attempts,
  far_off.first_seen_at
from far_off
join totals on totals.provider = far_off.provider and totals.deployment = far_off.deployment
