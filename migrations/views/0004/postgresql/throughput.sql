-- How fast each deployment is, over all time; throughput_1h, _24h and _30d: lately.
--
-- Quantiles of TTFT (ms) are over attempts that had a first token; those cut before it are n_censored, and the more of
-- them, the more these quantiles flatter: the view leaderboard corrects for it. Of tok/s, p95 is the speed that 95 % of
-- the answers reached (the slow tail, as with TTFT), over answers whose tokens the provider reported.
-- error_rate: errors / (attempts with a first token or an error). Neither 429s (n_rate_limited) nor the client's own
-- faults (bad_request) are errors.
create view throughput as
with judged as (
  select
    provider, deployment, ttft_ms, censored_at_ms, error_kind,
    case when tokens_source = 'reported' then decode_tps end as decode_tps,
    case when tokens_source = 'reported' then e2e_tps end as e2e_tps,
    outcome in ('failed', 'timeout', 'stalled')
      and coalesce(error_kind, '') not in ('rate_limited', 'bad_request') as is_error
  from attempts
  where true
  -- and attempts.started_at >= :since
)
select
  deployment,
  provider,
  count(*) as n,
  count(ttft_ms) as n_first_token,
  count(*) filter (where ttft_ms is null and censored_at_ms is not null) as n_censored,
  count(*) filter (where is_error) as n_errors,
  count(*) filter (where error_kind = 'rate_limited') as n_rate_limited,
  cast(count(*) filter (where is_error) as double precision)
    / nullif(count(*) filter (where is_error or ttft_ms is not null), 0) as error_rate,
  percentile_cont(0.50) within group (order by ttft_ms) as ttft_p50_ms,
  percentile_cont(0.95) within group (order by ttft_ms) as ttft_p95_ms,
  percentile_cont(0.99) within group (order by ttft_ms) as ttft_p99_ms,
  count(decode_tps) as n_decode,
  percentile_cont(0.50) within group (order by decode_tps) as decode_tps_p50,
  percentile_cont(0.05) within group (order by decode_tps) as decode_tps_p95,
  percentile_cont(0.01) within group (order by decode_tps) as decode_tps_p99,
  percentile_cont(0.50) within group (order by e2e_tps) as e2e_tps_p50,
  percentile_cont(0.05) within group (order by e2e_tps) as e2e_tps_p95,
  percentile_cont(0.01) within group (order by e2e_tps) as e2e_tps_p99
from judged
group by deployment, provider
