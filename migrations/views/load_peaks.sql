-- Per model, the busiest five minutes and the busiest hour of the last 24: what it peaked at, and what it sustained.
with windows as (
  select model, window_start, sum(load_rps) as rps, sum(load_tps) as tps
  from load_5m
  group by model, window_start
),
hours as (
  select model, {hour of window_start} as hour_start, sum(rps) / 12 as rps, sum(tps) / 12 as tps
  from windows
  group by model, {hour of window_start}
),
sustained as (
  select model, max(rps) as rps, max(tps) as tps from hours group by model
)
select
  windows.model,
  max(windows.rps) as peak_rps,
  max(sustained.rps) as sustained_rps,
  max(windows.tps) as peak_tps,
  max(sustained.tps) as sustained_tps
from windows
join sustained on sustained.model = windows.model
group by windows.model
