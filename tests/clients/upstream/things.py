"""Answers of the endpoints that do not talk: embeddings, moderations, rankings, decisions, images, sound, models."""

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]

CREATED = 1_700_000_000

MODELS = (
    *("gpt-4o", "gpt-4.1", "gpt-3.5-turbo-instruct", "text-embedding-3-small", "omni-moderation-latest"),
    *("claude-haiku-4-5", "gemini-2.5-flash", "rerank-v3.5", "gpt-4o-mini-tts", "whisper-1", "gpt-image-1"),
    "gpt-6-luna",
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


def decisions(body: Json) -> Json:
    """Return an answer to each question of OpenAI's API: the first choice or level, and yes to what has "yes" in it."""
    tokens = len(str(body["input"]).split())
    return {
        "model": body["model"],
        "answers": [_decided(question) for question in body["questions"]],
        "usage": {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": len(body["questions"]),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens + len(body["questions"]),
        },
    }


def _decided(question: Json) -> Json:
    told = {"type": question["type"], "name": question.get("name")}
    match question["type"]:
        case "predicate":
            return {**told, "probability": _probability(question)}
        case "choice":
            values = [choice["value"] for choice in question["choices"]]
            shares = [{"value": value, "probability": 0.9 if value == values[0] else 0.1} for value in values]
            return {**told, "choice": values[0], "confidence": 0.9, "probabilities": shares}
        case _:
            levels = [
                {"label": level["label"], "value": level["value"], "probability": float(not number)}
                for number, level in enumerate(question["levels"])
            ]
            return {**told, "score": float(levels[0]["value"]), "confidence": 1.0, "probabilities": levels}


def googles_decisions(body: Json) -> Json:
    """Return an answer to each question of Google's API that is to be true or not."""
    answers = {}
    for name, question in body["questions"].items():
        noul = _probability(question)
        answers[name] = {"type": "noul", "noul": noul, "confidence": max(noul, 1 - noul)}
    return {"answers": answers}


def _probability(question: Json) -> float:
    return 0.9 if "yes" in str(question["instructions"]) else 0.1


def spoken(body: Json) -> Iterator[Json]:
    """Yield a sound as events: its bytes in pieces, then what it cost."""
    sound = SPEECH + body["input"].encode()
    for at in range(0, len(sound), 500):
        yield {"type": "speech.audio.delta", "audio": base64.b64encode(sound[at : at + 500]).decode()}
    yield {"type": "speech.audio.done", "usage": {"input_tokens": 3, "output_tokens": 9, "total_tokens": 12}}


def transcribed(text: str) -> Iterator[Json]:
    """Yield a transcript as events, word by word."""
    for number, word in enumerate(text.split()):
        yield {"type": "transcript.text.delta", "delta": f" {word}" if number else word}
    yield {"type": "transcript.text.done", "text": text}


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
