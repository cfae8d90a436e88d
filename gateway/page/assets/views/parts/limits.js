// Limits of a client, a team or an end user: their names, and how full each is.

import { h } from "../../lib/dom.js";
import { count, span, usd } from "../../lib/format.js";

/** [setting, in words, step of its field, the figure in words]. */
export const LIMITS = [
  ["rpm", "Requests a minute", "1", (value) => count(value)],
  ["tpm", "Tokens a minute", "1", (value) => count(value)],
  ["max_parallel", "Calls at a time", "1", (value) => count(value)],
  ["usd_per_hour", "US dollars an hour", "any", usd],
  ["usd_per_day", "US dollars a day", "any", usd],
  ["usd_per_week", "US dollars a week", "any", usd],
  ["usd_per_month", "US dollars a month", "any", usd],
  ["usd_total", "US dollars in all", "any", usd],
  ["tokens_per_hour", "Tokens an hour", "1", (value) => count(value)],
  ["tokens_per_day", "Tokens a day", "1", (value) => count(value)],
  ["tokens_per_week", "Tokens a week", "1", (value) => count(value)],
  ["tokens_per_month", "Tokens a month", "1", (value) => count(value)],
  ["tokens_total", "Tokens in all", "1", (value) => count(value)],
];

/** Draw limits as `/api/usage` has them: `limit`, `of`, and if they are known `used` and `resets_in_s`. */
export function meters(limits) {
  if (!limits.length) return h("p", { class: "soft" }, "No limits.");
  return h("ul", { class: "limits" }, limits.map(({ limit, of, used = null, resets_in_s: left = null }) => {
    const [, words, , figure] = LIMITS.find(([name]) => name === limit);
    const share = used !== null && of ? used / of : null;
    const kind = share === null ? "" : share >= 1 ? "bad" : share >= 0.8 ? "warn" : "good";
    return h("li", {}, h("span", {}, words),
      h("i", { class: `meter ${kind}`, "aria-hidden": "true" }, share === null ? null : h("i", { style: { width: `${Math.min(1, share) * 100}%` } })),
      h("span", { class: "figure" }, used !== null ? `${figure(used)} of ${figure(of)}` : `${figure(of)} at most`,
        share >= 1 ? h("b", { class: "bad" }, " used up") : null,
        left ? h("small", {}, ` new in ${span(left)}`) : null));
  }));
}

/** The fullest of limits whose use is known, in words; null if none has been used. */
export function fullest(limits) {
  const [each] = limits.filter(({ used, of }) => used && of).sort((a, b) => b.used / b.of - a.used / a.of);
  if (!each) return null;
  const [, words, , figure] = LIMITS.find(([name]) => name === each.limit);
  return h("span", { class: each.used >= each.of ? "bad" : null }, `${figure(each.used)} of ${figure(each.of)}`, h("small", { class: "soft" }, ` ${words}`));
}
