// What is told whatever view is shown: how many alerts are open, in the menu and in the page's title; and chips that say
// whether the database, or its replica that reports read, is away or behind, and whether this replica's clock is off.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { counted } from "./format.js";

const ALERTS_EVERY_MS = 15_000;
const EVERY_MS = 60_000;
const SHOWN_S = 5; // sums are up to two seconds old anyway
let title = [];
let open = 0;

/** The chips, kept up to date while they are on the page, with the count. `session` is what is known at first. */
export function alarms(session) {
  const [alerts, database] = [h("span", { hidden: true }), h("span", {}, away(session))];
  setTimeout(() => keep(alerts, "alerts", (found) => counting(found.open.length), ALERTS_EVERY_MS)); // when they are on the page
  setTimeout(() => keep(database, "session", away, EVERY_MS), EVERY_MS);
  return h("div", { class: "controls" }, alerts, database);
}

/** Show how many alerts are open. */
export function counting(number) {
  open = number;
  for (const link of document.querySelectorAll("#navigation a[data-entry=alerts]")) {
    link.querySelector(".count")?.remove();
    if (open) link.append(h("span", { class: "count", title: `${counted(open, "alert")} open` }, String(open)));
  }
  const menu = document.getElementById("menu");
  if (open) menu.dataset.alerts = String(open);
  else delete menu.dataset.alerts;
  entitle(...title);
}

/** Name what is shown in the page's title, after the number of open alerts; names that are not known are left out. */
export function entitle(...names) {
  title = names.filter(Boolean);
  document.title = `${open ? `(${open}) ` : ""}${[...title, "Holeshot"].join(" · ")}`;
}

async function keep(place, path, chip, everyMs) {
  if (!place.isConnected) return;
  try {
    fill(place, chip(await get(path)));
  } catch {
    // the views say that the gateway is away
  }
  setTimeout(() => keep(place, path, chip, everyMs), everyMs);
}

function away({ stores }) {
  if (stores?.database_ok === false) return h("span", { class: "chip bad" }, "database away");
  if (stores?.clock_off_s) return h("span", { class: "chip bad", title: "This replica's clock and the database's: set them by NTP" }, `clock ${Math.round(stores.clock_off_s)} s off`);
  if (!stores?.replica) return null;
  const { connected, lag_s: lag } = stores.replica;
  if (!connected) return h("span", { class: "chip bad" }, "replica away");
  return lag >= SHOWN_S ? h("span", { class: "chip", title: "How far the replica is behind that reports read" }, `${Math.round(lag)} s behind`) : null;
}
