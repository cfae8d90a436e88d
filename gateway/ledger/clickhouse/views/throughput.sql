-- How fast each deployment is: as in Postgres (docs/sql.md), of the rows themselves. A quantile is the first value at which
-- the share is reached.
with measured as (
  select
    deployment,
    provider,
    count() as n,
    count(ttft_ms) as n_first_token,
    countIf(ttft_ms is null and censored_at_ms is not null) as n_censored,
    countIf(is_error) as n_errors,
    countIf(error_kind = 'rate_limited' and is_own) as n_rate_limited,
    n_errors / nullif(countIf(is_error or ttft_ms is not null), 0) as error_rate,
    arraySort(groupArray(ttft_ms)) as ttft,
    count(decode_speed) as n_decode,
    arraySort(groupArray(decode_speed)) as decode,
    count(e2e_speed) as n_e2e,
    arraySort(groupArray(e2e_speed)) as e2e
  from (
    select
      provider, deployment, ttft_ms, censored_at_ms, error_kind,
      if(tokens_source = 'reported' and decode_tps > 0, decode_tps, null) as decode_speed,
      if(tokens_source = 'reported' and e2e_tps > 0, e2e_tps, null) as e2e_speed,
      {own} as is_own,  -- what fails with clients' own keys is theirs
      {error} and is_own as is_error
    from {attempts}
  )
  group by deployment, provider
)
select
  deployment,
  provider,
  n,
  n_first_token,
  n_censored,
  n_errors,
  n_rate_limited,
  error_rate,
  if(n_first_token > 0, ttft[toUInt64(ceil(0.50 * n_first_token))], null) as ttft_p50_ms,
  if(n_first_token > 0, ttft[toUInt64(ceil(0.95 * n_first_token))], null) as ttft_p95_ms,
  if(n_first_token > 0, ttft[toUInt64(ceil(0.99 * n_first_token))], null) as ttft_p99_ms,
  n_decode,
  if(n_decode > 0, decode[toUInt64(ceil(0.50 * n_decode))], null) as decode_p50_tps,
  if(n_decode > 0, decode[toUInt64(ceil(0.05 * n_decode))], null) as decode_p05_tps,
  if(n_decode > 0, decode[toUInt64(ceil(0.01 * n_decode))], null) as decode_p01_tps,
  if(n_e2e > 0, e2e[toUInt64(ceil(0.50 * n_e2e))], null) as e2e_p50_tps,
  if(n_e2e > 0, e2e[toUInt64(ceil(0.05 * n_e2e))], null) as e2e_p05_tps,
  if(n_e2e > 0, e2e[toUInt64(ceil(0.01 * n_e2e))], null) as e2e_p01_tps
from measured
