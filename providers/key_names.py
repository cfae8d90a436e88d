"""What a provider's keys are called in the ledger: enough to tell them apart, and no secret."""

from collections.abc import Sequence

SHOWN_CHARS = 4  # a key's last ones, as vendors' own consoles show them
SHORTEST_CHARS = 16  # of a shorter key, four would be too large a part


def key_names(keys: Sequence[str], own: Sequence[str | None] = ()) -> tuple[str, ...]:
    """Return a name for each of ``keys``: its ``own``, else its last four characters, else its place: ``#2``.

    Where two would get the same name, it is each one's place.
    """
    names = [_name(key, named) for key, named in zip(keys, own or (None,) * len(keys), strict=True)]
    return tuple(
        name if name is not None and names.count(name) == 1 else f"#{number}" for number, name in enumerate(names, 1)
    )


def _name(key: str, own: str | None) -> str | None:
    return own or (f"…{key[-SHOWN_CHARS:]}" if len(key) >= SHORTEST_CHARS else None)
