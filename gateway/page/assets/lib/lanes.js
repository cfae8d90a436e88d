// Draws races on a canvas: time runs from right to left, each call has a track, each attempt a lane in it.
// A canvas and not elements, so that five hundred calls a second move smoothly. What does not fit is counted, not drawn.

import { colourOf, onTheme, resolved } from "./colours.js";
import { CLOCK, ms, tokens, tps } from "./format.js";
import { isWatched, partsOf } from "./picture.js";
import { stateOf } from "./races.js";
import { attemptOutcome } from "./words.js";

// From roomy to dense: heights in pixels of a lane, between tracks, and of the answer's bar; whether each lane has words
// ("all"), a track has them once ("winner"), or there is no room for any.
const LEVELS = [
  { lane: 15, between: 12, bar: 7, words: "all" },
  { lane: 12, between: 6, bar: 6, words: "all" },
  { lane: 6, between: 6, bar: 4, words: "winner" },
  { lane: 5, between: 3, bar: 3, words: null },
  { lane: 3, between: 2, bar: 2, words: null },
];
const WIDE = 640; // pixels: from there on there is room for names and whole sentences
const AXIS = 22; // pixels at the foot
const MOST_LANES = 4; // of a track; further attempts share the last one
const APART = 14; // pixels between two calls of a track
const ROOMIER_EVERY_MS = 3000;
const STUB = 12; // pixels before a cut that are hatched
const SHORT_NAME = 62; // pixels of a name on a narrow canvas
const FONT = "11px ui-sans-serif, system-ui, sans-serif";

/** A picture of `races` on `canvas`. `shown(call)` filters; `window_ms` is the time that fits. */
export class Lanes {
  constructor(canvas, races, { window_ms, shown }) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: true });
    this.races = races;
    this.window_ms = window_ms;
    this.shown = shown;
    this.stopped_ms = null; // the time shown while paused
    this.chosen = null; // the id of the call that is pointed at
    this.visible = []; // calls in the picture, oldest first
    this.left_out = 0; // calls of the present window that found no track
    this.widths = new Map(); // text → pixels
    this.shorts = new Map(); // deployment → its name on a narrow canvas
    this.restart();
    this.resizing = new ResizeObserver(() => this.resize());
    this.resizing.observe(canvas);
    this.untheme = onTheme(() => this.draw());
    this.resize();
  }

  close() {
    this.resizing.disconnect();
    this.untheme();
  }

  /** Deal out the tracks again: for other filters, another window or another size. */
  restart(level = 0) {
    this.level = level;
    this.lanes = 2;
    this.tracks = [];
    this.next = 0;
    this.placed = new Map(); // call id → track, or -1
    this.tried_ms = 0;
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (width !== this.width || height !== this.height) {
      this.width = width;
      this.height = height;
      this.restart();
    }
    this.draw();
  }

  now() {
    return this.stopped_ms ?? this.races.now();
  }

  /** Draw the present. */
  draw() {
    if (!this.width) return;
    const now = this.now();
    const spec = LEVELS[this.level];
    this.isWide = this.width > WIDE;
    this.head = this.width - (spec.words ? this.roomAfter() : 20); // where now is
    this.scale = this.head / this.window_ms; // pixels a millisecond
    this.x = (at) => this.head + (at - now) * this.scale;
    this.place(now);
    const { context } = this;
    context.clearRect(0, 0, this.width, this.height);
    context.font = FONT;
    context.textBaseline = "middle";
    this.ink = {
      soft: resolved("var(--soft)"), line: resolved("var(--line)"), bad: resolved("var(--bad)"), ink: resolved("var(--ink)"), wash: resolved("var(--sunken)"),
    };
    if (this.visible.length + this.left_out > 0) this.axis(now); // nothing is compared with an axis alone
    for (const call of this.visible) this.call(call, now);
  }

  /** Find the calls of the present window, and give each a track. */
  place(now) {
    const from = now - this.window_ms - 1;
    this.visible = [];
    let missed = 0;
    for (const call of this.races.calls.values()) {
      if (call.at_ms > now || (call.ended_ms !== null && call.ended_ms < from && lastEnd(call, now) < from) || !this.shown(call)) continue;
      if (!this.placed.has(call.id)) this.placed.set(call.id, this.dealt(call, now));
      if (this.placed.get(call.id) < 0) missed += 1;
      else this.visible.push(call);
      const wanted = Math.min(MOST_LANES, call.attempts.length);
      if (wanted > this.lanes) {
        this.lanes = wanted; // tracks grow: all are dealt out again at the next frame
        this.placed.clear();
        this.tracks = [];
      }
    }
    this.left_out = missed;
    if (this.placed.size > 3 * (this.visible.length + missed) + 100) {
      for (const id of this.placed.keys()) if (!this.races.calls.has(id)) this.placed.delete(id);
    }
    if (missed > 0 && this.level < LEVELS.length - 1) this.restart(this.level + 1);
    else if (this.level > 0 && now - this.tried_ms > ROOMIER_EVERY_MS && this.stopped_ms === null) this.roomier(now);
  }

  /** Go back to a roomier level if all would fit there. */
  roomier(now) {
    const { level, lanes, tracks, next, placed } = this;
    this.restart(level - 1);
    this.lanes = lanes;
    const fits = this.visible.every((call) => {
      this.placed.set(call.id, this.dealt(call, now));
      return this.placed.get(call.id) >= 0;
    });
    if (!fits || this.left_out > 0) Object.assign(this, { level, lanes, tracks, next, placed });
    this.tried_ms = now;
  }

  /** The track for a call: the next one, in turn, whose last lane has ended long enough before; -1 if none is free. */
  dealt(call, now) {
    const count = Math.max(1, Math.floor((this.height - AXIS) / this.trackHeight()));
    const { words } = LEVELS[this.level];
    for (let tries = 0; tries < count; tries += 1) {
      const at = (this.next + tries) % count;
      const last = this.tracks[at];
      const room = (words ? this.before(call) + (last ? this.roomAfter() : 0) : 0) + APART;
      if (last !== undefined && lastEnd(last, now) + room / this.scale > call.at_ms) continue;
      this.tracks[at] = call;
      this.next = at + 1;
      return at;
    }
    return -1;
  }

  trackHeight() {
    const { lane, between } = LEVELS[this.level];
    return lane * this.lanes + between;
  }

  /** Pixels for the words behind a lane: on a narrow canvas they are one figure. */
  roomAfter() {
    return this.isWide ? 150 : 74;
  }

  /** Pixels for the names before a call's lanes. */
  before(call) {
    const { words } = LEVELS[this.level];
    if (!this.isWide) return words ? Math.max(0, ...call.attempts.map((each) => this.textWidth(this.nameOf(each)))) + 8 : 0;
    if (words !== "all") return 0;
    return Math.max(60, ...call.attempts.map((each) => this.textWidth(each.deployment))) + 8;
  }

  /** What an attempt is called in its lane: on a narrow canvas its provider, cut where it is long. */
  nameOf({ deployment }) {
    if (this.isWide) return deployment;
    let short = this.shorts.get(deployment);
    if (short === undefined) {
      const [provider] = deployment.split("/");
      short = provider;
      for (let length = provider.length - 1; this.textWidth(short) > SHORT_NAME && length > 1; length -= 1) short = `${provider.slice(0, length)}…`;
      if (this.shorts.size > 500) this.shorts.clear();
      this.shorts.set(deployment, short);
    }
    return short;
  }

  textWidth(text) {
    let width = this.widths.get(text);
    if (width === undefined) {
      this.context.font = FONT;
      width = this.context.measureText(text).width;
      if (this.widths.size > 500) this.widths.clear();
      this.widths.set(text, width);
    }
    return width;
  }

  /** The axis of time. */
  axis(now) {
    const { context, ink } = this;
    const foot = this.height - AXIS;
    const step = [1000, 2000, 5000, 10_000, 15_000, 30_000].find((each) => each * this.scale > 84) ?? 60_000;
    context.lineWidth = 1;
    context.textAlign = "center";
    for (let at = Math.floor(now / step) * step; at > now - this.window_ms; at -= step) {
      const x = Math.round(this.x(at)) + 0.5;
      context.strokeStyle = ink.line;
      stroke(context, x, 0, x, foot);
      context.fillStyle = ink.soft;
      if (x > 28) context.fillText(clock(at), x, this.height - AXIS / 2 + 2);
    }
    context.strokeStyle = ink.soft;
    stroke(context, Math.round(this.head) + 0.5, 0, Math.round(this.head) + 0.5, foot);
    context.setLineDash([2, 3]);
    context.strokeStyle = ink.bad;
    for (const { at_ms: at, dropped } of this.races.gaps) {
      const x = Math.round(this.x(at)) + 0.5;
      if (x < 0 || at > now) continue;
      stroke(context, x, 0, x, foot);
      context.fillStyle = ink.bad;
      context.textAlign = "left";
      context.fillText(`${dropped} events missed`, x + 4, 8);
    }
    context.setLineDash([]);
  }

  call(call, now) {
    const spec = LEVELS[this.level];
    const top = this.placed.get(call.id) * this.trackHeight() + spec.between / 2;
    if (call.id === this.chosen) {
      const left = this.x(call.at_ms) - 4;
      this.context.fillStyle = this.ink.wash;
      this.context.fillRect(left, top - 2, this.x(Math.min(now, lastEnd(call, now))) - left + 6, this.trackHeight() - spec.between + 4);
    }
    call.attempts.forEach((attempt, at) => this.attempt(call, attempt, top + (Math.min(at, this.lanes - 1) + 0.5) * spec.lane, now, spec));
    if (spec.words === "winner") this.told(call, top, now, spec);
  }

  attempt(call, attempt, y, now, spec) {
    const launched = call.at_ms + attempt.offset_ms;
    if (launched > now) return;
    const state = stateOf(attempt);
    const end = Math.min(now, endOf(call, attempt, now));
    const first = attempt.ttft_ms === null || launched + attempt.ttft_ms > now ? null : launched + attempt.ttft_ms;
    const isOver = state === "failed" ? end <= now : end < now;
    const parts = partsOf({ begin: launched, first, end, state, isOver, won: wonAt(call, attempt), stub: STUB / this.scale });
    for (const part of parts) this.part(part, resolved(colourOf(attempt.deployment)), y, spec.bar);
    if (spec.words === "all") this.words(call, attempt, { state, begin: this.x(launched), last: this.x(end), y, now, end, watched: isWatched(parts) });
  }

  /** Paint one part of an attempt's picture. */
  part({ kind, at, from, to }, colour, y, bar) {
    const { context } = this;
    const half = bar / 2;
    const line = (alpha) => { // waiting
      context.globalAlpha = alpha;
      context.fillRect(this.x(from), y - (bar > 3 ? 0.75 : 0.5), Math.max(1, this.x(to) - this.x(from)), bar > 3 ? 1.5 : 1);
      context.globalAlpha = 1;
    };
    context.fillStyle = colour;
    switch (kind) {
      case "launch": if (bar > 2) context.fillRect(this.x(at), y - half, 1, bar); break;
      case "waits": line(0.6); break;
      case "watched": line(0.25); break;
      case "won": context.fillRect(this.x(from), y - half, Math.max(1.5, this.x(to) - this.x(from)), bar); break;
      case "cut": hatch(context, colour, this.x(from), this.x(to), y, half); break;
      case "token": if (bar > 2) context.fillRect(this.x(at) - 1, y - half - 2, 2, bar + 4); break;
      case "stops": context.fillRect(this.x(at) - 0.5, y - half, 1, bar); break;
      case "fails": cross(context, this.ink.bad, this.x(at), y, Math.max(1.5, half)); break;
      default: break;
    }
  }

  words(call, attempt, { state, begin, last, y, now, end, watched = false }) {
    const { context, ink } = this;
    const name = this.nameOf(attempt);
    context.textAlign = "right";
    context.fillStyle = state === "won" ? ink.ink : ink.soft;
    if (begin - 6 > this.textWidth(name)) context.fillText(name, begin - 6, y + 0.5);
    context.textAlign = "left";
    context.fillStyle = state === "failed" ? ink.bad : state === "won" ? ink.ink : ink.soft;
    const age_ms = end < now ? null : now - call.at_ms - attempt.offset_ms;
    const words = watched ? "watched on" : this.isWide ? said(attempt, state, age_ms) : shortly(attempt, state, age_ms);
    if (last > -200) context.fillText(words, last + 8, y + 0.5);
  }

  /** Who answered and after what time, once for a call. */
  told(call, top, now, spec) {
    const at = call.attempts.findIndex((each) => ["won", "answering"].includes(stateOf(each)));
    if (at < 0) return;
    const winner = call.attempts[at];
    const { context, ink } = this;
    const last = this.x(Math.min(now, lastEnd(call, now)));
    if (last < -200) return;
    context.textAlign = "left";
    context.fillStyle = ink.ink;
    const [provider] = winner.deployment.split("/");
    const words = this.isWide && this.textWidth(provider) < 90 ? `${provider} ${ms(winner.ttft_ms)}` : ms(winner.ttft_ms);
    const y = top + (Math.min(at, this.lanes - 1) + 0.5) * spec.lane + 0.5;
    context.fillText(words, last + 8, y);
    const name = this.nameOf(winner);
    const begin = this.x(call.at_ms + winner.offset_ms) - 6;
    if (this.isWide || begin <= this.textWidth(name)) return; // where it is wide the name stands behind
    context.textAlign = "right";
    context.fillText(name, begin, y);
  }

  /** The call at a point of the canvas, in its own pixels; null if there is none. */
  at(x, y) {
    const track = Math.floor(y / this.trackHeight());
    const now = this.now();
    const found = this.visible.filter((call) => this.placed.get(call.id) === track
      && x >= this.x(call.at_ms) - 8 && x <= this.x(Math.min(now, lastEnd(call, now))) + 12);
    return found.at(-1) ?? null;
  }
}

/** What an attempt's lane says at its end; `age_ms` while it runs. */
export function said(attempt, state, age_ms) {
  const first = attempt.ttft_ms;
  switch (state) {
    case "waiting": return age_ms === null ? "" : `waiting ${ms(age_ms)}`;
    case "answering": return attempt.tokens ? `${tokens(attempt.tokens, "estimated")} tokens` : "first token";
    case "won": {
      const seconds = attempt.ms === null ? 0 : (attempt.ms - first) / 1000;
      return `answered, ${ms(first)}${attempt.tokens > 1 && seconds > 0.05 ? `, ${tps((attempt.tokens - 1) / seconds)}` : ""}`;
    }
    case "failed": return attemptOutcome({ outcome: attempt.outcome, error_kind: attempt.error }).words;
    default: return { superseded: "cancelled after its first token", client_gone: "client left" }[attempt.outcome] ?? "cancelled";
  }
}

/** The same where there is room for one figure only. */
function shortly(attempt, state, age_ms) {
  switch (state) {
    case "waiting": return age_ms === null ? "" : ms(age_ms);
    case "answering": case "won": return ms(attempt.ttft_ms);
    default: return state;
  }
}

/** When a lane ends; `now` while its attempt runs, which an audited loser does after its call's end. */
function endOf(call, attempt, now) {
  if (attempt.outcome === null) return call.lost || call.missed ? call.ended_ms ?? now : now;
  return attempt.ms === null ? call.ended_ms ?? now : call.at_ms + attempt.offset_ms + attempt.ms;
}

/** When the last lane of a call ends. */
function lastEnd(call, now) {
  return Math.max(call.ended_ms ?? now, ...call.attempts.map((each) => endOf(call, each, now)));
}

/** When another attempt won; null if none has. */
function wonAt(call, attempt) {
  const winner = call.attempts.find((each) => each !== attempt && (each.id === call.winner || ["won", "answering"].includes(stateOf(each))));
  return !winner || winner.ttft_ms === null ? null : call.at_ms + winner.offset_ms + winner.ttft_ms;
}

function stroke(context, x, y, toX, toY) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
}

function hatch(context, colour, from, to, y, half) {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = from; x < to; x += 4) {
    context.moveTo(x, y + half);
    context.lineTo(Math.min(to, x + half), y - half);
  }
  context.stroke();
}

function cross(context, colour, x, y, half) {
  context.strokeStyle = colour;
  context.lineWidth = 1.75;
  context.beginPath();
  context.moveTo(x - half, y - half);
  context.lineTo(x + half, y + half);
  context.moveTo(x - half, y + half);
  context.lineTo(x + half, y - half);
  context.stroke();
}

function clock(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", ...CLOCK });
}
