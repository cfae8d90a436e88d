"""Parts of a conversation that the newest version of Anthropic's API does not take, and where they go."""

from collections.abc import Sequence
from typing import Any

import msgspec

from providers.dialects.wording import Fields, Loss, Wording, raw_json
from providers.refusals import UNREADABLE

# From this version on no document stands in a turn of the assistant, and no text of the user has citations. The
# citations of the assistant's texts stay, and so does the switch for citations of a document of the user
# (platform.claude.com/docs/en/api/versioning, read on 2026-11-29).
MOVED = "this version of the API has no documents in turns of the assistant: it is in the user's next turn"
LEFT = "this version of the API has no documents in turns of the assistant"
UNCITED = "this version of the API has no citations of what the user says"
_messages = msgspec.json.Decoder(list[dict[str, Any]])


def for_newest_version(fields: Fields) -> Wording:
    """Return a request that the newest version takes: each turn stays the same however long the conversation grows."""
    raw = bytes(fields.get("messages", b""))
    if b'"document"' not in raw and b'"citations"' not in raw:
        return Wording(fields)
    try:
        messages = _messages.decode(raw)
    except UNREADABLE:  # the provider reports the error in its own words
        return Wording(fields)
    losses: list[Loss] = []
    kept: list[dict[str, Any]] = []
    waiting: list[Any] = []  # documents of the assistant
    for number, message in enumerate(messages):
        content, path = message.get("content"), f"messages[{number}].content"
        if message.get("role") == "assistant" and isinstance(content, list):
            documents = [each for each in content if _is(each, "document")]
            if documents:
                has_next = any(later.get("role") == "user" for later in messages[number + 1 :])
                losses += [
                    Loss(f"{path}[{at}]", MOVED if has_next else LEFT, hint=True)
                    for at, each in enumerate(content)
                    if _is(each, "document")
                ]
                waiting += documents if has_next else []
                rest = [each for each in content if not _is(each, "document")]
                if not rest:
                    continue
                message["content"] = rest
        elif message.get("role") == "user":
            if isinstance(content, list):
                losses += [Loss(f"{path}[{at}].citations", UNCITED, hint=True) for at in _uncited(content)]
            if waiting:
                message["content"], waiting = _with_documents(content, waiting), []
        kept.append(message)
    return Wording({**fields, "messages": raw_json(kept)}, tuple(losses)) if losses else Wording(fields)


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def _uncited(content: Sequence[Any]) -> list[int]:
    """Remove the citations of the user's texts, and of texts in found documents and tools' results; return where."""
    found = []
    for at, block in enumerate(content):
        if _is(block, "text") and "citations" in block:
            if block.pop("citations"):
                found.append(at)
        elif _is(block, "search_result") or _is(block, "tool_result"):
            inner = block.get("content")
            if isinstance(inner, list) and _uncited(inner):
                found.append(at)
    return found


def _with_documents(content: Any, documents: Sequence[Any]) -> list[Any]:
    """Return the content of a user's turn with documents before what is said, and behind results of tools."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    place = next((at for at, block in enumerate(blocks) if not _is(block, "tool_result")), len(blocks))
    return [*blocks[:place], *documents, *blocks[place:]]
