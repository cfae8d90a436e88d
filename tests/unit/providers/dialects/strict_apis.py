"""The rules of each API for a conversation: what a request does wrong.

The strict stand-ins of ``strict_vendors`` have most of them, with the pages that they come from. Here are those
that other servers of the same APIs have, which are stricter in some.
"""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from strict_vendors import made

_VENDORS = {  # of each API, and of each vendor of chat: the stand-in, the address, and a model
    "responses": ("openai", "/v1/responses", {"model": "gpt-5.1"}),
    "messages": ("anthropic", "/v1/messages", {"model": "claude-haiku-4-5"}),
    "gemini": ("google", "/v1beta/models/gemini-2.5-flash:generateContent", {}),
    "converse": ("bedrock", "/model/us.anthropic.claude-haiku-4-5-20251001-v1:0/converse", {}),
    "openai": ("openai", "/v1/chat/completions", {"model": "gpt-4.1"}),
    "mistral": ("mistral", "/v1/chat/completions", {"model": "mistral-medium-latest"}),
    "deepseek": ("deepseek", "/v1/chat/completions", {"model": "deepseek-v4-pro"}),
    "groq": ("groq", "/openai/v1/chat/completions", {"model": "meta-llama/llama-4-scout-17b-16e-instruct"}),
    "strictest": ("vllm", "/v1/chat/completions", {"model": "google/gemma-3-27b-it"}),
}


def _refused(api: str, body: dict[str, Any]) -> list[str]:
    """Return what the strict stand-in of an API answers but 200."""
    name, path, model = _VENDORS[api]
    vendor = made(name)
    own = {"x-api-key": vendor.key, "anthropic-version": "2023-06-01", "x-goog-api-key": vendor.key}
    headers = own if api in {"messages", "gemini"} else {"authorization": f"Bearer {vendor.key}"}
    vendor.answer("POST", path, headers, json.dumps({**_nested(body), **model}).encode())
    return [f"{each.status} {each.message}" for each in vendor.refusals]


def _nested(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body with ``{"a.b": 1}`` as ``{"a": {"b": 1}}``: providers write them so in the end."""
    nested: dict[str, Any] = {}
    for name, value in body.items():
        outer, _, inner = name.partition(".")
        nested[outer] = {**nested.get(outer, {}), inner: value} if inner else value
    return nested


def _is_object(written: Any) -> bool:
    try:
        return isinstance(json.loads(written), dict)
    except (TypeError, ValueError):
        return False


def faults_of_chat(body: dict[str, Any], *, same_order: bool = True) -> list[str]:
    """Return what OpenAI's chat completions answer with 400."""
    return list(_chat(body["messages"], body.get("tools") or [], same_order=same_order))


def _chat(messages: list[dict[str, Any]], tools: list[dict[str, Any]], *, same_order: bool) -> Iterator[str]:  # noqa: C901, PLR0912 - one rule after the other
    waiting: list[str] = []
    for number, message in enumerate(messages):
        role, content = message["role"], message.get("content")
        if role not in {"system", "developer", "user", "assistant", "tool"}:
            yield f"messages[{number}]: unknown role"
        if waiting and role != "tool":
            yield f"messages[{number}]: tool_call_ids did not have response messages: {waiting}"
            waiting = []
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"messages[{number}]: no preceding tool_calls"
            else:
                waiting.remove(message["tool_call_id"])
            if isinstance(content, list) and any(part["type"] != "text" for part in content):
                yield f"messages[{number}]: a tool's result is text"
        if role != "assistant" and (content is None or content == []):
            yield f"messages[{number}]: content is required"
        if role == "assistant":
            calls = message.get("tool_calls")
            if calls == [] or (content is None and not calls and not message.get("refusal")):
                yield f"messages[{number}]: content or tool_calls"
            waiting = [call["id"] for call in calls or ()]
            if len(set(waiting)) < len(waiting):
                yield f"messages[{number}]: two calls with one id"
            if same_order and not all(_is_object(call["function"]["arguments"]) for call in calls or ()):
                yield f"messages[{number}]: arguments are no object"
    if waiting:
        yield "tool_call_ids did not have response messages at the end"
    for tool in tools:
        schema = tool["function"].get("parameters")
        if same_order and schema is not None and schema.get("type") == "object" and "properties" not in schema:
            yield "object schema missing properties"


def faults_at(vendor: str, body: dict[str, Any]) -> list[str]:
    """Return what this vendor of chat answers with 400, beside OpenAI's rules."""
    messages = body["messages"]
    faults = faults_of_chat(body, same_order=False)
    roles = [message["role"] for message in messages]
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    fields = {name for message in messages if message["role"] == "assistant" for name in message}
    match vendor:
        case "mistral":
            faults += [f"id {call['id']}" for call in calls if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"])]
            faults += [
                f"{second} after tool" for first, second in pairwise(roles) if (first, second) == ("tool", "user")
            ]
            faults += [f"extra_forbidden {name}" for name in fields & {"reasoning_content", "refusal"}]
        case "openai":
            faults += [f"string_above_max_length {call['id']}" for call in calls if len(call["id"]) > 40]
        case "groq":
            faults += [f"property {name} is unsupported" for name in fields & {"reasoning_content", "refusal"}]
        case "deepseek":
            lists = [content for each in messages if isinstance(content := each.get("content"), list)]
            faults += ["invalid type: sequence"] * any(all("text" in part for part in parts) for parts in lists)
            asking = [message for message in messages if message.get("tool_calls")]
            faults += ["reasoning_content must be passed back"] * any(
                "reasoning_content" not in each for each in asking
            )
        case "strictest":
            faults += ["system message must be at the beginning"] * any(
                role in {"system", "developer"} for role in roles[1:]
            )
            faults += [
                f"roles must alternate: {first}, {second}"
                for first, second in pairwise(messages)
                if first["role"] == second["role"] == "user" or (first["role"], second["role"]) == ("tool", "user")
            ]
    return [*faults, *_refused(vendor, {"messages": [_of_history(message, vendor) for message in messages]})]


def _of_history(message: dict[str, Any], vendor: str) -> dict[str, Any]:
    """Return a message without what is not for the history to mend."""
    message = {**message}
    if vendor == "openai":  # learnt from its refusal
        message.pop("reasoning_content", None)
    elif message["role"] == "developer":  # the quirk system_role renames it
        message["role"] = "system"
    content = message.get("content")
    if vendor == "deepseek" and isinstance(content, list) and any(part["type"] != "text" for part in content):
        message["content"] = "a picture"  # for which it has no model
    if calls := message.get("tool_calls"):  # arguments that are no object are the client's own
        message["tool_calls"] = [{**call, "function": _with_object(call["function"])} for call in calls]
    return message


def _with_object(function: dict[str, Any]) -> dict[str, Any]:
    return function if _is_object(function["arguments"]) else {**function, "arguments": "{}"}


def faults_of_responses(body: dict[str, Any]) -> list[str]:
    """Return what OpenAI's Responses answer with 400."""
    return [*_responses(body), *_refused("responses", body)]


_IN_INPUT = {"input_text", "input_image", "input_file"}


def _responses(body: dict[str, Any]) -> Iterator[str]:  # noqa: C901, PLR0912 - one rule after the other
    called: set[str] = set()
    answered: set[str] = set()
    for number, item in enumerate(body["input"]):
        match item["type"]:
            case "message":
                content = item["content"]
                kinds = {part["type"] for part in content} if isinstance(content, list) else set()
                allowed = {"output_text", "refusal"} if item["role"] == "assistant" else _IN_INPUT
                if not kinds <= allowed:
                    yield f"input[{number}]: {kinds} in a message of the {item['role']}"
                if content == []:
                    yield f"input[{number}]: no content"
            case "function_call" | "custom_tool_call" as kind:
                if len(item["call_id"]) > 64 or item["call_id"] in called:
                    yield f"input[{number}]: call_id"
                called.add(item["call_id"])
                if kind == "function_call" and not _is_object(item["arguments"]):
                    yield f"input[{number}]: arguments are no object"
            case "function_call_output" | "custom_tool_call_output":
                if item["call_id"] not in called:
                    yield f"input[{number}]: No tool call found"
                answered.add(item["call_id"])
            case kind:
                yield f"input[{number}]: unknown type {kind}"
    if called != answered:
        yield "No tool output found"
    for tool in body.get("tools") or ():
        schema = tool.get("parameters")
        if schema is not None and schema.get("type") == "object" and "properties" not in schema:
            yield "object schema missing properties"


def faults_of_messages(body: dict[str, Any]) -> list[str]:
    """Return what Anthropic's Messages answer with 400."""
    return [*_messages(body), *_refused("messages", body)]


def _messages(body: dict[str, Any]) -> Iterator[str]:  # noqa: C901, PLR0912 - one rule after the other
    merged: list[dict[str, Any]] = []
    for turn in body["messages"]:  # consecutive turns of one role are one
        content = turn["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if merged and merged[-1]["role"] == turn["role"]:
            merged[-1]["content"] += blocks
        else:
            merged.append({"role": turn["role"], "content": [*blocks]})
    if merged[0]["role"] != "user":
        yield "the first message must be the user's"
    system = body.get("system", [])
    texts = [{"type": "text", "text": system}] if isinstance(system, str) else system
    for block in [*texts, *(block for turn in merged for block in turn["content"])]:
        if block["type"] == "text" and not block["text"].strip():
            yield "text content blocks must be non-empty"
    seen: set[str] = set()
    waiting: list[str] = []
    for number, turn in enumerate(merged):
        blocks = turn["content"]
        if not blocks:
            yield f"messages[{number}]: content is empty"
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            yield f"messages[{number}]: tool_use without tool_result blocks immediately after: {waiting}, {results}"
        if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
            yield f"messages[{number}]: tool_result blocks must come first"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for block in blocks:
            if block["type"] == "tool_use":
                if not re.fullmatch("[a-zA-Z0-9_-]+", block["id"]) or block["id"] in seen:
                    yield f"messages[{number}]: id {block['id']}"
                seen.add(block["id"])
                if not isinstance(block["input"], dict):
                    yield f"messages[{number}]: input should be a valid dictionary"
    if waiting:
        yield "tool_use without tool_result at the end"
    for tool in body.get("tools") or ():
        if tool["input_schema"].get("type") != "object":
            yield "input_schema.type: Field required"


def faults_of_gemini(body: dict[str, Any]) -> list[str]:
    """Return what Gemini's generateContent answers with 400."""
    return [*_gemini(body), *_refused("gemini", body)]


def _gemini(body: dict[str, Any]) -> Iterator[str]:
    calls = 0
    for number, turn in enumerate(body["contents"]):
        parts = turn["parts"]
        if turn["role"] not in {"user", "model"} or not parts:
            yield f"contents[{number}]: role, or no parts"
        if number == 0 and turn["role"] != "user":
            yield "the first turn is the user's"
        answers = sum("functionResponse" in part for part in parts)
        if answers != calls:
            yield f"contents[{number}]: as many function response parts as function call parts: {calls}, {answers}"
        calls = sum("functionCall" in part for part in parts)
        if any(not isinstance(part["functionCall"]["args"], dict) for part in parts if "functionCall" in part):
            yield f"contents[{number}]: args are no object"
        if calls and not any("thoughtSignature" in part for part in parts):
            yield f"contents[{number}]: function call is missing a thought_signature"
    if calls:
        yield "no function response at the end"


def faults_of_converse(body: dict[str, Any]) -> list[str]:
    """Return what Bedrock's Converse answers with 400."""
    return [*_converse(body), *_refused("converse", body)]


def _converse(body: dict[str, Any]) -> Iterator[str]:  # noqa: C901 - one rule after the other
    turns = body["messages"]
    roles = [turn["role"] for turn in turns]
    if roles[0] != "user" or any(first == second for first, second in pairwise(roles)):
        yield f"a conversation must start with a user message and alternate: {roles}"
    waiting: list[str] = []
    seen: set[str] = set()
    uses = False
    for number, turn in enumerate(turns):
        blocks = turn["content"]
        if not blocks or any("text" in block and not block["text"].strip() for block in blocks):
            yield f"messages[{number}]: empty content"
        results = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        if sorted(results) != sorted(waiting):
            yield f"messages[{number}]: toolResult blocks do not match: {waiting}, {results}"
        if any("toolResult" not in block for block in blocks[: len(results)]):
            yield f"messages[{number}]: the results come first"
        if any(not block["toolResult"]["content"] for block in blocks if "toolResult" in block):
            yield f"messages[{number}]: a result without content"
        waiting = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        uses = uses or bool(waiting)
        for block in blocks:
            if "toolUse" in block:
                call_id = block["toolUse"]["toolUseId"]
                if not re.fullmatch("[a-zA-Z0-9_.:-]{1,64}", call_id) or call_id in seen:
                    yield f"messages[{number}]: id {call_id}"
                seen.add(call_id)
                if not isinstance(block["toolUse"]["input"], dict):
                    yield f"messages[{number}]: input is no object"
    if uses and not body.get("toolConfig", {}).get("tools"):
        yield "The toolConfig field must be defined"
    if not all(block.get("text", "x").strip() for block in body.get("system", [])):
        yield "an empty system text"
