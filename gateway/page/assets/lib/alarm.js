// The chips beside the navigation, whatever view is shown: how many alerts are open, whether the database, or its
// replica that reports read, is away or behind, and whether this replica's clock is off.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { counted } from "./format.js";
import { to } from "./route.js";

const EVERY_MS = 60_000;
const SHOWN_S = 5; // sums are up to two seconds old anyway

/** The chips, kept up to date while they are on the page. `session` is what is known at first. */
export function alarms(session) {
  const [alerts, database] = [h("span"), h("span", {}, away(session))];
  setTimeout(() => keep(alerts, "alerts", opened)); // when they are on the page
  setTimeout(() => keep(database, "session", away), EVERY_MS);
  return h("div", { class: "controls" }, alerts, database);
}

async function keep(place, path, chip) {
  if (!place.isConnected) return;
  try {
    fill(place, chip(await get(path)));
  } catch {
    // the views say that the gateway is away
  }
  setTimeout(() => keep(place, path, chip), EVERY_MS);
}

function opened({ open }) {
  if (!open.length) return null;
  const now = open.some((each) => each.severity === "page");
  return h("a", { class: now ? "chip bad" : "chip", href: to("alerts") }, counted(open.length, "alert"));
}

function away({ stores }) {
  if (stores?.database_ok === false) return h("span", { class: "chip bad" }, "database away");
  if (stores?.clock_off_s) return h("span", { class: "chip bad", title: "This replica's clock and the database's: set them by NTP" }, `clock ${Math.round(stores.clock_off_s)} s off`);
  if (!stores?.replica) return null;
  const { connected, lag_s: lag } = stores.replica;
  if (!connected) return h("span", { class: "chip bad" }, "replica away");
  return lag >= SHOWN_S ? h("span", { class: "chip", title: "How far the replica is behind that reports read" }, `${Math.round(lag)} s behind`) : null;
}
