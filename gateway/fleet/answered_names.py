"""The names under patterns that the ledger has rows of: those that have answered, a bounded number of each pattern.

Clients choose these names, and may invent them without end. A name that no provider has answered to is recorded under
its pattern (``claude-*``), and so are names beyond the bound, as some servers answer to any name.
"""

MOST_NAMES = 100  # of a pattern, in one process: no vendor has as many that are asked for at one time


class AnsweredNames:
    """By pattern, the names that have answered. These outlive reloads."""

    def __init__(self) -> None:
        self._of: dict[str, set[str]] = {}

    def add(self, pattern: str, name: str) -> None:
        """Note that a name has answered, if there is room."""
        known = self._of.setdefault(pattern, set())
        if len(known) < MOST_NAMES:
            known.add(name)

    def has(self, pattern: str, name: str) -> bool:
        """Whether a name has answered, and is one of those kept."""
        return name in self._of.get(pattern, ())
