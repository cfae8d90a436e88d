"""What differs among the models that are asked in one dialect, where the request leaves it open."""

import re

import msgspec

from providers.dialects.messages.request_from_chat import DEFAULT_MAX_TOKENS, Sampling

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[.-](\d{1,2}))?(?!\d)")
_FIRST_ADAPTIVE = (4, 6)  # models before it take a budget of tokens, not an effort
_FIRST_TO_TAKE_ONE = (4, 1)  # of temperature and top_p
_FIRST_TO_TAKE_NONE = (4, 7)  # of temperature, top_p and top_k


class Habits(msgspec.Struct, frozen=True):
    """How one model is to be asked."""

    max_tokens: int = DEFAULT_MAX_TOKENS  # the limit of an answer to who names none
    adaptive_thinking: bool = True  # it decides itself how long to think, and takes an effort
    sampling: Sampling = "free"
    thinks: bool = True  # if not, it takes no word of how hard
    takes_thoughts: bool = False  # in chat it wants its reasoning_content back with the calls that came of it


def habits_of(model: str, max_output_tokens: int | None, *, thinks: bool = True) -> Habits:
    """Return the habits of ``model``, which can answer with ``max_output_tokens`` at most (None: unknown)."""
    found = _VERSION.search(model)
    limit = max_output_tokens or DEFAULT_MAX_TOKENS
    if found is None:
        return Habits(limit, thinks=thinks)
    version = (int(found[1]), int(found[2] or 0))
    sampling: Sampling = "free" if version < _FIRST_TO_TAKE_ONE else "one"
    if version >= _FIRST_TO_TAKE_NONE:
        sampling = "none"
    return Habits(limit, version >= _FIRST_ADAPTIVE, sampling, thinks)
