"""The names under patterns for which the ledger has rows: names that have answered, a bounded number per pattern.

Clients choose these names, and may invent any number of them. A name is recorded under its pattern (``claude-*``) until
a provider has answered to the name. So are names beyond the bound, as some servers answer to any name.
"""

MOST_NAMES = 100  # of a pattern, in one process: no vendor has so many models that are asked for at one time


class AnsweredNames:
    """By pattern, the names that have answered. The names outlive reloads."""

    def __init__(self) -> None:
        self._of: dict[str, set[str]] = {}

    def add(self, pattern: str, name: str) -> None:
        """Note that a name has answered, if there is room."""
        known = self._of.setdefault(pattern, set())
        if len(known) < MOST_NAMES:
            known.add(name)

    def has(self, pattern: str, name: str) -> bool:
        """Whether a name has answered, and was kept."""
        return name in self._of.get(pattern, ())
