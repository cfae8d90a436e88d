// A place that loads: it waits without a jump, says what went wrong with a way to try again, and refreshes in place.

import { fill, h } from "./dom.js";

const SOON_MS = 2000; // until somebody is asked for patience
const AGAIN_MS = 5000; // until what failed for now is tried again

/** Lines that stand for what is coming. */
export function waiting(lines = 5) {
  return h("div", { class: "waiting", "aria-busy": "true" }, h("span", { class: "unseen" }, "Loading"),
    Array.from({ length: lines }, () => h("span", { "aria-hidden": "true" })));
}

/** What went wrong, in the gateway's words, and a button for another try. */
export function failed(error, again = null) {
  return h("div", { class: "failed", role: "alert" }, h("p", {}, error.message),
    again ? h("button", { type: "button", onclick: again }, "Try again") : null);
}

/** Nothing to show: says so, and what to do about it. */
export function empty(title, words, ...actions) {
  return h("div", { class: "empty" }, h("h2", {}, title), words ? h("p", {}, words) : null,
    actions.length ? h("div", { class: "controls" }, actions) : null);
}

/**
 * Load and show, and again every `everyMs` while the page is visible. `load(signal)` resolves to a value, `show(value)`
 * draws it. `place` shows lines while the first one loads, and errors above what was shown before; two places of a view
 * tell the same error once. What fails because the gateway or its database is away is tried again until it works.
 * `patience`: words that ask for it, for what may take many seconds.
 * Returns {again(), close()}; `again` also starts over at once, for other filters.
 */
export function watching(place, load, show, { everyMs = 0, lines = 5, patience = null } = {}) {
  const trouble = h("div");
  const body = h("div", {}, waiting(lines));
  fill(place, trouble, body);
  let timer = null;
  let running = null;
  let closed = false;
  let isAway = false;

  async function look() {
    clearTimeout(timer);
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const late = patience && setTimeout(() => fill(trouble, h("p", { class: "soft", role: "status" }, patience)), SOON_MS);
    try {
      const value = await load(mine.signal);
      if (mine.signal.aborted) return;
      fill(trouble);
      isAway = false;
      show(value, body);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (error.name !== "ApiError" && error.status === undefined) console.error(error);
      isAway = error.status === 0 || (error.status === 503 && error.code !== "report_too_slow");
      if (error.status !== 401) fill(trouble, isTold(error, trouble) ? null : failed(error, look));
      if (body.querySelector(":scope > .waiting")) fill(body);
    } finally {
      clearTimeout(late);
    }
    running = null;
    const waitMs = isAway ? AGAIN_MS : everyMs;
    if (waitMs && !closed && !document.hidden) timer = setTimeout(look, waitMs);
  }
  function seen() {
    if (!document.hidden && (everyMs || isAway) && running === null) look();
  }
  document.addEventListener("visibilitychange", seen);
  look();
  return {
    again: look,
    close() {
      closed = true;
      clearTimeout(timer);
      running?.abort();
      document.removeEventListener("visibilitychange", seen);
    },
  };
}

/** Whether another place of the view tells the same. */
function isTold(error, place) {
  return [...document.querySelectorAll("main .failed > p")].some((each) => !place.contains(each) && each.textContent === error.message);
}
