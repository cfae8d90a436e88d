// What racing saved per call, and how sure that is: for the view of racing's worth, and for Live.

import { count, counted, ms } from "../../lib/format.js";

const FEWEST = 30; // calls: of fewer no figure is told (docs/sql.md, race_value)
const FEWEST_AUDITS = 30; // of overtaken calls, for quantiles of what these would have taken
const LITTLE = 0.1; // extra attempts a call, which are enough where rivals gain nothing

/** Whether a row's calls are of a kind that is raced: embeddings are not, and more of them tell nothing. */
export function isRaced(row) {
  return row.n_compared > 0 || row.n_raced > 0;
}

/** Rows of api/race-value that have an interval, the busiest first, and those with raced calls that have none yet. */
export function parted(rows) {
  const called = rows.filter((each) => each.n > 0 && isRaced(each)).sort((a, b) => b.n - a.n);
  const sure = called.filter((each) => known(each.saved_low_ms) && known(each.saved_high_ms) && each.n_compared >= FEWEST);
  return { sure, unsure: called.filter((each) => !sure.includes(each)) };
}

/** How many calls more are needed, in words. */
export function soFar(row) {
  if (isFew(row)) return `too few calls, about ${count(row.n_more ?? Math.max(1, FEWEST - (row.n_compared ?? 0)))} more`;
  if (known(row.n_more)) return `not yet, about ${counted(row.n_more, "call")} more`;
  return "not yet, no loser was audited";
}

/** Whether its calls are too few for any figure: one call, or a dozen, say nothing of the next. */
export function isFew(row) {
  return (row.n_compared ?? 0) < FEWEST;
}

/** What is known of a row that has calls enough, but no interval: the estimate, and of how many audits it is. */
export function foretold(row) {
  return !isFew(row) && known(row.saved_per_call_ms) ? `about ${signed(row.saved_per_call_ms)}, estimated of ${counted(row.n_audited ?? 0, "audit")}; ` : "";
}

/** Why a row has no quantiles without racing. */
export function noQuantiles(row) {
  return isFew(row) ? `too few calls, ${count(row.n_compared ?? 0)} of ${FEWEST}` : `too few audits, ${count(row.n_audited ?? 0)} of ${FEWEST_AUDITS}`;
}

/** Milliseconds saved per call, of a row that has an interval: `{ low, mid, high }`. */
export function perCall(row) {
  return { low: row.saved_low_ms / row.n_compared, mid: row.saved_ms / row.n_compared, high: row.saved_high_ms / row.n_compared };
}

/** Whether a row with an interval says that racing is not worth its price: by more than chance, as the database says it. */
export function isNothing(row) {
  return row.verdict === "nothing worth its price";
}

/** That in words, with what would have been enough. */
export function nothing(row) {
  return `nothing worth its price here: at most ${ms(Math.max(0, perCall(row).high))} a call${row.extra_per_call > LITTLE ? `. Budget ${LITTLE} would have done` : ""}`;
}

/** Dollars of all attempts, and of those that racing added; null where no price is known. */
export function spent(rows) {
  const sum = (column) => (rows.some((each) => known(each[column])) ? total(rows, column) : null);
  return { all: sum("cost_usd"), added: sum("duplicate_cost_usd") };
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
