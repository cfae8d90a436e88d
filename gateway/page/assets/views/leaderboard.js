// The leaderboard: a model's deployments, ranked by what the policy predicts for the next call.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { ms, percent, tps } from "../lib/format.js";

const EVERY_MS = 3000;

/** Show it in `root` until closed. */
export function view(root) {
  let timer = null;
  async function look() {
    const { models } = await get("leaderboard");
    fill(root, h("h1", {}, "Leaderboard"), models.map(board));
    timer = setTimeout(look, EVERY_MS);
  }
  look();
  return { close: () => clearTimeout(timer) };
}

function board({ model, deployments }) {
  const heads = ["", "Deployment", "State", "TTFT p50", "p95", "Speed", "Wins"];
  return h("section", { class: "card" }, h("h2", {}, model),
    h("table", {}, h("thead", {}, h("tr", {}, heads.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, deployments.map((row) => h("tr", {}, [
        row.rank, row.deployment, row.state, ms(row.ttft_p50_ms), ms(row.ttft_p95_ms), tps(row.decode_tps), percent(row.win_share),
      ].map((each) => h("td", {}, `${each ?? ""}`)))))));
}
