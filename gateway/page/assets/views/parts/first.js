// The first visit: nobody has called yet. What to do, and a button that does it; the demo has its own.

import { chat } from "../../lib/chat.js";
import { fill, h } from "../../lib/dom.js";
import { copies } from "../../lib/figures.js";
import { failed } from "../../lib/states.js";
import { baseUrl } from "./snippets.js";

const PROMPTS = ["Why race?", "Name three rivers.", "What is a holeshot?"];
const APART_MS = 400;

/** Words for an empty ledger, with a button that sends three calls. */
export function first(session) {
  const trouble = h("div");
  const may = session.user.role !== "viewer" && session.models.length > 0 && !session.traffic;
  const button = h("button", { type: "button", class: "primary", onclick: send }, "Send three calls");

  async function send() {
    button.disabled = true;
    fill(trouble);
    const calls = PROMPTS.map(async (content, at) => {
      await new Promise((resolve) => setTimeout(resolve, at * APART_MS));
      await chat({ model: session.models[0], stream: true, messages: [{ role: "user", content }] }, { said: () => {} });
    });
    const failure = (await Promise.allSettled(calls)).find((each) => each.status === "rejected");
    if (failure) fill(trouble, failed(failure.reason));
    button.disabled = false;
  }

  return h("div", { class: "empty" }, h("h2", {}, "No call has come yet"),
    h("p", {}, "Point an OpenAI SDK at ", h("code", {}, baseUrl()), " ", copies(baseUrl),
      session.authentication === "key" ? " with a gateway key, " : " (any key), ",
      session.models.length ? ["and the model ", h("code", {}, session.models[0]), ". Each call appears here the moment it begins."] : "and name a model in the configuration file."),
    trouble, may ? h("div", { class: "controls" }, button) : null);
}
