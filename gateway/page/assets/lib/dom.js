// Elements from plain calls. Children are nodes or text: nothing is ever parsed as HTML.

/** Make an element: `h("a", {href: "#/live", onclick: f}, "text", node, [more])`. Null children are left out. */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function s(tag, props = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

/** Replace what `element` holds. */
export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

/** Set the text of `element` if it is another, so that nothing is painted or announced again. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
  return element;
}

/** Say something in a few words to everybody, also to screen readers; it goes away by itself. */
export function tell(words, kind = "") {
  const place = document.getElementById("told");
  const note = h("p", { class: `note ${kind}` }, words);
  place.append(note);
  setTimeout(() => note.remove(), 6000);
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...present(children));
  return element;
}

function present(children) {
  return children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);
}
