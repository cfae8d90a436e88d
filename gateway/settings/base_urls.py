"""Base URLs: what one is not, and where the one that was meant may be."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from providers.dialects.index import DIALECTS

# What the gateway adds to a base URL. Not "models": Azure's AI Foundry serves chats below such a path.
_PATHS = (*(dialect.path for dialect in DIALECTS.values()), "embeddings")
_OF_ONE_API = re.compile(rf"/({'|'.join(_PATHS)})/*$")
_VERSION = re.compile(r"/v\d+[a-z0-9]*$")


def path_of_one_api(base_url: str) -> str | None:
    """Return the path of one API with which ``base_url`` ends, None where it ends otherwise."""
    match = _OF_ONE_API.search(urlsplit(base_url).path)
    return match[1] if match else None


def without_api(base_url: str) -> str:
    """Return ``base_url`` without the path of one API at its end."""
    parts = urlsplit(base_url)
    return parts._replace(path=_OF_ONE_API.sub("", parts.path)).geturl()


def others(base_url: str) -> Iterator[str]:
    """Yield the base URLs that may be meant by one below which no API was found, the most usual first."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    paths = [f"{path}/v1", "/v1", _VERSION.sub("", path)]
    for each in dict.fromkeys(paths):
        if each != path:
            yield parts._replace(path=each).geturl()


def without_secrets(url: str) -> str:
    """Return an address without what may be a password before its host or a key behind its question mark."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
