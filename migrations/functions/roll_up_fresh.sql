-- Adds up the rows of up to ``most`` notes in rollup_fresh, in one transaction, for one caller at a time: each row counts
-- once, whichever version inserts it, however often. A row is found by its note as soon as its transaction has ended. An
-- attempt whose call is not there yet is in the sums of attempts at once; it waits in rollup_waiting for those of its race.
--
-- since: the ``until`` of the caller's last fold; what is older has been taken. rest_s: nothing is done until a note is so
-- old, as many rows at a time cost less each. taken: notes; null while another process folds.
create or replace function roll_up_fresh(
  most integer default 2000, since bigint default 0, rest_s double precision default 0,
  out taken integer, out until bigint
)
language plpgsql security definer
set search_path = "{path}", pg_temp
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set jit = off
set plan_cache_mode = force_generic_plan set lock_timeout = '3s'
as $$
#variable_conflict use_column
declare
  the_calls calls[];
  the_attempts attempts[];
  of_calls attempts[];
  waiting uuid[];
begin
  if not has_table_privilege(session_user, 'calls', 'insert') then
    raise insufficient_privilege using message = 'only who may insert calls may add them up';
  end if;
  taken := 0;
  until := since;
  if not exists (
    select from rollup_fresh
    where xid >= since and noted_at <= statement_timestamp() - make_interval(secs => rest_s)
  ) then
    return;
  end if;
  if not pg_try_advisory_xact_lock({lock}) then
    taken := null;
    return;
  end if;
  if pg_snapshot_xmin(pg_current_snapshot())::text::bigint < since then
    since := 0;  -- another cluster: it was restored from a copy
  end if;
  -- In one statement, so that all is of one snapshot: a row is there as soon as its note is.
  with notes as materialized (
    delete from rollup_fresh
    where ctid = any(array(select ctid from rollup_fresh where xid >= since order by xid limit most))
    returning xid, is_call, id, started_at
  )
  select
    count(*),
    least(pg_snapshot_xmin(pg_current_snapshot())::text::bigint, case when count(*) = most then max(xid) end),
    array(
      select c from notes join calls as c on c.id = notes.id and c.started_at = notes.started_at where notes.is_call
    ),
    array(
      select a from notes join attempts as a on a.id = notes.id and a.started_at = notes.started_at
      where not notes.is_call
    )
  into taken, until, the_calls, the_attempts
  from notes;
  with come as (
    delete from rollup_waiting as w using unnest(the_calls) as c where w.call_id = c.id returning w.id, w.started_at
  )
  select array(select a from come join attempts as a on a.id = come.id and a.started_at = come.started_at)
  into of_calls;
  -- Probes have no call. Whether a call is there is decided here, once for all that follows.
  with early as (
    insert into rollup_waiting (id, started_at, call_id)
    select f.id, f.started_at, f.call_id from unnest(the_attempts) as f
    where f.number > 0 and not exists (select from calls as c where c.id = f.call_id and {same day})
    returning id
  )
  select array(select id from early) into waiting;
  if cardinality(waiting) > 0 then
    of_calls := of_calls || array(select f from unnest(the_attempts) as f where f.id <> all(waiting));
  else
    of_calls := of_calls || the_attempts;
  end if;
  if cardinality(the_calls) > 0 then
    {sums of calls};
  end if;
  if cardinality(the_attempts) + cardinality(of_calls) > 0 then
    {sums of attempts};
  end if;
end $$
