"""Puts thoughts that a model has signed into chat's ``reasoning_details``, where OpenRouter has them."""

from typing import Any

import msgspec

from providers.dialects.chat.deltas import googles_in
from providers.dialects.messages.fields import signed_thoughts
from providers.dialects.wording import (
    ANTHROPIC,
    CLAUDES,
    GEMINIS,
    GOOGLE,
    Malformed,
    decoded,
    raw_json,
    sealed_detail,
    signer_of,
)
from providers.refusals import UNREADABLE

_NONE = msgspec.Raw(b"null")
_calls = msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | None)
_messages = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


def with_signed_details(messages: msgspec.Raw, signer: str) -> msgspec.Raw:
    """Return ``messages`` with the thoughts that ``signer`` has signed as details.

    Anything but a list of objects stays: the vendor refuses it. A signature of Google's in a call becomes a detail with
    the call's id. Details that are there already stay.
    """
    raw = bytes(messages)
    if not any(word in raw for word in (b'"thinking_blocks"', b'"extra_content"')):
        return messages
    try:
        listed = _messages.decode(raw)
        changed = [_set_details(each, signer) for each in listed if "reasoning_details" not in each]
    except (Malformed, *UNREADABLE):
        return messages
    return raw_json(listed) if any(changed) else messages


def _set_details(message: dict[str, msgspec.Raw], signer: str) -> bool:
    """Put the thoughts that ``signer`` has signed, and no others, into a message's details; return if it changed."""
    details: list[dict[str, Any]] = []
    blocks = decoded(message.get("thinking_blocks"), list[dict[str, Any]], "thinking_blocks") or []
    if signer not in {"", ANTHROPIC, GOOGLE}:
        own = [str(block.get("data")) for block in blocks if signer_of(block) == signer]
        details += [detail for detail in map(sealed_detail, own) if detail is not None]
    elif signer == ANTHROPIC and blocks:
        for block in signed_thoughts(message):
            bound = {"text": block["thinking"], "signature": block["signature"]} if "thinking" in block else {}
            kind = {"type": "reasoning.text"} if bound else {"type": "reasoning.encrypted", "data": block["data"]}
            details.append({**kind, **bound, "format": CLAUDES, "index": len(details)})
    has_blocks = message.pop("thinking_blocks", None) is not None
    calls = _calls.decode(message.get("tool_calls", _NONE)) or []
    holders = [holder for holder in (message, *calls) if "extra_content" in holder]
    for holder in holders:
        said = decoded(holder.pop("extra_content"), dict[str, Any], "extra_content")
        if signer == GOOGLE and said is not None and (signature := googles_in({"extra_content": said})):
            named = {"id": holder["id"]} if "id" in holder else {}
            sealed = {"type": "reasoning.encrypted", "data": signature, **named, "format": GEMINIS}
            details.append({**sealed, "index": len(details)})
    if holders and calls:
        message["tool_calls"] = raw_json(calls)
    if details:
        message["reasoning_details"] = raw_json(details)
    return has_blocks or bool(holders)
