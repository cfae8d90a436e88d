"""Thinking blocks that Anthropic did not sign: its API refuses a request with such a block.

A client gets the reasoning of another provider's model as thinking with an empty signature. It sends this back with
its next request, which may go to Anthropic.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects.messages.losses import RawObject, is_string, objects_at, text_at
from providers.dialects.wording import Loss, Wording, raw_json

_EMPTY = (b'"signature":""', b'"signature": ""')


def without_unsigned_thoughts(fields: Mapping[str, msgspec.Raw]) -> Wording:
    """Return a Messages request without thinking blocks that have an empty signature; unchanged, if there are none.

    Raises:
        Malformed: the conversation is not valid in Messages; only checked where such blocks seem to exist.

    """
    conversation = bytes(fields.get("messages", b""))
    if not any(empty in conversation for empty in _EMPTY):
        return Wording(fields)
    losses: list[Loss] = []
    said: list[dict[str, Any]] = []
    for number, turn in enumerate(objects_at(fields["messages"], "messages")):
        path = f"messages[{number}].content"
        content = turn.get("content")
        if content is None or is_string(content):
            said.append({**turn})
            continue
        kept: list[RawObject] = []
        for place, block in enumerate(objects_at(content, path)):
            if text_at(block, "type", path) == "thinking" and bytes(block.get("signature", b"")) == b'""':
                losses.append(
                    Loss(f"{path}[{place}]", "Messages refuses thinking blocks that it did not sign", hint=True)
                )
            else:
                kept.append(block)
        if kept:
            said.append({**turn, "content": kept})
    return Wording({**fields, "messages": raw_json(said)}, tuple(losses)) if losses else Wording(fields)
