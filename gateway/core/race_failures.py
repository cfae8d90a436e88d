"""The errors of calls without an answer, and the rules that make one error of many failures.

The whole tree of errors is drawn in ``errors.py``. If all attempts failed, the message also names the deployments that
did not run (out, cooling down, broken), with reasons.
"""

from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus

import msgspec

from gateway.core.errors import ApiError, NoDeploymentFits
from providers import ErrorKind, Meaning, RefusalScope, UpstreamError, kinds, meaning_of, stated_lengths

# Errors in a provider's configuration, until the operator changes it.
OPERATORS = frozenset(kind for kind in ErrorKind if kind.lasts)
# With 404: OpenRouter ("support tool use", "support image input"), and Azure of a field.
_LACKS = ("No endpoints found that ", "Unrecognized request argument")
RETRY_FULL_S = 1.0  # retry-after of a call without a free slot, which has already waited for queue_timeout_s
_TIMEOUTS = kinds(lambda facts: facts.clock is not None)


CAUSES: Mapping[str, str] = {kind: kind.facts.words for kind in ErrorKind}  # why attempts fail


class RaceFailed(ApiError):
    """No provider answered."""

    status = 502
    code = "all_providers_failed"


class SkippedDeployment(msgspec.Struct, frozen=True):
    """A deployment that a call did not use because of earlier failures there."""

    deployment: str
    reason: str  # the state and the last error: "out: provider_auth: Invalid API key"
    for_good: bool  # until the operator changes the deployment's configuration
    is_broken: bool = True  # otherwise it only cools down
    cause: str | None = None  # the last error, in words for operators: "the provider refused the key (401)"
    kind: str | None = None  # of the last error

    def __str__(self) -> str:
        return f"{self.deployment}: not asked, {self.reason}"


class AllProvidersFailed(RaceFailed):
    """Each attempt failed, for reasons of the providers."""

    # Means: Every attempt failed, for different [reasons](#why-an-attempt-failed).
    # Retry: yes.
    # Caller: Retry with a growing pause. SDKs do so by themselves.
    # Operator: Add a deployment at another provider, or a fallback model ([when a provider
    # fails](../guides/failing-provider.md)).


class ProviderMisconfigured(RaceFailed):
    """Each deployment needs its operator: the key, the model's name there or the base URL is wrong."""

    # Means: Every deployment fails by its configuration: its key, the model's name there, or the base URL.
    # Retry: no.
    # Caller: Tell the operator.
    # Operator: Correct what the message names, and reload; `holeshot check --live` asks every provider.
    status = 424
    type = "provider_configuration_error"
    code = "provider_misconfigured"

    def __init__(self, message: str, kinds: Collection[ErrorKind]) -> None:
        super().__init__(message)
        if len(kinds) == 1:
            self.code = CODES_OF_OPERATORS[next(iter(kinds))]


class ModelGone(ProviderMisconfigured):
    """Each provider says that it does not have the model, or not for this account: the client takes another one."""

    status = 404
    type = "invalid_request_error"
    code = "model_not_found"
    meaning = Meaning.GONE

    def __init__(self, message: str) -> None:
        super().__init__(message, ())


class BroughtKeyRefused(RaceFailed):
    """Each deployment refuses the key that the client has brought for its provider."""

    # Means: Each provider refuses the keys that the call has brought (`x-holeshot-provider-keys`, or `provider_keys` of
    # its client), or wants to be paid first.
    # Retry: no.
    # Caller: Bring valid keys. The gateway's own key is not at fault.
    # Operator: Correct the client's `provider_keys`, if it has them.
    status = 401
    type = "authentication_error"
    code = "provider_key_refused"


class NoValidAnswer(RaceFailed):
    """The answers of all deployments are unusable (``win_on: valid``)."""

    # Means: With `win_on: valid`: no answer fits the schema. Or each is a picture or sound, for which the caller's API
    # has no place. All of them are paid for, so `x-should-retry: false` keeps SDKs from trying again.
    # Retry: no.
    # Caller: Make the schema simpler or the prompt clearer.
    # Operator: Use deployments that keep to schemas, or `invalid: best` ([valid
    # answers](../answers.md#first-valid-wins)).
    code = "no_valid_answer"

    def __init__(self, message: str) -> None:
        # Each of these answers is paid for: the program decides whether to pay again, not its SDK.
        super().__init__(message, headers={"x-should-retry": "false"})


class AllTimedOut(RaceFailed):
    """Each attempt timed out."""

    # Means: Every attempt timed out.
    # Retry: yes.
    # Caller: Retry. For long answers, stream.
    # Operator: See [which time-out](#why-an-attempt-failed) it was, and add a faster deployment ([when a provider is
    # slow](../guides/failing-provider.md)).
    status = 504
    code = "all_providers_timed_out"


class AllRateLimited(RaceFailed):
    """Every deployment refuses for now; ``retry-after`` is the shortest time."""

    # Means: The client has reached a limit (requests, tokens or parallel calls), or every provider of the model is
    # rate-limited. The message says which.
    # Retry: after `retry-after`.
    # Caller: Wait; SDKs do so by themselves.
    # Operator: For the client's limit: raise `rpm`, `tpm` or `max_parallel`. For providers: add one, add a key
    # (`api_keys`), or buy a higher limit.
    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    meaning = Meaning.RATE

    def __init__(self, message: str, *, retry_after_s: float, free_in_s: float | None = None) -> None:
        """``free_in_s``: the least time until a deployment is free, of those that state a time; None without any."""
        seconds = max(1, int(-(-retry_after_s // 1)))
        super().__init__(
            message, headers={"retry-after": str(seconds), "retry-after-ms": str(int(retry_after_s * 1000))}
        )
        self.free_in_s = free_in_s


class AtCapacity(AllRateLimited):
    """All deployments have reached max_in_flight, and no attempt ended in time."""

    # Means: Every deployment has its `max_in_flight` or `max_in_flight_fleet` requests, and none ended within
    # `queue_timeout_s`.
    # Retry: after `retry-after`.
    # Caller: Send fewer requests at a time.
    # Operator: Add a deployment, or raise `max_in_flight` if the server has room.
    code = "at_capacity"


class AllOverloaded(RaceFailed):
    """Each provider says that it is overloaded."""

    # Means: Every provider of the model says that it has too much to do. The code is OpenAI's.
    # Retry: after `retry-after`.
    # Caller: Wait; SDKs do so by themselves.
    # Operator: Add a deployment at another provider, or a fallback model.
    status = 503
    type = "service_unavailable_error"
    code = "server_is_overloaded"
    meaning = Meaning.OVERLOADED

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        """``retry_after_s``: the least time stated by a provider; None without any."""
        super().__init__(message)
        if retry_after_s is not None:
            self.headers["retry-after"] = str(max(1, int(-(-retry_after_s // 1))))


class OutOfResources(RaceFailed):
    """The gateway's machine has no more descriptors, ports or memory; ``retry-after`` says when to retry."""

    # Means: The gateway's machine has no more file descriptors, ports or memory.
    # Retry: after `retry-after`.
    # Caller: Wait.
    # Operator: Raise the limit of open files (`ulimit -n`, `LimitNOFILE=`), or use another machine too.
    status = 503
    type = "service_unavailable"
    code = ErrorKind.LOCAL_RESOURCES

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"retry-after": "1", "retry-after-ms": "1000"})


class _ErrorObject(msgspec.Struct, frozen=True):
    code: str | int | None = None
    type: str | None = None
    message: str | None = None


class _ErrorBody(msgspec.Struct, frozen=True):
    error: _ErrorObject = _ErrorObject()


# Statuses unknown to clients: of a tier without room (Groq), and of a template that does not take the request.
_KNOWN_AS = {498: 429, 500: 400}


class RejectedByProvider(RaceFailed):
    """The provider says that the request is invalid: passed on with its status and message."""

    # Means: A provider says that the request is wrong. The client gets the provider's own status, message and code, or
    # what these mean in the words of the client's API. The status is mostly 400, 413 or 422. It is 429 if the request
    # is too large for a minute, or its tier has no room; it is 400 if a filter refused the text, and for a 404 of
    # OpenRouter's that is about what the request needs. `bad_request` is the word of the ledger and the metrics.
    # Retry: no.
    # Caller: Correct what the message names.
    # Operator: If only one provider refuses it, set its deployment's `drop_params: true`, or say under `capabilities`
    # what it cannot do.
    type = "invalid_request_error"
    code = "bad_request"

    def __init__(self, error: UpstreamError) -> None:
        super().__init__(error.message)
        self.scope = error.scope or RefusalScope.REQUEST
        self.limit = error.limit
        self.meaning = meaning_of(error)
        self._status = _KNOWN_AS.get(error.status or 400, error.status or 400)
        if self.meaning is Meaning.TOO_LONG:
            self._status, self.lengths = 400, stated_lengths(error.said)
        elif self.meaning is Meaning.CONTENT:
            self._status = 400  # programs take a 403 for a wrong key: Claude Code asks its user to sign in again
        elif self._status == HTTPStatus.NOT_FOUND and error.said.startswith(_LACKS):
            self._status = 400  # programs take a 404 for a missing model
        self._body = error.body
        self.answer = error.answer  # the event of such a refusal in the vendor's own API, with status 200

    @property
    def code_there(self) -> str | None:
        """The provider's code of the error, or its type."""
        error = self._error()
        return error.code if isinstance(error.code, str) else error.type

    def said(self) -> tuple[str, str]:
        """Return the provider's own type and message."""
        error = self._error()
        return error.type or "", error.message or self.message

    def _error(self) -> "_ErrorObject":
        try:
            return msgspec.json.decode(self._body or b"{}", type=_ErrorBody).error
        except msgspec.DecodeError:
            return _ErrorObject()

    @property
    def status_code(self) -> int:
        """The provider's status: 400, 413, 422 or 429."""
        return self._status

    def body(self) -> bytes:
        """Return the provider's own error object if it has OpenAI's format."""
        return self._body or super().body()


def all_cooling(
    model: str, out: Sequence[SkippedDeployment], retry_after_s: float, free_in_s: float | None = None
) -> AllRateLimited:
    """Return the error of a call if all deployments are cooling down; ``free_in_s``: see ``AllRateLimited``."""
    causes = f" ({'; '.join(map(str, out))})" if out else ""
    message = f"every deployment of {model!r} is cooling down{causes}"
    return AllRateLimited(message, retry_after_s=retry_after_s, free_in_s=free_in_s)


def race_failed(
    model: str,
    failures: Sequence[tuple[str, UpstreamError]],
    *,
    full: Sequence[str] = (),
    out: Sequence[SkippedDeployment] = (),
    adhoc: bool = False,
    brought: Collection[str] = (),
) -> RaceFailed:
    """Return one error for ``failures``, pairs of a deployment's name and its error.

    ``full`` are deployments without a free slot under ``max_in_flight``: a retry may succeed. ``out`` are deployments
    that were not used. ``adhoc``: the request names the deployments itself. ``brought``: the deployments asked with a
    key of the client's own.
    """
    causes = "; ".join([*(f"{name}: {error.kind}: {error.message}" for name, error in failures), *map(str, out)])
    kinds = {error.kind for _, error in failures}
    meanings = {meaning_of(error) for _, error in failures}
    own_fault = next((RejectedByProvider(error) for _, error in failures if error.kind is ErrorKind.BAD_REQUEST), None)
    if own_fault is not None and own_fault.meaning is Meaning.TOO_LONG and not all(each.for_good for each in out):
        own_fault = None  # deployments not asked may take the prompt when they are back
    are_refused = bool(brought) and not full and meanings != {Meaning.GONE} and _are_refused(failures, out, brought)
    if own_fault is not None or are_refused:
        words = f"every key that this call brings for {model!r} is refused ({causes})"
        return own_fault or BroughtKeyRefused(words)
    if ErrorKind.LOCAL_RESOURCES in kinds:
        return OutOfResources(f"the gateway is short of descriptors, ports or memory; retry soon ({causes})")
    if full:
        failed_too = f"; {causes}" if causes else ""
        message = (
            f"deployments of {model!r} have max_in_flight requests ({', '.join(full)}), and none ended"
            f" within queue_timeout_s: retry later{failed_too}"
        )
        return AtCapacity(message, retry_after_s=RETRY_FULL_S)
    error = _passing(model, failures, meanings, causes, others=bool(out))
    if error is None and kinds and kinds <= OPERATORS and all(each.for_good for each in out):
        error = _lasting(model, kinds, meanings, causes, out, adhoc=adhoc)
    if error is not None:
        return error
    paid = {error.kind for _, error in failures if not error.is_unpaid}
    is_invalid = not paid.isdisjoint({ErrorKind.INVALID_ANSWER, ErrorKind.NO_PLACE})
    message = (
        f"none of the deployments of {model!r} that were asked gave a valid answer ({causes})"
        if is_invalid
        else f"every deployment of {model!r} failed ({causes})"
    )
    error_type = AllTimedOut if kinds and kinds <= _TIMEOUTS else NoValidAnswer if is_invalid else AllProvidersFailed
    return error_type(message)


def _passing(
    model: str,
    failures: Sequence[tuple[str, UpstreamError]],
    meanings: Collection[Meaning | None],
    causes: str,
    *,
    others: bool,
) -> RaceFailed | None:
    """Return the error if all refuse for the same reason, and the reason passes by itself; else None.

    ``others``: whether some deployments were not asked.
    """
    told_s = [error.retry_after_s for _, error in failures if error.retry_after_s]
    if meanings == {Meaning.OVERLOADED}:
        return AllOverloaded(f"every deployment of {model!r} is overloaded ({causes})", min(told_s, default=None))
    if not meanings or not all(error.kind is ErrorKind.RATE_LIMITED for _, error in failures):
        return None
    state = "that is available is rate-limited" if others else "is rate-limited"
    least_s = min(error.retry_after_s or 1.0 for _, error in failures)
    limited = AllRateLimited(
        f"every deployment of {model!r} {state} ({causes})", retry_after_s=least_s, free_in_s=min(told_s, default=None)
    )
    limited.meaning = Meaning.DAY if meanings == {Meaning.DAY} else Meaning.RATE
    return limited


def _lasting(
    model: str,
    kinds: Collection[ErrorKind],
    meanings: Collection[Meaning | None],
    causes: str,
    out: Sequence[SkippedDeployment],
    *,
    adhoc: bool,
) -> ProviderMisconfigured:
    """Return the error if no deployment can answer until its operator acts, or the client takes another model."""
    if meanings == {Meaning.GONE} and all(each.kind == ErrorKind.NOT_FOUND for each in out):
        return ModelGone(f"no provider of {model!r} has the model ({causes})")
    fault = _FAULT_OF_CALLER if adhoc else _LACKING if kinds == {ErrorKind.NO_SUCH_API} else _FAULT_OF_OPERATOR
    error = ProviderMisconfigured(f"no deployment of {model!r} {fault} ({causes})", kinds)
    error.meaning = Meaning.UNPAID if meanings == {Meaning.UNPAID} else None
    return error


def all_failed(failed: Sequence[tuple[str, ApiError]], kept_out: Mapping[str, ApiError]) -> ApiError:
    """Return one error for all models that could not answer: the last model's, with the messages of all.

    If any model calls the request invalid, the first model's error is returned: the requested model decides. A prompt
    is reported as too long only if no model might answer it later. ``kept_out``: why fallbacks were not asked.
    """
    final = told_of(failed)
    if len(failed) > 1:
        final.message = "; ".join(f"model {name!r}: {error.message}" for name, error in failed)
    final.message += "".join(f"; model {name!r} was not asked: {error.message}" for name, error in kept_out.items())
    return final


def told_of(failed: Sequence[tuple[str, ApiError]]) -> ApiError:
    """Return the error among those of all models that the client is told."""
    errors = [error for _, error in failed]
    main_error = errors[0] if any(isinstance(error, RejectedByProvider) for error in errors) else errors[-1]
    able = [error for error in errors if not isinstance(error, _UNABLE)]
    if main_error.meaning in {Meaning.TOO_LONG, Meaning.GONE} and able:
        return able[-1]
    if not able and not isinstance(main_error, RejectedByProvider):
        return next((error for error in errors if error.meaning is Meaning.TOO_LONG), main_error)
    return main_error


# The errors of models that will not answer this request later either.
_UNABLE = (RejectedByProvider, NoDeploymentFits, ProviderMisconfigured)


def _are_refused(
    failures: Sequence[tuple[str, UpstreamError]], out: Sequence[SkippedDeployment], brought: Collection[str]
) -> bool:
    """Return whether only refusals of the client's own keys kept deployments from answering."""
    kinds = {name: str(error.kind) for name, error in failures} | {each.deployment: each.kind for each in out}
    return set(kinds) <= set(brought) and set(kinds.values()) == {str(ErrorKind.PROVIDER_AUTH)}


_FAULT_OF_OPERATOR = (
    "can answer until the gateway's operator has corrected its configuration (key, model name or base_url);"
    " your request and your key are not at fault"
)
_FAULT_OF_CALLER = "can answer: the provider lacks the requested model or API, or refuses the operator's key"
_LACKING = "has this API: use another model, or let the gateway's operator correct 'base_url' or 'apis'"
CODES_OF_OPERATORS = {
    # Error 424 provider_auth: Every provider refuses the operator's key (401, 403), or wants to be paid first (402, or
    # another status with a code that says so). If all want to be paid, clients are told `insufficient_quota`.
    # Retry: no.
    # Caller: Tell the operator.
    # Operator: Set a valid key and reload, or pay. Without a reload each is tried again once a minute.
    ErrorKind.PROVIDER_AUTH: ErrorKind.PROVIDER_AUTH,
    # Error 424 provider_not_found: Every provider answered that it does not know the model's name, or the path.
    # Retry: no.
    # Caller: Tell the operator.
    # Operator: Correct the model's name or `base_url`, and reload. `holeshot models --live` lists the names that
    # providers know.
    ErrorKind.NOT_FOUND: "provider_not_found",  # not_found is an unknown path of the gateway
    # Error 424 no_such_api: Every provider answered that it does not have this API.
    # Retry: no.
    # Caller: Use another model, or another API.
    # Operator: Correct `base_url`, or say in `apis` what it has, and reload.
    ErrorKind.NO_SUCH_API: ErrorKind.NO_SUCH_API,
}
