-- Two values of one tag side by side, over the last 30 days: b less a, with the 95 % interval of the difference of the means
-- (Welch's, normal; it says little below some 30 calls each, n_a and n_b).
--
-- An interval that does not contain 0 is a difference that chance alone seldom makes; of twenty such comparisons one does.
with pairs as (
  select
    a.tag, a.value as a, b.value as b, a.n as n_a, b.n as n_b,
    1.0 * b.n_failed / b.n - 1.0 * a.n_failed / a.n as failed_share_difference,
    b.ttft_mean_ms - a.ttft_mean_ms as ttft_ms, sqrt(a.ttft_variance / a.n_ttft + b.ttft_variance / b.n_ttft) as ttft_error,
    b.total_mean_ms - a.total_mean_ms as total_ms,
    sqrt(a.total_variance / a.n_total + b.total_variance / b.n_total) as total_error,
    b.tokens_mean - a.tokens_mean as tokens, sqrt(a.tokens_variance / a.n_tokens + b.tokens_variance / b.n_tokens) as tokens_error,
    b.cost_mean_usd - a.cost_mean_usd as cost_usd, sqrt(a.cost_variance / a.n_cost + b.cost_variance / b.n_cost) as cost_error
  from tag_values_30d as a
  join tag_values_30d as b on b.tag = a.tag and b.value <> a.value
)
select
  tag, a, b, n_a, n_b, failed_share_difference,
  ttft_ms as ttft_difference_ms, ttft_ms - 1.96 * ttft_error as ttft_low_ms, ttft_ms + 1.96 * ttft_error as ttft_high_ms,
  total_ms as total_difference_ms, total_ms - 1.96 * total_error as total_low_ms, total_ms + 1.96 * total_error as total_high_ms,
  tokens as tokens_difference, tokens - 1.96 * tokens_error as tokens_low, tokens + 1.96 * tokens_error as tokens_high,
  cost_usd as cost_difference_usd, cost_usd - 1.96 * cost_error as cost_low_usd, cost_usd + 1.96 * cost_error as cost_high_usd
from pairs
