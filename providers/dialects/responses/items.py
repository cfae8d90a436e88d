"""Translates the input items of a Responses request into the messages of a chat completion."""

from typing import Any

import msgspec

from providers.dialects.responses.fields import Fields, Losses, is_string, objects_of
from providers.dialects.responses.namespaces import called_name
from providers.dialects.tool_pictures import SEE_BELOW, SHOWN_LATER, shown
from providers.dialects.wording import Malformed, decoded, raw_json

Part = dict[str, Any]
Content = msgspec.Raw | list[Part]

_SPEAKERS = frozenset({"user", "system", "developer"})
_TEXT = frozenset({"type", "text"})
_HIGH = msgspec.Raw(b'"high"')
_EMPTY = msgspec.Raw(b'""')
_ORIGINAL = msgspec.Raw(b'"original"')
_NO_SUCH_FIELD = "chat completions have no such field"
_OWN_THOUGHTS = "chat completions have no earlier reasoning: only the model that wrote it can use it"
_OWN_PHASES = "chat completions have no phases: only the model that named them can use them"
_NOT_TAKEN_BACK = "chat completions do not take this back with an earlier answer"


class Conversation:
    """Chat messages, made from items in their order.

    The model's texts and calls between two inputs become one message in chat, since the results of calls must follow
    the message with the calls.
    """

    def __init__(self, losses: Losses, *, thoughts: bool = False) -> None:
        self._said: list[dict[str, Any]] = []
        self._losses = losses
        self._takes_thoughts = thoughts
        self._thought: list[str] = []  # reasoning for the next message of the assistant
        self._open: dict[str, Any] | None = None  # the assistant's message, until another role follows
        self._shown: list[Part] = []  # parts from tool results, to be added after the last result of a turn

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages so far."""
        self._show()
        return self._said

    def say(self, role: str, content: Content) -> None:
        """Add a message that is not the assistant's."""
        self._close()
        if role == "user" and self._shown:
            content = [*self._shown, *_as_parts(content)]
            self._shown = []
        self._show()
        self._said.append({"role": role, "content": content})

    def add(self, item: Fields) -> None:
        """Add one item.

        Raises:
            Malformed: it lacks a field that its type requires.

        """
        kind = item.take("type", str)
        item.pass_over("id", "status")  # set by a server; no model reads them
        match kind:
            case "message" | None if (role := item.take("role", str)) is not None:
                self._message(item, role)
            case "message":
                raise Malformed(f"Missing required parameter: '{item.named('role')}'.", item.named("role"))
            case "function_call":
                arguments = item.need("arguments")
                if arguments == _EMPTY:  # servers parse it as JSON
                    arguments = raw_json("{}")
                function = {"name": called_name(item), "arguments": arguments}
                self._call({"id": item.need("call_id"), "type": "function", "function": function})
            case "custom_tool_call":
                custom = {"name": called_name(item), "input": item.need("input")}
                self._call({"id": item.need("call_id"), "type": "custom", "custom": custom})
            case "function_call_output" | "custom_tool_call_output":
                self._result(item)
            case "reasoning":
                self._think(item)
                return
            case "item_reference" | None:
                self._losses.add(item.path, "it refers to an item that another provider stores")
                return
            case _:
                self._losses.add(item.path, f"chat completions have no {kind} items")
                return
        item.lose("caller", self._losses, _NO_SUCH_FIELD, b'{"type":"direct"}')
        item.lose_rest(self._losses, _NO_SUCH_FIELD)

    def _message(self, item: Fields, role: str) -> None:
        content = item.need("content")
        if role == "assistant":
            item.lose("phase", self._losses, _OWN_PHASES, hint=True)
            self._assistant(content, item.named("content"))
        elif role in _SPEAKERS:
            self.say(role, content if is_string(content) else self._parts(content, item.named("content")))
        else:
            raise Malformed(f"'{item.named('role')}' must be user, assistant, system or developer.", item.named("role"))

    def _assistant(self, raw: msgspec.Raw, path: str) -> None:
        content = raw if is_string(raw) else self._parts(raw, path)
        if self._open is not None and "tool_calls" in self._open:
            before = self._open["content"]
            self._open["content"] = content if before is None else [*_as_parts(before), *_as_parts(content)]
            return
        begun = self._begin(content)
        if isinstance(content, list) and [part["type"] for part in content] == ["refusal"]:
            begun |= {"content": None, "refusal": content[0]["refusal"]}

    def _call(self, call: Part) -> None:
        message = self._begin(None) if self._open is None else self._open
        message.setdefault("tool_calls", []).append(call)

    def _begin(self, content: Content | None) -> dict[str, Any]:
        """Begin a message of the assistant, with the reasoning before it."""
        self._show()
        self._open = {"role": "assistant", "content": content}
        if self._thought:
            self._open["reasoning_content"] = "\n\n".join(self._thought)
            self._thought = []
        self._said.append(self._open)
        return self._open

    def _close(self) -> None:
        self._open = None
        if self._thought:  # the answer broke off after it
            self._losses.add("input", _OWN_THOUGHTS, hint=True)
            self._thought = []

    def _think(self, item: Fields) -> None:
        """Add reasoning to the open message of the assistant, or keep it for the next."""
        content: list[dict[str, Any]] = []
        if self._takes_thoughts:
            content = item.take("content", list[dict[str, Any]]) or item.take("summary", list[dict[str, Any]]) or []
        told = "\n\n".join(text for part in content if isinstance(text := part.get("text"), str) and text)
        if not told:
            self._losses.add(item.path, _OWN_THOUGHTS, hint=True)
        elif self._open is not None:
            before = self._open.get("reasoning_content")
            self._open["reasoning_content"] = told if before is None else f"{before}\n\n{told}"
        else:
            self._thought.append(told)

    def _result(self, item: Fields) -> None:
        call_id, output = item.need("call_id"), item.need("output")
        item.pass_over("name", "namespace")  # the call has them too
        self._close()
        path = item.named("output")
        content = output if is_string(output) else self._parts(output, path, of_call=call_id)
        self._said.append({"role": "tool", "tool_call_id": call_id, "content": content})

    def _show(self) -> None:
        """Add what tools showed as a user's message. It comes after all results, which must follow their calls."""
        if self._shown:
            self._said.append({"role": "user", "content": self._shown})
            self._shown = []

    def _parts(self, raw: msgspec.Raw, path: str, *, of_call: msgspec.Raw | None = None) -> Content:
        """Return the parts of a message; a string if there is only one text.

        Of the result of a call only text is returned, and a note where the rest is.
        """
        said: list[Part] = []
        for part in objects_of(raw, path):
            chat = self._part(part)
            if chat is None:
                continue
            part.lose_rest(self._losses, _NO_SUCH_FIELD)
            if of_call is not None and chat["type"] != "text":
                self._losses.add(part.path, SHOWN_LATER, hint=True)
                shown_by = decoded(of_call, str, path)
                self._shown += [{"type": "text", "text": shown(shown_by)}, chat]
                chat = {"type": "text", "text": raw_json(SEE_BELOW)}
            said.append(chat)
        if len(said) == 1 and said[0].keys() == _TEXT:
            text: msgspec.Raw = said[0]["text"]
            return text
        return said

    def _part(self, part: Fields) -> Part | None:
        """Return a part in chat's form; None if it is lost, which is noted."""
        said: Part | None = None
        match kind := part.take("type", str):
            case "input_text":
                said = {"type": "text", "text": part.need("text")}
            case "output_text":
                part.lose("annotations", self._losses, _NOT_TAKEN_BACK, b"[]", hint=True)
                part.lose("logprobs", self._losses, _NOT_TAKEN_BACK, b"[]", hint=True)
                said = {"type": "text", "text": part.need("text")}
            case "refusal":
                said = {"type": "refusal", "refusal": part.need("refusal")}
            case "input_image":
                said = self._image(part)
            case "input_file":
                part.lose("detail", self._losses, _NO_SUCH_FIELD, b'"auto"')
                part.lose("file_url", self._losses, "chat completions take a file's data, not its URL")
                file = part.several("file_data", "file_id", "filename")
                said = {"type": "file", "file": file} if file else None
            case "input_audio":
                said = {"type": "input_audio", "input_audio": part.need("input_audio")}
            case _:
                self._losses.add(part.path, f"chat completions have no part of type {kind!r}")
        marker = part.several("prompt_cache_breakpoint")
        return None if said is None else said | marker

    def _image(self, part: Fields) -> Part | None:
        image = part.several("detail")
        if image.get("detail") == _ORIGINAL:
            self._losses.add(part.named("detail"), "chat completions have images of high detail at most")
            image["detail"] = _HIGH
        url, file_id = part.raw("image_url"), part.raw("file_id")
        if url is not None:
            return {"type": "image_url", "image_url": {"url": url, **image}}
        if file_id is None:
            raise Malformed(f"Missing required parameter: '{part.named('image_url')}'.", part.named("image_url"))
        self._losses.add(part.named("file_id"), "chat completions take an image's data or address, not a file's name")
        return None


def _as_parts(content: Content) -> list[Part]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
