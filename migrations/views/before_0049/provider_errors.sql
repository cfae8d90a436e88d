-- As provider_errors, of whole windows; first_seen_at is when the first of them began.
with sums as (
  select
    s.model, s.provider, s.deployment,
    sum(r.n) as n_attempts,
    sum(r.n_stated) as n_stated,
    cast(sum(r.stated_tokens) as double precision) as tokens,
    sum(r.stated_chars) as chars,
    max(case when r.n_stated > 0 then r.window_start end) as last_seen_at,
    min(case when r.n_stated > 0 then r.window_start end) as first_seen_at
  from rollup_attempts as r
  join rollup_series as s on s.id = r.series_id
  where {windows}
  group by s.model, s.provider, s.deployment
),
totals as (
  select provider, deployment, cast(sum(n_attempts) as bigint) as n_attempts from sums group by provider, deployment
),
stated as (
  select model, provider, deployment, n_stated as n, first_seen_at, last_seen_at, tokens / chars as per_char
  from sums
  where n_stated >= 20
),
{text usage_far_off},
failed as (
  select
    s.provider, s.deployment, r.error_kind, r.status_code, r.n, r.window_start, r.last_seen_at, r.last_message,
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
  cast(sum(failed.n) as double precision) / max(totals.n_attempts) as share,
  min(failed.window_start) as first_seen_at
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
  cast(far_off.n as double precision) / totals.n_attempts,
  far_off.first_seen_at
from far_off
join totals on totals.provider = far_off.provider and totals.deployment = far_off.deployment
