// The playground: a prompt, its race while it runs, the answer as it comes, and the same call for a program.

import { get } from "../lib/api.js";
import { chat } from "../lib/chat.js";
import { fill, h } from "../lib/dom.js";
import { choice, copies, selects, stats } from "../lib/figures.js";
import { count, ms, tps, usd } from "../lib/format.js";
import { to } from "../lib/route.js";
import { empty, failed } from "../lib/states.js";
import { watch } from "./parts/running.js";
import { snippets } from "./parts/snippets.js";
import { timeline, worthOf } from "./parts/timeline.js";

const STORED_WITHIN_MS = 5000; // the end of a call is known at once, its costs too
const AGAIN_MS = 150;
const REASONS = { length: "cut at the limit of tokens", content_filter: "cut by the provider's content filter" };

/** Show it in `root` until closed. */
export function view(root, params, session, query) {
  const asked = { model: query.get("model") ?? session.models[0] ?? "", mode: "", stream: true };
  let language = "curl";
  let running = null; // what stops the present call
  let latest = null; // the same, kept after its end: what belongs to an earlier call is not drawn any more
  let frame = null;

  if (!session.models.length) {
    fill(root, title(), h("div", { class: "card" }, empty("No model is configured", "Name one under 'models:' in the configuration file; the page 'Providers' of the documentation shows how.")));
    return { close() {} };
  }

  const models = session.models.includes(asked.model) ? session.models : [asked.model, ...session.models]; // a link may name another
  const prompt = h("textarea", { rows: "5", name: "prompt", onkeydown: hurry }, query.get("prompt") ?? "Why do engineers race requests? Answer in three sentences.");
  const stream = h("input", { type: "checkbox", checked: true, onchange: () => change({ stream: stream.checked }) });
  const go = h("button", { type: "submit", class: "primary" }, "Send");
  const stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");
  const trouble = h("div");
  const answer = h("div", { class: "reply" });
  const race = h("div", { class: "inside" });
  const figures = h("div");
  const worth = h("p", { role: "status" });
  const link = h("div", { class: "controls" });
  const code = h("pre", { class: "code", tabindex: "0", "aria-label": "The same call for a program" });
  const isViewer = session.user.role === "viewer";
  go.disabled = isViewer;

  fill(root, title(), trouble,
    isViewer ? h("p", { class: "soft" }, "Your key may only look: calls need the key of an operator or an admin.") : null,
    h("div", { class: "play" },
      h("form", { class: "card", onsubmit: send }, h("div", { class: "inside fields" },
        selects("Model", models, asked.model, (model) => change({ model })),
        selects("How", [["", "As configured"], ...Object.entries(session.modes)], "", (mode) => change({ mode })),
        h("label", { class: "field whole" }, "Prompt", prompt),
        h("label", { class: "check" }, stream, "Stream the answer"),
        h("div", { class: "controls" }, stop, go))),
      h("section", { class: "card", "aria-labelledby": "play-answer" }, h("header", {}, h("h2", { id: "play-answer" }, "Answer"), link), h("div", { class: "inside" }, answer))),
    h("section", { class: "card", "aria-labelledby": "play-race" }, h("header", {}, h("h2", { id: "play-race" }, "The race"), worth), figures, race),
    h("section", { class: "card", "aria-labelledby": "play-code" },
      h("header", {}, h("h2", { id: "play-code" }, "The same for a program"),
        h("div", { class: "controls" }, choice("Language", { curl: "curl", Python: "Python", Node: "Node" }, language, (chosen) => {
          language = chosen;
          tellCode();
        }), copies(() => code.textContent))),
      h("div", { class: "inside" },
        session.authentication === "key" ? h("p", { class: "soft" }, "It reads a key of the gateway from the environment: ", h("code", {}, "export HOLESHOT_KEY=hs-…")) : null,
        code)));
  prompt.addEventListener("input", tellCode);
  fill(answer, h("p", { class: "soft" }, "Nothing was asked yet."));
  fill(race, h("p", { class: "soft" }, "Who is asked, who answers first and who is cancelled is drawn here while it happens."));
  tellCode();

  function change(changes) {
    Object.assign(asked, changes);
    tellCode();
  }

  function body() {
    const found = { model: asked.model, messages: [{ role: "user", content: prompt.value }], stream: asked.stream };
    return asked.mode ? { ...found, race: { mode: asked.mode } } : found;
  }

  function tellCode() {
    code.textContent = snippets(body(), session.authentication === "key")[language];
  }

  function hurry(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) go.form.requestSubmit();
  }

  async function send(event) {
    event.preventDefault();
    if (running || isViewer) return;
    const mine = new AbortController();
    running = latest = mine;
    let id = null;
    go.disabled = true;
    stop.hidden = false;
    fill(trouble);
    fill(figures);
    fill(worth);
    fill(link);
    fill(race, h("p", { class: "soft" }, "Asking …"));
    const [thoughts, text] = [h("p", { class: "soft", hidden: true }), h("p")];
    fill(answer, thoughts, text);
    answer.setAttribute("aria-busy", "true");
    const watched = await watch(asked.model);
    const draw = () => {
      const now = id === null ? null : watched.call(id);
      if (now) fill(race, timeline(now.call, now.attempts, now.nowMs));
      frame = requestAnimationFrame(draw);
    };
    draw();
    const tools = [];
    try {
      const reason = await chat(body(), {
        signal: mine.signal,
        begun: (found) => (id = found),
        said: (piece) => text.append(piece),
        thought: (piece) => {
          thoughts.hidden = false;
          thoughts.append(piece);
        },
        called: (at, name, piece) => {
          tools[at] ??= answer.appendChild(h("p", {}, h("span", { class: "soft" }, "calls the tool ")));
          tools[at].append(name && piece ? `${name} ${piece}` : name ? `${name} ` : piece);
        },
      });
      if (reason in REASONS) text.append(h("span", { class: "soft" }, ` … ${REASONS[reason]}`));
      else if (!answer.textContent) text.append(h("span", { class: "soft" }, "The answer is empty."));
    } catch (error) {
      if (error.name === "AbortError") text.append(h("span", { class: "soft" }, " … stopped"));
      else if (error.status !== 401) fill(trouble, failed(error));
    }
    cancelAnimationFrame(frame);
    answer.removeAttribute("aria-busy");
    running = null;
    go.disabled = false;
    if (document.activeElement === stop) go.focus(); // what is hidden has no focus
    stop.hidden = true;
    const isLatest = () => latest === mine && root.isConnected;
    if (id !== null && isLatest()) await conclude(id, watched, isLatest);
    watched.close();
  }

  /** Draw the call as it was recorded, with what it cost. */
  async function conclude(id, watched, isLatest) {
    const last = watched.call(id);
    if (last) fill(race, timeline(last.call, last.attempts, last.nowMs));
    fill(link, h("a", { class: "button", href: to("calls", [id]) }, "Open the call"));
    for (const end = Date.now() + STORED_WITHIN_MS; Date.now() < end && isLatest();) {
      const found = await get(`calls/${id}`).catch(() => null);
      if (!isLatest()) return;
      if (found && found.source !== "running") {
        const { call, attempts } = found;
        const winner = attempts.find((each) => each.id === call.winner_attempt_id);
        fill(race, timeline(call, attempts, null));
        fill(worth, worthOf(call, attempts));
        fill(figures, stats(
          ["First token", ms(call.ttft_ms), winner ? winner.deployment : "no deployment answered"],
          ["Whole answer", ms(call.total_ms), `${count(call.launched)} asked`],
          ["Speed", tps(winner?.decode_tps), `${count(call.completion_tokens)} tokens`],
          ["Cost", usd(call.cost_usd), call.duplicate_cost_usd ? `${usd(call.duplicate_cost_usd)} of it by racing` : ""],
        ));
        if (attempts.length >= call.launched) return; // a loser may end after its call
      }
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  return {
    close() {
      running?.abort();
      cancelAnimationFrame(frame);
    },
  };
}

function title() {
  return h("header", { class: "head" }, h("h1", {}, "Playground"), h("p", {}, "A call like any other: it is raced, limited, priced and recorded"));
}
