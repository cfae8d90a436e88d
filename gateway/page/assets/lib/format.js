// Figures as people read them. Unknown is a dash, never zero.

export const NOTHING = "–";

/** How clocks are written: by `hour12: false` the hour after midnight would be the 24th in some languages. */
export const CLOCK = { hourCycle: "h23" };

function known(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** Milliseconds: `87 ms`, `1.24 s`, `2 min 5 s`. */
export function ms(value) {
  if (!known(value)) return NOTHING;
  const size = Math.abs(value);
  if (size < 9.95) return `${value.toFixed(1)} ms`;
  if (size < 999.5) return `${Math.round(value)} ms`;
  if (size < 59_950) return `${(value / 1000).toFixed(size < 9_995 ? 2 : 1)} s`;
  const seconds = Math.round(size / 1000);
  return `${value < 0 ? "−" : ""}${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** Tokens per second. */
export function tps(value) {
  return known(value) ? `${value < 9.95 ? value.toFixed(1) : Math.round(value)} tok/s` : NOTHING;
}

/** US dollars, with as many digits as small sums need. */
export function usd(value) {
  if (!known(value)) return NOTHING;
  if (value === 0) return "$0";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size < 1e-7) return `${sign}<$0.0000001`;
  if (size >= 100) return `${sign}$${grouped(size)}`;
  const digits = size >= 0.995 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(size)));
  return `${sign}$${size.toFixed(digits)}`;
}

/** A share of one: `4.2 %`. */
export function percent(value) {
  if (!known(value)) return NOTHING;
  const hundredth = value * 100;
  return `${hundredth !== 0 && Math.abs(hundredth) < 9.95 ? hundredth.toFixed(1) : Math.round(hundredth)} %`;
}

/** A rate with one decimal below ten: `4.2`, `517`. */
export function rate(value) {
  return known(value) ? (value !== 0 && value < 9.95 ? value.toFixed(1) : grouped(value)) : NOTHING;
}

/** A count: `12,345`. */
export function count(value) {
  return known(value) ? grouped(value) : NOTHING;
}

/** A count of tokens: `~12,345` where `source` says that they are estimated, not counted by the provider. */
export function tokens(value, source) {
  return known(value) ? `${source === "estimated" ? "~" : ""}${grouped(value)}` : NOTHING;
}

/** `1 call`, `2 calls`. */
export function counted(value, one, many = `${one}s`) {
  return `${Number.isInteger(value) ? count(value) : value} ${value === 1 ? one : many}`;
}

/** A time of today as `14:03:22`, else with its day; the viewer's own zone. */
export function time(iso) {
  if (!iso) return NOTHING;
  const at = new Date(iso);
  const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", ...CLOCK });
  return at.toDateString() === new Date().toDateString() ? clock : `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${clock}`;
}

/** Seconds as a span of time: `45 s`, `3 min`, `2 h`, `4 d`. */
export function span(seconds) {
  if (!known(seconds)) return NOTHING;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129_600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} d`;
}

/** A formatted figure as its number and its unit: `["87", "ms"]`; the unit is "" if it has none. */
export function parted(text) {
  const cut = text.search(/ (?:ms|s|tok\/s|%)$/);
  return cut < 0 ? [text, ""] : [text.slice(0, cut), text.slice(cut + 1)];
}

function grouped(value) {
  return Math.round(value).toLocaleString("en-US");
}
