// Calls, newest first: filtered, page by page, and kept fresh without moving what somebody reads.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { choice, copies, named, selects } from "../lib/figures.js";
import { count, counted, ms, time, tokens, tps, usd } from "../lib/format.js";
import { filter, to } from "../lib/route.js";
import { empty, failed, waiting } from "../lib/states.js";
import { table } from "../lib/table.js";
import { callOutcome, narrowedWords } from "../lib/words.js";
import { askedWindow, windowChoice, windowWords } from "./parts/windows.js";

const EVERY_MS = 4000;
const TYPED_FOR_MS = 350;
const MOST_ROWS = 1000; // of the list: with more than these it begins again at the newest page
const TYPED = ["deployment", "slower_than_ms", "error", "tag", "request_id"];
const FILTERS = ["model", "client", "outcome", ...TYPED];
const WIDE = "(min-width: 52rem)"; // as in style.css

const COLUMNS = [
  { title: "Time", head: true, cell: (call) => time(call.started_at) },
  { title: "Outcome", cell: outcome },
  { title: "Model", cell: (call) => [call.model, call.answered_model && call.answered_model !== call.model ? h("span", { class: "soft" }, ` → ${call.answered_model}`) : null] },
  { title: "Client", cell: (call) => call.client ?? "–" },
  { title: "Answered by", cell: (call) => (call.deployment ? named(call.deployment) : "–") },
  { title: "First token", right: true, cell: (call) => ms(call.ttft_ms) },
  { title: "Total", right: true, cell: (call) => ms(call.total_ms) },
  { title: "Attempts", right: true, help: "With the reason where there were fewer than asked for",
    cell: (call) => [count(call.launched), call.narrowed ? h("span", { class: "soft" }, ` (${narrowedWords(call.narrowed)})`) : null] },
  { title: "Tokens", right: true, help: "Of the prompt → of the answer; ~ is estimated", cell: (call) => `${tokens(call.prompt_tokens, call.tokens_source)} →\u00a0${tokens(call.completion_tokens, call.tokens_source)}` },
  { title: "Speed", right: true, cell: (call) => tps(call.decode_tps) },
  { title: "Cost", right: true, cell: (call) => usd(call.cost_usd) },
];

/** Show them in `root` until closed. */
export function view(root, params, session, address) {
  const query = { window: askedWindow(address), ...Object.fromEntries(FILTERS.map((name) => [name, address.get(name)]).filter(([, value]) => value)) };
  let shown = []; // newest first
  let unseen = new Map(); // newer than these, by id, until somebody wants them
  let newest = null; // the page that was asked for last
  let isApart = false; // whether the new ones do not follow those shown: more came between two looks than a page has
  let next = null;
  let sql = "";
  let isLoaded = false;
  let generation = 0; // of the filters: an answer to others is dropped
  let timer = null;
  let asking = null;

  const isOwn = session?.user?.role === "person"; // who sees their own calls alone
  const grid = table(isOwn ? COLUMNS.filter(({ title }) => title !== "Client") : COLUMNS, { caption: "Calls, newest first", key: (call) => call.id, link: (call) => to("calls", [call.id]), stacks: true });
  const form = h("form", { class: "controls filters", role: "search", "aria-label": "Filter calls", onsubmit: (event) => event.preventDefault() });
  const copy = copies(() => sql, "Copy SQL");
  const trouble = h("div");
  const news = h("div", { class: "news", role: "status" });
  const body = h("div", { class: "card calls" }, waiting(8));
  const foot = h("div", { class: "more" });
  fill(root, h("header", { class: "head" }, h("h1", {}, "Calls"), h("div", { class: "controls" }, copy)), form, trouble, news, body, foot);
  drawForm();
  look();

  function drawForm() {
    fill(form,
      windowChoice(query.window, (value) => change("window", value)),
      selects("Model", known(session?.models, query.model), query.model, (value) => change("model", value), "All models"),
      isOwn ? null : selects("Client", known(session?.clients, query.client), query.client, (value) => change("client", value), "All clients"),
      choice("Outcome", { "": "All", ok: "Answered", failed: "Failed", rejected: "Request was wrong", left: "Client left" }, query.outcome ?? "", (value) => change("outcome", value)),
      h("details", { open: matchMedia(WIDE).matches || TYPED.some((name) => query[name]) }, h("summary", {}, "More filters"), h("div", { class: "controls" },
        typed("Slower than", "slower_than_ms", { type: "number", min: "0", step: "50", placeholder: "ms" }),
        typed("Deployment", "deployment", { placeholder: "provider/model" }),
        typed("Error", "error", { placeholder: "rate_limited" }),
        typed("Tag", "tag", { placeholder: "name:value" }),
        typed("Request id", "request_id", { placeholder: "x-request-id" }),
        h("button", { type: "button", class: "quiet", onclick: clear }, "Clear filters"))));
  }

  function typed(label, name, props) {
    let typing = null;
    return h("label", { class: "field" }, label, h("input", {
      type: "search", size: "14", autocomplete: "off", spellcheck: "false", value: query[name], ...props,
      oninput: (event) => {
        clearTimeout(typing);
        typing = setTimeout(() => event.target.isConnected && change(name, event.target.value.trim()), TYPED_FOR_MS);
      },
    }));
  }

  function clear() {
    for (const name of FILTERS) delete query[name];
    filter(Object.fromEntries(FILTERS.map((name) => [name, null])));
    drawForm();
    form.querySelector("select").focus();
    begin();
  }

  function change(name, value) {
    query[name] = value;
    if (name !== "window") filter({ [name]: value });
    begin();
  }

  function begin() {
    generation += 1;
    isLoaded = false;
    shown = [];
    next = null;
    forget();
    look();
  }

  async function look() {
    clearTimeout(timer);
    asking?.abort();
    const mine = (asking = new AbortController());
    if (!isLoaded) body.setAttribute("aria-busy", "true");
    try {
      const found = await get("calls", sent(query), { signal: mine.signal });
      if (mine.signal.aborted) return;
      fill(trouble);
      ({ sql } = found);
      if (isLoaded) merge(found);
      else first(found);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error.status !== 401) fill(trouble, failed(error, look));
      if (!isLoaded) fill(body);
    }
    body.removeAttribute("aria-busy");
    if (!document.hidden) timer = setTimeout(look, EVERY_MS);
  }

  function first(found) {
    isLoaded = true;
    shown = found.data;
    ({ next } = found);
    forget();
    draw();
  }

  function forget() {
    unseen = new Map();
    isApart = false;
    fill(news);
  }

  /** What is shown changes in its place; what is new waits above the table, unless nobody can be reading. */
  function merge(found) {
    newest = found;
    const fresh = new Map(found.data.map((call) => [call.id, call]));
    const ids = new Set(shown.map((call) => call.id));
    shown = shown.map((call) => fresh.get(call.id) ?? call);
    isApart ||= Boolean(found.next) && !found.data.some((call) => ids.has(call.id) || unseen.has(call.id));
    for (const call of found.data) if (!ids.has(call.id)) unseen.set(call.id, call);
    isApart ||= unseen.size > 0 && shown.length + unseen.size > MOST_ROWS;
    if (unseen.size && (shown.length === 0 || isUnread())) reveal();
    else {
      draw();
      if (isApart) unseen = new Map();
      if (isApart || unseen.size) fill(news, h("button", { type: "button", onclick: reveal }, isApart ? "Show the newest calls" : `Show ${counted(unseen.size, "new call")}`));
    }
  }

  function isUnread() {
    return scrollY < 4 && !body.matches(":hover") && !body.contains(document.activeElement) && getSelection().isCollapsed;
  }

  function reveal() {
    const held = news.contains(document.activeElement);
    if (isApart) first(newest);
    else {
      shown = [...unseen.values(), ...shown].sort((one, other) => (one.started_at < other.started_at ? 1 : -1));
      forget();
      draw();
    }
    if (held) grid.element.querySelector("tbody a")?.focus();
  }

  async function older() {
    const mine = generation;
    fill(foot, waiting(1));
    try {
      const found = await get("calls", { ...sent(query), after: next });
      if (mine !== generation) return;
      ({ next } = found);
      const at = shown.length;
      const ids = new Set(shown.map((call) => call.id));
      shown = [...shown, ...found.data.filter((call) => !ids.has(call.id))];
      draw();
      grid.element.querySelectorAll("tbody tr")[at]?.querySelector("a").focus({ preventScroll: true });
    } catch (error) {
      if (mine === generation) fill(foot, failed(error, older));
    }
  }

  function draw() {
    if (shown.length === 0) {
      if (!body.querySelector(".empty")) fill(body, nothing());
      fill(foot);
      return;
    }
    grid.update(shown);
    if (!body.contains(grid.element)) fill(body, grid.element);
    const isButton = Boolean(foot.querySelector("button"));
    if (next && !isButton) fill(foot, h("button", { type: "button", onclick: older }, "Older calls"));
    if (!next) fill(foot, h("p", { class: "soft" }, query.request_id ? "That is all." : `That is all of ${windowWords(query.window)}.`));
  }

  function nothing() {
    if (FILTERS.some((name) => query[name])) {
      return empty(query.request_id ? "No such call" : `No such call in ${windowWords(query.window)}`, "Take a longer time, or fewer filters.", h("button", { type: "button", onclick: clear }, "Clear filters"));
    }
    return empty(`No calls in ${windowWords(query.window)}`, "Send one, or take a longer time.", isOwn ? null : h("a", { class: "button", href: to("playground") }, "Playground"));
  }

  function seen() {
    if (document.hidden) clearTimeout(timer);
    else look();
  }

  document.addEventListener("visibilitychange", seen);
  return {
    close() {
      document.removeEventListener("visibilitychange", seen);
      clearTimeout(timer);
      asking?.abort();
    },
  };
}

/** What is asked of the gateway: a request's id is looked for at any time. */
function sent(query) {
  return query.request_id ? { ...query, window: null } : query;
}

/** What can be chosen, with what is chosen already: a link may name a client that is not configured any more. */
function known(names, chosen) {
  return chosen && !(names ?? []).includes(chosen) ? [...(names ?? []), chosen] : (names ?? []);
}

function outcome(call) {
  const { sign, words, kind } = callOutcome(call);
  return h("span", { class: `outcome ${kind}` }, h("span", { "aria-hidden": "true" }, `${sign} `), words);
}
