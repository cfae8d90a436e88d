// A deployment's week: a table of weekdays and hours whose cells have the strength of their figure.

import { swatch } from "../../lib/figures.js";
import { fill, h } from "../../lib/dom.js";
import { counted } from "../../lib/format.js";

const DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY_NAMES = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const WEEK_MIN = 7 * 24 * 60;

/** The viewer's zone in words, with what it is from UTC at present: `Europe/Berlin (UTC+1)`. */
export function zoneWords(now = new Date()) {
  const offset = -now.getTimezoneOffset();
  const size = Math.abs(offset);
  const words = offset === 0 ? "UTC" : `UTC${offset < 0 ? "−" : "+"}${Math.floor(size / 60)}${size % 60 ? `:${String(size % 60).padStart(2, "0")}` : ""}`;
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return timeZone && timeZone !== words ? `${timeZone} (${words})` : words;
}

/**
 * Draw `rows` (as /api/heat has them, in UTC) in the viewer's zone, one table for each, all with one scale of colours.
 * `metric` is {format, isGoodHigh}.
 */
export function heat(rows, metric, offsetMin = -new Date().getTimezoneOffset()) {
  const values = rows.flatMap((row) => row.cells.map((cell) => cell.value)).filter(isKnown).sort((a, b) => a - b);
  const [low, high] = [quantile(values, 0.02), quantile(values, 0.98)]; // one odd hour does not take all colours
  const reading = h("p", { class: "reading soft", "aria-hidden": "true" }, " ");
  return h("div", { class: "heats" },
    h("p", { class: "ramp soft" }, metric.format(low), h("i", { "aria-hidden": "true" }), metric.format(high)),
    rows.map((row) => week(row, { ...metric, low, high }, offsetMin, reading)), reading);
}

function week(row, metric, offsetMin, reading) {
  const minute = ((offsetMin % 60) + 60) % 60; // zones of half an hour: each column begins at that minute
  const grid = Array.from({ length: 7 }, () => Array(24).fill(null));
  for (const cell of row.cells) {
    const at = (((cell.weekday * 24 + cell.hour) * 60 + offsetMin) % WEEK_MIN + WEEK_MIN) % WEEK_MIN;
    grid[Math.floor(at / 1440)][Math.floor((at % 1440) / 60)] = cell;
  }
  const hour = (value) => `${String(value).padStart(2, "0")}:${String(minute).padStart(2, "0")}`;
  const table = h("table", { class: "heat" }, h("caption", {}, swatch(row.deployment), row.deployment, h("span", { class: "soft" }, ` ${row.model}`)),
    h("thead", {}, h("tr", {}, h("td"), Array.from({ length: 24 }, (_, at) => h("th", { scope: "col" }, h("span", { class: at % 6 ? "unseen" : null }, hour(at)))))),
    h("tbody", {}, grid.map((cells, day) => h("tr", {}, h("th", { scope: "row" }, DAYS[day]), cells.map((cell, at) => square(cell, metric, `${DAY_NAMES[day]} ${hour(at)}`))))));
  table.addEventListener("pointerover", (event) => {
    const told = event.target.closest("td")?.title;
    if (told) fill(reading, `${row.deployment}, ${told}`);
  });
  return h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": `Week of ${row.deployment}` }, table);
}

function square(cell, { format, low, high }, when) {
  if (!cell || !isKnown(cell.value)) return h("td", { class: "none", title: `${when}: nothing` }, h("span", { class: "unseen" }, "nothing"));
  const share = high > low ? Math.min(1, Math.max(0, (cell.value - low) / (high - low))) : 0.5;
  return h("td", { title: `${when}: ${format(cell.value)}, ${counted(cell.n, "attempt")}`, style: { "--heat": share.toFixed(3) } }, h("span", { class: "unseen" }, format(cell.value)));
}

function quantile(sorted, share) {
  return sorted.length ? sorted[Math.round((sorted.length - 1) * share)] : null;
}

function isKnown(value) {
  return value !== null && value !== undefined;
}
