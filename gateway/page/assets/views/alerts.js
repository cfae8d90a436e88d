// What is wrong now, and what was, with the SQL that shows it.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copiesSql } from "../lib/figures.js";
import { counted, time } from "../lib/format.js";
import { empty, watching } from "../lib/states.js";
import { table } from "../lib/table.js";

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
  worker_stopped: "worker stopped",
  slower: "slower",
  model_changed: "model changed",
};

const COLUMNS = [
  { title: "What", head: true, wraps: true, wide: true, cell: (each) => each.summary },
  { title: "Kind", sort: (each) => each.kind, cell: (each) => KINDS[each.kind] ?? each.kind },
  { title: "Look", sort: (each) => each.severity, cell: (each) => (each.severity === "page" ? h("span", { class: "chip bad" }, "now") : "today") },
  { title: "Opened", right: true, sort: (each) => each.opened_at, cell: (each) => time(each.opened_at) },
  { title: "Ended", right: true, sort: (each) => each.resolved_at, cell: (each) => (each.resolved_at ? time(each.resolved_at) : "open") },
  { title: "Messages", cell: (each) => messages(each) },
  { title: "Evidence", cell: (each) => copiesSql(each.sql) },
];

/** Show them in `root` until closed. */
export function view(root) {
  const place = h("div");
  const sql = h("span");
  fill(root, h("header", { class: "head" }, h("h1", {}, "Alerts"), h("div", { class: "controls" }, sql)), place);
  const lasting = table(COLUMNS, { caption: "Open alerts", key: (each) => each.id, stacks: true });
  const past = table(COLUMNS, { caption: "Past alerts", key: (each) => each.id, stacks: true });
  const about = h("p");
  const older = h("div");
  const cards = [
    h("section", { class: "card", "aria-labelledby": "lasting" }, h("header", {}, h("h2", { id: "lasting" }, "Open"), about), lasting.element),
    h("section", { class: "card", "aria-labelledby": "past" }, h("header", {}, h("h2", { id: "past" }, "Past")), older),
  ];
  return watching(place, (signal) => get("alerts", {}, { signal }), show, { everyMs: EVERY_MS });

  function show(found, body) {
    if (found.sql && sql.dataset.sql !== found.sql) fill(sql, copiesSql(found.sql));
    sql.dataset.sql = found.sql ?? "";
    const rows = new Map((found.data ?? []).map((each) => [each.id, each]));
    const open = found.open.map((each) => ({ ...each, ...rows.get(each.id) })).filter((each) => !each.resolved_at);
    const ended = [...rows.values()].filter((each) => each.resolved_at);
    if (!open.length && !ended.length && found.data) {
      fill(body, h("div", { class: "card" }, empty("Nothing was wrong", where(found))));
      return;
    }
    about.textContent = `${counted(open.length, "alert")}. ${where(found)}`;
    lasting.update(open);
    past.update(ended);
    const kept = found.data ? past.element : h("p", { class: "inside soft" }, "The database does not answer, so the past is not known now.");
    if (older.firstElementChild !== kept) fill(older, kept);
    if (body.firstElementChild !== cards[0]) fill(body, cards);
  }
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
