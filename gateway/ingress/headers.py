"""Which headers cross the gateway, in both directions, and the ones it adds of its own."""

from collections.abc import Mapping, Sequence

from multidict import istr

from gateway.calls import Call
from gateway.racing.sink import Winner

SERVER = "holeshot"  # and no version of anything: whoever looks for a hole need not be told where
_UPSTREAM = frozenset({"openai-beta", "traceparent", "tracestate"})
_UPSTREAM_PREFIX = "anthropic-"
_UPSTREAM_INITIALS = frozenset("aAoOtT")  # of all of them: most headers are told by their first letter
_LONGEST_REQUEST_ID = 200  # characters
_LONGEST_LIST = 2000  # characters: a client chooses how many fields it sends, proxies how long a header may be

# Names as aiohttp keeps them: of any other string it makes one for each answer.
SERVER_FIELD = istr("server")
_CALL_ID = istr("x-holeshot-call-id")
_PROVIDER = istr("x-holeshot-provider")
_DEPLOYMENT = istr("x-holeshot-deployment")
_MODE = istr("x-holeshot-mode")
_LAUNCHED = istr("x-holeshot-launched")
_DROPPED = istr("x-holeshot-dropped")
_TTFT_MS = istr("x-holeshot-ttft-ms")
_OVERHEAD_MS = istr("x-holeshot-overhead-ms")
_DEADLINE_MET = istr("x-holeshot-deadline-met")
_UPSTREAM_ID = istr("x-holeshot-upstream-request-id")
_REQUEST_ID = istr("x-request-id")
_ANTHROPICS_ID = istr("request-id")

_CLIENT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
_UPSTREAM_IDS = frozenset({_REQUEST_ID, _ANTHROPICS_ID})
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
    return {_REQUEST_ID: request_id, _ANTHROPICS_ID: request_id}


def for_client(winner: Winner) -> dict[str, str]:
    """Return the response headers of an answered call, in lower case: the gateway's own, and what upstream may add."""
    headers = of_answer(winner.call, winner.provider, winner.deployment, winner.launched, winner.exchange.headers)
    headers[_TTFT_MS] = f"{winner.ttft_ms:.1f}"
    headers[_OVERHEAD_MS] = f"{winner.overhead_ms:.2f}"
    if (deadline_ms := winner.call.deadline_ms) is not None:
        headers[_DEADLINE_MET] = "true" if winner.ttft_ms <= deadline_ms else "false"
    return headers


def of_answer(call: Call, provider: str, deployment: str, launched: int, upstream: Mapping[str, str]) -> dict[str, str]:
    """Return the response headers that every answered call has; ``upstream`` are those of the provider."""
    request_id = call.request_id or call.id
    headers: dict[str, str] = {
        _CALL_ID: call.id,
        _REQUEST_ID: request_id,
        _ANTHROPICS_ID: request_id,
        _PROVIDER: provider,
        _DEPLOYMENT: deployment,
        _MODE: call.mode,
        _LAUNCHED: str(launched),
    }
    if dropped := call.dropped.get(deployment):
        headers[_DROPPED] = _listed(dropped)
    for name, value in upstream.items():
        if name.startswith(_CLIENT_PREFIXES):
            headers[name] = value
        elif name in _UPSTREAM_IDS:
            headers[_UPSTREAM_ID] = value
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
