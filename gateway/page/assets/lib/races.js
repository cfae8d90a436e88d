// Races as the live stream tells of them: calls and their attempts, kept for a while after their end. No drawing here.

import { address, get } from "./api.js";

const KINDS = ["hello", "call", "launch", "first", "tokens", "end", "done", "gap", "scope"];
const KEPT = 4000; // calls that have ended, newest last
const FIGURED_MS = 60_000; // over which medians are taken
const RATED_MS = 10_000; // over which calls a second are counted

/**
 * What is known of the races of a gateway. Times are the gateway's clock in unix ms. Of a call that is `lost` the end was not
 * heard; of one that is `missed`, which has ended, perhaps not the ends of losers that were watched for longer.
 */
export class Races {
  constructor() {
    this.calls = new Map(); // id → call, oldest first
    this.attempts = new Map(); // id → attempt
    this.scope = null; // {scope, reason}
    this.gaps = []; // {at_ms, dropped}, newest last
    this.running = 0;
    this.ended = []; // {at_ms, ttft_ms}: of FIGURED_MS
    this.began = []; // at_ms of calls: of RATED_MS
    this.since = null; // from when on all calls are known: the first hello, or before it what was remembered
    this.ahead_ms = 0; // the gateway's clock less ours
  }

  /** The gateway's clock now. */
  now() {
    return Date.now() + this.ahead_ms;
  }

  /** Take one event. Returns the call that it is about, if there is one. */
  apply(kind, data) {
    switch (kind) {
      case "hello": return this.greet(data);
      case "call": return this.start(data);
      case "launch": return this.launch(data);
      case "first": return this.first(data);
      case "tokens": return this.count(data);
      case "end": return this.end(data);
      case "done": return this.finish(data);
      case "gap": return this.miss(data);
      case "scope":
        this.scope = data;
        return null;
      default: return null;
    }
  }

  /** Calls a second, the median time to first token, of which calls and how many ms, and how many run now. */
  figures() {
    const now = this.now();
    this.ended = after(this.ended, (each) => each.at_ms, now - FIGURED_MS);
    this.began = after(this.began, (each) => each, now - RATED_MS);
    const watched_ms = Math.min(RATED_MS, now - (this.since ?? now));
    const ttfts = this.ended.map((each) => each.ttft_ms).filter((each) => each !== null).sort((one, other) => one - other);
    return {
      rate: watched_ms >= 1000 ? this.began.length / (watched_ms / 1000) : null,
      ttft_p50_ms: ttfts.length ? ttfts[Math.floor((ttfts.length - 1) / 2)] : null,
      samples: ttfts.length,
      figured_ms: Math.min(FIGURED_MS, now - (this.since ?? now)),
      running: this.running,
    };
  }

  greet({ scope, replica, now_ms: now, running }) {
    // A new stream: what ran before and is not in it ended while nobody listened.
    this.ahead_ms = now - Date.now();
    this.only(running.map((each) => each.id));
    this.scope = { scope, replica };
    this.since ??= now;
    for (const each of running) {
      const call = this.calls.get(each.id) ?? this.add(each);
      for (const attempt of each.attempts) this.launch({ ...attempt, tokens: attempt.tokens ?? 0 });
    }
    return null;
  }

  /**
   * Add calls that ended before anybody looked, or while the stream was lost: rows of api/calls with their attempts,
   * the newest first. `since` is from when on they are all of them, in unix ms.
   */
  remember(rows, since) {
    for (const row of rows.toReversed()) {
      const known = this.calls.get(row.id);
      if (known !== undefined && !known.lost) continue;
      if (known !== undefined) this.drop(known);
      const call = called(row);
      this.calls.set(call.id, call);
      for (const attempt of call.attempts) this.attempts.set(attempt.id, attempt);
      this.ended.push({ at_ms: call.ended_ms, ttft_ms: call.ttft_ms });
      this.began.push(call.at_ms);
    }
    this.calls = new Map([...this.calls].sort(([, one], [, other]) => one.at_ms - other.at_ms));
    this.ended.sort((one, other) => one.at_ms - other.at_ms);
    this.began.sort((one, other) => one - other);
    this.since = Math.min(this.since ?? since, since);
  }

  start(data) {
    const call = this.calls.get(data.id) ?? this.add(data);
    this.began.push(call.at_ms);
    return call;
  }

  add(data) {
    const { attempts: _, ...facts } = data;
    const call = { ...facts, attempts: [], winner: null, status: null, ended_ms: null, lost: false, missed: false };
    this.calls.set(call.id, call);
    this.running += 1;
    this.forget();
    return call;
  }

  launch(data) {
    const call = this.calls.get(data.call);
    if (call === undefined) return null;
    const known = this.attempts.get(data.attempt);
    if (known !== undefined) return call;
    const attempt = { ttft_ms: null, tokens: 0, outcome: null, ms: null, error: null, ...data, id: data.attempt };
    this.attempts.set(attempt.id, attempt);
    call.attempts.push(attempt);
    return call;
  }

  first({ call, attempt, ttft_ms: ttft }) {
    const found = this.attempts.get(attempt);
    if (found !== undefined) found.ttft_ms = ttft;
    return this.calls.get(call) ?? null;
  }

  count({ v }) {
    for (const [id, tokens] of v) {
      const found = this.attempts.get(id);
      if (found !== undefined) found.tokens = tokens;
    }
    return null;
  }

  end({ call, attempt, outcome, ms, tokens, error }) {
    const found = this.attempts.get(attempt);
    if (found !== undefined) Object.assign(found, { outcome, ms, tokens: tokens ?? found.tokens, error });
    return this.calls.get(call) ?? null;
  }

  finish(data) {
    const call = this.calls.get(data.id);
    if (call === undefined) return null;
    if (data.total_ms === null) return this.leave(call);
    if (call.ended_ms === null) this.running -= 1;
    Object.assign(call, data, { ended_ms: call.at_ms + data.total_ms, lost: false });
    this.ended.push({ at_ms: this.now(), ttft_ms: data.ttft_ms ?? null });
    return call;
  }

  /** Events were dropped: calls that are not `running` any more have ended unheard. */
  miss({ dropped, running }) {
    this.gaps = [...this.gaps.slice(-20), { at_ms: this.now(), dropped }];
    this.only(running);
    return null;
  }

  only(running) {
    const present = new Set(running);
    for (const call of this.calls.values()) {
      if (call.ended_ms !== null) call.missed = true;
      else if (!present.has(call.id)) this.leave(call);
    }
  }

  /** A call whose end was not heard of. */
  leave(call) {
    if (call.ended_ms === null) this.running -= 1;
    Object.assign(call, { lost: true, ended_ms: call.ended_ms ?? this.now() });
    return call;
  }

  forget() {
    if (this.calls.size <= KEPT) return;
    for (const [id, call] of this.calls) {
      if (this.calls.size <= KEPT) return;
      if (call.ended_ms === null && this.calls.size <= 2 * KEPT) continue;
      if (call.ended_ms === null) this.running -= 1;
      this.drop(call);
    }
  }

  drop(call) {
    for (const attempt of call.attempts) this.attempts.delete(attempt.id);
    this.calls.delete(call.id);
  }
}

/** A call as the stream would have told of it, of a row of api/calls with its attempts. */
function called(row) {
  const at = Date.parse(row.started_at);
  const attempts = row.attempts.map((each) => ({
    id: each.id, attempt: each.id, call: row.id, number: each.number, deployment: each.deployment, provider: each.provider, role: each.role,
    at_ms: at + each.launch_offset_ms, offset_ms: each.launch_offset_ms, ttft_ms: each.token_ms ?? each.ttft_ms,
    tokens: each.completion_tokens ?? 0, outcome: each.outcome, error: each.error_kind,
    ms: each.last_token_ms ?? each.censored_at_ms ?? each.first_event_ms, // null: until the end of its call
  }));
  return {
    id: row.id, at_ms: at, client: row.client, model: row.model, endpoint: row.api, streamed: row.streamed, mode: row.mode, replica: row.replica,
    status: row.status_code, ttft_ms: row.ttft_ms, total_ms: row.total_ms, completion_tokens: row.completion_tokens, tokens_source: row.tokens_source, cost_usd: row.cost_usd, error: row.error_kind, narrowed: row.narrowed,
    winner: attempts.find((each) => each.outcome === "won")?.id ?? null, attempts, ended_ms: at + (row.total_ms ?? 0), lost: false, missed: true,
  };
}

/** An attempt's state in one word: "waiting", "answering", "won", "cut", "failed". */
export function stateOf(attempt) {
  switch (attempt.outcome) {
    case null: return attempt.ttft_ms === null ? "waiting" : "answering";
    case "won": return "won";
    case "lost": case "superseded": case "client_gone": return "cut";
    default: return "failed";
  }
}

/**
 * Listen to api/live and apply its events to `races`. `heard(kind, call, data)` is called after each; `state(words)` when the
 * stream is "open", "lost" (it is tried again) or "closed" with an Error. Returns {close()}.
 */
export function listen(races, query, heard, state) {
  let source = null;
  let timer = null;
  let wait_ms = 1000;
  let isClosed = false;

  function open() {
    source = new EventSource(address("live", query));
    source.onopen = () => {
      wait_ms = 1000;
      state("open");
    };
    source.onerror = failed;
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        const data = JSON.parse(event.data);
        heard(kind, races.apply(kind, data), data);
      });
    }
  }

  async function failed() {
    if (source.readyState !== EventSource.CLOSED) return state("lost"); // the browser connects again by itself
    source.close();
    try {
      await get("session"); // an EventSource does not say why: a 401 is seen here
    } catch (error) {
      if (error.status > 0 && error.status < 500) return isClosed ? undefined : state("closed", error);
    }
    if (isClosed) return undefined; // meanwhile
    state("lost"); // also where a proxy answers for a gateway that is away
    timer = setTimeout(open, wait_ms);
    wait_ms = Math.min(30_000, wait_ms * 2);
    return undefined;
  }

  open();
  return {
    close() {
      isClosed = true;
      clearTimeout(timer);
      source.onerror = null;
      source.close();
    },
  };
}

function after(all, at, from) {
  const first = all.findIndex((each) => at(each) >= from);
  return first < 0 ? [] : first ? all.slice(first) : all;
}
