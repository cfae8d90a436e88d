// Where we are: `#/name/param?filter=value`. Filters live in the address, so that a view can be linked to.

/** The view's name, its parameters, and its filters as URLSearchParams. */
export function where() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...params] = path.split("/").filter(Boolean).map(decoded);
  return { name: name ?? "", params, query: new URLSearchParams(query) };
}

/** The address of a view: `to("calls", [id])`, `to("calls", [], {model})`; filters without a value are left out. */
export function to(name, params = [], query = {}) {
  const text = searched(query);
  return `#/${[name, ...params].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Change filters of the present view without opening it again; Back undoes it. */
export function filter(changes) {
  const { name, params, query } = where();
  const next = to(name, params, { ...Object.fromEntries(query), ...changes });
  if (next === location.hash) return;
  history.pushState(history.state, "", next);
  window.dispatchEvent(new CustomEvent("holeshot:filtered"));
}

/** `query` as text, without what has no value. */
export function searched(query) {
  return new URLSearchParams(Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "")).toString();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
