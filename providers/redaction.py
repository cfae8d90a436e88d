"""Removing secrets from what providers say, so that it may be shown and stored."""

import re
from collections.abc import Iterable
from typing import Any

MASK = "***"

# What a key looks like even when it is not one of those we send: a provider may echo another, or half of one, and a
# client's (hs-…) reaches us only.
_PREFIXES = ("hs-", "sk-", "gsk_", "csk-", "xai-", "nvapi-", "pplx-", "fw_", "hf_", "r8_", "tgp_", "AIza")
_KEY_SHAPES = re.compile(
    rf"""(?P<lead>\b(?:Bearer|Basic|bearer|basic)\s+|[?&](?:api[-_]?key|key|token)=)[^\s"'&<>]+
      | (?P<user>://[^\s/:@]*:)[^\s/@]+(?=@)
      | (?<![\w-])(?:{"|".join(_PREFIXES)})[A-Za-z0-9_*.\-]{{8,}}
    """,
    re.VERBOSE,
)
# Keys of local servers may be "x" or "ollama"; masking every such word would make messages unreadable.
_SHORTEST_SECRET = 6


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with every one of ``secrets``, and whatever else looks like a key, replaced by ``***``."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return _KEY_SHAPES.sub(lambda match: (match["lead"] or match["user"] or "") + MASK, text)


def redact_word(word: str, secrets: Iterable[str] = ()) -> str:
    """Return what ``redact`` does, sooner where ``word`` is made of letters, digits, - and _ alone, as ids are."""
    is_plain = word.isascii() and ("_" + word.replace("-", "_")).isidentifier()
    if not is_plain or word.startswith(_PREFIXES) or any(secret in word for secret in secrets):
        return redact(word, secrets)
    return word


def redact_json(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a decoded JSON ``value`` with the strings in it redacted, keys included."""
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
