// The shell: which view is shown, who looks, light or dark.

import { alarms } from "./lib/alarm.js";
import { get, send } from "./lib/api.js";
import { themeChanged } from "./lib/colours.js";
import { fill, h, say, tell } from "./lib/dom.js";
import { to, where } from "./lib/route.js";
import { failed, waiting } from "./lib/states.js";
import { view as login } from "./views/login.js";
import { Traffic } from "./views/parts/demo.js";

// One line for each view: `views/NAME.js`. With `one`, `#/NAME/ID` opens that view instead.
const VIEWS = {
  live: { title: "Live", group: "Now" },
  leaderboard: { title: "Leaderboard", group: "Now" },
  playground: { title: "Playground", group: "Now" },
  alerts: { title: "Alerts", group: "Now" },
  calls: { title: "Calls", group: "Past", one: "call" },
  history: { title: "History", group: "Past" },
  worth: { title: "Racing's worth", group: "Past" },
  replay: { title: "What if", group: "Past" },
  targets: { title: "Targets", group: "Past" },
  refusals: { title: "Refusals", group: "Access" },
  keys: { title: "Keys and limits", group: "Access", admin: true },
  teams: { title: "Teams", group: "Access", payers: true },
  configuration: { title: "Configuration", group: "Access" },
};

const OVER = "Your session is over: it has lasted twelve hours, or its key was replaced, revoked or has expired.";

const main = document.getElementById("main");
const side = document.querySelector(".side");
const menu = document.getElementById("menu");
let session = null;
let open = null; // the view that is shown
let provider = null; // where people sign in without a key, if they can
let turns = 0; // how many were asked for: a slow one must not replace a later one

async function show() {
  const { name, params, query } = where();
  const wanted = Object.hasOwn(VIEWS, name) ? name : home();
  const { title, one } = VIEWS[wanted];
  const file = one && params.length ? one : wanted;
  const turn = (turns += 1);
  open?.close();
  open = null;
  document.title = `${title} · Holeshot`;
  for (const link of document.querySelectorAll("#navigation a")) {
    if (link.dataset.view === wanted) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  fold(true);
  fill(main, waiting());
  try {
    const { view } = await import(`./views/${file}.js`);
    if (turn !== turns) return;
    fill(main);
    window.scrollTo(0, 0);
    open = view(main, params, session, query);
  } catch (error) {
    console.error(error);
    if (turn === turns) fill(main, failed(new Error(`This view could not be loaded: ${error.message}`), show));
  }
}

function home() {
  return Object.keys(VIEWS)[0];
}

async function start() {
  fill(main, waiting());
  try {
    session = await get("session");
    provider = session.sign_in ? "api/sign-in" : null;
  } catch (error) {
    if (error.status === 401) provider = error.signIn;
    if (error.status === 401) signIn({ session_ended: OVER, key_expired: OVER, header_ignored: error.message }[error.code]);
    else fill(main, failed(error, start));
    return;
  }
  if (session.demo && session.models.length && session.user.role !== "viewer") session.traffic = new Traffic(session.models[0]);
  menu.hidden = false;
  navigation();
  tools();
  window.addEventListener("hashchange", turned);
  await show();
}

/** Ask for a key, in place of what was shown. */
function signIn(words = "") {
  open?.close();
  turns += 1; // what still loads comes too late
  session?.traffic?.stop();
  session = null;
  window.removeEventListener("hashchange", turned);
  fill(document.getElementById("navigation"));
  fill(document.getElementById("tools"));
  menu.hidden = true;
  document.title = "Sign in · Holeshot";
  open = login(main, { words, provider, done: start });
}

async function signOut() {
  try {
    const answer = await send("DELETE", "session");
    signIn();
    if (answer?.leave) window.location.assign(answer.leave); // the provider's session ends there
  } catch (error) {
    tell(error.message, "bad");
  }
}

async function turned() {
  await show();
  main.focus({ preventScroll: true });
}

function navigation() {
  const groups = new Map();
  for (const [name, each] of Object.entries(VIEWS)) {
    if (each.admin && session.user.role !== "admin") continue;
    if (each.payers && !session.payers) continue; // neither teams nor end users are configured
    groups.set(each.group, [...(groups.get(each.group) ?? []), [name, each]]);
  }
  fill(document.getElementById("navigation"), [...groups].map(([group, views]) => h("div", {},
    h("h2", { id: `group-${group}` }, group),
    h("ul", { "aria-labelledby": `group-${group}` }, views.map(([name, { title }]) =>
      h("li", {}, h("a", { href: to(name), "data-view": name }, title)))))));
}

function tools() {
  const { user, version, replica } = session;
  const theme = h("select", { "aria-label": "Theme", onchange: () => dress(theme.value) },
    [["", "System theme"], ["light", "Light"], ["dark", "Dark"]].map(([value, words]) =>
      h("option", { value, selected: value === (document.documentElement.dataset.theme ?? "") }, words)));
  fill(document.getElementById("tools"), alarms(session),
    h("span", {}, `${user?.name ?? "local"} · ${user?.role ?? "admin"}`),
    h("span", { title: `replica ${replica}` }, `Holeshot ${version}`),
    theme,
    session.authentication === "key" && !session.trusted_header ? h("button", { type: "button", onclick: signOut }, "Sign out") : null);
}

function dress(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    if (theme) localStorage.setItem("holeshot.theme", theme);
    else localStorage.removeItem("holeshot.theme");
  } catch {
    // it holds until the next reload
  }
  themeChanged();
}

function fold(closed) {
  side.classList.toggle("is-open", !closed);
  menu.setAttribute("aria-expanded", String(!closed));
  say(menu, closed ? "Menu" : "Close");
}
menu.addEventListener("click", () => fold(side.classList.contains("is-open")));
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // #main is no view
  main.focus();
});
window.addEventListener("holeshot:signed-out", () => session && signIn(OVER));

await start();
