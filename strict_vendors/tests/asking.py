"""A request to a strict stand-in without a socket, and what came."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from strict_vendors import Vendor

USER = {"role": "user", "content": "Hello"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Came(Struct):
    """An answer: the status, and its JSON or the JSON of each event."""

    status: int
    body: Any
    events: list[Any]
    text: str
    rule: str = ""
    page: str = ""

    @property
    def message(self) -> str:
        """The answer's message."""
        return str(self.body["choices"][0]["message"])


def ask(vendor: Vendor, path: str, body: Any, headers: Mapping[str, str] | None = None, method: str = "POST") -> Came:
    """Ask a stand-in, with its key unless ``headers`` say otherwise."""
    given = {"authorization": f"Bearer {vendor.key}"} if headers is None else headers
    reply = vendor.answer(method, path, given, json.dumps(body).encode() if body is not None else b"")
    raw = b"".join(reply.blocks) if reply.blocks is not None else b""
    text = raw.decode("utf-8", "replace")
    events = [
        json.loads(line.removeprefix("data: "))
        for line in text.splitlines()
        if line.startswith("data: ") and line != "data: [DONE]"
    ]
    refusal = vendor.refusals[-1] if vendor.refusals else None
    return Came(
        reply.status,
        reply.body,
        events,
        text,
        refusal.rule if refusal and reply.status >= 400 else "",
        refusal.page if refusal and reply.status >= 400 else "",
    )


def chat(vendor: Vendor, model: str, *messages: Any, **fields: Any) -> Came:
    """Ask for a chat completion."""
    return ask(
        vendor, f"{vendor.base}/chat/completions", {"model": model, "messages": list(messages or [USER]), **fields}
    )


def called(call_id: str, arguments: str = '{"city": "Berlin"}', **fields: Any) -> dict[str, Any]:
    """Return the assistant's turn that calls the tool."""
    function = {"name": "get_weather", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}], **fields}


def result(call_id: str, text: str = "sunny") -> dict[str, Any]:
    """Return the result of the call."""
    return {"role": "tool", "tool_call_id": call_id, "content": text}
