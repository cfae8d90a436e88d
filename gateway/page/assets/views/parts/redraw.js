// Replaces a part of a view without taking away what its reader did there.

import { fill } from "../../lib/dom.js";

/**
 * Replace what `place` holds. What somebody opened or scrolled stays so, and the focus is where it was: in the element
 * with the same `data-key`. While text in it is selected, somebody is about to copy it, and nothing happens.
 */
export function redraw(place, ...children) {
  if (isSelected(place)) return;
  const focused = place.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  const opened = keyed(place, "details", (each) => each.open);
  const scrolled = keyed(place, "*", (each) => each.scrollLeft);
  fill(place, children);
  for (const each of place.querySelectorAll("[data-key]")) {
    const key = keyOf(each);
    if (opened.get(key)) each.open = true;
    if (scrolled.get(key)) each.scrollLeft = scrolled.get(key);
    if (key === focused) each.focus({ preventScroll: true });
  }
}

/** Name an element (of details also its summary), so that `redraw` knows it again. */
export function key(name, element) {
  element.dataset.key = name;
  if (element.tagName === "DETAILS") element.firstElementChild.dataset.key = `${name} summary`;
  return element;
}

function keyed(place, selector, of) {
  return new Map([...place.querySelectorAll(`${selector}[data-key]`)].map((each) => [keyOf(each), of(each)]));
}

function keyOf(element) {
  return element.dataset.key ?? null;
}

function isSelected(place) {
  const selection = getSelection();
  return Boolean(selection && !selection.isCollapsed && place.contains(selection.anchorNode));
}
