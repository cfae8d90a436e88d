-- Per model, the busiest five minutes and the busiest hour of the last 24: what it peaked at, and what it sustained.
with windows as (
  select model, window_start, sum(requests_s) as requests_s, sum(tokens_s) as tokens_s
  from load_5m
  group by model, window_start
),
hours as (
  select model, {hour of window_start} as hour_start, sum(requests_s) / 12 as requests_s, sum(tokens_s) / 12 as tokens_s
  from windows
  group by model, {hour of window_start}
),
sustained as (
  select model, max(requests_s) as requests_s, max(tokens_s) as tokens_s from hours group by model
)
select
  windows.model,
  max(windows.requests_s) as peak_requests_s,
  max(sustained.requests_s) as sustained_requests_s,
  max(windows.tokens_s) as peak_tokens_s,
  max(sustained.tokens_s) as sustained_tokens_s
from windows
join sustained on sustained.model = windows.model
group by windows.model
