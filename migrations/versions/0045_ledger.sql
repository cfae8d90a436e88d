-- The tables, indexes, functions and triggers of schema 0045; a statement ends with the ; at the end of a line.

-- On Postgres calls and attempts are in partitions by time; what is older than the ledger is in …_first.
{postgresql}create table calls_first (
{sqlite}create table calls (
{postgresql}  id uuid not null,
{sqlite}  id char(36) not null primary key,
  started_at {instant} not null, client text, model text not null, endpoint text not null,
  streamed boolean not null, mode text not null, objective text not null, prompt_class smallint not null,
  launched smallint not null, winner_attempt_id {id}, status_code smallint not null, error_kind text,
  ttft_ms {double}, total_ms {double}, overhead_ms {double}, prompt_tokens integer, completion_tokens integer,
  reasoning_tokens integer, cached_tokens integer, cost_usd {double}, duplicate_cost_usd {double},
  tags {json} not null, replica text not null, region text, win_on text not null default 'any', request_id text,
  answered_model text, dropped {json}, cache_write_tokens integer, cache_saved_usd {double}, api text,
  size_class smallint, tokens_source text, finish_reason text, max_tokens integer, temperature {double},
  tools integer, tool_calls integer, tool_calls_valid boolean, is_empty boolean, is_truncated boolean,
  cost_low_usd {double}, cost_high_usd {double}, duplicate_cost_low_usd {double}, duplicate_cost_high_usd {double},
  abandoned_cost_low_usd {double}, abandoned_cost_high_usd {double}, alone_ms {double},
  alone_predicted_ms {double}, alone_age_ms {double}, deadline_ms {double}, deadline_met boolean, profile text,
  takeover text, takeovers smallint, first_was_invalid boolean, held_ms {double}, held_for text,
  held_gain_ms {double}, narrowed text, width_asked smallint, extras smallint, failed boolean
);

{postgresql}create table attempts_first (
{sqlite}create table attempts (
{postgresql}  id uuid not null,
{sqlite}  id char(36) not null primary key,
  call_id {id} not null, number smallint not null, started_at {instant} not null, role text not null,
  audited boolean not null, provider text not null, deployment text not null, launch_offset_ms {double} not null,
  connect_ms {double}, headers_ms {double}, first_event_ms {double}, ttft_ms {double}, ttft_answer_ms {double},
  last_token_ms {double}, outcome text not null, censored_at_ms {double}, status_code smallint, error_kind text,
  error_message text, prompt_tokens integer, completion_tokens integer, reasoning_tokens integer,
  cached_tokens integer, tokens_source text, decode_tps {double}, e2e_tps {double}, itl_p50_ms {double},
  itl_p95_ms {double}, itl_max_ms {double}, cost_usd {double}, cost_is_lower_bound boolean not null,
  cache_write_tokens integer, cache_saved_usd {double}, model text, client text, api text, size_class smallint,
  win_on text, token_ms {double}, chars integer, chunks integer, first_chars integer, finish_reason text,
  tool_calls integer, tool_calls_valid boolean, key_name text, model_version text, provider_request_id text,
  in_flight integer, sends smallint, cost_low_usd {double}, cost_high_usd {double}, is_overtaken boolean,
  overtaken_at_ms {double}, predicted_ms {double}, judged_as text, flaw text, price json, itl json,
  sentence_ms {double}, speech_pause_ms {double}, continues {id}, valid_ms {double}, is_kept boolean,
  would_take_over boolean, would_take_over_ms {double}, wasted_low_tokens integer, wasted_high_tokens integer,
  reported_tokens bigint, system_fingerprint text, is_extra boolean, text_gap_max_ms {double}, tier_asked text,
  tier_served text, units_cost_usd {double}, units json, failed boolean
);
{postgresql}create index calls_started_at_first on calls_first (started_at);
{postgresql}create index calls_client_started_at_first on calls_first (client, started_at);
{postgresql}create index calls_errors_first on calls_first (started_at) where error_kind is not null;
{postgresql}create index calls_tags_first on calls_first using gin (tags jsonb_path_ops);
{postgresql}create index attempts_call_id_first on attempts_first (call_id);
{postgresql}create index attempts_errors_first on attempts_first (started_at) where error_kind is not null;

{postgresql}create table calls (like calls_first including defaults) partition by range (started_at);
{postgresql}alter table calls add primary key (id, started_at);

{postgresql}create table attempts (like attempts_first including defaults) partition by range (started_at);
{postgresql}alter table attempts add primary key (id, started_at);
create index calls_started_at on calls (started_at);
create index calls_client_started_at on calls (client, started_at);

-- What a client calls its request is only ever asked for as a whole.
{postgresql}create index calls_request_id on calls using hash (request_id) where request_id is not null;
{sqlite}create index calls_request_id on calls (request_id) where request_id is not null;
create index calls_errors on calls (started_at) where error_kind is not null;
{postgresql}create index calls_tags on calls using gin (tags jsonb_path_ops);

-- Attempts lie in the order in which they came: a block range index is as good as a tree, and takes next to nothing.
{postgresql}create index attempts_started_at on attempts using brin (started_at)
{postgresql}with (pages_per_range = 32, autosummarize = on);
{sqlite}create index attempts_started_at on attempts (started_at);
create index attempts_call_id on attempts (call_id);
create index attempts_errors on attempts (started_at) where error_kind is not null;
{postgresql}create table calls_default partition of calls default;
{postgresql}create table attempts_default partition of attempts default;

create table refusals (
  id {id} not null primary key, started_at {instant} not null, status_code smallint not null, reason text not null,
  client text, address text, n integer not null, replica text not null
);
create index refusals_started_at on refusals (started_at);

create table outages (
  id {id} not null primary key, deployment text not null, model text, began_at {instant} not null,
  ended_at {instant}, reason text, replica text not null
);
create index outages_began_at on outages (began_at);

create table client_keys (
  id {id} not null primary key, name text not null, sha256 char(64) not null, hint text not null,
  role text not null, settings {json} not null, expires_at {instant}, retires_at {instant},
  created_at {instant} not null, created_by text not null, revoked_at {instant}, last_used_at {instant},
  change_id bigint not null
);
create unique index client_keys_sha256 on client_keys (sha256);
create index client_keys_name on client_keys (name) where revoked_at is null;
create index client_keys_change_id on client_keys (change_id);

create table key_changes (
{postgresql}  id bigserial primary key,
{sqlite}  id integer not null primary key,
  at {instant} not null, who text not null, action text not null, name text not null, before {json}, after {json}
);

create table alerts (
  id {id} not null primary key, key text not null, kind text not null, subject text not null,
  severity text not null, summary text not null, figures {json} not null, sql text not null,
  opened_at {instant} not null, seen_at {instant} not null, resolved_at {instant}, replica text not null,
  scope text not null
);
create unique index alerts_open on alerts (key) where resolved_at is null;
create index alerts_opened_at on alerts (opened_at);

create table alert_messages (
  id {id} not null primary key, alert_id {id} not null, webhook text not null, event text not null,
  created_at {instant} not null, due_at {instant} not null, done_at {instant}, is_sent boolean,
  tries smallint not null, answer text
);
create index alert_messages_due on alert_messages (due_at) where done_at is null;
create index alert_messages_alert_id on alert_messages (alert_id);

create table slowdowns (
  id {id} not null primary key, deployment text not null, model text not null, metric text not null,
  began_at {instant} not null, noticed_at {instant} not null, ended_at {instant}, ending text,
  ratio {double} not null, low {double} not null, high {double} not null, n bigint not null,
  evidence_sql text not null
);
create index slowdowns_began_at on slowdowns (began_at);
create unique index slowdowns_open on slowdowns (model, deployment, metric) where ended_at is null;

create table detector (
  id smallint not null primary key, holder text, until_at {instant}
);
insert into detector (id) values (1);

create table probes (
  id {id} not null primary key, started_at {instant} not null, ended_at {instant}, model text not null,
  deployment text not null, replica text not null, outcome text, error_kind text, ttft_ms {double},
  reserved_usd {double} not null, cost_usd {double}, prompt smallint, answer text
);
create index probes_started_at on probes (started_at);
create index probes_deployment on probes (deployment, started_at);

create table target_counts (
  definition char(32) not null, minutes smallint not null, window_start {instant} not null, seen bigint not null,
  seen_speeds bigint not null, calls bigint not null, bad bigint not null, failed bigint not null,
  late bigint not null, slow bigint not null, halting bigint not null,
  constraint target_counts_pkey primary key (definition, minutes, window_start)
);

create table ledger_readers (
  oldest text not null
);
insert into ledger_readers (oldest) values ('0045');

-- Eight buckets an octave: of times from 10 ms on, and below of gaps between tokens, and speeds.
create table buckets (
  bucket smallint not null primary key, from_ms {double} not null, to_ms {double} not null
);
create index buckets_from_ms on buckets (from_ms);

-- Windows of five minutes, an hour and a day (UTC), and for how many days sums of a kind are kept; those of a day as long
-- as the operator says.
create table rollup_periods (
  minutes smallint not null primary key, keep_days integer
);
insert into rollup_periods (minutes, keep_days) values (5, 2), (60, 31), (1440, null);

create table rollup_series (
{postgresql}  id serial primary key,
{sqlite}  id integer not null primary key,
  deployment text not null, provider text not null, model text not null, api text not null,
  size_class smallint not null, client text not null,
  constraint rollup_series_key unique (model, deployment, client, api, size_class, provider)
);

create table rollup_attempts (
  minutes smallint not null, window_start {instant} not null, series_id integer not null,
  n bigint not null default '0', n_won bigint not null default '0', n_first_token bigint not null default '0',
  n_censored bigint not null default '0', n_errors bigint not null default '0',
  n_rate_limited bigint not null default '0', n_stated bigint not null default '0',
  stated_tokens bigint not null default '0', stated_chars bigint not null default '0',
  n_told bigint not null default '0', told_prompt_tokens bigint not null default '0',
  told_cached_tokens bigint not null default '0', cost_usd {double}, cost_low_usd {double}, cost_high_usd {double},
  cached_tokens bigint, cache_write_tokens bigint, cache_saved_usd {double}, n_tried bigint not null default '0',
  n_wasted bigint not null default '0', n_bounded bigint not null default '0',
  wasted_prompt_tokens bigint not null default '0', wasted_tokens bigint not null default '0',
  wasted_low_tokens bigint not null default '0', wasted_high_tokens bigint not null default '0',
  wasted_cost_usd {double}, wasted_cost_low_usd {double}, wasted_cost_high_usd {double},
  n_wasted_unpriced bigint not null default '0',
  constraint rollup_attempts_pkey primary key (minutes, window_start, series_id)
{postgresql});
{sqlite}) without rowid;

create table rollup_errors (
  minutes smallint not null, window_start {instant} not null, series_id integer not null, error_kind text not null,
  status_code smallint not null, n bigint not null, last_seen_at {instant} not null, last_message text,
  constraint rollup_errors_pkey primary key (minutes, window_start, series_id, error_kind, status_code)
{postgresql});
{sqlite}) without rowid;

create table rollup_histograms (
  minutes smallint not null, window_start {instant} not null, series_id integer not null, metric text not null,
  bucket smallint not null, n bigint not null,
  constraint rollup_histograms_pkey primary key (minutes, metric, window_start, series_id, bucket)
{postgresql});
{sqlite}) without rowid;

create table rollup_calls (
  minutes smallint not null, window_start {instant} not null, client text not null, model text not null,
  n bigint not null default '0', n_failed bigint not null default '0', n_left bigint not null default '0',
  n_raced bigint not null default '0', launched bigint not null default '0', extra bigint not null default '0',
  n_ttft bigint not null default '0', ttft_ms {double} not null default '0', n_total bigint not null default '0',
  total_ms {double} not null default '0', slo_n bigint not null default '0',
  slo_failed bigint not null default '0', slo_gave_up bigint not null default '0',
  slo_left bigint not null default '0', slo_judged bigint not null default '0',
  slo_in_time bigint not null default '0', n_deadlines bigint not null default '0',
  deadlines_met bigint not null default '0', n_compared bigint not null default '0',
  compared_ttft_ms {double} not null default '0', saved_seen_ms {double} not null default '0',
  n_sampled bigint not null default '0', saved_predicted_ms {double} not null default '0',
  n_explored bigint not null default '0', slo_tps bigint not null default '0',
  slo_fast bigint not null default '0', overtaken bigint not null default '0', rescued bigint not null default '0',
  n_drawn bigint not null default '0', n_drawn_failed bigint not null default '0',
  seen {double} not null default '0', predicted {double} not null default '0',
  seen_seen {double} not null default '0', seen_predicted {double} not null default '0',
  predicted_predicted {double} not null default '0', seen_cubed {double} not null default '0',
  seen_fourth {double} not null default '0', n_explored_seen bigint not null default '0',
  explored_seen {double} not null default '0', prompt_tokens bigint, completion_tokens bigint, cost_usd {double},
  cost_low_usd {double}, cost_high_usd {double}, duplicate_cost_usd {double}, abandoned_cost_low_usd {double},
  abandoned_cost_high_usd {double}, cache_saved_usd {double}, race_cost_usd {double}, race_cost_low_usd {double},
  race_cost_high_usd {double}, race_duplicate_cost_usd {double}, race_duplicate_cost_low_usd {double},
  race_duplicate_cost_high_usd {double}, audit_cost_usd {double}, n_held bigint not null default '0',
  held_ms {double} not null default '0', saved_seen_squared {double} not null default '0',
  explored_seen_squared {double} not null default '0', n_unpriced bigint not null default '0',
  constraint rollup_calls_pkey primary key (minutes, window_start, client, model)
{postgresql});
{sqlite}) without rowid;

create table rollup_tags (
  minutes smallint not null, window_start {instant} not null, tag text not null, value text not null,
  n bigint not null default '0', n_failed bigint not null default '0', n_ttft bigint not null default '0',
  ttft_ms {double} not null default '0', ttft_ms_squared {double} not null default '0',
  n_total bigint not null default '0', total_ms {double} not null default '0',
  total_ms_squared {double} not null default '0', n_tokens bigint not null default '0',
  tokens {double} not null default '0', tokens_squared {double} not null default '0',
  n_cost bigint not null default '0', cost_usd {double} not null default '0',
  cost_usd_squared {double} not null default '0',
  constraint rollup_tags_pkey primary key (minutes, window_start, tag, value)
{postgresql});
{sqlite}) without rowid;

create table rollup_wide_tags (
  minutes smallint not null, window_start {instant} not null, tag text not null,
  constraint rollup_wide_tags_pkey primary key (minutes, window_start, tag)
{postgresql});
{sqlite}) without rowid;

-- Which rows are new. xid: the transaction that noted it. Who folds again and again begins with the oldest one that was
-- still running the last time, and does not look at what it took before: that is in the index as long as an old snapshot.
{postgresql}create table rollup_fresh (
{postgresql}  xid bigint not null default pg_current_xact_id()::text::bigint,
{postgresql}  is_call boolean not null,
{postgresql}  id uuid not null,
{postgresql}  started_at timestamptz not null,
{postgresql}  noted_at timestamptz not null default statement_timestamp()
{postgresql}) with (
{postgresql}  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_threshold = 1000000
{postgresql});

{postgresql}create table rollup_waiting (id uuid not null, started_at timestamptz not null, call_id uuid not null);
{postgresql}create index rollup_fresh_xid on rollup_fresh (xid);
{postgresql}create index rollup_waiting_call_id on rollup_waiting (call_id);

{sqlite}create table rollup_fresh_calls (id char(36) not null);

{sqlite}create trigger note_calls after insert on calls
{sqlite}begin insert into rollup_fresh_calls values (new.id); end;

{sqlite}create table rollup_fresh_attempts (id char(36) not null);

{sqlite}create trigger note_attempts after insert on attempts
{sqlite}begin insert into rollup_fresh_attempts values (new.id); end;
