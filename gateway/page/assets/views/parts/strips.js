// Strips: rows of one axis, each with its words, its marks on a track and its figure. Intervals are whiskers.

import { h } from "../../lib/dom.js";

const NARROW_PX = 130; // of a track, where two pictures share a card or a phone
const LETTER_PX = 6.5; // of a label
const APART_PX = 4;

/** A figure of strips over one axis (of parts/scale.js); `words` writes a tick. `kind` is one more class of it. */
export function picture(title, axis, words, rows, kind = "") {
  return h("figure", { class: `strips ${kind}`.trim() }, h("figcaption", {}, title), rows,
    h("div", { class: "strip", "aria-hidden": "true" }, h("div", { class: "axis" }, labels(axis, words).map(([tick, text]) => h("span", { style: { left: axis.at(tick) } }, text)))));
}

/** `[tick, text]` of each tick, or of every second, third, … from zero, so that no label touches the one before. */
function labels(axis, words) {
  const all = axis.ticks.map((tick) => [tick, tick === 0 ? "0" : words(tick)]);
  const zero = Math.max(0, axis.ticks.indexOf(0));
  for (let step = 1; step < all.length; step += 1) {
    const some = all.filter((_, at) => (at - zero) % step === 0);
    if (some.every((each, at) => at === 0 || reach(axis, each, -1) >= reach(axis, some[at - 1], 1) + APART_PX)) return some;
  }
  return all.slice(zero, zero + 1);
}

/** Where a label ends, to its left (`side` -1) or right (1), in pixels of a narrow track. */
function reach(axis, [tick, text], side) {
  return axis.share(tick) * NARROW_PX + (side * text.length * LETTER_PX) / 2;
}

/** One row: what it is of, its marks, and the figure told. */
export function strip(words, marks, axis, told) {
  return h("div", { class: "strip" }, h("span", { class: "what" }, words),
    h("span", { class: "track", "aria-hidden": "true" }, axis.ticks.map((tick) => h("i", { class: tick === 0 ? "rule zero" : "rule", style: { left: axis.at(tick) } })), marks),
    h("span", { class: "told-figure" }, told));
}

/** An interval on its axis. */
export function whisker(low, high, axis) {
  return h("i", { class: "whisker", style: { left: axis.at(low), width: `${Math.max(0, axis.share(high) - axis.share(low)) * 100}%` } });
}

/** A value on its axis; `hollow` where it is an estimate. */
export function point(value, axis, hollow = false) {
  return h("i", { class: hollow ? "point hollow" : "point", style: { left: axis.at(value) } });
}
