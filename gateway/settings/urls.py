"""URLs of the configuration: URLs that are safe to ask, corrections of a provider's URL, and parts to show."""

import ipaddress
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from gateway.settings.document import Complaint, Place
from providers import MASK
from providers.dialects import DIALECTS

UNSAFE = "must be an https:// address, without a password or a fragment; http:// only of this machine"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_safe_url(url: str) -> bool:
    """Whether ``url`` is protected: https, or a server on this machine; without a password and a fragment."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    is_protected = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    return is_protected and bool(host) and parts.username is None and not parts.fragment


def check_safe(place: Place, **urls: str | None) -> Iterator[Complaint]:
    """Yield a complaint for each of ``urls``, by its field at ``place``, that is not safe."""
    for field, url in urls.items():
        if url is not None and not is_safe_url(url):
            yield Complaint((*place, field), UNSAFE)


# Base URLs of providers.

# The paths that the gateway adds to a base URL. Not "models": Azure's AI Foundry has its chat API below such a path.
_PATHS = (*(dialect.path for dialect in DIALECTS.values()), "embeddings")
_OF_ONE_API = re.compile(rf"/({'|'.join(path.replace('{model}', '[^/]+') for path in _PATHS)})/*$")
_VERSION = re.compile(r"/v\d[a-z0-9]*$")


def path_of_one_api(base_url: str) -> str | None:
    """Return the path of a single API at the end of ``base_url``; None: it ends with no such path."""
    match = _OF_ONE_API.search(urlsplit(base_url).path)
    return match[1] if match else None


def without_api(base_url: str) -> str:
    """Return ``base_url`` without the path of a single API at its end."""
    parts = urlsplit(base_url)
    return parts._replace(path=_OF_ONE_API.sub("", parts.path)).geturl()


def others(base_url: str) -> Iterator[str]:
    """Yield corrections of a base URL that has no API, the most usual first."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    paths = [f"{path}/v1", "/v1", _VERSION.sub("", path)]
    for each in dict.fromkeys(paths):
        if each != path:
            yield parts._replace(path=each).geturl()


def without_secrets(url: str) -> str:
    """Return a URL without parts that may be secret: a password before the host, a query.

    If an ``@`` is left, the rest may be a piece of a password, and nothing is shown.
    """
    parts = urlsplit(url)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return MASK if "@" in shown else shown
