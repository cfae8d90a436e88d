// The colours of deployments: by name, the same in every view and for everybody who looks.

const SLOTS = 11; // --series-0 … in style.css
const DISTINCT = 8; // of them: nobody takes one of the others for these

const dealt = new Map(); // name → slot

/**
 * Deal colours out to the deployments that are configured: to each that of its name, or where a name before it in the
 * alphabet has that one, the next that is free.
 */
export function deal(names) {
  dealt.clear();
  for (const name of [...new Set(names)].sort()) {
    const taken = new Set(dealt.values());
    const first = usual(name);
    const order = Array.from({ length: SLOTS }, (_, at) => (at < DISTINCT ? (first + at) % DISTINCT : at));
    dealt.set(name, order.find((each) => !taken.has(each)) ?? first);
  }
}

/** The colour of a deployment as a CSS value; one that is not configured has that of its name. */
export function colourOf(name) {
  return `var(--series-${dealt.get(name) ?? usual(name)})`;
}

function usual(name) {
  return hashed(name) % DISTINCT;
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
