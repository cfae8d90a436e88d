"""Records that hold secrets or a client's own words, and show neither in a traceback, a debugger or a log."""

from collections.abc import Iterable

import msgspec


class MaskedRecord(msgspec.Struct, frozen=True):
    """A record whose text form is only what its ``shown`` says, for ``repr``, ``str`` and rich alike."""

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return the names and values that anybody may read; none unless overridden."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.shown())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # msgspec's own would yield every field
        return list(self.shown())
