-- How fast each deployment is, over all time; throughput_1h, _24h and _30d: lately.
--
-- Quantiles of TTFT (ms) are over attempts that had a first token; those cut before it are n_censored, and the more of
-- them, the more these quantiles flatter: the view leaderboard corrects for it. Of tok/s, p95 is the speed that 95 % of
-- the answers reached (the slow tail, as with TTFT), over answers whose tokens the provider reported.
-- error_rate: errors / (attempts with a first token or an error). Neither 429s (n_rate_limited) nor the client's own
-- faults (bad_request) are errors.
--
-- SQLite has no percentile function. A quantile p lies at rank p * last (ranks from 0), between two neighbours: each
-- value is weighted with 1 - its distance to that rank, and with 0 beyond 1, which is Postgres' percentile_cont.
with judged as (
  select
    provider, deployment, ttft_ms, censored_at_ms, error_kind,
    case when tokens_source = 'reported' then decode_tps end as decode_tps,
    case when tokens_source = 'reported' then e2e_tps end as e2e_tps,
    outcome in ('failed', 'timeout', 'stalled')
      and coalesce(error_kind, '') not in ('rate_limited', 'bad_request') as is_error
  from attempts
  where true
    and attempts.started_at >= {since}
{sqlite}),
{sqlite}ranked as (
{sqlite}  select
{sqlite}    *,
{sqlite}    row_number() over (partition by deployment, provider, ttft_ms is null order by ttft_ms) - 1 as ttft_ms_rank,
{sqlite}    count(ttft_ms) over (partition by deployment, provider) - 1 as ttft_ms_last,
{sqlite}    row_number() over (partition by deployment, provider, decode_tps is null order by decode_tps) - 1 as decode_tps_rank,
{sqlite}    count(decode_tps) over (partition by deployment, provider) - 1 as decode_tps_last,
{sqlite}    row_number() over (partition by deployment, provider, e2e_tps is null order by e2e_tps) - 1 as e2e_tps_rank,
{sqlite}    count(e2e_tps) over (partition by deployment, provider) - 1 as e2e_tps_last
{sqlite}  from judged
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
{postgresql}  percentile_cont(0.50) within group (order by ttft_ms) as ttft_p50_ms,
{postgresql}  percentile_cont(0.95) within group (order by ttft_ms) as ttft_p95_ms,
{postgresql}  percentile_cont(0.99) within group (order by ttft_ms) as ttft_p99_ms,
{sqlite}  sum(ttft_ms * max(0.0, 1 - abs(ttft_ms_rank - 0.50 * ttft_ms_last))) as ttft_p50_ms,
{sqlite}  sum(ttft_ms * max(0.0, 1 - abs(ttft_ms_rank - 0.95 * ttft_ms_last))) as ttft_p95_ms,
{sqlite}  sum(ttft_ms * max(0.0, 1 - abs(ttft_ms_rank - 0.99 * ttft_ms_last))) as ttft_p99_ms,
  count(decode_tps) as n_decode,
{postgresql}  percentile_cont(0.50) within group (order by decode_tps) as decode_tps_p50,
{postgresql}  percentile_cont(0.05) within group (order by decode_tps) as decode_tps_p95,
{postgresql}  percentile_cont(0.01) within group (order by decode_tps) as decode_tps_p99,
{postgresql}  percentile_cont(0.50) within group (order by e2e_tps) as e2e_tps_p50,
{postgresql}  percentile_cont(0.05) within group (order by e2e_tps) as e2e_tps_p95,
{postgresql}  percentile_cont(0.01) within group (order by e2e_tps) as e2e_tps_p99
{postgresql}from judged
{sqlite}  sum(decode_tps * max(0.0, 1 - abs(decode_tps_rank - 0.50 * decode_tps_last))) as decode_tps_p50,
{sqlite}  sum(decode_tps * max(0.0, 1 - abs(decode_tps_rank - 0.05 * decode_tps_last))) as decode_tps_p95,
{sqlite}  sum(decode_tps * max(0.0, 1 - abs(decode_tps_rank - 0.01 * decode_tps_last))) as decode_tps_p99,
{sqlite}  sum(e2e_tps * max(0.0, 1 - abs(e2e_tps_rank - 0.50 * e2e_tps_last))) as e2e_tps_p50,
{sqlite}  sum(e2e_tps * max(0.0, 1 - abs(e2e_tps_rank - 0.05 * e2e_tps_last))) as e2e_tps_p95,
{sqlite}  sum(e2e_tps * max(0.0, 1 - abs(e2e_tps_rank - 0.01 * e2e_tps_last))) as e2e_tps_p99
{sqlite}from ranked
group by deployment, provider
