// What a client's file is written in, as tests/clients/case.py for Python: cases, and their outcomes as lines of JSON.

import { appendFileSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { isDeepStrictEqual } from "node:util";

const CASE_LIMIT_MS = 300_000; // it only ends what hangs
const CHARACTERS_OF_A_FAILURE = 600;
const WRONG = 5; // the turn in which something goes wrong, as in tests/clients/conversation.py

const FOLDER = process.env.CLIENTS_NODE;
const require = createRequire(join(FOLDER, "package.json"));

export const PNG_URL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAAAAAC4HznGAAAADklEQVR4nGNoaGhgAGIADAgDAcWhuYYAAAAASUVORK5CYII=";

/** Import a package from where the suite installed it. */
export async function load(name) {
  return import(pathToFileURL(require.resolve(name)).href);
}

export class Target {
  constructor(facts) {
    Object.assign(this, facts);
    this.openai = `${facts.url}${facts.base || "/v1"}`;
  }

  /** Return a model nobody asked for yet: what fails there is held against nobody else. */
  troubledModel(surface) {
    const name = unique("m");
    return this.troubled[surface].map((provider) => `${provider}/${name}`).join(",") || name;
  }
}

let number = 0;

/** Return a name that nobody else uses in this run. */
export function unique(word) {
  number += 1;
  return `${word}-${basename(process.argv[1], ".mjs")}-${number}`;
}

export function equal(seen, expected) {
  if (!isDeepStrictEqual(seen, expected)) {
    throw new Error(`${JSON.stringify(seen)} is not ${JSON.stringify(expected)}`);
  }
}

export function expect(condition, seen) {
  if (!condition) {
    throw new Error(`not as expected: ${JSON.stringify(seen)}`);
  }
}

/** Return the error that `call` is rejected with, which must be of `kind`. */
export async function raised(kind, call) {
  let seen;
  try {
    seen = await call();
  } catch (error) {
    if (error instanceof kind) {
      return error;
    }
    throw error;
  }
  throw new Error(`nothing was raised, but ${JSON.stringify(seen)} returned`);
}

export async function collected(stream) {
  const items = [];
  for await (const item of stream) {
    items.push(item);
  }
  return items;
}

export class Suite {
  constructor(client, packages) {
    this.client = client;
    this.version = packages.map((name) => versionOf(name, packages.length > 1)).join(", ");
    this.cases = [];
    this.conversations = [];
  }

  /** Add a conversation of ten turns in one API: `run` takes a target and a list of turns to iterate over. */
  conversation(api, title, run) {
    this.conversations.push({ api, title, run });
  }

  /** Add a case. `unsaid` is what some translation cannot say: it may be refused, by one of these words. */
  case(feature, title, run, { unsaid = [] } = {}) {
    this.cases.push({ feature, title, run, unsaid });
  }

  async main() {
    const [plan, results, flag, wanted = ""] = process.argv.slice(2);
    const { targets, turns } = JSON.parse(readFileSync(plan, "utf8"));
    if (turns) {
      await this.talk(targets, turns, wanted, results);
      process.exit(0);
    }
    for (const { feature, title, run, unsaid } of this.cases) {
      if (flag === "--case" && !title.includes(wanted)) {
        continue;
      }
      for (const target of targets.map((facts) => new Target(facts))) {
        if (target.translates && feature === "other endpoints") {
          continue;
        }
        const began = performance.now();
        const [outcome, why] = await outcomeOf(run, target, unsaid);
        const { client, version } = this;
        const entry = { client, version, feature, case: title, target: target.name, outcome, why };
        entry.seconds = Math.round(performance.now() - began) / 1000;
        appendFileSync(results, `${JSON.stringify(entry)}\n`);
      }
    }
    process.exit(0); // clients keep connections open
  }

  async talk(targets, turns, wanted, results) {
    for (const { api, title, run } of this.conversations.filter((talk) => talk.title.includes(wanted))) {
      for (const target of targets.map((facts) => new Target(facts))) {
        if (!target.apis.includes(api)) {
          continue;
        }
        const began = Date.now() / 1000;
        const { client, version } = this;
        const entry = { client, version, api, case: title, target: target.name, turn: 0, began };
        const error = await failureOf(() => run(target, new Turns(turns[target.name], entry)));
        entry.refused = error !== undefined && isRefusal(error, [""]);
        entry.why = error === undefined ? "" : wordsOf(error);
        entry.ended = Date.now() / 1000;
        appendFileSync(results, `${JSON.stringify(entry)}\n`);
      }
    }
  }
}

/** The answer is not that of a model that has seen the whole conversation. */
export class Lost extends Error {}

/** A conversation under way, as `Turns` of tests/clients/conversation.py. */
class Turns {
  constructor(turns, entry) {
    this.turns = turns;
    this.entry = entry;
    this.lost = "";
  }

  *[Symbol.iterator]() {
    for (const facts of this.turns) {
      this.entry.turn = facts.number;
      this.turn = { ...facts, endsWith: (said) => endsWith(facts, `${said}`.trim()) };
      this.isAgain = false;
      yield this.turn;
      if (this.isAgain) {
        yield { ...this.turn, cut: "" };
      }
    }
    if (this.lost) {
      throw new Lost(this.lost);
    }
  }

  /** Have a turn. If it may be lost it is said again after it, once; `said` gets back what it was before. */
  async held(said, work, isTooLong = () => false) {
    const before = said.length;
    this.first ??= before;
    try {
      await work();
    } catch (error) {
      const { long, goes, number, shows } = this.turn;
      if (long && !this.isAgain && isTooLong(error)) {
        said.length = this.first;
        this.isAgain = true;
        return;
      }
      if (this.isAgain || !goes || number !== WRONG) {
        throw error;
      }
      said.length = before;
      if (!shows) {
        this.lost = `turn ${number} was lost: ${wordsOf(error)}`;
        this.isAgain = true;
      } else if (!new RegExp(shows).test(wordsOf(error).toLowerCase())) {
        this.lost = `it does not show that it was filtered: ${wordsOf(error)}`;
      }
    }
  }
}

function endsWith({ ends, says, shows }, words) {
  if (shows || !(ends ? new RegExp(ends).test(words) : words === says)) {
    throw new Lost(`it says ${JSON.stringify(words)}, not ${JSON.stringify(says)}`);
  }
}

/** The tool of all conversations, as `forecast` of tests/clients/conversation.py. */
export function forecast({ city }) {
  const [name, letters] = city.split("/");
  return `rain in ${name}`.padEnd(Number(letters ?? 0), ".");
}

function versionOf(name, named) {
  const { version } = JSON.parse(readFileSync(join(FOLDER, "node_modules", name, "package.json"), "utf8"));
  return named ? `${name} ${version}` : version;
}

async function outcomeOf(run, target, unsaid) {
  const error = await failureOf(() => run(target));
  if (error === undefined) {
    return ["pass", ""];
  }
  return [target.translates && isRefusal(error, unsaid) ? "refused" : "fail", wordsOf(error)];
}

function wordsOf(error) {
  return `${error?.name}: ${error?.message}`.slice(0, CHARACTERS_OF_A_FAILURE);
}

/** Run something to its end, or for so long; return what it was rejected with, if it was. */
async function failureOf(run) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`it took longer than ${CASE_LIMIT_MS} ms`)), CASE_LIMIT_MS);
  });
  try {
    await Promise.race([run(), limit]);
    return undefined;
  } catch (error) {
    return error ?? new Error("it was rejected with nothing");
  } finally {
    clearTimeout(timer);
  }
}

function isRefusal(error, words) {
  const chain = [];
  for (let item = error; item && chain.length < 10; item = item.cause ?? item.lastError) {
    chain.push(item);
  }
  const status = chain.some((item) => item.status === 400 || item.statusCode === 400);
  return status && chain.some((item) => words.some((word) => `${item.message}`.includes(word)));
}
