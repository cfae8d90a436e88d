"""The response headers in which OpenAI's API says what is left of a minute."""

from collections.abc import Iterable
from math import ceil

from multidict import istr

from gateway.limits.quota import Quota

_NAMES = {"rpm": "requests", "tpm": "tokens"}
_LIMIT = {name: istr(f"x-ratelimit-limit-{unit}") for name, unit in _NAMES.items()}
_REMAINING = {name: istr(f"x-ratelimit-remaining-{unit}") for name, unit in _NAMES.items()}
_RESET = {name: istr(f"x-ratelimit-reset-{unit}") for name, unit in _NAMES.items()}


def rate_headers(quotas: Iterable[Quota], unix_s: float) -> dict[str, str]:
    """Return the headers for the limits of requests and tokens among ``quotas``."""
    headers: dict[str, str] = {}
    for quota in quotas:
        name = quota.name
        if name in _NAMES:
            headers[_LIMIT[name]] = f"{quota.limit:.0f}"
            headers[_REMAINING[name]] = f"{int(quota.left)}"
            headers[_RESET[name]] = f"{max(1, ceil(quota.window.ends_s - unix_s))}s"
    return headers
