// What is wrong now, what becomes an alert if it goes on, the outages of the last day, and past alerts, with their SQL.

import { counting } from "../lib/alarm.js";
import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copiesSql, named } from "../lib/figures.js";
import { counted, span, time } from "../lib/format.js";
import { empty, watching } from "../lib/states.js";
import { table } from "../lib/table.js";
import { outageWords } from "../lib/words.js";

const EVERY_MS = 15_000;
const KINDS = {
  burn_fast: "error budget, fast",
  burn_slow: "error budget, slow",
  model_out: "model out",
  deployment_out: "deployment out",
  spending: "spending",
  ledger_behind: "ledger behind",
  spool: "spool",
  ledger_unrecorded: "rows kept nowhere",
  sums: "sums stand still",
  worker_stopped: "worker stopped",
  slower: "slower",
  model_changed: "model changed",
  lengths_changed: "lengths changed",
};

const COLUMNS = [
  { title: "What", head: true, wraps: true, wide: true, cell: (each) => (each.resolved_at ? `Over; at its start: ${each.summary}` : each.summary) },
  { title: "Kind", sort: (each) => each.kind, cell: (each) => KINDS[each.kind] ?? each.kind },
  { title: "Severity", sort: (each) => each.severity, cell: severity, help: "page: look now; ticket: look today" },
  { title: "Opened", right: true, sort: (each) => each.opened_at, cell: (each) => time(each.opened_at) },
  { title: "Ended", right: true, sort: (each) => each.resolved_at, cell: (each) => (each.resolved_at ? time(each.resolved_at) : "open") },
  { title: "Messages", cell: (each) => messages(each) },
  { title: "Evidence", wide: true, cell: (each) => copiesSql(each.sql) },
];

const BUILDING = [
  { title: "What", head: true, wraps: true, wide: true, cell: (each) => h("span", {}, h("span", {}, builds(each)), h("span", { class: "reason" }, each.summary)) },
  { title: "Severity", cell: severity },
  { title: "Opens in", right: true, sort: (each) => each.opens_in_s, cell: (each) => span(each.opens_in_s) },
  { title: "Evidence", wide: true, cell: (each) => copiesSql(each.sql) },
];

const OUTAGES = [
  { title: "Deployment", head: true, wraps: true, cell: (each) => named(each.deployment) },
  { title: "Began", right: true, sort: (each) => each.from, cell: (each) => time(each.from) },
  { title: "Ended", right: true, sort: (each) => each.to, cell: (each) => (each.to ? time(each.to) : each.may_last ? h("span", { class: "chip bad" }, "still out") : "unknown") },
  { title: "Lasted", right: true, sort: lasted_s, cell: (each) => span(lasted_s(each)) },
  { title: "Reason", wraps: true, cell: (each) => outageWords(each.reason) },
  { title: "Seen by", cell: (each) => each.replicas.join(", ") },
];

/** Show them in `root` until closed. */
export function view(root) {
  const place = h("div");
  const sql = h("span");
  fill(root, h("header", { class: "head" }, h("h1", {}, "Alerts"), h("div", { class: "controls" }, sql)), place);
  const lasting = table(COLUMNS, { caption: "Open alerts", key: (each) => each.id, stacks: true });
  const past = table(COLUMNS, { caption: "Past alerts", key: (each) => each.id, stacks: true });
  const soon = table(BUILDING, { caption: "What becomes an alert", key: (each) => each.key, stacks: true });
  const outages = table(OUTAGES, { caption: "Outages, the newest first", key: (each) => `${each.deployment} ${each.from}`, stacks: true });
  const about = h("p");
  const older = h("div");
  const outs = h("div");
  const outsSql = h("div", { class: "controls" });
  const building = h("section", { class: "card", "aria-labelledby": "building" }, h("header", {}, h("h2", { id: "building" }, "Becomes an alert"),
    h("p", {}, "if it goes on")), soon.element);
  const cards = [
    building,
    h("section", { class: "card", "aria-labelledby": "lasting" }, h("header", {}, h("h2", { id: "lasting" }, "Open"), about), lasting.element),
    h("section", { class: "card", "aria-labelledby": "outages" }, h("header", {}, h("h2", { id: "outages" }, "Outages of the last day"),
      h("p", {}, "however short"), outsSql), outs),
    h("section", { class: "card", "aria-labelledby": "past" }, h("header", {}, h("h2", { id: "past" }, "Past")), older),
  ];
  return watching(place, (signal) => get("alerts", {}, { signal }), show, { everyMs: EVERY_MS });

  function show(found, body) {
    if (found.sql && sql.dataset.sql !== found.sql) fill(sql, copiesSql(found.sql));
    sql.dataset.sql = found.sql ?? "";
    const rows = new Map((found.data ?? []).map((each) => [each.id, each]));
    const open = found.open.map((each) => ({ ...each, ...rows.get(each.id) })).filter((each) => !each.resolved_at);
    const ended = [...rows.values()].filter((each) => each.resolved_at);
    counting(open.length);
    if (!open.length && !ended.length && !found.building.length && found.data && !found.outages.length) {
      fill(body, h("div", { class: "card" }, empty("Nothing was wrong", where(found))));
      return;
    }
    about.textContent = `${counted(open.length, "alert")}. ${where(found)}`;
    lasting.update(open);
    past.update(ended);
    building.hidden = !found.building.length;
    soon.update(found.building);
    outages.update(found.outages ?? []);
    if (found.outages_sql && outsSql.dataset.sql !== found.outages_sql) fill(outsSql, copiesSql(found.outages_sql));
    outsSql.dataset.sql = found.outages_sql ?? "";
    const known = !found.outages ? h("p", { class: "inside soft" }, "The database does not answer, so they are not known now.")
      : found.outages.length ? outages.element : h("p", { class: "inside soft" }, "No deployment was out.");
    if (outs.firstElementChild !== known) fill(outs, known);
    const kept = found.data ? past.element : h("p", { class: "inside soft" }, "The database does not answer, so the past is not known now.");
    if (older.firstElementChild !== kept) fill(older, kept);
    if (body.firstElementChild !== cards[0]) fill(body, cards);
  }
}

/** What builds up, and when it is an alert. */
function builds({ kind, subject, since, after_s: after }) {
  const held = span((Date.now() - Date.parse(since)) / 1000);
  const what = kind === "model_out" || kind === "deployment_out" ? `${subject} is out for ${held}` : `${KINDS[kind] ?? kind}: ${subject}, for ${held}`;
  return `${what}; an alert opens after ${span(after)}`;
}

function severity(each) {
  return h("span", { class: each.severity === "page" ? "chip bad" : "chip", title: each.severity === "page" ? "Look now" : "Look today" }, each.severity);
}

function lasted_s({ from, to, may_last: lasts }) {
  return to || lasts ? ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1000 : null;
}

function where(found) {
  if (!found.enabled) return "Alerts are off: set alerts.enabled in the configuration.";
  if (!found.webhooks.length) return "No webhook is configured, so alerts are only here and in the log.";
  return `Messages go to ${found.webhooks.join(", ")}.`;
}

function messages(each) {
  const counts = [[each.messages_sent, "sent"], [each.messages_waiting, "waiting"], [each.messages_given_up, "given up"]];
  return counts.filter(([n]) => n).map(([n, words]) => `${n} ${words}`).join(", ") || "none";
}
