"""Translates the messages of a chat completion into the input items of a Responses request."""

from typing import Any

import msgspec

from providers.dialects.responses.fields import Fields, Losses, is_string, objects_of
from providers.dialects.wording import Malformed

Item = dict[str, Any]

_AUTO = msgspec.Raw(b'"auto"')
_NO_SUCH_FIELD = "Responses has no such field"
_OWN_THOUGHTS = "Responses takes earlier reasoning only unchanged: only the model that wrote it can use it"
_NOT_TAKEN_BACK = "Responses does not take this back with an earlier answer"
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")


class Transcript:
    """Input items, made from chat messages in their order."""

    def __init__(self, losses: Losses) -> None:
        self.instructions: msgspec.Raw | None = None
        self.items: list[Item] = []
        self._losses = losses
        self._custom_calls: set[bytes] = set()  # their ids, raw: their results are items of another type

    def add(self, message: Fields) -> None:
        """Add one message; a system message at the beginning becomes the instructions.

        Raises:
            Malformed: it lacks a field that its role requires.

        """
        match role := message.take("role", str):
            case "system" | "developer" | "user":
                self._input(message, role)
            case "assistant":
                self._assistant(message)
            case "tool":
                self._result(message)
            case "function":
                self._losses.add(message.path, "Responses has no functions, only tools")
                return
            case _:
                path = message.named("role")
                raise Malformed(f"'{path}' must be system, developer, user, assistant or tool.", path)
        message.lose_rest(self._losses, _NO_SUCH_FIELD)

    def _input(self, message: Fields, role: str) -> None:
        content = message.need("content")
        if role == "system" and is_string(content) and self.instructions is None and not self.items:
            self.instructions = content
            return
        said = content if is_string(content) else self._parts(content, message.named("content"))
        self.items.append({"type": "message", "role": role, "content": said})

    def _assistant(self, message: Fields) -> None:
        for name in _THOUGHTS:
            message.lose(name, self._losses, _OWN_THOUGHTS, hint=True)
        message.lose("annotations", self._losses, _NOT_TAKEN_BACK, b"[]", hint=True)
        content = message.raw("content")
        parts: msgspec.Raw | list[Item] = []
        if content is not None:
            parts = content if is_string(content) else self._answer_parts(content, message.named("content"))
        if (refusal := message.raw("refusal")) is not None:
            before = parts if isinstance(parts, list) else [_output_text(parts)]
            parts = [*before, {"type": "refusal", "refusal": refusal}]
        calls = objects_of(message.raw("tool_calls"), message.named("tool_calls"))
        if parts not in ([], msgspec.Raw(b'""')) or not calls:
            self.items.append({"type": "message", "role": "assistant", "content": parts})
        for call in calls:
            self._call(call)

    def _call(self, call: Fields) -> None:
        call_id = call.need("id")
        kind = call.take("type", str) or "function"
        if kind not in {"function", "custom"}:
            self._losses.add(call.path, f"Responses has no call of type {kind!r}")
            return
        inner = call.inner(kind)
        item: Item = {"type": f"{kind}_call", "call_id": call_id, "name": inner.need("name")}
        if kind == "custom":
            self._custom_calls.add(bytes(call_id))
            item |= {"type": "custom_tool_call", "input": inner.need("input")}
        else:
            item["arguments"] = inner.need("arguments")
        self.items.append(item)
        call.pass_over("index")  # from a stream; some clients keep it
        call.lose_rest(self._losses, _NO_SUCH_FIELD)

    def _result(self, message: Fields) -> None:
        call_id, content = message.need("tool_call_id"), message.need("content")
        message.pass_over("name")  # the call has it too
        output = content if is_string(content) else self._parts(content, message.named("content"))
        kind = "custom_tool_call_output" if bytes(call_id) in self._custom_calls else "function_call_output"
        self.items.append({"type": kind, "call_id": call_id, "output": output})

    def _parts(self, raw: msgspec.Raw, path: str) -> list[Item]:
        said: list[Item] = []
        for part in objects_of(raw, path):
            marker = part.several("prompt_cache_breakpoint")
            match kind := part.take("type", str):
                case "text":
                    said.append({"type": "input_text", "text": part.need("text"), **marker})
                case "image_url":
                    image = part.inner("image_url")
                    detail = image.raw("detail") or _AUTO
                    said.append({"type": "input_image", "image_url": image.need("url"), "detail": detail, **marker})
                    image.lose_rest(self._losses, _NO_SUCH_FIELD)
                case "file":
                    file = part.inner("file")
                    said.append({"type": "input_file", **file.several("file_data", "file_id", "filename"), **marker})
                    file.lose_rest(self._losses, _NO_SUCH_FIELD)
                case "input_audio":
                    self._losses.add(part.path, "Responses takes no audio")
                    continue
                case _:
                    self._losses.add(part.path, f"Responses has no part of type {kind!r}")
                    continue
            part.lose_rest(self._losses, _NO_SUCH_FIELD)
        return said

    def _answer_parts(self, raw: msgspec.Raw, path: str) -> list[Item]:
        said: list[Item] = []
        for part in objects_of(raw, path):
            part.lose("prompt_cache_breakpoint", self._losses, "Responses has no cache markers in answers", hint=True)
            match kind := part.take("type", str):
                case "text":
                    said.append(_output_text(part.need("text")))
                case "refusal":
                    said.append({"type": "refusal", "refusal": part.need("refusal")})
                case _:
                    self._losses.add(part.path, f"Responses has no part of type {kind!r} in an answer")
                    continue
            part.lose_rest(self._losses, _NO_SUCH_FIELD)
        return said


def _output_text(text: msgspec.Raw) -> Item:
    return {"type": "output_text", "text": text, "annotations": []}
