-- Outages that began in the last 30 days, and whether each is over.
--
-- state 'out': it began within a day, has no end, nothing has had a first token there lately and since (a key that a client
-- has brought does not count), and its replica has not seen a later one end. 'unknown': it has no end, as its process was
-- killed and nobody has found its spool. lasted_s: seconds until its end.
select
  deployment, model, began_at, ended_at,
  case
    when ended_at is not null then 'over'
    when began_at > {before 1 day}
      and not exists (
        select 1 from outages as later
        where later.deployment = outages.deployment and later.replica = outages.replica
          and later.began_at > outages.began_at and later.ended_at is not null
      )
      and not exists (
        select 1 from attempts
        where attempts.deployment = outages.deployment and attempts.started_at > outages.began_at
          and attempts.token_ms is not null and {own attempts.}
          and attempts.started_at > {before 10 minutes}
      ) then 'out'
    else 'unknown'
  end as state,
{postgresql}  cast(extract(epoch from ended_at - began_at) as double precision) as lasted_s,
{sqlite}  86400.0 * (julianday(ended_at) - julianday(began_at)) as lasted_s,
  reason, replica
from outages
where began_at > {since}
