"""Old names of fields in answers: beside the new ones, marked as deprecated, until the version ``GONE_WITH``.

Old names of views' columns are in ``gateway/ledger/old_names.py``; docs/reference/ledger.md says how both are named.
"""

from collections.abc import Mapping
from functools import cache
from typing import get_type_hints

import msgspec

GONE_WITH = "0.2.0"  # the version whose answers and views have only the new names


def formerly(now: str) -> msgspec.Meta:
    """Return the mark of a field as the old name of the field ``now``: for the annotation of a field with a default."""
    return msgspec.Meta(
        description=f"Gone with {GONE_WITH}: now `{now}`.", extra_json_schema={"deprecated": True}, extra={"now": now}
    )


class WithOldNames(msgspec.Struct, frozen=True):
    """An answer with its values also under the fields' old names, which are set from the new ones."""

    def __post_init__(self) -> None:
        """Set the old names from the new ones."""
        for old, now in old_names(type(self)).items():
            msgspec.structs.force_setattr(self, old, getattr(self, now))


@cache
def old_names(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the fields that are old names, each with the present name."""
    hints = get_type_hints(struct, include_extras=True)
    return {
        name: meta.extra["now"]
        for name in struct.__struct_fields__
        for meta in getattr(hints[name], "__metadata__", ())
        if isinstance(meta, msgspec.Meta) and meta.extra
    }
