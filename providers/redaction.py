"""Removes secrets from providers' texts, so that these can be shown and stored."""

import re
from collections.abc import Iterable
from typing import Any

MASK = "***"

# The format of keys in general: a provider may echo another key than ours, or a part of one. A client's key
# (hs-…) is never sent to providers.
_PREFIXES = ("hs-", "sk-", "gsk_", "csk-", "xai-", "nvapi-", "pplx-", "fw_", "hf_", "r8_", "tgp_", "AIza")
_KEY_SHAPES = re.compile(
    rf"""(?P<lead>\b(?:Bearer|Basic|bearer|basic)\s+|[?&](?:api[-_]?key|key|token)=)[^\s"'&<>]+
      | (?P<user>://[^\s/:@]*:)[^\s/@]+(?=@)
      | (?<![\w-])(?:{"|".join(_PREFIXES)})[A-Za-z0-9_*.\-]{{8,}}
    """,
    re.VERBOSE,
)
# Keys of local servers may be "x" or "ollama"; masking such words would make messages unreadable.
_SHORTEST_SECRET = 6


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with all ``secrets``, and everything else that looks like a key, replaced by ``***``."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return _KEY_SHAPES.sub(lambda match: (match["lead"] or match["user"] or "") + MASK, text)


def redact_word(word: str, secrets: Iterable[str] = ()) -> str:
    """Redact ``word``; faster than ``redact`` for an id of letters, digits, - and _."""
    is_plain = word.isascii() and ("_" + word.replace("-", "_")).isidentifier()
    if not is_plain or word.startswith(_PREFIXES) or any(secret in word for secret in secrets):
        return redact(word, secrets)
    return word


def redact_json(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a decoded JSON ``value`` with its strings redacted, names of fields included."""
    known = tuple(secrets)
    match value:
        case str():
            return redact(value, known)
        case list():
            return [redact_json(item, known) for item in value]
        case dict():
            return {redact(str(key), known): redact_json(item, known) for key, item in value.items()}
        case _:
            return value
