// Small parts that every view is made of: a figure with its unit, a name with its colour, buttons that copy.

import { colourOf } from "./colours.js";
import { h, tell } from "./dom.js";
import { parted } from "./format.js";

/** A formatted figure: the number first, its unit soft. */
export function figure(text) {
  const [number, unit] = parted(text);
  return unit ? h("span", { class: "figure" }, number, h("span", { class: "unit" }, `\u202f${unit}`)) : h("span", { class: "figure" }, text);
}

/** A list of main figures; each is `[label, formatted text, note]`. */
export function stats(...items) {
  return h("dl", { class: "stats" }, items.map(([label, text, note]) =>
    h("div", { class: "stat" }, h("dt", {}, label), h("dd", {}, figure(text)), note ? h("dd", { class: "note" }, note) : null)));
}

/** The name of a deployment, with the colour it has everywhere. */
export function named(deployment) {
  return h("span", {}, swatch(deployment), deployment);
}

/** The patch of a deployment's colour. */
export function swatch(deployment) {
  return h("span", { class: "swatch", style: { color: colourOf(deployment) }, "aria-hidden": "true" });
}

/** A button that copies `text`, or what it returns if it is a function. */
export function copies(text, label = "Copy") {
  return h("button", {
    type: "button",
    class: "quiet",
    onclick: async (event) => {
      event.stopPropagation();
      const wanted = typeof text === "function" ? text() : text;
      tell((await copied(wanted)) ? "Copied." : "The browser did not allow it: select the text and copy it yourself.");
    },
  }, label);
}

/** "Copy SQL": the statement that gives a picture's figures in `holeshot sql`. Nothing without one. */
export function copiesSql(sql) {
  return sql ? copies(sql, "Copy SQL") : null;
}

/** Buttons of which one is chosen: `options` maps values to labels. */
export function choice(label, options, chosen, choose) {
  const group = h("div", { class: "choice", role: "group", "aria-label": label });
  const buttons = Object.entries(options).map(([value, words]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => {
      for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.value === value));
      choose(value);
    }, "data-value": value }, words));
  group.append(...buttons);
  return group;
}

/** A labelled select; `options` are values, or `[value, words]`; `all` stands for none chosen. */
export function selects(label, options, chosen, choose, all = null) {
  const select = h("select", { onchange: () => choose(select.value) });
  const rows = all === null ? options : [["", all], ...options];
  for (const each of rows) {
    const [value, words] = Array.isArray(each) ? each : [each, each];
    select.append(h("option", { value, selected: value === (chosen ?? "") }, words));
  }
  return h("label", { class: "field" }, label, select);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain HTTP, on another host than localhost, there is no clipboard; this old way still works there.
    const box = h("textarea", { class: "unseen", "aria-hidden": "true" });
    box.value = text;
    (document.querySelector("dialog[open]") ?? document.body).append(box); // beside an open dialog nothing can be selected
    const held = document.activeElement;
    box.select();
    const done = document.execCommand("copy");
    box.remove();
    held?.focus();
    return done;
  }
}
