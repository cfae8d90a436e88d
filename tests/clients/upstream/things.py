"""Answers of the endpoints that do not talk: embeddings, moderations, rerank, images, sound, lists of models."""

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterable
from typing import Any

from tests.clients.upstream.chat import CREATED

Json = dict[str, Any]

MODELS = (
    *("gpt-4o", "gpt-4.1", "gpt-3.5-turbo-instruct", "text-embedding-3-small", "omni-moderation-latest"),
    *("claude-haiku-4-5", "gemini-2.5-flash", "rerank-v3.5", "gpt-4o-mini-tts", "whisper-1", "gpt-image-1"),
)
DIMENSIONS = 8
SPEECH = b"ID3\x04" + bytes(range(256)) * 4

_CATEGORIES = (
    *("harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent"),
    *("self-harm", "self-harm/instructions", "self-harm/intent"),
    *("sexual", "sexual/minors", "violence", "violence/graphic"),
)


def embeddings(body: Json) -> Json:
    """Return one vector for each input, as numbers or in base64: its hash, in eighths, so that both are exact."""
    inputs = body["input"]
    if not isinstance(inputs, list) or (inputs and isinstance(inputs[0], int)):
        inputs = [inputs]
    data = [
        {"object": "embedding", "index": index, "embedding": _vector(body, str(item))}
        for index, item in enumerate(inputs)
    ]
    tokens = sum(len(str(item).split()) for item in inputs)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def moderations(body: Json) -> Json:
    """Return a verdict for each input; what says "violence" is flagged."""
    inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]

    def verdict(item: Any) -> Json:
        bad = "violence" in str(item)
        return {
            "flagged": bad,
            "categories": {name: bad and name == "violence" for name in _CATEGORIES},
            "category_scores": {name: 0.9 if bad and name == "violence" else 0.01 for name in _CATEGORIES},
            "category_applied_input_types": {name: ["text"] for name in _CATEGORIES},
        }

    model = body.get("model") or "omni-moderation-latest"
    return {"id": "modr-upstream", "model": model, "results": [verdict(item) for item in inputs]}


def rerank(body: Json) -> Json:
    """Return the documents by how many words they share with the query."""
    query = set(body["query"].lower().split())

    def score(document: Any) -> float:
        text = document if isinstance(document, str) else str(document.get("text"))
        return len(query & set(text.lower().split())) / max(1, len(query))

    scored = sorted(((score(item), -index) for index, item in enumerate(body["documents"])), reverse=True)
    results = [{"index": -place, "relevance_score": points} for points, place in scored[: body.get("top_n")]]
    return {"id": "rerank-upstream", "results": results, "meta": {"billed_units": {"search_units": 1}}}


def images(body: Json) -> Json:
    """Return one picture for each asked for, a PNG of one colour."""
    picture = base64.b64encode(png(4, 3)).decode()
    count = int(body.get("n") or 1)
    usage = {
        "input_tokens": 5,
        "input_tokens_details": {"image_tokens": 0, "text_tokens": 5},
        "output_tokens": 10 * count,
        "total_tokens": 5 + 10 * count,
    }
    return {"created": CREATED, "data": [{"b64_json": picture}] * count, "size": "1024x1024", "usage": usage}


def models(names: Iterable[str]) -> Json:
    """Return the list of models in the shape of both vendors at once: each reads its own fields."""
    data = [model(name) for name in names]
    edges = {"has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}
    return {"object": "list", "data": data, **edges}


def model(name: str) -> Json:
    """Return one model."""
    openai = {"object": "model", "created": CREATED, "owned_by": "upstream"}
    return {"id": name, **openai, "type": "model", "display_name": name, "created_at": "2025-01-01T00:00:00Z"}


def png(width: int, height: int) -> bytes:
    """Return a grey picture."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\x00" + b"\x80" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _vector(body: Json, text: str) -> Any:
    count = body.get("dimensions") or DIMENSIONS
    digest = hashlib.sha256(text.encode()).digest()
    numbers = [(digest[place % len(digest)] - 128) / 8 for place in range(count)]
    if body.get("encoding_format") == "base64":
        return base64.b64encode(struct.pack(f"<{count}f", *numbers)).decode()
    return numbers
