// Keys that work in every view: / finds a call, ? lists them, j and k go from row to row, Ctrl-K goes anywhere.

import { fill, h } from "./dom.js";
import { to } from "./route.js";

const IS_MAC = /^(mac|iphone|ipad)/i.test(navigator.platform); // there Ctrl-K deletes to the end of a line
const KEYS = [
  [["/"], "Find a call by its id"],
  [["j"], "Next row"],
  [["k"], "Row before"],
  [["Enter"], "Open the row"],
  [[IS_MAC ? "⌘" : "Ctrl", "K"], "Go to a view or a model"],
  [["Space"], "Live: pause, and go on"],
  [["←", "→"], "Live: from call to call; plots: from step to step"],
  [["?"], "This list"],
];
const MOST_PLACES = 12; // of the list of Ctrl-K
/** What a call's own id looks like. */
export const IS_ID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?7[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$/i; // UUIDv7; those of requests are often UUIDv4

/** The field that finds a call: by its own id, else by the id of its request. */
export function finder() {
  const field = h("input", {
    type: "search", name: "call", placeholder: "Call id", "aria-label": "Find a call by its id", "aria-keyshortcuts": "/",
    autocomplete: "off", spellcheck: "false",
  });
  return h("form", { class: "finder", role: "search", "aria-label": "Find a call", onsubmit: (event) => {
    event.preventDefault();
    const id = field.value.trim();
    if (!id) return;
    field.value = "";
    field.blur();
    location.hash = IS_ID.test(id) ? to("calls", [id]) : to("calls", [], { request_id: id });
  } }, field);
}

/** Listen to the keys. `places()` returns where one can go: [{words, href}]. Returns how to show their list. */
export function listen(places) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
    if ((event.metaKey || (event.ctrlKey && !IS_MAC)) && !event.altKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      goTo(places());
    } else if (!event.ctrlKey && !event.metaKey && !event.altKey && !isTyping(event.target)) {
      const act = { "/": find, "?": list, j: () => step(1), k: () => step(-1) }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    }
  });
  return list;
}

function isTyping(element) {
  return Boolean(element.closest?.("input, select, textarea, [contenteditable]"));
}

function find() {
  const field = document.querySelector(".finder input");
  field?.focus();
  field?.select();
}

/** The focus goes to the next row that is seen, or the one before: to what opens it, else to its first cell. */
function step(move) {
  const rows = [...document.querySelectorAll("main tbody tr")].filter((each) => !each.closest(".heat") && each.getClientRects().length);
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement?.closest("main tbody tr"));
  const row = rows[at < 0 ? (move > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + move))];
  const target = row.querySelector("a[href]") ?? row.firstElementChild;
  if (!target.matches("a")) target.tabIndex = -1;
  target.focus();
}

function list() {
  const box = dialog("Shortcuts");
  box.append(h("dl", { class: "keys" }, KEYS.map(([keys, words]) => h("div", {},
    h("dt", {}, keys.map((each) => h("kbd", {}, each))), h("dd", {}, words)))),
  h("div", { class: "controls" }, h("button", { type: "button", onclick: () => box.close() }, "Close")));
  box.showModal();
}

/** Ask where to go: the places whose words have what is typed. */
function goTo(places) {
  let found = [];
  let chosen = 0;
  const box = dialog("Go to");
  const options = h("ul", { id: "places", role: "listbox", "aria-label": "Places" });
  const field = h("input", {
    type: "text", role: "combobox", "aria-label": "Go to", "aria-controls": "places", "aria-expanded": "true", "aria-autocomplete": "list",
    autocomplete: "off", spellcheck: "false", oninput: narrow, onkeydown: press,
  });
  box.append(field, options);
  narrow();
  box.showModal();

  function narrow() {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = places.filter(({ words }) => wanted.every((each) => words.toLowerCase().includes(each))).slice(0, MOST_PLACES);
    chosen = 0;
    draw();
  }

  function draw() {
    fill(options, found.length ? found.map(({ words }, at) => h("li", { id: `place-${at}`, role: "option", "aria-selected": String(at === chosen), onclick: () => go(at) }, words))
      : h("li", { class: "soft", role: "option", "aria-disabled": "true", "aria-selected": "false" }, "Nothing is called so"));
    if (found.length) field.setAttribute("aria-activedescendant", `place-${chosen}`);
    else field.removeAttribute("aria-activedescendant");
  }

  function press(event) {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) chosen = (chosen + move + found.length) % Math.max(1, found.length);
    if (event.key === "Enter") go(chosen);
    if (move || event.key === "Enter") event.preventDefault();
    if (move) draw();
  }

  function go(at) {
    if (!found[at]) return;
    box.close();
    location.hash = found[at].href;
  }
}

function dialog(title) {
  const box = h("dialog", { class: "shown", "aria-labelledby": "keys-title", onclose: () => box.remove(), onclick: (event) => event.target === box && box.close() },
    h("h2", { id: "keys-title" }, title));
  document.body.append(box);
  return box;
}
