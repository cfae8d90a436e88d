// The gateway's read API. All addresses are relative: the page may lie under a prefix.

import { searched } from "./route.js";

/** What the gateway answered when it was not 2xx: `status`, and its own words as `message`. Status 0: no answer. */
export class ApiError extends Error {
  constructor(status, message, code, signIn = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.signIn = signIn; // where people sign in at a provider, if they can
  }
}

/** The address of `path` below api/, with the names of `query` that have a value. */
export function address(path, query = {}) {
  const text = searched(query);
  return `api/${path}${text ? `?${text}` : ""}`;
}

/** GET as JSON. Throws an ApiError; a 401 also raises the event `holeshot:signed-out` on `window`. */
export async function get(path, query = {}, { signal } = {}) {
  return await read(await asked(address(path, query), { headers: { accept: "application/json" }, signal }));
}

/** POST, PATCH or DELETE with a JSON body; null when the answer has none. */
export async function send(method, path, body = undefined, { signal } = {}) {
  const headers = { accept: "application/json", "content-type": "application/json" };
  return await read(await asked(address(path), { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal }));
}

/** fetch() whose failure to reach the gateway is an ApiError too; an abort stays an AbortError. */
export async function asked(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The gateway does not answer. Is it running, and is the network up?");
  }
}

/** The ApiError that `response` stands for. */
export async function refusal(response) {
  let error = null;
  try {
    error = JSON.parse(await response.text()).error;
  } catch {
    // a proxy's page, perhaps
  }
  if (response.status === 401) window.dispatchEvent(new CustomEvent("holeshot:signed-out"));
  return new ApiError(response.status, error?.message ?? `The gateway answered ${response.status}.`, error?.code, response.headers.get("x-holeshot-sign-in"));
}

async function read(response) {
  if (!response.ok) throw await refusal(response);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}
