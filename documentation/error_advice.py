"""What each error means and what to do about it, for the page of errors; the codes themselves come from the code."""

from collections.abc import Mapping
from typing import NamedTuple

from providers.errors import ErrorKind

NO = "no"
YES = "yes"
LATER = "after `retry-after`"
NOT_SENT = "not sent"  # the client is gone, or the process was


class Cause(NamedTuple):
    """What a kind of failed attempt means, and what an operator does about it."""

    means: str
    do: str


class Advice(NamedTuple):
    """What an error means, and what to do: ``operator`` is empty where only the caller can do something."""

    means: str
    retry: str  # whether the same request may succeed if it is sent again
    caller: str
    operator: str = ""


ERRORS: Mapping[tuple[int, str], Advice] = {
    (400, "bad_request"): Advice(
        "A provider says that the request is wrong. Its own status (400, 413 or 422), message and code are passed on,"
        " so the body has the provider's code; `bad_request` is what the ledger and the metrics say.",
        NO,
        "Read the message: it names the parameter or the limit that the provider does not accept. Correct the request.",
        "If only one provider refuses it, set `drop_params: true` for its deployment, or describe what it cannot do"
        " under `capabilities`, so that it is not asked for such requests.",
    ),
    (400, "context_length_exceeded"): Advice(
        "The prompt has more tokens than the deployments that could answer it otherwise accept.",
        NO,
        "Shorten the prompt, or use a model with a longer context.",
        "Give the model a fallback for `causes: [context]`, or correct `capabilities.context_tokens` if it is too low.",
    ),
    (400, "invalid_request"): Advice(
        "The gateway itself cannot accept the request: a field is missing, has the wrong type, or contradicts another.",
        NO,
        "Correct what the message names; `param` is the field.",
    ),
    (400, "malformed_request"): Advice(
        "What arrived is not a valid HTTP/1.1 request.",
        NO,
        "Check that the URL begins with `http://` for a port without TLS (`https://` for one with TLS), and that no"
        " header or path is longer than 8 KB.",
        "A proxy in front must speak HTTP/1.1 to the gateway.",
    ),
    (400, "tokens_exceed_limit"): Advice(
        "The prompt alone has more tokens than this key may use in a minute (`tpm`).",
        NO,
        "Shorten the prompt, or ask the operator for a higher limit.",
        "Raise `tpm` of this client ([limits](../limits.md)).",
    ),
    (400, "unsupported_by_deployments"): Advice(
        "None of the model's deployments can answer such a request: it needs tools, pictures, a schema, an API or a"
        " data policy that they lack. The message has the reason of each deployment.",
        NO,
        "Leave out what the message names, or use another model.",
        "Add a deployment that can do it. If the catalog is wrong about one, set its `capabilities`.",
    ),
    (401, "header_ignored"): Advice(
        "On the gateway's page: a proxy's header names a person, but the gateway does not believe it. The message says"
        " why.",
        NO,
        "Sign in with a key.",
        "Put the proxy's address into `page.trusted_header.from`, and let the proxy send the header once"
        " ([security](../security.md)).",
    ),
    (401, "invalid_api_key"): Advice(
        "The request has no key, or a key that no client has (it was mistyped, replaced or revoked).",
        NO,
        "Send `authorization: Bearer hs-…`: `api_key` in OpenAI's SDKs. Use the gateway's key, not a provider's.",
        "Make a key with `holeshot keys new NAME`. In the metrics and in `refusals` a missing key is `no_api_key`."
        " Many wrong keys from one address are a program with an old key, or somebody who guesses; after five the"
        " answers to that address are delayed.",
    ),
    (401, "key_expired"): Advice(
        "The key was good until the instant in the message.",
        NO,
        "Ask the operator for a new key.",
        "To let the same key in again: `holeshot keys limits NAME --expires 90d` for a client in the database,"
        " `expires` for one in the file ([keys](../keys.md)).",
    ),
    (401, "session_ended"): Advice(
        "On the gateway's page: the session is over, or its key was replaced or revoked.",
        NO,
        "Sign in again.",
    ),
    (403, "forbidden"): Advice(
        "The key is valid, but it may not do this: its models, providers, role or rights exclude it.",
        NO,
        "Read the message: it names what is allowed. Use that, or ask the operator.",
        "Change the client's `models`, `only`, `role`, `adhoc`, `max_width` or `override`. Without any `clients:` only"
        " programs on this machine are let in, which use the host 127.0.0.1 or localhost.",
    ),
    (404, "call_not_found"): Advice(
        "In `/api`: the ledger has no call with this id. It was never there, is not written yet, or was deleted by"
        " age.",
        YES,
        "Wait two seconds if the call has only just ended: rows are written once a second.",
        "`ledger.keep_calls_days` says how long calls are kept.",
    ),
    (404, "client_not_found"): Advice(
        "In `/admin/keys`: no client of the database has this name, or it has no such key.",
        NO,
        "List the names with `GET /admin/keys`; the message has the nearest one.",
    ),
    (404, "model_not_found"): Advice(
        "No model of this name is configured.",
        NO,
        "Use a name of `GET /v1/models`; the message has the nearest ones.",
        "Add it under `models:`. A client with `adhoc: true` may also write `provider/model`.",
    ),
    (404, "not_found"): Advice(
        "There is no such path.",
        NO,
        "Check the base URL: OpenAI's SDKs need `/v1` at its end, Anthropic's must not have it. The message has the"
        " nearest path.",
    ),
    (404, "previous_response_not_found"): Advice(
        "In `/v1/responses`: the response to continue or to read is unknown, too old, of another key, or its provider"
        " does not serve this model any more.",
        NO,
        "Send the whole conversation as `input`, or make the first response again with `store: true`.",
        "`response_ids_ttl_s` says how long ids are known. Several replicas know each other's only with `redis_url`.",
    ),
    (405, "method_not_allowed"): Advice(
        "The path exists, but not for this HTTP method.", NO, "Use a method that the header `allow` names."
    ),
    (408, "body_timeout"): Advice(
        "The body of the request arrived too slowly.",
        YES,
        "Send it again, over a faster connection or smaller.",
        "Raise `client_timeouts.body_timeout_s`, or lower `body_kib_per_s`.",
    ),
    (408, "headers_timeout"): Advice(
        "The headers of a request did not arrive in time. The connection is closed.",
        YES,
        "Send it again on a new connection. Do not open connections long before they are used.",
        "Raise `connections.headers_timeout_s`.",
    ),
    (409, "conflict"): Advice(
        "In `/admin/keys`: the change contradicts what there is. The name is taken, or the client or all keys are in"
        " the configuration file.",
        NO,
        "Take another name, rotate or change the client that exists, or change it in the file.",
        "Keys can be changed at run time only with `keys: database`.",
    ),
    (413, "body_too_large"): Advice(
        "The body, after decompression, is larger than `max_body_mb`.",
        NO,
        "Send less: smaller pictures, or a link instead of the data.",
        "Raise `max_body_mb`.",
    ),
    (415, "unsupported_media_type"): Advice(
        "The body is in a form that the gateway does not read.",
        NO,
        "Send `content-type: application/json` (audio and pictures: what the message names), and a `content-encoding`"
        " that the answer's `accept-encoding` lists, or none.",
    ),
    (417, "expectation_failed"): Advice(
        "The request has a header `expect` other than `100-continue`.", NO, "Leave the header out."
    ),
    (424, "no_such_api"): Advice(
        "Every deployment answered that it does not have this API, such as embeddings or responses.",
        NO,
        "Use another model, or another API.",
        "Correct the provider's `base_url`, or say in `apis` what it has, then reload. `holeshot check --live` asks"
        " it.",
    ),
    (424, "provider_auth"): Advice(
        "Every deployment refuses the operator's key (401 or 403 from the provider).",
        NO,
        "Nothing is wrong with your request or your key. Tell the operator.",
        "Set a valid key for the provider and reload. Without a reload each is tried again once a minute.",
    ),
    (424, "provider_misconfigured"): Advice(
        "Every deployment fails by its configuration, for several of these reasons: the key, the model's name there,"
        " or the base URL is wrong.",
        NO,
        "Nothing is wrong with your request or your key. Tell the operator.",
        "The message has the reason of each deployment. Correct them and reload; `holeshot check --live` asks every"
        " provider.",
    ),
    (424, "provider_not_found"): Advice(
        "Every deployment answered that it does not know the model's name, or the path.",
        NO,
        "Nothing is wrong with your request or your key. Tell the operator.",
        "Correct the deployment's model name or the provider's `base_url`, and reload. `holeshot models --live` lists"
        " the names that providers know.",
    ),
    (426, "websocket_not_supported"): Advice(
        "The client tries a WebSocket. The path takes POST requests only.",
        NO,
        "Send a POST request. Codex does so by itself after this answer.",
    ),
    (429, "at_capacity"): Advice(
        "Every deployment has `max_in_flight` requests at the gateway, and none ended within `queue_timeout_s`.",
        LATER,
        "Wait as long as `retry-after` says, and send fewer requests at a time.",
        "Add a deployment or a server. Raise `max_in_flight` if the server has room, or `queue_timeout_s`.",
    ),
    (429, "insufficient_quota"): Advice(
        "The client, or the model, has spent its limit in US dollars of the day or the month (UTC). The message says"
        " when it begins again. `x-should-retry: false` keeps OpenAI's SDKs from trying again at once.",
        NO,
        "Wait for the next day or month, or ask the operator for a higher limit.",
        "Raise `usd_per_day` or `usd_per_month` of the client, or `usd_per_day` of the model. `GET /api/usage` shows"
        " who has spent what ([limits](../limits.md)).",
    ),
    (429, "rate_limit_exceeded"): Advice(
        "Either a limit of the gateway is reached (requests, tokens or parallel calls of the client), or every"
        " provider of the model is rate-limited or cooling down. The message says which.",
        LATER,
        "Wait as long as `retry-after` says. SDKs do so by themselves.",
        "For a limit of the gateway: raise `rpm`, `tpm` or `max_parallel`. For providers: add one, add a second key"
        " (`api_keys`), or buy a higher limit there.",
    ),
    (429, "too_many_bodies"): Advice(
        "The client, or its address, has too many requests whose bodies are not complete, or too many bytes of bodies"
        " in the gateway's memory.",
        LATER,
        "Send fewer large bodies at the same time.",
        "Give the gateway more memory, or add replicas ([memory for bodies](../overload.md#memory-for-bodies)).",
    ),
    (431, "headers_too_large"): Advice(
        "The headers are longer than 32 KB. The connection is closed.",
        NO,
        "Send fewer or shorter headers; large cookies are the usual cause.",
    ),
    (499, "client_disconnected"): Advice(
        "The client closed its connection before the answer was complete. Its attempts were cancelled.",
        NOT_SENT,
        "If this was not wanted, raise the client's own time-out.",
        "Nothing, unless there are many: then clients give up early, see the time to the first token in"
        " `/leaderboard`, or a proxy in front has a shorter time-out.",
    ),
    (499, "client_stalled"): Advice(
        "The client read nothing of its answer for `client_timeouts.write_timeout_s`, and was cut.",
        NOT_SENT,
        "Read the stream while it arrives.",
        "Raise `write_timeout_s` if clients stop reading for good reasons.",
    ),
    (499, "key_expired"): Advice(
        "The call was cut because its key expired while it ran.",
        NOT_SENT,
        "Ask the operator for a new key.",
        "Replace keys before they expire ([keys](../keys.md)).",
    ),
    (499, "key_revoked"): Advice(
        "The call was cut because its key was revoked, replaced or removed while it ran.",
        NOT_SENT,
        "Use the new key.",
        "Nothing. To replace a key without cutting calls, let both be valid for a while: `holeshot keys rotate NAME"
        " --grace 24h`.",
    ),
    (500, "internal_error"): Advice(
        "A bug in the gateway. The client is told nothing more.",
        YES,
        "Retry once. If it happens again, tell the operator the time and the path.",
        "The log has the trace (`request.crashed`). Report it.",
    ),
    (500, "interrupted"): Advice(
        "The gateway died or was killed while the call ran. Only the ledger has it: the next process writes the row.",
        NOT_SENT,
        "Retry: the connection broke.",
        "Find out why the process ended: `worker.died` in the log, or the kernel's log if memory ran out.",
    ),
    (502, "all_providers_failed"): Advice(
        "Every attempt failed, for different reasons. The message has each deployment with its"
        " [reason](#why-an-attempt-failed).",
        YES,
        "Retry with a growing pause. SDKs do so by themselves.",
        "Look at the reasons. Add a deployment at another provider, or a fallback model ([when a provider"
        " fails](../guides/failing-provider.md)).",
    ),
    (502, "no_valid_answer"): Advice(
        "With `win_on: valid`: no deployment gave an answer that fits the schema. The message has what is wrong with"
        " each. All of these answers are paid for, so `x-should-retry: false` keeps SDKs from trying again.",
        NO,
        "Make the schema simpler or the prompt clearer, or decide to pay for another try.",
        "Use deployments that keep to schemas, or `invalid: best` to pass on the best one ([valid"
        " answers](../valid.md)).",
    ),
    (503, "database_unreachable"): Advice(
        "Reports (`/api`) need the database, which does not answer or lacks a table. Calls go on.",
        LATER,
        "Wait and try again.",
        "See `report.failed` in the log. Start the database, or run `holeshot migrate`.",
    ),
    (503, "key_unusable"): Advice(
        "The database has the key, but this version of the gateway cannot use the settings of its client.",
        LATER,
        "Retry: another replica may be of a newer version. Otherwise ask the operator.",
        "See `keys.unusable` in the log. Upgrade this replica, or change the client's settings.",
    ),
    (503, "keys_not_loaded"): Advice(
        "The gateway has started, but could not read the keys from the database yet.",
        LATER,
        "Wait and try again.",
        "See `keys.stale` in the log, and make the database reachable.",
    ),
    (503, "keys_unreachable"): Advice(
        "In `/admin/keys`: the database does not answer, so keys can be neither listed nor changed. Calls go on.",
        LATER,
        "List the keys before you repeat a change: it may have been made.",
        "See `keys.unreachable` in the log, and make the database reachable.",
    ),
    (503, "local_resources"): Advice(
        "The machine of the gateway has no more file descriptors, ports or memory for requests to providers.",
        LATER,
        "Wait as long as `retry-after` says.",
        "Raise the limit of open files (`ulimit -n`, `LimitNOFILE=`), or use another machine too. The log has"
        " `gateway.out_of_resources`.",
    ),
    (503, "no_deployment_enabled"): Advice(
        "Every deployment of the model has `enabled: false`.",
        NO,
        "Use another model, or ask the operator.",
        "Set `enabled: true` for one and reload, or give the model a fallback.",
    ),
    (503, "overloaded"): Advice(
        "The gateway has as many calls as it can serve in time.",
        LATER,
        "Wait as long as `retry-after` says.",
        "Add workers or replicas; give important clients a higher `priority` ([overload](../overload.md)).",
    ),
    (503, "report_too_slow"): Advice(
        "The database took too long for a report, and it was stopped.",
        NO,
        "Ask for a shorter time, or for fewer filters.",
        "See `report.too_slow` in the log: it has the SQL. Keep fewer attempts (`ledger.keep_attempts_days`).",
    ),
    (503, "shutting_down"): Advice(
        "The gateway is stopping, and accepts no new calls or ended this one.",
        YES,
        "Retry at once: another replica, or the new process, answers.",
        "Nothing. If clients see it at each deployment of a new version, raise `lame_duck_s` and `shutdown_grace_s`.",
    ),
    (503, "too_many_viewers"): Advice(
        "In `/api/live`: this process serves 50 live streams, which is its limit.",
        LATER,
        "Close a page, or try again later.",
    ),
    (504, "all_providers_timed_out"): Advice(
        "Every attempt timed out. The message has each deployment and its time-out.",
        YES,
        "Retry. For long answers, stream.",
        "Look at which time-out it was, under [Why an attempt failed](#why-an-attempt-failed), and add a deployment"
        " that is faster ([when a provider is slow](../guides/slow-provider.md)).",
    ),
}

# Words of the ledger and the metrics for refused requests whose client is told another code, or nothing.
REFUSALS: Mapping[str, str] = {
    "no_api_key": "The request had no key. The client is told `invalid_api_key`.",
    "malformed_body": "The connection ended, or what was sent is not HTTP, in the middle of a body. Nobody is told.",
}

KINDS: Mapping[ErrorKind, Cause] = {
    ErrorKind.CONNECT_ERROR: Cause(
        "No connection to the provider: its name was not found, the port is closed, or TLS failed.",
        "Check `base_url`, DNS, firewall and proxy from this machine. For a private authority set `SSL_CERT_FILE`.",
    ),
    ErrorKind.CONNECT_TIMEOUT: Cause(
        "No connection within `connect_timeout_s`.",
        "Check firewall and route. Raise the time-out only for a provider that is far away.",
    ),
    ErrorKind.LOCAL_RESOURCES: Cause(
        "This machine had no file descriptor, port or memory for the request. The provider is not blamed.",
        "Raise the limit of open files (`ulimit -n`, `LimitNOFILE=`).",
    ),
    ErrorKind.DISCONNECTED: Cause(
        "The connection broke before the answer was complete.",
        "Nothing for single ones: others are asked. If they are many, ask the provider, with `holeshot report"
        " --provider NAME`.",
    ),
    ErrorKind.TTFT_TIMEOUT: Cause(
        "No first token within `ttft_timeout_s`.",
        "Compare with its usual time in `/leaderboard`. Raise the time-out for models that think for long.",
    ),
    ErrorKind.STALL_TIMEOUT: Cause(
        "The stream stood still for `stall_timeout_s`.",
        "Raise it for models that pause; else ask the provider.",
    ),
    ErrorKind.TOTAL_TIMEOUT: Cause(
        "The whole answer took longer than `total_timeout_s`.",
        "Raise it, or leave it out: by default there is none.",
    ),
    ErrorKind.PROVIDER_AUTH: Cause(
        "The provider refuses the key (401 or 403).",
        "Set a valid key and reload. Until then the deployment is tried once a minute.",
    ),
    ErrorKind.NOT_FOUND: Cause(
        "The provider does not know the model, or the path (404).",
        "Correct the deployment's model name or `base_url`. `holeshot models --live` lists the names.",
    ),
    ErrorKind.NO_SUCH_API: Cause(
        "The provider does not have this API.",
        "Name in `apis` what it has, so that it is not asked.",
    ),
    ErrorKind.RATE_LIMITED: Cause(
        "The provider answers 429. It gets no calls until it says that it is ready again.",
        "Nothing for single ones. If they are many, add a key (`api_keys`) or a provider, or buy a higher limit.",
    ),
    ErrorKind.BAD_REQUEST: Cause(
        "The provider says that the request is wrong (400, 413, 422). The call ends with this answer, and nobody else"
        " is asked.",
        "The caller corrects the request.",
    ),
    ErrorKind.SERVER_ERROR: Cause(
        "The provider has a fault of its own (5xx, or an unknown status).",
        "Nothing for single ones: others are asked. See the provider's status page if it goes on.",
    ),
    ErrorKind.INVALID_RESPONSE: Cause(
        "The answer is not what the API promises: HTML, broken JSON, or no event stream.",
        "Check `base_url`: a web page or a proxy may answer there. Else ask the provider.",
    ),
    ErrorKind.STREAM_ERROR: Cause(
        "The stream began well, and then contained an error.",
        "Its message is in `attempts.error_message`. Ask the provider if it is frequent.",
    ),
    ErrorKind.UPSTREAM_EMPTY: Cause(
        "The answer ended without any content.",
        "Nothing for single ones: others are asked.",
    ),
    ErrorKind.UPSTREAM_TRUNCATED: Cause(
        "The stream ended without its last event, so the answer is incomplete.",
        "A proxy between here and the provider may cut long answers; else ask the provider.",
    ),
    ErrorKind.INVALID_ANSWER: Cause(
        "The answer does not fit the schema that was asked for (`win_on: valid`).",
        "If one deployment fails often, use another ([valid answers](../valid.md)).",
    ),
}
