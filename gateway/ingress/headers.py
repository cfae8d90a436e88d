"""Which headers cross the gateway, in both directions, and the ones it adds of its own."""

from collections.abc import Mapping

from gateway.calls import Call
from gateway.racing.sink import Winner

_UPSTREAM = frozenset({"openai-beta", "traceparent", "tracestate"})
_UPSTREAM_PREFIX = "anthropic-"
_UPSTREAM_INITIALS = frozenset("aAoOtT")  # of all of them: most headers are told by their first letter
_CLIENT_PREFIX = "x-ratelimit-"
NARROWED = "x-holeshot-narrowed"  # the limit that refused an extra attempt: budget or usd_per_day


def for_upstream(headers: Mapping[str, str]) -> dict[str, str]:
    """Return those of the client's headers that a provider may see: never its key, cookies or address.

    A value that is no text (aiohttp escapes it as surrogates) is left out: it could not be sent.
    """
    return {
        name: value
        for key, value in headers.items()
        if key[:1] in _UPSTREAM_INITIALS
        and ((name := key.lower()) in _UPSTREAM or name.startswith(_UPSTREAM_PREFIX))
        and value.isprintable()
    }


def for_client(call: Call, winner: Winner) -> dict[str, str]:
    """Return the response headers of an answered call, in lower case: the gateway's own, and what upstream may add."""
    headers = {
        "x-holeshot-call-id": call.id,
        "x-holeshot-provider": winner.provider,
        "x-holeshot-deployment": winner.deployment,
        "x-holeshot-mode": call.mode,
        "x-holeshot-launched": str(winner.launched),
        "x-holeshot-ttft-ms": f"{winner.ttft_ms:.1f}",
        "x-holeshot-overhead-ms": f"{winner.overhead_ms:.2f}",
    }
    for name, value in winner.exchange.headers.items():
        if name.startswith(_CLIENT_PREFIX):
            headers[name] = value
        elif name == "x-request-id":
            headers["x-holeshot-upstream-request-id"] = value
    return headers
