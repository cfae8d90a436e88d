"""Answers in each API as scripts, so that one may break off and another go on with it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from providers.simulator import Delta, Done, Finish, Raw, RoleOnly, Step, UsageChunk
from tests.app.gateway.apis.test_dialects import event


class Seen:
    """What an answer that breaks waits for: its client has the beginning. Each test has an event of its own loop."""

    def __init__(self) -> None:
        self.event = asyncio.Event()


TOKENS = 9  # that a script of chat, Messages or Responses reports at its end
BODIES: Mapping[str, dict[str, Any]] = {  # by the path below /v1
    "chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100},
    "completions": {"prompt": "Hi.", "max_tokens": 100},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 100},
    "responses": {"input": "Hi", "max_output_tokens": 100},
    "interactions": {"input": "Hi", "generation_config": {"max_output_tokens": 100}},
}
WAYS = {"chat": "prefix", "completions": None, "messages": "prefill", "responses": "in_progress"}


def pieces(text: str, size: int = 5) -> list[str]:
    """Cut a text."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def chat(texts: Sequence[str]) -> list[Step]:
    return [RoleOnly(), *map(Delta, texts)]


def chat_end() -> list[Step]:
    return [Finish(), UsageChunk(10, TOKENS), Done()]


def completion(texts: Sequence[str]) -> list[Step]:
    choices = [{"index": 0, "text": text, "finish_reason": None, "logprobs": None} for text in texts]
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    return [Raw(b"data: %b\n\n" % msgspec.json.encode({**head, "choices": [one]}), token=True) for one in choices]


def completion_end() -> list[Step]:
    choice = {"index": 0, "text": "", "finish_reason": "length"}
    last = {"id": "cmpl-2", "object": "text_completion", "choices": [choice]}
    return [Raw(b"data: %b\n\ndata: [DONE]\n\n" % msgspec.json.encode(last))]


def message(texts: Sequence[str], *, block: Any = None) -> list[Step]:
    first: dict[str, Any] = {"id": f"msg_{len(texts)}", "type": "message", "role": "assistant", "model": "m"}
    first |= {"content": [], "stop_reason": None, "stop_sequence": None}
    first["usage"] = {"input_tokens": 7, "output_tokens": 1}
    block = block or {"type": "text", "text": ""}
    started = event("message_start", message=first) + event("content_block_start", index=0, content_block=block)
    deltas = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in texts]
    return [Raw(started + deltas[0], token=True), *map(Raw, deltas[1:])]


def message_end(reason: str = "end_turn") -> list[Step]:
    stop = event("content_block_stop", index=0)
    delta = event(
        "message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": TOKENS}
    )
    return [Raw(stop + delta + event("message_stop"))]


def response(texts: Sequence[str]) -> list[Step]:
    head = {"id": f"resp_{len(texts)}", "object": "response", "created_at": 1, "model": "m", "output": []}
    head |= {"status": "in_progress", "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": None}
    item = {"id": "msg_7", "type": "message", "status": "in_progress", "role": "assistant", "content": []}
    part = {"type": "output_text", "text": "", "annotations": []}
    place = {"item_id": "msg_7", "output_index": 0, "content_index": 0}
    said: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": head}),
        ("response.in_progress", {"response": head}),
        ("response.output_item.added", {"output_index": 0, "item": item}),
        ("response.content_part.added", {**place, "part": part}),
        *[("response.output_text.delta", {**place, "delta": text, "logprobs": []}) for text in texts],
    ]
    written = [event(kind, sequence_number=number, **fields) for number, (kind, fields) in enumerate(said)]
    return [Raw(b"".join(written[:5]), token=True), *map(Raw, written[5:])]


def response_end(status: str = "completed") -> list[Step]:
    usage = {"input_tokens": 5, "output_tokens": TOKENS, "total_tokens": 5 + TOKENS}
    last: dict[str, Any] = {"id": "resp_x", "object": "response", "status": status, "output": [], "usage": usage}
    last["completed_at"] = 2
    if status == "incomplete":
        last["incomplete_details"] = {"reason": "max_output_tokens"}
    return [Raw(event(f"response.{status}", sequence_number=99, response=last))]


SAYS: Mapping[str, Callable[[Sequence[str]], list[Step]]] = {  # by the API that a provider has
    "chat": chat,
    "completions": completion,
    "messages": message,
    "responses": response,
}
ENDS: Mapping[str, Callable[[], list[Step]]] = {
    "chat": chat_end,
    "completions": completion_end,
    "messages": message_end,
    "responses": response_end,
}


def text_in(said: Sequence[dict[str, Any]]) -> str:
    """Return the text of all deltas, in any API."""
    found: list[str] = []
    for each in said:
        delta = each.get("delta")
        if isinstance(delta, str):
            found.append(delta)
        elif isinstance(delta, dict):
            found.append(delta.get("text") or "")
        choices = each.get("choices")
        choices = choices if isinstance(choices, list) else ()  # a provider's may be anything
        found += [choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices]
    return "".join(found)
