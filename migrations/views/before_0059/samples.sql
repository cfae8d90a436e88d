-- Every attempt as the leaderboard counts it.
--
-- token_ms: first token by the call's win_on, from the attempt's launch; censored_ms: the age at which it was cut before
-- that. bucket: of either. audited: it was to be watched on if it lost. is_counted: it ended with a first token or an
-- error; neither 429s (is_rate_limited), the client's own faults nor an API that the deployment lacks are errors, nor the
-- refusal of a key after which another one was asked, and what fails with a key that a client has brought is neither.
-- is_late: launched after its call, where others were slow, so that it is no fair sample. is_overtaken: another one won
-- before its first token, and it was cut, unless it is one of those drawn to be watched (is_watched). Tokens and seconds
-- are of answers whose provider counted the tokens; is_burst: of those whose speed could be known (is_timed), it came at
-- once, out of a buffer. stall_s: of a winner, its longest gap beyond half a second. is_judged: a winner's whole answer,
-- is_flawed: with a flaw. model: the one it ran for, which after a fallback is not the one that was asked for.
with judged as (
  select
    coalesce(attempts.model, calls.model) as model,
    coalesce(calls.prompt_class, attempts.size_class) as prompt_class,
    attempts.number,
    attempts.deployment,
    attempts.provider,
    attempts.started_at,
    attempts.audited,
    attempts.outcome,
    attempts.censored_at_ms as censored_ms,
    case coalesce(calls.win_on, attempts.win_on)
      when 'answer' then attempts.ttft_answer_ms
      when 'sentence' then attempts.sentence_ms
      when 'valid' then attempts.valid_ms
      else attempts.ttft_ms
    end as token_ms,
    not (
      coalesce(attempts.counts_as, attempts.role) in ('race', 'explore', 'probe')
      or (coalesce(attempts.counts_as, attempts.role) = 'primary' and (attempts.number = 1 or attempts.counts_as is not null))
    ) as is_late,
    coalesce(attempts.is_overtaken, attempts.outcome = 'lost') and not (  -- exploring races are no random sample
      attempts.audited and (
        coalesce(attempts.counts_as, attempts.role) in ('explore', 'probe')
        or (coalesce(attempts.counts_as, attempts.role) = 'primary' and attempts.predicted_ms is null)
      )
    ) and coalesce(attempts.error_kind, '') <> 'key_refused' as is_overtaken,
    {broken attempts.}
      and coalesce(attempts.error_kind, '') not in {no errors}
      and {own attempts.} as is_error,
    {broken attempts.}
      and coalesce(attempts.error_kind, '') = 'rate_limited'
      and {own attempts.} as is_rate_limited,
    attempts.judged_as is not null as is_judged,
    attempts.flaw is not null as is_flawed,
    coalesce(attempts.win_on, '') = 'sentence' as is_spoken,
    attempts.decode_tps,
    attempts.completion_tokens,
    attempts.completion_tokens - coalesce(attempts.reasoning_tokens, 0) as visible_tokens,
    attempts.last_token_ms,
    attempts.itl_max_ms,
    (attempts.last_token_ms - attempts.ttft_ms) / 1000.0 as span_s,
    attempts.tokens_source = 'reported' and attempts.outcome in ('won', 'lost', 'superseded', 'client_gone')
      and (attempts.outcome = 'won' or attempts.censored_at_ms is null)
      and attempts.ttft_ms is not null and attempts.last_token_ms is not null as is_measured
  from attempts
  left join calls on calls.id = attempts.call_id -- a probe has none
  where calls.prompt_class < 100 -- tokens that were only counted
    or (attempts.number = 0 and attempts.role = 'probe')
)
select
  model,
  prompt_class,
  deployment,
  provider,
  started_at,
{postgresql}  cast(floor(extract(epoch from started_at) / 30) as bigint) as slot,
{sqlite}  cast(strftime('%s', substr(started_at, 1, 19)) as integer) / 30 as slot,
  audited,
  is_late,
  is_overtaken and not is_late as is_overtaken,
  is_overtaken and not is_late and audited
    and outcome in ('superseded', 'lost', 'failed', 'timeout', 'stalled') as is_watched,
  outcome = 'won' and number > 0 as is_won,
  is_error,
  is_rate_limited,
  is_error or outcome = 'won' or (outcome in ('lost', 'superseded', 'client_gone') and censored_ms is null) as is_counted,
  token_ms,
  case when outcome in ('lost', 'superseded', 'client_gone') then censored_ms end as censored_ms,
  case
    when coalesce(token_ms, censored_ms) < 10 then 0
{postgresql}    when coalesce(token_ms, censored_ms) >= 10 then
{postgresql}      cast(least(111, floor(8 * ln(coalesce(token_ms, censored_ms) / 10) / ln(2) + 1e-9)) as smallint)
{sqlite}    else (
{sqlite}      select bucket from buckets
{sqlite}      where from_ms <= coalesce(token_ms, censored_ms) * 1.0000000001  -- an edge belongs to the bucket above it
{sqlite}      order by from_ms desc
{sqlite}      limit 1
{sqlite}    )
  end as bucket,
  case when is_measured then decode_tps * span_s end as decode_tokens,
  case when is_measured and decode_tps is not null then span_s end as decode_s,
  case when is_measured and last_token_ms > 0 and completion_tokens > 0 then completion_tokens end as e2e_tokens,
  case when is_measured and last_token_ms > 0 and completion_tokens > 0 then last_token_ms / 1000.0 end as e2e_s,
  is_measured and (
    decode_tps is not null
    or (visible_tokens > 1 and (span_s < 0.020 or completion_tokens - 1 > 5000.0 * span_s))
  ) as is_timed,
  is_measured and decode_tps is null
    and visible_tokens > 1 and (span_s < 0.020 or completion_tokens - 1 > 5000.0 * span_s) as is_burst,
  case when outcome = 'won' then {greatest}(0.0, coalesce(itl_max_ms, 0.0) / 1000.0 - 0.5) end as stall_s,
  is_judged,
  is_flawed,
  is_spoken
from judged
