"""The proxy for an origin, from the environment (HTTPS_PROXY, HTTP_PROXY, NO_PROXY, in upper or lower case)."""

import base64
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from providers.masked_record import MaskedRecord

_PORTS = {"http": 80, "https": 443}


class Proxy(MaskedRecord, frozen=True):
    """A proxy. ``authorization`` is the value of proxy-authorization; it is a secret."""

    scheme: str  # of the proxy itself: http or https
    host: str
    port: int
    authorization: str | None = None

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return its address."""
        yield "url", f"{self.scheme}://{self.host}:{self.port}"


def proxy_of(scheme: str, host: str) -> Proxy | None:
    """Return the proxy for an origin, None if there is none.

    Raises:
        ValueError: the environment names a proxy that is not supported.

    """
    named = getproxies().get(scheme)
    if not named or proxy_bypass(host):
        return None
    parts = urlsplit(named if "://" in named else f"http://{named}")
    variable = f"{scheme.upper()}_PROXY"
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{variable} must be http://host:port or https://host:port; other kinds are not supported")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        raise ValueError(f"the port in {variable} is none") from None
    authorization = None
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.scheme, parts.hostname, port, authorization)
