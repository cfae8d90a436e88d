// The shell: which view is shown, who looks, light or dark.

import { alarms, counting, entitle } from "./lib/alarm.js";
import { get, send } from "./lib/api.js";
import { deal, themeChanged } from "./lib/colours.js";
import { fill, h, say, tell } from "./lib/dom.js";
import { finder, listen } from "./lib/keys.js";
import { to, where } from "./lib/route.js";
import { empty, failed, waiting } from "./lib/states.js";
import { view as login } from "./views/login.js";
import { Traffic } from "./views/parts/demo.js";

// One line for each view: `views/NAME.js`. With `one`, `#/NAME/ID` opens that view instead. Those `under` another one have
// no entry of their own in the menu: they stand beside it, above what is shown. A person who sees their own calls alone has
// those that are `own`: true, or "only", which nobody else has.
const VIEWS = {
  own: { title: "Your use", group: "Yours", own: "only" },
  live: { title: "Live", group: "Now" },
  leaderboard: { title: "Leaderboard", group: "Now" },
  playground: { title: "Playground", group: "Now" },
  alerts: { title: "Alerts", group: "Now" },
  targets: { title: "Targets", under: "alerts" },
  calls: { title: "Calls", group: "Past", one: "call", own: true },
  refusals: { title: "Refusals", under: "calls" },
  history: { title: "History", group: "Past" },
  worth: { title: "What racing saved", group: "Past" },
  replay: { title: "What if", under: "worth" },
  keys: { title: "Keys", group: "Access", admin: true },
  teams: { title: "Teams and models", under: "keys", payers: true },
  configuration: { title: "Configuration", group: "Access" },
};
const CARRIED = ["model", "client", "deployment", "window"]; // filters that go along to other views
const RANGE = ["from", "to"]; // of History alone, which keeps it for who comes back
const NAMED = ["model", "client", "deployment"]; // of them, what the title names

const OVER = "Your session is over: it has lasted as long as it may, or its key was replaced, revoked or has expired.";
const PLACE = "holeshot.place"; // the view that a person comes back to

const main = document.getElementById("main");
const side = document.querySelector(".side");
const menu = document.getElementById("menu");
const find = document.getElementById("find");
let session = null;
let open = null; // the view that is shown
let provider = null; // where people sign in without a key, if they can
let range = {}; // of time, that History showed last, beside its window
let turns = 0; // how many were asked for: a slow one must not replace a later one

async function show() {
  const { name, params, query } = where();
  const turn = (turns += 1);
  open?.close();
  open = null;
  fold(true);
  const wanted = name || home();
  main.dataset.view = wanted;
  if (!Object.hasOwn(VIEWS, wanted) || !isOpen(VIEWS[wanted])) {
    mark(null);
    entitle("Not found");
    fill(main, h("header", { class: "head" }, h("h1", {}, "Not found")), h("div", { class: "card" },
      empty(`There is no view called ${wanted}`, "The menu has all there are.", h("a", { class: "button", href: to(home()) }, `Open ${VIEWS[home()].title}`))));
    return;
  }
  const { one, under } = VIEWS[wanted];
  const file = one && params.length ? one : wanted;
  mark(under ?? wanted);
  fill(main, waiting());
  try {
    const { view } = await import(`./views/${file}.js`);
    if (turn !== turns) return;
    const place = h("div");
    fill(main, tabs(wanted), place);
    filtered();
    window.scrollTo(0, 0);
    open = view(place, params, session, query);
  } catch (error) {
    console.error(error);
    if (turn === turns) fill(main, failed(new Error(`This view could not be loaded: ${error.message}`), show));
  }
}

/** Mark an entry of the menu as the one that is shown. */
function mark(entry) {
  for (const link of document.querySelectorAll("#navigation a")) {
    if (link.dataset.entry === entry) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Links to the views that share an entry of the menu with `name`; nothing if it is alone. */
function tabs(name) {
  const names = family(VIEWS[name].under ?? name);
  if (names.length < 2) return null;
  return h("nav", { class: "tabs", "aria-label": "Parts" }, names.map((each) =>
    h("a", { href: to(each), "data-view": each, "aria-current": each === name ? "page" : null }, VIEWS[each].title)));
}

/** An entry's views that this visitor may see. */
function family(entry) {
  return Object.keys(VIEWS).filter((each) => (each === entry || VIEWS[each].under === entry) && isSeen(VIEWS[each]));
}

function isSeen(view) {
  if (isPerson() ? !view.own : view.own === "only") return false;
  return !(view.admin && session.user.role !== "admin") && !(view.payers && !session.payers); // no teams nor end users are configured
}

/** Whether a view can be shown to this visitor: one that is not in their menu says what it is for. */
function isOpen(view) {
  return isPerson() ? Boolean(view.own) : view.own !== "only";
}

/** Whether who has signed in sees their own calls alone. */
function isPerson() {
  return session?.user?.role === "person";
}

/** Have the links to other views take the filters along. */
function carry() {
  const { name, query } = where();
  const asked = (names) => Object.fromEntries(names.map((each) => [each, query.get(each)]));
  if (name === "history") range = asked(["window", ...RANGE]);
  const kept = query.get("window") === range.window ? range : {}; // else a window was chosen since
  for (const link of document.querySelectorAll("a[data-view]")) {
    const { view } = link.dataset;
    link.setAttribute("href", to(view, [], { ...asked(CARRIED), ...(view === "history" ? kept : {}) }));
  }
}

/** What follows from the filters in the address: links to other views, and the title. */
function filtered() {
  const { name, query } = where();
  carry();
  const { title } = VIEWS[name || home()] ?? {};
  if (title) entitle(title, ...NAMED.map((each) => query.get(each)));
}

function home() {
  return Object.keys(VIEWS).find((each) => isSeen(VIEWS[each]));
}

/** Where Ctrl-K goes: every view, and each model in those that show one. */
function places() {
  if (!session) return [];
  const seen = Object.keys(VIEWS).filter((each) => isSeen(VIEWS[each]));
  const ofModels = ["live", "leaderboard", "calls", "history"].filter((each) => isSeen(VIEWS[each])).flatMap((each) =>
    session.models.map((model) => ({ words: `${VIEWS[each].title} of ${model}`, href: to(each, [], { model }) })));
  return [...seen.map((each) => ({ words: VIEWS[each].title, href: to(each) })), ...ofModels];
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
  returned();
  deal(session.deployments ?? []);
  if (session.demo && session.models.length && !["viewer", "person"].includes(session.user.role)) session.traffic = new Traffic(session.models[0]);
  menu.hidden = false;
  fill(find, finder());
  document.querySelector(".brand").setAttribute("href", to(home()));
  navigation();
  tools();
  window.addEventListener("hashchange", turned);
  await show();
}

/** Have the provider say at once whether this person is still one of the company, and come back to the same view. */
function renew() {
  session = null; // once, however many requests are refused
  try {
    sessionStorage.setItem(PLACE, window.location.hash);
  } catch {
    // it comes back to the first view
  }
  window.location.assign(`${provider}?prompt=none`);
}

function returned() {
  try {
    const place = sessionStorage.getItem(PLACE);
    sessionStorage.removeItem(PLACE);
    if (place && !window.location.hash) history.replaceState(null, "", place);
  } catch {
    // likewise
  }
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
  fill(find);
  menu.hidden = true;
  counting(0);
  entitle("Sign in");
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
  for (const [entry, { title, group }] of Object.entries(VIEWS)) {
    const [first] = group ? family(entry) : [];
    if (first) groups.set(group, [...(groups.get(group) ?? []), { entry, first, title }]);
  }
  fill(document.getElementById("navigation"), [...groups].map(([group, entries]) => h("div", {},
    h("h2", { id: `group-${group}` }, group),
    h("ul", { "aria-labelledby": `group-${group}` }, entries.map(({ entry, first, title }) =>
      h("li", {}, h("a", { href: to(first), "data-view": first, "data-entry": entry }, title)))))));
}

function tools() {
  const { user, version, replica } = session;
  const theme = h("select", { "aria-label": "Theme", onchange: () => dress(theme.value) },
    [["", "System theme"], ["light", "Light"], ["dark", "Dark"]].map(([value, words]) =>
      h("option", { value, selected: value === (document.documentElement.dataset.theme ?? "") }, words)));
  fill(document.getElementById("tools"), isPerson() ? null : alarms(session),
    h("span", {}, isPerson() ? user.name : `${user?.name ?? "local"} · ${user?.role ?? "admin"}`),
    h("span", { title: `replica ${replica}` }, `Holeshot ${version}`),
    h("button", { type: "button", class: "quiet", "aria-keyshortcuts": "?", onclick: keys }, "Shortcuts ", h("kbd", {}, "?")),
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
const keys = listen(places);
window.addEventListener("holeshot:filtered", filtered);
window.addEventListener("holeshot:signed-out", () => {
  if (isPerson() && provider) renew();
  else if (session) signIn(OVER);
});

await start();
