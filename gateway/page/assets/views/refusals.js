// What the gateway refused: by client and reason, and keys that somebody guessed, by address.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { copiesSql } from "../lib/figures.js";
import { NOTHING, count, counted, time } from "../lib/format.js";
import { empty, watching } from "../lib/states.js";
import { table } from "../lib/table.js";
import { refusalWords } from "../lib/words.js";
import { askedWindow, windowChoice, windowWords } from "./parts/windows.js";

const EVERY_MS = 15_000;

const GUESSES = [
  { title: "Address", head: true, cell: (each) => each.address ?? "not kept" },
  { title: "Wrong keys", right: true, sort: (each) => each.n, cell: (each) => count(each.n) },
  { title: "In minutes", right: true, sort: (each) => each.n_minutes, cell: (each) => count(each.n_minutes) },
  { title: "Most in a minute", right: true, sort: (each) => each.peak_per_minute, cell: (each) => count(each.peak_per_minute) },
  { title: "First", right: true, sort: (each) => each.first_seen_at, cell: (each) => time(each.first_seen_at) },
  { title: "Last", right: true, sort: (each) => each.last_seen_at, cell: (each) => time(each.last_seen_at) },
];

/** Show them in `root` until closed. */
export function view(root, params, session, address) {
  let window = askedWindow(address);
  let most = 1;
  const copy = h("div", { class: "controls" }, windowChoice(window, change));
  const sql = h("span");
  copy.append(sql);
  const place = h("div");
  fill(root, h("header", { class: "head" }, h("h1", {}, "Refusals"), copy), place);

  const refused = table([
    { title: "Why", head: true, sort: (each) => each.reason, cell: (each) => refusalWords(each.reason) },
    { title: "Client", sort: (each) => each.client, cell: (each) => each.client ?? "unknown" },
    { title: "Model", help: "The one that was asked for, where its name is the reason", sort: (each) => each.model, cell: (each) => each.model ?? NOTHING },
    { title: "Requests", right: true, sort: (each) => each.n, cell: (each) => metered(each.n, most) },
    { title: "Status", right: true, sort: (each) => each.status_code, cell: (each) => each.status_code },
    { title: "Addresses", right: true, help: "At least so many", sort: (each) => each.n_addresses, cell: (each) => count(each.n_addresses) },
    { title: "First", right: true, sort: (each) => each.first_seen_at, cell: (each) => time(each.first_seen_at) },
    { title: "Last", right: true, sort: (each) => each.last_seen_at, cell: (each) => time(each.last_seen_at) },
  ], { caption: "Refused requests by client, reason and model", key: (each) => `${each.client} ${each.status_code} ${each.reason} ${each.model}`, stacks: true, sorted: [3, "descending"], fingerprint: (each) => JSON.stringify([each, most]) });
  const guesses = table(GUESSES, { caption: "Wrong keys by address", key: (each) => `${each.address}`, stacks: true, sorted: [1, "descending"] });
  const all = h("p");
  const guessed = h("div");
  const cards = [
    h("section", { class: "card", "aria-labelledby": "refused" }, h("header", {}, h("h2", { id: "refused" }, "Refused requests"), all), refused.element),
    h("section", { class: "card", "aria-labelledby": "guessed" }, h("header", {}, h("h2", { id: "guessed" }, "Keys that no client has"),
      h("p", {}, "One address, minute after minute, is guessing; a few are an old key. Beyond five a minute the answers are delayed.")), guessed),
  ];
  const kept = watching(place, (signal) => get("refusals", { window }, { signal }), show, { everyMs: EVERY_MS });

  function show(found, body) {
    if (sql.dataset.sql !== found.sql) fill(sql, copiesSql(found.sql));
    sql.dataset.sql = found.sql;
    if (!found.data.length && !found.wrong_keys.length) {
      fill(body, h("div", { class: "card" }, empty(`Nothing was refused in ${windowWords(window)}`,
        "Requests without a valid key, beyond a limit or malformed are counted here. A call that failed at its providers is no refusal: it is among the calls.")));
      return;
    }
    most = Math.max(...found.data.map((each) => each.n));
    all.textContent = `${counted(found.data.reduce((sum, each) => sum + each.n, 0), "request")} in ${windowWords(window)}. They are no calls, and reached no provider.`;
    refused.update(found.data);
    guesses.update(found.wrong_keys);
    const isGuessed = found.wrong_keys.length > 0;
    if (isGuessed !== guessed.contains(guesses.element) || !guessed.hasChildNodes()) fill(guessed, isGuessed ? guesses.element : h("p", { class: "inside soft" }, "None was tried."));
    if (body.firstElementChild !== cards[0]) fill(body, cards);
  }

  function change(chosen) {
    window = chosen;
    kept.again();
  }

  return kept;
}

function metered(n, most) {
  return h("span", { class: "metered" }, h("i", { class: "meter", "aria-hidden": "true" }, h("i", { style: { width: `${(n / most) * 100}%` } })), count(n));
}
