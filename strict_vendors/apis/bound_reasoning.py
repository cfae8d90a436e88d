"""Reasoning of GPT-6.2 and later: dropped where what came before it, its reader or its end user is another.

"Starting with GPT-6.2, the Responses API drops reasoning items after mid-conversation edits to the conversation history
(prefix edits), certain model changes (including downgrades), or changes to the end user or organization." A beginning
is the ``tools`` and ``text.format`` of the request and all items before; from GPT-6.2 on not ``instructions``, which are
appended behind ``input`` and never cached. What was dropped is told in ``input_transformations``, by the item's id. Read
on 2026-11-29.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from strict_vendors.caches import Block, is_marked
from strict_vendors.models import Model
from strict_vendors.script import tokens_of
from strict_vendors.vendor import Json

GUIDE = "https://developers.openai.com/api/docs/guides/latest-model/gpt-6.2-astra.md"
PAGE = "https://developers.openai.com/api/docs/guides/keep-prefix-unchanged.md"
BOUND = "reasoning bound to its prefix"  # a mark of a model; its instructions stand behind the input
_GREATER = "astra"  # whose reasoning no lesser model reads


class Made(Struct, frozen=True):
    """What a reasoning item was made with."""

    model: str
    prefix: str
    user: str


class Lost(Struct, frozen=True):
    """A reasoning item that the model was not shown."""

    id: str
    reason: str

    @property
    def told(self) -> Json:
        """It as an entry of ``input_transformations``."""
        return {"type": "reasoning_dropped", "id": self.id, "reason": self.reason}


def is_bound(model: Model) -> bool:
    """Say whether a model's reasoning is bound."""
    return BOUND in model.marks


def made(body: Json, model: Model, items: Sequence[Json]) -> Made:
    """Return what reasoning that answers a request is made with."""
    digest = _beginning(body)
    for item in items:
        _add(digest, item)
    return Made(model.name, digest.hexdigest(), _user(body))


def lost(body: Json, model: Model, items: Sequence[Json], known: Mapping[str, Made | None]) -> list[Lost]:
    """Return which reasoning items a model is not shown; ``known``: what each was made with, None by another account."""
    if not is_bound(model):
        return []
    found: list[Lost] = []
    digest = _beginning(body)
    for item in items:
        if item["type"] != "reasoning":
            _add(digest, item)
            continue
        name = str(item.get("id") or "")
        if name not in known:  # of an older model
            continue
        if (reason := _reason(known[name], body, model, digest.hexdigest())) is not None:
            found.append(Lost(name, reason))
    return found


def _reason(its: Made | None, body: Json, model: Model, prefix: str) -> str | None:
    if its is None:
        return "organization_mismatch"
    if _GREATER in its.model and _GREATER not in model.name:
        return "model_mismatch"
    if its.user != _user(body):
        return "end_user_mismatch"
    return "prefix_mismatch" if its.prefix != prefix else None


def blocks_to_cache(body: Json, model: Model, items: Sequence[Json]) -> Iterator[tuple[Block, int]]:
    """Yield the blocks of a prompt in the order in which they are cached, each with its tokens."""
    text = body.get("text") or {}
    yield Block(["tools", body.get("tools") or [], text.get("format")], is_marked=False), 0
    instructions = body.get("instructions") or ""
    if instructions and not is_bound(model):
        yield Block(["instructions", instructions], is_marked=False), tokens_of(instructions)
    for item in items:
        yield Block(_said(item), is_marked(item.get("content"))), tokens_of(_text(item))


def _user(body: Json) -> str:
    return str(body.get("safety_identifier") or body.get("user") or "")


def _beginning(body: Json) -> Any:
    digest = hashlib.sha256()
    text = body.get("text") or {}
    digest.update(json.dumps([body.get("tools") or [], text.get("format")], sort_keys=True).encode())
    return digest


def _add(digest: Any, item: Json) -> None:
    if item["type"] != "reasoning":
        digest.update(json.dumps(_said(item), sort_keys=True).encode())


def _said(item: Json) -> Json:
    """Return an item without what only names it, and its texts as parts of one kind."""
    said = {name: value for name, value in item.items() if name not in {"id", "status", "phase", "summary"}}
    for name in ("content", "output"):
        if isinstance(said.get(name), str):
            said[name] = [{"type": "text", "text": said[name]}]
        elif isinstance(said.get(name), list):
            said[name] = [_part(part) for part in said[name]]
    return said


def _part(part: Any) -> Any:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    return part


def _text(item: Json) -> str:
    content = item.get("content") or item.get("output") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
