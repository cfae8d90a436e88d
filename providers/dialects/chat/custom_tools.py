"""Tools that take a text (``custom``), for servers that have only functions: each tool becomes a function.

The function's only parameter is a string. Calls in the history become calls of this function. The model's calls of the
function become calls of the tool again, whole or streamed.
"""

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from providers.bodies import encoded
from providers.dialects.chat.choices import OfChoices
from providers.dialects.chat.deltas import CallNumbers, calls_in, string, written_arguments
from providers.dialects.wording import Fields, Loss, Wording, raw_json
from providers.refusals import UNREADABLE

TAKES_TEXT = "custom_tools"  # in ``Habits.beyond``: the model has custom tools of its own
CUSTOM, _FUNCTION, _INPUT = "custom", "function", "input"
_WORD = b'"custom"'
_CALLS = b'"tool_calls"'
_GRAMMAR = "it has no grammars of tools: the model is told it in the description, and may not keep it"
_ABOUT = "It is called with its whole text as `input`, as it is: whatever is said here of JSON, only that is JSON."

_Object = dict[str, msgspec.Raw]
_objects = msgspec.json.Decoder(list[_Object])
_object = msgspec.json.Decoder(_Object)
_listed = msgspec.json.Decoder(list[msgspec.Raw])


def has_custom(fields: Fields) -> bool:
    """Whether a chat request may offer tools that take a text."""
    return "tools" in fields and _WORD in bytes(fields["tools"])


def has_texts(fields: Fields) -> bool:
    """Whether a chat request may offer tools that take a text, or have called some."""
    return has_custom(fields) or _WORD in bytes(fields.get("messages", b""))


def custom_names(fields: Fields) -> frozenset[str]:
    """Return the names of a chat request's tools that take a text, without names that a function has too."""
    if not has_custom(fields):
        return frozenset()
    try:
        tools = _objects.decode(fields["tools"])
        return _names(tools, CUSTOM) - _names(tools, _FUNCTION)
    except (*UNREADABLE, KeyError):
        return frozenset()


def as_functions(wording: Wording) -> Wording:
    """Return a chat request where functions stand for tools that take a text, in its history and in its choice too.

    A malformed request is left to the provider.
    """
    if not has_texts(wording.fields):
        return wording
    offers, has_calls = has_custom(wording.fields), _WORD in bytes(wording.fields.get("messages", b""))
    fields = dict(wording.fields)
    losses: list[Loss] = []
    try:
        if offers:
            names = custom_names(fields)
            tools = _objects.decode(fields["tools"])
            fields["tools"] = raw_json([_tool(n, each, names, wording, losses) for n, each in enumerate(tools)])
            if _WORD in bytes(fields.get("tool_choice", b"")):
                fields["tool_choice"] = _choice(fields["tool_choice"], names)
        if has_calls:
            fields["messages"] = raw_json([_message(each) for each in _listed.decode(fields["messages"])])
    except (*UNREADABLE, KeyError, AttributeError, TypeError):
        return wording
    return msgspec.structs.replace(wording, fields=fields, losses=(*wording.losses, *losses))


def _names(tools: Sequence[_Object], kind: str) -> frozenset[str]:
    return frozenset(
        msgspec.json.decode(_object.decode(tool[kind])["name"], type=str)
        for tool in tools
        if bytes(tool.get("type", b"")) == b'"%b"' % kind.encode()
    )


def _tool(number: int, tool: _Object, names: Collection[str], wording: Wording, losses: list[Loss]) -> _Object:
    if bytes(tool.get("type", b"")) != _WORD:
        return tool
    custom = msgspec.json.decode(tool[CUSTOM], type=dict[str, Any])
    if custom["name"] not in names:
        return tool
    said = [custom.get("description") or "", _ABOUT]
    form = custom.get("format") or {}
    grammar = form.get("grammar") if form.get("type") == "grammar" else None
    if grammar:
        said.append(f"The text must match this grammar ({grammar.get('syntax')}):\n{grammar.get('definition')}")
        place = wording.place_of(f"tools[{number}]")
        losses.append(Loss(f"{place}.format" if place else f"tools[{number}].custom.format", _GRAMMAR, hint=True))
    text = {"type": "string", "description": "The whole text, as it is."}
    schema = {"type": "object", "properties": {_INPUT: text}, "required": [_INPUT], "additionalProperties": False}
    function = {"name": custom["name"], "description": "\n\n".join(filter(None, said)), "parameters": schema}
    others = {name: value for name, value in tool.items() if name not in {"type", CUSTOM}}
    return {"type": raw_json(_FUNCTION), _FUNCTION: raw_json(function), **others}


def _choice(raw: msgspec.Raw, names: Collection[str]) -> msgspec.Raw:
    choice = msgspec.json.decode(raw, type=dict[str, Any])
    if "allowed_tools" in choice:
        allowed = choice["allowed_tools"]
        allowed["tools"] = [_reference(each, names) for each in allowed["tools"]]
        return raw_json(choice)
    return raw_json(_reference(choice, names))


def _reference(tool: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    if tool.get("type") != CUSTOM or tool[CUSTOM]["name"] not in names:
        return tool
    return {"type": _FUNCTION, _FUNCTION: tool[CUSTOM]}


def _message(raw: msgspec.Raw) -> msgspec.Raw | _Object:
    """Return a message with calls of functions only. Few messages have other calls: the rest is not decoded."""
    if _WORD not in bytes(raw) or _CALLS not in bytes(raw):
        return raw
    message = _object.decode(raw)
    calls = _objects.decode(message["tool_calls"]) if bytes(message.get("tool_calls", b"null")) != b"null" else []
    return {**message, "tool_calls": raw_json([as_function_call(each) for each in calls])} if calls else raw


def as_function_call(call: _Object) -> _Object:
    """Return an earlier call of a tool that takes a text as the call of a function; another call unchanged.

    Raises:
        msgspec.DecodeError, KeyError: the call is not valid.

    """
    if bytes(call.get("type", b"")) != _WORD:
        return call
    custom = _object.decode(call[CUSTOM])
    text = msgspec.json.decode(custom.get(_INPUT, b'""'), type=str)
    function = {"name": custom.get("name"), "arguments": encoded({_INPUT: text}).decode()}
    others = {name: value for name, value in call.items() if name not in {"type", CUSTOM}}
    return {**others, "type": raw_json(_FUNCTION), _FUNCTION: raw_json(function)}


# The way back: the arguments of such a function, JSON that comes in pieces, become the text within the JSON.

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_LONGEST_HEAD = 64  # characters: if more comes before the text, the text is read when all has come
_WITHIN = re.compile(r'(?:[^"\\]+|\\(?:u[0-9a-fA-F]{4}|[^u]))*', re.DOTALL)
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}$")  # half a character, whose other half comes with the next piece


class _Text:
    """The text of one call, from the pieces of its arguments."""

    def __init__(self) -> None:
        self._kept = ""  # the arguments that are not read yet
        self._is_within = False
        self._is_over = False

    def add(self, piece: str) -> str:
        """Add one more piece; return the part of the text that may be sent now."""
        self._kept += piece
        if self._is_over:
            return ""
        if not self._is_within:
            head = _HEAD.match(self._kept[:_LONGEST_HEAD])
            if head is None:
                return ""
            self._kept, self._is_within = self._kept[head.end() :], True
        found = _WITHIN.match(self._kept)
        end = 0 if found is None else found.end()
        if end < len(self._kept) and self._kept[end] == '"':
            self._is_over = True
        elif (half := _HALF.search(self._kept, max(0, end - 6), end)) is not None:
            end = half.start()
        text, self._kept = self._kept[:end], self._kept[end:]
        return _decoded(text)

    def end(self) -> str:
        """Return the rest of the text: all arguments have come. Some models write the text without JSON around it."""
        kept, self._kept = self._kept, ""
        if self._is_within or not kept.strip():
            return ""
        try:
            said = json.loads(kept, strict=False)
        except ValueError:
            return kept
        if isinstance(said, dict):
            texts = [said[_INPUT]] if _INPUT in said else [each for each in said.values() if isinstance(each, str)]
            said = texts[0] if len(texts) == 1 else "" if not said else kept
        return said if isinstance(said, str) else kept


def _decoded(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        said: str = json.loads(f'"{text}"', strict=False)  # some servers write line breaks unescaped
    except ValueError:  # an escape that JSON does not have
        return text
    return said.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class AsCustom(OfChoices):
    """A ``Translation`` of chat chunks: calls of functions with these names become calls of tools that take a text."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._numbers: dict[int, CallNumbers] = {}  # by choice, the numbers of its calls
        self._nameless: dict[tuple[int, int], list[dict[str, Any]]] = {}  # pieces of calls whose names are to come
        self._functions: set[tuple[int, int]] = set()
        self._texts: dict[tuple[int, int], _Text] = {}

    def feed(self, block: bytes) -> bytes:
        """Return whole chunks with calls that have a text in place of JSON."""
        if not self._numbers and _CALLS not in block:
            return block
        return super().feed(block)

    def keeps(self, choice: dict[str, Any]) -> bool:
        """Put calls with texts into a choice; return whether anything is left of it."""
        index, ends = choice.get("index", 0), choice.get("finish_reason") is not None
        name = "message" if choice.get("delta") is None and "message" in choice else "delta"
        delta = choice.get(name) or {}
        if "tool_calls" not in delta and not ends:
            return True
        pieces = [said for call in calls_in(delta) for said in self._pieces(index, call)]
        if ends:
            pieces += self._rest(index)
        left = {**delta, "tool_calls": pieces} if pieces else {k: v for k, v in delta.items() if k != "tool_calls"}
        choice[name] = left
        return bool(left) or ends

    def _pieces(self, index: int, call: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the pieces that a piece of a call becomes; ``CallNumbers`` numbers the calls, not the server."""
        number, taken = self._numbers.setdefault(index, CallNumbers()).say(call)
        key = index, number
        numbered = {**call, "index": number}
        if key in self._functions:
            return [numbered]
        function = taken.get(_FUNCTION)
        function = function if isinstance(function, dict) else {}
        piece = written_arguments(function.get("arguments"))
        if key in self._texts:
            text = self._texts[key].add(piece)
            return [{"index": number, CUSTOM: {_INPUT: text}}] if text else []
        before = self._nameless.pop(key, [])
        name = string(function.get("name"))
        if not name and CUSTOM not in call:
            self._nameless[key] = [*before, numbered]
            return []
        if name not in self._names:
            self._functions.add(key)
            return [*before, numbered]
        begun = self._texts[key] = _Text()
        early = "".join(written_arguments((each.get(_FUNCTION) or {}).get("arguments")) for each in before)
        call_id = next((each["id"] for each in (*before, call) if each.get("id")), None)
        kept = {k: v for k, v in call.items() if k not in {"id", "type", "index", _FUNCTION}}
        said = {_INPUT: begun.add(early + piece), "name": name}
        return [{"index": number, **({"id": call_id} if call_id else {}), "type": CUSTOM, CUSTOM: said, **kept}]

    def _rest(self, index: int) -> list[dict[str, Any]]:
        """Return the rest of the texts of a choice's calls, and calls without a name."""
        numbers = self._numbers.get(index)
        for number, piece in () if numbers is None else numbers.rest():
            if (text := self._texts.get((index, number))) is not None:
                text.add(written_arguments(piece[_FUNCTION]["arguments"]))
        pieces = [each for key in [*self._nameless] if key[0] == index for each in self._nameless.pop(key)]
        for key, text in self._texts.items():
            if key[0] == index and (left := text.end()):
                pieces.append({"index": key[1], CUSTOM: {_INPUT: left}})
        return pieces
