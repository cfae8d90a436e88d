-- System throughput, as the field defines it: per window of five minutes (UTC), model and client, calls and tokens of all
-- calls together over the wall clock, of the last 24 hours.
--
-- A call counts where it began. requests_s and tokens_s: calls, and completion tokens, a second of the window (300 s).
create view load_5m as
select
  datetime(strftime('%s', started_at) / 300 * 300, 'unixepoch') as window_start,
  model,
  client,
  count(*) as n,
  count(*) / 300.0 as requests_s,
  sum(prompt_tokens) as prompt_tokens,
  sum(completion_tokens) as completion_tokens,
  coalesce(sum(completion_tokens), 0) / 300.0 as tokens_s
from calls
where started_at >= strftime('%Y-%m-%d %H:%M:%S', 'now', '-24 hours')
group by datetime(strftime('%s', started_at) / 300 * 300, 'unixepoch'), model, client
