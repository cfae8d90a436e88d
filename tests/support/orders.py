"""The order in which each vendor sends the events of a stream, as a grammar of their words.

Programs rely on more than the types of events: some keep one current item alone (pi's reader of Responses,
packages/ai/src/providers/openai-responses-shared.ts of github.com/badlogic/pi-mono, read on 2026-11-29). The orders
are those of developers.openai.com/api/docs/guides/streaming-responses and …/api-reference/chat-streaming,
platform.claude.com/docs/en/build-with-claude/streaming and ai.google.dev/api/generate-content, read on that day.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from providers.bodies import events

Event = Mapping[str, Any]


def _part(kind: str, added: str, *pieces: str) -> str:
    """Return the events of a part: it begins, has pieces, and ends twice."""
    return rf"{added}\.added (?:(?:{'|'.join(map(re.escape, pieces))}) )*{kind}\.done {added}\.done "


def _called(kind: str) -> str:
    argument = {"function_call": "function_call_arguments", "custom_tool_call": "custom_tool_call_input"}[kind]
    return rf"{kind}\+ (?:{argument}\.delta )*{argument}\.done {kind}- "


_TEXT = _part("output_text", "content_part", "output_text.delta", "output_text.annotation.added")
_REFUSAL = _part("refusal", "content_part", "refusal.delta")
_THOUGHT = _part("reasoning_text", "content_part", "reasoning_text.delta")
_SUMMARY = _part("reasoning_summary_text", "reasoning_summary_part", "reasoning_summary_text.delta")
_ITEM = "|".join((
    rf"message\+ (?:{_TEXT}|{_REFUSAL})*message- ",
    rf"reasoning\+ (?:{_THOUGHT}|{_SUMMARY})*reasoning- ",
    _called("function_call"),
    _called("custom_tool_call"),
    r"tool_search_call\+ tool_search_call- ",
    r"image_generation_call\+ (?:image_generation_call\.\w+ )*image_generation_call- ",
))  # fmt: skip
_BLOCK = "|".join(
    rf"{kind}\+ (?:(?:{deltas})_delta )*content_block_stop "
    for kind, deltas in {
        "text": "text|citations",
        "thinking": "thinking|signature",
        "redacted_thinking": "no",
        "tool_use": "input_json",
    }.items()
)
_STEP = (
    r"(?:thought\+ (?:thought_summary )*(?:thought_signature )?step\.stop "
    r"|model_output\+ (?:text |image |audio |text_annotation_delta )*step\.stop "
    r"|function_call\+ (?:arguments_delta )*step\.stop )"
)
GRAMMARS: Mapping[str, re.Pattern[str]] = {
    "chat": re.compile(r"role (?:text |thought |begins |goes on |more )*finish (?:usage )?\[DONE\] "),
    "messages": re.compile(rf"message_start (?:{_BLOCK}|ping )*message_delta message_stop "),
    "responses": re.compile(rf"created in_progress (?:{_ITEM})*(?:completed|incomplete) "),
    "gemini": re.compile(r"(?:parts )*finish "),
    "interactions": re.compile(rf"created status_update (?:{_STEP})*completed \[DONE\] "),
}


def wrong_order(api: str, stream: bytes) -> str | None:
    """Return what is wrong with the order of a whole stream, that has no error; None if nothing is."""
    sent = [event.data.strip() for event in events(stream) if event.data.strip()]
    told = [each if each == b"[DONE]" else json.loads(each) for each in sent]
    words = "".join(f"{word} " for each in told for word in _words(api, each))
    if GRAMMARS[api].fullmatch(words) is None:
        return words
    return next(_CHECKS[api]([each for each in told if isinstance(each, dict)]), None)


def _words(api: str, event: Any) -> list[str]:
    if event == b"[DONE]":
        return ["[DONE]"]
    return _OF[api](event)


def _of_response(event: Event) -> list[str]:
    kind = event["type"].removeprefix("response.")
    if kind in {"output_item.added", "output_item.done"}:
        return [event["item"]["type"] + ("+" if kind.endswith("added") else "-")]
    return [kind]


def _of_interaction(event: Event) -> list[str]:
    match event["event_type"]:
        case "step.start":
            return [event["step"]["type"] + "+"]
        case "step.delta":
            return [event["delta"]["type"]]
        case kind:
            return [kind.removeprefix("interaction.")]


def _of_message(event: Event) -> list[str]:
    match event["type"]:
        case "content_block_start":
            return [event["content_block"]["type"] + "+"]
        case "content_block_delta":
            return [event["delta"]["type"]]
        case kind:
            return [kind]


def _of_chunk(event: Event) -> list[str]:
    if not event["choices"]:
        return ["usage"]
    [choice] = event["choices"]
    delta = choice["delta"]
    found = ["role"] if "role" in delta else []
    found += ["thought"] if delta.get("reasoning_content") else []
    found += ["text"] if delta.get("content") else []
    found += ["begins" if call.get("id") else "goes on" for call in delta.get("tool_calls") or ()]
    found += ["finish"] if choice.get("finish_reason") else []
    return found or ["more"]


def _of_google(event: Event) -> list[str]:
    [candidate] = event["candidates"]
    return ["finish" if candidate.get("finishReason") else "parts"]


# What words do not tell: which item, block or call an event is of.


def _check_responses(told: Sequence[Event]) -> Iterator[str]:
    if [event["sequence_number"] for event in told] != [*range(len(told))]:
        yield "sequence numbers"
    ended = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    if [event["response"]["output"] for event in (*told[:2], told[-1])] != [[], [], ended]:
        yield "the response has other items than were ended"
    count, item_id = 0, None
    for event in told[2:-1]:
        if event["type"] == "response.output_item.added":
            item_id = event["item"]["id"]
        if (event["output_index"], event["item"]["id"] if "item" in event else event["item_id"]) != (count, item_id):
            yield f"{event['type']} of another item than the open one"
        count += event["type"] == "response.output_item.done"
    yield from _other_texts(told)


def _other_texts(told: Sequence[Event]) -> Iterator[str]:
    """Return the events that end a text with another one than its deltas have."""
    pieces: list[str] = []
    for event in told:
        kind = event["type"]
        if kind.endswith("_part.added") or kind == "response.output_item.added":
            pieces = []
        elif kind.endswith(".delta"):
            pieces.append(event["delta"])
        elif kind.endswith(".done"):
            whole = [event[name] for name in ("text", "refusal", "arguments", "input") if name in event]
            if whole and whole != ["".join(pieces)]:
                yield f"{kind} has another text than its deltas"


def _check_messages(told: Sequence[Event]) -> Iterator[str]:
    count = 0
    for event in told:
        if "index" in event and event["index"] != count:
            yield f"{event['type']} of block {event['index']} while {count} is open"
        count += event["type"] == "content_block_stop"


def _check_chat(told: Sequence[Event]) -> Iterator[str]:
    begun = 0
    for event in told:
        for choice in event["choices"]:
            for call in choice["delta"].get("tool_calls") or ():
                if call.get("id"):
                    if call["index"] != begun or not (call.get("function") or call["custom"])["name"]:
                        yield f"call {call['index']} begins after {begun}"
                    begun += 1
                elif call["index"] >= begun:
                    yield f"arguments of call {call['index']} before it began"


def _check_gemini(told: Sequence[Event]) -> Iterator[str]:
    for before, event in pairwise(told):
        if "usageMetadata" in before and "usageMetadata" not in event:
            yield "usage before the end alone"
    for event in told:
        for part in event["candidates"][0].get("content", {}).get("parts", ()):
            if "functionCall" in part and not isinstance(part["functionCall"]["args"], dict):
                yield "a call in pieces"


def _check_interactions(told: Sequence[Event]) -> Iterator[str]:
    steps = [event["index"] for event in told if event["event_type"] == "step.start"]
    if steps != list(range(len(steps))):
        yield f"steps {steps}"
    open_ = None
    for event in told:
        if event["event_type"] == "step.start":
            open_ = event["index"]
        elif event.get("index", open_) != open_:
            yield f"an event of step {event['index']} within step {open_}"
    if len({event["interaction"]["id"] for event in told if "interaction" in event}) != 1:
        yield "two ids"


_OF: Mapping[str, Callable[[Event], list[str]]] = {
    "chat": _of_chunk,
    "messages": _of_message,
    "responses": _of_response,
    "gemini": _of_google,
    "interactions": _of_interaction,
}
_CHECKS: Mapping[str, Callable[[Sequence[Event]], Iterator[str]]] = {
    "chat": _check_chat,
    "messages": _check_messages,
    "responses": _check_responses,
    "gemini": _check_gemini,
    "interactions": _check_interactions,
}
