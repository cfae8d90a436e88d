// One call: how it went, its attempts on a timeline, what it cost, and everything that is known of it.

import { entitle } from "../lib/alarm.js";
import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copies, copiesSql, named } from "../lib/figures.js";
import { CLOCK, count, counted, ms, percent, time, tokens, tps, usd } from "../lib/format.js";
import { IS_ID } from "../lib/keys.js";
import { to } from "../lib/route.js";
import { empty, failed, waiting } from "../lib/states.js";
import { behind, dataTable } from "../lib/table.js";
import { attemptOutcome, brokeWords, callOutcome, errorWords, narrowedWords, roleWords } from "../lib/words.js";
import { key, redraw } from "./parts/redraw.js";
import { timeline } from "./parts/timeline.js";

const RUNNING_EVERY_MS = 500;
const AGAIN_MS = 5000; // after a failure
const UNSTORED_EVERY_MS = 2000;
const AUDITS_AWAITED_MS = 60_000; // rows of audited losers follow their call's
const RECENT_MS = 600_000; // a call that another worker began so lately may still run there
const MOST_TYPOS = 2; // of an id that resembles a call's
const COMPARED = 200; // of the last day's calls, with a mistyped id

const ATTEMPTS = [
  ["Attempt", (each) => `${each.number} · ${each.deployment}`],
  ["Why", (each) => `${roleWords(each.role)}${each.audited ? ", audited" : ""}`],
  ["Outcome", (each) => attemptOutcome(each).words],
  ["Launched", (each) => `+${ms(each.launch_offset_ms)}`],
  ["Connected", (each) => ms(each.connect_ms)],
  ["Headers", (each) => ms(each.headers_ms)],
  ["First token", (each) => ms(each.token_ms ?? each.ttft_ms)],
  ["Last token", (each) => ms(each.last_token_ms)],
  ["Cancelled at", (each) => ms(each.censored_at_ms)],
  ["Tokens", (each) => `${tokens(each.prompt_tokens, each.tokens_source)} → ${tokens(each.completion_tokens, each.tokens_source)}`],
  ["Speed", (each) => tps(each.decode_tps)],
  ["Gap p95", (each) => ms(each.itl_p95_ms)],
  ["Longest silence", (each) => ms(each.speech_pause_ms)],
  ["Cost", (each) => usd(each.cost_usd)],
  ["Least – most", (each) => range(each.cost_low_usd, each.cost_high_usd)],
  ["Tier", (each) => tier(each)],
  ["Also billed", (each) => alsoBilled(each)],
  ["Thoughts dropped", (each) => thoughtsDropped(each)],
  ["In flight", (each) => count(each.in_flight)],
  ["Status", (each) => each.status_code ?? "–"],
  ["Key", (each) => each.key_name ?? "–"],
  ["Answered as", (each) => answeredAs(each)],
  ["Provider's id", (each) => each.provider_request_id ?? "–"],
];

/** The tier of service that answered, and the one that was asked for where that is another. */
function tier({ tier_asked: asked, tier_served: served }) {
  if (!known(served)) return known(asked) ? `${asked} asked` : "–";
  return known(asked) && asked !== served ? `${served}, ${asked} asked` : served;
}

/** What was billed besides tokens of text, with its price if that is known: 2 web search at $0.01. */
function alsoBilled({ units }) {
  const said = Object.entries(units ?? {}).map(([name, { n, usd: each }]) => `${count(n)} ${name.replaceAll("_", " ")}${known(each) ? ` at ${usd(each)}` : ", price unknown"}`);
  return said.join("; ") || "–";
}

/** The thoughts of earlier turns that the vendor did not show its model, by the check that they failed: 2 prefix. */
function thoughtsDropped({ thoughts_dropped: dropped }) {
  return Object.entries(dropped ?? {}).map(([check, n]) => `${count(n)} ${check}`).join(", ") || "–";
}

/** The model that answered, and its fingerprint, by the provider's own words. */
function answeredAs({ model_version: model, system_fingerprint: fingerprint }) {
  return known(fingerprint) ? `${model ?? "–"} (${fingerprint})` : model ?? "–";
}

/** Show the call `id` in `root` until closed. */
export function view(root, [id]) {
  let timer = null;
  let shown = null;
  let missed = null; // what is said in place of a call that is not known
  const opened = Date.now();
  const asking = new AbortController();
  const body = h("div", { class: "call" }, waiting(8));
  const note = h("div");
  fill(root, note, body);
  look();

  async function look() {
    let found = null;
    try {
      found = await get(`calls/${encodeURIComponent(id)}`, {}, { signal: asking.signal });
    } catch (error) {
      if (asking.signal.aborted) return;
      if (error.status === 404) {
        miss();
        if (isRecent(id)) timer = setTimeout(look, UNSTORED_EVERY_MS);
      } else if (error.status !== 401) {
        fill(note, failed(error, look));
        if (shown === null) fill(body);
        clearTimeout(timer);
        timer = setTimeout(look, AGAIN_MS);
      }
      return;
    }
    fill(note);
    missed = null;
    entitle("Call", found.call.model, time(found.call.started_at));
    const text = JSON.stringify(found);
    if (text !== shown || found.source === "running") redraw(body, drawn(found));
    shown = text;
    const wait = waitFor(found, Date.now() - opened);
    if (wait !== null) timer = setTimeout(look, wait);
  }

  /** Say that the call is not known, and which one has almost this id; again only in other words, so that a focus stays. */
  async function miss() {
    const mark = isRecent(id) ? "recent" : "old";
    if (missed === mark) return;
    missed = mark;
    fill(body, unknown(id, null));
    entitle("Call", "not found");
    const near = await nearest(id, asking.signal);
    if (near && missed === mark) fill(body, unknown(id, near));
  }

  return {
    close() {
      clearTimeout(timer);
      asking.abort();
    },
  };
}

/** How soon to look again, in ms; null: what is shown is final. */
function waitFor({ call, attempts, source }, shownForMs) {
  if (source === "running") return RUNNING_EVERY_MS;
  const isWhole = source === "ledger" && (attempts.length >= (call.launched ?? 0) || shownForMs > AUDITS_AWAITED_MS);
  return isWhole ? null : UNSTORED_EVERY_MS;
}

function drawn({ call, attempts, source, sql }) {
  const ordered = [...attempts].sort((a, b) => a.number - b.number);
  const nowMs = source === "running" ? Math.max(0, Date.now() - Date.parse(call.started_at)) : null;
  const { sign, kind } = callOutcome(call);
  return [
    h("header", { class: "head" },
      h("h1", {}, h("a", { href: to("calls"), "data-key": "calls" }, "Calls"), ` / ${call.model}`), h("p", {}, time(call.started_at)),
      h("div", { class: "controls" }, copiesSql(sql))),
    h("p", { class: `lead ${kind}`, role: "status" }, h("span", { "aria-hidden": "true" }, `${sign} `), sentence(call, ordered, source, nowMs)),
    stored(source),
    h("section", { class: "card", "aria-labelledby": "race" }, h("header", {}, h("h2", { id: "race" }, "The race"), h("p", {}, plan(call, ordered)), known(call.held_ms) ? h("p", {}, held(call)) : null),
      h("div", { class: "inside" },
        ordered.length ? timeline(call, ordered, nowMs) : h("p", { class: "soft" }, "Nothing was launched."),
        errors(ordered),
        ordered.length ? key("attempts", behind(() => dataTable("Attempts of this call", ATTEMPTS.map(([title]) => title), ordered.map((each) => ATTEMPTS.map(([, cell]) => cell(each)))), "Everything about the attempts")) : null)),
    h("div", { class: "columns" }, facts(call, ordered).map(([title, pairs]) => group(title, pairs))),
  ];
}

function sentence(call, attempts, source, nowMs) {
  if (source === "running") {
    const first = call.ttft_ms === null || call.ttft_ms === undefined ? "no token yet" : `first token after ${ms(call.ttft_ms)}`;
    return `Running for ${ms(nowMs)}, ${first}.`;
  }
  const { kind, words } = callOutcome(call);
  const winner = attempts.find((each) => each.id === call.winner_attempt_id);
  const took = call.total_ms === null || call.total_ms === undefined ? "" : ` after ${ms(call.total_ms)}`;
  if (kind === "left") return `The client left${took}${call.error_kind && call.error_kind !== "client_disconnected" ? `: ${words}` : ""}.`;
  const broken = attempts.find((each) => each.error_kind && known(each.ttft_ms));
  if (kind === "bad" && broken && known(call.ttft_ms)) {
    const sent = call.completion_tokens ?? broken.completion_tokens ?? 0;
    const said = tokens(sent, call.tokens_source ?? broken.tokens_source);
    return `Broke off after ${said} token${sent === 1 ? "" : "s"}: ${brokeWords(broken)}.`;
  }
  if (kind === "bad") return `Failed${took}: ${words}.`;
  const by = winner ? ` by ${winner.deployment}` : "";
  const first = known(call.ttft_ms) ? `, first token after ${ms(call.ttft_ms)}` : "";
  return `Answered${by}${first}${known(call.total_ms) ? `, in ${ms(call.total_ms)}` : ""}.`;
}

/** Why the first token did not go out at once. */
function held(call) {
  const gain = ms(call.held_gain_ms);
  const why = { reading: `keeps a reader waiting ${gain} less`, first_token: `is silent ${gain} less` }[call.objective] ?? `finishes ${gain} sooner`;
  return `Held ${ms(call.held_ms)}: ${call.held_for} usually ${why} after its first token.`;
}

/** The plan as it was carried out; a row does not have what was not launched. */
function plan(call, attempts) {
  const launched = call.launched ?? attempts.length;
  const together = attempts.filter((each) => each.role === "primary" || each.role === "race").length;
  const said = [call.mode === "single" ? "One deployment" : `Mode ${call.mode}`, objective(call.objective)];
  if (together > 1) said.push(`${together} launched together`);
  if (call.narrowed) said.push(`narrowed: ${narrowedWords(call.narrowed)}`);
  for (const each of attempts) {
    if (each.role === "primary" || each.role === "race") continue;
    said.push(`${roleWords(each.role)} at ${ms(each.launch_offset_ms)}`);
  }
  if (launched > attempts.length) said.push(`${counted(launched - attempts.length, "more attempt")} not recorded yet`);
  return `${said.filter(Boolean).join(" · ")}.`;
}

function objective(name) {
  const words = { reading: "text that arrives faster than it is read", first_token: "the earliest first token", completion: "the earliest whole answer", cost: "the cheapest in time" };
  return name ? `for ${words[name] ?? name}` : null;
}

function errors(attempts) {
  const failed = attempts.filter((each) => each.error_kind);
  return failed.length ? h("ul", { class: "errors" }, failed.map((each) => h("li", {},
    h("b", {}, named(each.deployment)), ` ${errorWords(each.error_kind)}${each.status_code ? ` (${each.status_code})` : ""}`,
    each.error_message ? h("q", {}, each.error_message) : null))) : null;
}

function stored(source) {
  if (source !== "memory") return null;
  return h("p", { class: "soft" }, "From memory: its row is on its way to the database.");
}

/** When the first choice alone would have given the first token: its own one, if it was audited, rather than a prediction. */
function without(call, attempts) {
  if (known(call.alone_ms)) return { ms: call.alone_ms, isMeasured: true };
  const first = attempts.find((each) => each.number === 1);
  const token = first?.audited && first.is_overtaken ? first.token_ms ?? first.ttft_ms : null;
  if (known(token)) return { ms: (first.launch_offset_ms ?? 0) + token, isMeasured: true };
  return { ms: call.alone_predicted_ms, isMeasured: false };
}

function facts(call, attempts) {
  const winner = attempts.find((each) => each.id === call.winner_attempt_id);
  const alone = without(call, attempts);
  const saved = alone.isMeasured && known(call.ttft_ms) ? alone.ms - call.ttft_ms : null;
  return [
    ["Request", [
      ["Call id", copied(call.id)],
      ["Request id", call.request_id ? copied(call.request_id) : null],
      ["Received", stamp(call.started_at)],
      ["Client", call.client],
      ["Model", call.answered_model && call.answered_model !== call.model ? `${call.model}, answered by its fallback ${call.answered_model}` : call.model],
      ["API", [call.api ?? call.endpoint, call.streamed ? "streamed" : "whole"].filter(Boolean).join(", ")],
      ["Longest answer", known(call.max_tokens) ? counted(call.max_tokens, "token") : null],
      ["Temperature", call.temperature],
      ["Tools", call.tools],
      ["Tags", tags(call.tags)],
      ["Left out", call.dropped?.length ? [].concat(call.dropped).join(", ") : null],
      ["Served by", [call.replica, call.region].filter(Boolean).join(", ")],
    ]],
    ["Time", [
      ["First token", ms(call.ttft_ms)],
      ["Whole answer", ms(call.total_ms)],
      ["The gateway's own share", ms(call.overhead_ms)],
      ["Without racing", known(alone.ms) ? `${ms(alone.ms)}, ${alone.isMeasured ? "measured" : "as predicted"}` : null],
      ["Racing saved", saved !== null && saved > 0.5 ? ms(saved) : null],
      ["Deadline", known(call.deadline_ms) ? [ms(call.deadline_ms), { true: "met", false: "missed" }[call.deadline_met]].filter(Boolean).join(", ") : null],
      ["Speed", winner ? tps(winner.decode_tps) : null],
      ["Gaps", winner && known(winner.itl_p50_ms) ? `p50 ${ms(winner.itl_p50_ms)}, p95 ${ms(winner.itl_p95_ms)}, longest ${ms(winner.itl_max_ms)}` : null],
      ["Longest silence of a voice", winner && known(winner.speech_pause_ms) ? ms(winner.speech_pause_ms) : null],
    ]],
    ["Tokens and cost", [
      ["Prompt", tokens(call.prompt_tokens, call.tokens_source)],
      ["Read from a cache", cached(call)],
      ["Answer", tokens(call.completion_tokens, call.tokens_source)],
      ["Of these reasoning", known(call.reasoning_tokens) ? tokens(call.reasoning_tokens, call.tokens_source) : null],
      ["Counted", countedBy(call, winner)],
      ["Ended with", call.finish_reason],
      ["Answer was", [call.is_empty ? "empty" : "", call.is_truncated ? "cut off at a limit, or broke off" : ""].filter(Boolean).join(", ") || null],
      ["Tool calls", known(call.tool_calls) && call.tool_calls > 0 ? `${call.tool_calls}${call.tool_calls_valid === false ? ", not all valid JSON" : ""}` : null],
      ["Flaw", winner?.flaw?.replaceAll("_", " ")],
      ["Cost in all", bounded(call.cost_usd, call.cost_low_usd, call.cost_high_usd)],
      ["Of it added by racing", bounded(call.duplicate_cost_usd, call.duplicate_cost_low_usd, call.duplicate_cost_high_usd)],
      ["For a client that left", call.abandoned_cost_high_usd ? range(call.abandoned_cost_low_usd, call.abandoned_cost_high_usd) : null],
      ["Saved by the prompt cache", call.cache_saved_usd ? usd(call.cache_saved_usd) : null],
    ]],
  ];
}

function group(title, pairs) {
  const said = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, title)), h("dl", { class: "facts inside" }, said.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))));
}

function copied(id) {
  return h("span", { class: "id" }, h("code", {}, id), key(`copy-${id}`, copies(id)));
}

function tags(found) {
  const pairs = Object.entries(found ?? {});
  return pairs.length ? pairs.map(([name, value]) => h("a", { class: "chip", href: to("calls", [], { tag: `${name}:${value}` }) }, `${name}:${value}`)) : null;
}

function cached(call) {
  if (!known(call.cached_tokens)) return null;
  return call.prompt_tokens ? `${count(call.cached_tokens)} (${percent(call.cached_tokens / call.prompt_tokens)})` : count(call.cached_tokens);
}

function countedBy(call, winner) {
  const beyond = known(winner?.reported_tokens) ? `the provider reported ${count(winner.reported_tokens)}, ${winner.reported_tokens > (winner.completion_tokens ?? 0) ? "more" : "fewer"} than can be` : null;
  return { reported: "by the provider", estimated: ["estimated from characters", beyond].filter(Boolean).join("; "), implausible: beyond }[call.tokens_source];
}

function stamp(iso) {
  const at = new Date(iso);
  return h("time", { datetime: iso, title: iso }, at.toLocaleString([], { dateStyle: "medium", timeStyle: "medium", ...CLOCK }));
}

function range(low, high) {
  return known(low) && known(high) ? `${usd(low)} – ${usd(high)}` : "–";
}

function bounded(value, low, high) {
  return known(low) && known(high) && low !== high ? [usd(value), h("span", { class: "soft" }, ` from ${usd(low)} to ${usd(high)}`)] : usd(value);
}

/** Whether a call began a short while ago: ids begin with the time, in milliseconds. */
function isRecent(id) {
  return IS_ID.test(id) && Math.abs(Date.now() - begunAt(id)) < RECENT_MS;
}

function begunAt(id) {
  return Number.parseInt(id.replaceAll("-", "").slice(0, 12), 16);
}

/** The call of the last day whose id is this one but for a few characters; null without one. */
async function nearest(id, signal) {
  try {
    const { data } = await get("calls", { window: "24h", limit: COMPARED }, { signal });
    return data.map((each) => each.id).find((each) => typos(bare(each), bare(id)) <= MOST_TYPOS) ?? null;
  } catch {
    return null; // then there is no suggestion
  }
}

function bare(id) {
  return id.toLowerCase().replaceAll("-", "");
}

/** How many characters are other, missing or too many (Levenshtein's distance). */
function typos(one, other) {
  if (Math.abs(one.length - other.length) > MOST_TYPOS) return Infinity;
  let before = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let row = 1; row <= one.length; row += 1) {
    const now = [row];
    for (let at = 1; at <= other.length; at += 1) {
      now[at] = Math.min(before[at] + 1, now[at - 1] + 1, before[at - 1] + (one[row - 1] === other[at - 1] ? 0 : 1));
    }
    before = now;
  }
  return before.at(-1);
}

function unknown(id, near) {
  const ways = [near ? h("a", { class: "button primary", href: to("calls", [near]) }, "Open the call that has almost this id") : null, h("a", { class: "button", href: to("calls") }, "All calls")];
  if (isRecent(id)) {
    const until = time(new Date(begunAt(id) + RECENT_MS).toISOString());
    return empty("Not here yet", `No call that is known here has the id ${id}. If another worker still has it, it is shown here once its row is stored: this page looks for it until ${until}. Else the id is mistyped.`, ...ways);
  }
  const why = IS_ID.test(id) ? "It may be mistyped, older than what is kept, or of another gateway." : "It is not the id of a call, which has 32 digits and letters from a to f: it is mistyped, or not whole.";
  return empty("No such call", `No call has the id ${id}. ${why}`, ...ways);
}

function known(value) {
  return value !== null && value !== undefined;
}
