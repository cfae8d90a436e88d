-- As slo, of whole windows.
with sums as (
  select
    {day} as day, r.model,
    cast(sum(r.slo_n) as bigint) as n,
    cast(sum(r.slo_failed) as bigint) as n_failed,
    cast(sum(r.slo_gave_up) as bigint) as n_gave_up,
    cast(sum(r.slo_left) as bigint) as n_left,
    cast(sum(r.slo_judged) as bigint) as n_ttft,
    cast(sum(r.slo_in_time) as double precision) as in_time,
    cast(sum(r.slo_tps) as bigint) as n_tps,
    cast(sum(r.slo_fast) as double precision) as fast
  from rollup_calls as r
  where {windows}
  group by {day}, r.model
)
select
  day, model, n, n_failed, n_gave_up, n_left, n_ttft,
  in_time / nullif(n_ttft, 0) as ttft_ok_share,
  n_tps as n_decode,
  fast / nullif(n_tps, 0) as decode_ok_share
from sums
where n > 0
