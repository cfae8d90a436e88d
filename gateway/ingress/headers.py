"""Which headers cross the gateway, in both directions, and the ones it adds of its own."""

from collections.abc import Mapping, Sequence

from gateway.calls import Call
from gateway.racing.sink import Winner

SERVER = "holeshot"  # and no version of anything: whoever looks for a hole need not be told where
_UPSTREAM = frozenset({"openai-beta", "traceparent", "tracestate"})
_UPSTREAM_PREFIX = "anthropic-"
_UPSTREAM_INITIALS = frozenset("aAoOtT")  # of all of them: most headers are told by their first letter
_REQUEST_ID = "x-request-id"
_LONGEST_REQUEST_ID = 200  # characters
_LONGEST_LIST = 2000  # characters: a client chooses how many fields it sends, proxies how long a header may be
_CLIENT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
_UPSTREAM_IDS = frozenset({_REQUEST_ID, "request-id"})
NARROWED = "x-holeshot-narrowed"  # the limit that refused an extra attempt: budget, usd_per_day, …


def for_upstream(headers: Mapping[str, str], request_id: str | None) -> dict[str, str]:
    """Return those of the client's headers that a provider may see: never its key, cookies or address.

    A value that is no text (aiohttp escapes it as surrogates) is left out: it could not be sent.
    """
    passed = {
        name: value
        for key, value in headers.items()
        if key[:1] in _UPSTREAM_INITIALS
        and ((name := key.lower()) in _UPSTREAM or name.startswith(_UPSTREAM_PREFIX))
        and value.isprintable()
    }
    if request_id is not None:
        passed[_REQUEST_ID] = request_id
    return passed


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return what the client calls its request, None where it does not say or it could not be written to a log."""
    asked = headers.get(_REQUEST_ID)
    return asked if asked and len(asked) <= _LONGEST_REQUEST_ID and asked.isprintable() else None


def identifying(request_id: str) -> dict[str, str]:
    """Return the response headers by which SDKs of OpenAI and of Anthropic show what a request is called."""
    return {_REQUEST_ID: request_id, "request-id": request_id}


def for_client(winner: Winner) -> dict[str, str]:
    """Return the response headers of an answered call, in lower case: the gateway's own, and what upstream may add."""
    headers = of_answer(winner.call, winner.provider, winner.deployment, winner.launched, winner.exchange.headers)
    headers["x-holeshot-ttft-ms"] = f"{winner.ttft_ms:.1f}"
    headers["x-holeshot-overhead-ms"] = f"{winner.overhead_ms:.2f}"
    if (deadline_ms := winner.call.deadline_ms) is not None:
        headers["x-holeshot-deadline-met"] = "true" if winner.ttft_ms <= deadline_ms else "false"
    return headers


def of_answer(call: Call, provider: str, deployment: str, launched: int, upstream: Mapping[str, str]) -> dict[str, str]:
    """Return the response headers that every answered call has; ``upstream`` are those of the provider."""
    request_id = call.request_id or call.id
    headers = {
        "x-holeshot-call-id": call.id,
        _REQUEST_ID: request_id,
        "request-id": request_id,
        "x-holeshot-provider": provider,
        "x-holeshot-deployment": deployment,
        "x-holeshot-mode": call.mode,
        "x-holeshot-launched": str(launched),
    }
    if dropped := call.dropped.get(deployment):
        headers["x-holeshot-dropped"] = _listed(dropped)
    for name, value in upstream.items():
        if name.startswith(_CLIENT_PREFIXES):
            headers[name] = value
        elif name in _UPSTREAM_IDS:
            headers["x-holeshot-upstream-request-id"] = value
    return headers


def _listed(fields: Sequence[str]) -> str:
    """Return the names of fields as a header takes them: what a client wrote in ASCII, and as much as there is room."""
    listed = ""
    for count, field in enumerate(fields):
        more = f"{', ' if count else ''}{field if field.isascii() and field.isprintable() else ascii(field)[1:-1]}"
        if len(listed) + len(more) > _LONGEST_LIST:
            return f"{listed}, and {len(fields) - count} more" if count else f"{len(fields)} more"
        listed += more
    return listed
