// One call while it runs: what live events tell of it, in the form of its rows.

import { listen, Races } from "../../lib/races.js";

const GREETED_MS = 1500; // for the stream to begin: without it a call is seen only when it has ended

/** Watch races of `model`. Resolves to {call(id), close()} once the stream has begun, or has had its time; `call(id)` is null while nothing is known. */
export async function watch(model) {
  const races = new Races();
  let greeted = () => {};
  const begun = new Promise((resolve) => {
    greeted = resolve;
    setTimeout(resolve, GREETED_MS);
  });
  const stream = listen(races, { model }, (kind) => kind === "hello" && greeted(), (state) => state === "closed" && greeted());
  await begun;
  return { call: (id) => found(races, id), close: () => stream.close() };
}

function found(races, id) {
  const call = races.calls.get(id);
  return call === undefined || !call.attempts.length ? null : pictured(races, call);
}

/** `{call, attempts, nowMs}` as parts/timeline.js draws it, of a call of `races` that has attempts. */
export function pictured(races, call) {
  const isOver = call.ended_ms !== null;
  return {
    call: { ttft_ms: call.ttft_ms ?? null, total_ms: isOver ? call.total_ms : null, narrowed: call.narrowed ?? null },
    attempts: call.attempts.map(row),
    nowMs: isOver ? null : Math.max(0, races.now() - call.at_ms),
  };
}

function row({ deployment, role, offset_ms: offset, ttft_ms: ttft, outcome, ms, error }) {
  const isAnswered = ttft !== null;
  return {
    deployment,
    role,
    launch_offset_ms: offset,
    ttft_ms: ttft,
    outcome,
    error_kind: error,
    last_token_ms: isAnswered ? ms : null,
    censored_at_ms: isAnswered || outcome !== "lost" ? null : ms,
    first_event_ms: isAnswered ? null : ms,
  };
}
