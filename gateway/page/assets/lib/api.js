// The gateway's read API. All addresses are relative: the page may lie under a prefix.

/** What the gateway answered when it was not 2xx: `status`, and its own words as `message`. */
export class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** The address of `path` below api/, with the names of `query` that have a value. */
export function address(path, query = {}) {
  const asked = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(asked).toString();
  return `api/${path}${text ? `?${text}` : ""}`;
}

/** GET as JSON. Throws an ApiError; a 401 also raises the event `holeshot:signed-out` on `window`. */
export async function get(path, query = {}, { signal } = {}) {
  return await read(await fetch(address(path, query), { headers: { accept: "application/json" }, signal }));
}

/** POST, PATCH or DELETE with a JSON body; null when the answer has none. */
export async function send(method, path, body = undefined) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  return await read(await fetch(address(path), { method, headers, body: body === undefined ? undefined : JSON.stringify(body) }));
}

async function read(response) {
  const text = await response.text();
  if (response.ok) return text ? JSON.parse(text) : null;
  let error = null;
  try {
    error = JSON.parse(text).error;
  } catch {
    // a proxy's page, perhaps
  }
  if (response.status === 401) window.dispatchEvent(new CustomEvent("holeshot:signed-out"));
  throw new ApiError(response.status, error?.message ?? `the gateway answered ${response.status}`, error?.code);
}
