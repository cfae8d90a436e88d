// What racing saved: the time, with intervals, and the least and the most that it cost.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copiesSql } from "../lib/figures.js";
import { count, counted, ms, percent, usd } from "../lib/format.js";
import { to } from "../lib/route.js";
import { empty, watching } from "../lib/states.js";
import { behind, dataTable } from "../lib/table.js";
import { key, redraw } from "./parts/redraw.js";
import { bounds, foretold, isFew, isNothing, isRaced, known, noQuantiles, nothing, parted, perCall, signed, soFar, total } from "./parts/saving.js";
import { scale } from "./parts/scale.js";
import { picture, point, strip, whisker } from "./parts/strips.js";
import { askedWindow, windowChoice, windowWords } from "./parts/windows.js";

const EVERY_MS = 30_000;

const QUANTILES = ["p50", "p95", "p99"];
const MOST_LEADS = 5; // models, the busiest first; all are in the pictures

/** Show it in `root` until closed. */
export function view(root, params, session, address) {
  let window = askedWindow(address);
  const place = h("div");
  fill(root, h("header", { class: "head" }, h("h1", {}, "What racing saved"), h("div", { class: "controls" }, windowChoice(window, change))), place);
  const kept = watching(place, load, (found, body) => redraw(body, draw(found)), { everyMs: EVERY_MS });

  function change(chosen) {
    window = chosen;
    kept.again();
  }

  async function load(signal) {
    const [models, clients] = await Promise.all(["model", "client"].map((by) => get("race-value", { window, by }, { signal })));
    return { window, models, clients };
  }

  return kept;
}

function draw({ window, models, clients }) {
  if (!models.data.some((each) => each.n > 0)) {
    return empty(`No calls in ${windowWords(window)}`, "Send some, or take a longer time.", h("a", { class: "button", href: to("playground") }, "Playground"));
  }
  const named = clients.data.filter((each) => each.n > 0);
  return [
    headline(models.data, window),
    cards("model", models.data.filter((each) => each.n > 0), models.sql),
    named.length > 1 || named[0]?.client
      ? [
        h("p", { class: "soft prose" }, "By client are the same calls once more, not others: do not add its figures to those by model. Nor do its rows add up to a model's: each is estimated from its own audits."),
        cards("client", named, clients.sql),
      ]
      : null,
    h("p", { class: "soft prose" }, "Without racing means: what the first choice alone would have taken. Where nobody overtook the first choice, racing saved nothing; where it was overtaken, a random share of the losers is not cancelled but audited, and the rest is estimated from these. Intervals are of 95 %, of what racing saves such calls. Costs are list prices; an attempt that was cancelled costs at least what was sent, at most the answer it might have been billed for."),
  ];
}

function headline(rows, window) {
  const { sure, unsure } = parted(rows);
  const raced = rows.reduce((sum, each) => sum + (each.n_raced ?? 0), 0);
  if (raced === 0) {
    return h("p", { class: "lead" }, `None of ${counted(total(rows, "n"), "call")} in ${windowWords(window)} had a second attempt, so racing saved and cost nothing. `,
      h("a", { href: to("leaderboard") }, "The leaderboard"), " says why.");
  }
  return [sure.slice(0, MOST_LEADS).map((row) => surely(row, rows.length > 1, window)), unsure.length ? unsurely(unsure, sure.length > 0) : null];
}

/** One model's worth: models are not added up, as one that gains nothing would hide behind another. */
function surely(row, isOneOfMany, window) {
  const { low, mid, high } = perCall(row);
  const cost = costs(row);
  const where = isOneOfMany ? `, for ${row.model}` : "";
  const isUnsure = low <= 0 && high >= 0 && mid !== 0;
  const first = isNothing(row)
    ? [`Racing saved ${nothing(row)}`]
    : isUnsure
      ? ["Racing saved nothing that can be told from chance: ", h("b", {}, `${signed(mid)} per call`), interval(low, high)]
      : [`Racing ${mid < 0 ? "lost" : "saved"} `, h("b", {}, `${ms(Math.abs(mid))} per call`), interval(low, high)];
  const money = cost === null ? ["at unknown prices"] : ["it cost ", h("b", {}, `${dollars(cost.low, cost.high)} more`)];
  const hours = isNothing(row) || isUnsure ? 0 : row.saved_ms / 3_600_000;
  return h("div", { class: "headline" }, h("p", { class: "lead" }, first, where, "; ", money, "."),
    h("p", { class: "soft" }, `${counted(row.n, "call")} in ${windowWords(window)}, ${percent(row.n_raced / row.n)} of them with a second attempt. `,
      hours > 0 ? `In all ${waiting(row.saved_ms)} of waiting` : "",
      hours > 0 && cost !== null && cost.high > 0 ? `, at ${dollars(cost.low / hours, cost.high / hours)} an hour.` : hours > 0 ? "." : ""));
}

function unsurely(rows, isMore) {
  const names = rows.map((each) => `${each.model} (${soFar(each)})`).join(", ");
  return h("p", { class: isMore ? "soft" : "lead" }, isMore ? "Not told of all: " : "What racing saved cannot be told yet: ", `${names}. `,
    "Where another overtook the first choice, a random share of the losers is audited: it runs on until its first token. More calls bring more of them.");
}

function cards(by, rows, sql) {
  const sorted = [...rows].sort((a, b) => b.n - a.n);
  const name = (each) => each[by] ?? "without a client";
  return h("section", { class: "card", "aria-labelledby": `worth-${by}` },
    h("header", {}, h("h2", { id: `worth-${by}` }, `By ${by}`), h("div", { class: "controls" }, sql ? key(`sql-${by}`, copiesSql(sql)) : null)),
    h("div", { class: "inside" },
      h("div", { class: "pictures" }, h("div", {}, savings(sorted, name), prices(sorted, name)), quantiles(sorted, name)),
      key(`data-${by}`, behind(() => figures(by, name, sorted)))));
}

/** With racing and without it, at p50, p95 and p99, on one axis. */
function quantiles(rows, name) {
  const raced = rows.filter(isRaced);
  const drawn = raced.filter((each) => QUANTILES.some((q) => known(each[`ttft_${q}_ms`]) && known(each[`alone_${q}_ms`])));
  if (!drawn.length) return h("figure", {}, h("figcaption", {}, "First token, with and without racing"), raced.map((each) => h("p", { class: "soft" }, raced.length > 1 ? `${name(each)}: ` : "", noQuantiles(each))));
  const axis = scale(0, Math.max(...drawn.flatMap((each) => QUANTILES.flatMap((q) => [each[`ttft_${q}_ms`] ?? 0, each[`alone_${q}_ms`] ?? 0, (each[`ttft_${q}_ms`] ?? 0) + (each[`saved_${q}_high_ms`] ?? 0)]))) * 1.04);
  return picture("First token with ● and without ○ racing, and what was saved", axis, ms, raced.map((each) => h("div", {}, h("h3", {}, name(each)),
    drawn.includes(each) ? QUANTILES.map((q) => pair(q, each, axis)) : h("p", { class: "soft" }, noQuantiles(each)))));
}

/** One quantile. Its interval is of what is estimated: without racing; the other end is seen. */
function pair(q, each, axis) {
  const [raced, alone, low, high] = [each[`ttft_${q}_ms`], each[`alone_${q}_ms`], each[`saved_${q}_low_ms`], each[`saved_${q}_high_ms`]];
  if (!known(raced) || !known(alone)) return null;
  const [from, to] = [Math.min(raced, alone), Math.max(raced, alone)];
  return strip(q, [
    known(low) && low !== high ? whisker(raced + low, known(high) ? raced + high : axis.high, axis) : null,
    h("i", { class: `span ${raced <= alone ? "good" : "bad"}`, style: { left: axis.at(from), width: `${(axis.share(to) - axis.share(from)) * 100}%` } }),
    point(alone, axis, true),
    point(raced, axis),
  ], axis, `${signed(alone - raced)}${interval(low, high)}`);
}

/** Saved per call, with its interval. */
function savings(rows, name) {
  const { sure } = parted(rows);
  const ends = sure.flatMap((each) => [each.saved_per_call_low_ms, each.saved_per_call_high_ms]);
  const axis = scale(Math.min(0, ...ends), Math.max(1, ...ends) * 1.04);
  return picture("Saved per call, with its interval", axis, ms, rows.map((each) => {
    const [low, mid, high] = [each.saved_per_call_low_ms, each.saved_per_call_ms, each.saved_per_call_high_ms];
    const isSure = sure.includes(each);
    return strip(name(each), isSure ? [whisker(low, high, axis), point(mid, axis)] : [], axis,
      isSure ? `${signed(mid)}${interval(low, high)}${isNothing(each) ? ", nothing worth its price" : ""}` : isRaced(each) ? `${foretold(each)}${soFar(each)}` : "not raced");
  }));
}

/** What racing added, at least and at most. */
function prices(rows, name) {
  const drawn = rows.filter((each) => known(each.duplicate_cost_usd) || known(each.duplicate_cost_high_usd));
  if (!drawn.length) return h("figure", {}, h("figcaption", {}, "Cost added, at least and at most"), h("p", { class: "soft" }, "Not known: no deployment has a price."));
  const axis = scale(0, Math.max(1e-6, ...drawn.map((each) => each.duplicate_cost_high_usd ?? each.duplicate_cost_usd)) * 1.04, 4);
  return picture("Cost added, at least and at most", axis, usd, drawn.map((each) => {
    const [low, high] = [each.duplicate_cost_low_usd ?? each.duplicate_cost_usd, each.duplicate_cost_high_usd ?? each.duplicate_cost_usd];
    return strip(name(each), [whisker(low, high, axis), known(each.duplicate_cost_usd) ? point(each.duplicate_cost_usd, axis) : null], axis,
      `${dollars(low, high)}${known(each.duplicate_cost_share) ? `, ${percent(each.duplicate_cost_share)} of all` : ""}`);
  }));
}

function figures(by, name, rows) {
  const columns = [
    [by === "model" ? "Model" : "Client", name],
    ["Calls", (each) => count(each.n)],
    ["With a second attempt", (each) => count(each.n_raced)],
    ["First choice overtaken", (each) => count(each.n_overtaken)],
    ["Rescued", (each) => count(each.n_rescued)],
    ["Verdict", (each) => (isRaced(each) ? (["not yet", "too few calls"].includes(each.verdict) ? soFar(each) : each.verdict) : null) ?? "–"],
    ["Basis", (each) => basis(each)],
    ["Saved per call", (each) => (known(each.saved_per_call_low_ms) ? signed(each.saved_per_call_ms) : isRaced(each) ? `${foretold(each)}${soFar(each)}` : "–")],
    ["Interval", (each) => (known(each.saved_per_call_low_ms) ? bounds(each.saved_per_call_low_ms, each.saved_per_call_high_ms) : "–")],
    ...QUANTILES.flatMap((q) => [
      [`${q} saved`, (each) => isRaced(each) && !known(each[`saved_${q}_ms`]) ? noQuantiles(each) : `${signed(each[`saved_${q}_ms`])}${interval(each[`saved_${q}_low_ms`], each[`saved_${q}_high_ms`])}`],
      [`${q} with`, (each) => isRaced(each) && isFew(each) ? "–" : ms(each[`ttft_${q}_ms`])],
      [`${q} without`, (each) => ms(each[`alone_${q}_ms`])],
    ]),
    ["Cost added", (each) => usd(each.duplicate_cost_usd)],
    ["Least – most", (each) => `${usd(each.duplicate_cost_low_usd)} – ${usd(each.duplicate_cost_high_usd)}`],
    ["Share of cost", (each) => percent(each.duplicate_cost_share)],
    ["Of it audits", (each) => usd(each.audit_cost_usd)],
  ];
  return dataTable(`What racing saved, by ${by}`, columns.map(([title]) => title), rows.map((each) => columns.map(([, cell]) => cell(each))));
}

function basis(each) {
  return { seen: "seen", audited: `${counted(each.n_audited, "audit")}`, curve: `predicted, ${counted(each.n_audited ?? 0, "audit")}` }[each.basis] ?? "–";
}

function costs(row) {
  const [low, high] = [row.duplicate_cost_low_usd, row.duplicate_cost_high_usd];
  return known(low) && known(high) ? { low, high } : null;
}

/** An interval in words; no end where audits are too few to tell one. */
function interval(low, high) {
  if (!known(low) || low === high) return "";
  return known(high) ? ` (${bounds(low, high)})` : ` (at least ${signed(low)})`;
}

/** From the least to the most, or one amount where both are written alike. */
function dollars(low, high) {
  return usd(low) === usd(high) ? usd(low) : `${usd(low)} to ${usd(high)}`;
}

function waiting(value) {
  if (value < 120_000) return ms(value);
  const hours = value / 3_600_000;
  return hours < 2 ? `${Math.round(value / 60_000)} minutes` : `${hours < 10 ? hours.toFixed(1) : count(hours)} hours`;
}
