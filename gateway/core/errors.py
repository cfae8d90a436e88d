"""The errors that clients receive, as one tree of exceptions, and their translation to OpenAI's error format.

ApiError                        status, type, code, and a sentence that says what to do
├── InvalidRequest              400  the request itself is at fault
├── Unauthorized                401
│   ├── NoKey                         none was sent
│   │   └── NotSignedIn               the page asks whether anybody has signed in; not counted as a refusal
│   ├── WrongKey                      no client has it; such answers to an address that guesses are delayed
│   ├── KeyExpired                    it has expired (this and the other errors about keys are in key_errors.py)
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

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

import msgspec

from providers.errors import ErrorKind, UpstreamError


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


# The errors of calls that no provider answered, and how many failures become one error. The whole tree of errors is
# drawn in ``errors.py``. If all attempts failed, the message also names the deployments that did not run (out,
# cooling down, broken), and why.

# Errors in a provider's configuration: they stay until the operator changes it.
OPERATORS = frozenset({ErrorKind.PROVIDER_AUTH, ErrorKind.NOT_FOUND, ErrorKind.NO_SUCH_API})
RETRY_FULL_S = 1.0  # retry-after of a call without a free seat; it has already waited for queue_timeout_s
_TIMEOUTS = frozenset(
    {ErrorKind.CONNECT_TIMEOUT, ErrorKind.TTFT_TIMEOUT, ErrorKind.STALL_TIMEOUT, ErrorKind.TOTAL_TIMEOUT}
)


class RaceFailed(ApiError):
    """No provider answered."""

    status = 502
    code = "all_providers_failed"


class NotAsked(msgspec.Struct, frozen=True):
    """A deployment that a call did not use because of earlier failures there."""

    deployment: str
    reason: str  # its state and its last error: "out: provider_auth: Invalid API key"
    for_good: bool  # until the operator changes its configuration
    is_broken: bool = True  # otherwise it only cools down

    def __str__(self) -> str:
        return f"{self.deployment}: not asked, {self.reason}"


class AllProvidersFailed(RaceFailed):
    """Each attempt failed, for reasons of the providers."""


class ProviderMisconfigured(RaceFailed):
    """Each deployment needs its operator: the key, the model's name there or the base URL is wrong."""

    status = 424
    type = "provider_configuration_error"
    code = "provider_misconfigured"

    def __init__(self, message: str, kinds: Collection[ErrorKind]) -> None:
        super().__init__(message)
        if len(kinds) == 1:
            self.code = CODES_OF_OPERATORS[next(iter(kinds))]


class NoValidAnswer(RaceFailed):
    """Those that answered gave nothing that can be used (``win_on: valid``)."""

    code = "no_valid_answer"

    def __init__(self, message: str) -> None:
        # Each of these answers is paid for: whether to pay again is for the program to decide, not for its SDK.
        super().__init__(message, headers={"x-should-retry": "false"})


class AllTimedOut(RaceFailed):
    """Each attempt timed out."""

    status = 504
    code = "all_providers_timed_out"


class AllRateLimited(RaceFailed):
    """Every deployment refuses for now; ``retry-after`` is the shortest time."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        seconds = max(1, int(-(-retry_after_s // 1)))
        super().__init__(
            message, headers={"retry-after": str(seconds), "retry-after-ms": str(int(retry_after_s * 1000))}
        )


class AtCapacity(AllRateLimited):
    """All deployments have reached max_in_flight, and no attempt ended in time."""

    code = "at_capacity"


class OutOfResources(RaceFailed):
    """The gateway's machine has no more descriptors, ports or memory; ``retry-after`` says when to retry."""

    status = 503
    type = "service_unavailable"
    code = ErrorKind.LOCAL_RESOURCES

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"retry-after": "1", "retry-after-ms": "1000"})


class _Said(msgspec.Struct, frozen=True):
    code: str | int | None = None
    type: str | None = None
    message: str | None = None


class _Answer(msgspec.Struct, frozen=True):
    error: _Said = _Said()


class RejectedByProvider(RaceFailed):
    """The provider says that the request is invalid: passed on with its status and message."""

    type = "invalid_request_error"
    code = "bad_request"

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self._status = error.status or 400
        self._body = error.body

    @property
    def code_there(self) -> str | None:
        """The provider's code of the error, or its type."""
        said = self._said()
        return said.code if isinstance(said.code, str) else said.type

    def said(self) -> tuple[str, str]:
        """Return the provider's own type and message."""
        said = self._said()
        return said.type or "", said.message or self.message

    def _said(self) -> "_Said":
        try:
            return msgspec.json.decode(self._body or b"{}", type=_Answer).error
        except msgspec.DecodeError:
            return _Said()

    @property
    def status_code(self) -> int:
        """The provider's status: 400, 413 or 422."""
        return self._status

    def body(self) -> bytes:
        """Return the provider's own error object if it has OpenAI's format."""
        return self._body or super().body()


def all_cooling(model: str, out: Sequence[NotAsked], retry_after_s: float) -> AllRateLimited:
    """Return the error of a call if all deployments are cooling down."""
    causes = f" ({'; '.join(map(str, out))})" if out else ""
    return AllRateLimited(f"every deployment of {model!r} is cooling down{causes}", retry_after_s=retry_after_s)


def race_failed(
    model: str,
    failures: Sequence[tuple[str, UpstreamError]],
    *,
    full: Sequence[str] = (),
    out: Sequence[NotAsked] = (),
    adhoc: bool = False,
) -> RaceFailed:
    """Return one error for ``failures``, pairs of a deployment's name and its error.

    ``full`` are deployments without a free seat under ``max_in_flight``: a retry may succeed. ``out`` are deployments
    that were not used. ``adhoc``: the request names the deployments itself.
    """
    for _, error in failures:
        if error.kind is ErrorKind.BAD_REQUEST:
            return RejectedByProvider(error)
    causes = "; ".join([*(f"{name}: {error.kind}: {error.message}" for name, error in failures), *map(str, out)])
    kinds = {error.kind for _, error in failures}
    if ErrorKind.LOCAL_RESOURCES in kinds:
        return OutOfResources(f"the gateway is short of descriptors, ports or memory; retry soon ({causes})")
    if full:
        failed_too = f"; {causes}" if causes else ""
        message = (
            f"deployments of {model!r} have max_in_flight requests ({', '.join(full)}), and none ended"
            f" within queue_timeout_s: retry later{failed_too}"
        )
        return AtCapacity(message, retry_after_s=RETRY_FULL_S)
    if kinds == {ErrorKind.RATE_LIMITED}:
        least = min(error.retry_after_s or 1.0 for _, error in failures)
        whoever = "is rate-limited" if not out else "that is available is rate-limited"
        return AllRateLimited(f"every deployment of {model!r} {whoever} ({causes})", retry_after_s=least)
    if kinds and kinds <= OPERATORS and all(each.for_good for each in out):
        fault = _FAULT_OF_CALLER if adhoc else _LACKING if kinds == {ErrorKind.NO_SUCH_API} else _FAULT_OF_OPERATOR
        return ProviderMisconfigured(f"no deployment of {model!r} {fault} ({causes})", kinds)
    is_invalid = ErrorKind.INVALID_ANSWER in kinds
    message = (
        f"none of the deployments of {model!r} that were asked gave a valid answer ({causes})"
        if is_invalid
        else f"every deployment of {model!r} failed ({causes})"
    )
    whole = AllTimedOut if kinds and kinds <= _TIMEOUTS else NoValidAnswer if is_invalid else AllProvidersFailed
    return whole(message)


_FAULT_OF_OPERATOR = (
    "can answer until the gateway's operator has corrected its configuration (key, model name or base_url);"
    " your request and your key are not at fault"
)
_FAULT_OF_CALLER = "can answer: the provider lacks the requested model or API, or refuses the operator's key"
_LACKING = "has this API: use another model, or let the gateway's operator correct 'base_url' or 'apis'"
CODES_OF_OPERATORS = {
    ErrorKind.PROVIDER_AUTH: ErrorKind.PROVIDER_AUTH,
    ErrorKind.NOT_FOUND: "provider_not_found",  # not_found is an unknown path of the gateway
    ErrorKind.NO_SUCH_API: ErrorKind.NO_SUCH_API,
}
