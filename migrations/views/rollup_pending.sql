-- How many rows wait to be added to the sums, and for how many seconds the oldest has (trails_s; null on SQLite, where
-- that is not known).
{postgresql}select
{postgresql}  count(*) filter (where is_call) as calls,
{postgresql}  count(*) filter (where not is_call) as attempts,
{postgresql}  cast(coalesce(greatest(extract(epoch from now() - min(noted_at)), 0), 0) as double precision) as trails_s
{postgresql}from rollup_fresh
{sqlite}select calls, attempts, case when calls + attempts = 0 then 0.0 end as trails_s
{sqlite}from (
{sqlite}  select
{sqlite}    (select count(*) from rollup_fresh_calls) as calls,
{sqlite}    (select count(*) from rollup_fresh_attempts) as attempts
{sqlite})
