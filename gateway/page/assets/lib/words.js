// What codes of the ledger mean, in words.

import { time } from "./format.js";

const CALL_ERRORS = {
  all_providers_failed: "every provider failed",
  no_valid_answer: "no answer was valid",
  provider_misconfigured: "a provider's configuration is wrong",
  client_disconnected: "the client left",
  client_stalled: "the client stopped reading",
  key_revoked: "the key was revoked",
  key_expired: "the key expired",
  interrupted: "the gateway was stopped",
  internal_error: "an error of the gateway",
  context_length_exceeded: "the prompt is too long for every deployment",
  unsupported_by_deployments: "no deployment can do what was asked",
};

const ATTEMPT_ERRORS = {
  connect_error: "no connection",
  connect_timeout: "no connection in time",
  local_resources: "the gateway ran out of local resources",
  disconnected: "the connection was lost",
  ttft_timeout: "no first token in time",
  stall_timeout: "silent for too long",
  total_timeout: "not done in time",
  provider_auth: "the provider refused the key",
  not_found: "the provider does not know the model",
  no_such_api: "the provider has no such API",
  rate_limited: "rate limited",
  key_refused: "one key was refused, and its provider has another",
  form_refused: "one form of the request was refused, and there is another",
  bad_request: "the provider refused the request",
  server_error: "the provider's server failed",
  invalid_response: "the answer could not be read",
  stream_error: "an error in the middle of the stream",
  upstream_empty: "an empty answer",
  upstream_truncated: "the answer broke off",
  no_place: "a picture or sound, for which the client's API has no place",
  invalid_answer: "the answer was not valid",
};

const BROKE = { // what a deployment did, in the middle of its answer
  disconnected: "closed the connection",
  stall_timeout: "was silent for too long",
  total_timeout: "was not done in time",
  server_error: "failed",
  stream_error: "sent an error",
  invalid_response: "sent what could not be read",
  upstream_truncated: "ended before the answer was whole",
  rate_limited: "said that its rate limit is reached",
};

const OUTCOMES = {
  won: ["✓", "answered", "good"],
  lost: ["✂", "cancelled before its first token", "cut"],
  superseded: ["✂", "cancelled after its first token", "cut"],
  failed: ["✕", "failed", "bad"],
  timeout: ["✕", "timed out", "bad"],
  stalled: ["✕", "stalled", "bad"],
  client_gone: ["↩", "stopped, as the client left", "left"],
  interrupted: ["✕", "interrupted, as the gateway stopped", "bad"],
};

const OUTAGES = { slow: "too slow", hangs: "it hangs", silent: "no first tokens", "other replicas": "other replicas say so" };

const ROLES = {
  primary: "first choice",
  race: "raced beside it",
  hedge: "hedge, as the first was late",
  failover: "failover",
  whole: "asked again whole",
  key: "asked again with another key",
  form: "asked again in another form",
  api: "asked again in another API",
  bare: "asked again without reasoning that it cannot read",
  takeover: "went on with an answer that broke off",
  fallback: "another model, as this one was late",
  explore: "explored, to learn of it",
  probe: "probe after an outage",
};

const REFUSALS = {
  no_api_key: "no key",
  invalid_api_key: "a key that nobody has",
  key_expired: "an expired key",
  keys_not_loaded: "keys were not read yet",
  key_unusable: "a key's settings could not be used",
  forbidden: "not allowed to this client",
  not_found: "no such address",
  model_not_found: "a model that is not configured",
  method_not_allowed: "wrong method",
  body_too_large: "the body is too large",
  body_timeout: "the body came too slowly",
  headers_timeout: "the headers came too slowly",
  headers_too_large: "the headers are too large",
  unsupported_media_type: "not JSON",
  rate_limit_exceeded: "beyond the client's rate limit",
  insufficient_quota: "beyond the client's budget",
  tokens_exceed_limit: "the prompt is longer than a minute's tokens",
  overloaded: "the gateway was overloaded",
  shutting_down: "the gateway was stopping",
  invalid_request: "the request is not valid",
};

/** An error's kind in words; kinds without words of their own are shown as they are. */
export function errorWords(kind) {
  return kind ? (CALL_ERRORS[kind] ?? ATTEMPT_ERRORS[kind] ?? kind.replaceAll("_", " ")) : "";
}

/** Why a deployment was out. */
export function outageWords(reason) {
  return OUTAGES[reason] ?? (errorWords(reason) || "–");
}

/** Why an answer broke off, as a sentence: `alpha/fast closed the connection`. */
export function brokeWords({ deployment, error_kind: kind }) {
  return BROKE[kind] ? `${deployment} ${BROKE[kind]}` : `${deployment}: ${errorWords(kind)}`;
}

/** Why requests were refused. */
export function refusalWords(reason) {
  return REFUSALS[reason] ?? errorWords(reason);
}

/** Why an attempt was launched. */
export function roleWords(role) {
  return ROLES[role] ?? role;
}

/** How an attempt ended: `{sign, words, kind}`; without an outcome it runs. */
export function attemptOutcome(attempt) {
  const [sign, words, kind] = attempt.outcome ? (OUTCOMES[attempt.outcome] ?? ["·", attempt.outcome, "cut"]) : ["…", "running", "running"];
  if (kind !== "bad" || !attempt.error_kind) return { sign, words, kind };
  return { sign, words: errorWords(attempt.error_kind), kind };
}

/** How a call ended: `{sign, words, kind}`; without a status it runs. */
export function callOutcome({ status_code: status, error_kind: error }) {
  if (status === null || status === undefined) return { sign: "…", words: "running", kind: "running" };
  if (status === 499) return { sign: "↩", words: error && error !== "client_disconnected" ? errorWords(error) : "client left", kind: "left" };
  if (status < 400 && !error) return { sign: "✓", words: "answered", kind: "good" };
  return { sign: "✕", words: `${status} ${errorWords(error)}`.trim(), kind: "bad" };
}

/** Whether a deployment is used, in words: `out` is all that gets no calls until it works again. */
export function stateWords(state) {
  if (!state) return "unknown";
  const [word, ...rest] = state.split(" ");
  return { cooling: ["limited", ...rest].join(" "), open: "out", "half-open": "out, on trial" }[word] ?? state;
}

/** The colour of a state. */
export function stateKind(state) {
  return { ok: "good", failing: "warn", cooling: "warn", open: "bad", "half-open": "warn", out: "bad" }[(state ?? "").split(" ")[0]] ?? "";
}

/** Since when most calls of a model have fewer attempts than asked for, and why; null if they have not. */
export function narrowedLine({ model, narrowed }) {
  return narrowed ? `${model}: racing narrowed since ${time(narrowed.since)}: ${narrowed.why}` : null;
}

/** Why a call had fewer attempts than asked for. */
export function narrowedWords(reason) {
  return reason.replaceAll("_", " ");
}
