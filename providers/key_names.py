"""The names of a provider's keys in the ledger: they distinguish the keys, and are not secret."""

from collections.abc import Sequence

SHOWN_CHARS = 4  # the last characters of a key, which vendors' consoles show too
SHORTEST_CHARS = 16  # for shorter keys, four characters are too many


def key_names(keys: Sequence[str], own: Sequence[str | None] = ()) -> tuple[str, ...]:
    """Return a name for each of ``keys``: its ``own``, else its last four characters, else its number: ``#2``.

    Keys that would get the same name get their numbers.
    """
    names = [_name(key, named) for key, named in zip(keys, own or (None,) * len(keys), strict=True)]
    return tuple(
        name if name is not None and names.count(name) == 1 else f"#{number}" for number, name in enumerate(names, 1)
    )


def _name(key: str, own: str | None) -> str | None:
    return own or (f"…{key[-SHOWN_CHARS:]}" if len(key) >= SHORTEST_CHARS else None)
