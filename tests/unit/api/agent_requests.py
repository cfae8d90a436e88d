"""Requests as coding agents send them, in which the words for what providers store are the agents' own data."""

import json
import random
from typing import Any

WORDS = (
    "file_id", "file_ids", "vector_store_ids", "vectorStoreId", "container", "container_id", "server_url", "tools",
    "skill_id", "connector_id", "conversation", "previous_response_id", "image_url", "cached_content", "mcp_servers",
)  # fmt: skip
VALUES = (
    "file-abc123", "vs_68", "cntr_68", "resp_68", "skill_1", "conv_1", "connector_gmail", "https://mcp.example.com/sse",
    "cachedContents/1", "gs://bucket/cat.png", "container_1", "tunnel_1",
)  # fmt: skip
APIS = ("responses", "messages", "gemini", "chat")  # of Codex, Claude Code, Gemini CLI and opencode


def request(seed: int) -> tuple[str, dict[str, Any]]:
    """Return the API of an agent, and the fields of a request of it."""
    draw = random.Random(seed)
    api = APIS[seed % len(APIS)]
    return api, {"responses": _codex, "messages": _claude, "gemini": _gemini, "chat": _opencode}[api](draw)


def _data(draw: random.Random, depth: int = 2) -> dict[str, Any]:
    """Return data of the agent's own, such as the arguments or the output of a function."""
    found: dict[str, Any] = {}
    for word in draw.sample(WORDS, 4):
        value = draw.choice(VALUES)
        chosen = draw.randrange(4)  # what is not chosen is not made: it would be nearly all
        within = _data(draw, depth - 1) if depth and chosen == 3 else value
        found[word] = ([value], {word: value}, value, within)[chosen]
    return found


def _schema(draw: random.Random) -> dict[str, Any]:
    kinds = [{"type": "string", "default": draw.choice(VALUES)}, {"const": draw.choice(VALUES)}]
    properties = {word: draw.choice([*kinds, {"enum": [*VALUES]}]) for word in draw.sample(WORDS, 5)}
    nested = {"type": "object", "properties": {"tools": {"type": "array", "items": {"properties": properties}}}}
    return {"type": "object", "properties": {**properties, "more": nested}, "examples": [_data(draw)]}


def _quoted(draw: random.Random) -> str:
    return draw.choice(["", "Found: "]) + json.dumps(_data(draw))


def _codex(draw: random.Random) -> dict[str, Any]:
    function = {"type": "function", "name": "run", "strict": False, "parameters": _schema(draw)}
    items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": [_text("input_text", draw)]}]
    for number in range(draw.randint(1, 4)):
        call = f"call_{number}"
        items += [
            {"type": "function_call", "call_id": call, "name": "run", "arguments": json.dumps(_data(draw))},
            {
                "type": "function_call_output",
                "call_id": call,
                "output": draw.choice([_quoted(draw), [_text("input_text", draw)]]),
            },
            {"type": "custom_tool_call", "call_id": f"{call}c", "name": "patch", "input": _quoted(draw)},
            {"type": "custom_tool_call_output", "call_id": f"{call}c", "output": _quoted(draw)},
        ]
    found = {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": [function]}
    within = {"type": "namespace", "name": "n", "description": "d", "tools": [function]}
    return {
        "instructions": _quoted(draw),
        "input": [*items, *([found] if draw.random() < 0.5 else [])],
        "tools": [function, within, {"type": "custom", "name": "patch"}],
        "metadata": {word: draw.choice(VALUES) for word in WORDS[:4]},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": _schema(draw)}},
        "store": False,
    }


def _text(kind: str, draw: random.Random) -> dict[str, Any]:
    return {"type": kind, "text": _quoted(draw)}


def _claude(draw: random.Random) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": [_text("text", draw)]}]
    for number in range(draw.randint(1, 4)):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "run", "input": _data(draw)}
        result = {
            "type": "tool_result",
            "tool_use_id": use["id"],
            "content": draw.choice([_quoted(draw), [_text("text", draw)]]),
        }
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return {
        "max_tokens": 9,
        "system": [_text("text", draw)],
        "messages": messages,
        "tools": [{"name": "run", "description": _quoted(draw), "input_schema": _schema(draw)}],
        "metadata": {"user_id": draw.choice(VALUES)},
    }


def _gemini(draw: random.Random) -> dict[str, Any]:
    contents: list[dict[str, Any]] = [{"role": "user", "parts": [{"text": _quoted(draw)}]}]
    for _ in range(draw.randint(1, 4)):
        contents += [
            {"role": "model", "parts": [{"functionCall": {"name": "run", "args": _data(draw)}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": _data(draw)}}]},
        ]
    kind = draw.choice(["parameters", "parametersJsonSchema"])
    return {
        "contents": contents,
        "systemInstruction": {"parts": [{"text": _quoted(draw)}]},
        "tools": [{"functionDeclarations": [{"name": "run", "description": "d", kind: _schema(draw)}]}],
    }


def _opencode(draw: random.Random) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": _quoted(draw)}, {"role": "user", "content": "Hi"}]
    for number in range(draw.randint(1, 4)):
        function = {"name": "run", "arguments": json.dumps(_data(draw))}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": _quoted(draw)},
        ]
    return {
        "messages": messages,
        "tools": [{"type": "function", "function": {"name": "run", "parameters": _schema(draw)}}],
        "metadata": {word: draw.choice(VALUES) for word in WORDS[:4]},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": _schema(draw)}},
    }
