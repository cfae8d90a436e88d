-- As provider_errors, of whole windows.
with sums as (
  select
    s.model, s.provider, s.deployment,
    sum(r.n) as n_attempts,
    sum(r.n_stated) as n_stated,
    cast(sum(r.stated_tokens) as double precision) as tokens,
    sum(r.stated_chars) as chars,
    max(case when r.n_stated > 0 then r.window_start end) as last_seen_at
  from rollup_attempts as r
  join rollup_series as s on s.id = r.series_id
  where {windows}
  group by s.model, s.provider, s.deployment
),
totals as (
  select provider, deployment, cast(sum(n_attempts) as bigint) as n_attempts from sums group by provider, deployment
),
stated as (
  select model, provider, deployment, n_stated as n, last_seen_at, tokens / chars as per_char
  from sums
  where n_stated >= 20
),
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
  select stated.provider, stated.deployment, stated.n, stated.last_seen_at, stated.per_char / usual.per_char as times
  from stated
  join usual on usual.model = stated.model and usual.deployment = stated.deployment
  where (stated.per_char > 1.6 * usual.per_char or usual.per_char > 1.6 * stated.per_char)
    and (
      usual.number > 1
      or {greatest}(stated.per_char * 4, 0.25 / stated.per_char) > {greatest}(usual.per_char * 4, 0.25 / usual.per_char)
    )
),
failed as (
  select
    s.provider, s.deployment, r.error_kind, r.status_code, r.n, r.last_seen_at, r.last_message,
    row_number() over (
      partition by s.provider, s.deployment, r.error_kind, r.status_code order by r.last_seen_at desc
    ) as place
  from rollup_errors as r
  join rollup_series as s on s.id = r.series_id
  where {windows}
)
select
  failed.provider,
  failed.deployment,
  failed.error_kind,
  nullif(failed.status_code, -1) as status_code,
  cast(sum(failed.n) as bigint) as n,
  max(failed.last_seen_at) as last_seen_at,
  max(case when place = 1 then failed.last_message end) as last_message,
  max(totals.n_attempts) as n_attempts,
  cast(sum(failed.n) as double precision) / max(totals.n_attempts) as share
from failed
join totals on totals.provider = failed.provider and totals.deployment = failed.deployment
group by failed.provider, failed.deployment, failed.error_kind, failed.status_code
union all
select
  far_off.provider,
  far_off.deployment,
  'usage_far_off',
  null,
  cast(far_off.n as bigint),
  far_off.last_seen_at,
  'states ' || round(cast(far_off.times as {decimal}), 2) || ' times as many tokens per character as the others',
  totals.n_attempts,
  cast(far_off.n as double precision) / totals.n_attempts
from far_off
join totals on totals.provider = far_off.provider and totals.deployment = far_off.deployment
