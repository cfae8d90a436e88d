"""The form in which a request is sent again to a model that refused it: without a field, or with another value.

For example, 400 "Unsupported parameter: 'verbosity'": the request is sent again without ``verbosity``, a preference,
and ``x-holeshot-dropped`` tells the client.

What may be left out of a request, or changed:

- Fields that the gateway has added are left out. The client is not told, unless the usage is no longer asked for, or
  the vendor may now store what the gateway has asked the vendor not to store.
- A *preference* of the client's, or a hint, is left out, and the client is told: how hard to think, how much to write,
  sampling, which queue, how prompts are cached. The answer is still one to the same question. ``demands.py`` has the
  table; a dialect's format lists the preferences that only this dialect has.
- A value that is the default is left out: nothing is lost.
- A field with two names is sent by the other name.
- Any other parameter is left out, and the client is told, only with ``drop_params``: without that setting the client
  gets the error.
- Prompts, tools, formats, counts of answers, and what is kept or where, are never left out: not ``store: false`` in an
  API that stores by default.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from providers.bodies import raw_json
from providers.dialects import DIALECTS, PIVOT, HistoryRules, Malformed, RequestFormat
from providers.exchange import betas, members
from providers.exchange.interface import Request
from providers.exchange.places import (
    FieldPlace,
    Fields,
    decoded,
    object_of,
    place_of,
    set_at,
    texts_of,
    value_at,
)
from providers.exchange.prefill import told_to_go_on
from providers.exchange.sizes import amount
from providers.refusals import (
    OF_APIS,
    UNREADABLE,
    Fact,
    Facts,
    Kind,
)
from providers.vendors import (
    OF_ANSWERS,
    Demand,
    Quirks,
    demand_of,
    is_neutral,
    may_go,
    runs_among,
    runs_there,
    types_of_tools,
)

# Fields that decide which answer is meant, where the answer is stored, or who may see it.
KEPT = frozenset(
    {
        *("audio", "background", "best_of", "container", "dimensions", "echo", "encoding_format", "function_call"),
        *("functions", "inference_geo", "mcp_servers", "modalities", "model", "n", "prediction", "safetySettings"),
        *("store", "stream", "suffix", "tool_choice", "toolConfig"),
    }
)
# Fields of an assistant's message that only say how the message was made; and the fields that every such message has.
OF_MAKING = OF_ANSWERS | {"function_call", "refusal"}
_OF_MESSAGES = frozenset({"content", "name", "role", "tool_calls"})
ROLE, IDS = "developer", "tool_call_id"
DOCUMENT = "document"  # a block of Messages
_TOOL_NAME, CALL_ARGUMENTS = "tool_name", "call_arguments"
_FIT_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)  # what all vendors take
_BESIDE_NAMES = frozenset({"args", "arguments", "input", "input_schema", "parameters"})  # in a call or a function
_LEVELS = 6  # of a prompt, down to the calls
NULL = "null"  # the value of a field that says nothing
BLANK = "blank"  # turns of the assistant that say nothing
SYSTEM, ARGUMENTS = "system", "arguments"  # all instructions; texts of arguments that say nothing
TEXTS = "texts"  # of Messages: lists of texts
WORDS = "words"  # of schemas: all but a few
# Fields with schemas, in snake case.
SCHEMAS_IN = frozenset(
    {"input_schema", "parameters", "parameters_json_schema", "response_json_schema", "response_schema", "schema"}
)
# What a fact about a history sets in the rules of histories, by the fact's field.
_SET_IN_HISTORY: Mapping[str, Mapping[str, bool]] = {
    ARGUMENTS: {"blank_arguments": False},
    BLANK: {"blank_turns": False},
    DOCUMENT: {"documents": False},
    TEXTS: {"plain_blocks": True},
}
# OpenAI: 400 "The 'metadata' parameter is only allowed when 'store' is enabled." So the refusal holds for all others.
ONLY_BESIDE: Mapping[str, str] = {"metadata": "store"}
OF_USAGE = ("stream_options", "include_usage")  # without these some servers tell no usage, and it is an estimate
_OF_ONE_FIELD = frozenset({Kind.FIELD, Kind.LIMIT, Kind.LEAST, Kind.MUST, Kind.NAME, Kind.VALUE})
_AROUND_SCHEMAS = ("function", "json_schema", "format")
_DIGEST = 16  # characters


class SentFields(NamedTuple):
    """A request's fields as sent, and the paths of the fields that differ from what the client wrote."""

    fields: Mapping[str, msgspec.Raw]
    told: tuple[str, ...] = ()
    headers: Mapping[str, str] | None = None  # the client's headers as they are sent; None: unchanged
    most: int = 0  # tokens of the answer that the client asked for, if the gateway asks for more

    def of(self, request: Request) -> Request:
        """Return ``request`` with these headers."""
        return request if self.headers is None else msgspec.structs.replace(request, headers=self.headers)

    def is_as(self, other: "SentFields") -> bool:
        """Whether the vendor is sent the same as with ``other``."""
        return self.fields == other.fields and self.headers == other.headers


class FormRequest(NamedTuple):
    """A request whose form may change. The fields are those of ``api``, by the names in ``formats``."""

    request: Request
    api: str
    formats: RequestFormat
    renamed: Mapping[str, str] = {}  # from the client's name of a field to that of ``fields``
    aliases: Mapping[str, str] = {}  # from the vendor's name of a field, in snake_case, to that of ``fields``


def adapted(fields: Fields, facts: Facts, form_request: FormRequest) -> SentFields:
    """Return ``fields`` without the fields that are known to be refused, if the request may be sent without these."""
    if not facts:
        return SentFields(fields)
    adapted_fields, told_paths, own = dict(fields), list[str](), form_request.request.headers
    headers, of_values, most = own, [fact for fact in facts if fact.kind is Kind.VALUE], 0
    for fact in (*facts, *of_values, *of_values):  # the value sent in place of another may be refused as well
        if fact.dialect != form_request.api or fact.kind is Kind.BETA:  # nothing is sent in place of a beta
            continue
        if fact.kind is Kind.LEAST:
            most = limit_below(adapted_fields, fact, form_request) or most
            if most:
                adapted_fields[fact.field] = raw_json(fact.tokens)
                told_paths.append(fact.field)
        elif fact.field not in betas.NAMES:
            adapted_fields, lost = _adapt(adapted_fields, fact, form_request)
            told_paths += lost
        elif fact.field not in of_operator(form_request.request):
            left = betas.without(fact.field, fact.value, adapted_fields, headers)
            adapted_fields, headers = dict(left.fields), left.headers
            told_paths += left.told
    return SentFields(adapted_fields, tuple(dict.fromkeys(told_paths)), None if headers is own else headers, most)


def _adapt(
    fields: dict[str, msgspec.Raw], fact: Fact, form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """Return a request's fields in the form that ``fact`` says is taken, and what the client is told about them."""
    if fact.kind is Kind.SCHEMAS:
        is_lax = fact.field != WORDS
        return (fields, be_lax(fields, fact, form_request.formats)) if is_lax else _in_words(fields, form_request)
    if fact.kind is Kind.FORCED:
        return _without_thinking(fields, fact, form_request)
    if fact.kind is Kind.LIMIT:
        return _within_limit(fields, fact, form_request)
    if fact.kind is Kind.PREFILL:
        is_operators = form_request.formats.prompt in form_request.request.extra_body
        return (fields, []) if is_operators else told_to_go_on(fields, form_request.formats)
    if fact.kind is Kind.HISTORY:
        return _without_system(fields, form_request) if fact.field == SYSTEM else (fields, [])
    lost, named = False, fact.field.removeprefix(members.EVERYWHERE)
    if (without := form_request.formats.omissible.in_tools.get(fact.field)) is not None:
        fields, lost = _without_in_tools(fields, without, form_request)
    elif (place := place_of(fields, fact.field)) is not None and place.top not in form_request.request.extra_body:
        fields, lost = _without(fields, fact, place, form_request)
        named = place.path
    elif fact.kind is Kind.FIELD and "." in fact.field:
        fields, lost = _without_members(fields, fact, form_request)
    return fields, [named] if lost else []


def _without_system(
    fields: dict[str, msgspec.Raw], form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """Return a request whose user says what the system prompt says, and the places of what was moved."""
    formats = form_request.formats
    is_operators = not form_request.request.extra_body.keys().isdisjoint(formats.reading_order)
    if is_operators or formats.vendors.without_system is None:
        return fields, []
    moved = formats.vendors.without_system(fields)
    return dict(moved.fields), [loss.field for loss in moved.losses]


def _in_words(fields: dict[str, msgspec.Raw], form_request: FormRequest) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """Return a request with schemas in plain words, and the words that were left out."""
    formats, own = form_request.formats, form_request.request.extra_body
    if formats.vendors.with_plain_schemas is None:
        return fields, []
    plain = formats.vendors.with_plain_schemas({name: value for name, value in fields.items() if name not in own})
    return {**plain.fields, **{name: fields[name] for name in own if name in fields}}, [
        loss.field for loss in plain.losses
    ]


_NOT_THINKING: Mapping[str, Any] = {"thinking": {"type": "disabled"}, "enable_thinking": False}


def _without_thinking(
    fields: dict[str, msgspec.Raw], fact: Fact, form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """Return a request that forces a call of a tool without thinking, and what the client had said about thinking."""
    formats, off = form_request.formats, {fact.field: _NOT_THINKING.get(fact.field)}
    is_set = not off.keys().isdisjoint(form_request.request.extra_body)  # by the operator
    if is_set or formats.thinking.forbidding is None or not forces(fields, formats):
        return fields, []
    calm = formats.thinking.forbidding(fields, off)
    return dict(calm.fields), [loss.field for loss in calm.losses]


def forces(fields: Fields, formats: RequestFormat) -> bool:
    """Whether a request forces a call of a tool."""
    return formats.tools.forced is not None and formats.tools.forced(fields) is not None


def _without(
    fields: dict[str, msgspec.Raw], fact: Fact, place: FieldPlace, form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], bool]:
    """Return ``fields`` without those that ``fact`` says are refused, and whether the client is told."""
    value = value_at(fields, place)
    if value is None or (fact.value and bytes(value).decode(errors="replace") != fact.value):
        return fields, False
    if fact.kind is Kind.NAME:
        given = fields.pop(place.top)
        fields.setdefault(fact.instead, given)
    elif fact.kind is Kind.VALUE:
        if place.path == form_request.formats.thinking.kind and form_request.formats.thinking.as_kind is not None:
            return dict(form_request.formats.thinking.as_kind(fields, fact.instead.strip('"'))), True
        set_at(fields, place, msgspec.Raw(fact.instead.encode()))
        return fields, True
    elif fact.kind is Kind.FIELD and has_beside(fields, place):
        return fields, False
    elif fact.kind is Kind.FIELD and (why := may_lose(fields, place, form_request)) is not None:
        _leave_out(fields, place, form_request.formats)
        return fields, why.is_told
    return fields, False


def _without_in_tools(
    fields: dict[str, msgspec.Raw], without: Callable[[Fields], Fields], form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], bool]:
    """Return ``fields`` without one field of the tools, and whether any tool had it."""
    if not form_request.request.extra_body.keys().isdisjoint(form_request.formats.tools.offered):
        return fields, False  # the operator has set the tools
    try:
        left = without(fields)
    except (*UNREADABLE, Malformed):
        return fields, False
    return dict(left), left is not fields


def _without_members(
    fields: dict[str, msgspec.Raw], fact: Fact, form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], bool]:
    """Return ``fields`` without one member of the items in their lists, and whether an item lost what it had said."""
    if fact.value != NULL and not may_go(fact.field, fields):
        return fields, False
    left = members.without(fields, fact.field, fact.value)
    own = form_request.request.extra_body
    changed = {name: fields[name] for name in own.keys() & fields.keys() if left[name] is not fields[name]}
    is_less = any(left[name] is not fields[name] for name in fields if name not in own)
    return {**left, **changed}, is_less and fact.value != NULL


def with_strict(quirks: Quirks, facts: Facts) -> Quirks:
    """Return ``quirks`` with the history in the form that these facts demand."""
    history, extra = quirks.history, {fact.field for fact in facts if fact.kind is Kind.HISTORY}
    if not extra:
        return quirks
    for fact in facts if IDS in extra else ():
        if fact.kind is Kind.HISTORY and fact.field == IDS:
            history = history.with_ids(fact.dialect, fact.value, fact.tokens)
    for field in extra & _SET_IN_HISTORY.keys():
        history = msgspec.structs.replace(history, **_SET_IN_HISTORY[field])
    extra -= {IDS, SYSTEM, *_SET_IN_HISTORY}
    if ROLE in extra:
        quirks, extra = msgspec.structs.replace(quirks, system_role=True), extra - {ROLE}
    if "" in extra:
        quirks, history = msgspec.structs.replace(quirks, system_role=True), history.strictest()
    if extra - {""}:
        accepted = history.assistant_fields or _OF_MESSAGES | OF_MAKING
        history = msgspec.structs.replace(history, assistant_fields=accepted - extra)
    return msgspec.structs.replace(quirks, history=history)


def concerns(fact: Fact, fields: Fields, dialect: str, prompt_tokens: int, *, tools: bool) -> bool:
    """Whether a request with these ``fields`` may meet the refusal that taught ``fact``.

    The prompt is not decoded, so facts about a stricter history, schemas and whole answers concern no request.
    """
    if fact.kind is Kind.LENGTH or fact.kind is Kind.SIZE:
        has = prompt_tokens if fact.kind is Kind.LENGTH else amount(fact.field, fields, DIALECTS[dialect].requests) - 1
        return has >= fact.tokens
    if fact.kind in OF_APIS:
        has = fact.value in types_of_tools(fields) if fact.kind is Kind.TOOL else tools or fact.kind is Kind.API
        return fact.field == dialect and has
    if fact.kind is Kind.CALL:
        formats = DIALECTS[dialect].requests
        return formats.tools.choice in fields and forces(fields, formats)
    if fact.dialect != dialect or fact.kind not in _OF_ONE_FIELD:
        return False
    place = place_of(fields, fact.field)
    return (
        _may_have_member(fields, fact.field) if place is None else _is_of(fact, bytes(value_at(fields, place) or b""))
    )


def _may_have_member(fields: Fields, path: str) -> bool:
    """Whether a part of a turn or a tool may have the member at ``path``: ``messages.content.image_url.detail``."""
    top, _, inner = path.partition(".")
    return bool(inner) and f'"{inner.rpartition(".")[2]}"'.encode() in bytes(fields.get(top, b""))


def _is_of(fact: Fact, value: bytes) -> bool:
    """Whether a fact about a field is about this value."""
    if fact.kind is Kind.LIMIT or fact.kind is Kind.LEAST:
        return value.isdigit() and (int(value) > fact.tokens if fact.kind is Kind.LIMIT else int(value) < fact.tokens)
    return not fact.value or value.decode(errors="replace") == fact.value


def is_to_be_kept(fields: Fields) -> bool:
    """Whether the provider is to keep the answer. Tools do not count: a refused request has run none."""
    return any(bytes(fields.get(name, b"")).strip() == b"true" for name in ("store", "background"))


def has_must(must: Fact, fields: Fields, formats: RequestFormat) -> bool:
    """Whether a request has what a fact says is refused and may not be left out.

    A field, or one value of it; or, in the prompt, documents that are no plain text (such are sent as texts), a tool's
    name that not all vendors take, or arguments of a call that are no object.
    """
    if must.value == _TOOL_NAME:
        raws = (fields[name] for name in (formats.prompt, *formats.tools.offered) if name in fields)
        return any(_FIT_NAME.fullmatch(str(call["name"])) is None for raw in raws for call in _calls_in(decoded(raw)))
    if must.value == CALL_ARGUMENTS:
        calls = _calls_in(decoded(fields.get(formats.prompt, msgspec.Raw())))
        texts = (call["arguments"] for call in calls if isinstance(call.get("arguments"), str))
        return any(not isinstance(decoded(text.encode()), dict) for text in texts)
    if must.value == DOCUMENT and formats.vendors.with_history is not None:
        return any(loss.kept for loss in formats.vendors.with_history(fields, HistoryRules(documents=False)).losses)
    if must.field not in fields or demand_of(must.field, fields) is Demand.HINT:
        return False
    return must.value in {"", bytes(fields[must.field]).decode(errors="replace")}


def _calls_in(value: Any, levels: int = _LEVELS) -> Iterator[Mapping[str, Any]]:
    """Yield the calls, and the functions that may be called, in a prompt or in tools, of any API."""
    if isinstance(value, dict) and "name" in value and not value.keys().isdisjoint(_BESIDE_NAMES):
        yield value
    elif levels:
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from _calls_in(each, levels - 1)


def of_operator(request: Request) -> frozenset[str]:
    """Return the headers and fields that the operator sets, whatever a client sends."""
    return frozenset((*request.extra_body, *(name for name, _ in request.own_headers)))


def has_beside(fields: Fields, place: FieldPlace) -> bool:
    """Whether a field that is taken only beside another field is beside that field here."""
    beside = ONLY_BESIDE.get(place.path)
    return beside is not None and bytes(fields.get(beside, b"")) == b"true"


class _Why(NamedTuple):
    is_told: bool


def may_lose(fields: Fields, place: FieldPlace, form_request: FormRequest) -> _Why | None:
    """Return why a request may be sent without a field; None if the request needs the field."""
    request, formats, top = form_request.request, form_request.formats, place.top
    name = clients_name(place, form_request)
    value = bytes(value_at(fields, place) or b"")
    is_clients = name in request.fields and name not in request.added
    if value == b"false" and (top == formats.storing or (top == "store" and formats.stores_unasked)):
        return _may_be_stored(form_request, is_clients=is_clients)
    if is_neutral(place.path, fields):
        return _Why(is_told=False)
    if _is_preferred(fields, place, form_request) or top in _optional(formats, fields):
        return _Why(is_told=is_clients or top in OF_USAGE)
    if top in KEPT or top in essential(formats) or top == formats.choices or top in formats.omissible.items:
        return None
    if name not in request.fields:  # the gateway has added the field
        return _Why(is_told=False)
    return _Why(is_told=True) if request.drop_params else None


def _is_preferred(fields: Fields, place: FieldPlace, form_request: FormRequest) -> bool:
    """Whether a field, with its value in this request, is only a preference or a hint."""
    demand = demand_of(place.path, fields, form_request.request.unchosen)
    if demand is not None:
        return demand is not Demand.MUST
    return _is_preference(place, bytes(value_at(fields, place) or b""), form_request.formats)


def hints_in(fields: Fields, form_request: FormRequest) -> Facts:
    """Return the facts, of this request alone, that no preference or hint is taken; but of usage, and in lists."""
    facts = list[Fact]()
    for top, value in fields.items():
        if top in OF_USAGE:
            continue
        inner = (FieldPlace(top, (name,)) for name in object_of(bytes(value)))
        of_whole = _is_preferred(fields, FieldPlace(top), form_request)
        places = (
            [FieldPlace(top)] if of_whole else [each for each in inner if _is_preferred(fields, each, form_request)]
        )
        facts += [Fact(Kind.FIELD, place.path, dialect=form_request.api, passing=True) for place in places]
    return tuple(facts)


def essential(formats: RequestFormat) -> frozenset[str]:
    """Return the fields of prompts, tools and formats."""
    own = {formats.prompt, *formats.reading_order, *formats.essential, *formats.json_formats}
    return frozenset(own | formats.tools.offered.keys())


def _may_be_stored(form_request: FormRequest, *, is_clients: bool) -> _Why | None:
    """Return why a request may be sent without ``store: false``; None if the client itself wants nothing stored.

    The client is told where nothing else keeps the vendor from storing.
    """
    if form_request.formats.stores_unasked:
        return None if is_clients else _Why(is_told=True)
    return _Why(is_told=form_request.request.keeps and is_clients)


def clients_name(place: FieldPlace, asked: FormRequest) -> str:
    """Return the name by which the client has sent a field, in its own API."""
    renamed, given = asked.renamed.items(), asked.request.fields
    return next((name for name, sent in renamed if sent == place.top and name in given), place.top)


def _is_preference(place: FieldPlace, value: bytes, formats: RequestFormat) -> bool:
    """Whether a field is a preference of the dialect, lies within one, or contains only preferences."""
    path = place.path
    if any(path == preference or path.startswith(f"{preference}.") for preference in formats.omissible.fields):
        return True
    inner = object_of(value)
    return bool(inner) and all(f"{path}.{name}" in formats.omissible.fields for name in inner)


def _optional(formats: RequestFormat, fields: Fields) -> frozenset[str]:
    """Return the lists whose items may be left out."""
    return frozenset(
        name for name, items in formats.omissible.items.items() if name in fields and items & {*texts_of(fields[name])}
    )


def digest(fields: Fields, formats: RequestFormat) -> str:
    """Return a digest by which the schemas of this request are known."""
    texts = (bytes(fields.get(name, b"")) for name in (*formats.tools.offered, *formats.json_formats))
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:_DIGEST]


def _within_limit(
    fields: dict[str, msgspec.Raw], fact: Fact, form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """Return ``fields`` with a limit of the answer no higher than in ``fact``, and the paths that were lowered."""
    try:
        limit = msgspec.json.decode(fields.get(fact.field, b"0"), type=float)
        if not form_request.request.is_ceiling or limit <= fact.tokens or fact.field in form_request.request.extra_body:
            return fields, []
        if form_request.formats.with_limit is None:
            return {**fields, fact.field: raw_json(fact.tokens)}, [fact.field]
        within, lowered = form_request.formats.with_limit(fields, fact.tokens)
    except (*UNREADABLE, Malformed):
        return fields, []
    return dict(within), [*lowered]


def limit_below(fields: Fields, fact: Fact, form_request: FormRequest) -> int:
    """Return the client's limit of the answer if this is lower than the model takes; 0: the limit is not too low.

    The gateway then shortens the answer itself, by way of chat. So requests whose answers are stored at the provider,
    or that have tools which run there, stay unchanged.
    """
    value = bytes(fields.get(fact.field, b""))
    is_lower = value.isdigit() and 0 < int(value) < fact.tokens and fact.field not in form_request.request.extra_body
    if not is_lower or (
        form_request.api != PIVOT.name and (is_to_be_kept(fields) or _has_hosted(fields, form_request.formats))
    ):
        return 0
    return int(value)


def _has_hosted(fields: Fields, formats: RequestFormat) -> bool:
    return runs_there(fields) or any(runs_among(fields[name]) for name in formats.tools.offered if name in fields)


def be_lax(fields: dict[str, msgspec.Raw], fact: Fact, formats: RequestFormat) -> list[str]:
    """Make the schemas of tools and formats not strict; return the paths that the client is told."""
    if fact.value and fact.value != digest(fields, formats):
        return []
    paths = []
    for name in (*formats.tools.offered, *formats.json_formats):
        value = decoded(fields.get(name, b"null"))
        each = value if isinstance(value, list) else [value]
        shapes = [shape for one in each if isinstance(one, dict) for shape in (one, *map(one.get, _AROUND_SCHEMAS))]
        strict = [shape for shape in shapes if isinstance(shape, dict) and _is_strict(shape, named=not fact.value)]
        for shape in strict:
            if fact.value:
                shape["strict"] = False
            else:
                del shape["strict"]
        if strict:
            paths.append(f"{name}.strict")
            fields[name] = raw_json(value)
    return paths


def _is_strict(shape: Mapping[str, Any], *, named: bool) -> bool:
    """Whether a tool or format has the field ``strict`` (``named``); else whether it is strict, said or by default."""
    if named or "strict" in shape:
        return "strict" in shape and (named or shape["strict"] is None or shape["strict"] is True)
    return bool(shape.keys() & {"parameters", "schema"})


def _leave_out(fields: dict[str, msgspec.Raw], place: FieldPlace, formats: RequestFormat) -> None:
    if place.top in formats.omissible.items:
        left = [item for item in texts_of(fields[place.top]) if item not in formats.omissible.items[place.top]]
        fields[place.top] = raw_json(left)
        if not left:
            del fields[place.top]
    elif not place.inner:
        del fields[place.top]
    else:
        set_at(fields, place, None)
