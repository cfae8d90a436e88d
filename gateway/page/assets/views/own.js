// What the person who has signed in has used, how fast it was, and what is left of their limits.

import { get } from "../lib/api.js";
import { h, fill } from "../lib/dom.js";
import { count, counted, ms, tps, usd } from "../lib/format.js";
import { to } from "../lib/route.js";
import { empty, watching } from "../lib/states.js";
import { table } from "../lib/table.js";
import { meters } from "./parts/limits.js";
import { redraw } from "./parts/redraw.js";
import { askedWindow, windowChoice, windowWords } from "./parts/windows.js";

const EVERY_MS = 15_000;

const COLUMNS = [
  { title: "Model", head: true, cell: (each) => each.model },
  { title: "Calls", right: true, cell: (each) => count(each.calls) },
  { title: "Failed", right: true, cell: (each) => count(each.failed) },
  { title: "Tokens", right: true, help: "Of prompts and answers", cell: (each) => count(tokens(each)) },
  { title: "Cost", right: true, cell: (each) => usd(each.cost_usd) },
  { title: "First token p50", right: true, cell: (each) => ms(each.ttft_p50_ms) },
  { title: "First token p95", right: true, cell: (each) => ms(each.ttft_p95_ms) },
  { title: "Speed p50", right: true, help: "Half of the answers reach it", cell: (each) => tps(each.decode_p50_tps) },
];

/** Show it in `root` until closed. */
export function view(root, params, session, address) {
  let window = askedWindow(address);
  const place = h("div");
  fill(root, h("header", { class: "head" }, h("h1", {}, "Your use"), h("div", { class: "controls" }, windowChoice(window, change))), place);
  const kept = watching(place, (signal) => get("own", { window }, { signal }), show, { everyMs: EVERY_MS });

  function show({ data: [all, ...models], team, limits }, body) {
    redraw(body, [
      h("section", { class: "card client", "aria-labelledby": "own-all" },
        h("header", {}, h("h2", { id: "own-all" }, "In all"), team ? h("span", { class: "chip" }, `team ${team}`) : null, h("p", {}, about(all, window))),
        h("div", { class: "inside" }, meters(limits))),
      all ? h("section", { class: "card", "aria-labelledby": "own-models" },
        h("header", {}, h("h2", { id: "own-models" }, "By model"), h("p", {}, h("a", { href: to("calls", [], { window }) }, "Each of these calls"))), byModel(models))
        : empty(`No calls of yours in ${windowWords(window)}`, "Those are shown that you make with your own account: `holeshot login`, and then your program."),
    ]);
  }

  function change(chosen) {
    window = chosen;
    kept.again();
  }

  return kept;
}

function about(all, window) {
  if (!all) return `No calls in ${windowWords(window)}`;
  const said = [counted(all.calls, "call"), all.failed ? `${count(all.failed)} failed` : null, counted(tokens(all), "token"), all.cost_usd === null ? null : usd(all.cost_usd),
    all.ttft_p50_ms === null ? null : `first token after ${ms(all.ttft_p50_ms)} (p50), ${ms(all.ttft_p95_ms)} (p95)`];
  return `In ${windowWords(window)}: ${said.filter(Boolean).join(", ")}`;
}

function byModel(models) {
  const shown = table(COLUMNS, { caption: "Your use by model", stacks: true });
  shown.update(models);
  return shown.element;
}

function tokens(each) {
  return (each.prompt_tokens ?? 0) + (each.completion_tokens ?? 0);
}
