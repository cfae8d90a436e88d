"""The wire formats of provider families that are reached through litellm: an answer of each in pieces, and its errors.

Every answer says "Hello" in two deltas, took 11 tokens of prompt and 5 of completion; what a family tells of cached and
reasoning tokens is in ``cached`` and ``reasoning``.
"""

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

PROMPT_TOKENS, COMPLETION_TOKENS = 11, 5
RETRY_AFTER_S = 7


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """How a family is asked and answers. ``path`` is what litellm appends to, or is, the base URL."""

    name: str
    prefix: str  # litellm's
    model: str
    path: str  # where requests arrive, without the query
    base_path: str  # of the base URL it is configured with
    key_header: str
    key_value: str  # with {key}
    head: tuple[bytes, ...]  # before the first token
    texts: tuple[bytes, bytes]
    end: tuple[bytes, ...]
    failure: bytes  # an error in the middle
    whole: Mapping[str, Any]  # the answer to who does not stream
    refusal: Callable[[int, str], Any]  # the body of an error: status, message
    content_type: str = "text/event-stream"
    cached: int | None = None
    reasoning: int | None = None
    tells_its_end: bool = True  # litellm knows whether a finish reason came
    extra_body: Mapping[str, msgspec.Raw] = {}

    def answer(self) -> bytes:
        return b"".join((*self.head, *self.texts, *self.end))


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _gemini_chunk(*parts: Mapping[str, Any], **candidate: Any) -> dict[str, Any]:
    usage = {
        "promptTokenCount": PROMPT_TOKENS,
        "candidatesTokenCount": 2,
        "thoughtsTokenCount": 3,
        "cachedContentTokenCount": 4,
        "totalTokenCount": PROMPT_TOKENS + COMPLETION_TOKENS,
    }
    content = {"role": "model", "parts": list(parts)}
    return {"candidates": [{"content": content, "index": 0, **candidate}], "usageMetadata": usage, "responseId": "r1"}


def _google_error(status: int, message: str) -> Any:
    names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
    error: dict[str, Any] = {"code": status, "message": message, "status": names.get(status, "INTERNAL")}
    if status == 429:
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{RETRY_AFTER_S}s"}
        error["details"] = [info]  # instead of a header
    return {"error": error}


def _google(name: str, prefix: str, base_path: str, path: str, **more: Any) -> Family:
    return Family(
        name=name,
        prefix=prefix,
        model="gemini-2.5-flash",
        path=path,
        base_path=base_path,
        head=(),
        texts=(_data(_gemini_chunk({"text": "Hel"})), _data(_gemini_chunk({"text": "lo"}))),
        end=(_data(_gemini_chunk({"text": ""}, finishReason="STOP")),),
        failure=_data(_google_error(503, "Overloaded")),
        whole=_gemini_chunk({"text": "Hello"}, finishReason="STOP"),
        refusal=_google_error,
        cached=4,
        reasoning=3,
        tells_its_end=False,
        **more,
    )


def _aws_frame(headers: Mapping[str, str], payload: Any) -> bytes:
    """Return one message of the AWS event stream: prelude, headers as strings, payload, two checksums."""
    body = json.dumps(payload).encode()
    named = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack("!II", len(named) + len(body) + 16, len(named))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + named + body
    return message + struct.pack("!I", zlib.crc32(message))


def aws_event(kind: str, payload: Any) -> bytes:
    return _aws_frame(
        {":event-type": kind, ":content-type": "application/json", ":message-type": "event"},
        payload,
    )


_CONVERSE_USAGE = {
    "inputTokens": PROMPT_TOKENS - 4,  # what came out of the cache is counted apart
    "outputTokens": COMPLETION_TOKENS,
    "totalTokens": PROMPT_TOKENS + COMPLETION_TOKENS,
    "cacheReadInputTokens": 4,
}

_CHAT_USAGE = {
    "prompt_tokens": PROMPT_TOKENS,
    "completion_tokens": COMPLETION_TOKENS,
    "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
}


def _chat_chunk(delta: Mapping[str, Any], finish_reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _data(
        {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1_760_000_000,
            "model": "m",
            "choices": [choice],
            **more,
        }
    )


def _chat(name: str, prefix: str, model: str, *, refusal: Callable[[int, str], Any], usage_with_end: bool) -> Family:
    usage = {"usage": _CHAT_USAGE}
    end = _chat_chunk({}, "stop", **(usage if usage_with_end else {}))
    last = b"" if usage_with_end else _data({"id": "c1", "object": "chat.completion.chunk", "choices": [], **usage})
    message = {"role": "assistant", "content": "Hello"}
    return Family(
        name=name,
        prefix=prefix,
        model=model,
        path="/v1/chat/completions",
        base_path="/v1",
        key_header="authorization",
        key_value="Bearer {key}",
        head=(_chat_chunk({"role": "assistant", "content": ""}),),
        texts=(_chat_chunk({"content": "Hel"}), _chat_chunk({"content": "lo"})),
        end=(end, last, b"data: [DONE]\n\n"),
        failure=_data({"error": {"message": "Overloaded", "type": "server_error", "code": None}}),
        whole={
            "id": "c1",
            "object": "chat.completion",
            "created": 1_760_000_000,
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            **usage,
        },
        refusal=refusal,
    )


GEMINI = _google(
    "gemini",
    "gemini",
    "/v1beta",
    "/v1beta/models/gemini-2.5-flash:streamGenerateContent",
    key_header="x-goog-api-key",
    key_value="{key}",
)
VERTEX = _google(
    "vertex",
    "vertex_ai",
    "",
    "/v1/projects/p1/locations/us-central1/publishers/google/models/gemini-2.5-flash:streamGenerateContent",
    key_header="authorization",
    key_value="Bearer {key}",
)
BEDROCK = Family(
    name="bedrock",
    prefix="bedrock",
    model="amazon.nova-pro-v1:0",
    path="/model/amazon.nova-pro-v1%3A0/converse-stream",
    base_path="",
    key_header="authorization",
    key_value="Bearer {key}",
    content_type="application/vnd.amazon.eventstream",
    head=(aws_event("messageStart", {"role": "assistant"}),),
    texts=(
        aws_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "Hel"}}),
        aws_event("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "lo"}}),
    ),
    end=(
        aws_event("contentBlockStop", {"contentBlockIndex": 0}),
        aws_event("messageStop", {"stopReason": "end_turn"}),
        aws_event("metadata", {"usage": _CONVERSE_USAGE, "metrics": {"latencyMs": 100}}),
    ),
    failure=_aws_frame(
        {
            ":exception-type": "modelStreamErrorException",
            ":content-type": "application/json",
            ":message-type": "exception",
        },
        {"message": "Overloaded"},
    ),
    whole={
        "output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}},
        "stopReason": "end_turn",
        "usage": _CONVERSE_USAGE,
        "metrics": {"latencyMs": 100},
    },
    refusal=lambda _, message: {"message": message},
    cached=4,
)
MISTRAL = _chat(
    "mistral",
    "mistral",
    "mistral-large-latest",
    refusal=lambda status, message: {"object": "error", "message": message, "type": "e", "code": str(status)},
    usage_with_end=True,
)
OPENAI_SDK = _chat(  # some forty providers are reached by the openai package inside litellm
    "openai-sdk",
    "openai",
    "gpt-4o",
    refusal=lambda _, message: {"error": {"message": message, "type": "e", "param": None, "code": None}},
    usage_with_end=False,
)
FAMILIES = (GEMINI, BEDROCK, MISTRAL, OPENAI_SDK)
