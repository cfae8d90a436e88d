-- As throughput, of the rows of the last hour or day. A quantile is, as there, the first value at which the share is
-- reached: of rows it is a row's own value, which lies in the bucket that sums say.
with judged as (
  select
    provider, deployment, ttft_ms, censored_at_ms,
    case when tokens_source = 'reported' and decode_tps > 0 then decode_tps end as decode_tps,
    case when tokens_source = 'reported' and e2e_tps > 0 then e2e_tps end as e2e_tps,
    {broken}
      and coalesce(error_kind, '') not in {no errors}
      and {own} as is_error,
    error_kind = 'rate_limited' and {own} as is_rate_limited
  from attempts
  where attempts.started_at >= {since}
),
ranked as (
  select
    *,
    row_number() over (partition by deployment, provider, ttft_ms is null order by ttft_ms) as ttft_rank,
    cast(count(ttft_ms) over (partition by deployment, provider) as double precision) as ttft_n,
    row_number() over (partition by deployment, provider, decode_tps is null order by decode_tps) as decode_rank,
    cast(count(decode_tps) over (partition by deployment, provider) as double precision) as decode_n,
    row_number() over (partition by deployment, provider, e2e_tps is null order by e2e_tps) as e2e_rank,
    cast(count(e2e_tps) over (partition by deployment, provider) as double precision) as e2e_n
  from judged
)
select
  deployment,
  provider,
  count(*) as n,
  count(ttft_ms) as n_first_token,
  count(*) filter (where ttft_ms is null and censored_at_ms is not null) as n_censored,
  count(*) filter (where is_error) as n_errors,
  count(*) filter (where is_rate_limited) as n_rate_limited,
  cast(count(*) filter (where is_error) as double precision)
    / nullif(count(*) filter (where is_error or ttft_ms is not null), 0) as error_rate,
  min(ttft_ms) filter (where ttft_rank >= 0.50 * ttft_n) as ttft_p50_ms,
  min(ttft_ms) filter (where ttft_rank >= 0.95 * ttft_n) as ttft_p95_ms,
  min(ttft_ms) filter (where ttft_rank >= 0.99 * ttft_n) as ttft_p99_ms,
  count(decode_tps) as n_decode,
  min(decode_tps) filter (where decode_rank >= 0.50 * decode_n) as decode_tps_p50,
  min(decode_tps) filter (where decode_rank >= 0.05 * decode_n) as decode_tps_p95,
  min(decode_tps) filter (where decode_rank >= 0.01 * decode_n) as decode_tps_p99,
  min(e2e_tps) filter (where e2e_rank >= 0.50 * e2e_n) as e2e_tps_p50,
  min(e2e_tps) filter (where e2e_rank >= 0.05 * e2e_n) as e2e_tps_p95,
  min(e2e_tps) filter (where e2e_rank >= 0.01 * e2e_n) as e2e_tps_p99,
  min(decode_tps) filter (where decode_rank >= 0.05 * decode_n) as decode_tps_p05
from ranked
group by deployment, provider
