// The windows of time that /api knows, and the choice of one.

import { choice } from "../../lib/figures.js";
import { filter } from "../../lib/route.js";

const USUAL = "24h";

/** [on a button, in a sentence]. */
const WINDOWS = { "1h": ["Hour", "the last hour"], "24h": ["Day", "the last 24 hours"], "7d": ["Week", "the last 7 days"], "30d": ["Month", "the last 30 days"] };

/** The window that the address asks for, else the usual one: the last day, if a view has no other. */
export function askedWindow(query, usual = USUAL) {
  return query.get("window") in WINDOWS ? query.get("window") : usual;
}

/** The choice of one; it is kept in the address, and then `changed(window)` hears of it. */
export function windowChoice(chosen, changed, usual = USUAL) {
  return choice("Time", Object.fromEntries(Object.entries(WINDOWS).map(([name, [words]]) => [name, words])), chosen, (window) => {
    filter({ window: window === usual ? null : window, from: null, to: null });
    changed(window);
  });
}

/** A window's word on its button: `Day`. */
export function windowTitle(name) {
  return WINDOWS[name][0];
}

/** A window's words for a sentence: `the last 24 hours`. */
export function windowWords(name) {
  return WINDOWS[name][1];
}
