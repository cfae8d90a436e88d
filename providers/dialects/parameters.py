"""The names that a dialect has for the parameters of requests; chat's are those of the configuration."""

from collections.abc import Callable, Mapping

import msgspec


class SystemPrompt(msgspec.Struct, frozen=True):
    """Where a request has its system prompt."""

    field: str
    item: Callable[[str], Mapping[str, str]]  # one of an array there, of this text


class ParameterNames(msgspec.Struct, frozen=True):
    """What chat's parameters are called."""

    answer_limits: tuple[str, ...]  # the names of max_tokens, any of which says it; the newest first
    has_default_limit: bool = False  # an answer without any has a short limit all the same
    known: frozenset[str] | None = None  # besides those limits; None: all, others' own among them
    unknown: frozenset[str] = frozenset()  # but these
    renamed: Mapping[str, str] = {}  # by chat's name
    lists: frozenset[str] = frozenset()  # take a list only, where chat takes one value too

    def of(self, name: str) -> tuple[str, ...]:
        """Return what chat's parameter ``name``, which is none of the limits, is called; nothing if it is not known."""
        if name in self.renamed:
            return (self.renamed[name],)
        is_known = name not in self.unknown if self.known is None else name in self.known
        return (name,) if is_known else ()
