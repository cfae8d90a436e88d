// What racing saved per call, and how sure that is: for the view of racing's worth, and for Live.

import { ms } from "../../lib/format.js";

export const FEWEST = 30; // audits, or calls of which all was seen: of fewer no figure is told (docs/sql.md, race_value)

/** Whether a row's calls are of a kind that is raced: embeddings are not, and more of them tell nothing. */
export function isRaced(row) {
  return row.n_compared > 0 || row.calls_with_extra > 0;
}

/** Rows of api/race-value that have an interval, and those with raced calls that have none yet. */
export function parted(rows) {
  const called = rows.filter((each) => each.calls > 0 && isRaced(each));
  const sure = called.filter((each) => known(each.saved_low_ms) && known(each.saved_high_ms) && enough(each) >= FEWEST);
  return { sure, unsure: called.filter((each) => !sure.includes(each)) };
}

/** On how much a row's figure rests: audits, or calls where nothing had to be estimated. */
export function enough(row) {
  return (row.basis === "seen" ? row.n_compared : row.n_audits) ?? 0;
}

/** How much is there of what is needed, in words: `14 of 30 audits`. */
export function soFar(row) {
  return `${enough(row)} of ${FEWEST} ${row.basis === "seen" ? "calls" : "audits"}`;
}

/**
 * Milliseconds saved per call, over rows that have an interval: `{ low, mid, high, saved_ms }`. Errors of models are
 * independent, so they add as squares.
 */
export function perCall(rows) {
  const calls = total(rows, "n_compared");
  const saved_ms = total(rows, "saved_ms");
  const below = Math.hypot(...rows.map((each) => each.saved_ms - each.saved_low_ms));
  const above = Math.hypot(...rows.map((each) => each.saved_high_ms - each.saved_ms));
  return { low: (saved_ms - below) / calls, mid: saved_ms / calls, high: (saved_ms + above) / calls, saved_ms };
}

export function total(rows, column) {
  return rows.reduce((sum, each) => sum + (each[column] ?? 0), 0);
}

export function known(value) {
  return value !== null && value !== undefined;
}

/** Milliseconds with a true minus sign. */
export function signed(value) {
  return value < 0 ? `−${ms(-value)}` : ms(value);
}

/** An interval: `180 ms to 250 ms`. */
export function bounds(low, high) {
  return low < 0 ? `${signed(low)} to ${signed(high)}` : `${ms(low)} to ${ms(high)}`;
}
