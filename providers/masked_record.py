"""Records with secrets or clients' texts, which must not appear in tracebacks, debuggers or logs."""

from collections.abc import Iterable

import msgspec


class MaskedRecord(msgspec.Struct, frozen=True):
    """A record whose ``repr``, ``str`` and rich output have only the fields that ``shown`` returns."""

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return the names and values that may be shown; none unless overridden."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.shown())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # msgspec's own yields every field
        return list(self.shown())
