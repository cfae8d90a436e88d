// Figures as people read them. Unknown is a dash, never zero.

export const NOTHING = "–";

function known(value) {
  return value !== null && value !== undefined && Number.isFinite(value);
}

/** Milliseconds: `87 ms`, `1.24 s`, `2 min 5 s`. */
export function ms(value) {
  if (!known(value)) return NOTHING;
  if (value < 9.95) return `${value.toFixed(1)} ms`;
  if (value < 999.5) return `${Math.round(value)} ms`;
  if (value < 59_950) return `${(value / 1000).toFixed(value < 9_995 ? 2 : 1)} s`;
  return `${Math.floor(value / 60_000)} min ${Math.round((value % 60_000) / 1000)} s`;
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
  return `${value < 0 ? "−" : ""}$${size >= 100 ? grouped(size) : size >= 0.995 ? size.toFixed(2) : size.toPrecision(2).replace(/e.*/, "")}`;
}

/** A share of one: `4.2 %`. */
export function percent(value) {
  if (!known(value)) return NOTHING;
  const hundredth = value * 100;
  return `${hundredth !== 0 && Math.abs(hundredth) < 9.95 ? hundredth.toFixed(1) : Math.round(hundredth)} %`;
}

/** A count: `12,345`. */
export function count(value) {
  return known(value) ? grouped(value) : NOTHING;
}

/** `1 call`, `2 calls`. */
export function counted(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A time of today as `14:03:22`, else with its day; the viewer's own zone. */
export function time(iso) {
  if (!iso) return NOTHING;
  const at = new Date(iso);
  const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return at.toDateString() === new Date().toDateString() ? clock : `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${clock}`;
}

function grouped(value) {
  return Math.round(value).toLocaleString("en-US");
}
