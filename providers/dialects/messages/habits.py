"""In what models that speak Messages differ: their limits, their way of thinking, their sampling parameters."""

import re

from providers.dialects.habits import Habits
from providers.dialects.messages.request_from_chat import DEFAULT_MAX_TOKENS, Sampling

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d+)(?:[.-](\d{1,2}))?(?!\d)")
_FIRST_ADAPTIVE = (4, 6)  # older models take a budget of tokens, not an effort
_FIRST_TO_TAKE_ONE = (4, 1)  # temperature or top_p, not both
_FIRST_TO_TAKE_NONE = (4, 7)  # neither of them, nor top_k


class MessagesHabits(Habits, frozen=True):
    """How one model must be asked in Messages."""

    max_tokens: int = DEFAULT_MAX_TOKENS  # the limit of an answer for clients that set none
    adaptive_thinking: bool = True  # it decides itself how long it thinks, and takes an effort
    sampling: Sampling = "free"


def habits_of(model: str, max_output_tokens: int | None, known: Habits) -> MessagesHabits:
    """Return the habits of ``model``, whose answers have ``max_output_tokens`` at most (None: unknown)."""
    found = _VERSION.search(model)
    limit = max_output_tokens or DEFAULT_MAX_TOKENS
    if found is None:
        return MessagesHabits(thinks=known.thinks, max_tokens=limit)
    version = (int(found[1]), int(found[2] or 0))
    sampling: Sampling = "free" if version < _FIRST_TO_TAKE_ONE else "one"
    if version >= _FIRST_TO_TAKE_NONE:
        sampling = "none"
    return MessagesHabits(
        thinks=known.thinks, max_tokens=limit, adaptive_thinking=version >= _FIRST_ADAPTIVE, sampling=sampling
    )


def of_messages(habits: Habits) -> MessagesHabits:
    """Return ``habits`` as those of Messages; what is not known of a model is as with the newest ones."""
    return habits if isinstance(habits, MessagesHabits) else MessagesHabits(thinks=habits.thinks)
