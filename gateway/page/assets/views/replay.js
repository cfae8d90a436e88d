// What if: what other settings would have done with the calls of the past, a slider for the budget, and which one to take.

import { get } from "../lib/api.js";
import { fill, h, say } from "../lib/dom.js";
import { copies, selects, stats } from "../lib/figures.js";
import { count, counted, ms, percent, usd } from "../lib/format.js";
import { filter, to } from "../lib/route.js";
import { empty, watching } from "../lib/states.js";
import { behind, dataTable, table } from "../lib/table.js";
import { key, redraw } from "./parts/redraw.js";
import { scale } from "./parts/scale.js";
import { picture, point, strip, whisker } from "./parts/strips.js";
import { askedWindow, windowChoice, windowWords } from "./parts/windows.js";

const USUAL = "7d";
const AGAIN_MS = 15_000; // while there is not enough data: more may have come
const QUANTILES = ["p50", "p95", "p99"];

/** Show it in `root` until closed. */
export function view(root, params, session, address) {
  const asked = { window: askedWindow(address, USUAL), model: address.get("model"), without: address.get("without"), budget: null };
  const choices = h("div", { class: "controls" });
  const windows = windowChoice(asked.window, (window) => change({ window }), USUAL);
  const place = h("div");
  fill(root, h("header", { class: "head" }, h("h1", {}, "What if"), h("div", { class: "controls" }, choices, windows)), place);
  let timer = null;
  let drawn = ""; // for which choices
  const kept = watching(place, load, (found, body) => {
    offer(found);
    const wanted = JSON.stringify([asked.window, asked.model, asked.without]);
    (wanted === drawn ? redraw : fill)(body, draw(found, asked)); // what comes again by itself leaves open what is open
    drawn = wanted;
    if (!found.data[0]?.is_enough) timer = setTimeout(kept.again, AGAIN_MS);
  }, { patience: "Replaying calls under each setting: that takes up to a minute." });

  offer({ models: asked.model ? [asked.model] : [], data: [] });

  function offer({ models, data: [one] }) {
    const chosen = asked.model ?? one?.model ?? null;
    const providers = [...new Set([...(one?.providers ?? []), ...(asked.without ? [asked.without] : [])])];
    redraw(choices,
      models.length > 1 ? keyed(selects("Model", models, chosen, (model) => change({ model, without: null }))) : null,
      providers.length > 1 || asked.without ? keyed(selects("Without", providers, asked.without, (without) => change({ without: without || null }), "No provider left out")) : null);
  }

  function change(changes) {
    Object.assign(asked, { budget: null }, changes);
    filter({ model: asked.model, without: asked.without });
    kept.again();
  }

  async function load(signal) {
    clearTimeout(timer);
    return get("replay", { window: asked.window, model: asked.model, without: asked.without }, { signal });
  }

  return {
    close() {
      clearTimeout(timer);
      kept.close();
    },
  };
}

/** A labelled select that keeps the focus. */
function keyed(field) {
  key(field.firstChild.textContent, field.querySelector("select"));
  return field;
}

function draw({ data: [one], note }, asked) {
  if (!one) return empty("Nothing to replay", sentence(note), h("a", { class: "button", href: to("playground") }, "Playground"));
  return [
    h("div", { class: "headline" },
      h("p", { class: "lead" }, one.recommended.setting ? `Take ${words(one.recommended.setting)}. ${one.recommended.why}` : one.recommended.why),
      h("p", { class: "soft" }, `From ${counted(one.replayed_calls, "call")}${one.replayed_calls < one.calls ? `, a sample of ${count(one.calls)},` : ""} in ${windowWords(asked.window)}${one.without.length ? `, as if ${one.without.join(" and ")} had not been there` : ""}.`),
      one.recommended.yaml ? key("yaml", h("details", {}, h("summary", {}, one.recommended.setting ? "The setting as YAML" : "How to have more audits, as YAML"), h("pre", {}, h("code", {}, one.recommended.yaml)), copies(one.recommended.yaml, "Copy YAML"))) : null),
    one.settings.length ? [slider(one, asked), pictures(one)] : null,
    audits(one),
    h("section", { class: "card", "aria-labelledby": "assumed" },
      h("header", {}, h("h2", { id: "assumed" }, "What this assumes")),
      h("div", { class: "inside" }, h("ul", { class: "prose soft" }, one.assumptions.map((each) => h("li", {}, each))))),
  ];
}

/** All budgets are there at once, so the slider asks nobody. */
function slider(one, asked) {
  const steps = one.settings.filter((each) => each.setting === "single" || each.setting.startsWith("budget "));
  const taken = one.settings.find((each) => each.setting === (asked.budget ?? one.recommended.setting))?.attempts ?? 1;
  const at = steps.reduce((best, each, index) => (Math.abs(each.attempts - taken) < Math.abs(steps[best].attempts - taken) ? index : best), 0);
  const place = h("div", { "aria-live": "polite" });
  const told = h("output", { for: "budget" });
  const input = h("input", { type: "range", id: "budget", min: "0", max: String(steps.length - 1), step: "1", value: String(at), "data-key": "budget", oninput: () => {
    asked.budget = steps[Number(input.value)].setting;
    show();
  } });
  show();
  return h("section", { class: "card", "aria-labelledby": "budgets" },
    h("header", {}, h("h2", { id: "budgets" }, "Budget for second attempts")),
    h("div", { class: "inside" },
      h("label", { class: "budget", for: "budget" }, "race.budget", input, told), place));

  function show() {
    const each = steps[Number(input.value)];
    say(told, each.setting === "single" ? "0: one attempt" : each.setting.replace("budget ", ""));
    input.setAttribute("aria-valuetext", told.textContent);
    fill(place, stats(
      ["First token, p50", ms(each.ttft.p50.value), interval(each.ttft.p50)],
      ["p95", ms(each.ttft.p95.value), interval(each.ttft.p95)],
      ["p99", ms(each.ttft.p99.value), interval(each.ttft.p99)],
      ["Whole answer, p95", ms(each.total.p95.value), interval(each.total.p95)],
      ["Attempts per call", each.attempts.toFixed(2), `${count(Math.round(each.prompt_tokens))} prompt tokens`],
      ["1,000 calls cost", known(each.cost_low_usd) ? usd(1000 * each.cost_low_usd) : "–", known(each.cost_low_usd) ? `at most ${usd(1000 * each.cost_high_usd)}` : "no price is known"],
    ));
  }
}

function pictures(one) {
  const shown = one.settings.filter((each) => known(each.ttft.p50.value));
  return h("section", { class: "card", "aria-labelledby": "settings" },
    h("header", {}, h("h2", { id: "settings" }, "All settings")),
    h("div", { class: "inside" },
      h("div", { class: "pictures" }, ["p50", "p95"].map((q) => quantile(q, shown))),
      key("data", behind(() => figures(one.settings)))));
}

function quantile(q, rows) {
  const drawn = rows.filter((each) => known(each.ttft[q].value));
  if (!drawn.length) return h("figure", {}, h("figcaption", {}, `First token, ${q}`), h("p", { class: "soft" }, "Not known: too few audits."));
  const axis = scale(0, Math.max(...drawn.map((each) => each.ttft[q].high ?? each.ttft[q].value)) * 1.04, 3);
  return picture(`First token, ${q}, with its interval`, axis, ms, drawn.map((each) => row(each, each.ttft[q], axis)), "whatif");
}

function row({ setting }, { value, low, high }, axis) {
  const [from, upto] = [low ?? value, high ?? axis.high];
  return strip(setting, [whisker(from, upto, axis), point(value, axis)], axis,
    [h("span", {}, ms(value)), " ", known(low) ? h("span", {}, `± ${ms((upto - from) / 2)}`) : null]);
}

function audits(one) {
  const short = one.audits.filter((each) => each.more > 0);
  if (!short.length) return null;
  const lines = table([
    { title: "Deployment", cell: (each) => each.deployment, head: true },
    { title: "Audited losers", cell: (each) => count(each.audits), right: true, wide: true },
    { title: "More needed", cell: (each) => count(each.more), right: true, wide: true },
    { title: "At the present rate", cell: (each) => (each.more === 0 ? "enough" : days(each.days)), right: true, wide: true },
  ], { caption: "Audits of each deployment", stacks: true });
  lines.update(one.audits);
  return h("section", { class: "card", "aria-labelledby": "audits" },
    h("header", {}, h("h2", { id: "audits" }, "Audited losers")),
    lines.element);
}

function figures(rows) {
  const columns = [
    ["Setting", (each) => each.setting],
    ["Attempts per call", (each) => each.attempts.toFixed(2)],
    ...QUANTILES.map((q) => [`First token, ${q}`, (each) => told(each.ttft[q])]),
    ["Off p95 of single", (each) => (each.setting === "single" ? "–" : told(each.saved_p95_ms))],
    ...QUANTILES.map((q) => [`Whole answer, ${q}`, (each) => told(each.total[q])]),
    ["Prompt tokens", (each) => count(Math.round(each.prompt_tokens))],
    ["1,000 calls cost", cost],
    ["Failed", (each) => percent(each.failed_share)],
  ];
  return dataTable("What other settings would have done", columns.map(([title]) => title), rows.map((each) => columns.map(([, cell]) => cell(each))));
}

function told(figure) {
  return known(figure.value) ? `${ms(figure.value)} (${interval(figure)})` : "–";
}

function interval({ low, high }) {
  if (!known(low)) return "";
  return known(high) ? `${ms(low)} to ${ms(high)}` : `at least ${ms(low)}`;
}

function cost({ cost_low_usd: low, cost_high_usd: high }) {
  return known(low) ? `${usd(1000 * low)} to ${usd(1000 * high)}` : "–";
}

function days(value) {
  if (!known(value)) return "not known: none was audited";
  return value < 2 ? counted(Math.max(1, Math.round(value * 24)), "hour") : counted(Math.round(value), "day");
}

function words(setting) {
  return setting.startsWith("budget ") ? `a ${setting.replace(" ", " of ")}` : setting === "single" ? "one attempt per call" : `a ${setting}`;
}

function sentence(note) {
  return note ? `${note.charAt(0).toUpperCase()}${note.slice(1)}.` : "Send some calls, or take a longer time.";
}

function known(value) {
  return value !== null && value !== undefined;
}
