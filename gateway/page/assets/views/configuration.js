// What is configured: models with their deployments, providers, and all other settings. Secrets are not in what the gateway tells.

import { get } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { named } from "../lib/figures.js";
import { percent, usd } from "../lib/format.js";
import { empty, watching } from "../lib/states.js";
import { table } from "../lib/table.js";
import { redraw } from "./parts/redraw.js";

const DEPLOYMENTS = [
  { title: "Deployment", head: true, cell: (each) => named(each.name) },
  { title: "In use", cell: (each) => (each.enabled ? (each.canary ? `canary, ${percent(each.canary)}` : "yes") : "no") },
  { title: "Weight", right: true, cell: (each) => each.weight },
  { title: "Prompt, $ / M tokens", right: true, cell: (each) => usd(each.price?.prompt) },
  { title: "Answer, $ / M tokens", right: true, cell: (each) => usd(each.price?.completion) },
  { title: "At a time", right: true, cell: atATime },
  { title: "Can", wraps: true, cell: (each) => abilities(each.capabilities) },
];
const PROVIDERS = [
  { title: "Provider", head: true, cell: (each) => each.name },
  { title: "Kind", cell: (each) => each.kind ?? each.preset ?? "–" },
  { title: "Address", wraps: true, cell: (each) => each.base_url ?? "of the preset" },
  { title: "APIs", wraps: true, cell: (each) => (each.apis ?? []).join(", ") || "–" },
];
const MODELS_OWN = new Set(["name", "deployments"]);

/** Show it in `root` until closed. */
export function view(root) {
  const place = h("div");
  fill(root, h("header", { class: "head" }, h("h1", {}, "Configuration"), h("p", {}, "As it is in force now; it is changed in the file")), place);
  return watching(place, (signal) => get("configuration", {}, { signal }), (found, body) => redraw(body, draw(found)));
}

function draw({ settings, models, providers }) {
  return [
    models.length ? models.map((each, at) => model(each, `model-${at}`)) : h("div", { class: "card" }, empty("No model is configured", "Name one under 'models:' in the configuration file.")),
    card("providers", "Providers", listed(PROVIDERS, "Providers and their addresses", providers)),
    card("settings", "Everything else", h("div", { class: "inside" }, tree(settings))),
  ];
}

function model(each, id) {
  const rest = Object.fromEntries(Object.entries(each).filter(([name]) => !MODELS_OWN.has(name)));
  const unpriced = each.deployments.filter((one) => one.enabled && !one.price).map((one) => one.name);
  const note = "Such calls have no cost; limits in dollars count the dearest of their own line. Set price_per_mtok, or run holeshot models --prices.";
  return card(id, each.name, [
    ...(unpriced.length ? [h("p", { class: "inside soft" }, `No price is known of ${unpriced.join(", ")}. ${note}`)] : []),
    listed(DEPLOYMENTS, `Deployments of ${each.name}`, each.deployments),
    h("details", { class: "inside" }, h("summary", {}, "How it is raced, and its other settings"), tree(rest)),
  ]);
}

/** How many attempts may run there, in one replica and in all. */
function atATime({ max_in_flight: one, max_in_flight_fleet: all }) {
  const limits = [one && (all ? `${one} a replica` : one), all && `${all} in all`].filter(Boolean);
  return limits.join(", ") || "–";
}

function card(id, title, content) {
  return h("section", { class: "card", "aria-labelledby": id }, h("header", {}, h("h2", { id }, title)), content);
}

function listed(columns, caption, rows) {
  const { element, update } = table(columns, { caption, key: (each) => each.name, stacks: true });
  update(rows);
  return element;
}

/** Settings as nested lists of names and values; what is not set is left out. */
function tree(value) {
  const entries = Object.entries(value).filter(([, each]) => !isUnset(each));
  if (!entries.length) return h("p", { class: "soft" }, "Nothing is set.");
  return h("dl", { class: "tree" }, entries.map(([name, each]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown(each)))));
}

function shown(value) {
  if (Array.isArray(value)) return value.every((each) => typeof each !== "object") ? value.join(", ") : value.map((each) => tree(each));
  return typeof value === "object" ? tree(value) : String(value);
}

function isUnset(value) {
  if (value === null || value === undefined || value === "") return true;
  return typeof value === "object" && Object.values(value).every(isUnset);
}

function abilities(known) {
  if (!known) return "–";
  const can = Object.entries(known).filter(([, each]) => each === true).map(([name]) => name.replaceAll("_", " "));
  if (known.context_tokens) can.push(`${known.context_tokens.toLocaleString("en-US")} tokens`);
  return can.join(", ") || "–";
}
