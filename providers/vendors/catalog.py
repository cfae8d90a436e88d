"""The catalog of vendors, read from ``vendors.toml`` beside this file: a vendor is a row of data, not a class."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec

from providers.dialects import (
    DIALECTS,
    GEMINIS,
    KEEPS_NONE,
    PIVOT,
    Fields,
    Habits,
    HistoryRules,
    Loss,
    Way,
    Wording,
    raw_json,
    with_signed_details,
)
from providers.models import Traits
from providers.refusals import UNREADABLE, Fact, Facts, Kind
from providers.vendors.demands import at_top, details_of_tools, is_neutral

# How a vendor's chat API differs from OpenAI's, as data, and how requests are adapted to it. A row of the catalog lists
# the parameters that the vendor rejects or renames, so that one client request can be sent to all vendors. Only the top
# level of bodies is read, and values stay raw JSON: a long prompt is not parsed for each vendor.

_NOTHING = (b"null",)
_CALLING = frozenset({"parallel_tool_calls", "tool_choice", "tools"})
_NO_TOOLS = b"[]"
_NOT_FORCING = frozenset({b"null", b'"auto"', b'"none"'})  # choices among no tools that say nothing
_UNSET = frozenset({b"", b"null", b"false"})
DEVELOPER = b'"developer"'  # a role
_SYSTEM = msgspec.Raw(b'"system"')
_CALLS, _SIGNED = b'"tool_calls"', b'"thought_signature"'
_NONE = msgspec.Raw(b"null")
_calls_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]] | None)
_messages_decoder = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])


class Restriction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a vendor takes a parameter."""

    beside: str = ""  # only beside this other parameter, which is neither null nor false
    values: frozenset[str] = frozenset()  # only with one of these texts; none: with any

    def allows(self, name: str, fields: Fields) -> bool:
        """Whether a request with these ``fields`` may be sent with the parameter ``name``."""
        if name not in fields:
            return True
        if self.values:
            return (text := _read(fields[name], str)) is None or text in self.values
        return bytes(fields.get(self.beside, b"")) not in _UNSET


class Quirks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes to requests to this vendor, and repairs of answers. The default changes nothing."""

    drop: frozenset[str] = frozenset()  # of chat: parameters that the vendor answers with an error
    # Of chat: the preferences and hints that it takes, as it answers those of other vendors with an error. None: any.
    preferences: frozenset[str] | None = None
    drop_in: Mapping[str, frozenset[str]] = {}  # of other APIs, by their names
    rename: Mapping[str, str] = {}  # from OpenAI's name to the vendor's: max_completion_tokens -> max_tokens
    temperatures: tuple[float, float] | None = None  # the least and the most accepted; None: those of the API
    usage_option: Literal["stream_options", "none"] = "stream_options"  # none: always sent, an error if requested
    system_role: bool = False  # the vendor has no developer role: such messages are sent as system
    habits: Habits = Habits()  # of all its models; what depends on a model follows, or is in families.toml
    # In chat, whose signed thoughts the vendor's models read, by the beginning of the models' names. anthropic, google,
    # or a ``format`` of OpenRouter's details.
    takes_signed: Mapping[str, str] = {}
    # What is taken though chat has no place for it (``Habits.beyond``), by a word in the names of models.
    beyond: Mapping[str, frozenset[str]] = {}
    taken_if: Mapping[str, Restriction] = {}  # of chat: by parameter, when it is no error
    # Of chat: how to call tools, and an empty list of them, is an error in a request without tools.
    calls_with_tools: bool = False
    # Of chat: paths, in messages and tools, of what it answers with an error; ``*.cache_control``: wherever a mark may
    # stand. Where it has ``preferences``, also the details of tools that these do not name.
    refused_members: frozenset[str] = frozenset()
    states_cost: bool = False  # the usage of an answer states the cost, which counts more than the prices of the table
    free: tuple[str, ...] = ()  # endings of the names of models that cost nothing
    unsigned_call: str | None = None  # a thought signature for other vendors' tool calls, which are refused without one
    signed_details: bool = False  # signed thoughts, and signatures, stand in ``reasoning_details``, as at OpenRouter
    # The same signature at OpenRouter, as an encrypted detail beside the call, by the beginning of models' names.
    unsigned_details: Mapping[str, str] = {}
    repairs: frozenset[Literal["tool_index", "finish_reason"]] = frozenset()  # repairs of streamed chunks
    history: HistoryRules = HistoryRules()  # what is accepted in the history of a conversation
    # parameter → kinds of values (``kind_of``) that are answered whole, but not streamed; "*": any value.
    whole: Mapping[str, tuple[str, ...]] = {}
    least_answers: Mapping[str, int] = {}  # by API, the fewest tokens that an answer may be limited to
    # Fields that stand for the conversation so far, and are ignored: the vendor would answer the last words alone.
    ignores: frozenset[str] = frozenset()
    refuses_storing: bool = False  # Responses: nothing is stored, and ``store: true`` is an error
    functions_only: bool = False  # Responses: functions are the only tools; others are ignored or refused
    lacks_schemas: bool = False  # JSON can be written, but by no schema, whatever the table of prices says of models
    needs_parameters: bool = False  # a function without arguments needs a schema that says so
    typed_branches: bool = False  # in a tool's schema, a type stands within ``anyOf``, and never beside ``$ref``

    def signer(self, model: str) -> str:
        """Return the vendor whose signed thoughts ``model`` reads in chat; "": none."""
        return next((each for begin, each in self.takes_signed.items() if model.startswith(begin)), "")

    def may_drop(self, api: str, *, is_chats: bool) -> frozenset[str]:
        """Return the parameters that an ``api`` may answer with an error; ``is_chats``: they are those of chat."""
        return self.drop.union(self.taken_if) if is_chats else self.drop_in.get(api, frozenset())

    def dropped_from(self, fields: Fields, api: str, *, is_chats: bool) -> frozenset[str]:
        """Return those of ``may_drop`` that are an error in a request with these ``fields``."""
        if not is_chats:
            return self.drop_in.get(api, frozenset())
        if not self.taken_if:  # as of most vendors
            return self.drop
        return self.drop.union(name for name, taken in self.taken_if.items() if not taken.allows(name, fields))

    def too_short(self, api: str, limits: Sequence[str], fields: Fields) -> Facts:
        """Return the facts that the limits of an answer in ``fields``, which are named, are lower than it takes."""
        least = self.least_answers.get(api, 0)
        values = {name: bytes(fields[name]) for name in limits if name in fields}
        return tuple(
            Fact(Kind.LEAST, name, dialect=api, tokens=least)
            for name, value in values.items()
            if value.isdigit() and int(value) < least
        )

    def beyond_chat(self, model: str) -> frozenset[str]:
        """Return what ``model`` takes though chat has no place for it."""
        return next((each for word, each in self.beyond.items() if word in model), frozenset())


def is_plain(quirks: Quirks) -> bool:
    """Whether ``quirks`` change no field of a request (``shape``, history), but for how usage is asked for."""
    return (
        not (
            quirks.drop
            or quirks.drop_in
            or quirks.taken_if
            or quirks.calls_with_tools
            or quirks.least_answers
            or quirks.refused_members
            or quirks.rename
            or quirks.system_role
            or quirks.typed_branches
            or quirks.needs_parameters
        )
        and not (quirks.signed_details or quirks.unsigned_details)
        and quirks.unsigned_call is None
        and quirks.usage_option == "stream_options"
        and quirks.history == HistoryRules()
    )


def shape(fields: Mapping[str, msgspec.Raw], quirks: Quirks, model: str = "") -> dict[str, msgspec.Raw]:
    """Return the client's ``fields``, adapted to the vendor and the ``model``, as a new dictionary.

    If the client sent a parameter under both OpenAI's name and the vendor's, the one with the vendor's name is kept.
    """
    is_taken = not quirks.taken_if or quirks.taken_if.keys().isdisjoint(fields)
    dropped = quirks.drop if is_taken else quirks.dropped_from(fields, "chat", is_chats=True)
    shaped = {name: value for name, value in fields.items() if name not in dropped and name not in quirks.rename}
    has_none = quirks.calls_with_tools and len(shaped.get("tools", b"")) <= len(_NO_TOOLS)
    shaped = _without_calling(shaped) if has_none and not _CALLING.isdisjoint(shaped) else shaped
    for name, vendor_name in quirks.rename.items():
        if name in fields:
            shaped.setdefault(vendor_name, fields[name])
    if quirks.usage_option == "none":
        shaped.pop("stream_options", None)
    if quirks.system_role and "messages" in shaped:
        shaped["messages"] = _without_developer_role(shaped["messages"])
    if quirks.unsigned_call is not None and "messages" in shaped:
        shaped["messages"] = _with_signed_calls(shaped["messages"], quirks.unsigned_call)
    if quirks.signed_details and "messages" in shaped:
        shaped["messages"] = with_signed_details(shaped["messages"], quirks.signer(model))
    for beginning, signature in quirks.unsigned_details.items():
        if model.startswith(beginning) and "messages" in shaped:
            shaped["messages"] = _with_details(shaped["messages"], signature)
    if (quirks.needs_parameters or quirks.typed_branches) and "tools" in shaped:
        tools = _with_parameters(shaped["tools"]) if quirks.needs_parameters else shaped["tools"]
        shaped["tools"] = _with_typed_branches(tools) if quirks.typed_branches else tools
    return shaped


def _without_calling(fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return a request that has no tools without how to call them; a call that is forced stays, and is refused."""
    is_forced = bytes(fields.get("tool_choice", b"null")) not in _NOT_FORCING
    left_out = _CALLING - {"tool_choice"} if is_forced else _CALLING
    return {
        name: value
        for name, value in fields.items()
        if name not in left_out or (name == "tools" and bytes(value) != _NO_TOOLS)
    }


def losses(
    fields: Mapping[str, msgspec.Raw], dropped: frozenset[str], hints: Mapping[str, frozenset[str]] = {}
) -> tuple[Loss, ...]:
    """Return the parameters that the client sent and this vendor does not support (``dropped``), in the client's order.

    A default value is no loss. Nor is ``stream_options`` if usage is always sent. ``hints``: by parameter, the items of
    a list that may be left out of it.
    """
    if dropped.isdisjoint(fields):
        return ()
    return tuple(
        Loss(name, "this provider does not support it", hint=name in hints and hints[name].issuperset(_texts(value)))
        for name, value in fields.items()
        if name in dropped and not is_neutral(name, fields)
    )


def _texts(value: msgspec.Raw) -> Sequence[object]:
    return _read(value, list[str]) or (None,)


def ignored(fields: Mapping[str, msgspec.Raw], names: Collection[str]) -> tuple[Loss, ...]:
    """Return those of ``names`` that the client sent, as losses: this vendor would ignore them."""
    return tuple(
        Loss(name, f"this provider {KEEPS_NONE}")
        for name in names
        if name in fields and bytes(fields[name]) not in _NOTHING
    )


# Which parameters single models of a vendor take (providers/models/families.toml): others are renamed or left out. A
# request is adapted before it is sent, in chat and in Responses: parameters have the same names in both.

# From the least to the most. A model that lacks an effort is asked for the nearest one.
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Parameters that do not affect the answer: a model that refuses parallel_tool_calls calls one tool at a time anyway.
_LEAST = frozenset({"parallel_tool_calls", "prediction"})
_ZERO = (b"0", b"0.0")  # a temperature beside which other ways of sampling change nothing


def fitted_to(traits: Traits, fields: Fields) -> Wording:
    """Return a request of chat, Responses or Messages as a model with these ``traits`` takes it, and what was lost."""
    narrows = traits.drop or traits.efforts or traits.temperatures
    if traits.one_of and not (narrows or fields.keys() >= {*traits.one_of}):
        return Wording(fields)  # as most requests to a Claude
    said = {name: value for name, value in fields.items() if name not in traits.rename}
    for name, own in traits.rename.items():
        if name in fields:
            said.setdefault(own, fields[name])
    losses: list[Loss] = []
    effort = _effort(fields)
    if effort is not None and (nearest := nearest_effort(effort, traits.efforts)) is not None:
        effort, reason = nearest, f"this model takes {', '.join(traits.efforts)}"
        losses.append(Loss(_set_effort(said, effort), reason, hint=True))
    if traits.temperatures is not None and "temperature" in said:
        _set_temperature(said, traits.temperatures, losses)
    rests = traits.rests if effort is None else effort == "none"
    refused = [name for name in said if name in traits.drop and not (rests and name in traits.at_rest)]
    losses += _leave_out(said, refused, traits.drop_within)
    if traits.one_of:
        said = _with_one_of(traits.one_of, said, losses)
    tier = _read(said["service_tier"], str) if traits.lacks_tiers and "service_tier" in said else None
    if tier is not None and tier in traits.lacks_tiers:
        del said["service_tier"]
        losses.append(Loss("service_tier", "this model has no such tier", hint=True))
    unchanged = (
        not losses and len(said) == len(fields) and all(fields.get(name) is value for name, value in said.items())
    )
    return Wording(fields if unchanged else said, tuple(losses))


def _set_temperature(said: dict[str, msgspec.Raw], taken: tuple[float, float], losses: list[Loss]) -> None:
    """Set the nearest temperature that is ``taken``, from the first to the second, and add to the ``losses``."""
    temperature, (least, most) = _read(said["temperature"], float), taken
    if temperature is not None and not least <= temperature <= most:
        said["temperature"] = raw_json(min(max(temperature, least), most))
        losses.append(Loss("temperature", f"this model takes {least} to {most}", hint=True))


def _leave_out(said: dict[str, msgspec.Raw], names: Sequence[str], within: Collection[str]) -> list[Loss]:
    """Leave parameters out of a request, and those at the paths ``within`` its objects; return what that loses."""
    taken = {name: said.pop(name) for name in names}
    for path in within:
        top, _, name = path.partition(".")
        holder = _read(said[top], dict[str, msgspec.Raw]) if top in said else None
        if not holder or name not in holder:
            continue
        taken[path] = holder.pop(name)
        said[top] = raw_json(holder)
        if not holder:
            del said[top]
    return [
        Loss(path, "this model does not take it", hint=path in _LEAST)
        for path, value in taken.items()
        if not is_neutral(name := path.rpartition(".")[2], {name: value})
    ]


def _with_one_of(names: Sequence[str], said: dict[str, msgspec.Raw], losses: list[Loss]) -> dict[str, msgspec.Raw]:
    """Return what was ``said`` with one of the parameters ``names``, and add the others to the ``losses``."""
    both = [name for name in names if bytes(said.get(name, b"null")) not in _NOTHING]
    if len(both) < 2:  # noqa: PLR2004 - one of them
        return said
    kept = _deciding(said, both)
    for name in both:
        if name != kept and not is_neutral(name, said):
            reason = f"this model takes one of {', '.join(names)}"
            losses.append(Loss(name, reason, hint=bytes(said[kept]) in _ZERO))
    return {name: value for name, value in said.items() if name == kept or name not in both}


def _deciding(said: Fields, names: Sequence[str]) -> str:
    """Return the most specific of ``names``: one that leaves nothing to chance, else the first with no default."""
    zero = next((name for name in names if bytes(said[name]) in _ZERO), None)
    return zero or next((name for name in names if not is_neutral(name, said)), names[0])


class _Reasoning(msgspec.Struct):
    effort: str | None = None


_T = TypeVar("_T")


def _read(raw: msgspec.Raw, type_: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(raw, type=type_)
    except UNREADABLE:  # the provider reports a wrong value in its own words
        return None


def _effort(fields: Fields) -> str | None:
    if "reasoning_effort" in fields:
        return _read(fields["reasoning_effort"], str)
    holder = _holder(fields)
    reasoning = _read(fields[holder], _Reasoning) if holder else None
    return None if reasoning is None else reasoning.effort


def _holder(fields: Fields) -> str:
    """Return the field in which Responses, or Messages, say an effort; nothing if a request has none."""
    return next((name for name in ("reasoning", "output_config") if name in fields), "")


def _set_effort(said: dict[str, msgspec.Raw], effort: str) -> str:
    """Set another effort; return the name of the field that has the effort."""
    if "reasoning_effort" in said:
        said["reasoning_effort"] = raw_json(effort)
        return "reasoning_effort"
    holder = _holder(said)
    said[holder] = raw_json({**(_read(said[holder], dict[str, msgspec.Raw]) or {}), "effort": effort})
    return f"{holder}.effort"


def nearest_effort(effort: str, taken: Sequence[str]) -> str | None:
    """Return the nearest of the efforts ``taken``, of two the higher; None: it is one of them, or none is known.

    Who wants thoughts is not asked to do without: ``default``, Groq's word for thinking at all, is nearer.
    """
    if effort not in _EFFORTS or effort in taken:
        return None
    place = _EFFORTS.index(effort)
    known = [each for each in _EFFORTS if each in taken and (each == "none") <= (effort == "none")]
    nearest = min(known, key=lambda each: (abs(_EFFORTS.index(each) - place), -_EFFORTS.index(each)), default=None)
    return "default" if nearest is None and effort != "none" and "default" in taken else nearest


# Whether a provider refuses to stream may depend on the parameters of a request, and on the kinds of their values.
# Kinds are few, while texts and numbers may differ in each request.


class _Typed(msgspec.Struct):
    type: Any = None
    format: Any = None


_typed = msgspec.json.Decoder(_Typed)


def parameters_of(fields: Mapping[str, msgspec.Raw], prompt: Collection[str]) -> frozenset[tuple[str, str]]:
    """Return the names of a request's parameters (all fields but ``prompt``), each with the kind of its value."""
    kinds = ((name, kind_of(value)) for name, value in fields.items() if name not in prompt)
    return frozenset((name, kind) for name, kind in kinds if kind)


def kind_of(raw: msgspec.Raw) -> str:
    """Return the kind of a value: an object's format or type, list, text, true, 0, 1, many; "" for null and false."""
    value = bytes(raw).strip()
    match value[:1]:
        case b"{":
            with suppress(*UNREADABLE):
                said = _typed.decode(value)
                told = said.format.get("type") if isinstance(said.format, dict) else said.format or said.type
                return told if isinstance(told, str) else "object"
            return "object"
        case b"[" | b'"':
            return "list" if value[:1] == b"[" else "text"
        case b"t" | b"f" | b"n" | b"":
            return "true" if value == b"true" else ""
    return value.decode() if value in {b"0", b"1"} else "many"


def _without_developer_role(messages: msgspec.Raw) -> msgspec.Raw:
    """Return ``messages`` with developer messages as system messages; the vendor refuses what is not a list."""
    raw = bytes(messages)
    if DEVELOPER not in raw:
        return messages
    try:
        decoded = _messages_decoder.decode(raw)
    except msgspec.DecodeError:
        return messages
    for message in decoded:
        if message.get("role") == msgspec.Raw(DEVELOPER):
            message["role"] = _SYSTEM
    return raw_json(decoded)


def _with_signed_calls(messages: msgspec.Raw, signature: str) -> msgspec.Raw:
    """Return ``messages`` with ``signature`` added to tool calls without one; of parallel calls only to the first.

    Gemini signs calls like this. The vendor refuses what is not a list of objects.
    """
    raw = bytes(messages)
    if _CALLS not in raw:
        return messages
    signed = msgspec.Raw(msgspec.json.encode({"google": {"thought_signature": signature}}))
    changed = False
    try:
        decoded = _messages_decoder.decode(raw)
        for message in decoded:
            calls = _calls_decoder.decode(message.get("tool_calls", _NONE)) or ()
            if calls and not any(_SIGNED in bytes(call.get("extra_content", _NONE)) for call in calls):
                calls[0]["extra_content"] = signed
                message["tool_calls"] = raw_json(calls)
                changed = True
    except msgspec.DecodeError:
        return messages
    return raw_json(decoded) if changed else messages


def _with_details(messages: msgspec.Raw, signature: str) -> msgspec.Raw:
    """Return ``messages`` with ``signature`` as a detail beside tool calls that have no detail.

    The vendor refuses anything but a list of objects.
    """
    raw = bytes(messages)
    if _CALLS not in raw:
        return messages
    changed = False
    try:
        decoded = _messages_decoder.decode(raw)
        for message in decoded:
            calls = _calls_decoder.decode(message.get("tool_calls", _NONE)) or ()
            details = _calls_decoder.decode(message.get("reasoning_details", _NONE)) or []
            if calls and not any("data" in detail for detail in details):
                called = calls[0].get("id", _NONE)
                sealed = {
                    "type": "reasoning.encrypted",
                    "data": signature,
                    "id": called,
                    "format": GEMINIS,
                    "index": 0,
                }
                message["reasoning_details"] = raw_json([*details, sealed])
                changed = True
    except msgspec.DecodeError:
        return messages
    return raw_json(decoded) if changed else messages


_NO_PARAMETERS = {"type": "object", "properties": {}}
_OF_BRANCHES = (b'"anyOf"', b'"$ref"')
_ONE, _SEVERAL = ("items", "additionalProperties"), ("anyOf", "oneOf", "allOf", "prefixItems")
_BY_NAME = ("properties", "$defs", "definitions")


def _with_parameters(tools: msgspec.Raw) -> msgspec.Raw:
    """Return ``tools`` with a schema of no parameters where a function has none, or null."""
    try:
        listed = msgspec.json.decode(tools, type=list[dict[str, msgspec.Raw]])
        changed = False
        for tool in listed:
            function = msgspec.json.decode(tool.get("function", b"null"), type=dict[str, msgspec.Raw] | None)
            if function is not None and bytes(function.get("parameters", b"null")) == b"null":
                tool["function"], changed = raw_json({**function, "parameters": _NO_PARAMETERS}), True
        return raw_json(listed) if changed else tools
    except UNREADABLE:
        return tools


def _with_typed_branches(tools: msgspec.Raw) -> msgspec.Raw:
    """Return ``tools`` with the same schemas in another form; the vendor refuses what is not a list of objects."""
    if not any(word in bytes(tools) for word in _OF_BRANCHES):
        return tools
    try:
        listed = msgspec.json.decode(tools, type=list[dict[str, Any]])
        for tool in listed:
            function = tool.get("function")
            if isinstance(function, dict) and "parameters" in function:
                function["parameters"] = _branched(function["parameters"], function["parameters"])
        return raw_json(listed)
    except UNREADABLE:
        return tools


def _branched(schema: Any, root: Any) -> Any:
    """Return a part of the schema ``root`` with the part's type moved into its ``anyOf``.

    Beside a reference, nothing stays that the referenced schema says too.
    """
    if not isinstance(schema, dict):
        return schema
    typed = dict(schema)
    if isinstance(reference := schema.get("$ref"), str):
        said = {"type", *_referred(reference, root)} - {"$ref", "$defs", "definitions"}
        typed = {name: value for name, value in schema.items() if name not in said}
    if isinstance(branches := typed.get("anyOf"), list) and (kind := typed.pop("type", None)) is not None:
        typed["anyOf"] = [
            {"type": kind, **each} if isinstance(each, dict) and not each.keys() & {"type", "$ref"} else each
            for each in branches
        ]
    for name, value in typed.items():
        if name in _ONE:
            typed[name] = _branched(value, root)
        elif name in _SEVERAL and isinstance(value, list):
            typed[name] = [_branched(each, root) for each in value]
        elif name in _BY_NAME and isinstance(value, dict):
            typed[name] = {key: _branched(each, root) for key, each in value.items()}
    return typed


def _referred(reference: str, root: Any) -> Mapping[str, Any]:
    found = root
    for name in reference.removeprefix("#/").split("/"):
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


ProviderKind = Literal["openai_compatible", "anthropic", "gemini", "bedrock", "invoke", "vertex", "litellm"]
# Kinds whose Claudes are asked in Messages: at Anthropic's servers, at Bedrock's InvokeModel, at Vertex AI.
CLAUDES: frozenset[ProviderKind] = frozenset({"anthropic", "invoke", "vertex"})
# authorization: Bearer KEY, or a header of this name with the key; google: a token of Google's
Auth = Literal["bearer", "api-key", "x-api-key", "x-goog-api-key", "google"]
_RELAYED = ("embeddings", "moderations", "rerank", "audio", "images", "decisions", "google_decisions")
if TYPE_CHECKING:
    Api = str
else:  # at run time, configurations are checked against the known names
    Api = Literal[(*DIALECTS, *_RELAYED)]

_USUAL: Mapping[ProviderKind, tuple[Api, ...]] = {
    "openai_compatible": ("chat", "completions", "embeddings"),
    "anthropic": ("messages",),
    "gemini": ("gemini", "interactions", "google_decisions"),
    "bedrock": ("chat",),
    "invoke": ("messages",),
    "vertex": ("messages", "gemini"),
    "litellm": ("chat", "embeddings"),
}
# An unknown server may have any API that is not raced and belongs to no other kind. Only a request shows which.
_UNKNOWN: tuple[Api, ...] = (
    *_USUAL["openai_compatible"],
    *(api for api in _RELAYED if not any(api in usual for usual in _USUAL.values())),
)


class Vendor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is needed to send requests to a vendor, and to know what they cost.

    Paths are relative to the base URL; ``chat_path`` and ``embeddings_path`` may contain ``{model}``.
    """

    name: str
    title: str  # the spelling of the vendor
    base_url: str | None = None  # None: the user sets the address, or litellm knows it
    key_env: tuple[str, ...] = ()  # the usual environment variables of the key, the most usual first
    named_only: bool = False  # by these variables another row of the same vendor is found, not this one
    addresses: tuple[str, ...] = ()  # without a base_url: those of usual variables, "https://${NAME}.example.com"
    kind: ProviderKind = "openai_compatible"
    apis: tuple[Api, ...] | None = None  # None: the usual APIs of the kind
    key_required: bool = True
    auth: Auth = "bearer"
    # What vouches for a request without a key, besides ``auth``: tokens of Entra's, or signatures for this AWS service.
    tokens: Literal["", "azure"] = ""
    signs: str = ""
    header_env: Mapping[str, str] = {}  # required headers, by the usual variables of their values
    chat_path: str = PIVOT.path
    embeddings_path: str = "embeddings"
    models_path: str = "models"
    # Paths of single APIs that are not below the base URL but at the root of the host: one vendor, two addresses.
    paths: Mapping[Api, str] = {}
    hosts: tuple[str, ...] = ()  # other hosts of the vendor with the same paths; ".example.com": all below
    only: Mapping[Api, str] = {}  # an API that is for models with this word in their names only
    query: Mapping[str, str] = {}  # sent with every request
    headers: Mapping[str, str] = {}  # sent with every request
    quirks: Quirks = Quirks()
    continues: tuple[Way, ...] | None = None  # how to request the continuation of another's answer; None: unknown
    continues_at: str | None = None  # answers can be continued at this base URL only
    bills_after_disconnect: bool | None = None  # None: unknown
    # The APIs that take a ``prompt_cache_key``: requests with the same key share a cache.
    cache_keys: frozenset[str] = frozenset()
    keeps: bool = False  # requests and answers are stored, unless a request says ``store: false``
    conversations: bool = False  # Responses go on in conversations, which are stored
    stores: bool = False  # a response with ``store: true`` is known to be stored, so that the next request may name it
    litellm_prefix: str | None = None  # the vendor's name in litellm and in the price table; None: no prices
    docs_url: str | None = None


def apis_of(vendor: Vendor | None, kind: ProviderKind | None, base_url: str | None = None) -> tuple[Api, ...]:
    """Return the APIs of a vendor, or of an unknown server, of this ``kind`` (None: the vendor's own).

    ``base_url``: set by the operator. At a host that is not the vendor's, an API that the vendor has at another address
    exists only if the operator says so.
    """
    if vendor is None:
        return _UNKNOWN if kind in (None, "openai_compatible") else _USUAL[kind]
    if kind is not None and kind != vendor.kind:
        return _USUAL[kind]
    apis = vendor.apis or _USUAL[vendor.kind]
    if not vendor.paths or paths_at(vendor, kind, base_url):
        return apis
    return tuple(api for api in apis if api not in vendor.paths)


def paths_at(vendor: Vendor, kind: ProviderKind | None, base_url: str | None) -> Mapping[Api, str]:
    """Return the paths from the root of a provider's host; none if the host or the ``kind`` is not the vendor's."""
    if kind is not None and kind != vendor.kind:
        return {}
    host = urlsplit(base_url or vendor.base_url or "").hostname or ""
    known = (urlsplit(vendor.base_url or "").hostname or "", *vendor.hosts)
    is_theirs = any(host == each or (each.startswith(".") and host.endswith(each)) for each in known)
    return vendor.paths if is_theirs else {}


def apis_perhaps(vendor: Vendor | None, kind: ProviderKind | None) -> tuple[Api, ...]:
    """Return the APIs, besides ``apis_of``, that a server may have: tried if the server refuses the others."""
    return ("responses", "messages") if vendor is None and kind in (None, "openai_compatible") else ()


def keeps_by_default(vendor: Vendor | None, kind: ProviderKind, base_url: str | None) -> bool:
    """Whether a server of this ``kind`` stores what it is asked, unless a request says ``store: false``.

    Vertex AI has no such field: "not supported in Gemini Enterprise Agent Platform" (googleapis.github.io/kotlin-genai,
    GenerateContentConfig.store, read on 2026-11-29).
    """
    if kind == "vertex" or (urlsplit(base_url or "").hostname or "").endswith("aiplatform.googleapis.com"):
        return False
    return vendor.keeps if vendor is not None and kind == vendor.kind else kind == "gemini"


def stores_responses(vendor: Vendor | None, base_url: str | None) -> bool:
    """Whether a server is known to store a response with ``store: true``. ``vendor`` unknown: the host tells.

    Azure stores responses for 30 days (learn.microsoft.com/azure/foundry/openai/how-to/responses, read on 2026-11-29).
    """
    if vendor is not None and vendor.stores:
        return True
    return (urlsplit(base_url or "").hostname or "").endswith((".openai.azure.com", ".services.ai.azure.com"))


@cache
def load_catalog() -> Mapping[str, Vendor]:
    """Return the catalog: vendors by name, in the order of the file, which is read once."""
    rows = tomllib.loads(files(__package__).joinpath("vendors.toml").read_text(encoding="utf-8"))
    named = msgspec.convert({name: {"name": name, **row} for name, row in rows.items()}, dict[str, Vendor])
    return MappingProxyType({name: _without_others(vendor) for name, vendor in named.items()})


def _without_others(vendor: Vendor) -> Vendor:
    """Return a vendor that is not sent other vendors' preferences, if it refuses them."""
    quirks = vendor.quirks
    drop, members = quirks.drop | _others(quirks), quirks.refused_members
    if quirks.preferences is not None:
        members |= details_of_tools() - quirks.preferences
    return msgspec.structs.replace(vendor, quirks=msgspec.structs.replace(quirks, drop=drop, refused_members=members))


def _others(quirks: Quirks) -> frozenset[str]:
    """Return other vendors' preferences, where this one says which it takes."""
    return frozenset() if quirks.preferences is None else at_top() - quirks.preferences


def elsewhere(vendor: Vendor) -> Vendor:
    """Return the row for a server at another host, which speaks the vendor's API and may take what the vendor refuses.

    That server is sent other vendors' preferences and marks of caches, as vLLM, or a proxy, reads ``top_k``; and
    schemas.
    """
    quirks = vendor.quirks
    taking = msgspec.structs.replace(
        quirks,
        drop=quirks.drop - _others(quirks),
        preferences=None,
        refused_members=frozenset(),
        lacks_schemas=False,
    )
    return msgspec.structs.replace(vendor, quirks=taking)
