-- What goes wrong at each deployment: how often, when last, and the provider's last words.
--
-- Beside a single max(), SQLite takes other columns from that row: the message is the last one.
create view provider_errors as
select
  provider,
  deployment,
  error_kind,
  status_code,
  count(*) as n,
  max(started_at) as last_seen_at,
  error_message as last_message
from attempts
where error_kind is not null and outcome in ('failed', 'timeout', 'stalled')
group by provider, deployment, error_kind, status_code
