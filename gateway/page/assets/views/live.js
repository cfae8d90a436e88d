// Races as they happen: lanes that move, or the last race while none does; main figures, filters, and the last calls.

import { get } from "../lib/api.js";
import { fill, h, say } from "../lib/dom.js";
import { choice, figure, named, selects, swatch } from "../lib/figures.js";
import { count, counted, ms, NOTHING, rate, span, time, tokens, usd } from "../lib/format.js";
import { Lanes, said } from "../lib/lanes.js";
import { legend } from "../lib/picture.js";
import { listen, Races, stateOf } from "../lib/races.js";
import { filter, to } from "../lib/route.js";
import { empty, failed } from "../lib/states.js";
import { table } from "../lib/table.js";
import { narrowedLine, stateKind, stateWords } from "../lib/words.js";
import { offer } from "./parts/demo.js";
import { first } from "./parts/first.js";
import { pictured } from "./parts/running.js";
import { bounds, isNothing, nothing, parted, perCall, signed, soFar, spent } from "./parts/saving.js";
import { timeline, worthOf } from "./parts/timeline.js";
import { askedWindow, windowWords } from "./parts/windows.js";

const WINDOWS = { 6: "6 s", 15: "15 s", 60: "1 min" };
const OUTCOMES = { won: "Answered", cut: "With a cancelled attempt", failed: "With a failure", running: "Running" };
const ROWS = 12;
const STATES = 4; // deployments whose state is shown, if all are well
const SLOW_MS = 1000; // between frames for who wants little motion, between figures and rows for everybody
const WORTH_EVERY_MS = 30_000;
const REMEMBERED = 200; // calls of before the page was opened, at most
const REMEMBERED_MS = 3_600_000; // for so long: the window of one hour
const ASKED_EVERY_MS = 30_000; // whether the database still answers
const AGAIN_MS = 5000; // while it does not
const STANDINGS_EVERY_MS = 10_000; // whether racing is narrowed, and which deployments there are
const YOUNG_WORTH_EVERY_MS = 5000; // while each call moves the figure, or there is none
const YOUNG_CALLS = 1000;
const UNKNOWN_COST = { figure: NOTHING, note: "not known now" };
const WORTH_WINDOW = askedWindow(new URLSearchParams()); // the usual one of the view of racing's worth: its figure is here

/** Show them in `root` until closed. */
export function view(root, params, session, query) {
  const asked = { model: query.get("model") ?? "", client: query.get("client") ?? "", deployment: query.get("deployment") ?? "" };
  let outcome = query.get("outcome") ?? "";
  let stream = null;
  let races = null;
  let lanes = null;
  let frame = null;
  let drawn = null; // what stands in place of the lanes: words of `stand`
  let drawn_ms = 0;
  let worth = { figure: NOTHING, note: "not known yet", cost: UNKNOWN_COST };
  let valuing = null;
  let asking = null;
  let standing = null;
  let closed = false;
  const calm = matchMedia("(prefers-reduced-motion: reduce)");

  const canvas = h("canvas", { class: "lanes", tabindex: "0", role: "img", "aria-label": "Races as lanes. The table below has the same calls.", "aria-describedby": "live-keys" });
  const tip = h("div", { class: "tip", hidden: true });
  const still = h("div", { class: "over", hidden: true }); // in place of the lanes
  const trouble = h("div");
  const away = h("div");
  const narrowings = h("div", { class: "notes", role: "status" });
  const states = h("div", { class: "states", role: "group", "aria-label": "Deployments" });
  const scope = h("span", { class: "chip" }, "connecting");
  const dense = h("p", { class: "soft", role: "status" });
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: toggle }, "Pause");
  const figures = h("div");
  const seen = h("div", { class: "legend" });
  const last = table([
    { title: "Time", cell: (call) => time(new Date(call.at_ms).toISOString()) },
    { title: "Model", cell: (call) => call.model },
    { title: "Client", cell: (call) => call.client ?? NOTHING },
    { title: "Outcome", cell: outcomeOf },
    { title: "Answered by", wide: true, cell: (call) => (winnerOf(call) ? named(winnerOf(call).deployment) : NOTHING) },
    { title: "Launched", right: true, cell: (call) => count(call.attempts.length) },
    { title: "First token", right: true, cell: (call) => figure(ms(call.ttft_ms ?? winnerOf(call)?.ttft_ms)) },
    { title: "Total", right: true, cell: (call) => figure(ms(call.total_ms)) },
    { title: "Tokens", right: true, cell: (call) => tokens(call.completion_tokens ?? winnerOf(call)?.tokens, call.tokens_source ?? (call.ended_ms === null ? "estimated" : null)) },
  ], { caption: "The last calls", key: (call) => call.id, link: (call) => to("calls", [call.id]), stacks: true, fingerprint });

  const foot = h("footer", { class: "foot" }, seen, legend("claim"), dense);
  const list = h("section", { class: "card last" }, h("header", {}, h("h2", {}, "Last calls"), h("p", {}, "The list stands still while you point at it.")), last.element);
  const deployments = selects("Deployment", known([], asked.deployment), asked.deployment, (value) => choose({ deployment: value }), "All");
  fill(root,
    h("div", { class: "head" }, h("h1", {}, "Live"), scope,
      h("div", { class: "controls" },
        selects("Model", known(session.models, asked.model), asked.model, (value) => choose({ model: value }), "All"),
        known(session.clients, asked.client).length ? selects("Client", known(session.clients, asked.client), asked.client, (value) => choose({ client: value }), "All") : null,
        deployments,
        selects("Outcome", Object.entries(OUTCOMES), outcome, (value) => narrow(value), "All"),
        choice("Time shown", WINDOWS, "15", (value) => widen(value * 1000)), pause)),
    trouble, away, narrowings, states, session.traffic ? offer(session.traffic) : null, figures,
    h("section", { class: "card", "aria-label": "Races" },
      h("div", { class: "stage" }, canvas, tip, still),
      foot,
      h("p", { id: "live-keys", class: "unseen" }, "Space pauses. Arrow keys choose a call, Enter opens it.")),
    list);

  connect();
  standings();
  value();
  const slow = setInterval(tick, SLOW_MS);
  document.addEventListener("keydown", press);
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerleave", () => chosen(null));
  canvas.addEventListener("click", (event) => open(lanes.at(event.offsetX, event.offsetY)));
  canvas.addEventListener("keydown", step);
  frame = requestAnimationFrame(paint);

  function connect() {
    stream?.close();
    lanes?.close();
    races = new Races();
    lanes = new Lanes(canvas, races, { window_ms: lanes?.window_ms ?? 15_000, shown });
    stream = listen(races, asked, heard, state);
    hold(false); // what is shown begins again
  }

  /** Ask for the calls of before: when a stream begins. Later only whether the database still answers. */
  async function remember(isNew) {
    clearTimeout(asking);
    const mine = races;
    const { deployment, ...of } = asked;
    try {
      const { data, next } = await get("calls", { ...of, window: "1h", attempts: true, limit: isNew ? REMEMBERED : 1 });
      if (mine !== races || closed) return;
      fill(away);
      if (isNew) {
        const rows = data.filter((row) => !deployment || row.attempts.some((each) => each.deployment === deployment));
        races.remember(rows, next ? Date.parse(data.at(-1).started_at) : races.now() - REMEMBERED_MS);
        tick();
      }
      asking = setTimeout(remember, ASKED_EVERY_MS, false);
    } catch (error) {
      if (mine !== races || closed || error.status === 401) return;
      fill(away, failed(error, () => remember(true)));
      asking = setTimeout(remember, AGAIN_MS, true);
    }
  }

  function choose(change) {
    Object.assign(asked, change);
    filter(change);
    connect();
  }

  function narrow(value) {
    outcome = value;
    filter({ outcome });
    lanes.restart();
    tick();
  }

  function widen(window_ms) {
    lanes.window_ms = window_ms;
    lanes.restart();
    lanes.draw();
  }

  function shown(call) {
    if (!outcome) return true;
    if (outcome === "running") return call.ended_ms === null;
    return call.attempts.some((each) => stateOf(each) === outcome);
  }

  function heard(kind) {
    if (kind === "hello" || kind === "scope" || kind === "gap") said_scope();
    if (kind === "hello") remember(true);
    if (kind === "hello" && session.traffic && session.calls_ever === false) {
      session.calls_ever = true; // from now on: so that there is a race to see, without a click
      session.traffic.ask().catch(() => {}); // its failure is shown as any other
    }
  }

  function state(is, error) {
    if (is === "open") fill(trouble);
    if (is === "lost") {
      scope.className = "chip warn";
      say(scope, "connection lost, trying again");
    }
    if (is === "closed" && error.status !== 401) fill(trouble, failed(error, connect));
  }

  function said_scope() {
    if (!races.scope) return;
    const all = races.scope.scope === "installation";
    scope.className = races.scope.reason ? "chip warn" : "chip";
    scope.title = all ? "All workers and replicas" : "Other workers and replicas are seen through Redis";
    say(scope, `${all ? "whole installation" : "this process only"}${races.scope.reason ? `: ${races.scope.reason}` : ""}`);
  }

  function paint(at) {
    frame = requestAnimationFrame(paint);
    const wait_ms = calm.matches ? SLOW_MS : lanes.visible.length > 400 ? 33 : 0;
    if (at - drawn_ms < wait_ms) return;
    drawn_ms = at;
    lanes.draw();
    if (races.calls.size === 1) stand(); // its picture moves too
  }

  /** Once a second: figures, legend, rows. */
  function tick() {
    const { rate: perSecond, ttft_p50_ms: ttft, samples, figured_ms: figured, running } = races.figures();
    const within = figured >= 60_000 ? "last minute" : `last ${span(Math.ceil(figured / 1000))}`;
    fill(figures, h("dl", { class: "stats" }, [
      ["Calls a second", rate(perSecond), "last 10 s"],
      ["First token, median", ms(ttft), samples ? `of ${counted(samples, "call")}, ${within}` : `no call, ${within}`],
      ["Saved by racing", worth.figure, worth.note],
      ["Cost", worth.cost.figure, worth.cost.note],
      ["Running now", count(running), counted(attempts(), "attempt")],
    ].map(([label, text, note]) => h("div", { class: "stat" }, h("dt", {}, label), h("dd", {}, figure(text)), h("dd", { class: "note" }, note)))));
    const all = [...races.calls.values()].filter(shown);
    stand();
    if (!last.element.matches(":hover, :focus-within") && !lanes.stopped_ms) last.update(all.slice(-ROWS).reverse());
    const drawn = [...new Set(lanes.visible.flatMap((call) => call.attempts.map((each) => each.deployment)))].sort();
    const text = drawn.join();
    if (seen.dataset.names !== text) {
      seen.dataset.names = text;
      fill(seen, drawn.map((name) => h("span", { class: "entry" }, swatch(name), name)));
    }
    const whole = lanes.visible.length + lanes.left_out;
    say(dense, lanes.left_out ? `Drawn: ${count(lanes.visible.length)} of ${counted(whole, "call")} here; figures count all.` : "");
    canvas.setAttribute("aria-label", `Races as lanes: ${counted(lanes.visible.length, "call")} of the last ${lanes.window_ms / 1000} s. The table below has the last ones.`);
  }

  function attempts() {
    let sum = 0;
    for (const call of races.calls.values()) if (call.ended_ms === null) sum += call.attempts.filter((each) => each.outcome === null).length;
    return sum;
  }

  /** What stands in place of the lanes: the only call, or the last one while no race moves; without any, words. */
  function stand() {
    if (races.scope === null) return;
    const all = [...races.calls.values()].filter((call) => shown(call) && call.attempts.length);
    if (all.length > 1 && lanes.visible.length + lanes.left_out) return draw("");
    if (all.length) return draw("race", all.at(-1));
    return draw(isFiltered() ? "filtered" : session.calls_ever === false ? "first" : "none");
  }

  function draw(kind, call = null) {
    if (drawn !== null && drawn !== kind && list.matches(":hover, :focus-within")) return; // what you point at does not move
    drawn = kind;
    const runs = call !== null && call.ended_ms === null;
    const mark = `${kind} ${call === null ? "" : `${call.id} ${runs ? races.now() : fingerprint(call)}`}`;
    if (still.dataset.mark === mark) return;
    still.dataset.mark = mark;
    still.hidden = kind === "";
    foot.hidden = kind !== "";
    list.hidden = kind === "first";
    canvas.className = { race: "lanes under", first: "lanes low" }[kind] ?? "lanes";
    fill(still, kind === "" ? null : kind === "race" ? race(call, pictured(races, call)) : kind === "first" ? first(session) : unseen());
  }

  function isFiltered() {
    return Object.values(asked).some(Boolean) || Boolean(outcome);
  }

  function unseen() {
    return empty("No race is running",
      isFiltered() ? "Calls that fit the filters appear here the moment they begin." : "Calls appear here the moment they begin.",
      h("a", { class: "button", href: to("playground") }, "Open the playground"));
  }

  function toggle() {
    hold(lanes.stopped_ms === null);
  }

  function hold(stops) {
    lanes.stopped_ms = stops ? races.now() : null;
    pause.setAttribute("aria-pressed", String(stops));
    say(pause, stops ? "Go on" : "Pause");
    if (!stops) tick();
  }

  function press(event) {
    if (event.key !== " " || event.target.closest("button, a, input, select, textarea, summary")) return;
    event.preventDefault();
    toggle();
  }

  function point(event) {
    const call = lanes.at(event.offsetX, event.offsetY);
    canvas.style.cursor = call ? "pointer" : "";
    chosen(call, event.offsetX, event.offsetY);
  }

  function step(event) {
    const move = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const at = lanes.visible.findIndex((each) => each.id === lanes.chosen);
    if (event.key === "Enter" && at >= 0) open(lanes.visible[at]);
    if (event.key === "Escape") chosen(null);
    if (move === undefined || !lanes.visible.length) return;
    event.preventDefault();
    const next = lanes.visible[at < 0 ? lanes.visible.length - 1 : Math.min(lanes.visible.length - 1, Math.max(0, at + move))];
    chosen(next, lanes.x(next.at_ms), lanes.placed.get(next.id) * lanes.trackHeight());
  }

  function chosen(call, x = 0, y = 0) {
    lanes.chosen = call?.id ?? null;
    tip.hidden = call === null;
    if (call === null) return;
    fill(tip, h("strong", {}, call.model), call.client ? ` · ${call.client}` : null, ` · ${call.mode}`,
      h("table", {}, h("tbody", {}, call.attempts.map((each) => h("tr", {},
        h("th", {}, named(each.deployment)), h("td", {}, said(each, stateOf(each), races.now() - call.at_ms - each.offset_ms)))))),
      h("p", { class: "soft" }, "Click or Enter opens it"));
    tip.style.left = `${Math.max(4, Math.min(x + 14, canvas.clientWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 18 + tip.offsetHeight > canvas.clientHeight ? Math.max(4, y - tip.offsetHeight - 10) : y + 18}px`;
  }

  /** The lines of models whose racing is narrowed, and the deployments to filter by. */
  async function standings() {
    try {
      const { models } = await get("leaderboard");
      const lines = models.filter((each) => !asked.model || each.model === asked.model).map(narrowedLine).filter(Boolean);
      if (lines.join() !== [...narrowings.children].map((each) => each.textContent).join()) fill(narrowings, lines.map((each) => h("p", {}, each)));
      const rows = new Map(models.filter((each) => !asked.model || each.model === asked.model)
        .flatMap((each) => each.deployments.map((row) => [row.deployment, row])));
      const line = stated([...rows.values()]);
      if (line.map((each) => each.textContent).join() !== [...states.children].map((each) => each.textContent).join()) fill(states, line);
      const all = new Set(models.flatMap((each) => each.deployments.map((row) => row.deployment)));
      const select = deployments.querySelector("select");
      for (const { value } of select.options) all.delete(value);
      select.append(...[...all].map((each) => h("option", { value: each }, each)));
    } catch {
      // then there is one filter less
    }
    if (!closed) standing = setTimeout(standings, STANDINGS_EVERY_MS);
  }

  async function value() {
    clearTimeout(valuing);
    try {
      const { data } = await get("race-value", { window: WORTH_WINDOW, by: "model" });
      worth = { ...saved(data), cost: cost(data) };
    } catch {
      worth = { figure: NOTHING, note: "not known now", isYoung: true, cost: UNKNOWN_COST }; // the view of what racing is worth says why
    }
    if (!closed) valuing = setTimeout(value, worth.isYoung ? YOUNG_WORTH_EVERY_MS : WORTH_EVERY_MS);
  }

  return {
    close() {
      closed = true;
      clearTimeout(asking);
      clearTimeout(standing);
      stream.close();
      lanes.close();
      cancelAnimationFrame(frame);
      clearInterval(slow);
      clearTimeout(valuing);
      document.removeEventListener("keydown", press);
    },
  };
}

/** A line of deployments with their states, those that do not answer first. */
function stated(rows) {
  const bad = rows.filter((each) => each.state !== "ok");
  const shown = [...bad, ...rows.filter((each) => each.state === "ok")].slice(0, Math.max(STATES, bad.length));
  const left = rows.length - shown.length;
  return [...shown.map((row) => h("a", { class: "state", href: to("leaderboard"), title: row.reason }, named(row.deployment),
    h("span", { class: `chip ${stateKind(row.state)}` }, stateWords(row.state)))), ...(left ? [h("span", { class: "soft" }, `${left} more, all ok`)] : [])];
}

/** What can be chosen, with what is chosen already: a link may name what is not configured any more. */
function known(names, chosen) {
  return chosen && !(names ?? []).includes(chosen) ? [...(names ?? []), chosen] : (names ?? []);
}

/** What racing saved per call of the busiest model: as the view of racing's worth tells it, and nothing until there is an interval. */
function saved(rows) {
  const { sure, unsure } = parted(rows);
  const [row] = sure.length ? sure : unsure;
  if (!row) return { figure: NOTHING, note: rows.some((each) => each.n > 0) ? "no race yet" : "no call yet", isYoung: true };
  const whose = sure.length + unsure.length > 1 ? ` of ${row.model}` : "";
  if (!sure.length) return { figure: NOTHING, note: `${soFar(row)}${whose}`, isYoung: true };
  const { low, mid, high } = perCall(row);
  const note = isNothing(row) ? nothing(row) : `${low === high ? "" : `${bounds(low, high)} `}a call${whose}, in ${windowWords(WORTH_WINDOW)}`;
  return { figure: signed(mid), note, isYoung: row.n < YOUNG_CALLS };
}

/** What all models' calls cost, and what of it racing added. */
function cost(rows) {
  const { all, added } = spent(rows);
  if (all === null) return { figure: NOTHING, note: rows.some((each) => each.n > 0) ? "no price is known" : "no call yet" };
  return { figure: usd(all), note: `${added === null ? "" : `${usd(added)} of it by racing, `}in ${windowWords(WORTH_WINDOW)}` };
}

/** A race as a picture, and what it was worth. */
function race({ id, at_ms: at, model }, { call, attempts, nowMs }) {
  const worth = worthOf(call, attempts);
  return h("div", { class: "inside" },
    h("div", { class: "head" }, h("h2", {}, attempts.length < 2 ? "The last call" : nowMs === null ? "The last race" : "A race"),
      h("p", {}, `${model}, ${time(new Date(at).toISOString())}${worth ? ": " : ""}`, worth ? h("strong", {}, worth) : null),
      h("div", { class: "controls" }, h("a", { href: to("calls", [id]) }, "Open the call"))),
    timeline(call, attempts, nowMs));
}

function winnerOf(call) {
  return call.attempts.find((each) => each.id === call.winner || each.outcome === "won") ?? null;
}

function outcomeOf(call) {
  if (call.lost) return "end not seen";
  if (call.ended_ms === null) return call.attempts.some((each) => each.ttft_ms !== null) ? "answering" : "waiting";
  if (call.status === 499) return "client left";
  return call.error ? h("span", { class: "bad" }, `${call.status} ${call.error.replaceAll("_", " ")}`) : h("span", { class: "good" }, "answered");
}

function fingerprint(call) {
  return `${call.ended_ms}|${call.attempts.map((each) => `${each.outcome}${each.ttft_ms}${each.tokens}`)}`;
}
