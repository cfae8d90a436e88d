"""The end of a prompt: once it was sent for the last time, an answer may stream for minutes without it."""

from collections.abc import Mapping

import msgspec

from gateway.racing.expected import EXPECTED
from gateway.racing.requested import REQUESTED

_STILL_READ = EXPECTED | REQUESTED  # at the end of the call, by the judgement and the record


def forget_prompt(fields: Mapping[str, msgspec.Raw]) -> None:
    """Leave of a request's top level only what is still read at the call's end, apart from the body it came in.

    In place: tasks that wait for the answer hold the same mapping, and with any of its values the whole body.
    """
    if isinstance(fields, dict):
        kept = {name: fields[name].copy() for name in _STILL_READ if name in fields}
        fields.clear()
        fields.update(kept)
