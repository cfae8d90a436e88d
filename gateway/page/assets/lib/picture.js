// What the picture of an attempt consists of: for the lanes of Live, which are painted, for the page of a call, and for
// the legend of both. Hatched is what was cut, and nothing else.

import { h } from "./dom.js";

const SHORTLY_MS = 20; // after another one has won: the time that a cut takes to be told of

/** By kind of part its words: `token`, `fails` and `claim` are points in time, the others last. */
const SIGNS = { waits: "waiting", token: "first token", won: "answer", cut: "cancelled", watched: "lost, watched on", fails: "failed", claim: "the client's first token" };

/**
 * The parts of an attempt: [{kind, from, to}], of points [{kind, at}]. Its `begin`, `first` token (null: none) and `end` are
 * in ms on one clock, as is `won`, when another one had won (null: none); `state` is that of lib/races.js; `isOver` tells
 * whether it has ended. `stub` ms before a cut are hatched where there was no token to cut.
 */
export function partsOf({ begin, first, end, state, isOver, won, stub }) {
  const launch = { kind: "launch", at: begin };
  const stops = (at) => [{ kind: "cut", from: Math.max(begin, at - stub), to: at }, { kind: "stops", at }];
  if (won !== null && (state === "cut" || state === "waiting") && (first ?? end) - won > SHORTLY_MS) {
    return [launch, { kind: "waits", from: begin, to: won }, ...stops(won), { kind: "watched", from: won, to: first ?? end }];
  }
  const parts = [launch, { kind: "waits", from: begin, to: first ?? end }];
  if (first !== null) parts.push({ kind: state === "cut" ? "cut" : "won", from: first, to: end }, { kind: "token", at: first });
  if (state === "cut" && isOver) parts.push(...(first === null ? stops(end) : [{ kind: "stops", at: end }]));
  if (state === "failed" && isOver) parts.push({ kind: "fails", at: end });
  return parts;
}

/** Whether an attempt that has lost goes on, watched to its first token: its parts say so. */
export function isWatched(parts) {
  return parts.some((each) => each.kind === "watched");
}

/** What the signs mean, but those `without`. */
export function legend(...without) {
  return h("p", { class: "signs", "aria-hidden": "true" }, Object.entries(SIGNS).filter(([kind]) => !without.includes(kind)).map(([kind, words]) =>
    h("span", { class: "entry" }, h("i", { class: `sign ${kind}` }), words)));
}
