"""A Messages conversation translated to chat: blocks of turns become messages."""

from collections.abc import Mapping, Sequence

import msgspec

from providers.dialects.messages.losses import (
    Losses,
    Object,
    RawObject,
    is_null,
    is_string,
    object_at,
    objects_at,
    raw_text_at,
    text_at,
)
from providers.dialects.tool_names import short_name
from providers.dialects.tool_pictures import SEE_BELOW, SHOWN_LATER, shown
from providers.dialects.wording import Malformed, decoded, raw_json

_NO_BLOCK = "chat has no such block"
_OWN_THOUGHTS = "chat has no earlier thinking blocks: only the model that wrote them can use them"
_NO_FIELD = "chat has no such field"
_BILLING = b'"x-anthropic-billing-header:'


def conversation(asked: Mapping[str, msgspec.Raw], losses: Losses, *, thoughts: bool) -> list[Object]:
    """Return the chat messages for ``system`` and ``messages``, with or without earlier thinking (``thoughts``).

    Raises:
        Malformed: they are not valid in Messages.

    """
    said: list[Object] = []
    if "system" in asked and (system := _texts(asked["system"], "system", losses)):
        said.append({"role": "system", "content": system})
    turns = objects_at(asked.get("messages"), "messages")
    if not turns:
        raise Malformed("messages: at least one message is required", "messages")
    role = ""
    for number, turn in enumerate(turns):
        path = f"messages[{number}]"
        role = text_at(turn, "role", path)
        losses.rest(turn, ("role", "content"), path, _NO_FIELD)
        if role == "user":
            said += _user(turn, path, losses)
        elif role == "assistant":
            said += _assistant(turn, path, losses, thoughts=thoughts)
        elif role == "system":
            said.append({"role": "system", "content": _texts(turn.get("content"), f"{path}.content", losses)})
        else:
            raise Malformed(f"'{path}.role' must be 'user', 'assistant' or 'system'", f"{path}.role")
    if role == "assistant":
        losses.add(f"messages[{len(turns) - 1}]", "chat answers an assistant's last message, and does not continue it")
    return said


def _user(turn: RawObject, path: str, losses: Losses) -> list[Object]:
    """Return a message for each tool result, then the user's message."""
    content = turn.get("content")
    if content is None or is_null(content):
        raise Malformed(f"{path}.content: Field required", f"{path}.content")
    if is_string(content):
        return [{"role": "user", "content": content}]
    said: list[Object] = []
    shown_by_tools: list[Object] = []
    parts: list[Object] = []
    for at, kind, block in _blocks(content, f"{path}.content"):
        if kind == "tool_result":
            said.append(_tool_message(block, at, losses, shown_by_tools))
        else:
            parts += _parts(block, kind, at, losses)
    parts = shown_by_tools + parts
    if parts:
        said.append({"role": "user", "content": _content(parts)})
    return said


def _assistant(turn: RawObject, path: str, losses: Losses, *, thoughts: bool) -> list[Object]:
    """Return the turn as one message, its texts joined; nothing, if it had only thinking."""
    content = turn.get("content")
    if content is not None and is_string(content):
        return [{"role": "assistant", "content": content}]
    texts: list[msgspec.Raw] = []
    calls: list[Object] = []
    thought: list[str] = []
    for at, kind, block in _blocks(content, f"{path}.content"):
        if kind == "text":
            texts.append(raw_text_at(block, "text", at))
            _lose_citations(block, at, losses)
            losses.rest(block, ("type", "text", "citations"), at, _NO_FIELD)
        elif kind == "tool_use":
            calls.append(_call(block, at, losses))
        elif thoughts and kind == "thinking":
            thought.append(text_at(block, "thinking", at))
        elif kind in {"thinking", "redacted_thinking"}:
            losses.add(at, _OWN_THOUGHTS, hint=True)
        else:
            losses.add(at, _NO_BLOCK)
    if not texts and not calls:
        if thought:
            losses.add(f"{path}.content", _OWN_THOUGHTS, hint=True)
        return []
    text = texts[0] if len(texts) == 1 else "".join(msgspec.json.decode(text, type=str) for text in texts) or None
    message: Object = {"role": "assistant", "content": text}
    if any(thought):
        message["reasoning_content"] = "".join(thought)
    return [message | {"tool_calls": calls} if calls else message]


def _call(block: RawObject, at: str, losses: Losses) -> Object:
    arguments = block.get("input")
    if arguments is None or bytes(memoryview(arguments)[:1]) != b"{":
        raise Malformed(f"'{at}.input' must be an object", f"{at}.input")
    caller = object_at(block.get("caller"), f"{at}.caller")
    if bytes(caller.get("type", b'"direct"')) != b'"direct"':
        losses.add(f"{at}.caller", "in chat only the model calls tools")
    losses.rest(block, ("type", "id", "name", "input", "caller"), at, _NO_FIELD)
    function = {"name": short_name(text_at(block, "name", at)), "arguments": bytes(arguments).decode()}
    return {"id": raw_text_at(block, "id", at), "type": "function", "function": function}


def _tool_message(block: RawObject, at: str, losses: Losses, shown_by_tools: list[Object]) -> Object:
    """Return a tool's result as a message, and add its parts that are not text to ``shown_by_tools``.

    Chat has no flag for a failed tool, so the text begins with "Error".
    """
    call_id = raw_text_at(block, "tool_use_id", at)
    content = block.get("content")
    parts: list[Object] = []
    if is_string(content):
        parts = [{"type": "text", "text": content}]
    else:
        for inner, kind, item in _blocks(content, f"{at}.content"):
            for part in _parts(item, kind, inner, losses):
                if part["type"] == "text":
                    parts.append(part)
                else:
                    losses.add(inner, SHOWN_LATER, hint=True)
                    shown_by = text_at(block, "tool_use_id", at)
                    shown_by_tools += [{"type": "text", "text": shown(shown_by)}, part]
                    parts.append({"type": "text", "text": SEE_BELOW})
    if decoded(block.get("is_error"), bool, f"{at}.is_error"):
        text = decoded(raw_json(parts[0]["text"]), str, f"{at}.content") if parts else ""
        if not text.lower().startswith("error"):
            parts[:1] = [{"type": "text", "text": f"Error: {text}" if text else "Error"}]
    losses.rest(block, ("type", "tool_use_id", "content", "is_error"), at, _NO_FIELD)
    return {"role": "tool", "tool_call_id": call_id, "content": _content(parts) if parts else ""}


def _parts(block: RawObject, kind: str, at: str, losses: Losses) -> list[Object]:
    """Return the content parts for a block of a user's turn or of a tool's result."""
    if kind == "text":
        _lose_citations(block, at, losses)
        losses.rest(block, ("type", "text", "citations"), at, _NO_FIELD)
        return [{"type": "text", "text": raw_text_at(block, "text", at)}]
    if kind == "image":
        losses.rest(block, ("type", "source"), at, _NO_FIELD)
        return _image(object_at(block.get("source"), f"{at}.source"), f"{at}.source", losses)
    if kind == "document":
        return _document(block, at, losses)
    losses.add(at, _NO_BLOCK)
    return []


def _image(source: RawObject, at: str, losses: Losses) -> list[Object]:
    kind = text_at(source, "type", at)
    if kind == "url":
        return [{"type": "image_url", "image_url": {"url": raw_text_at(source, "url", at)}}]
    if kind == "base64":
        return [{"type": "image_url", "image_url": {"url": _data_url(source, at)}}]
    losses.add(at, "chat has no images from Anthropic's Files API")
    return []


def _document(block: RawObject, at: str, losses: Losses) -> list[Object]:
    path = f"{at}.source"
    source = object_at(block.get("source"), path)
    kind = text_at(source, "type", path)
    said = {"type", "source", "citations"}
    _lose_citations(block, at, losses)
    parts: list[Object] = []
    if kind == "text":
        parts = [{"type": "text", "text": raw_text_at(source, "data", path)}]
    elif kind == "base64":
        said.add("title")
        name = decoded(block.get("title"), str, f"{at}.title") or "document.pdf"
        parts = [{"type": "file", "file": {"filename": name, "file_data": _data_url(source, path)}}]
    elif kind == "content" and is_string(source.get("content")):
        parts = [{"type": "text", "text": source["content"]}]
    elif kind == "content":
        for inner, inner_kind, item in _blocks(source.get("content"), f"{path}.content"):
            parts += _parts(item, inner_kind, inner, losses)
    else:
        losses.add(path, "chat has no documents by URL or from Anthropic's Files API")
    losses.rest(block, said, at, _NO_FIELD)
    return parts


def _data_url(source: RawObject, at: str) -> str:
    return f"data:{text_at(source, 'media_type', at)};base64,{text_at(source, 'data', at)}"


def _lose_citations(block: RawObject, at: str, losses: Losses) -> None:
    """Note citations as lost: those of earlier answers are a hint, a request for citations is not."""
    asked = block.get("citations")
    if asked is None or bytes(asked) in {b"null", b"[]", b"{}"}:
        return
    if bytes(memoryview(asked)[:1]) == b"[":
        losses.add(f"{at}.citations", "chat has no citations of earlier answers", hint=True)
    elif decoded(object_at(asked, f"{at}.citations").get("enabled"), bool, f"{at}.citations.enabled"):
        losses.add(f"{at}.citations", "chat has no citations")


def _texts(content: msgspec.Raw | None, path: str, losses: Losses) -> object:
    """Return a system prompt, which is text only, as a message's content."""
    if content is not None and is_string(content):
        return content
    parts: list[Object] = []
    for at, kind, block in _blocks(content, path):
        if kind == "text" and _is_bill(block.get("text")):
            losses.add(
                at,
                "it is Claude Code's billing note for Anthropic; it changes each time, which would prevent caching",
                hint=True,
            )
        elif kind == "text":
            parts += _parts(block, kind, at, losses)
        else:
            losses.add(at, _NO_BLOCK)
    return _content(parts)


def _is_bill(text: msgspec.Raw | None) -> bool:
    """Whether a text is only Claude Code's billing line in its system prompt."""
    return text is not None and bytes(memoryview(text)[: len(_BILLING)]) == _BILLING and b"\\n" not in bytes(text)


def _content(parts: Sequence[Object]) -> object:
    """Return parts as a message's content; a single text as a string, which every server accepts."""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts


def _blocks(content: msgspec.Raw | None, path: str) -> list[tuple[str, str, RawObject]]:
    """Return the path, the type and the fields of each block."""
    blocks = objects_at(content, path)
    return [(f"{path}[{i}]", text_at(block, "type", f"{path}[{i}]"), block) for i, block in enumerate(blocks)]
