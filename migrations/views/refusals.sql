-- Who was refused what, by client, status, reason and, where its name is the reason, the model that was asked for.
--
-- client is null if the key was unknown, or there are no keys. n_addresses: different ones; all beyond the first hundred of
-- a minute and process are one, 'other', as are all models beyond. The instants are the first and the last minute in which
-- it happened.
select
  client,
  status_code,
  reason,
  cast(sum(n) as bigint) as n,
  count(distinct address) as n_addresses,
  min(started_at) as first_seen_at,
  max(started_at) as last_seen_at,
  model
from refusals
where started_at >= {since}
group by client, status_code, reason, model
