"""A dialect's names for the parameters of requests. The configuration uses chat's names."""

from collections.abc import Callable, Mapping

import msgspec


class SystemPrompt(msgspec.Struct, frozen=True):
    """Where the system prompt is in a request."""

    field: str
    item: Callable[[str], Mapping[str, str]]  # makes the item with this text, where the field is an array


class ParameterNames(msgspec.Struct, frozen=True):
    """The names of chat's parameters in this dialect."""

    answer_limits: tuple[str, ...]  # all names of max_tokens, the newest first
    has_default_limit: bool = False  # without a limit in the request, a short one applies
    known: frozenset[str] | None = None  # other parameters that exist; None: all, also vendors' own
    unknown: frozenset[str] = frozenset()  # parameters of chat that do not exist
    renamed: Mapping[str, str] = {}  # from chat's name
    lists: frozenset[str] = frozenset()  # must be a list, where chat accepts a single value too

    def of(self, name: str) -> tuple[str, ...]:
        """Return the names of chat's parameter ``name``, which is not an answer limit; none if it does not exist."""
        if name in self.renamed:
            return (self.renamed[name],)
        is_known = name not in self.unknown if self.known is None else name in self.known
        return (name,) if is_known else ()
