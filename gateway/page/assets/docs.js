// /docs: openapi.json as a page. What an operation takes and answers is drawn when it is opened.

import { fill, h } from "./lib/dom.js";
import { copies } from "./lib/figures.js";
import { failed, waiting } from "./lib/states.js";

const DEEPEST = 8; // records within records

const main = document.getElementById("main");
const side = document.querySelector(".side");
const menu = document.getElementById("menu");
const find = document.getElementById("find");
let described = null;

async function start() {
  fill(main, waiting());
  try {
    const response = await fetch("openapi.json");
    if (!response.ok) throw new Error(`openapi.json: the gateway answered ${response.status}`);
    described = await response.json();
  } catch (error) {
    fill(main, failed(error, start));
    return;
  }
  const groups = grouped();
  fill(document.getElementById("navigation"), groups.map(([tag, operations]) => h("div", { "data-group": tag.name },
    h("h2", {}, tag.name),
    h("ul", {}, operations.map((each) => h("li", { "data-of": each.operationId },
      h("a", { href: `#${each.operationId}` }, h("span", { class: `method ${each.method}` }, each.method.toUpperCase()), h("span", { class: "path" }, broken(each.path)))))))));
  fill(main, intro(), groups.map(([tag, operations]) => h("div", { "data-group": tag.name },
    h("div", { class: "group" }, h("h2", {}, tag.name), h("p", {}, rich(tag.description))),
    operations.map(operation))));
  sought();
  show();
}

function grouped() {
  const all = Object.entries(described.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, each]) => ({ ...each, path, method })));
  return described.tags.map((tag) => [tag, all.filter((each) => each.tags.includes(tag.name))]);
}

function intro() {
  const { title, version, description } = described.info;
  return h("div", { class: "prose" }, h("h1", {}, `${title}'s API`), h("p", { class: "soft" }, `Version ${version}`), h("p", {}, rich(description)),
    h("p", {}, "For programs: ", h("a", { href: "openapi.json" }, "openapi.json"), ", OpenAPI 3.1."));
}

function operation(each) {
  const { operationId, method, path, summary, description } = each;
  return h("section", { class: "card", id: operationId, "data-of": operationId, "aria-labelledby": `${operationId}-title ${operationId}-path` },
    h("header", {}, h("h3", { id: `${operationId}-title` }, summary),
      h("p", { class: "path", id: `${operationId}-path` }, h("span", { class: `method ${method}` }, method.toUpperCase()), " ", h("code", {}, broken(path)))),
    h("div", { class: "inside" },
      h("p", {}, rich(description)),
      sample(each),
      parameters(each.parameters ?? []),
      body(each.requestBody),
      answers(each.responses)));
}

function sample({ method, path, requestBody, security }) {
  const base = new URL(described.servers[0].url, new URL("openapi.json", location.href)).href.replace(/\/$/, "");
  const words = [`curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}'${base}${path}'`];
  if (security.some((each) => "key" in each)) words.push("-H \"authorization: Bearer $HOLESHOT_KEY\"");
  const [media, content] = Object.entries(requestBody?.content ?? {})[0] ?? [];
  if (media === "application/json") {
    words.push(`-H 'content-type: ${media}'`);
    if (content.example) words.push(`-d '${JSON.stringify(content.example)}'`);
  }
  const text = words.join(" \\\n  ");
  return h("div", { class: "sample" }, h("pre", { class: "code", tabindex: 0, "aria-label": "Example" }, h("code", {}, text)),
    copies(text));
}

function parameters(all) {
  if (!all.length) return null;
  return [h("h4", {}, "Parameters"), h("ul", { class: "fields" }, all.map(({ name, in: place, required, schema, description }) =>
    h("li", {}, h("code", {}, name), " ", h("span", { class: "kind" }, `${place === "query" ? "" : `${place}, `}${kind(schema)}`),
      required ? h("span", { class: "must" }, " required") : null, " ", h("span", { class: "about" }, rich(description)))))];
}

function body(requestBody) {
  if (!requestBody) return null;
  return Object.entries(requestBody.content).map(([media, { schema }]) => [
    h("h4", {}, `Body, ${media}`), shape(schema, 0) ?? h("p", { class: "kind" }, kind(schema))]);
}

function answers(responses) {
  const all = Object.entries(responses).map(([status, said]) => [status, resolved(said)]);
  const errors = all.filter(([status]) => !(Number(status) < 400));
  return [h("h4", {}, "Answers"),
    all.filter(([status]) => Number(status) < 400).map(([status, response]) => answer(status, response, content(response.content ?? {}))),
    h("div", { class: "status" }, h("span"), later(h("span", {}, `Errors: ${errors.map(([status]) => status).filter(Number).join(", ")}`),
      () => h("div", {}, errors.map(([status, response]) => answer(Number(status) ? status : "", response, null)))))];
}

function answer(status, response, more) {
  return h("div", { class: "status" }, h("strong", {}, status), h("div", {}, listed(response.description), headers(response.headers), more));
}

function content(all) {
  return Object.entries(all).map(([media, { schema }]) => {
    const words = h("span", { class: "kind" }, `${media}${Object.keys(schema).length ? ` · ${kind(schema)}` : ""}`);
    return Object.keys(fields(schema).properties).length ? later(words, () => shape(schema, 0)) : h("p", {}, words);
  });
}

function headers(all) {
  if (!all) return null;
  const names = Object.keys(all);
  return later(h("span", { class: "kind" }, `${names.length} headers`), () => h("ul", { class: "fields" }, names.map((name) =>
    h("li", {}, h("code", {}, name), " ", h("span", { class: "about" }, rich(resolved(all[name]).description))))));
}

// A schema: its kind in words, and its fields as a list that opens

function shape(schema, depth) {
  const { properties, required, note } = fields(schema);
  const names = Object.keys(properties);
  if (!names.length) return null;
  return h("div", {}, note ? h("p", { class: "about" }, rich(note)) : null, h("ul", { class: "fields" }, names.map((name) => {
    const value = properties[name];
    const head = [h("code", {}, name), " ", h("span", { class: "kind" }, kind(value)),
      required.has(name) ? h("span", { class: "must" }, " required") : null];
    const about = value.description ? [" ", h("span", { class: "about" }, rich(value.description))] : null;
    const opens = depth < DEEPEST && Object.keys(fields(value).properties).length > 0;
    return h("li", {}, opens ? later(h("span", {}, head, about), () => shape(value, depth + 1)) : [head, about]);
  })));
}

/** The fields of a schema, wherever it has them: in parts, in items, or in one of several records. */
function fields(schema, seen = new Set()) {
  const properties = {};
  const required = new Set();
  let note = null;
  if (schema.$ref) {
    if (seen.has(schema.$ref)) return { properties, required, note };
    seen = new Set([...seen, schema.$ref]);
  }
  const here = resolved(schema);
  note = schema.$ref ? here.description ?? null : null;
  const within = [here.items, ...(here.allOf ?? []), ...(here.anyOf ?? []).filter((each) => each.type !== "null")].filter(Boolean);
  if (here.additionalProperties?.$ref) within.push(here.additionalProperties);
  for (const each of within) {
    const found = fields(each, seen);
    Object.assign(properties, found.properties);
    for (const name of here.anyOf ? [] : found.required) required.add(name);
    note ??= found.note;
  }
  Object.assign(properties, here.properties ?? {});
  for (const name of here.required ?? []) required.add(name);
  return { properties, required, note };
}

function kind(schema) {
  if (schema.$ref) return named(schema.$ref);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (schema.anyOf) {
    const kinds = [...new Set(schema.anyOf.filter((each) => each.type || each.$ref || each.enum).map(kind))];
    if (kinds.length) return kinds.join(" or ");
  }
  if (schema.allOf) return schema.allOf.map((each) => each.$ref ? named(each.$ref) : "more").join(" and ");
  if (schema.type === "array" || schema.items) return schema.items && Object.keys(schema.items).length ? `array of ${kind(schema.items)}` : "array";
  const types = [schema.type ?? "any"].flat().join(" or ");
  const bounds = [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"]].filter(([name]) => name in schema).map(([name, sign]) => `${sign} ${schema[name]}`);
  return [types, schema.format, ...bounds].filter(Boolean).join(" ");
}

function named(ref) {
  const { enum: words } = resolved({ $ref: ref });
  return words ? words.map((each) => JSON.stringify(each)).join(" | ") : ref.split("/").at(-1);
}

function resolved(schema) {
  return schema.$ref ? schema.$ref.slice(2).split("/").reduce((here, name) => here[name], described) : schema;
}

/** A path that may be broken before each of its words. */
function broken(path) {
  return path.split(/(?=[/:{_])/).flatMap((word, at) => [at ? h("wbr") : null, word]);
}

// Words: Markdown as far as the descriptions use it, which is `code` and lists

function rich(text) {
  return text.split(/(`[^`]+`)/).map((part) => part.startsWith("`") ? h("code", {}, part.slice(1, -1)) : part);
}

function listed(text) {
  const lines = text.split("\n");
  const items = lines.filter((line) => line.startsWith("- "));
  return [lines.filter((line) => !line.startsWith("- ")).map((line) => h("p", {}, rich(line))),
    items.length ? h("ul", { class: "codes" }, items.map((line) => h("li", {}, rich(line.slice(2))))) : null];
}

/** Details whose inside is made when they are first opened. */
function later(summary, inside) {
  const place = h("details", { ontoggle: () => {
    if (place.open && place.childElementCount === 1) place.append(inside());
  } }, h("summary", {}, summary));
  return place;
}

// Finding

function sought() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const [, operations] of grouped()) {
    for (const each of operations) {
      const text = `${each.method} ${each.path} ${each.operationId} ${each.summary} ${each.description}`.toLowerCase();
      for (const place of document.querySelectorAll(`[data-of="${each.operationId}"]`)) place.hidden = !words.every((word) => text.includes(word));
    }
  }
  for (const group of document.querySelectorAll("[data-group]")) group.hidden = group.querySelector("[data-of]:not([hidden])") === null;
}

function show() {
  const wanted = document.getElementById(location.hash.slice(1));
  for (const link of document.querySelectorAll("#navigation a")) {
    if (link.hash === location.hash) link.setAttribute("aria-current", "location");
    else link.removeAttribute("aria-current");
  }
  if (wanted) wanted.scrollIntoView();
  fold(true);
}

function fold(closed) {
  side.classList.toggle("is-open", !closed);
  menu.setAttribute("aria-expanded", String(!closed));
  menu.textContent = closed ? "Menu" : "Close";
}

menu.addEventListener("click", () => fold(side.classList.contains("is-open")));
find.addEventListener("input", sought);
window.addEventListener("hashchange", show);
await start();
