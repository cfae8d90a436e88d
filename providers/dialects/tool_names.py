"""Names of tools in the length that every API accepts."""

import hashlib
import re

_LONGEST = 64  # characters: OpenAI's limit, and that of vendors with the same API
_MARK = 8  # characters of a hash, which distinguishes names with the same beginning
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


def short_name(name: str) -> str:
    """Return a tool's name in 64 characters at most; always the same for the same name."""
    return name if len(name) <= _LONGEST else _marked(name, name)


def flat_name(namespace: str, name: str) -> str:
    """Return the one name of a tool in a namespace, in letters, digits, ``_`` and ``-``."""
    flat = f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"
    allowed = _FORBIDDEN.sub("_", flat)
    return allowed if allowed == flat and len(flat) <= _LONGEST else _marked(allowed, f"{namespace}\0{name}")


def _marked(name: str, whole: str) -> str:
    mark = hashlib.sha256(whole.encode()).hexdigest()[:_MARK]
    return f"{name[: _LONGEST - _MARK - 1]}_{mark}"
