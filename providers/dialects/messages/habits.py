"""What differs among the models that are asked in Messages, where the request leaves it open."""

import re

import msgspec

from providers.dialects.messages.request_from_chat import DEFAULT_MAX_TOKENS

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[.-](\d{1,2}))?(?!\d)")
_FIRST_ADAPTIVE = (4, 6)  # models before it take a budget of tokens, not an effort


class Habits(msgspec.Struct, frozen=True):
    """How one model is to be asked."""

    max_tokens: int = DEFAULT_MAX_TOKENS  # the limit of an answer to who names none
    adaptive_thinking: bool = True  # it decides itself how long to think, and takes an effort


def habits_of(model: str, max_output_tokens: int | None) -> Habits:
    """Return the habits of ``model``, which can answer with ``max_output_tokens`` at most (None: unknown)."""
    found = _VERSION.search(model)
    version = (int(found[1]), int(found[2] or 0)) if found else _FIRST_ADAPTIVE
    return Habits(max_output_tokens or DEFAULT_MAX_TOKENS, version >= _FIRST_ADAPTIVE)
