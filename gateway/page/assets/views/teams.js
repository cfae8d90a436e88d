// Teams and their end users, and models with limits of their own: what each has used, and what is left.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copiesSql } from "../lib/figures.js";
import { count, counted, usd } from "../lib/format.js";
import { empty, watching } from "../lib/states.js";
import { table } from "../lib/table.js";
import { fullest, meters } from "./parts/limits.js";
import { key, redraw } from "./parts/redraw.js";
import { askedWindow, windowChoice, windowWords } from "./parts/windows.js";

const EVERY_MS = 15_000;

const COLUMNS = [
  { title: "End user", head: true, cell: (each) => h("span", {}, each.name ?? h("code", { title: "A keyed hash: the name is not stored" }, each.end_user), each.client === null ? null : h("small", { class: "soft" }, ` of ${each.client}`)) },
  { title: "Calls", right: true, cell: (each) => count(each.calls) },
  { title: "Failed", right: true, cell: (each) => count(each.failed) },
  { title: "Tokens", right: true, cell: (each) => count(tokens(each)) },
  { title: "Cost", right: true, cell: (each) => usd(each.cost_usd) },
  { title: "Fullest limit", right: true, cell: (each) => fullest(each.limits) },
];

/** Show them in `root` until closed. */
export function view(root, params, session, address) {
  let window = askedWindow(address);
  const sql = h("span");
  const place = h("div");
  fill(root, h("header", { class: "head" }, h("h1", {}, "Teams and models"), h("div", { class: "controls" }, windowChoice(window, change), sql)), place);
  const kept = watching(place, (signal) => get("teams", { window }, { signal }), show, { everyMs: EVERY_MS });

  function show(found, body) {
    if (found.sql && sql.dataset.sql !== found.sql) fill(sql, copiesSql(found.sql));
    sql.dataset.sql = found.sql ?? "";
    const cards = [...found.data.map((team, at) => card(team, `team-${at}`, window)), ...found.models.map((model, at) => ofModel(model, `model-${at}`))];
    redraw(body, cards.length ? cards
      : [empty("No teams", "Neither teams nor limits of end users or models are configured (teams:, end_users:, models:), or no call has named any.")]);
  }

  function change(chosen) {
    window = chosen;
    kept.again();
  }

  return kept;
}

function card(team, id, window) {
  return h("section", { class: "card client", "aria-labelledby": id },
    h("header", {}, h("h2", { id }, team.team ?? "Keys without a team"), team.configured || team.team === null ? null : h("span", { class: "chip" }, "not configured any more"), h("p", {}, about(team, window))),
    team.configured ? h("div", { class: "inside" }, meters(team.limits)) : null,
    team.dearest.length ? endUsers(team) : h("p", { class: "inside soft" }, "Its calls named no end users."));
}

function ofModel({ model, limits }, id) {
  return h("section", { class: "card client", "aria-labelledby": id },
    h("header", {}, h("h2", { id }, model), h("span", { class: "chip" }, "model"), h("p", {}, "Of all who call it")),
    h("div", { class: "inside" }, meters(limits)));
}

function about(team, window) {
  if (!team.calls) return `No calls in ${windowWords(window)}`;
  const said = [counted(team.calls, "call"), team.failed ? `${count(team.failed)} failed` : null, counted(tokens(team), "token"), team.cost_usd === null ? null : usd(team.cost_usd)];
  return `In ${windowWords(window)}: ${said.filter(Boolean).join(", ")}`;
}

function endUsers(team) {
  const all = team.end_users > team.dearest.length ? `The ${team.dearest.length} dearest of ${counted(team.end_users, "end user")}` : "End users";
  const shown = table(COLUMNS, { caption: `${all} of ${team.team ?? "keys without a team"}`, stacks: true });
  shown.update(team.dearest);
  return h("div", {}, h("p", { class: "inside soft" }, all), key(`end users of ${team.team}`, shown.element));
}

function tokens(each) {
  return (each.prompt_tokens ?? 0) + (each.completion_tokens ?? 0);
}
