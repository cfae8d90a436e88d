-- How fast each deployment is. Quantiles are of the rows themselves; all else is as in Postgres (docs/sql.md).
with judged as (
  select
    provider, deployment, ttft_ms, censored_at_ms, error_kind,
    if(tokens_source = 'reported' and decode_tps > 0, decode_tps, null) as decode_tps,
    if(tokens_source = 'reported' and e2e_tps > 0, e2e_tps, null) as e2e_tps,
    outcome in ('failed', 'timeout', 'stalled')
      and coalesce(error_kind, '') not in ('rate_limited', 'bad_request') as is_error
  from {attempts}
)
select
  deployment,
  provider,
  count() as n,
  count(ttft_ms) as n_first_token,
  countIf(ttft_ms is null and censored_at_ms is not null) as n_censored,
  countIf(is_error) as n_errors,
  countIf(error_kind = 'rate_limited') as n_rate_limited,
  n_errors / nullif(countIf(is_error or ttft_ms is not null), 0) as error_rate,
  quantileExactInclusiveOrNull(0.50)(ttft_ms) as ttft_p50_ms,
  quantileExactInclusiveOrNull(0.95)(ttft_ms) as ttft_p95_ms,
  quantileExactInclusiveOrNull(0.99)(ttft_ms) as ttft_p99_ms,
  count(decode_tps) as n_decode,
  quantileExactInclusiveOrNull(0.50)(decode_tps) as decode_tps_p50,
  quantileExactInclusiveOrNull(0.05)(decode_tps) as decode_tps_p95,
  quantileExactInclusiveOrNull(0.01)(decode_tps) as decode_tps_p99,
  quantileExactInclusiveOrNull(0.50)(e2e_tps) as e2e_tps_p50,
  quantileExactInclusiveOrNull(0.05)(e2e_tps) as e2e_tps_p95,
  quantileExactInclusiveOrNull(0.01)(e2e_tps) as e2e_tps_p99
from judged
group by deployment, provider
