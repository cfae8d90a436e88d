// The picture of a deployment's times: p50 and p95 with their 95 % intervals, on an axis that a model's rows share.

import { h, s } from "./dom.js";
import { ms } from "./format.js";

const WIDTH = 190;
const HEIGHT = 22;
const MIDDLE = HEIGHT / 2;
const PAD = 6;

/** The logarithmic axis that holds all figures of `rows`: {at(ms) → x, ticks: [ms]}; null if nothing is known. */
export function axisOf(rows) {
  const known = rows.flatMap((row) => [
    row.ttft_p50_ms, row.ttft_p50_low_ms, row.ttft_p50_high_ms, row.ttft_p95_ms, row.ttft_p95_low_ms, row.ttft_p95_high_ms,
  ]).filter((each) => each > 0);
  if (!known.length) return null;
  const low = Math.log10(Math.min(...known)) - 0.04;
  const high = Math.max(Math.log10(Math.max(...known)) + 0.04, low + 0.3);
  const at = (value) => PAD + ((Math.log10(value) - low) / (high - low)) * (WIDTH - 2 * PAD);
  const all = [];
  for (let power = Math.floor(low); power <= high; power += 1) {
    for (const each of [1, 2, 5]) if (at(each * 10 ** power) >= PAD && at(each * 10 ** power) <= WIDTH - PAD) all.push(each * 10 ** power);
  }
  const ticks = all.filter((each, index) => index === 0 || at(each) - at(all[index - 1]) > 1);
  return { at, ticks, key: `${low.toFixed(3)}:${high.toFixed(3)}` };
}

/** The axis' own labels, for the column's head; those that would touch are left out. */
export function axisHead(axis) {
  if (axis === null) return null;
  let last = -Infinity;
  const labels = axis.ticks.filter((each) => {
    const is = axis.at(each) - last > 44;
    if (is) last = axis.at(each);
    return is;
  });
  return s("svg", { class: "range", viewBox: `0 0 ${WIDTH} 14`, width: WIDTH, height: 14, "aria-hidden": "true" },
    labels.map((each) => s("text", {
      x: axis.at(each), y: 11, "text-anchor": axis.at(each) < 24 ? "start" : axis.at(each) > WIDTH - 24 ? "end" : "middle",
    }, ms(each).replace(".00", "").replace(".0", ""))));
}

/** One row's picture. */
export function range(row, axis, colour) {
  if (axis === null || row.ttft_p50_ms === null) return h("span", { class: "soft" }, "too few calls");
  const { at } = axis;
  const edge = WIDTH - 1;
  const end = (value) => (value === null ? edge : at(value)); // an open end: the interval has no upper bound yet
  const line = (from, to, y, props) => s("line", { x1: from, x2: to, y1: y, y2: y, ...props });
  const cap = (x) => s("line", { x1: x, x2: x, y1: MIDDLE - 3, y2: MIDDLE + 3, class: "whisker" });
  const p50 = at(row.ttft_p50_ms);
  const p95 = row.ttft_p95_ms === null ? null : at(row.ttft_p95_ms);
  return s("svg", { class: "range", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, role: "img", "aria-label": words(row), style: { color: colour } },
    s("title", {}, words(row)),
    axis.ticks.map((each) => s("line", { x1: at(each), x2: at(each), y1: 0, y2: HEIGHT, class: "grid" })),
    p95 === null ? null : line(p50, p95, MIDDLE, { class: "between" }),
    row.ttft_p95_low_ms === null || p95 === null ? null : [
      line(at(row.ttft_p95_low_ms), end(row.ttft_p95_high_ms), MIDDLE, { class: "whisker" }), cap(at(row.ttft_p95_low_ms)),
      row.ttft_p95_high_ms === null ? s("path", { d: `M${edge - 4} ${MIDDLE - 3}L${edge} ${MIDDLE}L${edge - 4} ${MIDDLE + 3}`, class: "open" }) : cap(end(row.ttft_p95_high_ms)),
    ],
    row.ttft_p50_low_ms === null ? null
      : s("rect", { x: at(row.ttft_p50_low_ms), y: MIDDLE - 4, width: Math.max(1, end(row.ttft_p50_high_ms) - at(row.ttft_p50_low_ms)), height: 8, rx: 2, class: "interval" }),
    p95 === null ? null : s("circle", { cx: p95, cy: MIDDLE, r: 3.5, class: "ring" }),
    s("circle", { cx: p50, cy: MIDDLE, r: 3.5, class: "dot" }));
}

function words(row) {
  const one = (name, value, low, high) =>
    (value === null ? null : `${name} ${ms(value)} (${low === null ? "interval unknown" : high === null ? `${ms(low)} or more` : `${ms(low)} to ${ms(high)}`})`);
  return [
    one("p50", row.ttft_p50_ms, row.ttft_p50_low_ms, row.ttft_p50_high_ms), one("p95", row.ttft_p95_ms, row.ttft_p95_low_ms, row.ttft_p95_high_ms),
  ].filter(Boolean).join(", ");
}
