"""Checks the origins of web pages that may call."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from gateway.settings.model import Settings
from gateway.settings.problems import Complaint

# As browsers write it in `origin`: lower case, ASCII, no path, no default port.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9_-]+(\.[a-z0-9_-]+)*)(:[1-9][0-9]{0,4})?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def cors(settings: Settings) -> Iterator[Complaint]:
    """Yield what is wrong with ``cors``."""
    if settings.cors and not settings.clients and settings.keys == "file":
        yield Complaint(
            ("cors",),
            "needs clients: a web page calls with a key of its own, and without keys everybody may do everything; "
            "add clients with `holeshot keys new NAME`, or remove cors",
        )
    for index, origin in enumerate(settings.cors):
        if (problem := _problem(origin)) is not None:
            yield Complaint(("cors", index), problem)


def _problem(origin: str) -> str | None:
    """Return what is wrong with an origin; None: nothing."""
    if "*" in origin:
        return (
            "names no origin: any page that is opened could then try keys here, from inside your network; "
            "list each origin, like https://chat.example.com"
        )
    if origin == "null":
        return (
            "'null' is the origin of every local file and every sandboxed frame: serve the page, and list its origin,"
            " like http://localhost:5173"
        )
    right = _corrected(origin)
    if right == origin:
        return None
    if right is None:
        return "is not an origin: write scheme://host or scheme://host:port, like https://chat.example.com"
    return f"is not an origin as browsers write it: write {right}"


def _corrected(text: str) -> str | None:
    """Return ``text`` as the origin that it means; None if it means none."""
    try:
        scheme = "http" if text.startswith(("localhost", "127.")) else "https"
        parts = urlsplit((text if "://" in text else f"{scheme}://{text}").strip())
        host, port = parts.hostname or "", parts.port
        host = f"[{host}]" if ":" in host else host.rstrip(".").encode("idna").decode()
    except ValueError:  # UnicodeError too
        return None
    shown = "" if port is None or port == _DEFAULT_PORTS.get(parts.scheme) else f":{port}"
    origin = f"{parts.scheme}://{host}{shown}"
    return origin if _ORIGIN.fullmatch(origin) else None
