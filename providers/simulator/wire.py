"""Writes OpenAI's chat-completions format for simulated providers: chunks, events, whole answers, errors."""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"


class Answering(msgspec.Struct, frozen=True):
    """The fields that are the same in every chunk of one answer."""

    id: str
    model: str
    created: int  # unix seconds

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        """Return a streamed chunk with one choice."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return self._object("chat.completion.chunk", choices=[choice])

    def usage_chunk(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Return the chunk without choices for ``stream_options.include_usage``."""
        return self._object("chat.completion.chunk", choices=[], usage=usage)

    def whole(self, message: Mapping[str, Any], finish_reason: str, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        return self._object("chat.completion", choices=[choice], usage=usage)

    def _object(self, kind: str, **fields: Any) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, **fields}


def event(data: Mapping[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return a usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def error(message: str, *, kind: str = "server_error", code: str | int | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def model_list(models: Sequence[str]) -> dict[str, Any]:
    """Return the body of ``GET /models``."""
    data = [{"id": model, "object": "model", "created": 0, "owned_by": "simulator"} for model in models]
    return {"object": "list", "data": data}


def embeddings(model: str, inputs: str | Sequence[Any]) -> dict[str, Any]:
    """Return the body of an embeddings answer: a unit vector for each input, determined by the input."""
    several = [inputs] if isinstance(inputs, str) else list(inputs)
    data = [{"object": "embedding", "index": index, "embedding": _vector(text)} for index, text in enumerate(several)]
    tokens = sum(1 + len(str(text)) // 4 for text in several)
    return {"object": "list", "model": model, "data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _vector(text: Any, dimensions: int = 8) -> list[float]:
    raw = [zlib.crc32(f"{axis}:{text}".encode()) / 2**31 - 1 for axis in range(dimensions)]
    length = math.hypot(*raw)
    return [value / length for value in raw]
