"""Checks base URLs, and suggests the ones that may have been meant."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from providers.dialects.index import DIALECTS

# What the gateway adds to a base URL. Not "models": Azure's AI Foundry has its chat API below such a path.
_PATHS = (*(dialect.path for dialect in DIALECTS.values()), "embeddings")
_OF_ONE_API = re.compile(rf"/({'|'.join(_PATHS)})/*$")
_VERSION = re.compile(r"/v\d+[a-z0-9]*$")


def path_of_one_api(base_url: str) -> str | None:
    """Return the path of a single API at the end of ``base_url``; None if there is none."""
    match = _OF_ONE_API.search(urlsplit(base_url).path)
    return match[1] if match else None


def without_api(base_url: str) -> str:
    """Return ``base_url`` without the path of a single API at its end."""
    parts = urlsplit(base_url)
    return parts._replace(path=_OF_ONE_API.sub("", parts.path)).geturl()


def others(base_url: str) -> Iterator[str]:
    """Yield base URLs that may have been meant by one without an API, the most usual first."""
    parts = urlsplit(base_url)
    path = parts.path.rstrip("/")
    paths = [f"{path}/v1", "/v1", _VERSION.sub("", path)]
    for each in dict.fromkeys(paths):
        if each != path:
            yield parts._replace(path=each).geturl()


def without_secrets(url: str) -> str:
    """Return a URL without parts that may be secret: a password before the host, a query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
