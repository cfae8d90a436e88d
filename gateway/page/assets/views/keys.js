// Clients, their keys and limits: listed with what is used of each limit, made, rotated, revoked, and limits changed.

import { get, send } from "../lib/api.js";
import { fill, h, tell } from "../lib/dom.js";
import { copies } from "../lib/figures.js";
import { count, counted, time, usd } from "../lib/format.js";
import { empty, watching } from "../lib/states.js";
import { LIMITS, meters } from "./parts/limits.js";
import { key, redraw } from "./parts/redraw.js";

const EVERY_MS = 5000;
const DAY_S = 86_400;

const ROLES = [["client", "client: makes calls"], ["viewer", "viewer: looks, and makes no calls"], ["operator", "operator: looks, and makes calls"], ["admin", "admin: also changes keys"]];
const PROFILES = [["", "the model's"], ["chat", "chat: a person reads the stream"], ["voice", "voice: a person listens"], ["agent", "agent: a program waits for whole answers"], ["batch", "batch: no person waits, the cheapest"]];
const GRACES = [[0, "at once"], [3600, "in an hour"], [DAY_S, "in a day"], [7 * DAY_S, "in a week"], [30 * DAY_S, "in 30 days"]];

/** Show them in `root` until closed. */
export function view(root, params, session) {
  if (session?.user?.role !== "admin" && session?.authentication !== "none") {
    fill(root, h("header", { class: "head" }, h("h1", {}, "Keys")), empty("Only for admins", "Sign in with the key of an admin to see clients, their keys and limits."));
    return { close() {} };
  }
  const place = h("div");
  const making = h("div", { class: "controls" });
  fill(root, h("header", { class: "head" }, h("h1", {}, "Keys"), making), place);
  let known = []; // the teams that are configured
  const kept = watching(place, load, (found, body) => redraw(body, draw(found)), { everyMs: EVERY_MS });

  async function load(signal) {
    const [keys, usage, configuration] = await Promise.all(["keys", "usage", "configuration"].map((path) => get(path, {}, { signal })));
    const { settings } = configuration;
    return { clients: keys.data, usage: usage.data, teams: Object.keys(settings.teams ?? {}), isChangeable: settings.keys === "database" };
  }

  function draw({ clients, usage, teams, isChangeable }) {
    known = teams;
    const used = new Map(usage.map((each) => [each.client, each]));
    if (!making.hasChildNodes() && isChangeable) fill(making, key("new", h("button", { type: "button", class: "primary", onclick: () => make(session, known, kept.again) }, "New key")));
    return [
      isChangeable ? null : inFile(),
      clients.length ? clients.map((client, at) => card(client, `client-${at}`, used.get(client.name), teams, isChangeable, kept.again)) : noClients(isChangeable),
    ];
  }

  return kept;
}

function inFile() {
  return h("p", { class: "soft prose" }, "Clients are in the configuration file, so they are changed there; a running gateway reads it again within two seconds. With ", h("code", {}, "keys: database"), " they can be made, rotated and revoked on this page.");
}

function noClients(isChangeable) {
  return empty("No clients", isChangeable ? "Make the first key: until then only this machine's admin may look." : "Without clients only programs on this machine may call the gateway.");
}

function card(client, id, used, teams, isChangeable, again) {
  const isOurs = client.source === "database" && !client.shadowed && isChangeable;
  return h("section", { class: "card client", "aria-labelledby": id },
    h("header", {}, h("h2", { id }, client.name), h("span", { class: "chip" }, client.role), h("p", {}, about(client, used)),
      isOurs ? h("div", { class: "controls" },
        act("Change", client, () => change(client, teams, again)),
        act("Rotate", client, () => rotate(client, again)),
        act("Revoke", client, () => revoke(client, again), "danger")) : h("div", { class: "controls soft" }, whose(client))),
    h("div", { class: "inside" }, limits(client, used)),
    client.source === "database" ? keysOf(client) : h("p", { class: "inside soft" }, `${counted(client.keys.length, "key")}${client.keys.some((each) => each.state === "expired") ? ", expired" : ""}. The file has only their hashes.`));
}

function whose(client) {
  if (client.source === "file") return "In the file: read-only here";
  return client.shadowed ? "Not in force: the file has a client of this name" : "Read-only here";
}

function about(client, used) {
  const said = [client.models ? `Models: ${client.models.join(", ")}` : "All models"];
  if (client.team) said.unshift(`Team: ${client.team}`);
  if (client.profile) said.push(`profile ${client.profile}`);
  if (client.priority) said.push(`priority ${client.priority}`);
  if (client.expires) said.push(`${Date.parse(client.expires) <= Date.now() ? "expired" : "expires"} ${day(client.expires)}`);
  if (used?.calls) {
    const tokens = (used.prompt_tokens ?? 0) + (used.completion_tokens ?? 0);
    said.push(["in the last 24 hours", [counted(used.calls, "call"), used.failed ? `${count(used.failed)} failed` : null, counted(tokens, "token"), used.cost_usd === null ? null : usd(used.cost_usd)].filter(Boolean).join(", ")].join(" "));
  } else if (used) said.push("no calls in the last 24 hours");
  return said.join(" · ");
}

function limits(client, used) {
  const set = LIMITS.filter(([name]) => client[name] !== undefined && client[name] !== null);
  return meters(set.map(([name]) => ({ ...used?.limits?.find((each) => each.limit === name), limit: name, of: client[name] })));
}

const KEY_COLUMNS = [
  ["Key", (key) => h("code", {}, `…${key.hint}`)],
  ["State", (key) => ({ active: "active", retiring: `replaced: ends ${time(key.retires_at)}`, expired: "expired", revoked: `revoked ${time(key.revoked_at)}` })[key.state] ?? key.state],
  ["Last used", (key) => (key.last_used_at ? time(key.last_used_at) : "never")],
  ["Made", (key) => `${time(key.created_at)} by ${key.created_by}`],
];

function keysOf(client) {
  const caption = `Keys of ${client.name}`;
  return key(`keys of ${client.name}`, h("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, h("table", {}, h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, KEY_COLUMNS.map(([title]) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, client.keys.map((each) => h("tr", {}, KEY_COLUMNS.map(([, cell], at) => (at ? h("td", {}, cell(each)) : h("th", { scope: "row" }, cell(each))))))))));
}

function act(words, client, onclick, kind = null) {
  return key(`${words} ${client.name}`, h("button", { type: "button", class: kind, "aria-label": `${words}: ${client.name}`, onclick }, words));
}

/** A new client with its first key. */
function make(session, teams, again) {
  const models = session?.models ?? [];
  dialog("New key", "Make the key", [
    field("Name", h("input", { name: "name", required: true, autocomplete: "off", spellcheck: "false", maxlength: "64" }), "Whose key it is. The ledger shows this name."),
    chosen("Role", "role", ROLES, "client"),
    models.length ? h("fieldset", { class: "checks" }, h("legend", {}, "Models (none chosen: all)"), models.map((name) => h("label", {}, h("input", { type: "checkbox", name: "models", value: name }), name))) : null,
    field("Expires", h("input", { name: "expires", type: "date" }), "Refused from the beginning of that day (UTC) on. Empty: never."),
    settingsFields({}, teams),
  ], async (form) => {
    const body = { name: form.get("name").trim(), role: form.get("role") };
    const chosen = form.getAll("models");
    if (chosen.length) body.models = chosen;
    if (form.get("expires")) body.expires = form.get("expires");
    Object.assign(body, Object.fromEntries(Object.entries(chosenIn(form)).filter(([, value]) => value !== null)));
    const made = await send("POST", "keys", body);
    again();
    return shownOnce(made.name, made.key);
  });
}

function change(client, teams, again) {
  dialog(`Change ${client.name}`, "Save", [
    h("p", { class: "soft" }, "This holds for all keys of the client, on all replicas, from its next call on. An empty limit: none. What is used already counts."),
    settingsFields(client, teams),
  ], async (form) => {
    const patch = Object.fromEntries(Object.entries(chosenIn(form)).filter(([name, value]) => value !== setOf(client, name)));
    if (Object.keys(patch).length) {
      await send("PATCH", `keys/${encodeURIComponent(client.name)}`, patch);
      tell(`${client.name} is changed`);
      again();
    }
    return null;
  });
}

function rotate(client, again) {
  dialog(`Rotate the key of ${client.name}`, "Make a new key", [
    h("p", {}, "The client gets a new key with the same settings."),
    chosen("The old ones end", "grace_s", GRACES, 3600),
    h("p", { class: "soft" }, "What runs with a key when it ends is cancelled."),
  ], async (form) => {
    const made = await send("POST", `keys/${encodeURIComponent(client.name)}/rotate`, { grace_s: Number(form.get("grace_s")) });
    again();
    return shownOnce(made.name, made.key);
  });
}

function revoke(client, again) {
  const typed = h("input", { name: "typed", autocomplete: "off", spellcheck: "false", required: true, oninput: () => typed.setCustomValidity(typed.value === client.name ? "" : `Type ${client.name}`) });
  typed.setCustomValidity(`Type ${client.name}`);
  dialog(`Revoke all keys of ${client.name}`, "Revoke", [
    h("p", {}, "All its keys end at once, on all replicas, and its running calls are cancelled. This cannot be undone."),
    field(`Type ${client.name} to confirm`, typed),
  ], async () => {
    await send("DELETE", `keys/${encodeURIComponent(client.name)}`);
    tell(`The keys of ${client.name} are revoked`);
    again();
    return null;
  }, "danger solid");
}

/** What a dialog shows once a key is made. */
function shownOnce(name, text) {
  const shown = h("input", { class: "key", readonly: true, value: text, "aria-label": `The new key of ${name}`, onfocus: (event) => event.target.select() });
  return [h("p", {}, "This is the only time it is shown: the gateway keeps nothing but its SHA-256. Copy it now."), h("div", { class: "once" }, shown, copies(text, "Copy the key"))];
}

/**
 * A modal form. `submit(data)` does it, and returns null when all is done, or what to show after it. What the gateway
 * says against it is shown in the form, which stays as it is.
 */
function dialog(title, words, fields, submit, kind = "primary") {
  const before = document.activeElement?.dataset?.key ?? null;
  const said = h("p", { class: "bad", role: "alert" });
  const go = h("button", { type: "submit", class: kind }, words);
  const form = h("form", { method: "dialog", onsubmit: carryOut }, h("h2", { id: "dialog-title" }, title), fields, said,
    h("div", { class: "controls" }, h("button", { type: "button", class: "quiet", onclick: () => box.close() }, "Cancel"), go));
  const box = h("dialog", { "aria-labelledby": "dialog-title", onclose: gone }, form);
  document.body.append(box);
  box.showModal();

  async function carryOut(event) {
    event.preventDefault();
    go.disabled = true;
    fill(said);
    try {
      const after = await submit(new FormData(form));
      if (after === null) box.close();
      else {
        box.addEventListener("cancel", (each) => each.preventDefault()); // a key is not lost by Escape
        box.className = "shown";
        fill(box, h("h2", { id: "dialog-title" }, title), after, h("div", { class: "controls" }, h("button", { type: "button", onclick: () => box.close() }, "Done")));
        box.querySelector("input")?.focus();
      }
    } catch (error) {
      fill(said, error.message);
      go.disabled = false;
    }
  }

  function gone() {
    box.remove();
    if (before) document.querySelector(`[data-key="${CSS.escape(before)}"]`)?.focus();
  }
}

function chosen(words, name, options, first, hint = null) {
  return field(words, h("select", { name }, options.map(([value, label]) => h("option", { value, selected: value === first }, label))), hint);
}

function field(words, input, hint = null) {
  return h("label", { class: "field" }, h("span", {}, words), input, hint ? h("small", { class: "soft" }, hint) : null);
}

/** What a form sets besides the client's name, role and models: settings by name; null: the default. */
function chosenIn(form) {
  const text = (name) => form.get(name) || null;
  const number = (name) => (form.get(name) === "" ? null : Number(form.get(name)));
  return { team: text("team"), profile: text("profile"), priority: number("priority") || null, ...Object.fromEntries(LIMITS.map(([name]) => [name, number(name)])) };
}

/** The same of a client. */
function setOf(client, name) {
  return name === "priority" ? client.priority || null : client[name] ?? null;
}

/** Whose limits also count, how its calls are raced, what comes first under overload, and the client's own limits. */
function settingsFields(client, teams) {
  const named = client.team && !teams.includes(client.team) ? [...teams, client.team] : teams;
  return h("div", { class: "columns" },
    named.length ? chosen("Team", "team", [["", "none"], ...named.map((each) => [each, each])], client.team ?? "", "Its calls also count against this team's limits.") : null,
    chosen("Profile", "profile", PROFILES, client.profile ?? "", "How its calls are raced."),
    field("Priority", h("input", { name: "priority", type: "number", step: "1", value: client.priority || "", placeholder: "0" }), "Under overload, calls of a higher one are served first."),
    LIMITS.map(([name, words, step]) => field(words, h("input", { name, type: "number", min: step === "1" ? "1" : "0", step, inputmode: step === "1" ? "numeric" : "decimal", value: client[name] ?? "", placeholder: "no limit" }))));
}

function day(iso) {
  return new Date(iso).toLocaleDateString([], { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
}
