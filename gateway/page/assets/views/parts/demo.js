// The demo says that it is one, and offers traffic: this page then calls for a minute, so that there is something to see.

import { chat } from "../../lib/chat.js";
import { h, say } from "../../lib/dom.js";
import { counted } from "../../lib/format.js";
import { narrowedWords } from "../../lib/words.js";

const PER_SECOND = 3;
const CALLS = 180; // one minute
const MOST_AT_ONCE = 4; // a browser has six connections to a host, and the page needs some itself
const MOST_TOKENS = 32;
const PROMPTS = ["Why race?", "Name three rivers.", "What is a holeshot?", "Who was fast today?", "Say hello.", "Why is the sky blue?"];

/** Calls of this page. They go on while other views are looked at; the event `changed` tells of each. */
export class Traffic extends EventTarget {
  constructor(model) {
    super();
    this.model = model;
    this.running = false;
    this.sent = 0;
    this.failed = 0;
    this.alone = new Map(); // why calls had one attempt, "" if nobody said → how many
    this.due = 0; // calls that wait until another one has ended
    this.open = 0; // calls that have not ended
    this.timer = null;
  }

  start() {
    if (this.running) return;
    [this.sent, this.failed, this.due, this.running] = [0, 0, 0, true];
    this.alone.clear();
    this.next();
  }

  /** Send no more. Calls that run end by themselves. */
  stop() {
    clearTimeout(this.timer);
    this.running = false;
    this.tell();
  }

  next() {
    this.due += 1;
    this.send();
    // Callers do not wait for each other, so the time between two calls is exponential.
    this.timer = setTimeout(() => this.next(), (-Math.log(1 - Math.random()) * 1000) / PER_SECOND);
  }

  async send() {
    if (!this.running || !this.due || this.open >= MOST_AT_ONCE) return;
    const prompt = PROMPTS[this.sent % PROMPTS.length];
    this.due -= 1;
    this.sent += 1;
    this.open += 1;
    if (this.sent === CALLS) this.stop();
    this.tell();
    try {
      await this.ask(prompt);
    } catch {
      this.failed += 1;
    }
    this.open -= 1;
    this.tell();
    this.send();
  }

  /** One call; it counts only where it was sent. Rejects if it fails. */
  ask(content = PROMPTS[0]) {
    return chat({ model: this.model, stream: true, max_tokens: MOST_TOKENS, messages: [{ role: "user", content }] }, {
      said: () => {},
      begun: (id, headers) => {
        if (headers.get("x-holeshot-launched") !== "1") return;
        const why = headers.get("x-holeshot-narrowed") ?? "";
        this.alone.set(why, (this.alone.get(why) ?? 0) + 1);
      },
    });
  }

  tell() {
    this.dispatchEvent(new Event("changed"));
  }
}

/** What the demo is, and a button that starts and stops its traffic. */
export function offer(traffic) {
  const words = h("p", {});
  const button = h("button", { type: "button", onclick: () => (traffic.running ? traffic.stop() : traffic.start()) });
  const element = h("div", { class: "demo", role: "group", "aria-label": "Demo" }, words, button);
  let isShown = false;

  function draw() {
    isShown ||= element.isConnected;
    if (isShown && !element.isConnected) traffic.removeEventListener("changed", draw);
    const more = `${traffic.failed ? `, ${traffic.failed} failed` : ""}${lone(traffic.alone)}`;
    if (traffic.running) say(words, `Demo traffic: ${traffic.sent} of ${counted(CALLS, "call")}${more}.`);
    else if (traffic.sent) say(words, `Demo traffic: ${counted(traffic.sent, "call")} sent${more}.`);
    else say(words, "This is the demo: no provider key was found, so simulated providers race.");
    say(button, traffic.running ? "Stop" : traffic.sent ? "Send more" : `Send ${PER_SECOND} calls a second for a minute`);
    button.className = traffic.running || traffic.sent ? "" : "primary";
  }

  traffic.addEventListener("changed", draw);
  draw();
  return element;
}

/** How many calls had one attempt, and why: `, 7 with one attempt (no rival worth it 4, cooling 3)`. */
function lone(alone) {
  const all = [...alone.values()].reduce((sum, each) => sum + each, 0);
  const why = [...alone].filter(([reason]) => reason).map(([reason, times]) => `${narrowedWords(reason)} ${times}`);
  return all ? `, ${all} with one attempt${why.length ? ` (${why.join(", ")})` : ""}` : "";
}
