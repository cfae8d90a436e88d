-- What goes wrong at each deployment: how often, what share of its attempts, when last, and the provider's last words.
-- Rows are read twice: for errors, and for what each deployment states of tokens beside the others of its model.
with grouped as (
  select
    provider, deployment, error_kind, status_code,
    {broken} and {own} as has_broken,  -- what fails with clients' own keys is theirs
    count() as n,
    max(started_at) as last_seen_at,
    min(started_at) as first_seen_at,
    argMax(tuple(error_message), started_at).1 as last_message,
    sum(n) over (partition by provider, deployment) as n_attempts
  from {attempts}
  group by provider, deployment, error_kind, status_code, has_broken
),
stated as (
  select
    provider, deployment, model,
    sum(n_all) over (partition by provider, deployment) as n_attempts,
    n_stated as n,
    last_stated_at as last_seen_at,
    first_stated_at as first_seen_at,
    per_char,
    -- of the other deployments of the model of which enough answers tell
    groupArrayIf(tuple(deployment, per_char), n_stated >= 20) over (partition by model) as known
  from (
    select
      provider, deployment, model,
      count() as n_all,
      countIf(is_stated) as n_stated,
      maxIf(started_at, is_stated) as last_stated_at,
      minIf(started_at, is_stated) as first_stated_at,
      sumIf(completion_tokens, is_stated) / sumIf(chars, is_stated) as per_char
    from (
      select
        *,
        coalesce(outcome = 'won' and tokens_source = 'reported' and chars >= 40 and completion_tokens > 0
          and coalesce(reasoning_tokens, 0) = 0, false) as is_stated
      from {attempts}
    )
    group by provider, deployment, model
  )
),
far_off as (
  select
    provider, deployment, n, first_seen_at, last_seen_at, n_attempts, per_char,
    arrayMap(each -> each.2, arrayFilter(each -> each.1 <> deployment, known)) as others,
    arrayReduce('median', others) as usual_per_char
  from stated
  where n >= 20 and model <> '' and length(others) > 0
)
select
  provider, deployment, error_kind, status_code, n, last_seen_at, last_message, n_attempts, n / n_attempts as share,
  first_seen_at
from grouped
where error_kind is not null and has_broken
union all
select
  provider, deployment, 'usage_far_off', null, n, last_seen_at,
  concat('states ', toDecimalString(round(per_char / usual_per_char, 2), 2), ' times as many tokens per character as the others'),
  n_attempts,
  n / n_attempts,
  first_seen_at
from far_off
where (per_char > 1.6 * usual_per_char or usual_per_char > 1.6 * per_char)
  and (
    length(others) > 1
    or greatest(per_char * 4, 0.25 / per_char) > greatest(usual_per_char * 4, 0.25 / usual_per_char)
  )
