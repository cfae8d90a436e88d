// History: how fast each deployment was, its errors, rate limits and outages, and the week by weekday and hour.

import { entitle } from "../lib/alarm.js";
import { get } from "../lib/api.js";
import { colourOf, resolved } from "../lib/colours.js";
import { fill, h, say } from "../lib/dom.js";
import { choice, copies, copiesSql, named, selects, swatch } from "../lib/figures.js";
import { CLOCK, count, ms, percent, span, time, tps } from "../lib/format.js";
import { plot } from "../lib/plot.js";
import { filter, to } from "../lib/route.js";
import { empty, watching } from "../lib/states.js";
import { table } from "../lib/table.js";
import { outageWords } from "../lib/words.js";
import { heat, zoneWords } from "./parts/heat.js";
import { askedWindow, windowChoice, windowTitle, windowWords } from "./parts/windows.js";

const EVERY_MS = 60_000;
const HEAT_EVERY_MS = 10 * 60_000;
const MARK_PX = 16; // of a mark at which everything failed
const WEEKS_AT_ONCE = 8;
const SHORTEST_MS = 120_000; // of a range of time
const LEAST_STEPS = 5; // of an axis that begins with the first attempts
const HOUR_MS = 3_600_000;
const SPANS = { "1h": HOUR_MS, "24h": 24 * HOUR_MS, "7d": 7 * 24 * HOUR_MS, "30d": 30 * 24 * HOUR_MS };

const QUANTILES = { p50: "Median", p95: "p95", p99: "p99" };

/** What is drawn: `of(series, quantile, all)` returns a column; speeds and gaps have no p99. */
const PLOTS = [
  { name: "ttft", title: "First token", format: ms, least: 0, of: (each, quantile) => each[`ttft_${quantile}_ms`], says: (quantile) => QUANTILES[quantile] },
  { name: "tps", title: "Speed", format: tps, least: 0, of: (each, quantile) => each[short(quantile) === "p95" ? "decode_p05_tps" : "decode_p50_tps"], says: (quantile) => (short(quantile) === "p95" ? "what 95 % of answers reach" : QUANTILES.p50) },
  { name: "itl", title: "Gaps between chunks", format: ms, least: 0, of: (each, quantile) => each[`itl_${short(quantile)}_ms`], says: (quantile) => QUANTILES[short(quantile)] },
  { name: "wins", title: "Share of wins", format: percent, least: 0, most: 1, of: (each, _, all) => each.n_won.map((won, at) => share(won, all.won.get(each.model).get(each.t[at]))), says: () => "of the model's answers" },
  { name: "errors", title: "Errors", format: percent, least: 0, of: (each) => each.n_errors.map((errors, at) => share(errors, each.n[at])), says: () => "share of attempts, rate limits apart" },
  { name: "limited", title: "Rate limits", format: percent, least: 0, of: (each) => each.n_rate_limited.map((limited, at) => share(limited, each.n[at])), says: () => "share of attempts" },
];

const METRICS = {
  ttft_p50_ms: { words: "First token, median", format: ms },
  ttft_p95_ms: { words: "First token, p95", format: ms },
  decode_p50_tps: { words: "Speed, median", format: tps },
  error_rate: { words: "Errors", format: percent },
  n: { words: "Attempts", format: count },
};

const OUTAGES = [
  { title: "Deployment", head: true, cell: (each) => named(each.deployment) },
  { title: "Began", right: true, sort: (each) => each.from, cell: (each) => time(each.from) },
  { title: "Ended", right: true, sort: (each) => each.to, cell: (each) => (each.to ? time(each.to) : each.may_last ? "still out" : "unknown") },
  { title: "Lasted", right: true, sort: lasted, cell: (each) => span(lasted(each)) },
  { title: "Reason", wraps: true, cell: (each) => outageWords(each.reason) },
  { title: "Seen by", cell: (each) => each.replica ?? "–" },
];

const WORSE = { ttft: "first token", tps: "speed", itl: "gaps between chunks", errors: "errors" };
const ENDINGS = { as_usual: "as usual again", new_usual: "lasted for a week: usual now", no_calls: "no more calls" };

const SLOWDOWNS = [
  { title: "Deployment", head: true, cell: (each) => named(each.deployment) },
  { title: "What", cell: (each) => WORSE[each.metric] ?? each.metric },
  { title: "Times as slow", right: true, sort: (each) => each.ratio, cell: (each) => `${times(each.ratio)} (${times(each.low)} to ${times(each.high)})` },
  { title: "From", right: true, sort: (each) => each.began_at, cell: (each) => time(each.began_at) },
  { title: "Noticed", right: true, sort: (each) => each.noticed_at, cell: (each) => time(each.noticed_at) },
  { title: "To", right: true, sort: (each) => each.ended_at, cell: (each) => (each.ended_at ? time(each.ended_at) : "it goes on") },
  { title: "Why it ended", wraps: true, cell: (each) => ENDINGS[each.ending] ?? "–" },
  { title: "Evidence", wide: true, cell: (each) => copiesSql(each.evidence_sql) },
];

/** Show it in `root` until closed. */
export function view(root, params, session, address) {
  const asked = {
    window: askedWindow(address),
    ...askedRange(address),
    model: address.get("model") ?? session?.models?.[0] ?? "",
    client: address.get("client") ?? "",
    quantile: address.get("quantile") in QUANTILES ? address.get("quantile") : "p50",
  };
  const wanted = { metric: address.get("metric") in METRICS ? address.get("metric") : "ttft_p50_ms", window: address.get("heat") === "30d" ? "30d" : "7d" };
  const hidden = new Set(); // deployments
  let isChosen = address.has("window") || asked.from !== null; // else it is the last hour, if there is nothing before it
  let found = null;
  let isZooming = false;

  const legend = h("div", { class: "plot-legend", role: "group", "aria-label": "Deployments" });
  const copy = copies(() => found?.sql ?? "", "Copy SQL");
  const windows = h("div");
  const ranges = h("div", { class: "range-of-time" });
  const place = h("div");
  const heatPlace = h("div");
  const outages = table(OUTAGES, { caption: "Outages", key: (each) => `${each.deployment} ${each.from} ${each.replica}`, stacks: true, sorted: [1, "descending"] });
  fill(root,
    h("header", { class: "head" }, h("h1", {}, "History"), h("div", { class: "controls" },
      selects("Model", others(session?.models, asked.model), asked.model === "all" ? "" : asked.model, (value) => change({ model: value || "all" }), "All models"),
      selects("Client", others(session?.clients, asked.client), asked.client, (value) => change({ client: value }), "All clients"),
      choice("Quantile", QUANTILES, asked.quantile, (value) => change({ quantile: value })),
      windows, copy)),
    ranges, place, heatPlace);
  drawWindows();
  drawRange();
  name();

  const cards = PLOTS.map(card);
  const marks = h("p", { class: "marks soft" }, [
    ["error", "errors"], ["limit", "rate limits"], ["outage", "outage: not asked after failures"], ["slow", "slower than usual"],
  ].map(([name, words]) => h("span", {}, h("i", { class: `mark-${name}`, "aria-hidden": "true" }), words)));
  const gone = h("section", { class: "card", "aria-labelledby": "outages" }, h("header", {}, h("h2", { id: "outages" }, "Outages"), h("p", {}, "A deployment that fails again and again is not asked until a probe succeeds.")), outages.element);
  const slow = table(SLOWDOWNS, { caption: "Slowdowns", key: (each) => each.id, stacks: true, sorted: [3, "descending"] });
  const slower = h("section", { class: "card", "aria-labelledby": "slowdowns" }, h("header", {}, h("h2", { id: "slowdowns" }, "Slower than usual"), h("p", {}, "Compared with its own earlier weeks, and with the model's other deployments at the same time.")), slow.element);
  const fitted = h("p", { class: "soft fitted", hidden: true });
  const plots = h("div", { class: "history" }, fitted, legend, marks, h("div", { class: "columns" }, cards.map((each) => each.element)), slower, gone);
  const kept = watching(place, load, show, { everyMs: EVERY_MS, lines: 12 });

  const heats = watching(heatPlace, loadHeat, (value, body) => showHeat(value, body), { everyMs: HEAT_EVERY_MS, lines: 8 });

  async function load(signal) {
    const { window, model, client } = asked;
    const of = { model: model === "all" ? null : model };
    const [history, slowdowns] = await Promise.all([
      get("history", { ...of, ...when(asked), client }, { signal }), get("slowdowns", { ...of, window: covering(asked) }, { signal }),
    ]);
    if (!isChosen && asked.from === null && window !== "1h" && isOfOneHour(history)) {
      asked.window = "1h";
      drawWindows();
      return await load(signal);
    }
    const [from, to] = [Date.parse(history.from), Date.parse(history.to)];
    return { ...history, slowdowns: slowdowns.data.filter((each) => Date.parse(each.began_at) < to && (!each.ended_at || Date.parse(each.ended_at) >= from)) };
  }

  function name() {
    entitle("History", asked.model === "all" ? null : asked.model, asked.client);
  }

  function drawWindows() {
    const held = windows.contains(document.activeElement) ? document.activeElement.innerText : null;
    fill(windows, windowChoice(asked.from === null ? asked.window : null, (window) => {
      isChosen = true;
      change({ window, from: null, to: null });
    }));
    if (held) [...windows.querySelectorAll("button")].find((each) => each.innerText === held)?.focus({ preventScroll: true });
  }

  function focusWindow() {
    windows.querySelector("[aria-pressed=true]")?.focus({ preventScroll: true });
  }

  /** The range of time in fields, for who does not drag over a plot; open while one is chosen. */
  function drawRange() {
    const isHeld = ranges.contains(document.activeElement);
    const [from, to] = asked.from === null ? [Date.now() - HOUR_MS, Date.now()] : [Date.parse(asked.from), Date.parse(asked.to)];
    const field = (label, name, at) => h("label", { class: "field" }, label, h("input", { type: "datetime-local", name, value: local(at), required: true }));
    fill(ranges, h("details", { open: asked.from !== null }, h("summary", {}, asked.from === null ? "Another time: drag over a plot, or name it" : `Shown: ${rangeWords(asked)}`),
      h("form", { class: "controls", "aria-label": "Range of time", onsubmit: (event) => {
        event.preventDefault();
        const form = new FormData(event.target);
        zoom(Date.parse(form.get("from")) / 1000, Date.parse(form.get("to")) / 1000);
      } }, field("From", "from", from), field("To", "to", to), h("button", { type: "submit" }, "Show"),
      asked.from === null ? null : h("button", { type: "button", class: "quiet", onclick: () => change({ from: null, to: null }) }, "Leave this range"))));
    if (isHeld && asked.from === null) focusWindow();
    else if (isHeld) ranges.querySelector("[type=submit]").focus({ preventScroll: true });
  }

  /** Show a range of time, in unix seconds, by whole minutes. Plots that share a cursor tell of one drag several times. */
  function zoom(from_s, to_s) {
    const from = Math.floor((from_s * 1000) / 60_000) * 60_000;
    const to = Math.max(from + SHORTEST_MS, Math.ceil((to_s * 1000) / 60_000) * 60_000);
    if (!Number.isFinite(from + to) || isZooming) return;
    isZooming = true;
    setTimeout(() => { isZooming = false; });
    change({ from: new Date(from).toISOString().replace(".000", ""), to: new Date(to).toISOString().replace(".000", "") });
  }

  function show(value, body) {
    found = value;
    if (!found.series.length) {
      fill(body, h("div", { class: "card" }, nothing()));
      return;
    }
    if (body.firstElementChild !== plots) fill(body, plots);
    drawLegend();
    drawPlots();
  }

  function nothing() {
    const of = asked.model && asked.model !== "all" ? ` of ${asked.model}` : "";
    return empty(`No attempts${of} ${asked.from === null ? `in ${windowWords(asked.window)}` : `from ${rangeWords(asked)}`}`, "Every attempt counts here within seconds of its end.", h("a", { class: "button", href: to("playground") }, "Playground"));
  }

  function change(changes) {
    const isOtherRange = "from" in changes && (changes.from !== asked.from || changes.to !== asked.to);
    Object.assign(asked, changes);
    const { window: _, ...named } = changes; // the choice of windows has written that itself
    filter({ ...named, quantile: asked.quantile === "p50" ? null : asked.quantile });
    name();
    if ("quantile" in changes) drawPlots();
    else {
      if (isOtherRange) {
        drawWindows();
        drawRange();
      }
      kept.again();
      if ("model" in changes) heats.again();
    }
  }

  function drawLegend() {
    const names = [...new Set(found.series.map((each) => each.deployment))].sort();
    if (legend.dataset.names === names.join()) return;
    legend.dataset.names = names.join();
    fill(legend, names.map((name) => h("button", { type: "button", "aria-pressed": String(!hidden.has(name)), onclick: (event) => toggle(name, event.currentTarget) }, swatch(name), name)));
  }

  function toggle(name, button) {
    if (hidden.has(name)) hidden.delete(name);
    else hidden.add(name);
    button.setAttribute("aria-pressed", String(!hidden.has(name)));
    drawPlots();
  }

  function drawPlots() {
    if (!found?.series.length) return;
    const shown = found.series.filter((each) => !hidden.has(each.deployment));
    const since = isChosen || asked.from !== null ? null : sinceFirst(found);
    const t = grid(found, since);
    const range = [since ?? Date.parse(found.from) / 1000, Date.parse(found.to) / 1000];
    fitted.hidden = since === null;
    say(fitted, since === null ? "" : `Of ${windowWords(asked.window)}, from the first attempts on. “${windowTitle(asked.window)}” shows all of it.`);
    const bands = found.outages.filter((each) => shown.some((line) => line.deployment === each.deployment)).map((each) => ({
      from: Date.parse(each.from) / 1000,
      to: each.to ? Date.parse(each.to) / 1000 : each.may_last ? null : Date.parse(each.from) / 1000, // a line where it began
      colour: colourOf(each.deployment),
      label: `${each.deployment} out`,
    }));
    const slowdowns = found.slowdowns.filter((each) => shown.some((line) => line.deployment === each.deployment && line.model === each.model));
    bands.push(...slowdowns.map((each) => ({
      from: Date.parse(each.began_at) / 1000,
      to: each.ended_at ? Date.parse(each.ended_at) / 1000 : null,
      colour: colourOf(each.deployment),
      edged: true,
      label: `${each.deployment}: ${WORSE[each.metric] ?? each.metric} ${times(each.ratio)} ${each.metric === "errors" ? "as many" : "as slow"}`,
    })));
    const models = [...new Set(found.series.map((each) => each.model))];
    const all = { won: new Map(models.map((model) => [model, sums(found.series.filter((each) => each.model === model), "n_won")])) };
    const trouble = troubles(t, shown);
    const several = models.length > 1;
    for (const each of cards) each.update({ t, range, shown, bands, all, trouble, several });
    outages.update(found.outages);
    gone.hidden = found.outages.length === 0;
    slow.update(found.slowdowns);
    slower.hidden = found.slowdowns.length === 0;
  }

  function card({ name, title, format, least = null, most = null, of, says }) {
    const words = h("p");
    const none = h("p", { class: "none soft", hidden: true }, "None.");
    const body = h("div", { class: "inside" });
    let drawing = null;
    let trouble = { errors: [], limited: [] };
    const isShare = format === percent;
    return {
      element: h("section", { class: "card", "aria-labelledby": `plot-${name}` }, h("header", {}, h("h2", { id: `plot-${name}` }, title), words), body),
      update(next) {
        trouble = next.trouble;
        words.textContent = says(asked.quantile);
        const data = {
          t: next.t,
          span: next.range,
          bands: next.bands,
          series: next.shown.map((each) => ({
            label: next.several ? `${each.deployment} · ${each.model}` : each.deployment,
            group: each.deployment,
            colour: colourOf(each.deployment),
            values: laid(next.t, each.t, of(each, asked.quantile, next.all)),
          })),
          sql: found.sql,
        };
        if (drawing === null) {
          drawing = plot(data, { title, format, axis: (value) => (value === 0 ? "0" : format === ms && value < 1 ? `${value.toFixed(2)} ms` : format(value)), least, most, height: name === "ttft" ? 260 : 180, sync: "history", over: isShare ? null : (u) => drawMarks(u, trouble), zoomed: zoom });
          fill(body, none, drawing.element);
        } else drawing.update(data);
        const isNone = isShare && data.series.every((each) => each.values.every((value) => !value));
        none.hidden = !isNone;
        drawing.element.hidden = isNone;
      },
      close: () => drawing?.close(),
    };
  }

  async function loadHeat(signal) {
    return await get("heat", { ...wanted, model: asked.model === "all" ? null : asked.model }, { signal });
  }

  function showHeat(value, body) {
    const metric = METRICS[wanted.metric];
    const held = body.contains(document.activeElement);
    fill(body, h("section", { class: "card", "aria-labelledby": "heat" },
      h("header", {}, h("h2", { id: "heat" }, "The week"), h("p", {}, `${metric.words} by weekday and hour, in ${zoneWords()}.`),
        h("div", { class: "controls" },
          choice("Figure", Object.fromEntries(Object.entries(METRICS).map(([name, { words }]) => [name, words])), wanted.metric, (name) => changeHeat({ metric: name })),
          choice("Time", { "7d": "Week", "30d": "Month" }, wanted.window, (window) => changeHeat({ window })), copiesSql(value.sql))),
      h("div", { class: "inside" }, value.rows.length ? weeks(value.rows, metric) : h("p", { class: "soft" }, `Nothing in ${windowWords(wanted.window)}.`))));
    if (held) body.querySelector("[aria-pressed=true]")?.focus({ preventScroll: true });
  }

  /** The busiest deployments; the others when they are wanted. */
  function weeks(rows, metric) {
    const busy = (row) => row.cells.reduce((sum, cell) => sum + cell.n, 0);
    const ordered = [...rows].sort((one, other) => busy(other) - busy(one));
    const box = h("div", {}, heat(ordered.slice(0, WEEKS_AT_ONCE), metric));
    if (ordered.length > WEEKS_AT_ONCE) {
      const all = () => fill(box, heat(ordered, metric));
      box.append(h("button", { type: "button", onclick: all }, `Show all ${ordered.length}`));
    }
    return box;
  }

  function changeHeat(changes) {
    Object.assign(wanted, changes);
    filter({ metric: wanted.metric === "ttft_p50_ms" ? null : wanted.metric, heat: wanted.window === "7d" ? null : wanted.window });
    name();
    heats.again();
  }

  return {
    close() {
      kept.close();
      heats.close();
      for (const each of cards) each.close();
    },
  };
}

/** Marks along the lower edge: the share of the shown attempts that failed, and on top of it those that were limited. */
function drawMarks(u, { errors, limited }) {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio;
  const [red, amber] = [resolved("var(--bad)"), resolved("var(--warn)")];
  ctx.save();
  u.data[0].forEach((at, index) => {
    const x = u.valToPos(at, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    let y = bbox.top + bbox.height;
    for (const [value, colour] of [[errors[index], red], [limited[index], amber]]) {
      if (!value) continue;
      const size = Math.max(2, value * MARK_PX) * ratio;
      ctx.fillStyle = colour;
      ctx.fillRect(x - ratio, y - size, 2 * ratio, size);
      y -= size;
    }
  });
  ctx.restore();
}

/** The range of time that the address names, `to` by default now; nothing of one that is none. */
function askedRange(address) {
  const [from, to] = [Date.parse(address.get("from")), address.has("to") ? Date.parse(address.get("to")) : Date.now()];
  return from < to ? { from: new Date(from).toISOString(), to: new Date(to).toISOString() } : { from: null, to: null };
}

/** What is asked of the gateway: the range, or the window; the last hour is a range too, as ranges have finer steps. */
function when({ window, from, to }) {
  if (from !== null) return { from, to };
  return window === "1h" ? { from: new Date(Math.floor((Date.now() - HOUR_MS) / 60_000) * 60_000).toISOString() } : { window };
}

/** The shortest window that begins before the range does, else the longest. */
function covering({ window, from }) {
  if (from === null) return window;
  return Object.keys(SPANS).find((each) => Date.now() - SPANS[each] <= Date.parse(from)) ?? "30d";
}

/** `26 Nov 14:00 to 26 Nov 15:00`, in the viewer's zone. */
function rangeWords({ from, to }) {
  return [from, to].map((each) => new Date(each).toLocaleString([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", ...CLOCK })).join(" to ");
}

/** An instant as a field of a form has it: the viewer's clock. */
function local(ms) {
  const at = new Date(ms);
  return new Date(ms - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Whether there are attempts, and all of them are of the last hour. */
function isOfOneHour({ series, to: end }) {
  return series.length > 0 && Date.parse(end) / 1000 - begun(series) <= 3600;
}

/** When the first step with attempts began, in unix seconds. */
function begun(series) {
  return Math.min(...series.map((each) => each.t[each.n.findIndex((n) => n > 0)] ?? Infinity));
}

/** From when on attempts are shown, in unix seconds, if the window begins long before them; else null. */
function sinceFirst({ from, to: end, step_s: step, series }) {
  const since = Math.min(begun(series) - step, Date.parse(end) / 1000 - LEAST_STEPS * step);
  return since > Date.parse(from) / 1000 + step ? since : null;
}

/** Every step of the time shown, in unix seconds: a step in which nothing ran is a gap, not a line across. */
function grid({ from, to: end, step_s: step, series }, since) {
  const offset = series[0].t.length ? series[0].t[0] % step : 0;
  const last = Date.parse(end) / 1000;
  const first = Math.floor(((since ?? Date.parse(from) / 1000) - offset) / step) * step + offset;
  const steps = [];
  for (let at = first; at < last; at += step) steps.push(at);
  return steps;
}

/** `values` of the times `t`, laid upon the `steps` of a plot. */
function laid(steps, t, values) {
  const known = new Map(t.map((at, index) => [at, values[index] ?? null]));
  return steps.map((at) => known.get(at) ?? null);
}

/** The sum of a column over all series, by time. */
function sums(series, column) {
  const found = new Map();
  for (const each of series) each.t.forEach((at, index) => found.set(at, (found.get(at) ?? 0) + (each[column][index] ?? 0)));
  return found;
}

function troubles(t, series) {
  const [n, errors, limited] = ["n", "n_errors", "n_rate_limited"].map((column) => sums(series, column));
  const shares = (part) => t.map((at) => share(part.get(at), n.get(at)));
  return { errors: shares(errors), limited: shares(limited) };
}

function share(part, whole) {
  return whole ? (part ?? 0) / whole : null;
}

function times(ratio) {
  return `${ratio.toFixed(ratio < 10 ? 2 : 0)} ×`;
}

function short(quantile) {
  return quantile === "p99" ? "p95" : quantile;
}

function lasted({ from, to: end, may_last: lasts }) {
  return end || lasts ? ((end ? Date.parse(end) : Date.now()) - Date.parse(from)) / 1000 : null;
}

/** What can be chosen, with what is chosen already. */
function others(names, chosen) {
  return chosen && chosen !== "all" && !(names ?? []).includes(chosen) ? [...(names ?? []), chosen] : (names ?? []);
}
