"""The losses of one translated request, collected field by field, and readers of its raw values."""

import hashlib
import re
from collections.abc import Container, Mapping
from typing import Any, TypeVar

import msgspec

from providers.dialects.wording import Loss, Malformed, arguments_object, decoded, is_string
from providers.errors import UNREADABLE

Object = dict[str, Any]  # JSON to be encoded; values that are copied unchanged stay raw
RawObject = dict[str, msgspec.Raw]

_T = TypeVar("_T")
# Made once: a conversation has hundreds of blocks, and making a decoder costs more than using it.
_strings = msgspec.json.Decoder(str)
_objects = msgspec.json.Decoder(RawObject)
_lists = msgspec.json.Decoder(list[RawObject])

CACHE_REASON = "cache markers have no counterpart there"
CANNOT_STOP_THINKING = "this model cannot stop thinking: it thinks its least"
_HINTS: Mapping[str, str] = {  # fields of any object that change no answer
    "cache_control": CACHE_REASON,
    "prompt_cache_breakpoint": CACHE_REASON,
    "extra_content": "only Gemini can use the signatures of its thoughts",
}


class Losses:
    """The losses of one request, in the order of its fields."""

    def __init__(self) -> None:
        self._met: list[Loss] = []

    def add(self, field: str, reason: str, *, hint: bool = False) -> None:
        """Note that ``field``, the client's path of it, has no counterpart."""
        self._met.append(Loss(field, reason, hint))

    def rest(self, given: Mapping[str, msgspec.Raw], said: Container[str], path: str, reason: str) -> None:
        """Note every field of the object at ``path`` that is not null and not among the translated ones, ``said``."""
        for name, value in given.items():
            if name in said or is_null(value):
                continue
            self.add(f"{path}.{name}", _HINTS.get(name, reason), hint=name in _HINTS)

    def met(self) -> tuple[Loss, ...]:
        """Return all losses."""
        return tuple(self._met)


def is_null(raw: msgspec.Raw) -> bool:
    """Whether a raw value is null."""
    return bytes(memoryview(raw)[:5]) == b"null"  # only the beginning: it may be a whole book


def text_at(given: Mapping[str, msgspec.Raw], name: str, path: str) -> str:
    """Return the string ``name`` of the object at ``path``.

    Raises:
        Malformed: it is missing, or no string.

    """
    raw = given.get(name)
    if raw is not None and is_string(raw):
        try:
            return _strings.decode(raw)
        except UNREADABLE:
            pass
    raise Malformed(f"'{path}.{name}' must be a string", f"{path}.{name}")


def raw_text_at(given: Mapping[str, msgspec.Raw], name: str, path: str) -> msgspec.Raw:
    """Return the string ``name`` of the object at ``path`` without decoding it: it may be a whole book.

    Raises:
        Malformed: it is missing, or no string.

    """
    raw = given.get(name)
    if raw is None or not is_string(raw):
        raise Malformed(f"'{path}.{name}' must be a string", f"{path}.{name}")
    return raw


def objects_at(raw: msgspec.Raw | None, path: str) -> list[RawObject]:
    """Return a list of objects, values still raw; an empty list where there is none.

    Raises:
        Malformed: it is something else.

    """
    return [] if raw is None or is_null(raw) else _read(_lists, raw, path)


def object_at(raw: msgspec.Raw | None, path: str) -> RawObject:
    """Return an object, values still raw; an empty object where there is none.

    Raises:
        Malformed: it is something else.

    """
    return {} if raw is None or is_null(raw) else _read(_objects, raw, path)


def arguments_at(function: RawObject, path: str, losses: Losses, api: str) -> msgspec.Raw:
    """Return the arguments of the ``function`` called at ``path``, as ``api`` takes them: an object.

    Where they are none, that is a loss, and the object is empty.

    Raises:
        Malformed: they are no text.

    """
    arguments = arguments_object(decoded(function.get("arguments"), str, f"{path}.arguments") or "")
    if arguments is None:
        losses.add(f"{path}.arguments", f"{api} takes arguments only as a JSON object")
        return msgspec.Raw(b"{}")
    return arguments


def _read(decoder: msgspec.json.Decoder[_T], raw: msgspec.Raw, path: str) -> _T:
    try:
        return decoder.decode(raw)
    except UNREADABLE as error:
        raise Malformed(f"{path!r} is invalid: {error}", path) from None


def lose_stream_options(asked: RawObject, losses: Losses, reason: str) -> None:
    """Note what chat's ``stream_options`` want besides usage, which is always sent.

    Raises:
        Malformed: it is no object.

    """
    options = object_at(asked.get("stream_options"), "stream_options")
    if bytes(options.pop("include_obfuscation", b"false")) not in {b"false", b"null"}:
        losses.add("stream_options.include_obfuscation", "translated streams are not padded", hint=True)
    losses.rest(options, ("include_usage",), "stream_options", reason)


# Names of users. Each API refuses some names that the other accepts, and gets their hash instead.

_LONGEST_IN_CHAT = 64  # characters
_LONGEST_IN_MESSAGES = 256
_TELLS_WHO = re.compile(r"[^@\s]+@[^@\s][^@\s.]*\.[^@\s]+|\+?[\d\s().-]{7,}")  # an e-mail address or a telephone number


def name_in_chat(name: str, losses: Losses) -> str:
    """Return Messages' ``metadata.user_id`` as chat's ``user``. Claude Code's has more than a hundred characters."""
    if len(name) <= _LONGEST_IN_CHAT:
        return name
    losses.add("metadata.user_id", f"chat takes {_LONGEST_IN_CHAT} characters at most, so it gets a hash", hint=True)
    return _hash(name)


def name_in_messages(name: str, field: str, losses: Losses) -> str:
    """Return chat's name of a user, in field ``field``, as ``metadata.user_id``."""
    if len(name) <= _LONGEST_IN_MESSAGES and not _TELLS_WHO.fullmatch(name):
        return name
    losses.add(field, "Messages takes no long or personal names, so it gets a hash", hint=True)
    return _hash(name)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


# Ids of tool calls in the characters that Messages allows: it refuses a conversation with others.

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


def allowed_id(call_id: str) -> str:
    """Return a tool call's id in letters, digits, ``_`` and ``-``; equal ids stay equal, different ones different.

    Some chat providers number calls ``functions.get_weather:0``.
    """
    return _FORBIDDEN.sub(lambda letter: f"_{ord(letter[0]):x}_", call_id)


# Reasoning effort: chat's levels, and their counterparts in Messages, an effort or a budget of thinking tokens. Chat
# has the levels of Messages (low to max), and none and minimal. Newer models decide themselves how long they think,
# and take an effort; older models take a budget, here with the figures that LiteLLM uses. A client's budget becomes
# the highest level whose figure it reaches, at most ``high``, which every reasoning model in chat accepts.

_EFFORTS: Mapping[str, str] = {  # from chat to Messages, which has nothing below low
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_BUDGETS_TOKENS: Mapping[str, int] = {
    "minimal": 1024,
    "low": 1024,
    "medium": 2048,
    "high": 4096,
    "xhigh": 8192,
    "max": 16384,
}
_LEAST_BUDGET_TOKENS = 1024  # the API's minimum


def effort_of_budget(budget_tokens: int) -> str:
    """Return chat's level for a budget of thinking tokens."""
    if budget_tokens < _BUDGETS_TOKENS["medium"]:
        return "low"
    return "medium" if budget_tokens < _BUDGETS_TOKENS["high"] else "high"


def thinking_of_effort(
    effort: str | None, said: Object, losses: Losses, *, adaptive: bool, limited: bool, always: bool
) -> Object:
    """Return the fields of a Messages request for an effort; ``said`` are the fields that the request has already.

    The budget counts towards max_tokens, and is added to that, unless it is the client's limit or the highest that the
    model takes (``limited``). ``always``: the model cannot stop thinking.
    """
    if effort is None:
        return {}
    if effort == "none":
        return _as_little_as_possible(losses, always=always)
    limit: int = said["max_tokens"]
    if reason := _reason_not_to_think(effort, said, adaptive=adaptive, limit=limit if limited else None):
        losses.add("reasoning_effort", reason)
        return {}
    if not adaptive and _is_between_tools(said["messages"]):
        # A hint: an agent's task must not fail in the middle. The API itself continues without thinking in this case.
        reason = "Messages cannot continue reasoning after a tool without the earlier thinking blocks"
        losses.add("reasoning_effort", reason, hint=True)
        return {}
    if adaptive:  # without ``display``, newer models do not send their thinking
        thinking = {"type": "adaptive", "display": "summarized"}
        return {"thinking": thinking, "output_config": {"effort": _EFFORTS[effort]}}
    budget = _BUDGETS_TOKENS[effort]
    if not limited:
        limit += budget
    return {"thinking": {"type": "enabled", "budget_tokens": min(budget, limit - 1)}, "max_tokens": limit}


def _as_little_as_possible(losses: Losses, *, always: bool) -> Object:
    if not always:
        return {"thinking": {"type": "disabled"}}
    losses.add("reasoning_effort", CANNOT_STOP_THINKING, hint=True)
    return {"output_config": {"effort": "low"}}


def _reason_not_to_think(effort: str, said: Object, *, adaptive: bool, limit: int | None) -> str | None:
    """Return why the API would refuse this effort, None if it accepts it."""
    if effort not in _EFFORTS:
        return f"Messages has no effort {effort!r}"
    if said.get("tool_choice", {}).get("type") in {"any", "tool"}:
        return "Messages has no thinking when a tool call is forced"
    if not adaptive and limit is not None and limit <= _LEAST_BUDGET_TOKENS:
        return f"Messages needs a limit over {_LEAST_BUDGET_TOKENS} tokens to think"
    return None


def _is_between_tools(turns: list[Object]) -> bool:
    """Whether the last turn answers an assistant's tool calls."""
    content = turns[-1]["content"] if turns else None
    return isinstance(content, list) and any(block["type"] == "tool_result" for block in content)


# JSON schemas for structured output in Messages: fewer keywords than in chat, and closed objects.

_UNKNOWN = frozenset(  # keywords that Messages answers with an error
    {
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "if",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "not",
        "oneOf",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "then",
        "uniqueItems",
    }
)
_INNER = ("items",)  # keywords with one schema
_LISTED = ("allOf", "anyOf")  # with a list of schemas
_NAMED = ("$defs", "definitions", "properties")  # with an object of schemas


class KeptSchema:
    """A schema that Messages supports, made from a client's.

    An object that does not mention additional properties is closed: whatever matches that matches the original too.
    """

    def __init__(self, raw: msgspec.Raw, path: str) -> None:
        """Read the schema at ``path``.

        Raises:
            Malformed: it is not a JSON object.

        """
        self.lost: list[str] = []  # paths of unsupported keywords
        self._changed = False
        try:
            schema = msgspec.json.decode(raw, type=Object)
            kept = self._keep(schema, path)
        except UNREADABLE as error:
            raise Malformed(f"{path!r} is invalid: {error}", path) from None
        self.kept: Any = kept if self._changed else raw  # unchanged, if all of it is supported

    def _keep(self, schema: Object, path: str) -> Object:
        kept: Object = {}
        for name, value in schema.items():
            at = f"{path}.{name}"
            if name in _UNKNOWN or not _is_known(name, value):
                self.lost.append(at)
                self._changed = True
            elif name in _INNER and isinstance(value, dict):
                kept[name] = self._keep(value, at)
            elif name in _LISTED and isinstance(value, list):
                kept[name] = [self._any(one, f"{at}[{number}]") for number, one in enumerate(value)]
            elif name in _NAMED and isinstance(value, dict):
                kept[name] = {key: self._any(one, f"{at}.{key}") for key, one in value.items()}
            else:
                kept[name] = value
        if "additionalProperties" not in kept and _is_object(schema):
            kept["additionalProperties"] = False
            self._changed = True
        return kept

    def _any(self, schema: Any, path: str) -> Any:
        return self._keep(schema, path) if isinstance(schema, dict) else schema


def _is_known(name: str, value: Any) -> bool:
    """Whether Messages supports this value of a keyword."""
    if name == "additionalProperties":
        return value is False
    return name != "minItems" or value in (0, 1)


def _is_object(schema: Object) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema
