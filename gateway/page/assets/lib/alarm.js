// The chips beside the navigation, whatever view is shown: how many alerts are open, and whether the database is away.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { counted } from "./format.js";
import { to } from "./route.js";

const EVERY_MS = 60_000;

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
  return stores?.database_ok === false ? h("span", { class: "chip bad" }, "database away") : null;
}
