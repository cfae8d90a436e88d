"""One JSON object of a request whose fields are taken one by one, so that the rest is known to be lost."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from providers.dialects.wording import REDACTED, SIGNED, Losses, Malformed, decoded, flat_name, raw_json
from providers.error_bodies import error_in
from providers.errors import ErrorKind, UpstreamError
from providers.usage import Usage, usage_of

Object = dict[str, msgspec.Raw]

_NULL = msgspec.Raw(b"null")
_HINTS = frozenset({"cache_control", "extra_content"})


class Fields:
    """The fields of one object; null counts as missing."""

    def __init__(self, values: Mapping[str, msgspec.Raw], path: str = "") -> None:
        self.path = path
        self._left = {name: raw for name, raw in values.items() if raw != _NULL}

    def named(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def raw(self, name: str) -> msgspec.Raw | None:
        """Pop a field as raw JSON, None if it is missing."""
        return self._left.pop(name, None)

    def need(self, name: str) -> msgspec.Raw:
        """Pop a field as raw JSON.

        Raises:
            Malformed: it is missing.

        """
        raw = self.raw(name)
        if raw is None:
            raise Malformed(f"Missing required parameter: '{self.named(name)}'.", self.named(name))
        return raw

    def take(self, name: str, type_: Any) -> Any:
        """Pop a field as ``type_``, None if it is missing.

        Raises:
            Malformed: it is of another type.

        """
        return decoded(self.raw(name), type_, self.named(name))

    def inner(self, name: str) -> "Fields":
        """Pop a field that is an object; an empty object if it is missing.

        Raises:
            Malformed: it is not an object.

        """
        return Fields(self.take(name, Object) or {}, self.named(name))

    def several(self, *names: str) -> Object:
        """Pop the given fields as raw JSON, those that exist."""
        return {name: self._left.pop(name) for name in names if name in self._left}

    def holds(self, name: str, value: bytes) -> bool:
        """Whether a field has this JSON value; does not take it."""
        return self._left.get(name) == msgspec.Raw(value)

    def put(self, name: str, raw: msgspec.Raw) -> None:
        """Replace the value of a field."""
        self._left[name] = raw

    def pass_over(self, *names: str) -> None:
        """Pop fields that have no effect on the model."""
        for name in names:
            self._left.pop(name, None)

    def lose(self, name: str, losses: Losses, reason: str, *plain: bytes, hint: bool = False) -> None:
        """Note a field as lost, unless it is missing or has one of the ``plain`` JSON values, which are defaults."""
        raw = self.raw(name)
        if raw is not None and not any(raw == msgspec.Raw(value) for value in plain):
            losses.add(self.named(name), reason, hint=hint)

    def lose_rest(self, losses: Losses, reason: str) -> None:
        """Note all fields that were not taken as lost; cache markers and Gemini's signatures of thoughts are hints."""
        for name in self._left:
            losses.add(self.named(name), reason, hint=name in _HINTS)
        self._left.clear()


def objects_of(raw: msgspec.Raw | None, path: str) -> list[Fields]:
    """Return a JSON array of objects, each with its path; empty if it is missing or null.

    Raises:
        Malformed: it is not an array of objects.

    """
    values = decoded(raw, list[Object], path) or []
    return [Fields(value, f"{path}[{number}]") for number, value in enumerate(values)]


# The tokens of a response, in the fields of Responses and of chat completions.

_IN_CHAT = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
}
_IN_RESPONSES = {chat: responses for responses, chat in _IN_CHAT.items()}


def usage_of_response(reported: Mapping[str, Any], tier: object = None) -> Usage:
    """Read the ``usage`` of a response; the names of chat completions are accepted too."""
    return usage_of(chat_usage(reported), tier)


def flat(annotation: dict[str, Any]) -> dict[str, Any]:
    """Return an annotation in flat form; chat nests its fields in an object named by its type."""
    inner = annotation.get(str(annotation.get("type")))
    return {"type": annotation.get("type"), **inner} if isinstance(inner, dict) else annotation


def chat_usage(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``usage`` of a response in the fields of a chat completion."""
    return {_IN_CHAT.get(name, name): value for name, value in reported.items()}


def responses_usage(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ``usage`` of a chat completion in the fields of a response; missing counts are 0."""
    counts = usage_of(reported)
    total = (counts.prompt_tokens or 0) + (counts.completion_tokens or 0)
    said = {_IN_RESPONSES.get(name, name): value for name, value in reported.items()}
    ins, outs = (_details(said.get(name)) for name in ("input_tokens_details", "output_tokens_details"))
    ins |= {"cached_tokens": counts.cached_tokens or 0, "cache_write_tokens": counts.cache_write_tokens or 0}
    outs |= {"reasoning_tokens": counts.reasoning_tokens or 0}
    return said | {
        "input_tokens": counts.prompt_tokens or 0,
        "input_tokens_details": ins,
        "output_tokens": counts.completion_tokens or 0,
        "output_tokens_details": outs,
        "total_tokens": total,
    }


def _details(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


# Thoughts that a model of Anthropic's has signed, or encrypted, as reasoning: its text is the item's, and what only the
# maker can read is the encrypted content, behind the kind of its block.


def encrypted_of(block: Mapping[str, Any]) -> str | None:
    """Return the encrypted content for such a block of thinking; None if it is none."""
    kind = block.get("type")
    bound = block.get("signature" if kind == SIGNED else "data")
    return f"{kind}:{bound}" if kind in {SIGNED, REDACTED} and isinstance(bound, str) and bound else None


def thinking_of(encrypted: msgspec.Raw | None, text: str) -> dict[str, Any] | None:
    """Return the block of thinking with this ``text`` that such encrypted content stands for; None: it is none."""
    kind, _, bound = (decoded(encrypted, str, "encrypted_content") or "").partition(":")
    if not bound or kind not in {SIGNED, REDACTED}:
        return None
    return {"type": kind, "data": bound} if kind == REDACTED else {"type": kind, "thinking": text, "signature": bound}


# Tools that the input of a request adds to those beside it: Codex may have all of them there.

_ADDED = b'"additional_tools"'


def all_tools(asked: Mapping[str, msgspec.Raw]) -> msgspec.Raw | None:
    """Return the tools of a request, those that its input adds among them.

    Raises:
        Malformed: they are no lists of objects.

    """
    raw, given = asked.get("tools"), asked.get("input", msgspec.Raw(b"null"))
    if added := added_tools(given):
        return raw_json([*(decoded(raw, list[msgspec.Raw], "tools") or ()), *added])
    return raw


def with_added_tools(asked: Mapping[str, msgspec.Raw]) -> Mapping[str, msgspec.Raw]:
    """Return the fields of a request, the tools that its input adds among the others; as they are if it adds none."""
    try:
        tools = all_tools(asked)
    except Malformed:
        return asked
    return asked if tools is None or tools is asked.get("tools") else {**asked, "tools": tools}


def added_tools(given: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the tools that an ``input`` adds.

    Raises:
        Malformed: they are no list.

    """
    if _ADDED not in bytes(given):
        return []
    items = objects_of(given, "input")
    adding = [item for item in items if item.holds("type", _ADDED)]
    return [tool for item in adding for tool in item.take("tools", list[msgspec.Raw]) or ()]


# Tools in namespaces. Chat completions have none: there the namespace becomes a part of the tool's name.


def opened(raw: msgspec.Raw | None, losses: Losses) -> list[Fields]:
    """Return the tools of a request, also those inside namespaces, with their names in chat.

    The description of a namespace is put before that of its first tool.

    Raises:
        Malformed: a namespace lacks its name or its tools.

    """
    said: list[Fields] = []
    for tool in objects_of(raw, "tools"):
        if not tool.holds("type", b'"namespace"'):
            said.append(tool)
            continue
        namespace = decoded(tool.need("name"), str, tool.named("name"))
        about = tool.take("description", str)
        for inner in objects_of(tool.need("tools"), tool.named("tools")):
            name = decoded(inner.need("name"), str, inner.named("name"))
            inner.put("name", raw_json(flat_name(namespace, name)))
            if about:
                own = inner.take("description", str)
                described = f"{own or name}\n\nAll {namespace} tools: {about}"
                inner.put("description", raw_json(described))
                about = None
            said.append(inner)
        tool.pass_over("type")
        tool.lose_rest(losses, "chat completions have no such field in a tool")
    return said


def names_of(raw: msgspec.Raw | None) -> Mapping[str, tuple[str, str]]:
    """Return the namespace and the name of each tool that is in a namespace, by its name in chat."""
    names: dict[str, tuple[str, str]] = {}
    for tool in decoded(raw, list[dict[str, Any]], "tools") or ():
        if tool.get("type") == "namespace":
            namespace = str(tool.get("name"))
            own = [str(inner.get("name")) for inner in tool.get("tools") or ()]
            names |= {flat_name(namespace, name): (namespace, name) for name in own}
    return names


def called_name(item: Fields) -> msgspec.Raw:
    """Read the name of the tool from an earlier call, as it is in chat.

    Raises:
        Malformed: there is none.

    """
    name = item.need("name")
    namespace = item.take("namespace", str)
    if not namespace:
        return name
    return raw_json(flat_name(namespace, decoded(name, str, item.named("name"))))


# The errors of a Responses stream, and an event for them at which every SDK raises.

_NUMBER = re.compile(rb'(?<!\\)"sequence_number" ?: ?(\d{1,18})\b')  # not as text in an answer: its quotes are escaped


def upstream_error(error: Mapping[str, Any], secrets: Sequence[str]) -> UpstreamError:
    """Return a provider's error object as our error; its kind is stream_error if its code is unknown."""
    return error_in(msgspec.json.encode({"error": error}), secrets, otherwise=ErrorKind.STREAM_ERROR)


def failure(kind: str, message: str) -> bytes:
    """Return the event of an error. It has the code and the message twice: at its top level, and in ``error``.

    The API documents the first form and sends the second; OpenAI's SDKs raise only at the second.
    """
    facts = {"code": kind, "message": message, "param": None}
    event = {"type": "error", "sequence_number": 0, **facts, "error": {"type": "upstream_error", **facts}}
    return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"


def numbered(failure: bytes, before: bytes) -> bytes:
    """Return the event of an error with the number that follows the last one in the events ``before`` it."""
    numbers = _NUMBER.findall(before)
    return (
        failure.replace(b'"sequence_number":0', b'"sequence_number":%d' % (int(numbers[-1]) + 1), 1)
        if numbers
        else failure
    )


# Writes the typed events of a Responses stream, with their sequence numbers.


class EventWriter:
    """Events that were written and not taken yet. ``number`` is the first one's."""

    def __init__(self, number: int = 0) -> None:
        self._number = number
        self._written: list[bytes] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Write one event."""
        data = msgspec.json.encode({"type": kind, "sequence_number": self._number, **fields})
        if b"\n" in data or b"\r" in data:  # raw JSON may be pretty-printed; an event's data is one line
            data = msgspec.json.format(data, indent=-1)
        self._written.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))
        self._number += 1

    def skip(self, count: int) -> None:
        """Leave out the numbers of events that are written elsewhere."""
        self._number += count

    def take(self) -> bytes:
        """Return the events that were written since the last call."""
        written = b"".join(self._written)
        self._written.clear()
        return written
