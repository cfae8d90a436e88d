// The colours of deployments: the same in every view and for everybody who looks.

const SLOTS = 11; // --series-0 … in style.css

const dealt = new Map(); // name → slot

/** Deal colours out to the deployments that are configured, in their order: those that race each other are together. */
export function deal(names) {
  dealt.clear();
  [...new Set(names)].forEach((name, at) => dealt.set(name, at % SLOTS));
}

/** The colour of a deployment as a CSS value; one that is not configured has one by its name. */
export function colourOf(name) {
  return `var(--series-${dealt.get(name) ?? hashed(name) % SLOTS})`;
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
