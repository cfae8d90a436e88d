-- Per hour of the day (speed_by_hour, of the last week) or day (speed_days, of the last 30), model and deployment, how fast it was. Quantiles are of first tokens that came, out of buckets 9 % wide: where many
-- attempts are raced the slow ones were cut, so compare times, not deployments. decode_p05_tps is what 95 % of the
-- answers reach (revisions before 0051 call it p95).
with {steps}
select
  slot as {named},
  model,
  deployment,
  provider,
  n,
  n_first_token,
  n_errors,
  n_rate_limited,
  ttft_p50_ms,
  ttft_p95_ms,
  decode_tps_p50 as decode_p50_tps,
  decode_tps_p95 as decode_p05_tps
from {of steps}
