-- Who states far more or fewer tokens per character than the other deployments of the model do: a part of the views
-- provider_errors, which say of whom enough is known (stated).
others as (
  select
    stated.model, stated.deployment, other.per_char,
    row_number() over (partition by stated.model, stated.deployment order by other.per_char) as place,
    count(*) over (partition by stated.model, stated.deployment) as number
  from stated
  join stated as other on other.model = stated.model and other.deployment <> stated.deployment
),
usual as (
  select model, deployment, max(number) as number, avg(per_char) as per_char
  from others
  where place in ((number + 1) / 2, (number + 2) / 2)
  group by model, deployment
),
far_off as (
  select
    stated.provider, stated.deployment, stated.n, stated.first_seen_at, stated.last_seen_at,
    stated.per_char / usual.per_char as times
  from stated
  join usual on usual.model = stated.model and usual.deployment = stated.deployment
  where (stated.per_char > 1.6 * usual.per_char or usual.per_char > 1.6 * stated.per_char)
    and (
      usual.number > 1
      or {greatest}(stated.per_char * 4, 0.25 / stated.per_char) > {greatest}(usual.per_char * 4, 0.25 / usual.per_char)
    )
)
