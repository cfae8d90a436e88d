// The attempts of one call on a common axis of time: launch, headers, first token, last token, and how each ended.

import { colourOf } from "../../lib/colours.js";
import { h } from "../../lib/dom.js";
import { named } from "../../lib/figures.js";
import { ms, tps } from "../../lib/format.js";
import { scale } from "./scale.js";
import { attemptOutcome, narrowedWords, roleWords } from "./words.js";

const SAME_MS = 0.5;

/** Draw them. `nowMs` is the age of a call that runs, else null. */
export function timeline(call, attempts, nowMs) {
  const ends = attempts.map((each) => endOf(each, nowMs));
  const axis = scale(0, Math.max(1, call.total_ms ?? 0, nowMs ?? 0, ...ends) * 1.02, 6);
  return h("div", { class: "timeline" },
    h("ol", {}, attempts.map((each, at) => h("li", { class: "lane" }, lane(call, each, ends[at], axis)))),
    h("div", { class: "lane", "aria-hidden": "true" }, h("span"), h("div", { class: "axis" }, axis.ticks.map((tick) => h("span", { style: { left: axis.at(tick) } }, tick ? ms(tick) : "0")))),
    legend(call, attempts.some((each) => known(each.headers_ms))));
}

/** What a race was worth against its first choice alone, as far as is known: `413 ms sooner than …`; null without an answer. */
export function worthOf(call, attempts) {
  const primary = attempts.find((each) => each.role === "primary");
  if (!known(call.ttft_ms) || !primary) return null; // the row of one that is audited comes after its call's
  if ((call.launched ?? attempts.length) < 2) return `one attempt: nobody raced${call.narrowed ? ` (${narrowedWords(call.narrowed)})` : ""}`;
  const others = attempts.filter((each) => each !== primary);
  const at = firstAt(primary);
  if (at === null) {
    if (!primary.outcome) return known(call.total_ms) ? `more than ${ms(call.total_ms - call.ttft_ms)} sooner than the first choice alone, which has no token yet` : null;
    if (!primary.error_kind) return "the first choice was overtaken, and cut before its first token: by how much is not known";
    const saved = (call.alone_ms ?? 0) - call.ttft_ms;
    return saved > SAME_MS ? `the first choice failed: ${ms(saved)} sooner than asking another only then` : "the first choice failed, and another answered";
  }
  if (at > call.ttft_ms + SAME_MS) return `${ms(at - call.ttft_ms)} sooner than the first choice alone`;
  const later = others.map(firstAt).filter((each) => each !== null);
  return later.length ? `the first choice won, ${ms(Math.max(0, Math.min(...later) - call.ttft_ms))} before the next` : "the first choice won";
}

/** When an attempt had what can win its call, in ms of the call; null if it never had. */
function firstAt(attempt) {
  const first = firstToken(attempt);
  return first === null ? null : attempt.launch_offset_ms + first;
}

function lane(call, attempt, end, axis) {
  const { sign, words, kind } = attemptOutcome(attempt);
  const begin = attempt.launch_offset_ms;
  const first = firstToken(attempt);
  const headers = attempt.headers_ms;
  const part = (name, from, to) => (to > from ? h("i", { class: `part ${name}`, style: { left: axis.at(from), width: width(axis, from, to) } }) : null);
  return [
    h("div", { class: "who" }, h("b", {}, named(attempt.deployment)), h("small", {}, roleWords(attempt.role))),
    h("div", { class: "track", "aria-hidden": "true", style: { "--lane": colourOf(attempt.deployment) } },
      axis.ticks.map((tick) => h("i", { class: "rule", style: { left: axis.at(tick) } })),
      headers === undefined ? null : part("until-headers", begin, begin + (headers ?? first ?? end - begin)), // while it runs they are not told
      headers === null ? null : part("until-token", begin + (headers ?? 0), first === null ? end : begin + first),
      first === null ? null : part(`answer ${kind}`, begin + first, end),
      h("i", { class: "mark launch", style: { left: axis.at(begin) } }),
      first === null ? null : h("i", { class: "mark first", style: { left: axis.at(begin + first) } }),
      kind === "running" ? null : h("i", { class: `mark end ${kind}`, style: { left: axis.at(end) } }, kind === "good" ? null : sign),
      call.ttft_ms === null || call.ttft_ms === undefined ? null : h("i", { class: "claim", style: { left: axis.at(call.ttft_ms) } })),
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

function legend(call, hasHeaders) {
  const items = [...(hasHeaders ? [["until-headers", "until the headers"]] : []), ["until-token", "until the first token"], ["answer good", "tokens"]];
  return h("p", { class: "key-line", "aria-hidden": "true" }, items.map(([name, words]) => h("span", {}, h("i", { class: `swatch-part ${name}` }), words)),
    known(call.ttft_ms) ? h("span", {}, h("i", { class: "swatch-part claim" }), "the client's first token") : null);
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
