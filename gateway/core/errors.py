"""The errors that clients receive, as one tree of exceptions, and their translation to OpenAI's error format.

ApiError                        status, type, code, and a sentence that says what to do
├── InvalidRequest              400  the request itself is at fault
├── Unauthorized                401
│   ├── NoKey                         none was sent
│   │   └── NotSignedIn               the page asks whether anybody has signed in; not counted as a refusal
│   ├── WrongKey                      no client has it; such answers to an address that guesses are delayed
│   ├── KeyExpired                    it has expired
│   └── SessionEnded                  a browser's session is over
├── Forbidden                   403  the key may not do this
├── NotFound                    404  no such path
├── ModelNotFound               404  with the nearest names
├── ResponseNotFound            404  the stored response to continue is not known here
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
├── ClientDisconnected          499  never sent; the status of the call's row
│   ├── ClientStalled           499  the same; the client did not read its answer, and was cut
│   ├── CutByRevocation         499  the same; its key was revoked, replaced or removed
│   └── CutByExpiry             499  the same; its key expired
├── InternalError               500  a defect of the gateway; details are in the log only
├── KeysNotLoaded               503  the database has not told yet which keys are good
├── KeysUnreachable             503  the database cannot be asked, so keys cannot be changed
├── KeyUnusable                 503  this version cannot use the settings of the key's client
├── ShuttingDown                503
├── Overloaded                  503  no room for one more call; with retry-after
├── TooManyViewers              503  no room for one more live stream
├── NothingEnabled              503  every deployment of the model is disabled
└── RaceFailed                       every provider that was tried failed (these are in race_failures.py)
    ├── RejectedByProvider           the client's own fault (400, 413, 422), with the provider's status and message
    ├── AllRateLimited          429  with the least retry-after
    │   └── AtCapacity               max_in_flight requests are in flight, and none ended in time
    ├── OutOfResources          503  this machine lacks descriptors, ports or memory for a request
    ├── AllTimedOut             504
    ├── ProviderMisconfigured   424  the operator must correct it, so SDKs do not retry; by code each provider
    │                                refuses the key (provider_auth), does not know the model (provider_not_found)
    │                                or the path (no_such_api), or several of these (provider_misconfigured)
    ├── NoValidAnswer           502  those that answered gave nothing valid (win_on: valid); names each flaw
    └── AllProvidersFailed      502  names each provider with its cause
"""

from collections.abc import Mapping
from typing import ClassVar

import msgspec


class ApiError(Exception):
    """An error with the HTTP status and the body it is answered with."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "api_error"
    code: str | None = None

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
        """The word for ``calls.error_kind``."""
        return self.code or self.type

    def said(self) -> tuple[str, str]:
        """Return a provider's own type of error, else "", and the message: for formats other than OpenAI's."""
        return "", self.message

    def body(self) -> bytes:
        """Return the JSON body in OpenAI's error format, which its SDKs turn into their own exceptions."""
        error = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error})


class InvalidRequest(ApiError):
    """The request is invalid."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class Unauthorized(ApiError):
    """The request cannot be attributed to a client. The code is the one that SDKs know."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"


class NoKey(Unauthorized):
    """The request has no key. Its kind differs from a wrong key's, so that guesses can be told from scans."""

    @property
    def kind(self) -> str:
        """The word for metrics and rows; the code stays."""
        return "no_api_key"


class WrongKey(Unauthorized):
    """The request has a key that no client has."""


class Forbidden(ApiError):
    """The key is valid, but not permitted to do this."""

    status = 403
    type = "permission_error"
    code = "forbidden"


class NotFound(ApiError):
    """No such path."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"


class ModelNotFound(ApiError):
    """No such model."""

    status = 404
    type = "invalid_request_error"
    code = "model_not_found"


class ResponseNotFound(ApiError):
    """No such stored response."""

    status = 404
    type = "invalid_request_error"
    code = "previous_response_not_found"


class NoDeploymentFits(ApiError):
    """None of a model's deployments can answer this request."""

    status = 400
    type = "invalid_request_error"
    code = "unsupported_by_deployments"

    def __init__(self, model: str, reasons: Mapping[str, str], *, too_long: bool = False) -> None:
        said = "; ".join(f"{name} {reason}" for name, reason in reasons.items())
        super().__init__(f"no deployment of {model!r} can answer this request: {said}")
        self.reasons = reasons
        self.too_long = too_long
        if too_long:
            self.code = "context_length_exceeded"  # OpenAI's code


class MethodNotAllowed(ApiError):
    """The path exists, but not for this method."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"


class HeadersTimeout(ApiError):
    """The headers did not arrive in time."""

    status = 408
    type = "invalid_request_error"
    code = "headers_timeout"


class BodyTimeout(ApiError):
    """The body did not arrive in time."""

    status = 408
    type = "invalid_request_error"
    code = "body_timeout"


class BodyTooLarge(ApiError):
    """More bytes than ``max_body_mb`` allows."""

    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class UnsupportedMediaType(ApiError):
    """Not JSON, or a content-encoding that is not supported."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"


class ExpectationFailed(ApiError):
    """The client expects something else than 100-continue."""

    status = 417
    type = "invalid_request_error"
    code = "expectation_failed"


class NoWebSocket(ApiError):
    """A client tries a WebSocket. After a 426 Codex continues with POST; after a 405 it retries for seconds."""

    status = 426
    type = "invalid_request_error"
    code = "websocket_not_supported"


class TooManyBodies(ApiError):
    """The client has too many unfinished bodies, or too many bytes of bodies."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_bodies"


class HeadersTooLarge(ApiError):
    """The headers are too long."""

    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class ClientDisconnected(ApiError):
    """The client disconnected. No response can be sent; the call's row has this error."""

    status = 499
    code = "client_disconnected"


class ClientStalled(ClientDisconnected):
    """The client did not read its answer for ``write_timeout_s``, and was cut."""

    code = "client_stalled"


class InternalError(ApiError):
    """A bug in the gateway."""

    status = 500
    code = "internal_error"


class ShuttingDown(ApiError):
    """The gateway is stopping and accepts no new calls."""

    status = 503
    type = "service_unavailable"
    code = "shutting_down"


class Overloaded(ApiError):
    """The gateway has as many calls as it can take on."""

    status = 503
    type = "service_unavailable"
    code = "overloaded"


class TooManyViewers(ApiError):
    """As many live streams are open as this process serves."""

    status = 503
    type = "service_unavailable"
    code = "too_many_viewers"


class NothingEnabled(ApiError):
    """The operator has disabled every deployment of a model."""

    status = 503
    type = "service_unavailable"
    code = "no_deployment_enabled"


# The errors about clients' keys: those that clients receive, and those with which calls of ended keys are cut.


class KeyExpired(Unauthorized):
    """The key was good until it expired. ``client`` had it."""

    code = "key_expired"

    def __init__(self, message: str, *, client: str | None = None) -> None:
        super().__init__(message)
        self.client = client


class NotSignedIn(NoKey):
    """The page asks for its session, and there is none. No refusal: the page asks this before it asks for a key."""


class SessionEnded(Unauthorized):
    """The session of a browser is over, or its key was replaced or revoked. It is no guess at a key."""

    code = "session_ended"


class HeaderIgnored(Unauthorized):
    """A header names who has signed in at a proxy, but it is not believed, and there is no session here."""

    code = "header_ignored"


class KeyUnusable(ApiError):
    """The database has the key, but this version cannot use the settings of its client."""

    status = 503
    type = "service_unavailable"
    code = "key_unusable"


class KeysNotLoaded(ApiError):
    """The keys could not be read from the database yet, so whether this one is good is not known."""

    status = 503
    type = "service_unavailable"
    code = "keys_not_loaded"


class KeysUnreachable(ApiError):
    """The database cannot be asked, so keys can be neither listed nor changed. Calls go on."""

    status = 503
    type = "service_unavailable"
    code = "keys_unreachable"


class KeyConflict(ApiError):
    """The change contradicts what there is: a name that is taken, a client of the file."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"


class ClientNotFound(ApiError):
    """No client has this name, or no key of it is valid any more."""

    status = 404
    type = "invalid_request_error"
    code = "client_not_found"


class CutByRevocation(ClientDisconnected):
    """The call was cut because its key was revoked, replaced or removed."""

    code = "key_revoked"


class CutByExpiry(ClientDisconnected):
    """The call was cut because its key expired."""

    code = "key_expired"
