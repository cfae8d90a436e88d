"""A chat conversation translated to Messages: a system prompt, and turns of blocks."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

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
from providers.dialects.messages.tool_ids import allowed_id
from providers.dialects.wording import Malformed, decoded, raw_json

_IMAGE = re.compile(r"data:(image/(?:jpe?g|png|gif|webp));base64,(.*)", re.DOTALL)
_FILE = re.compile(r"data:(application/pdf|text/plain);base64,(.*)", re.DOTALL)
_THOUGHTS = frozenset({"reasoning", "reasoning_content", "reasoning_details", "thinking_blocks"})
_NO_FIELD = "Messages has no such field"
_NO_PART = "Messages has no such part"
_LONGEST_BLANK_BYTES = 64  # a longer text is not searched for words: it may be a whole book


class Conversation:
    """The turns so far, and the system prompt's blocks."""

    def __init__(self, losses: Losses) -> None:
        self.system: list[Object] = []
        self.turns: list[Object] = []
        self._losses = losses
        self._answers_tools = False  # the last turn has tool results, and nothing else yet

    def read(self, messages: Sequence[RawObject]) -> None:
        """Translate all messages of a request.

        Raises:
            Malformed: one is not valid in chat.

        """
        roles = [text_at(message, "role", f"messages[{i}]") for i, message in enumerate(messages)]
        for number, (role, message) in enumerate(zip(roles, messages, strict=True)):
            path = f"messages[{number}]"
            if role in {"system", "developer"}:
                self._add_system(message, path)
            elif role == "user":
                self._add_user(message, path)
            elif role == "assistant":
                self._add_assistant(message, path)
            elif role == "tool":
                self._add_result(message, path)
            else:
                self._losses.add(path, f"Messages has no role {role!r}")
        if roles[-1] == "assistant":
            last = f"messages[{len(messages) - 1}]"
            self._losses.add(last, "Messages continues an assistant's last message, and does not answer it")

    def _add_system(self, message: RawObject, path: str) -> None:
        """Add a system message: to the system prompt, or where there are turns already, to the user's turn."""
        self._losses.rest(message, ("role", "content"), path, _NO_FIELD)
        blocks = self._blocks(message.get("content"), f"{path}.content", texts_only=True)
        if not self.turns:
            self.system += blocks
            return
        reason = "this model takes system prompts only first: this one goes into the user's message, in <system> tags"
        self._losses.add(f"{path}.role", reason, hint=True)
        for block in blocks:
            block["text"] = f"<system>\n{decoded(raw_json(block['text']), str, path)}\n</system>"
        last = self.turns[-1]
        if blocks and last["role"] == "user":
            said = last["content"]
            last["content"] = [*(said if isinstance(said, list) else [{"type": "text", "text": said}]), *blocks]
        elif blocks:
            self.turns.append({"role": "user", "content": blocks})
        self._answers_tools = False

    def _add_user(self, message: RawObject, path: str) -> None:
        self._losses.rest(message, ("role", "content"), path, _NO_FIELD)
        content = message.get("content")
        if content is None or is_null(content):
            raise Malformed(f"'{path}.content' is required", f"{path}.content")
        blocks = self._blocks(content, f"{path}.content")
        if not blocks:
            return
        if self._answers_tools:  # results and the user's text beside them are one turn
            self.turns[-1]["content"] += blocks
            self._answers_tools = False
        else:
            self.turns.append({"role": "user", "content": content if is_string(content) else blocks})

    def _add_result(self, message: RawObject, path: str) -> None:
        self._losses.rest(message, ("role", "content", "tool_call_id", "cache_control"), path, _NO_FIELD)
        call_id = allowed_id(text_at(message, "tool_call_id", path))
        block: Object = {"type": "tool_result", "tool_use_id": call_id}
        content = message.get("content")
        if content is not None and not is_null(content):
            blocks = self._blocks(content, f"{path}.content", empty_is_said=True)
            block["content"] = content if is_string(content) else blocks
        _mark(message, block)
        if self._answers_tools:
            self.turns[-1]["content"].append(block)
        else:
            self.turns.append({"role": "user", "content": [block]})
            self._answers_tools = True

    def _add_assistant(self, message: RawObject, path: str) -> None:
        content = message.get("content")
        said = {"role", "content", "tool_calls", "refusal"}
        for name in sorted(_THOUGHTS & message.keys()):
            said.add(name)
            if bytes(message[name]) not in {b"null", b'""', b"[]"}:
                reason = "Messages refuses thinking blocks that it did not sign"
                self._losses.add(f"{path}.{name}", reason, hint=True)
        for name in ("annotations", "function_call"):  # SDKs send an answer back unchanged, empty fields included
            if bytes(message.get(name, b"null")) == b"[]":
                said.add(name)
        self._losses.rest(message, said, path, _NO_FIELD)
        calls = objects_at(message.get("tool_calls"), f"{path}.tool_calls")
        blocks = self._blocks(content, f"{path}.content", empty_is_said=bool(calls))
        if is_string(message.get("refusal")):
            blocks.append({"type": "text", "text": message["refusal"]})
        plain = is_string(content) and len(blocks) == 1 and not calls
        for number, call in enumerate(calls):
            blocks += self._call(call, f"{path}.tool_calls[{number}]")
        if blocks:
            self.turns.append({"role": "assistant", "content": content if plain else blocks})
            self._answers_tools = False

    def _call(self, call: RawObject, at: str) -> list[Object]:
        kind = decoded(call.get("type"), str, f"{at}.type") or "function"
        if kind != "function":
            self._losses.add(at, "Messages has functions only")
            return []
        function = object_at(call.get("function"), f"{at}.function")
        written = decoded(function.get("arguments"), str, f"{at}.function.arguments") or ""
        arguments: Any = msgspec.Raw(written.encode()) if written.strip() else {}
        try:
            msgspec.json.decode(written or "{}", type=RawObject)
        except (msgspec.DecodeError, RecursionError):
            if written.strip():
                self._losses.add(f"{at}.function.arguments", "Messages takes arguments only as a JSON object")
            arguments = {}
        self._losses.rest(call, ("id", "type", "index", "function"), at, _NO_FIELD)
        self._losses.rest(function, ("name", "arguments"), f"{at}.function", _NO_FIELD)
        call_id = allowed_id(text_at(call, "id", at))
        name = raw_text_at(function, "name", f"{at}.function")
        return [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]

    def _blocks(
        self, content: msgspec.Raw | None, path: str, *, texts_only: bool = False, empty_is_said: bool = False
    ) -> list[Object]:
        """Return a message's content as blocks. A blank text is left out, as Messages refuses it."""
        if content is None or is_null(content):
            return []
        if is_string(content):
            return self._text({"text": content}, path, "text", empty_is_said=empty_is_said)
        blocks: list[Object] = []
        for number, part in enumerate(objects_at(content, path)):
            at = f"{path}[{number}]"
            kind = text_at(part, "type", at)
            if kind in {"text", "refusal"}:
                blocks += self._text(part, at, kind, empty_is_said=empty_is_said)
            elif texts_only:
                self._losses.add(at, "a system prompt of Messages is text")
            elif kind == "image_url":
                blocks += self._image(part, at)
            elif kind == "file":
                blocks += self._file(part, at)
            elif kind == "input_audio":
                self._losses.add(at, "Messages has no audio input")
            else:
                self._losses.add(at, _NO_PART)
        return blocks

    def _text(self, part: RawObject, at: str, name: str, *, empty_is_said: bool) -> list[Object]:
        text = raw_text_at(part, name, at)
        self._losses.rest(part, ("type", name, "cache_control"), at, _NO_FIELD)
        if len(memoryview(text)) <= _LONGEST_BLANK_BYTES and not msgspec.json.decode(text, type=str).strip():
            if not empty_is_said:
                self._losses.add(at, "Messages refuses empty text", hint=True)
            return []
        block: Object = {"type": "text", "text": text}
        _mark(part, block)
        return [block]

    def _image(self, part: RawObject, at: str) -> list[Object]:
        image = object_at(part.get("image_url"), f"{at}.image_url")
        url = text_at(image, "url", f"{at}.image_url")
        if bytes(image.get("detail", b"null")) not in {b"null", b'"auto"'}:
            self._losses.add(f"{at}.image_url.detail", "Messages has no detail level for images", hint=True)
        self._losses.rest(part, ("type", "image_url", "cache_control"), at, _NO_FIELD)
        self._losses.rest(image, ("url", "detail"), f"{at}.image_url", _NO_FIELD)
        if inline := _IMAGE.fullmatch(url):
            media_type = inline[1].replace("/jpg", "/jpeg")  # a common mistake, which chat accepts
            source = {"type": "base64", "media_type": media_type, "data": inline[2]}
        elif url.startswith(("https://", "http://")):
            source = {"type": "url", "url": url}
        else:
            self._losses.add(f"{at}.image_url.url", "Messages takes JPEG, PNG, GIF and WebP, by address or in base64")
            return []
        block: Object = {"type": "image", "source": source}
        _mark(part, block)
        return [block]

    def _file(self, part: RawObject, at: str) -> list[Object]:
        file = object_at(part.get("file"), f"{at}.file")
        self._losses.rest(part, ("type", "file", "cache_control"), at, _NO_FIELD)
        self._losses.rest(file, ("file_data", "filename"), f"{at}.file", "Messages has no access to OpenAI's files")
        inline = _FILE.fullmatch(decoded(file.get("file_data"), str, f"{at}.file.file_data") or "")
        if inline is None:
            if "file_data" in file:
                self._losses.add(f"{at}.file.file_data", "Messages takes documents as PDF or plain text, in base64")
            return []
        source = {"type": "base64", "media_type": inline[1], "data": inline[2]}
        if inline[1] == "text/plain":
            try:
                text = base64.b64decode(inline[2], validate=True).decode()
            except (binascii.Error, UnicodeDecodeError):
                raise Malformed(f"'{at}.file.file_data' is not base64 text", f"{at}.file.file_data") from None
            source = {"type": "text", "media_type": inline[1], "data": text}
        block: Object = {"type": "document", "source": source}
        if "filename" in file and not is_null(file["filename"]):
            block["title"] = file["filename"]
        _mark(part, block)
        return [block]


def _mark(source: Mapping[str, msgspec.Raw], block: Object) -> None:
    """Copy a cache marker: chat has none of its own, so a marker in chat means that of Messages."""
    if "cache_control" in source and not is_null(source["cache_control"]):
        block["cache_control"] = source["cache_control"]
