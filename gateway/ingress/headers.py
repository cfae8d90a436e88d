"""Which headers cross the gateway, in both directions, and the ones it adds of its own."""

from collections.abc import Mapping

from multidict import CIMultiDict

from gateway.calls import Call
from gateway.racing.sink import Winner

_UPSTREAM = frozenset({"openai-beta", "traceparent", "tracestate"})
_UPSTREAM_PREFIX = "anthropic-"
_CLIENT_PREFIX = "x-ratelimit-"
NARROWED = "x-holeshot-narrowed"  # the limit that refused an extra attempt: budget or usd_per_day


def for_upstream(headers: Mapping[str, str]) -> dict[str, str]:
    """Return those of the client's headers that a provider may see: never its key, cookies or address."""
    return {
        name: value
        for key, value in headers.items()
        if (name := key.lower()) in _UPSTREAM or name.startswith(_UPSTREAM_PREFIX)
    }


def for_client(call: Call, winner: Winner) -> CIMultiDict[str]:
    """Return the response headers of an answered call: the gateway's own, and what upstream may add."""
    headers = CIMultiDict(
        {
            "x-holeshot-call-id": call.id,
            "x-holeshot-provider": winner.provider,
            "x-holeshot-deployment": winner.deployment,
            "x-holeshot-mode": call.mode,
            "x-holeshot-launched": str(winner.launched),
            "x-holeshot-ttft-ms": f"{winner.ttft_ms:.1f}",
            "x-holeshot-overhead-ms": f"{winner.overhead_ms:.2f}",
        }
    )
    for name, value in winner.exchange.headers.items():
        key = name.lower()
        if key.startswith(_CLIENT_PREFIX):
            headers[key] = value
        elif key == "x-request-id":
            headers["x-holeshot-upstream-request-id"] = value
    return headers
