// The attempts of one call on a common axis of time: of the same parts as the lanes of Live.

import { colourOf } from "../../lib/colours.js";
import { h } from "../../lib/dom.js";
import { named } from "../../lib/figures.js";
import { ms, tps } from "../../lib/format.js";
import { legend, partsOf } from "../../lib/picture.js";
import { stateOf } from "../../lib/races.js";
import { attemptOutcome, narrowedWords, roleWords } from "../../lib/words.js";
import { scale } from "./scale.js";

const SAME_MS = 0.5;
const STEPS = new Set(["key_refused", "form_refused"]); // refusals after which the same deployment was asked again at once
const STUB = 0.015; // of the axis: what is hatched before a cut

/** Draw them. `nowMs` is the age of a call that runs, else null. */
export function timeline(call, attempts, nowMs) {
  const ends = attempts.map((each) => endOf(each, nowMs));
  const axis = scale(0, Math.max(1, call.total_ms ?? 0, nowMs ?? 0, ...ends) * 1.02, 6);
  const winner = attempts.find((each) => ["won", "answering"].includes(stateOf(each)));
  const won = winner ? firstAt(winner) : null;
  return h("div", { class: "timeline" },
    h("ol", {}, attempts.map((each, at) => h("li", { class: "lane" }, lane(call, each, ends[at], axis, each === winner ? null : won)))),
    h("div", { class: "lane", "aria-hidden": "true" }, h("span"), h("div", { class: "axis" }, axis.ticks.map((tick) => h("span", { style: { left: axis.at(tick) } }, tick ? ms(tick) : "0")))),
    legend(...(known(call.ttft_ms) ? [] : ["claim"])));
}

/** What a race was worth against its first choice alone, as far as is known: `413 ms sooner than …`; null without an answer. */
export function worthOf(call, attempts) {
  const primary = lastOf(attempts.find((each) => each.role === "primary"), attempts);
  if (!known(call.ttft_ms) || !primary) return null; // the row of one that is audited comes after its call's
  const refused = attempts.filter((each) => STEPS.has(each.error_kind));
  if ((call.launched ?? attempts.length) - refused.length < 2) return `one attempt: nobody raced${call.narrowed ? ` (${narrowedWords(call.narrowed)})` : ""}`;
  const others = attempts.filter((each) => each !== primary && !refused.includes(each));
  const at = firstAt(primary);
  if (at === null) {
    if (!primary.outcome) return known(call.total_ms) ? `more than ${ms(call.total_ms - call.ttft_ms)} sooner than the first choice alone, which has no token yet` : null;
    if (!primary.error_kind) return "the first choice was overtaken, and cancelled before its first token: by how much is not known";
    const saved = (call.alone_ms ?? 0) - call.ttft_ms;
    return saved > SAME_MS ? `the first choice failed: ${ms(saved)} sooner than asking another only then` : "the first choice failed, and another answered";
  }
  if (at > call.ttft_ms + SAME_MS) return `${ms(at - call.ttft_ms)} sooner than the first choice alone`;
  const later = others.map(firstAt).filter((each) => each !== null);
  return later.length ? `the first choice answered, ${ms(Math.max(0, Math.min(...later) - call.ttft_ms))} before the next` : "the first choice answered";
}

/** The attempt that repeats the request of this one with the last key and form; itself, if neither was refused. */
function lastOf(attempt, attempts) {
  const next = attempt && STEPS.has(attempt.error_kind) && attempts.find((each) => each.replaces === attempt.id);
  return next ? lastOf(next, attempts) : attempt;
}

/** When an attempt had what can win its call, in ms of the call; null if it never had. */
function firstAt(attempt) {
  const first = firstToken(attempt);
  return first === null ? null : attempt.launch_offset_ms + first;
}

function lane(call, attempt, end, axis, won) {
  const { sign, words, kind } = attemptOutcome(attempt);
  const first = firstToken(attempt);
  const parts = partsOf({
    begin: attempt.launch_offset_ms, first: firstAt(attempt), end, state: stateOf({ outcome: attempt.outcome ?? null, ttft_ms: first }),
    isOver: Boolean(attempt.outcome), won, stub: STUB * axis.high,
  });
  return [
    h("div", { class: "who" }, h("b", {}, named(attempt.deployment)), h("small", {}, roleWords(attempt.role))),
    h("div", { class: "track", "aria-hidden": "true", style: { "--lane": colourOf(attempt.deployment) } },
      axis.ticks.map((tick) => h("i", { class: "rule", style: { left: axis.at(tick) } })),
      parts.map(({ kind: name, at, from, to }) => h("i", { class: `sign ${name}`, style: at === undefined ? { left: axis.at(from), width: width(axis, from, to) } : { left: axis.at(at) } })),
      known(call.ttft_ms) ? h("i", { class: "sign claim", style: { left: axis.at(call.ttft_ms) } }) : null),
    h("div", { class: `how ${kind}` }, h("span", { "aria-hidden": "true" }, `${sign} `), words, h("small", {}, figures(attempt, first))),
  ];
}

function figures(attempt, first) {
  const said = [`+${ms(attempt.launch_offset_ms)}`];
  if (first !== null) said.push(`first token ${ms(first)}`);
  else if (known(attempt.censored_at_ms)) said.push(`no token in ${ms(attempt.censored_at_ms)}`);
  if (known(attempt.decode_tps)) said.push(tps(attempt.decode_tps));
  return said.join(" · ");
}

/** When an attempt ended, in ms of its call: as far as is known. A row has no end of its own for one that failed. */
function endOf(attempt, nowMs) {
  if (!attempt.outcome && nowMs !== null) return nowMs;
  const seen = [attempt.last_token_ms, attempt.censored_at_ms, attempt.token_ms, attempt.ttft_ms, attempt.first_event_ms, attempt.headers_ms, attempt.connect_ms];
  return attempt.launch_offset_ms + Math.max(0, ...seen.filter(known));
}

function firstToken(attempt) {
  return attempt.token_ms ?? attempt.ttft_ms ?? null;
}

function width(axis, from, to) {
  return `${((axis.share(to) - axis.share(from)) * 100).toFixed(3)}%`;
}

function known(value) {
  return value !== null && value !== undefined;
}
