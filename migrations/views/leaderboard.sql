-- Per model, its deployments over the last ten minutes, as the gateway publishes them under /leaderboard.
--
-- Attempts count where they were launched, in half-minutes, the running one included. TTFT (ms) in buckets 9 % wide, each
-- quantile with its 95 % interval; null below 3 first tokens (n_first_token) or where it is not reached. basis 'audited', from 30
-- audits on: of attempts launched with their call those that were not overtaken, and the audited in the place of all that
-- were. Else 'all': Kaplan-Meier over first tokens and attempts cut before theirs (n_censored), is_biased when any was cut: a
-- quick prompt is quick for everybody, so whoever is cut would have been quick, and p95 is 10 to 30 % too high. Speeds pool
-- all answers whose provider counted the tokens; is_buffered: at least half of the last 20 came at once, so the rank is by
-- e2e_mean_tps. Ranks are by figures as they are published, with one decimal; a deployment that is out comes last.
with recursive recent as materialized (
  select * from samples
{postgresql}  where started_at >= to_timestamp((floor(extract(epoch from now()) / 30) - 19) * 30)
{sqlite}  where started_at >= datetime((cast(strftime('%s', 'now') as integer) / 30 - 19) * 30, 'unixepoch')
),
by_model as (
  select model, count(*) filter (where is_won) as n_won
  from recent
  group by model
),
totals as (
  select
    model,
    deployment,
    min(provider) as provider,
    count(*) filter (where is_counted) as n,
    count(*) filter (where is_error) as n_errors,
    count(*) filter (where is_won) as n_won,
    count(*) filter (where is_rate_limited) as rate_limited,
    count(*) filter (where is_judged) as judged,
    count(*) filter (where is_flawed) as flawed,
    count(token_ms) as events,
    count(censored_ms) as censored,
    count(coalesce(token_ms, censored_ms)) filter (where is_watched) as audited,
    cast(count(*) filter (where is_overtaken) as double precision) as overtaken,
    cast(count(*) filter (where is_watched) as double precision) as watched,
    sum(decode_tokens) / nullif(sum(decode_s), 0) as decode_tps,
    sum(e2e_tokens) / nullif(sum(e2e_s), 0) as e2e_tps
  from recent
  group by model, deployment
),
basis as (
  select
    model, deployment, audited, overtaken, watched,
    watched >= 30 as is_audited,
    overtaken / nullif(watched, 0) as weight
  from totals
),
histogram as (
  select
    model, deployment, bucket,
    count(token_ms) as first_tokens,
    count(token_ms) filter (where is_watched) as watched_events,
    case when is_audited
      then count(token_ms) filter (where not is_watched) + weight * count(token_ms) filter (where is_watched)
      else count(token_ms)
    end as events,
    case when is_audited
      then count(censored_ms) filter (where not is_overtaken) + weight * count(censored_ms) filter (where is_watched)
      else count(censored_ms)
    end as censored
  from recent
  join basis using (model, deployment)
  where bucket is not null and not (is_audited and is_late)
  group by model, deployment, bucket, is_audited, weight
),
at_risk as materialized (
  select
    model, deployment, bucket, events,
    cast(sum(events + censored) over (partition by model, deployment order by bucket desc) as double precision) as at_risk,
    cast(row_number() over (partition by model, deployment order by bucket) as integer) as position,
    sum(first_tokens) over (partition by model, deployment) as n_events,
    sum(watched_events) over (partition by model, deployment order by bucket) as watched_so_far
  from histogram
),
{postgresql}steps as materialized (
{postgresql}  select
{postgresql}    model, deployment, array_agg(bucket order by position) as buckets, array_agg(events order by position) as events_of,
{postgresql}    array_agg(at_risk order by position) as at_risk_of, array_agg(watched_so_far order by position) as watched_of
{postgresql}  from at_risk
{postgresql}  where n_events >= 3 and at_risk > 0 -- nobody is left where those were cut for whom the watched stand
{postgresql}  group by model, deployment
{postgresql}),
-- The share still waiting for a first token at the end of each bucket. For the interval, and so that the last event has
-- a variance too, at least half an attempt is taken to remain; greenwood sums the variance of ln(remaining).
survival as (
  select
    model, deployment, 0 as position, -1 as bucket,
    cast(1 as double precision) as waiting_before,
    cast(1 as double precision) as waiting,
    cast(1 as double precision) as remaining,
    cast(0 as double precision) as greenwood,
    cast(0 as double precision) as of_watched  -- the share of audited attempts with a first token, of both kinds one more
  from totals
  union all
  select
{postgresql}    model, deployment, step.position, step.bucket,
{sqlite}    model, deployment, at_risk.position, at_risk.bucket,
    waiting,
    waiting * (1 - events / at_risk),
    case when events = 0 then remaining when at_risk - events < 0.5 then remaining * 0.5 / at_risk
      else remaining * (at_risk - events) / at_risk end,
    case when events = 0 then greenwood when at_risk - events < 0.5 then greenwood + (at_risk - 0.5) / (at_risk * 0.5)
      else greenwood + events / (at_risk * (at_risk - events)) end,
    (watched_so_far + 1) / cast(basis.audited + 2 as double precision)
  from survival
{postgresql}  join steps using (model, deployment)
{sqlite}  join at_risk using (model, deployment)
  join basis using (model, deployment)
{postgresql}  cross join lateral (
{postgresql}    select
{postgresql}      survival.position + 1 as position, buckets[survival.position + 1] as bucket,
{postgresql}      events_of[survival.position + 1] as events, at_risk_of[survival.position + 1] as at_risk,
{postgresql}      watched_of[survival.position + 1] as watched_so_far
{postgresql}  ) as step
{postgresql}  where survival.position < cardinality(buckets)
{sqlite}  where at_risk.position = survival.position + 1 and n_events >= 3
),
quantiles (q) as (values (0.50), (0.95), (0.99)),
-- How sure the share of first tokens is where audited attempts stand for others: n attempts in all, and what is unknown of
-- the overtaken, the square of their part of all times (1 / watched - 1 / overtaken).
sampling as (
  select
    model, deployment, is_audited,
    nullif(max(at_risk), 0) as n,
    max(weight) * max(basis.audited) / nullif(max(at_risk), 0) * max(weight) * max(basis.audited) / nullif(max(at_risk), 0)
      * case when max(watched) < max(overtaken) then 1 / nullif(max(watched), 0) - 1 / max(overtaken) else 0 end as unknown
  from basis
  join at_risk using (model, deployment)
  group by model, deployment, is_audited
),
-- Per quantile: the first bucket that reaches it, and the first and last whose survival does not differ significantly
-- from 1 - q, where n attempts would give it the variance q (1 - q) / n; n is as many as have the variance of waiting.
reached as (
  select
    model, deployment, q,
    min(case when 1 - waiting >= q - 1e-9 then bucket end) as bucket,
    min(case when waiting <= 1 - q or not is_outside then bucket end) as low_bucket,
    min(case when waiting <= 1 - q and is_outside then bucket end) as high_bucket
  from (
    select
      *,
      (waiting - (1 - q)) * (waiting - (1 - q)) >= 1.96 * 1.96 * case when is_audited
        then q * (1 - q) / n + unknown * of_watched * (1 - of_watched)
        else q * (1 - q) * remaining * greenwood / (1 - remaining)
      end as is_outside
    from survival
    join sampling using (model, deployment)
    cross join quantiles
    where greenwood > 0
  ) as tested
  group by model, deployment, q
),
-- Inside its bucket a quantile is interpolated geometrically: from_ms * 2^(share / 8), the power as its series, which
-- is exact to nine digits here and known to every SQLite.
ttft as (
  select
    model, deployment, q,
    inside.from_ms * (1 + x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5))))) as ttft_ms,
    low.from_ms as low_ms,
    high.to_ms as high_ms
  from (
    select
      reached.*,
      0.0866433975699931636771540 * case
        when waiting_before <= 1 - q then 0
        when waiting >= 1 - q then 1
        else (q - (1 - waiting_before)) / (waiting_before - waiting)
      end as x
    from reached
    left join survival using (model, deployment, bucket)
  ) as interpolated
  left join buckets as inside using (bucket)
  left join buckets as low on low.bucket = low_bucket
  left join buckets as high on high.bucket = high_bucket
),
-- The last 20 answers that could be timed, by whole half-minutes, the newest first.
answers as (
  select
    model, deployment,
    count(*) filter (where is_timed) as n,
    count(*) filter (where is_burst) as n_bursts,
    sum(count(*) filter (where is_timed)) over (partition by model, deployment order by slot desc)
      - count(*) filter (where is_timed) as n_newer
  from recent
  group by model, deployment, slot
),
buffering as (
  select model, deployment, sum(n) >= 3 and sum(n_bursts) >= 0.5 * sum(n) as buffered
  from answers
  where n_newer < 20
  group by model, deployment
),
lasting as (
  select deployment, min(began_at) as open_since
  from outages_30d
  where state = 'out'
  group by deployment
),
figures as (
  select
    model, deployment, provider, n, events, censored, rate_limited, totals.audited,
    case when is_audited then 'audited' else 'all' end as basis,
    not is_audited and censored > 0 as biased,
    p50.ttft_ms as ttft_p50_ms, p50.low_ms as ttft_p50_low_ms, p50.high_ms as ttft_p50_high_ms,
    p95.ttft_ms as ttft_p95_ms, p95.low_ms as ttft_p95_low_ms, p95.high_ms as ttft_p95_high_ms,
    p99.ttft_ms as ttft_p99_ms, p99.low_ms as ttft_p99_low_ms, p99.high_ms as ttft_p99_high_ms,
    decode_tps,
    e2e_tps,
    buffered,
    case when buffered then e2e_tps else decode_tps end as speed_tps,
    cast(n_errors as double precision) / nullif(n, 0) as error_rate,
    cast(totals.n_won as double precision) / nullif(by_model.n_won, 0) as win_share,
    judged,
    cast(flawed as double precision) / nullif(judged, 0) as flaw_rate,
    case when open_since is null then 'ok' else 'out' end as state,
    open_since
  from totals
  join by_model using (model)
  join basis using (model, deployment)
  join buffering using (model, deployment)
  left join lasting using (deployment)
  left join (select * from ttft where q = 0.50) as p50 using (model, deployment)
  left join (select * from ttft where q = 0.95) as p95 using (model, deployment)
  left join (select * from ttft where q = 0.99) as p99 using (model, deployment)
)
select
  model,
  case when ttft_p50_ms is not null then row_number() over (
    partition by model
    order by ttft_p50_ms is null, state = 'out', round(cast(ttft_p50_ms as numeric), 1) nulls last, round(cast(ttft_p95_ms as numeric), 1) nulls last, deployment
  ) end as rank,
  deployment,
  provider,
  n,
  events as n_first_token,
  censored as n_censored,
  rate_limited as n_rate_limited,
  audited as n_audited,
  basis,
  biased as is_biased,
  ttft_p50_ms, ttft_p50_low_ms, ttft_p50_high_ms,
  ttft_p95_ms, ttft_p95_low_ms, ttft_p95_high_ms,
  ttft_p99_ms, ttft_p99_low_ms, ttft_p99_high_ms,
  decode_tps as decode_mean_tps,
  e2e_tps as e2e_mean_tps,
  buffered as is_buffered,
  case when speed_tps is not null then row_number() over (
    partition by model order by speed_tps is null, state = 'out', round(cast(speed_tps as numeric), 1) desc, deployment
  ) end as speed_rank,
  error_rate,
  win_share,
  judged as n_judged,
  flaw_rate,
  state,
  open_since
from figures
