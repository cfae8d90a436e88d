"""A request in one dialect, and what its translation has lost."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from providers.bodies import raw_json as raw_json  # noqa: PLC0414 - dialects import it from here
from providers.refusals import UNREADABLE

_Made = TypeVar("_Made")
_number = msgspec.json.Decoder(int | None, strict=False)  # some servers take 2.0 and "2" for 2
Fields = Mapping[str, msgspec.Raw]  # a body's top level, values still raw JSON


class Malformed(Exception):
    """A request that is not valid in its dialect. ``param``: the path of the field, ``messages[2].content``."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class Loss(msgspec.Struct, frozen=True):
    """A part of a request that another dialect cannot express, or that a deployment ignores or refuses.

    A ``hint`` (a mark for the cache, a name sent as a hash) affects no answer: it is left out, and the client is told.
    Whether another loss keeps the deployment out of the race depends on the field (``providers/vendors/demands.py``).
    """

    field: str  # as the client wrote it: logprobs, tools[1].type
    reason: str  # "Messages has no log probabilities"
    hint: bool = False
    nearly: bool = False  # the answer is the same, or nearly; deployments that take the unchanged field come first
    kept: bool = False  # the field is sent all the same, as the request would be another one without it


Place = tuple[str, Sequence[str]]  # the path of a message or a tool, and the paths of the parts of its content
NOWHERE: Place = ("", ())


class Wording(msgspec.Struct, frozen=True):
    """A request in one dialect: the top level of the body with raw JSON values, and what its translation has lost."""

    fields: Mapping[str, msgspec.Raw]
    losses: tuple[Loss, ...] = ()
    # Of a chat request that was made from another request: where each message and each tool stood there.
    messages: Sequence[Place] = ()
    tools: Sequence[Place] = ()

    def place_of(self, path: str) -> str | None:
        """Return where the part of the chat request at ``path`` stood in the request that was translated into chat."""
        found = _WITHIN.match(path)
        if found is None:
            return None
        places, number, part = self.messages if found[1] == "messages" else self.tools, int(found[2]), found[3]
        whole, parts = places[number] if number < len(places) else NOWHERE
        return (parts[int(part)] if part is not None and int(part) < len(parts) else whole) or None


_WITHIN = re.compile(r"(messages|tools)\[(\d+)\](?:\.content\[(\d+)\])?")


class Places:
    """Where the messages and tools of a chat request stood in the request from which they are made."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, Place]] = {}  # by id; the objects are kept, as an id may be used again

    def put(self, made: _Made, path: str, parts: Sequence[str] = ()) -> _Made:
        """Note that ``made`` stood at ``path``, and where the parts of its content stood; return ``made``."""
        self._known[id(made)] = made, (path, parts)
        return made

    def of(self, made: Sequence[object]) -> Sequence[Place]:
        """Return where the parts of ``made`` stood."""
        return [self._known[id(each)][1] if id(each) in self._known else NOWHERE for each in made]


CACHE_REASON = "cache markers have no counterpart there"
CHANGING_NOTHING: Mapping[str, str] = {  # fields of any object that change no answer
    "cache_control": CACHE_REASON,
    "prompt_cache_breakpoint": CACHE_REASON,
    "extra_content": "only Gemini can use the signatures of its thoughts",
}
# What the user says first if a conversation begins with the assistant (a program has left out the beginning) and the
# API wants the user first; and last if the user's last words are blank, as an answer does not answer an answer. The
# text is not blank: Messages and Converse refuse blanks. livekit/agents says "." to Gemini
# (github.com/livekit/agents/pull/5828, read on 2026-11-29).
LEFT_OUT = "…"
SAYS_NOTHING = frozenset({b"null", b'""', b"[]", b"{}"})  # values that mean the same as a missing field
MARK = "cache_control"  # on a part of a prompt: the prompt up to the end of this part is to be cached


class Losses:
    """The losses of one request, in the order of its fields."""

    def __init__(
        self,
        *,
        marks: bool = False,
        once: bool = False,
        beyond: Container[str] = (),
        changing_nothing: Mapping[str, str] = CHANGING_NOTHING,
    ) -> None:
        """``marks``: keep marks of what to cache. ``once``: one hint for each reason.

        ``beyond``: what is kept though chat has no place for it, as in ``Habits``. ``changing_nothing``: the fields of
        any object that are hints, each with its reason, in place of the usual ones.
        """
        self._changing_nothing = changing_nothing
        self.keeps_marks = marks
        self.beyond = beyond
        self._reasons: set[str] | None = set() if once else None  # of hints
        self.places = Places()
        self._met: list[Loss] = []

    def add(self, field: str, reason: str, *, hint: bool = False) -> None:
        """Note that ``field``, the client's path, has no counterpart."""
        if self._reasons is not None:
            if hint and reason in self._reasons:
                return
            self._reasons.add(reason)
        self._met.append(Loss(field, reason, hint))

    def rest(
        self,
        given: Mapping[str, msgspec.Raw],
        said: Container[str],
        path: str,
        reason: str,
        *,
        repeated: Container[str] = (),
    ) -> None:
        """Note every field of the object at ``path``, but for null fields and those in ``said``, which are translated.

        ``repeated``: fields that are hints here, as the object around this one has them too.
        """
        for name, value in given.items():
            if name in said or is_null(value) or (self.keeps_marks and name == MARK) or is_no_prefix(name, value):
                continue
            at = f"{path}.{name}" if path else name
            if name in repeated:
                if name not in BESIDE_PARTS and bytes(value) not in SAYS_NOTHING:
                    self.add(at, REPEATED, hint=True)
                continue
            self.add(at, self._changing_nothing.get(name) or reason, hint=name in self._changing_nothing)

    def lose(
        self,
        given: Mapping[str, msgspec.Raw],
        name: str,
        path: str,
        reason: str,
        *plain: bytes,
        hint: bool = False,
    ) -> None:
        """Note the field ``name`` of the object at ``path``, unless it is missing or one of ``plain``, the defaults."""
        raw = given.get(name)
        if raw is not None and bytes(raw) not in plain and _compact(raw) not in plain:
            self.add(f"{path}.{name}" if path else name, reason, hint=hint)

    def note(self, losses: Sequence[Loss]) -> None:
        """Note losses that were found elsewhere."""
        self._met += losses

    def met(self) -> tuple[Loss, ...]:
        """Return all losses."""
        return tuple(self._met)

    def with_chat(self, said: Mapping[str, Any]) -> Wording:
        """Return the chat request ``said``, with all losses, and with the places of its messages and tools."""
        raw = {name: raw_json(value) for name, value in said.items()}
        return Wording(raw, tuple(self._met), self.places.of(said["messages"]), self.places.of(said.get("tools", ())))


def _compact(raw: msgspec.Raw) -> bytes:
    """Return a short object or list without blanks: some clients write blanks, and the defaults have none."""
    if len(raw) > _LONGEST_DEFAULT or bytes(memoryview(raw)[:1]) not in {b"{", b"["}:
        return b""
    return bytes(raw).translate(None, b" \t\r\n")


_LONGEST_DEFAULT = 64  # bytes


def is_no_prefix(name: str, value: msgspec.Raw) -> bool:
    """Whether a member of a message only says that the message is not the beginning of the answer.

    Mistral's SDKs write ``"prefix": false`` into each answer that becomes part of the next request (mistralai 3.7.0,
    assistantmessage.py, read on 2026-12-01).
    """
    return name == "prefix" and bytes(value) == b"false"


def is_null(raw: msgspec.Raw) -> bool:
    """Whether a raw value is null."""
    return bytes(memoryview(raw)[:5]) == b"null"  # only the beginning, as the whole may be as long as a book


PLAIN = "this model does not think"  # why a model is told neither how hard to think nor what other models thought
CANNOT_STOP_THINKING = "this model cannot stop thinking: it thinks its least"


def decoded(raw: msgspec.Raw | None, type_: Any, field: str) -> Any:
    """Return ``raw`` as ``type_``; None if the field is missing or null.

    Raises:
        Malformed: the value has another type.

    """
    if raw is None or bytes(raw) == b"null":
        return None
    try:
        if type_ is int and bytes(raw).rstrip(b"0").endswith(b"."):  # some clients write 9.0 for 9
            return int(msgspec.json.decode(raw, type=float))
        return msgspec.json.decode(raw, type=type_)
    except UNREADABLE as error:
        raise Malformed(f"{field!r} is invalid: {error}", field) from None


def answers_in(fields: Fields, name: str | None) -> int:
    """Return how many answers a request asks for in the field ``name``; 1 if it has no number there."""
    if name is None or name not in fields:
        return 1
    try:
        return max(1, _number.decode(fields[name]) or 1)
    except UNREADABLE:
        return 1


def is_string(raw: msgspec.Raw | None) -> bool:
    """Whether a raw value is a string, without decoding it."""
    return raw is not None and bytes(memoryview(raw)[:1]) == b'"'


# Histories that are valid in one API, and refused in the next.

BLANK = " \t\r\n"  # what JSON allows around a value
_NO_MESSAGES = msgspec.Raw(b"[]")
_Message = TypeVar("_Message", bound=Mapping[str, Any])


class HistoryCalls:
    """The tool calls of one history, in the order in which they are read.

    Finds what no API takes: a result without a call, a second result of a call, one id for two calls of a turn. An id
    may come again in a later turn: some models count their calls from 0 in each turn (``call_0``).
    """

    def __init__(self, *, elsewhere: bool = False) -> None:
        """``elsewhere``: a part of the history is not in the request, so results may be of calls in that part."""
        self.elsewhere = elsewhere
        self._unanswered: Counter[str] = Counter()  # calls, by id
        self._answered: set[str] = set()
        self._in_turn: set[str] = set()

    def begin_turn(self) -> None:
        """Begin another turn of the model."""
        self._in_turn.clear()

    def add(self, call_id: str, path: str) -> None:
        """Add a call.

        Raises:
            Malformed: the turn has another call with this id, which is in the field ``path``.

        """
        if call_id in self._in_turn:
            raise Malformed(f"{path!r} is the id of another call in this turn too: each call needs its own", path)
        self._in_turn.add(call_id)
        self._unanswered[call_id] += 1

    def answer(self, call_id: str, path: str) -> None:
        """Add a result.

        Raises:
            Malformed: no call has this id, which stands in the field ``path``, or the call has a result already.

        """
        if self._unanswered[call_id]:
            self._unanswered[call_id] -= 1
            self._answered.add(call_id)
        elif call_id in self._answered:
            raise Malformed(f"{path!r} is the id of a call that has a result before: each call has one", path)
        elif not self.elsewhere:
            raise Malformed(f"{path!r} is the id of no call before it: a result needs its call", path)


_LONGEST_BEGIN = 56  # characters of an id that comes again, before the number that is added: Converse takes 64
_ANSWERED = re.compile(rb'"(?:tool_use_id|call_id)"\s*:\s*"([^"\\]+)"')


class UniqueIds:
    """Unique ids of tool calls, for APIs and clients that find a call by its id alone.

    Some models count their calls from 0 in each turn.
    """

    def __init__(self, allowed: Callable[[str], str] = str, conversation: bytes | msgspec.Raw = b"") -> None:
        """``allowed``: writes an id in the letters that an API allows.

        ``conversation``: of Messages or Responses, as JSON; the ids of its calls that have a result are taken.
        """
        self._allowed = allowed
        self._taken: set[str] = set()
        if conversation:
            self._taken.update(each.decode(errors="replace") for each in _ANSWERED.findall(memoryview(conversation)))
        self._numbers: dict[str, int] = {}  # the last number, by the beginning to which it was added
        self._latest: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        """Return the id of another call with ``call_id``: always the same id in the same conversation."""
        said = self._allowed(call_id) or "call"
        begin = said[:_LONGEST_BEGIN]
        while said in self._taken:
            number = self._numbers[begin] = self._numbers.get(begin, 1) + 1
            said = f"{begin}_{number}"
        self._taken.add(said)
        self._latest[call_id] = said
        return said

    def of_result(self, call_id: str) -> str:
        """Return the id of the latest call with ``call_id``."""
        return self._latest.get(call_id) or self._allowed(call_id)


def check_calls(fields: Fields) -> None:
    """Check that each result in a chat's messages has one call before it; only lists of objects are checked.

    Raises:
        Malformed: a result has no call, a call has two results, or two calls of a message have one id.

    """
    raw = fields.get("messages", _NO_MESSAGES)
    if b'"tool_call' not in bytes(raw):
        return
    try:
        messages = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
    except UNREADABLE:  # the reader of the messages reports the error
        return
    calls = HistoryCalls()
    for number, message in enumerate(messages):
        if answered := _text(message.get("tool_call_id", "")):
            calls.answer(answered, f"messages[{number}].tool_call_id")
        calls.begin_turn()
        for place, call_id in enumerate(_ids_of_calls(message.get("tool_calls"))):
            calls.add(call_id, f"messages[{number}].tool_calls[{place}].id")


def as_users(instructions: str) -> str:
    """Return a system prompt for a user's message, where no system prompt may follow a user's turn."""
    return f"<system>\n{instructions}\n</system>"


def as_summary(text: str) -> str:
    """Return a summary for a user's message, in place of the summarised conversation."""
    return f"<summary>\n{text}\n</summary>"


def results_first(messages: Sequence[_Message]) -> list[tuple[int, _Message]]:
    """Return chat messages with their numbers, each result of a tool directly after the message with its call.

    What a user said between the results of parallel calls comes after the results.
    """
    groups: list[list[tuple[int, _Message]]] = []
    owners: dict[str, int] = {}  # by a call's id: the group that has the call
    for number, message in enumerate(messages):
        group = owners.get(_text(message.get("tool_call_id")), -1) if "tool_call_id" in message else None
        if group is not None and groups:
            groups[group].append((number, message))
            continue
        groups.append([(number, message)])
        for call_id in _ids_of_calls(message.get("tool_calls")):
            owners[call_id] = len(groups) - 1
    return [each for group in groups for each in group]


def _ids_of_calls(calls: Any) -> list[str]:
    try:
        listed = (
            msgspec.json.decode(calls, type=list[dict[str, msgspec.Raw]]) if isinstance(calls, msgspec.Raw) else calls
        )
    except UNREADABLE:  # the reader of the call reports the error
        return []
    return [_text(call["id"]) for call in listed or () if "id" in call]


def _text(value: Any) -> str:
    try:
        return msgspec.json.decode(value, type=str) if isinstance(value, msgspec.Raw) else str(value)
    except UNREADABLE:
        return ""


def with_properties(schema: msgspec.Raw) -> msgspec.Raw:
    """Return the schema of a tool; an object without ``properties`` gets some, others stay unchanged."""
    try:
        top = msgspec.json.decode(schema, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return schema
    if "properties" in top or bytes(top.get("type", b"")) != b'"object"':
        return schema
    return raw_json({**top, "properties": {}})


def arguments_object(written: str) -> msgspec.Raw | None:
    """Return a call's arguments as a JSON object; None if they are something else.

    Blank arguments and ``null`` stand for an empty object. Some models encode the object twice: ``"{}"``.
    """
    text = written.strip(BLANK)
    if text[:1] == '"':
        try:
            text = msgspec.json.decode(text, type=str).strip(BLANK)
        except UNREADABLE:
            return None
    if text in {"", "null"}:
        return msgspec.Raw(b"{}")
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except UNREADABLE:
        return None
    return msgspec.Raw(text.encode())


def written_object(arguments: msgspec.Raw) -> msgspec.Raw:
    """Return a call's arguments, a string, as the string of a JSON object; unchanged if they are something else."""
    try:
        written = msgspec.json.decode(arguments, type=str)
    except UNREADABLE:
        return arguments
    said = arguments_object(written)
    return arguments if said is None or bytes(said) == written.encode() else raw_json(bytes(said).decode())


# OpenAI's rules of strict schemas (platform.openai.com/docs/guides/structured-outputs#supported-schemas, as written
# down on jsonschemaprofiles.unitvectorylabs.com/schemas/openai, read on 2026-11-27): other schemas are answered with
# 400. Other APIs have other rules: a schema that is strict there may break OpenAI's.

_NEVER_STRICT = frozenset(
    {"allOf", "contains", "dependentRequired", "dependentSchemas", "else", "if", "maxContains", "maxLength", "then"}
    | {"maxProperties", "minContains", "minLength", "minProperties", "not", "oneOf", "patternProperties", "prefixItems"}
    | {"propertyNames", "unevaluatedItems", "unevaluatedProperties", "uniqueItems"}
)
_STRICT_FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"},
)
_MOST_PROPERTIES, _DEEPEST, _MOST_VALUES = 5000, 10, 1000
_DEFINITIONS = ("$defs", "definitions")
_TYPING = frozenset({"type", "anyOf", "enum", "const"})
_BESIDE_REFERENCE = frozenset({"$ref", "default", "deprecated", "description", "examples", "title"})
_NOT_STRICT = "OpenAI's strict schemas have all properties required and fewer keywords: best effort instead"


class _NotStrict(Exception):
    """As a strict schema, this schema would have to allow less than its reader expects."""


def strict_schema(raw: msgspec.Raw | None) -> msgspec.Raw | None:
    """Return a schema that OpenAI takes as strict, and that allows only what ``raw`` allows.

    None: there is no such schema. Objects that do not mention other properties are closed. Properties that may be null
    become required.
    """
    try:
        schema = msgspec.json.decode(raw or b"", type=dict[str, Any])
        count = {"properties": 0, "values": 0}
        if schema.get("type") != "object" or "anyOf" in schema:
            return None
        strict = _strict(schema, count, 0)
    except (*UNREADABLE, _NotStrict, AttributeError, TypeError):  # the last two: a keyword of an odd type
        return None
    if count["properties"] > _MOST_PROPERTIES or count["values"] > _MOST_VALUES:
        return None
    return raw if strict == schema else raw_json(strict)


def _strict(schema: Any, count: dict[str, int], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _DEEPEST or not _may_be_strict(schema):
        raise _NotStrict
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}  # nothing may stand beside a reference
    said = {name: value for name, value in schema.items() if name != "default"}
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "object" in kinds or "properties" in schema:
        said |= _closed(schema, count, depth)
    if "array" in kinds:
        said["items"] = _strict(schema.get("items"), count, depth)
    if "anyOf" in schema:
        said["anyOf"] = [_strict(each, count, depth) for each in schema["anyOf"]]
    for name in _DEFINITIONS:
        if name in schema:
            said[name] = {key: _strict(each, count, 0) for key, each in schema[name].items()}
    count["values"] += len(schema.get("enum") or ())
    return said


def _may_be_strict(schema: Mapping[str, Any]) -> bool:
    """Whether the keywords of a schema, apart from the schemas within, are allowed in a strict schema."""
    if "$ref" in schema:
        return str(schema["$ref"]).startswith("#") and not schema.keys() - _BESIDE_REFERENCE
    is_typed = not _TYPING.isdisjoint(schema)
    return is_typed and _NEVER_STRICT.isdisjoint(schema) and schema.get("format", "date") in _STRICT_FORMATS


def _closed(schema: Mapping[str, Any], count: dict[str, int], depth: int) -> dict[str, Any]:
    properties, required = schema.get("properties") or {}, schema.get("required") or []
    if schema.get("additionalProperties", False) is not False or not properties.keys() >= set(required):
        raise _NotStrict
    if not all(name in required or _takes_null(each) for name, each in properties.items()):
        raise _NotStrict
    count["properties"] += len(properties)
    inner = {name: _strict(each, count, depth + 1) for name, each in properties.items()}
    return {"properties": inner, "required": list(properties), "additionalProperties": False}


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    kinds = schema.get("type")
    return (
        kinds == "null"
        or (isinstance(kinds, list) and "null" in kinds)
        or any(map(_takes_null, schema.get("anyOf", ())))
    )


def as_strict(schema: msgspec.Raw, field: str) -> tuple[msgspec.Raw, bool, tuple[Loss, ...]]:
    """Return a ``schema`` for chat, whether it can be strict there, and the loss of ``field`` if it cannot."""
    strict = strict_schema(schema)
    return (schema, False, (Loss(field, _NOT_STRICT, hint=True),)) if strict is None else (strict, True, ())


# An earlier answer in chat has thoughts in fields of these names.
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
# OpenAI's Agents SDK for JavaScript (0.20.0) sends these fields of an answer back in its parts.
OF_ANSWER = frozenset({"role", "refusal", "annotations", "audio", "function_call", "tool_calls", *THOUGHTS})
BESIDE_PARTS = frozenset({"role", "tool_calls"})  # fields among these that the message has, too
REPEATED = "it belongs to the message, not to a part of it"

# Reasoning that only its maker can read: encrypted, or signed. Such reasoning is a text, the same in every API. In an
# API that is not the maker's, a word before the text names the maker, so that no other vendor is sent the text. In
# Responses, a text of Anthropic's begins with the kind of the block. In Messages and Responses, a text of Google's
# begins with what its signature belongs to. In Gemini, where signatures are bytes, Anthropic's blocks are one text in
# Base64.

ANTHROPIC, GOOGLE = "anthropic", "google"  # who signs thoughts
SIGNED, REDACTED = "thinking", "redacted_thinking"
OF_TEXT, OF_CALL = "google-text", "google-call"  # Google's signature of a message, and of the call that follows
GOOGLES = b'"google-'  # how Google's signatures begin in JSON
# Stands in Messages in place of a signature where nobody has signed the thoughts. Without any signature, Qwen Code
# 0.24.4 ends its session at the first call of a tool (dropUnsignedThinkingFromAssistantMessages).
NOBODYS = f"{OF_TEXT}:"
NOT_SIGNED = frozenset({b'""', f'"{NOBODYS}"'.encode()})
CLAUDES, GEMINIS = "anthropic-claude-v1", "google-gemini-v1"  # the makers of a detail of thoughts at OpenRouter
OPENAIS = "openai-responses-v1"  # another maker
# How a block begins that the gateway has sealed (``sealed.py``): reasoning of OpenAI's Responses in any other API.
SEALED = "holeshot-sealed-v1"
SEALED_MARK = f"{SEALED}:".encode()
_OURS = b"thinking:"  # 9 bytes, so that Base64 always begins with the same letters
OURS = base64.b64encode(_OURS)


def googles(bound: msgspec.Raw | None) -> tuple[str, str]:
    """Return what Google's signature in Messages or Responses belongs to, and the signature; "" twice: not Google's."""
    if bound is None or bytes(memoryview(bound)[: len(GOOGLES)]) != GOOGLES:
        return "", ""
    kind, _, signature = decoded(bound, str, "signature").partition(":")
    return (kind, signature) if kind in {OF_TEXT, OF_CALL} else ("", "")


def extra_content(signature: str) -> dict[str, Any]:
    """Return the field in which Google's chat has a signature, of a message or a call."""
    return {"extra_content": {"google": {"thought_signature": signature}}}


# Reasoning that other vendors' models have encrypted at OpenRouter: blocks of Anthropic's form that begin with the
# maker.
_OTHERS = re.compile(r"([a-z]+-[a-z]+-v\d+):")


def sealed_block(detail: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an encrypted detail of OpenRouter's as a block; None: not encrypted, or its vendor has its own form."""
    form, data = detail.get("format"), detail.get("data")
    if isinstance(data, str) and data.startswith(f"{SEALED}:"):
        return {"type": REDACTED, "data": data}
    is_other = isinstance(form, str) and form not in {CLAUDES, GEMINIS} and _OTHERS.fullmatch(f"{form}:") is not None
    if not is_other or detail.get("type") != "reasoning.encrypted" or not isinstance(data, str):
        return None
    return {"type": REDACTED, "data": f"{form}:{base64.b64encode(bytes(raw_json(detail))).decode()}"}


def signer_of(block: Mapping[str, Any]) -> str:
    """Return the maker of a block, as ``Habits.takes_signed`` names makers."""
    data = block.get("data")
    data = decoded(data, str, "data") if isinstance(data, msgspec.Raw) and is_string(data) else data
    found = _OTHERS.match(data) if isinstance(data, str) else None
    return ANTHROPIC if found is None else found[1]


def sealed_data(block: Mapping[str, Any]) -> str:
    """Return what the gateway has sealed in a block or a detail of thoughts; "" if it has sealed nothing."""
    data = block.get("data")
    data = decoded(data, str, "data") if isinstance(data, msgspec.Raw) and is_string(data) else data
    return data if isinstance(data, str) and data.startswith(f"{SEALED}:") else ""


def sealed_detail(data: str) -> dict[str, Any] | None:
    """Return the detail from which a block with ``data`` was made; None: the block was not made from a detail."""
    try:
        return msgspec.json.decode(base64.b64decode(data.partition(":")[2], validate=True), type=dict[str, Any])
    except (ValueError, *UNREADABLE):
        return None


def with_blocks(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return Anthropic's blocks of thinking as a signature in Gemini."""
    return base64.b64encode(_OURS + bytes(raw_json(blocks))).decode()


def blocks_within(signature: str) -> list[dict[str, Any]]:
    """Return the blocks that a signature in Gemini stands for; none if Google made the signature."""
    if not signature.startswith(OURS.decode()):
        return []
    plain = signature.replace("-", "+").replace("_", "/").rstrip("=")  # Google's SDKs send Base64 for addresses
    try:
        told = base64.b64decode(plain + "=" * (-len(plain) % 4))[len(_OURS) :]
        return msgspec.json.decode(told, type=list[dict[str, Any]])
    except (ValueError, *UNREADABLE):
        return []


_BOUND: Sequence[tuple[bytes, re.Pattern[bytes]]] = [  # what data must contain, and the pattern that finds the text
    (name, re.compile(rb'%b\s*:\s*"(?!google-text:")(?:(?:redacted_)?thinking:|google-(?:text|call):)?([^"]+)"' % name))
    for name in (b'"encrypted_content"', b'"signature"', b'"thoughtSignature"', b'"thought_signature"')
] + [
    (b'"redacted_thinking"', re.compile(rb'"redacted_thinking"\s*,\s*"data"\s*:\s*"(?!%b)([^"]+)"' % SEALED_MARK)),
    (
        b'"redacted_thinking"',
        re.compile(rb'"data"\s*:\s*"(?!%b)([^"]+)"\s*,\s*"type"\s*:\s*"redacted_thinking"' % SEALED_MARK),
    ),
    (SEALED_MARK, re.compile(rb'%b[\w-]+\.\w+\.[\w-]+\.([^"]+)"' % SEALED_MARK)),
]
SEARCHED_BYTES = 2**18  # in one go; longer data are for the thread, which gives way only between two searches
BOUND_REASON = "only the key that made this reasoning can read it"
OTHERS_REASON = "another maker's model made this reasoning, which only that one can read"


def bound_reasoning(data: bytes) -> list[bytes]:
    """Return the hashes of bound reasoning in ``data``, a conversation or a part of an answer as JSON, in order."""
    bound = _BOUND
    if len(data) > SEARCHED_BYTES:
        slices = range(0, len(data), SEARCHED_BYTES)
        bound = [
            (word, pattern)
            for word, pattern in bound
            if any(data.find(word, at, at + SEARCHED_BYTES + len(word)) >= 0 for at in slices)
        ]
    found = [each for word, pattern in bound if word in data for each in pattern.finditer(data)]
    found.sort(key=re.Match.start)
    hashes: list[bytes] = []
    for text in (_plain(each[1]) for each in found):
        if text.startswith(OURS) and (blocks := blocks_within(text.decode(errors="replace"))):
            hashes += bound_reasoning(bytes(raw_json(blocks)))
        else:
            hashes.append(hashlib.sha256(text).digest()[:16])
    return hashes


def _plain(text: bytes) -> bytes:
    """Return the text of a JSON string, up to its first quote, whatever of it is written in escapes."""
    if b"\\" not in text:
        return text
    try:
        return msgspec.json.decode(b'"%b"' % text.removesuffix(b"\\"), type=str).encode()
    except (ValueError, *UNREADABLE):
        return text


# Names of tools, no longer than every API accepts.

_LONGEST = 64  # characters: the limit of OpenAI, and of vendors with the same API
_MARK = 8  # characters of a hash, which distinguishes names with the same beginning
FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


def short_name(name: str) -> str:
    """Return a tool's name in 64 characters at most; always the same for the same name."""
    return name if len(name) <= _LONGEST else _marked(name, name)


def flat_name(namespace: str, name: str) -> str:
    """Return the one name of a tool in a namespace, in letters, digits, ``_`` and ``-``."""
    flat = f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"
    allowed = FORBIDDEN.sub("_", flat)
    return allowed if allowed == flat and len(flat) <= _LONGEST else _marked(allowed, f"{namespace}\0{name}")


def _marked(name: str, whole: str) -> str:
    mark = hashlib.sha256(whole.encode()).hexdigest()[:_MARK]
    return f"{name[: _LONGEST - _MARK - 1]}_{mark}"


# The parts of a tool's result. In chat a result is text, so pictures and documents follow in the user's turn.


def one_text(texts: Sequence[str | msgspec.Raw]) -> msgspec.Raw:
    """Return texts as one, with blank lines between: some servers take no list in a tool's result."""
    if len(texts) == 1:
        return texts[0] if isinstance(texts[0], msgspec.Raw) else raw_json(texts[0])
    return raw_json("\n\n".join(decoded(raw_json(text), str, "content") for text in texts))


def shows_results(losses: Losses) -> bool:
    """Whether the model takes pictures and files in a tool's result."""
    return "results" in losses.beyond or "outputs" in losses.beyond


SHOWN_LATER = "chat's tool results are text only: this follows in the user's turn"
SEE_BELOW = "(Shown in the user's next message.)"


def as_error(text: str) -> str:
    """Return what a failed tool has returned, for APIs without a field that says that the tool failed."""
    if text.lower().startswith("error"):
        return text
    return f"Error: {text}" if text else "Error"


def shown(call_id: str) -> str:
    """Return the text that introduces, in the user's turn, a picture or document from tool call ``call_id``."""
    return f"(Part of the result of tool call {call_id}:)"
