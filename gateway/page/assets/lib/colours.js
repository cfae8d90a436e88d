// The colours of deployments: dealt out by name, the same in every view and after a reload.

const SLOTS = 11; // --series-0 … in style.css
const DISTINCT = 8; // of them: nobody takes one of the others for these
const KEPT = "holeshot.colours";

const dealt = new Map(); // name → slot
for (const [name, slot] of Object.entries(remembered())) dealt.set(name, slot);

/** The colour of a deployment as a CSS value. A slot that another name holds is passed over while some are free. */
export function colourOf(name) {
  let slot = dealt.get(name);
  if (slot === undefined) {
    const taken = new Set(dealt.values());
    const first = hashed(name) % DISTINCT;
    const order = Array.from({ length: SLOTS }, (_, at) => (at < DISTINCT ? (first + at) % DISTINCT : at));
    slot = order.find((each) => !taken.has(each)) ?? first;
    dealt.set(name, slot);
    remember();
  }
  return `var(--series-${slot})`;
}

let probe = null;
let resolvedColours = new Map();

/** A CSS colour as a canvas takes it: variables and light-dark() resolved for the present theme. */
export function resolved(colour) {
  let found = resolvedColours.get(colour);
  if (found === undefined) {
    if (probe === null) {
      probe = document.createElement("span");
      probe.hidden = true;
      document.body.append(probe);
    }
    probe.style.color = colour;
    found = getComputedStyle(probe).color;
    resolvedColours.set(colour, found);
  }
  return found;
}

/** Call `changed` when the theme changes, by the switch or the system; returns how to stop. */
export function onTheme(changed) {
  window.addEventListener("holeshot:theme", changed);
  return () => window.removeEventListener("holeshot:theme", changed);
}

/** Tell everybody that the theme is another. */
export function themeChanged() {
  resolvedColours = new Map();
  window.dispatchEvent(new CustomEvent("holeshot:theme"));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);

function hashed(text) {
  let value = 2166136261; // FNV-1a
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 16777619) >>> 0;
  return value;
}

function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT) ?? "{}");
    return Object.fromEntries(Object.entries(kept).filter(([, slot]) => Number.isInteger(slot) && slot >= 0 && slot < SLOTS));
  } catch {
    return {};
  }
}

function remember() {
  if (dealt.size > 200) return; // names that nobody asks for any more would stay for ever
  try {
    localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(dealt)));
  } catch {
    // then they hold until the next reload
  }
}
