"""Requests in the words of Messages and of chat, for the tests of both directions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from providers.dialects import Wording
from providers.dialects.messages.request_from_chat import from_chat
from providers.dialects.messages.request_to_chat import to_chat

PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
ASK = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": False}
MARK = {"type": "ephemeral"}


def raw(fields: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def said(wording: Wording) -> dict[str, Any]:
    return {name: msgspec.json.decode(value) for name, value in wording.fields.items()}


def lost(wording: Wording) -> dict[str, bool]:
    return {loss.field: loss.hint for loss in wording.losses}


def chat_of(**fields: Any) -> Wording:
    return to_chat(raw({"max_tokens": 9, "messages": ASK, **fields}))


def messages_of(*, options: Mapping[str, Any] | None = None, **fields: Any) -> Wording:
    return from_chat(raw({"max_tokens": 9, "messages": ASK, **fields}), **(options or {}))


def call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
