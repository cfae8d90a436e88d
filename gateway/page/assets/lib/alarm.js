// The chip beside the navigation that counts open alerts, whatever view is shown.

import { get } from "./api.js";
import { fill, h } from "./dom.js";
import { counted } from "./format.js";
import { to } from "./route.js";

const EVERY_MS = 60_000;

/** Keep the number of open alerts in `place` while it is on the page. */
export async function alarm(place) {
  try {
    const { open } = await get("alerts");
    const now = open.some((each) => each.severity === "page");
    fill(place, open.length ? h("a", { class: now ? "chip bad" : "chip", href: to("alerts") }, counted(open.length, "alert")) : null);
  } catch {
    // the views say that the gateway is away
  }
  setTimeout(() => place.isConnected && alarm(place), EVERY_MS);
}
