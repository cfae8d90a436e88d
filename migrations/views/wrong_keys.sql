-- Who tries keys that nobody has, by address: a program with an old key, or somebody who guesses.
--
-- n_minutes: minutes in which there was at least one; peak_per_minute: the most in one of them, of all replicas together.
select
  address,
  cast(sum(n) as bigint) as n,
  count(*) as n_minutes,
  max(n) as peak_per_minute,
  min(started_at) as first_seen_at,
  max(started_at) as last_seen_at
from (
  select address, started_at, cast(sum(n) as bigint) as n
  from refusals
  where reason = 'invalid_api_key' and started_at >= {since}
  group by address, started_at
) as minutes
group by address
