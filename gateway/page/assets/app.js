// The shell: which view is shown, who looks, light or dark.

import { get } from "./lib/api.js";
import { fill, h } from "./lib/dom.js";

const VIEWS = {
  leaderboard: "Leaderboard",
};

const main = document.getElementById("main");
let open = null;

async function show() {
  const [name, ...params] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  const wanted = name in VIEWS ? name : Object.keys(VIEWS)[0];
  open?.close();
  open = null;
  fill(main);
  document.title = `${VIEWS[wanted]} · Holeshot`;
  for (const link of document.querySelectorAll("#navigation a")) {
    if (link.hash === `#/${wanted}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const { view } = await import(`./views/${wanted}.js`);
  open = view(main, params, session);
}

const session = await get("session");
fill(document.getElementById("navigation"), Object.entries(VIEWS).map(([name, title]) => h("a", { href: `#/${name}` }, title)));
window.addEventListener("hashchange", show);
await show();
