// The leaderboard: a model's deployments in the policy's order of preference, and who would run for the next call.

import { get } from "../lib/api.js";
import { colourOf } from "../lib/colours.js";
import { fill, h, say } from "../lib/dom.js";
import { copiesSql, figure, named, selects } from "../lib/figures.js";
import { count, counted, ms, NOTHING, percent, span, tps, usd } from "../lib/format.js";
import { axisHead, axisOf, range } from "../lib/range.js";
import { filter, to } from "../lib/route.js";
import { empty, watching } from "../lib/states.js";
import { table } from "../lib/table.js";
import { narrowedLine, stateKind, stateWords } from "../lib/words.js";

const EVERY_MS = 3000;
const REGIONS_EVERY_MS = 600_000; // it reads rows of calls, not sums
const PHONE = matchMedia("(max-width: 39.99rem)"); // as in style.css

/** Show it in `root` until closed. */
export function view(root, params, session, query) {
  let model = query.get("model") ?? "";
  const rest = h("p", { class: "soft" });
  const place = h("div");
  const regions = byRegion(model);
  const boards = new Map(); // model → board()
  fill(root,
    h("div", { class: "head" }, h("h1", {}, "Leaderboard"), h("p", {}, "Time to first token and speed, losers of races included"),
      session.models.length > 1 ? h("div", { class: "controls" }, selects("Model", session.models, model, choose, "All models")) : null),
    place, regions.place);
  const looking = watching(place, load, show, { everyMs: EVERY_MS, lines: 8 });
  const compared = watching(regions.place, (signal) => get("regions", { window: "1h" }, { signal }), regions.show, { everyMs: REGIONS_EVERY_MS, lines: 0 });

  function choose(next) {
    model = next;
    filter({ model });
    looking.again();
    regions.choose(model);
  }

  async function load(signal) {
    const wanted = { model: session.models.includes(model) ? model : "" };
    const [standings, plans] = await Promise.all([get("leaderboard", wanted, { signal }), get("explain", wanted, { signal })]);
    return { standings: standings.models, plans: new Map(plans.models.map((each) => [each.model, each])) };
  }

  function show({ standings, plans }, body) {
    if (!standings.length) {
      fill(body, empty("No model is configured", "Name models in the configuration file, or call provider/model directly."));
      return;
    }
    const quiet = model ? [] : silent(standings);
    const shown = standings.filter((each) => !quiet.includes(each)).map((each) => {
      if (!boards.has(each.model)) boards.set(each.model, board(each.model));
      const made = boards.get(each.model);
      made.update(each, plans.get(each.model));
      return made.element;
    });
    if (quiet.length) shown.push(unasked(quiet.map((each) => each.model)));
    if (shown.length !== body.children.length || shown.some((each, at) => each !== body.children[at])) fill(body, shown);
  }

  /** Links to the boards of models that are not shown; the same element, so that a focus in it stays. */
  function unasked(names) {
    if (rest.dataset.names !== names.join()) {
      rest.dataset.names = names.join();
      fill(rest, "Nothing measured yet: ", names.flatMap((name, at) => [at ? ", " : null, h("a", { href: to("leaderboard", [], { model: name }) }, name)]));
    }
    return rest;
  }

  return {
    close() {
      looking.close();
      compared.close();
    },
  };
}

/** Calls of the last hour by region, where replicas run in several; of one model, if one is chosen. */
function byRegion(model) {
  let known = [];
  const sql = h("div", { class: "controls" });
  const place = h("div", { class: "after" });
  const rows = table([
    { title: "Region", head: true, sort: (each) => each.region, cell: (each) => each.region ?? "not named" },
    { title: "Model", sort: (each) => each.model, cell: (each) => each.model },
    { title: "Calls", right: true, sort: (each) => each.n, cell: (each) => count(each.n) },
    { title: "First token p50", right: true, sort: (each) => each.ttft_p50_ms, cell: (each) => figure(ms(each.ttft_p50_ms)), help: "Half of the first tokens came sooner" },
    { title: "p95", right: true, sort: (each) => each.ttft_p95_ms, cell: (each) => figure(ms(each.ttft_p95_ms)), help: "19 of 20 first tokens came sooner" },
    { title: "Whole answer", right: true, sort: (each) => each.total_mean_ms, cell: (each) => figure(ms(each.total_mean_ms)), help: "The mean of calls without an error" },
    { title: "Failed", right: true, sort: (each) => each.n_failed / each.n, cell: (each) => figure(percent(each.n_failed / each.n)) },
    { title: "Extra attempts", right: true, sort: (each) => each.extra_per_call, cell: (each) => figure(percent(each.extra_per_call)), help: "Beside the first, by call" },
    { title: "Cost", right: true, sort: (each) => each.cost_usd, cell: (each) => usd(each.cost_usd) },
  ], { caption: "Calls by region", key: (each) => `${each.region} ${each.model}`, stacks: true, sorted: [2, "descending"] });
  const card = h("section", { class: "card", "aria-labelledby": "regions" },
    h("header", {}, h("h2", { id: "regions" }, "Regions"), h("p", {}, "Where calls of the last hour were served"), sql), rows.element);

  function choose(next) {
    model = next;
    const told = known.filter((each) => !model || each.model === model);
    card.hidden = new Set(told.map((each) => each.region)).size < 2;
    rows.update(told);
  }

  function show(found, body) {
    known = found.data;
    choose(model);
    if (!sql.hasChildNodes()) fill(sql, copiesSql(found.sql));
    if (card.parentElement !== body) fill(body, card);
  }

  return { place, show, choose };
}

/** Models of which neither a call nor a probe told anything, and that are well; if nothing was at all, all but the first. */
function silent(standings) {
  const quiet = standings.filter((each) => each.deployments.every((row) => row.state === "ok" && row.n + row.n_censored + row.n_rate_limited === 0
    && row.ttft_p50_ms === null && row.error_rate === null && row.probed_s_ago === null));
  return quiet.length < standings.length ? quiet : quiet.slice(1);
}

/** Whether there is something to tell of a deployment: calls, or that it is not well. */
function isTold(row) {
  return row.n + row.n_censored + row.n_rate_limited > 0 || row.state !== "ok";
}

/** One model: its table, the notes that its marks need, and the plan of its next call. */
function board(model) {
  let axis = null;
  const head = h("div", { class: "range-head" });
  const narrow = h("div", { class: "notes" });
  const notes = h("div", { class: "notes" });
  const next = h("div", { class: "next" });
  const summary = h("p");
  let isSpoken = false; // whether anybody was measured by first sentences
  let rows = figures();
  const element = h("section", { class: "card board", "aria-label": model }, h("header", {}, h("h2", {}, model), summary), narrow, rows.element, notes, next);

  function figures() {
    return table([
      { title: "Deployment", head: true, cell: name, help: "Numbered in the order in which the gateway would choose for the next call" },
      { title: "State", cell: state, wide: true },
      { title: head, cell: (row) => range(row, axis, colourOf(row.deployment)), label: "First token", wide: true },
      { title: "p50", right: true, cell: (row) => time(row, row.ttft_p50_ms), sort: (row) => row.ttft_p50_ms, help: "Half of the first tokens came sooner",
        under: sentence("Sentence", "sentence_p50_ms", "Half of the first sentences could be spoken sooner") },
      { title: "p95", right: true, cell: (row) => time(row, row.ttft_p95_ms), sort: (row) => row.ttft_p95_ms, help: "19 of 20 first tokens came sooner",
        under: sentence("Sentence", "sentence_p95_ms", "19 of 20 first sentences could be spoken sooner") },
      { title: "Speed", right: true, cell: speed, sort: (row) => (row.is_buffered ? row.e2e_mean_tps : row.decode_mean_tps), help: "Tokens a second after the first",
        under: { title: "Gaps", cell: gaps, sort: (row) => row.itl_p95_ms, help: "Time between pieces of the answer, p50 and p95 of 24 hours" } },
      { title: "Wins", right: true, cell: (row) => figure(percent(row.win_share)), sort: (row) => row.win_share, help: "Its share of the model's answered calls",
        under: { title: "Lost", cell: (row) => figure(percent(cutShare(row))), sort: cutShare, help: "Its attempts that were cancelled before their first token, as another one was first" } },
      { title: "Errors", right: true, cell: (row) => figure(percent(row.error_rate)), sort: (row) => row.error_rate,
        under: { title: "Flaws", cell: flaws, sort: (row) => row.flaw_rate, help: "Complete answers that were empty, cut short, refused, or broken JSON or tool calls" } },
      { title: "$/M prompt", right: true, cell: (row) => usd(row.price?.prompt), sort: (row) => row.price?.prompt, help: "Price of a million tokens of prompts",
        under: { title: "$/M answer", cell: (row) => usd(row.price?.completion), sort: (row) => row.price?.completion, help: "Price of a million tokens of answers" } },
      { title: "Headroom", right: true, cell: (row) => figure(percent(row.headroom)), sort: (row) => row.headroom, help: "The part of the provider's rate limit that is left",
        under: sentence("Silence", "silence_p95_ms", "The longest silence of a voice within an answer, in 19 of 20 shorter; of the last hour") },
    ], { caption: `Deployments of ${model}`, key: (row) => row.deployment, stacks: true, fingerprint: (row) => `${axis?.key}${JSON.stringify(row)}` });
  }

  /** The second figure of a column, where anybody has it. */
  function sentence(title, field, help) {
    return isSpoken ? { title, cell: (row) => time(row, row[field], row.is_sentence_biased), sort: (row) => row[field], help } : null;
  }

  function update({ window_s, deployments, narrowed }, plan) {
    axis = axisOf(deployments);
    if (isSpoken !== deployments.some((each) => each.sentence_p50_ms !== null || each.silence_p95_ms !== null)) {
      isSpoken = !isSpoken;
      const made = figures();
      rows.element.replaceWith(made.element);
      rows = made;
    }
    fill(head, h("span", {}, "First token"), axisHead(axis));
    const ranked = deployments.map((row, at) => ({ ...row, place: at + 1 }));
    const told = PHONE.matches ? ranked.filter(isTold) : ranked; // each is a card there
    const shown = told.length ? told : ranked;
    rows.update(shown);
    say(summary, `last ${span(window_s)} · ${counted(deployments.reduce((sum, each) => sum + each.n, 0), "attempt")}`);
    refill(narrow, narrowed ? [h("p", {}, narrowedLine({ model, narrowed }))] : []);
    const others = ranked.filter((each) => !shown.includes(each));
    refill(notes, [...legend(shown), others.length ? h("p", {}, `Without calls lately: ${others.map((each) => each.deployment).join(", ")}`) : null]);
    refill(next, plan ? planned(plan.explanation) : []);
  }

  return { element, update };
}

/** Replace what `place` holds only if it reads otherwise, so that a selection in it stays. */
function refill(place, children) {
  const made = h("div", {}, children);
  if (made.textContent !== place.textContent) fill(place, ...made.childNodes);
}

function state(row) {
  return h("span", {}, h("span", { class: `chip ${stateKind(row.state)}` }, stateWords(row.state)),
    row.n_rate_limited ? h("span", { class: "reason warn", title: "Rate-limited attempts" }, `${count(row.n_rate_limited)} × 429`) : null,
    row.reason ? h("span", { class: "reason" }, row.reason) : null,
    row.held.length ? h("span", { class: "reason", title: "Met by these clients alone: only their calls avoid it" }, row.held.join(" · ")) : null,
    row.refuses.length ? h("span", { class: "reason", title: "Left out or sent otherwise, after a refusal" }, `refuses ${row.refuses.join(", ")}`) : null);
}

function name(row) {
  return h("span", { class: "name" }, h("span", { class: "rank" }, count(row.place)), named(row.deployment));
}

function time(row, value, isBiased = row.is_biased) {
  return marked(ms(value), isBiased && value !== null, "?");
}

function marked(text, is, mark) {
  return h("span", {}, figure(text), is ? h("span", { class: "soft" }, mark) : null);
}

function speed(row) {
  return marked(tps(row.is_buffered ? row.e2e_mean_tps : row.decode_mean_tps), row.is_buffered, "*");
}

function gaps(row) {
  const { itl_p50_ms: p50 = null, itl_p95_ms: p95 = null } = row;
  return p50 === null ? NOTHING : h("span", {}, figure(ms(p50)), h("span", { class: "unit" }, " / "), figure(ms(p95)));
}

function cutShare(row) {
  const all = row.n + row.n_censored;
  return all ? row.n_censored / all : null;
}

function flaws(row) {
  if (row.flaw_rate === null) return NOTHING;
  return h("span", { title: `95 %: ${percent(row.flaw_low_rate)} to ${percent(row.flaw_high_rate)}, of ${counted(row.n_judged, "answer")}` }, figure(percent(row.flaw_rate)));
}

function legend(rows) {
  return [
    rows.some((row) => (row.is_biased && row.ttft_p50_ms !== null) || (row.is_sentence_biased && row.sentence_p50_ms !== null))
      ? h("p", {}, "? may be too high: attempts were cancelled before their first token, and too few of them were audited") : null,
    rows.some((row) => row.n_sentence) ? h("p", {}, "Of calls that a voice speaks, the first sentence counts as the first token") : null,
    rows.some((row) => row.is_buffered) ? h("p", {}, "* answers come all at once, from a buffer: the speed is of the whole answer") : null,
  ];
}

/** Who would run for the next call, and why, in words. */
function planned(plan) {
  const kind = `${counted(plan.prompt_tokens, "token")} in, about ${count(plan.answer_tokens)} out, streamed${plan.effort ? `, ${plan.effort} effort` : ""}`;
  const first = plan.spoken ? "first clause" : "first token";
  const others = plan.deployments.filter((each) => each.passed_over);
  return [
    h("div", { class: "who" },
      h("h3", {}, "The next call"),
      h("p", { class: "soft" }, `${kind} · mode ${plan.mode}, objective ${plan.objective.replace("_", " ")}${aims(plan)} · ${plan.hold ? `a ${first} may wait for a faster answer` : `the ${first} wins at once`}`),
      plan.launches.length
        ? h("ol", {}, plan.launches.map((each, at) => h("li", {}, h("span", { class: "when" }, when(each, at)), h("span", {}, named(each.deployment), h("span", { class: "why" }, each.why)))))
        : h("p", { class: "bad" }, plan.retry_after_s === null ? "None runs: no deployment can answer." : `None runs: try again in ${span(plan.retry_after_s)}.`),
      plan.fallback ? h("p", { class: "soft" }, `Late after ${ms(plan.late_s * 1000)}: then model ${plan.fallback} is asked beside it.`) : null,
      plan.rest.length ? h("p", { class: "soft" }, `If all of these fail: ${plan.rest.join(", then ")}.`) : null),
    h("div", { class: "who" },
      h("h3", {}, "What bounds it"),
      h("ul", {},
        h("li", {}, `${counted(plan.budget, "extra attempt")} a call on average; ${plan.budget_tokens} saved up.`),
        plan.extra_usd_per_call === null ? null : h("li", {}, `${usd(plan.extra_usd_per_call)} a call for extra attempts; ${usd(plan.budget_usd)} saved up.`),
        plan.cost_alone_usd === null ? null : h("li", {}, `It costs about ${usd(plan.cost_alone_usd)} with the first alone, at most ${usd(plan.cost_expected_usd)} as planned.`),
        others.map((each) => h("li", {}, `${each.deployment} comes last: ${each.passed_over}.`)),
        Object.entries(plan.excluded).map(([name, why]) => h("li", {}, `${name} is not asked: ${why}.`)),
        plan.notes.map((each) => h("li", {}, each)))),
  ];
}

function aims({ ttft_ms: ttft, min_tok_s: least }) {
  return `${ttft === null ? "" : ` · first token within ${ms(ttft)}`}${least === null ? "" : ` · at least ${least} tok/s`}`;
}

function when({ delay_s: delay }, at) {
  if (delay === 0) return at === 0 ? "At once" : "Beside it";
  return `After ${ms(delay * 1000)}`;
}
