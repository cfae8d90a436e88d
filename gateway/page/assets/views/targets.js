// Targets: whether each is kept, what is left of its error budget, and how fast that is spent.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copies, copiesSql, figure, stats } from "../lib/figures.js";
import { count, percent } from "../lib/format.js";
import { empty, watching } from "../lib/states.js";
import { behind, dataTable } from "../lib/table.js";
import { key, redraw } from "./parts/redraw.js";

const EVERY_MS = 30_000;
const CAUSES = { failed: "failed", late: "began too late", slow: "too slow", halting: "too long a gap" };

/** Show them in `root` until closed. */
export function view(root) {
  const place = h("div");
  fill(root, h("header", { class: "head" }, h("h1", {}, "Targets")), place);
  return watching(place, (signal) => get("slo", {}, { signal }), (found, body) => redraw(body, draw(found.targets)), { everyMs: EVERY_MS });
}

function draw(targets) {
  if (!targets.length) {
    return h("div", { class: "card" }, empty("No targets yet", "Say in the configuration which share of calls is to be how fast, under slo: the example file has three."));
  }
  return [
    ...targets.map((target, at) => card(target, `target-${at}`)),
    h("p", { class: "soft prose" }, "What may be bad is the error budget. A burn of 1 spends it just within the target's days, a burn of 2 in half of them. Calls that were wrong themselves do not count, nor do clients that left sooner than the first token was due."),
  ];
}

function card(target, id) {
  return h("section", { class: "card", "aria-labelledby": id },
    h("header", {}, h("h2", { id }, target.name), state(target),
      h("p", {}, `${share(target.objective)} of ${target.subject === "all calls" ? target.subject : `the calls of ${target.subject}`} over ${target.days} days: ${target.condition}`),
      h("div", { class: "controls" },
        key(`sql-${target.name}`, copiesSql(target.sql)),
        target.bad ? key(`misses-${target.name}`, copies(target.misses_sql, "Copy SQL of bad calls")) : null)),
    h("div", { class: "inside" }, h("p", {}, target.verdict), target.calls ? [budget(target), causes(target)] : null,
      target.calls ? key(`burns-${target.name}`, behind(() => burns(target), "Burn rates")) : null));
}

function state({ budget_left: left }) {
  if (left === null) return h("span", { class: "chip" }, "no calls");
  if (left < 0) return h("span", { class: "chip bad" }, "missed");
  return left < 0.25 ? h("span", { class: "chip warn" }, "nearly missed") : h("span", { class: "chip good" }, "kept");
}

function budget(target) {
  const left = target.budget_left;
  const mood = left < 0.25 ? "warn" : "good";
  return h("div", {}, stats(
    ["Good", percentOf(target.good_share, target.objective), `${count(target.calls)} calls`],
    ["Error budget left", percent(Math.max(0, left)), left < 0 ? `${times(1 - left)} spent` : h("i", { class: `meter ${mood}`, "aria-hidden": "true" }, h("i", { style: { width: `${Math.min(1, Math.max(0, left)) * 100}%` } }))],
    ...target.burns.map((burn) => [`Burn, ${length(burn.window_s)}`, burn.burn_rate === null ? "–" : burn.burn_rate.toFixed(1), burn.calls ? `${count(burn.bad)} of ${count(burn.calls)} bad` : "no calls"]),
  ));
}

function causes(target) {
  const known = Object.entries(CAUSES).filter(([name]) => target[name] > 0);
  if (!known.length) return null;
  return h("p", { class: "soft" }, "Bad calls: ", known.map(([name, words], at) => [at ? ", " : "", figure(count(target[name])), ` ${words}`]), ". One may be several of these.");
}

function burns(target) {
  return dataTable(`Burn rates of ${target.name}`, ["In the last", "Calls", "Bad", "Burn rate", "SQL"],
    target.burns.map((each) => [length(each.window_s), count(each.calls), count(each.bad), each.burn_rate === null ? "–" : each.burn_rate.toFixed(2), copiesSql(each.sql)]));
}

/** A share with as many digits as keep it on its side of the objective and tell it from all: as the verdict has it. */
function percentOf(value, objective) {
  for (const digits of [1, 2, 3, 4, 5]) {
    const words = (100 * value).toFixed(digits);
    if (Number(words) >= 100 * objective === value >= objective && (Number(words) < 100 || value === 1)) return `${words} %`;
  }
  return `${100 * value} %`;
}

function times(factor) {
  return `${factor < 10 ? factor.toFixed(1) : count(factor)} times`;
}

function length(seconds) {
  return seconds % 86_400 === 0 ? `${seconds / 86_400} d` : `${seconds / 3600} h`;
}

function share(value) {
  return `${Number((100 * value).toPrecision(10))} %`;
}
