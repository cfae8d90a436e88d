-- What calls since then add up to by one tag that has too many values for sums ('': by all tags). Only where there is such
-- a tag are rows read. A function of its own, as a plan cannot know that: for rows that are never read it would seem so
-- dear that Postgres compiles it (jit) first, which takes seconds.
create or replace function values_of_wide_tag(wanted text, since timestamptz) returns table (
  tag text, value text, n bigint, n_failed bigint, n_ttft bigint, ttft_ms double precision, ttft_ms_squared double precision,
  n_total bigint, total_ms double precision, total_ms_squared double precision, n_tokens bigint, tokens double precision,
  tokens_squared double precision, n_cost bigint, cost_usd double precision, cost_usd_squared double precision
) language sql stable rows 100 set search_path = "{path}", pg_temp set jit = off as $$
  select each.key, each.value, {tag sums}
  from calls as f
  cross join {tags of f} as each
  where f.started_at >= since and f.tags <> '{}' and each.value is not null
    and (wanted = '' or (f.tags ? wanted and each.key = wanted))
  group by each.key, each.value
$$
