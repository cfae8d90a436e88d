// Signing in: a key is exchanged for a cookie, which no script can read.

import { send } from "../lib/api.js";
import { fill, h } from "../lib/dom.js";
import { failed } from "../lib/states.js";

/** Ask for a key in `root`, and call `done()` when the gateway has taken it. `words`: why it is asked for again; `provider`: where people sign in without one. */
export function view(root, { words, provider, done }) {
  const trouble = h("div");
  const key = h("input", {
    id: "key", name: "key", type: "password", required: true, autocomplete: "current-password", autocapitalize: "none", spellcheck: "false",
    "aria-describedby": "whose",
  });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  // Password managers keep a key under a name.
  const name = h("input", { name: "username", autocomplete: "username", value: "holeshot", hidden: true });

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    fill(trouble);
    try {
      await send("POST", "session", { key: key.value });
    } catch (error) {
      fill(trouble, failed(error));
      button.disabled = false;
      key.select();
      return;
    }
    await done();
    root.focus({ preventScroll: true }); // what had the focus is gone
  }

  fill(root, h("section", { class: "login card", "aria-labelledby": "sign-in" }, h("form", { class: "inside", onsubmit: submit },
    h("h1", { id: "sign-in" }, "Sign in"),
    words ? h("p", { role: "status" }, words) : null,
    trouble,
    provider ? h("p", {}, h("a", { class: "button primary", href: provider }, "Sign in with your account")) : null,
    name,
    h("label", { class: "field", for: "key" }, "Gateway key", key),
    button,
    h("p", { id: "whose", class: "soft" },
      "The key of an admin, an operator, or a viewer, who only looks. ", h("code", {}, "holeshot keys new NAME --role viewer"), " makes one."),
  )));
  key.focus();
  return { close() {} };
}
