"""The errors that clients receive, as one tree of exceptions, and their translation to OpenAI's error format.

ApiError                        status, type, code, and a sentence that says what to do
├── InvalidRequest              400  the request itself is at fault
├── Unauthorized                401
│   ├── NoKey                         none was sent
│   │   └── NotSignedIn               the page checks for a session, and there is none; not counted as a refusal
│   ├── WrongKey                      no client has it; such answers to an address that guesses are delayed
│   │   └── SignerUnknown             a token by a key that is not known yet; its issuer is asked before this is sent
│   ├── KeyExpired                    it has expired
│   └── SessionEnded                  a browser's session is over
├── Forbidden                   403  the key may not do this
├── SignInRefused               403  the provider's answer, or its groups, give no access to the page
├── NotFound                    404  no such path
├── ModelNotFound               404  with the nearest names
├── ResponseNotFound            404  the stored response is not known here; 400 in a request that continues it
├── NothingStored               404  a file, conversation, … that no answer to this key named
├── NoDeploymentFits            400  none of the model's deployments can answer this request; with the reason of each
├── ClientNotFound              404  no client has this name
├── MethodNotAllowed            405
├── HeadersTimeout              408  the request's headers come too slowly
├── BodyTimeout                 408  the body comes too slowly
├── KeyConflict                 409  the name of a key is taken, or its client is in the file
├── BodyTooLarge                413
├── UnsupportedMediaType        415
├── ExpectationFailed           417
├── NoWebSocket                 426  the client tries a WebSocket where only POST works
├── TooManyBodies               429  of its client: too many unfinished, or too many bytes
├── HeadersTooLarge             431
├── TooMuchFraming              400  of a chunked body: chunk sizes, extensions, trailers
├── ClientDisconnected          499  never sent; the status of the call's row
│   ├── ClientStalled           499  the same; the client did not read its answer, and was disconnected
│   ├── CutByRevocation         499  the same; its key was revoked, replaced or removed
│   └── CutByExpiry             499  the same; its key expired
├── InternalError               500  a defect of the gateway; details are in the log only
├── KeysNotLoaded               503  the keys are not yet loaded from the database
├── KeysUnreachable             503  the database cannot be reached, so keys cannot be changed
├── NamesUnreachable            503  the database or Redis cannot be reached, which know who has what is named
├── KeyUnusable                 503  this version cannot use the settings of the key's client
├── SignInUnavailable           503  the provider where people sign in to the page cannot be used
├── ShuttingDown                503
├── LedgerUnavailable           503  nothing can record the call (in api/context.py)
├── Overloaded                  503  no room for one more call; with retry-after
├── TooManyViewers              503  no room for one more live stream
├── NothingEnabled              503  every deployment of the model is disabled
└── RaceFailed                       every provider that was tried failed (these are in race_failures.py)
    ├── RejectedByProvider           the client's own fault (400, 413, 422), with the provider's status and message
    ├── AllRateLimited          429  with the least retry-after
    ├── AllOverloaded           503  each says that it has too much to do
    │   └── AtCapacity               max_in_flight requests are in flight, and none ended in time
    ├── OutOfResources          503  this machine lacks descriptors, ports or memory for a request
    ├── AllTimedOut             504
    ├── ProviderMisconfigured   424  the operator must correct it, so SDKs do not retry; by code each provider
    │                                refuses the key (provider_auth), does not know the model (provider_not_found)
    │   │                            or the path (no_such_api), or several of these (provider_misconfigured)
    │   └── ModelGone           404  each says that it has no such model
    ├── NoValidAnswer           502  those that answered gave nothing valid (win_on: valid); names each flaw
    └── AllProvidersFailed      502  names each provider with its cause
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar

import msgspec

from providers import UNKNOWN_LENGTHS, Meaning, StatedLengths


class ApiError(Exception):
    """An error with the HTTP status and the body of its answer."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "api_error"
    code: str | None = None
    meaning: Meaning | None = None  # for programs, where the status does not say it
    lengths: StatedLengths = UNKNOWN_LENGTHS  # the tokens of a prompt that is too long
    asked_model: str | None = None  # the client's name for the model, if it is the reason; of any length

    def __init__(self, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers: dict[str, str] = dict(headers or {})

    @property
    def status_code(self) -> int:
        """The HTTP status to answer with."""
        return self.status

    @property
    def kind(self) -> str:
        """The error's word in ``calls.error_kind``."""
        return self.code or self.type

    def said(self) -> tuple[str, str]:
        """Return a provider's own type of error, else "", and the message: for formats other than OpenAI's."""
        return "", self.message

    def body(self) -> bytes:
        """Return the JSON body in OpenAI's error format, which OpenAI's SDKs turn into their own exceptions."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


class InvalidRequest(ApiError):
    """The request is invalid."""

    # Means: A field of the request is missing, has the wrong type, or contradicts another.
    # Retry: no.
    # Caller: Correct what the message names; `param` is the field.
    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class TooManyValues(InvalidRequest):
    """The body has more JSON values than ``limits.max_values``, and would have to be built."""

    # Means: The request has more JSON values than `limits.max_values` allows, and must be translated to another API, or
    # read by the gateway. What passes as it is has no bound.
    # Retry: no.
    # Caller: Send fewer, larger parts: join neighbouring texts, and leave out unused tools.
    # Operator: Raise `limits.max_values`, or use a provider with the client's own API.
    code = "too_many_values"


class Unauthorized(ApiError):
    """The request cannot be attributed to a client. The code is the one known to SDKs."""

    # Means: The request has no key, or one that no client has (mistyped, replaced or revoked).
    # Retry: no.
    # Caller: Send `authorization: Bearer hs-…`: `api_key` in OpenAI's SDKs. Use the gateway's key, not a provider's.
    # Operator: Make a key with `holeshot keys new NAME`. Many wrong keys from one address are a program with an old
    # key, or somebody who guesses; after five the answers are delayed.
    status = 401
    type = "authentication_error"
    code = "invalid_api_key"
    meaning = Meaning.KEY

    def __init__(self, message: str) -> None:
        # Claude Code 2.1.332 would ask again for two minutes at a cloud's path, with the same key. A Claude Code with a
        # helper for its key runs the helper all the same.
        super().__init__(message, headers={"x-should-retry": "false"})


class NoKey(Unauthorized):
    """The request has no key. Another kind than a wrong key's, so that guesses can be told from scans."""

    @property
    def kind(self) -> str:
        """The word for metrics and rows; the code stays."""
        # Refusal no_api_key: The request had no key. The client is told `invalid_api_key`.
        return "no_api_key"


class WrongKey(Unauthorized):
    """The request has a key of no client."""


class SignerUnknown(WrongKey):
    """The request has a token by an unknown key of a known issuer. ``ask`` asks the issuer again.

    ``ask`` fetches the issuer's keys again, and returns whether they have changed: then the token must be verified
    again. ``KeysNotLoaded`` is raised if no keys are known at all.
    """

    def __init__(self, message: str, *, ask: Callable[[], Awaitable[bool]]) -> None:
        super().__init__(message)
        self.ask = ask


class Forbidden(ApiError):
    """The key is valid, but not permitted to do this."""

    # Means: The key is valid, but it may not do this: its models, providers, role or rights exclude it.
    # Retry: no.
    # Caller: Use what the message allows, or ask the operator.
    # Operator: Change the client's `models`, `only`, `role`, `adhoc`, `max_width` or `override`. Without any `clients:`
    # only programs on this machine are let in, by the host 127.0.0.1 or localhost.
    status = 403
    type = "permission_error"
    code = "forbidden"


class NotFound(ApiError):
    """No such path."""

    # Means: There is no such path.
    # Retry: no.
    # Caller: Check the base URL: OpenAI's SDKs need `/v1` at its end, Anthropic's must not have it.
    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(ApiError):
    """No such model."""

    # Means: No model of this name is configured; or each of its providers answers that the model is unknown, gone, or
    # not for its account.
    # Retry: no.
    # Caller: Use another name of `GET /v1/models`.
    # Operator: Add it under `models:`, or correct the name there: `holeshot models --live` lists those that providers
    # know. A client with `adhoc: true` may also write `provider/model`.
    status = 404
    type = "invalid_request_error"
    code = "model_not_found"
    meaning = Meaning.GONE


class ResponseNotFound(ApiError):
    """No such stored response."""

    # Means: The response is unknown, too old, of another key, or its provider does not serve this model any more. A
    # request of Responses that goes on from it gets 400, as at OpenAI.
    # Retry: no.
    # Caller: Send the whole conversation as `input`, or make the first response again with `store: true`.
    # Operator: Ids of stored ones are known for `response_ids_ttl_s`, by the ledger or by Redis, others as
    # `responses_memory` says: without `redis_url` a restart forgets those, and replicas do not share them.
    status = 404
    type = "invalid_request_error"
    code = "previous_response_not_found"

    @property
    def status_code(self) -> int:
        """The HTTP status to answer with: OpenAI's 400 for a request that goes on from the response."""
        return InvalidRequest.status if self.param == "previous_response_id" else self.status


class NothingStored(ApiError):
    """No such file, conversation or other thing at a provider."""

    # Means: The request names what a provider stores (a file, conversation, prompt, container, item, …), and no answer
    # to this key has named it; or its provider does not serve this model.
    # Retry: no.
    # Caller: Send the content itself instead of its id.
    # Operator: `provider_state: any` lets every client name what your account has there. Items of recent answers are
    # kept as `responses_memory` says. Replicas know each other's ids with `redis_url` or one ledger.
    status = 404
    type = "invalid_request_error"
    code = "not_stored_for_this_key"


class NoDeploymentFits(ApiError):
    """None of a model's deployments can answer this request."""

    # Means: The request needs tools, pictures, a schema, an API or a data policy that all of the model's deployments
    # lack.
    # Retry: no.
    # Caller: Leave out what the message names, or use another model.
    # Operator: Add a deployment that can do it, or correct `capabilities` if the catalog is wrong.
    status = 400
    type = "invalid_request_error"
    code = "unsupported_by_deployments"

    def __init__(self, model: str, reasons: Mapping[str, str], *, too_long: StatedLengths | None = None) -> None:
        """``too_long``: the prompt's tokens, and the longest prompt of the deployments that could otherwise answer."""
        causes = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
        super().__init__(f"no deployment of {model!r} can answer this request: {causes}")
        self.reasons = reasons
        if too_long is not None:
            # Error 400 context_length_exceeded: The prompt is too long for all deployments that could answer it
            # otherwise: by their limits, or because they have refused it. Clients of Messages and Google are told so in
            # the words of Anthropic and Google.
            # Retry: no.
            # Caller: Shorten the prompt, or use a model with a longer context.
            # Operator: Give the model a fallback for `causes: [context]`, or correct `capabilities.context_tokens` if
            # it is too low.
            self.code = "context_length_exceeded"  # OpenAI's code
            self.meaning, self.lengths = Meaning.TOO_LONG, too_long


class MethodNotAllowed(ApiError):
    """The path exists, but not for this method."""

    # Means: The path exists, but not for this HTTP method.
    # Retry: no.
    # Caller: Use a method that the header `allow` names.
    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class HeadersTimeout(ApiError):
    """The headers did not arrive in time."""

    # Means: The headers of a request did not arrive in time. The connection is closed.
    # Retry: yes.
    # Caller: Send it again on a new connection. Do not open connections long before they are used.
    # Operator: Raise `connections.headers_timeout_s`.
    status = 408
    type = "invalid_request_error"
    code = "headers_timeout"


class BodyTimeout(ApiError):
    """The body did not arrive in time."""

    # Means: The body of the request arrived too slowly.
    # Retry: yes.
    # Caller: Send it again, over a faster connection or smaller.
    # Operator: Raise `client_timeouts.body_timeout_s`, or lower `body_kib_per_s`.
    status = 408
    type = "invalid_request_error"
    code = "body_timeout"


class BodyTooLarge(ApiError):
    """More bytes than ``max_body_mb`` allows."""

    # Means: The body, after decompression, is larger than `max_body_mb`.
    # Retry: no.
    # Caller: Send less: smaller pictures, or a link instead of the data.
    # Operator: Raise `max_body_mb`.
    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class UnsupportedMediaType(ApiError):
    """Not JSON, or a content-encoding that is not supported."""

    # Means: The body is in a form that the gateway does not read.
    # Retry: no.
    # Caller: Send `content-type: application/json` (audio and pictures: what the message names), and a
    # `content-encoding` that the answer's `accept-encoding` lists, or none.
    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class ExpectationFailed(ApiError):
    """The client expects something else than 100-continue."""

    # Means: The request has a header `expect` other than `100-continue`.
    # Retry: no.
    # Caller: Leave the header out.
    status = 417
    type = "invalid_request_error"
    code = "expectation_failed"


class NoWebSocket(ApiError):
    """A client tries a WebSocket. After a 426 Codex continues with POST; after a 405 it retries for seconds."""

    # Means: The client tries a WebSocket. The path takes POST requests only, or the handshake is not valid.
    # Retry: no.
    # Caller: Send a POST request. Codex does so by itself after this answer.
    status = 426
    type = "invalid_request_error"
    code = "websocket_not_supported"


class TooManyBodies(ApiError):
    """The client has too many unfinished bodies, or too many bytes of bodies."""

    # Means: The client, or its address, has too many requests whose bodies are not complete, or too many bytes of
    # bodies in the gateway's memory.
    # Retry: after `retry-after`.
    # Caller: Send fewer large bodies at the same time.
    # Operator: Give the gateway more memory, or add replicas ([memory for bodies](../overload.md#memory-for-bodies)).
    status = 429
    type = "rate_limit_error"
    code = "too_many_bodies"


class HeadersTooLarge(ApiError):
    """The headers are too long."""

    # Means: The headers are longer than `connections.headers_max_kb` (32 KB), together or one of them, or the path is
    # longer than 8 KB. The connection is closed.
    # Retry: no.
    # Caller: Send fewer or shorter headers; large cookies are the usual cause.
    # Operator: Raise `connections.headers_max_kb`, and nginx's `large_client_header_buffers` with it.
    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class TooMuchFraming(ApiError):
    """A chunked body has too many bytes of framing."""

    # Means: The chunk sizes, extensions and trailers of the body are longer than 16 bytes for each byte of the body, or
    # its trailers longer than 8 KB. The connection is closed.
    # Retry: no.
    # Caller: Send the body with a `content-length`, or in larger chunks; leave out trailers.
    status = 400
    type = "invalid_request_error"
    code = "too_much_framing"


class ClientDisconnected(ApiError):
    """The client disconnected. No response can be sent; the call's row has this error."""

    # Means: The client closed its connection before the answer was complete. Its attempts were stopped.
    # Retry: not sent.
    # Caller: If this was not wanted, raise the client's own time-out.
    # Operator: Nothing, unless there are many: then clients give up early, see the time to the first token in
    # `/leaderboard`, or a proxy in front has a shorter time-out.
    status = 499
    code = "client_disconnected"


class ClientStalled(ClientDisconnected):
    """The client did not read its answer for ``write_timeout_s``, and was disconnected."""

    # Means: The client read nothing of its answer for `client_timeouts.write_timeout_s`, and was disconnected.
    # Retry: not sent.
    # Caller: Read the stream while it arrives.
    # Operator: Raise `write_timeout_s` if clients stop reading for good reasons.
    code = "client_stalled"


class InternalError(ApiError):
    """A bug in the gateway."""

    # Means: A bug in the gateway. The client is told nothing more.
    # Retry: yes.
    # Caller: Retry once. If it happens again, tell the operator the time and the path.
    # Operator: The log has the trace (`request.crashed`). Report it.
    status = 500
    code = "internal_error"


class ShuttingDown(ApiError):
    """The gateway is stopping and accepts no new calls."""

    # Means: The gateway is stopping, and accepts no new calls or ended this one.
    # Retry: yes.
    # Caller: Retry at once: another replica, or the new process, answers.
    # Operator: Nothing. If clients see it at each deployment of a new version, raise `lame_duck_s` and
    # `shutdown_grace_s`.
    status = 503
    type = "service_unavailable"
    code = "shutting_down"


class Overloaded(ApiError):
    """The gateway has as many calls as it can take on."""

    # Means: The gateway has as many calls as it can serve in time.
    # Retry: after `retry-after`.
    # Caller: Wait.
    # Operator: Add workers or replicas; give important clients a higher `priority` ([overload](../overload.md)).
    status = 503
    type = "service_unavailable"
    code = "overloaded"
    meaning = Meaning.OVERLOADED


class TooManyViewers(ApiError):
    """As many live streams are open as this process serves."""

    # Means: In `/api/live`: this process serves 50 live streams, which is its limit.
    # Retry: after `retry-after`.
    # Caller: Close a page, or try again later.
    status = 503
    type = "service_unavailable"
    code = "too_many_viewers"


class NothingEnabled(ApiError):
    """The operator has disabled every deployment of a model."""

    # Means: Every deployment of the model has `enabled: false`.
    # Retry: no.
    # Caller: Use another model, or ask the operator.
    # Operator: Set `enabled: true` for one and reload, or give the model a fallback.
    status = 503
    type = "service_unavailable"
    code = "no_deployment_enabled"


# The errors about clients' keys: of requests, and of calls that are cut because their key has ended.


class KeyExpired(Unauthorized):
    """The key was valid until it expired. ``client``: the name of the key's client."""

    # Means: The key was good until the instant in the message.
    # Retry: no.
    # Caller: Ask the operator for a new key.
    # Operator: To let the key in again: `holeshot keys limits NAME --expires 90d` for a client in the database,
    # `expires` in the file ([keys](../keys.md)).
    code = "key_expired"

    def __init__(self, message: str, *, client: str | None = None) -> None:
        super().__init__(message)
        self.client = client


class NotSignedIn(NoKey):
    """The page asks for its session, and has none. No refusal: the page does so before it asks for a key."""


class SessionEnded(Unauthorized):
    """The session of a browser is over, or its key was replaced or revoked. Not counted as a guess at a key."""

    # Means: On the gateway's page: the session is over, or its key was replaced or revoked.
    # Retry: no.
    # Caller: Sign in again.
    code = "session_ended"


class SignInRefused(ApiError):
    """A person came back from the provider, and is not let in to the page."""

    # Means: On the gateway's page: the sign-in at the provider was not good, or the person's groups give no access.
    # Retry: no.
    # Caller: Begin again from the page, or ask the operator.
    # Operator: Compare `page.sign_in` with what is registered, and its `viewers`, `operators` and `admins` with the
    # person's groups ([security](../security.md#sign-in-at-a-provider)).
    status = 403
    type = "permission_error"
    code = "sign_in_refused"
    person: "tuple[str, tuple[str, ...]] | None" = None  # name and groups, for the page that only this person sees


class SignInUnavailable(ApiError):
    """The provider of the sign-in cannot be used now. Keys work meanwhile."""

    # Means: On the gateway's page: the provider where people sign in does not answer, or not as it should.
    # Retry: after `retry-after`.
    # Caller: Try again, or sign in with a key.
    # Operator: See `page.provider_unreachable` in the log.
    status = 503
    type = "service_unavailable"
    code = "sign_in_unavailable"


class HeaderIgnored(Unauthorized):
    """A proxy's header names a person, but the header is not believed, and there is no session here."""

    # Means: On the gateway's page: a proxy's header names a person, but the gateway does not believe it.
    # Retry: no.
    # Caller: Sign in with a key.
    # Operator: Put the proxy's address into `page.trusted_header.from`, and let the proxy send the header once
    # ([security](../security.md)).
    code = "header_ignored"


class KeyUnusable(ApiError):
    """The database has the key, but this version cannot use the settings of its client."""

    # Means: This version of the gateway cannot use the settings of the key's client.
    # Retry: after `retry-after`.
    # Caller: Retry: another replica may be newer. Otherwise ask the operator.
    # Operator: See `keys.unusable` in the log. Upgrade this replica, or change the client's settings.
    status = 503
    type = "service_unavailable"
    code = "key_unusable"


class KeysNotLoaded(ApiError):
    """The keys could not be read from the database or an issuer yet, so a valid key cannot be told from a wrong one."""

    # Means: The gateway could not read the keys from the database, or an issuer's from its server, since it started.
    # Retry: after `retry-after`.
    # Caller: Wait and try again.
    # Operator: See `keys.stale` or `keys.issuer_unreachable` in the log, and make the database or the issuer reachable.
    status = 503
    type = "service_unavailable"
    code = "keys_not_loaded"


class KeysUnreachable(ApiError):
    """The database does not answer, so keys can be neither listed nor changed. Calls go on."""

    # Means: In `/admin/keys`: the database does not answer. Calls go on.
    # Retry: after `retry-after`.
    # Caller: List the keys before you repeat a change: it may have been made.
    # Operator: See `keys.unreachable` in the log, and make the database reachable.
    status = 503
    type = "service_unavailable"
    code = "keys_unreachable"


class NamesUnreachable(ApiError):
    """The database or Redis does not answer when asked for a name in a request."""

    # Means: The request names something that a provider stores. This process does not know the name, and the ledger,
    # where it would be looked up, has a database that does not answer. Or the request deletes an answer, and Redis
    # does not answer: the provider and this process have deleted the answer, other replicas may still have it.
    # Retry: after `retry-after`.
    # Caller: Nothing is lost. A deletion is complete when it is answered with 200.
    # Operator: Make the database reachable (`ledger.database_unreachable` in the log), or Redis
    # (`responses.not_shared`).
    status = 503
    type = "service_unavailable"
    code = "stored_names_unreachable"


class KeyConflict(ApiError):
    """The change contradicts the present state: a name is taken, or a client is in the file."""

    # Means: In `/admin/keys`: the name is taken, or the client or all keys are in the configuration file.
    # Retry: no.
    # Caller: Take another name, rotate or change the client that exists, or change it in the file.
    # Operator: Keys can be changed at run time only with `keys: database`.
    status = 409
    type = "invalid_request_error"
    code = "conflict"


class ClientNotFound(ApiError):
    """No client has this name, or the client's keys are no longer valid."""

    # Means: In `/admin/keys`: no client of the database has this name, or it has no such key.
    # Retry: no.
    # Caller: List the names with `GET /admin/keys`.
    status = 404
    type = "invalid_request_error"
    code = "client_not_found"


class CutByRevocation(ClientDisconnected):
    """The call was cancelled because its key was revoked, replaced or removed."""

    # Means: The call was cancelled because its key was revoked, replaced or removed while it ran.
    # Retry: not sent.
    # Caller: Use the new key.
    # Operator: To replace a key without cutting calls: `holeshot keys rotate NAME --grace 24h`.
    code = "key_revoked"


class CutByExpiry(ClientDisconnected):
    """The call was cancelled because its key expired."""

    # Means: The call was cancelled because its key expired while it ran.
    # Retry: not sent.
    # Caller: Ask the operator for a new key.
    # Operator: Replace keys before they expire ([keys](../keys.md)).
    code = "key_expired"
