-- Per calendar month (UTC, as 2026-11) and end user (the tag end_user, a keyed hash), how much was asked and paid, as the
-- limits of end users count it.
--
-- cost_usd is of all attempts of all calls, also of those that ended after their call. The month that runs is in it so far. Of
-- days with too many tags to be added up (rollup_wide_tags) the rows are read, as long as they are kept.
with wide as (
  select distinct r.window_start from rollup_wide_tags as r where {windows} and r.tag in ('end_user', '')
),
used as (
  select r.window_start, r.value as end_user, r.n, r.n_failed, {greatest}(r.cost_usd, coalesce(r.all_cost_usd, 0)) as cost_usd
  from rollup_tags as r
  where {windows} and r.tag = 'end_user' and r.window_start not in (select window_start from wide)
  union all
  select wide.window_start, {tag end_user}, 1, case when {failed c.} then 1 else 0 end, {all cost of c}
  from wide
  cross join calls as c
{postgresql}  where c.started_at >= wide.window_start and c.started_at < wide.window_start + interval '24 hours'
{sqlite}  where c.started_at >= wide.window_start and c.started_at < datetime(wide.window_start, '+1 day')
    and {tag end_user} is not null
)
select
  {month} as month,
  r.end_user,
  cast(sum(r.n) as bigint) as n,
  cast(sum(r.n_failed) as bigint) as n_failed,
  sum(r.cost_usd) as cost_usd
from used as r
group by {month}, r.end_user
