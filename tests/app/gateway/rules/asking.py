"""Providers of every API that answer as a rule's input says, and clients of every API that read what they get of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from providers import events
from providers.simulator import ProviderTally, serve
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.app.providers.families import aws_event

APIS = ("chat", "messages", "responses", "gemini", "converse", "interactions")  # of providers
CLIENTS = ("chat", "messages", "responses", "gemini", "interactions")
# Forms of an answer. Whether the client streams, and whether its provider sends one body, whatever it was asked for.
FORMS: Mapping[str, tuple[bool, bool]] = {
    "streamed": (True, False),
    "gathered": (False, False),
    "retold": (True, True),
    "whole": (False, True),
}
# Streamed, a few bytes at a time, beside a deployment that never answers, and that would go on with a broken answer.
RACED = "raced"
BACKGROUND = "background"  # whole, once it is there
FEW_BYTES = 61


class Said(msgspec.Struct, frozen=True):
    """What an answer says, whatever the API.

    ``ended``: stop, calls, length, filtered or refused, if the model refuses; or the error's words.
    """

    text: str = ""
    thoughts: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    ended: str = "stop"
    error: str | None = None
    cited: Sequence[str] = ()  # addresses
    tokens: Sequence[tuple[str, float]] = ()  # with their log probabilities
    pictures: Sequence[str] = ()  # addresses with the picture
    sound: str = ""  # in Base64


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
    passes_whole: bool = False  # likewise the whole answer
    once_wrong: bool = False
    no_place: Sequence[str] = ()  # clients whose API has no place for what it says: they get an error

    def said_to(self, client: str) -> Said:
        """Return what a client of an API gets of it."""
        if client in self.no_place:
            return Said(self.said.text, ended="error", error="has no place")
        ended = _REFUSED.get(client, self.said.ended) if self.said.ended == "refused" else self.said.ended
        ended = "length" if client == "interactions" and ended == "filtered" else ended  # incomplete, whatever cut it
        no_tokens = client in {"messages", "interactions"}  # who asked for them gets no such provider
        tokens = () if no_tokens else self.said.tokens
        return msgspec.structs.replace(self.said, ended=ended, tokens=tokens)


_REFUSED = {
    "messages": "filtered",
    "gemini": "stop",
    "interactions": "stop",
}  # where a refusal is a reason to end, or a text


def chat(*chunks: Mapping[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"


def named(*said: Mapping[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), json.dumps(each).encode()) for each in said)


def google(*said: Mapping[str, Any]) -> bytes:
    return b"".join(b"data: %b\r\n\r\n" % json.dumps(each).encode() for each in said)


def interaction(*said: Mapping[str, Any]) -> bytes:
    told = (b"event: %b\ndata: %b\n\n" % (each["event_type"].encode(), json.dumps(each).encode()) for each in said)
    return b"".join(told) + b"event: done\ndata: [DONE]\n\n"


def converse(*said: tuple[str, Mapping[str, Any]]) -> bytes:
    return b"".join(aws_event(kind, payload) for kind, payload in said)


class Desk:
    """The providers. ``rule`` is answered next; ``is_whole``: as one body, whatever was asked for."""

    def __init__(self) -> None:
        self.rule: Rule | None = None
        self.is_whole = False
        self.is_slow = False  # a few bytes at a time
        self.asked: list[Any] = []
        self.base_url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/idle"):
            await asyncio.Event().wait()
        self.asked.append(await request.json())
        rule = self.rule
        assert rule is not None
        if self.asked[-1].get("background"):
            return web.json_response({**rule.body, "status": "queued", "output": [], "usage": None, "error": None})
        if self.is_whole:
            return web.json_response(rule.body)
        kind = "application/vnd.amazon.eventstream" if rule.api == "converse" else "text/event-stream"
        if not self.is_slow:
            return web.Response(body=rule.stream, content_type=kind)
        response = web.StreamResponse(headers={"content-type": kind})
        await response.prepare(request)
        with suppress(ConnectionResetError):  # what its end is, the gateway may know before
            for at in range(0, len(rule.stream), max(FEW_BYTES, len(rule.stream) // 100)):
                await response.write(rule.stream[at : at + max(FEW_BYTES, len(rule.stream) // 100)])
                await asyncio.sleep(0)
        return response

    async def look(self, _: web.Request) -> web.Response:
        """Return the whole answer, which was made in the background."""
        assert self.rule is not None
        return web.json_response(self.rule.body)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Desk, RunningGateway]]:
    """Serve a gateway with a model for each API of a provider, named as that."""
    desk = Desk()
    routes = [web.post("/{path:.*}", desk.answer), web.get("/{path:.*}", desk.look)]
    async with serve(routes, ProviderTally()) as base_url:
        providers: dict[str, Any] = {
            api: {"base_url": base_url, "api_key": f"upstream-{api}-secret", "apis": [api]}
            for api in ("chat", "messages", "responses")
        }
        for api in ("gemini", "interactions"):
            providers[api] = {**providers["chat"], "apis": [api], "kind": "gemini"}
        providers["chat"]["preset"] = "openrouter"  # its answers say what they cost
        root = base_url.removesuffix("/v1")
        providers["idle"] = {**providers["messages"], "base_url": f"{root}/idle/v1", "apis": ["chat"]}
        providers["converse"] = {"preset": "bedrock_converse", "base_url": root, "api_key": "the-key-of-bedrock"}
        models: dict[str, Any] = {api: {"deployments": [f"{api}/m"], "race": {"mode": "single"}} for api in APIS}
        models[MODEL] = models["chat"]
        models["converse"]["deployments"] = ["converse/amazon.nova-pro-v1:0"]
        for api in APIS:
            both = [*models[api]["deployments"], "idle/m"]
            models[f"{api}-{RACED}"] = {"deployments": both, "race": {"mode": "race", "width": 2}, "takeover": True}
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
    "interactions": {
        "input": "Hi",
        "store": False,
        "generation_config": {"thinking_summaries": "auto"},
        "tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in "fg"],
    },
}
_PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "interactions": "/v1/interactions",
}


_BEYOND_TEXT = ("tools", "thinking", "reasoning", "generationConfig", "generation_config")


async def asked(
    gateway: RunningGateway, client: str, model: str, *, stream: bool, plainly: bool = False, **more: Any
) -> tuple[int, bytes]:
    """Return status and body of what a client gets. ``plainly``: it asks for a text, which anybody could go on with."""
    body = {**_ASK[client], **more}
    if plainly:
        body = {name: value for name, value in body.items() if name not in _BEYOND_TEXT}
    if client == "gemini":
        path = f"/v1beta/models/{model}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"
    else:
        path = _PATHS[client]
        body |= {"model": model, "stream": stream}
    if client == "chat" and stream:
        body["stream_options"] = {"include_usage": True}
    async with gateway.post(body, path=path) as response:
        got = response.status, await response.read()
    if "background" in more and got[0] == HTTPStatus.OK:
        async with gateway.get(f"{path}/{json.loads(got[1])['id']}") as response:
            got = response.status, await response.read()
    return got


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
    **dict.fromkeys(("tool_calls", "tool_use", "requires_action"), "calls"),
    **dict.fromkeys(("incomplete", "length", "max_tokens", "MAX_TOKENS", "max_output_tokens"), "length"),
    **dict.fromkeys(("model_context_window_exceeded", "model_length"), "length"),
    **dict.fromkeys(("budget_exceeded", "requires_continuation"), "length"),
    **dict.fromkeys(("content_filter", "refusal", "sensitive", "SAFETY", "RECITATION", "LANGUAGE"), "filtered"),
    **dict.fromkeys(("BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "IMAGE_SAFETY"), "filtered"),
    **dict.fromkeys(("IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "content_filter: PROHIBITED_CONTENT"), "filtered"),
    **dict.fromkeys(("safety", "recitation", "prohibited_content"), "filtered"),
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
    content, refusal = message.get("content") or "", message.get("refusal") or ""
    ended = _ENDS.get(reason, str(reason))
    ended = "refused" if refusal and ended == "stop" else "calls" if calls and ended == "stop" else ended
    return Said(
        *(content + refusal, thoughts, calls, ended),
        cited=[each["url_citation"]["url"] for each in message.get("annotations") or ()],
        tokens=[(each["token"], each["logprob"]) for each in message.get("logprobs") or ()],
        pictures=[each["image_url"]["url"] for each in message.get("images") or ()],
        sound=(message.get("audio") or {}).get("data", ""),
    )


def _chat_whole(body: Any) -> Said:
    [choice] = body["choices"]
    logprobs = (choice.get("logprobs") or {}).get("content")
    return _of_message({**choice["message"], "logprobs": logprobs}, choice["finish_reason"])


def _chat_streamed(told: Sequence[Any]) -> Said:
    message: dict[str, Any] = {"tool_calls": [], "annotations": [], "images": [], "logprobs": [], "audio": {}}
    reason = None
    for chunk in told:
        for choice in chunk.get("choices") or ():
            reason = choice.get("finish_reason") or reason
            message["logprobs"] += (choice.get("logprobs") or {}).get("content") or ()
            for name, value in (choice.get("delta") or {}).items():
                if isinstance(value, str) and name != "role":
                    message[name] = message.get(name, "") + value
                if name in {"annotations", "images"}:
                    message[name] += value or ()
                if name == "audio" and value:
                    message[name]["data"] = message[name].get("data", "") + value.get("data", "")
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
    cited = [each["url"] for block in body["content"] for each in block.get("citations") or () if "url" in each]
    for block in body["content"]:
        kind = block["type"]
        if kind in {"text", "thinking"}:
            found[kind] = found.get(kind, "") + block[kind]
        elif kind == "tool_use":
            calls.append((block["name"], block["input"]))
    explained = ((body.get("stop_details") or {}).get("explanation")) or ""
    reason = _ENDS.get(body["stop_reason"], str(body["stop_reason"]))
    reason = "calls" if calls and reason == "stop" else reason
    return Said(found.get("text", "") + explained, found.get("thinking", ""), calls, reason, cited=cited)


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
                if delta["type"] == "citations_delta":
                    block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
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
    parts = [part for item in body["output"] if item["type"] == "message" for part in item["content"]]
    pictures = [item for item in body["output"] if item["type"] == "image_generation_call"]
    for item in body["output"]:
        match item["type"]:
            case "message":
                text += "".join(part.get("text") or part.get("refusal") or "" for part in item["content"])
            case "reasoning":
                told = item.get("summary") or item.get("content") or ()
                thoughts += "".join(part["text"] for part in told)
            case "function_call":
                calls.append((item["name"], _arguments(item["arguments"])))
    reason = (body.get("incomplete_details") or {}).get("reason") or body["status"]
    ended = _ENDS.get(reason, str(reason))
    refused = any(part["type"] == "refusal" for part in parts)
    ended = "refused" if refused and ended == "stop" else "calls" if calls and ended == "stop" else ended
    return Said(
        *(text, thoughts, calls, ended),
        cited=[each["url"] for part in parts for each in part.get("annotations") or () if "url" in each],
        tokens=[(each["token"], each["logprob"]) for part in parts for each in part.get("logprobs") or ()],
        pictures=[f"data:image/{each.get('output_format', 'png')};base64,{each['result']}" for each in pictures],
    )


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
    more: dict[str, Any] = {"cited": [], "tokens": [], "pictures": [], "sound": ""}
    reason = None
    for each in told:
        reason = ((each.get("promptFeedback") or {}).get("blockReason") and "SAFETY") or reason
        for candidate in each.get("candidates") or ():
            reason = candidate.get("finishReason") or reason
            pages = (candidate.get("groundingMetadata") or {}).get("groundingChunks") or ()
            more["cited"] += [page["web"]["uri"] for page in pages]
            chosen = (candidate.get("logprobsResult") or {}).get("chosenCandidates") or ()
            more["tokens"] += [(token["token"], token["logProbability"]) for token in chosen]
            for part in (candidate.get("content") or {}).get("parts") or ():
                if part.get("thought"):
                    thoughts += part.get("text", "")
                else:
                    text += part.get("text", "")
                if call := part.get("functionCall"):
                    calls.append((call["name"], call.get("args")))
                if (file := part.get("inlineData")) and file["mimeType"].startswith("image/"):
                    more["pictures"].append(f"data:{file['mimeType']};base64,{file['data']}")
                elif file:
                    more["sound"] += file["data"]
    ended = _ENDS.get(str(reason), str(reason))
    return Said(text, thoughts, calls, "calls" if calls and ended == "stop" else ended, **more)


def _interactions_whole(body: Any) -> Said:
    found: dict[str, list[str]] = {"text": [], "thought": [], "cited": [], "pictures": [], "sound": []}
    calls = []
    for step in body.get("steps") or ():
        if step["type"] == "thought":
            found["thought"] += [part["text"] for part in step.get("summary") or ()]
        elif step["type"] == "function_call":
            calls.append((step["name"], step["arguments"]))
        for part in step.get("content") or ():
            if part["type"] == "image":
                found["pictures"].append(part.get("uri") or f"data:{part['mime_type']};base64,{part['data']}")
            elif part["type"] == "audio":
                found["sound"].append(part["data"])
            else:
                found["text"].append(part["text"])
                found["cited"] += [each["url"] for each in part.get("annotations") or ()]
    ended = _ENDS.get(body["status"], str(body["status"]))
    more: dict[str, Any] = {"cited": found["cited"], "pictures": found["pictures"], "sound": "".join(found["sound"])}
    return Said("".join(found["text"]), "".join(found["thought"]), calls, ended, **more)


def _add_to_step(step: dict[str, Any], delta: Mapping[str, Any]) -> None:
    match delta["type"]:
        case "thought_summary":
            step["summary"].append(delta["content"])
        case "arguments_delta":
            step["json"] += delta["arguments"]
        case "text_annotation_delta":
            step["content"][-1].setdefault("annotations", []).extend(delta["annotations"])
        case "text" | "image" | "audio":
            step["content"].append(dict(delta))


def _interactions_streamed(told: Sequence[Any]) -> Said:
    steps: dict[int, dict[str, Any]] = {}
    over: dict[str, Any] = {"status": "none"}
    for each in told:
        match each.get("event_type"):
            case "step.start":
                assert each["index"] == len(steps)
                steps[each["index"]] = {"summary": [], "content": [], "json": "", **each["step"]}
            case "step.delta":
                _add_to_step(steps[each["index"]], each["delta"])
            case "interaction.completed":
                over = each["interaction"]
    for step in steps.values():
        if step["json"]:
            step["arguments"] = _arguments(step["json"])
    return _interactions_whole({**over, "steps": list(steps.values())})


_WHOLE: Mapping[str, Callable[[Any], Said]] = {
    "chat": _chat_whole,
    "messages": _messages_whole,
    "responses": _responses_whole,
    "gemini": lambda body: _gemini_streamed([body]),
    "interactions": _interactions_whole,
}
_STREAMED: Mapping[str, Callable[[Sequence[Any]], Said]] = {
    "chat": _chat_streamed,
    "messages": _messages_streamed,
    "responses": _responses_streamed,
    "gemini": _gemini_streamed,
    "interactions": _interactions_streamed,
}
