-- What goes wrong at each deployment: how often, what share of its attempts, when last, and the provider's last words.
with attempted as (
  select
    nullif(model, '') as model, provider, deployment, started_at, outcome, status_code, error_kind, error_message,
    tokens_source, completion_tokens, reasoning_tokens, chars
  from {attempts}
),
totals as (
  select provider, deployment, count() as n_attempts from attempted group by provider, deployment
),
stated as (
  select
    model, provider, deployment, count() as n, max(started_at) as last_seen_at,
    sum(completion_tokens) / sum(chars) as per_char
  from attempted
  where outcome = 'won' and tokens_source = 'reported' and chars >= 40 and completion_tokens > 0
    and coalesce(reasoning_tokens, 0) = 0
  group by model, provider, deployment
  having n >= 20
),
usual as (
  select stated.model as model, stated.deployment as deployment, count() as number, median(other.per_char) as per_char
  from stated
  join stated as other on other.model = stated.model
  where other.deployment <> stated.deployment
  group by model, deployment
),
far_off as (
  select
    stated.provider as provider, stated.deployment as deployment, stated.n as n, stated.last_seen_at as last_seen_at,
    stated.per_char as per_char, usual.per_char as usual_per_char, usual.number as number
  from stated
  join usual on usual.model = stated.model and usual.deployment = stated.deployment
)
select
  provider, deployment, error_kind, status_code,
  count() as n,
  max(started_at) as last_seen_at,
  argMax(tuple(error_message), started_at).1 as last_message,
  any(totals.n_attempts) as n_attempts,
  count() / any(totals.n_attempts) as share
from attempted
join totals using (provider, deployment)
where error_kind is not null and outcome in ('failed', 'timeout', 'stalled')
group by provider, deployment, error_kind, status_code
union all
select
  provider, deployment, 'usage_far_off', null, n, last_seen_at,
  concat('states ', toString(round(per_char / usual_per_char, 2)), ' times as many tokens per character as the others'),
  n_attempts,
  n / n_attempts
from far_off
join totals using (provider, deployment)
where (per_char > 1.6 * usual_per_char or usual_per_char > 1.6 * per_char)
  and (
    number > 1
    or greatest(per_char * 4, 0.25 / per_char) > greatest(usual_per_char * 4, 0.25 / usual_per_char)
  )
