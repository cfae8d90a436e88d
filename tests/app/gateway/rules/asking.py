"""Providers of every API that answer as a rule's input says, and clients of every API that read what they get of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from providers import events
from providers.simulator.wire import Tally, serve
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.app.providers.families import aws_event

APIS = ("chat", "messages", "responses", "gemini", "converse")  # of providers
CLIENTS = ("chat", "messages", "responses", "gemini")
# Forms of an answer. Whether the client streams, and whether its provider sends one body, whatever it was asked for.
FORMS: Mapping[str, tuple[bool, bool]] = {
    "streamed": (True, False),
    "gathered": (False, False),
    "retold": (True, True),
    "whole": (False, True),
}
RACED = "raced"  # streamed, beside a deployment that never answers


class Said(msgspec.Struct, frozen=True):
    """What an answer says, whatever the API. ``ended``: stop, calls, length or filtered; or the error's words."""

    text: str = ""
    thoughts: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    ended: str = "stop"
    error: str | None = None


class Rule(msgspec.Struct, frozen=True):
    """An answer of a provider of ``api``, as a stream and as one body, and the one thing that it says.

    ``tokens`` are prompt, completion, cached and reasoning tokens, as the ledger has them; None: not looked at.
    """

    name: str
    api: str
    stream: bytes
    body: Any  # None: it is only told as a stream
    said: Said
    tokens: Mapping[str, Any] | None = None
    passes: bool = False  # its events reach clients of the same API as they are, though they are no good


def chat(*chunks: Mapping[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"


def named(*said: Mapping[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), json.dumps(each).encode()) for each in said)


def google(*said: Mapping[str, Any]) -> bytes:
    return b"".join(b"data: %b\r\n\r\n" % json.dumps(each).encode() for each in said)


def converse(*said: tuple[str, Mapping[str, Any]]) -> bytes:
    return b"".join(aws_event(kind, payload) for kind, payload in said)


class Desk:
    """The providers. ``rule`` is answered next; ``is_whole``: as one body, whatever was asked for."""

    def __init__(self) -> None:
        self.rule: Rule | None = None
        self.is_whole = False
        self.asked: list[Any] = []
        self.base_url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/idle"):
            await asyncio.Event().wait()
        self.asked.append(await request.json())
        rule = self.rule
        assert rule is not None
        if self.is_whole:
            return web.json_response(rule.body)
        kind = "application/vnd.amazon.eventstream" if rule.api == "converse" else "text/event-stream"
        return web.Response(body=rule.stream, content_type=kind)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Desk, RunningGateway]]:
    """Serve a gateway with a model for each API of a provider, named as that."""
    desk = Desk()
    async with serve([web.post("/{path:.*}", desk.answer)], Tally()) as base_url:
        providers: dict[str, Any] = {
            api: {"base_url": base_url, "api_key": f"upstream-{api}-secret", "apis": [api]}
            for api in ("chat", "messages", "responses")
        }
        providers["gemini"] = {**providers["chat"], "apis": ["gemini"], "kind": "gemini"}
        providers["chat"]["preset"] = "openrouter"  # its answers say what they cost
        root = base_url.removesuffix("/v1")
        providers["idle"] = {**providers["messages"], "base_url": f"{root}/idle/v1", "apis": ["chat"]}
        providers["converse"] = {"preset": "bedrock_converse", "base_url": root, "api_key": "the-key-of-bedrock"}
        models = {api: {"deployments": [f"{api}/m"], "race": {"mode": "single"}} for api in APIS}
        models[MODEL] = models["chat"]
        models["converse"]["deployments"] = ["converse/amazon.nova-pro-v1:0"]
        for api in APIS:
            both = [*models[api]["deployments"], "idle/m"]
            models[f"{api}-{RACED}"] = {"deployments": both, "race": {"mode": "race", "width": 2}}
        async with serving(folder, {}, providers=providers, models=models) as gateway:
            desk.base_url = base_url
            yield desk, gateway


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}}
_ASK: Mapping[str, dict[str, Any]] = {
    "chat": {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in "fg"],
    },
    "messages": {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "tools": [{"name": name, "input_schema": SCHEMA} for name in "fg"],
    },
    "responses": {
        "input": "Hi",
        "reasoning": {"summary": "auto"},
        "tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in "fg"],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        "tools": [{"functionDeclarations": [{"name": name, "parametersJsonSchema": SCHEMA} for name in "fg"]}],
    },
}
_PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


async def asked(gateway: RunningGateway, client: str, model: str, *, stream: bool, **more: Any) -> tuple[int, bytes]:
    """Return status and body of what a client gets."""
    body = {**_ASK[client], **more}
    if client == "gemini":
        path = f"/v1beta/models/{model}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"
    else:
        path = _PATHS[client]
        body |= {"model": model, "stream": stream}
    if client == "chat" and stream:
        body["stream_options"] = {"include_usage": True}
    async with gateway.post(body, path=path) as response:
        return response.status, await response.read()


def said_in(client: str, status: int, body: bytes, *, stream: bool) -> Said:
    """Read what a client got."""
    if not stream or status != 200:
        whole = json.loads(body)
        if whole.get("error"):
            return Said(ended="error", error=json.dumps(whole["error"]))
        return _WHOLE[client](whole)
    told = [json.loads(each.data) for each in events(body) if each.data and each.data != b"[DONE]"]
    failed = next((each for each in told if each.get("error") or each.get("type") == "error"), None)
    said = _STREAMED[client](told)
    if failed is not None:
        return msgspec.structs.replace(said, ended="error", error=json.dumps(failed))
    return said


_ENDS = {  # in the words of each API, those of a vendor among them that pass where its own is asked
    **dict.fromkeys(("stop", "end_turn", "STOP", "completed", "stop_sequence", "pause_turn"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_use"), "calls"),
    **dict.fromkeys(("length", "max_tokens", "MAX_TOKENS", "max_output_tokens"), "length"),
    **dict.fromkeys(("model_context_window_exceeded", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "refusal", "sensitive", "SAFETY", "RECITATION", "LANGUAGE"), "filtered"),
    **dict.fromkeys(("BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "IMAGE_SAFETY"), "filtered"),
    **dict.fromkeys(("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"), "filtered"),
    **dict.fromkeys(("OTHER", "NO_IMAGE", "IMAGE_OTHER", "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE"), "stop"),
    **dict.fromkeys(("UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE", "TOO_MANY_TOOL_CALLS"), "stop"),
}


def _arguments(written: str) -> Any:
    try:
        return json.loads(written)
    except json.JSONDecodeError:
        return written


def _of_message(message: Mapping[str, Any], reason: Any) -> Said:
    calls = [
        (call["function"]["name"], _arguments(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    thoughts = message.get("reasoning_content") or message.get("reasoning") or ""
    content = message.get("content") or ""
    return Said((content) + (message.get("refusal") or ""), thoughts, calls, _ENDS.get(reason, str(reason)))


def _chat_whole(body: Any) -> Said:
    [choice] = body["choices"]
    return _of_message(choice["message"], choice["finish_reason"])


def _chat_streamed(told: Sequence[Any]) -> Said:
    message: dict[str, Any] = {"tool_calls": []}
    reason = None
    for chunk in told:
        for choice in chunk.get("choices") or ():
            reason = choice.get("finish_reason") or reason
            for name, value in (choice.get("delta") or {}).items():
                if isinstance(value, str) and name != "role":
                    message[name] = message.get(name, "") + value
                for call in value if name == "tool_calls" and value else ():
                    calls = message["tool_calls"]
                    if call["index"] == len(calls):
                        calls.append({"function": {"name": "", "arguments": ""}})
                    for field, piece in (call.get("function") or {}).items():
                        calls[call["index"]]["function"][field] += piece or ""
    return _of_message(message, reason)


def _messages_whole(body: Any) -> Said:
    found: dict[str, str] = {}
    calls = []
    for block in body["content"]:
        kind = block["type"]
        if kind in {"text", "thinking"}:
            found[kind] = found.get(kind, "") + block[kind]
        elif kind == "tool_use":
            calls.append((block["name"], block["input"]))
    explained = ((body.get("stop_details") or {}).get("explanation")) or ""
    reason = _ENDS.get(body["stop_reason"], str(body["stop_reason"]))
    return Said(found.get("text", "") + explained, found.get("thinking", ""), calls, reason)


def _messages_streamed(told: Sequence[Any]) -> Said:
    blocks: dict[int, dict[str, Any]] = {}
    body: dict[str, Any] = {"stop_reason": None}
    for each in told:
        match each.get("type"):
            case "content_block_start":
                assert each["index"] == len(blocks)
                blocks[each["index"]] = {**each["content_block"], "json": ""}
            case "content_block_delta":
                block, delta = blocks[each["index"]], each["delta"]
                for name, field in (("text", "text"), ("thinking", "thinking"), ("partial_json", "json")):
                    block[field] = block.get(field, "") + delta.get(name, "")
            case "message_delta":
                body |= each["delta"]
    for block in blocks.values():
        if block["type"] == "tool_use" and block["json"]:
            block["input"] = _arguments(block["json"])
    return _messages_whole({**body, "content": list(blocks.values())})


def _responses_whole(body: Any) -> Said:
    text = thoughts = ""
    calls = []
    for item in body["output"]:
        match item["type"]:
            case "message":
                text += "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
            case "reasoning":
                parts = item.get("summary") or item.get("content") or ()
                thoughts += "".join(part["text"] for part in parts)
            case "function_call":
                calls.append((item["name"], _arguments(item["arguments"])))
    reason = (body.get("incomplete_details") or {}).get("reason") or body["status"]
    ended = _ENDS.get(reason, str(reason))
    return Said(text, thoughts, calls, "calls" if calls and ended == "stop" else ended)


def _responses_streamed(told: Sequence[Any]) -> Said:
    text = "".join(
        each["delta"] for each in told if each.get("type") in {"response.output_text.delta", "response.refusal.delta"}
    )
    last = told[-1] if told else {}
    if last.get("type") not in {"response.completed", "response.incomplete"}:
        return Said(text, ended="none")
    whole = _responses_whole(last["response"])
    return whole if text == whole.text or not text else msgspec.structs.replace(whole, text=f"{text} / {whole.text}")


def _gemini_streamed(told: Sequence[Any]) -> Said:
    text = thoughts = ""
    calls = []
    reason = None
    for each in told:
        reason = ((each.get("promptFeedback") or {}).get("blockReason") and "SAFETY") or reason
        for candidate in each.get("candidates") or ():
            reason = candidate.get("finishReason") or reason
            for part in (candidate.get("content") or {}).get("parts") or ():
                if part.get("thought"):
                    thoughts += part.get("text", "")
                else:
                    text += part.get("text", "")
                if call := part.get("functionCall"):
                    calls.append((call["name"], call.get("args")))
    ended = _ENDS.get(str(reason), str(reason))
    return Said(text, thoughts, calls, "calls" if calls and ended == "stop" else ended)


_WHOLE: Mapping[str, Callable[[Any], Said]] = {
    "chat": _chat_whole,
    "messages": _messages_whole,
    "responses": _responses_whole,
    "gemini": lambda body: _gemini_streamed([body]),
}
_STREAMED: Mapping[str, Callable[[Sequence[Any]], Said]] = {
    "chat": _chat_streamed,
    "messages": _messages_streamed,
    "responses": _responses_streamed,
    "gemini": _gemini_streamed,
}
