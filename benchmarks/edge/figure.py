"""One figure of a measure, and what the measure tells from it."""

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """A name, a value and its unit. ``value`` is None when what was waited for did not happen."""

    name: str
    value: float | None
    unit: str = ""
