"""Releases a prompt after it was sent for the last time: the answer may stream for minutes without it."""

from collections.abc import Mapping

import msgspec

from gateway.racing.expected import EXPECTED
from gateway.racing.requested import REQUESTED

_STILL_READ = EXPECTED | REQUESTED  # needed at the call's end, by the judgement and the record


def forget_prompt(fields: Mapping[str, msgspec.Raw]) -> None:
    """Remove from a request's top level what is not needed at the call's end; copy the rest out of the body.

    In place: tasks that wait for the answer hold the same mapping, and each raw value holds the whole body.
    """
    if isinstance(fields, dict):
        kept = {name: fields[name].copy() for name in _STILL_READ if name in fields}
        fields.clear()
        fields.update(kept)
