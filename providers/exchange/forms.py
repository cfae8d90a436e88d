"""The form in which a request is sent again to a model that refused it: without a field, or with another value.

For example, 400 "Unsupported parameter: 'verbosity'": the request is sent again without ``verbosity``, a preference,
and ``x-holeshot-dropped`` tells the client.

What may be left out of a request, or changed:

- Fields that the gateway has added are left out. The client is not told, unless the usage is no longer asked for, or
  the vendor may now store what the gateway asked it not to.
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
from providers.dialects import DIALECTS, PIVOT, History, Malformed, RequestFormat
from providers.exchange import betas, members
from providers.exchange.interface import Request
from providers.exchange.prefill import begun, told_to_go_on
from providers.exchange.quotes import OF_CLIENTS, named_by_client
from providers.exchange.sizes import amount
from providers.refusals import (
    NOTHING,
    OF_APIS,
    UNREADABLE,
    Betas,
    Fact,
    Facts,
    Kind,
    RefusalReading,
    RefusedField,
    held,
    room_beside,
)
from providers.vendors import (
    DEFAULTS,
    DEVELOPER,
    OF_ANSWERS,
    Demand,
    Quirks,
    demand_of,
    is_mistaken,
    may_go,
    nearest_effort,
    runs_among,
    runs_there,
    samples,
    types_of_tools,
)

_LARGEST_OBJECT = 64 * 1024  # bytes of a field in which names are looked for
_NONE = (b"null",)
# Fields that decide which answer is meant, where the answer is stored, or who may see it.
_KEPT = frozenset(
    {
        *("audio", "background", "best_of", "container", "dimensions", "echo", "encoding_format", "function_call"),
        *("functions", "inference_geo", "mcp_servers", "modalities", "model", "n", "prediction", "safetySettings"),
        *("store", "stream", "suffix", "tool_choice", "toolConfig"),
    }
)
_OTHER_DEFAULTS: Mapping[str, tuple[bytes, ...]] = {
    "background": (b"false",),
    "encoding_format": (b'"float"',),
    "tool_choice": (b'"auto"', b'{"type":"auto"}', b'{"type": "auto"}'),
}
# Fields of an assistant's message that only say how the message was made; and the fields that every such message has.
_OF_MAKING = OF_ANSWERS | {"function_call", "refusal"}
_OF_MESSAGES = frozenset({"content", "name", "role", "tool_calls"})
_ROLE, _IDS = "developer", "tool_call_id"
_DOCUMENT = "document"  # a block of Messages
_TOOL_NAME, _ARGUMENTS = "tool_name", "call_arguments"
_FIT_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)  # what all vendors take
_BESIDE_NAMES = frozenset({"args", "arguments", "input", "input_schema", "parameters"})  # in a call or a function
_TWO_EFFORTS = ("low", "high")  # every known effort is near to one of these
_LEVELS = 6  # of a prompt, down to the calls
_BLANK = "blank"  # turns of the assistant that say nothing
# OpenAI: 400 "The 'metadata' parameter is only allowed when 'store' is enabled." So the refusal holds for all others.
_ONLY_BESIDE: Mapping[str, str] = {"metadata": "store"}
_OF_USAGE = ("stream_options", "include_usage")  # a client that sets these wants the usage itself
_OF_ONE_FIELD = frozenset({Kind.FIELD, Kind.LIMIT, Kind.LEAST, Kind.MUST, Kind.NAME, Kind.VALUE})
_OF_TYPES = "tools.type"  # some servers refuse even the default, such as ``custom`` in Messages
_AROUND_SCHEMAS = ("function", "json_schema", "format")
_DIGEST = 16  # characters
_DISABLED = '"disabled"'
_PRIVATE = frozenset({"client_metadata", "labels", "metadata", "prompt_cache_key", "safety_identifier", "user"})
_SHORT = re.compile(r'"[\w.-]{1,40}"|[\d.eE+-]{1,24}|true|false|null', re.ASCII)
_HUMP = re.compile(r"(?<=[a-z0-9])[A-Z]")

Fields = Mapping[str, msgspec.Raw]
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class FieldPlace(NamedTuple):
    """Where a field is: at the top level, or within the object there."""

    top: str
    inner: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The path, such as ``reasoning.effort``."""
        return ".".join((self.top, *self.inner))


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
    """Return ``fields`` without those that are known to be refused, if the request may be sent without them."""
    if not facts:
        return SentFields(fields)
    adapted_fields, told_paths, own = dict(fields), list[str](), form_request.request.headers
    headers, of_values, most = own, [fact for fact in facts if fact.kind is Kind.VALUE], 0
    for fact in (*facts, *of_values, *of_values):  # the value sent in place of another may be refused as well
        if fact.dialect != form_request.api or fact.kind is Kind.BETA:  # nothing is sent in place of a beta
            continue
        if fact.kind is Kind.LEAST:
            most = _limit_below(adapted_fields, fact, form_request) or most
            if most:
                adapted_fields[fact.field] = raw_json(fact.tokens)
                told_paths.append(fact.field)
        elif fact.field not in betas.NAMES:
            adapted_fields, lost = _adapt(adapted_fields, fact, form_request)
            told_paths += lost
        elif fact.field not in _of_operator(form_request.request):
            left = betas.without(fact.field, fact.value, adapted_fields, headers)
            adapted_fields, headers = dict(left.fields), left.headers
            told_paths += left.told
    return SentFields(adapted_fields, tuple(dict.fromkeys(told_paths)), None if headers is own else headers, most)


def _adapt(
    fields: dict[str, msgspec.Raw], fact: Fact, form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """Return a request's fields in the form that ``fact`` says is taken, and what the client is told about them."""
    if fact.kind is Kind.SCHEMAS:
        return fields, _be_lax(fields, fact, form_request.formats)
    if fact.kind is Kind.FORCED:
        return _without_thinking(fields, fact, form_request)
    if fact.kind is Kind.LIMIT:
        return _within_limit(fields, fact, form_request)
    if fact.kind is Kind.PREFILL:
        is_operators = form_request.formats.prompt in form_request.request.extra_body
        return (fields, []) if is_operators else told_to_go_on(fields, form_request.formats)
    lost, named = False, fact.field.removeprefix(members.EVERYWHERE)
    if (without := form_request.formats.omissible.in_tools.get(fact.field)) is not None:
        fields, lost = _without_in_tools(fields, without, form_request)
    elif (place := _place_of(fields, fact.field)) is not None and place.top not in form_request.request.extra_body:
        fields, lost = _without(fields, fact, place, form_request)
        named = place.path
    elif fact.kind is Kind.FIELD and "." in fact.field:
        fields, lost = _without_members(fields, fact, form_request)
    return fields, [named] if lost else []


_NOT_THINKING: Mapping[str, Any] = {"thinking": {"type": "disabled"}, "enable_thinking": False}


def _without_thinking(
    fields: dict[str, msgspec.Raw], fact: Fact, form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], list[str]]:
    """Return a request that forces a call of a tool without thinking, and what the client had said about thinking."""
    formats, off = form_request.formats, {fact.field: _NOT_THINKING.get(fact.field)}
    is_set = not off.keys().isdisjoint(form_request.request.extra_body)  # by the operator
    if is_set or formats.thinking.forbidding is None or not _forces(fields, formats):
        return fields, []
    calm = formats.thinking.forbidding(fields, off)
    return dict(calm.fields), [loss.field for loss in calm.losses]


def _forces(fields: Fields, formats: RequestFormat) -> bool:
    return formats.tools.forced is not None and formats.tools.forced(fields) is not None


def _without(
    fields: dict[str, msgspec.Raw], fact: Fact, place: FieldPlace, form_request: FormRequest
) -> tuple[dict[str, msgspec.Raw], bool]:
    """Return ``fields`` without those that ``fact`` says are refused, and whether the client is told."""
    value = _value_at(fields, place)
    if value is None or (fact.value and bytes(value).decode(errors="replace") != fact.value):
        return fields, False
    if fact.kind is Kind.NAME:
        given = fields.pop(place.top)
        fields.setdefault(fact.instead, given)
    elif fact.kind is Kind.VALUE:
        if place.path == form_request.formats.thinking.kind and form_request.formats.thinking.as_kind is not None:
            return dict(form_request.formats.thinking.as_kind(fields, fact.instead.strip('"'))), True
        _set(fields, place, msgspec.Raw(fact.instead.encode()))
        return fields, True
    elif fact.kind is Kind.FIELD and _has_beside(fields, place):
        return fields, False
    elif fact.kind is Kind.FIELD and (why := _may_lose(fields, place, form_request)) is not None:
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
    """Return ``fields`` without one member of the items in their lists, and whether any item had the member."""
    if not may_go(fact.field, fields):
        return fields, False
    left = members.without(fields, fact.field, fact.value)
    own = form_request.request.extra_body
    changed = {name: fields[name] for name in own.keys() & fields.keys() if left[name] is not fields[name]}
    return {**left, **changed}, left is not fields and any(
        left[name] is not fields[name] for name in fields if name not in own
    )


def with_strict(quirks: Quirks, facts: Facts) -> Quirks:
    """Return ``quirks`` with the history in the form that these facts demand."""
    history, extra = quirks.history, {fact.field for fact in facts if fact.kind is Kind.HISTORY}
    if not extra:
        return quirks
    for fact in facts if _IDS in extra else ():
        if fact.kind is Kind.HISTORY and fact.field == _IDS:
            history = history.with_ids(fact.dialect, fact.value, fact.tokens)
    extra -= {_IDS}
    if _DOCUMENT in extra:
        history, extra = msgspec.structs.replace(history, documents=False), extra - {_DOCUMENT}
    if _BLANK in extra:
        history, extra = msgspec.structs.replace(history, blank_turns=False), extra - {_BLANK}
    if _ROLE in extra:
        quirks, extra = msgspec.structs.replace(quirks, system_role=True), extra - {_ROLE}
    if "" in extra:
        quirks, history = msgspec.structs.replace(quirks, system_role=True), history.strictest()
    if extra - {""}:
        accepted = history.assistant_fields or _OF_MESSAGES | _OF_MAKING
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
        return formats.tools.choice in fields and _forces(fields, formats)
    if fact.dialect != dialect or fact.kind not in _OF_ONE_FIELD or (place := _place_of(fields, fact.field)) is None:
        return False
    value = bytes(_value_at(fields, place) or b"")
    if fact.kind is Kind.LIMIT or fact.kind is Kind.LEAST:
        return value.isdigit() and (int(value) > fact.tokens if fact.kind is Kind.LIMIT else int(value) < fact.tokens)
    return not fact.value or value.decode(errors="replace") == fact.value


def is_to_be_kept(fields: Fields) -> bool:
    """Whether the provider is to keep the answer. Tools do not count: a refused request has run none."""
    return any(bytes(fields.get(name, b"")).strip() == b"true" for name in ("store", "background"))


def understood(
    reading: RefusalReading, fields: Fields, form_request: FormRequest, headers: Mapping[str, str] | None = None
) -> Facts:
    """Return what a refusal of ``fields`` teaches; nothing if the request needs what was refused.

    ``headers``: the headers that were sent in place of the client's.
    """
    formats, api = form_request.formats, form_request.api
    if reading.betas is not None:
        sent_headers = form_request.request.headers if headers is None else headers
        if (of_betas := _of_betas(reading.betas, fields, sent_headers, form_request)) is not None:
            return of_betas
    if of_turns := _of_turns(reading, fields, form_request) or _of_calls(reading, fields, form_request):
        return of_turns
    named = _of_fields(reading, fields, form_request)
    if named is None or any(fact.kind is Kind.MUST for fact in named):
        return tuple(named or _of_forced(reading, fields, form_request))
    facts = [Fact(Kind.SCHEMAS, value=_digest(fields, formats), dialect=api)] if reading.of_schemas else []
    facts += named
    if reading.of_thinking and not facts:
        places = (_place_of(fields, path) for path in formats.thinking.paths)
        here = reading.of_thinking_here
        facts += [Fact(Kind.FIELD, place.path, dialect=api, passing=here) for place in places if place is not None]
    if reading.of_effort and not facts:  # such a refusal says nothing of other fields
        values = {
            path: _value_at(fields, place) for path in formats.thinking.paths if (place := _place_of(fields, path))
        }
        facts += [
            Fact(Kind.FIELD, path, value=bytes(value).decode(errors="replace"), dialect=api)
            for path, value in values.items()
            if value is not None and _may_be_told(FieldPlace(path), bytes(value).decode(errors="replace"), formats)
        ]
    facts += _of_limits(reading, fields, form_request)
    if reading.of_usage and form_request.request.fields.keys().isdisjoint(_OF_USAGE):
        is_named = reading.of_names and not named_by_client(fields).isdisjoint(_OF_USAGE)
        facts.append(Fact(Kind.FIELD, "stream_options", dialect=api, passing=is_named))
    if (reading.of_history or reading.of_roles) and formats.vendors.with_history is not None:
        only = _ROLE if reading.of_roles and _has_developer(fields, formats) else ""
        facts.append(Fact(Kind.HISTORY, only, dialect=api))
    return (
        tuple(dict.fromkeys(facts))
        or _of_forced(reading, fields, form_request)
        or (_of_value if reading.mentions_value else _of_mentioned)(reading, fields, form_request)
    )


def _of_turns(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that turns, or blocks in them, are not taken, whatever field or value a refusal names."""
    formats, api = form_request.formats, form_request.api
    if reading.of_prefill and begun(fields, formats) is not None:
        return (Fact(Kind.PREFILL, dialect=api),)
    if (fitted := formats.vendors.with_history) is None:
        return NOTHING
    if reading.of_blanks and fitted(fields, History(blank_turns=False)).losses:
        return (Fact(Kind.HISTORY, _BLANK, dialect=api),)
    if reading.of_system or reading.of_ids is not None:
        letters, longest = reading.of_ids or ("", 0)
        return (Fact(Kind.HISTORY, _IDS if letters else "", value=letters, dialect=api, tokens=longest),)
    if not reading.of_documents or b'"document"' not in bytes(fields.get(formats.prompt, b"")):
        return NOTHING
    must = Fact(Kind.MUST, formats.prompt, value=_DOCUMENT, dialect=api)
    return (must,) if has_must(must, fields, formats) else (Fact(Kind.HISTORY, _DOCUMENT, dialect=api),)


def _of_calls(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a name of a tool, or the arguments of a call, are not taken, if the request has such."""
    must = Fact(Kind.MUST, form_request.formats.prompt, value=reading.of_calls, dialect=form_request.api)
    return (must,) if reading.of_calls and has_must(must, fields, form_request.formats) else NOTHING


def has_must(must: Fact, fields: Fields, formats: RequestFormat) -> bool:
    """Whether a request has what a fact says is refused and may not be left out.

    A field, or one value of it; or, in the prompt, documents that are no plain text (such are sent as texts), a tool's
    name that not all vendors take, or arguments of a call that are no object.
    """
    if must.value == _TOOL_NAME:
        raws = (fields[name] for name in (formats.prompt, *formats.tools.offered) if name in fields)
        return any(_FIT_NAME.fullmatch(str(call["name"])) is None for raw in raws for call in _calls_in(_decoded(raw)))
    if must.value == _ARGUMENTS:
        calls = _calls_in(_decoded(fields.get(formats.prompt, msgspec.Raw())))
        texts = (call["arguments"] for call in calls if isinstance(call.get("arguments"), str))
        return any(not isinstance(_decoded(text.encode()), dict) for text in texts)
    if must.value == _DOCUMENT and formats.vendors.with_history is not None:
        return any(loss.kept for loss in formats.vendors.with_history(fields, History(documents=False)).losses)
    return must.field in fields and must.value in {"", bytes(fields[must.field]).decode(errors="replace")}


def _calls_in(value: Any, levels: int = _LEVELS) -> Iterator[Mapping[str, Any]]:
    """Yield the calls, and the functions that may be called, in a prompt or in tools, of any API."""
    if isinstance(value, dict) and "name" in value and not value.keys().isdisjoint(_BESIDE_NAMES):
        yield value
    elif levels:
        for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from _calls_in(each, levels - 1)


def _decoded(raw: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except UNREADABLE:
        return None


def _of_limits(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> list[Fact]:
    """Return what a refusal says of the longest or shortest answer, or of the room beside this request's prompt."""
    if reading.least:
        parameters = form_request.formats.parameters
        least = (
            Fact(Kind.LEAST, name, dialect=form_request.api, tokens=reading.least) for name in parameters.answer_limits
        )
        return [fact for fact in least if _limit_below(fields, fact, form_request)]
    most = reading.longest or room_beside(reading, fields)
    if not most or not form_request.request.is_ceiling:
        return []
    limits, here = form_request.formats.parameters.answer_limits, not reading.longest
    facts = [
        Fact(Kind.LIMIT, name, dialect=form_request.api, tokens=most, passing=here) for name in limits if name in fields
    ]
    together = held(reading, fields) if here else None
    return facts if together is None else [*facts, together]


def _has_developer(fields: Fields, formats: RequestFormat) -> bool:
    """Whether a conversation has the role ``developer``, which can be named system."""
    return formats.vendors.takes_quirks and DEVELOPER in bytes(fields.get(formats.prompt, b""))


def _of_betas(
    refused_betas: Betas, fields: Fields, headers: Mapping[str, str], form_request: FormRequest
) -> Facts | None:
    """Return which betas are not taken: those that a refusal names, else all that the body does not need, else all.

    None: the request has no betas. If the request needs the betas, the facts say that other deployments are asked. If
    the refusal names no beta, one fact is about all of them together.
    """
    own = _of_operator(form_request.request)
    all_asked = [each for each in betas.asked_for(headers, fields) if each.place not in own]
    every = {beta for each in all_asked for beta in each.betas}
    if not every:
        return None
    if not refused_betas.is_sure and every.isdisjoint(refused_betas.refused):
        return None
    named = every & refused_betas.refused or (every - refused_betas.taken if refused_betas.taken else set[str]())
    left_out = named or (every - betas.needed(every, fields)) or every
    if musts := betas.demanded(left_out, fields):
        of_musts = [(each.place, left_out & {*each.betas}) for each in all_asked if musts & {*each.betas}]
        if named:
            of_musts = [(place, {beta}) for place, listed in of_musts for beta in sorted(musts & listed)]
        elsewhere = (
            Fact(Kind.BETA, place, value=betas.written(listed), dialect=form_request.api) for place, listed in of_musts
        )
        return tuple(fact for fact in elsewhere if fact.value)
    facts = list[Fact]()
    for place, listed in all_asked:
        refused = left_out.intersection(listed)
        one_by_one = [[beta] for beta in refused] if named else [refused] if refused else []
        for each in one_by_one:
            value = betas.written(each)
            facts.append(Fact(Kind.FIELD, place, value=value, dialect=form_request.api, passing=not value))
    return tuple(facts)


def _of_operator(request: Request) -> frozenset[str]:
    """Return the headers and fields that the operator sets, whatever a client sends."""
    return frozenset((*request.extra_body, *(name for name, _ in request.own_headers)))


def _of_forced(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a model calls no forced tool while it thinks, if the refusal says so, and one was forced."""
    formats = form_request.formats
    if not reading.of_forced or formats.thinking.forbidding is None or not _forces(fields, formats):
        return NOTHING
    return (Fact(Kind.FORCED, reading.of_forced, dialect=form_request.api),)


def _of_fields(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> list[Fact] | None:
    """Return what to do about the fields that a refusal names; None if the request may not lose one of them.

    Such a field alone, if no request with the field is taken: then others are asked first.
    """
    formats, api, facts = form_request.formats, form_request.api, list[Fact]()
    of_client = named_by_client(fields) if reading.of_names else frozenset[str]()
    for refused in reading.fields:
        # The name may be the API's field, or a name that the client gave something. The next answer does not tell which
        # of the two was refused; a path would.
        of_this_alone = {"passing": True} if len(refused.path) == 1 and refused.path[0] in of_client else {}
        if (member := _member_of(refused, fields, form_request)) is not None:
            facts.append(msgspec.structs.replace(member, **of_this_alone))
        elif (refused.path[0] == formats.prompt and refused.path[-1] == "role" and reading.of_roles) or (
            reading.least and refused.is_of_value and refused.path[-1] in formats.parameters.answer_limits
        ):
            continue
        elif refused.path[0] == formats.prompt:
            if formats.vendors.with_history is not None and refused.is_of_value and refused.path[-1] == "role":
                facts.append(Fact(Kind.HISTORY, dialect=api))
                continue
            if formats.vendors.with_history is None or refused.path[-1] not in _OF_MAKING or refused.is_of_value:
                return None
            facts.append(Fact(Kind.HISTORY, refused.path[-1], dialect=api))
        elif (place := _find(fields, refused.path, form_request)) is not None:
            if (fact := _fact_of(refused, place, fields, form_request)) is None:
                must = Fact(Kind.MUST, _clients_name(place, form_request), dialect=api)
                is_must = _is_must(refused, place, form_request)
                return [msgspec.structs.replace(must, **of_this_alone)] if is_must else None
            facts.append(msgspec.structs.replace(fact, **of_this_alone))
    return facts


def _of_mentioned(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a field is refused, of a refusal that mentions the field in words of no rule.

    The words may be about the value alone, so the fact is about this value, if the value may be shown. The next answer
    confirms the fact.
    """
    refused = RefusedField(reading.mentioned)
    if len(refused.path) > 1:
        of_member = _of_fields(reading._replace(fields=(refused,)), fields, form_request)
        if of_member and of_member[0].kind is not Kind.MUST:
            return tuple(of_member)
    place = _find(fields, refused.path, form_request) if refused.path else None
    if place is None or place.top in form_request.request.extra_body or is_mistaken(place.path, fields):
        return NOTHING
    value = bytes(_value_at(fields, place) or b"").decode(errors="replace")
    only = value if _may_be_told(place, value, form_request.formats) else ""
    is_clients = _may_be_clients(reading, fields) or place.top in _PRIVATE
    if _may_lose(fields, place, form_request) is not None:
        if not only and value.startswith('"') and place.top not in _PRIVATE:
            return NOTHING  # the client's own text, and no vendor's value
        return (Fact(Kind.FIELD, place.path, value=only, dialect=form_request.api, passing=is_clients),)
    is_kept = place.top in _KEPT | _essential(form_request.formats)
    if is_kept or not _is_must(refused, place, form_request):
        return NOTHING
    of_number = "" if value.startswith('"') else only  # a text that is no preference is the client's own
    name, api = _clients_name(place, form_request), form_request.api
    return (Fact(Kind.MUST, name, value=of_number, dialect=api, passing=is_clients),)


def _of_value(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a value is refused which other vendors take: a temperature of 1.5, or an effort of "max"."""
    place = _find(fields, reading.mentioned, form_request)
    if place is None or place.top in form_request.request.extra_body:
        return NOTHING
    value = bytes(_value_at(fields, place) or b"").decode(errors="replace")
    effort, is_of_thinking = value.strip('"'), place.path in form_request.formats.thinking.paths
    is_effort = is_of_thinking and nearest_effort(effort, [each for each in _TWO_EFFORTS if each != effort])
    is_chance = samples(place.path) and demand_of(place.path, fields, form_request.request.unchosen) is not None
    if not (is_effort or is_chance):
        return NOTHING
    is_clients = _may_be_clients(reading, fields)
    return (Fact(Kind.FIELD, place.path, value=value, dialect=form_request.api, passing=is_clients),)


def _may_be_clients(reading: RefusalReading, fields: Fields) -> bool:
    """Whether the path that a refusal mentions may be a name that the client has given, as a tool's argument."""
    return reading.of_names and not named_by_client(fields).isdisjoint(reading.mentioned)


def _is_must(refused: RefusedField, place: FieldPlace, asked: FormRequest) -> bool:
    """Whether a refusal says that a field, which may not be left out, is taken from no request."""
    formats = asked.formats
    own = {formats.prompt, *formats.tools.offered, *formats.parameters.answer_limits, *asked.request.extra_body}
    return not (refused.is_of_value or refused.is_conditional or place.inner or place.top in own)


def _member_of(refused: RefusedField, fields: Fields, form_request: FormRequest) -> Fact | None:
    """Return what to do about a refused member of a list's items; None: no such member, or the request needs it."""
    formats, api = form_request.formats, form_request.api
    if not OF_CLIENTS.isdisjoint(refused.path[1:-1]):
        return None  # behind these a client's own names follow
    around = {*formats.tools.offered, *formats.json_formats}
    is_alone = refused == RefusedField(("strict",)) and "strict" not in fields  # named without what is around it
    if (refused.path[-1] == "strict" and refused.path[0] in around) or (
        is_alone and _be_lax(dict(fields), Fact(Kind.SCHEMAS, dialect=api), formats)
    ):
        # A wrong value of one request says nothing of others.
        return Fact(Kind.SCHEMAS, value=_digest(fields, formats) if refused.is_of_value else "", dialect=api)
    path = f"{refused.path[0]}.{refused.path[-1]}"
    without = formats.omissible.in_tools.get(path)
    if without is not None and (not refused.is_of_value or (path == _OF_TYPES and without(fields) is not fields)):
        return Fact(Kind.FIELD, path, dialect=api)
    member = members.found(fields, refused.path, spelt)
    if member is None or not may_go(member.path, fields):
        return None
    value = bytes(member.value or b"").decode(errors="replace") if refused.is_of_value else ""
    if refused.is_of_value and _SHORT.fullmatch(value) is None:
        return None
    return Fact(Kind.FIELD, member.path, value=value, dialect=api, passing=refused.is_conditional)


def _fact_of(refused: RefusedField, place: FieldPlace, fields: Fields, form_request: FormRequest) -> Fact | None:
    """Return what to do about a field; None if nothing may be done."""
    api, limits = form_request.api, form_request.formats.parameters.answer_limits
    if place.top in form_request.request.extra_body:
        return None  # the operator has set the field
    if not place.inner and place.top in limits and not refused.is_of_value:
        other = next((name for name in limits if name != place.top and refused.instead in {"", name}), None)
        if other is not None:
            return Fact(Kind.NAME, place.top, other, dialect=api)
    value = bytes(_value_at(fields, place) or b"").decode(errors="replace")
    # If the model takes no other kind of thinking, the field is left out. The model then thinks as by default.
    is_other_kind = refused.values or value != _DISABLED
    if refused.is_of_value and place.path == form_request.formats.thinking.kind and is_other_kind:
        may_be_told = refused.values and _SHORT.fullmatch(value) is not None
        return Fact(Kind.VALUE, place.path, f'"{refused.values[0]}"', value, api) if may_be_told else None
    if (
        refused.is_of_value
        and place.path in form_request.formats.thinking.paths
        and (nearest := nearest_effort(value.strip('"'), refused.values))
    ):
        return Fact(Kind.VALUE, place.path, f'"{nearest}"', value, api)
    may_tell = not refused.is_of_value or _may_be_told(place, value, form_request.formats)
    if _may_lose(fields, place, form_request) is None or not may_tell:
        return None
    only = value if refused.is_of_value else ""
    is_of_others = place.path in _ONLY_BESIDE and not _has_beside(fields, place)
    is_passing = refused.is_conditional and not is_of_others
    return Fact(Kind.FIELD, place.path, value=only, dialect=api, passing=is_passing)


def _has_beside(fields: Fields, place: FieldPlace) -> bool:
    """Whether a field that is taken only beside another field is beside that field here."""
    beside = _ONLY_BESIDE.get(place.path)
    return beside is not None and bytes(fields.get(beside, b"")) == b"true"


def _may_be_told(place: FieldPlace, value: str, formats: RequestFormat) -> bool:
    """Whether a value may be in a fact, which the log and the page show: the value must not reveal a client's words."""
    if place.path in formats.thinking.paths:
        return not value.startswith('"') or _SHORT.fullmatch(value) is not None
    return place.top not in _PRIVATE and _SHORT.fullmatch(value) is not None


class _Why(NamedTuple):
    is_told: bool


def _may_lose(fields: Fields, place: FieldPlace, form_request: FormRequest) -> _Why | None:
    """Return why a request may be sent without a field; None if the request needs the field."""
    request, formats, top = form_request.request, form_request.formats, place.top
    clients_name = _clients_name(place, form_request)
    value = bytes(_value_at(fields, place) or b"")
    is_clients = clients_name in request.fields and clients_name not in request.added
    if value == b"false" and (top == formats.storing or (top == "store" and formats.stores_unasked)):
        return _may_be_stored(form_request, is_clients=is_clients)
    if value in _OTHER_DEFAULTS.get(top, DEFAULTS.get(top, _NONE)) and not place.inner:
        return _Why(is_told=False)
    demand = demand_of(place.path, fields, request.unchosen)
    is_preferred = demand is not Demand.MUST and (demand is not None or _is_preference(place, value, formats))
    if is_preferred or top in _optional(formats, fields):
        return _Why(is_told=is_clients)
    if top in _KEPT or top in _essential(formats) or top == formats.choices or top in formats.omissible.items:
        return None
    if clients_name not in request.fields:
        return _Why(is_told=top in _OF_USAGE)  # the gateway has added the field; without it the usage is an estimate
    return _Why(is_told=True) if request.drop_params else None


def _essential(formats: RequestFormat) -> frozenset[str]:
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


def _clients_name(place: FieldPlace, asked: FormRequest) -> str:
    renamed, given = asked.renamed.items(), asked.request.fields
    return next((name for name, sent in renamed if sent == place.top and name in given), place.top)


def _is_preference(place: FieldPlace, value: bytes, formats: RequestFormat) -> bool:
    """Whether a field is a preference of the dialect, lies within one, or contains only preferences."""
    path = place.path
    if any(path == preference or path.startswith(f"{preference}.") for preference in formats.omissible.fields):
        return True
    inner = _object(value)
    return bool(inner) and all(f"{path}.{name}" in formats.omissible.fields for name in inner)


def _optional(formats: RequestFormat, fields: Fields) -> frozenset[str]:
    """Return the lists whose items may be left out."""
    return frozenset(
        name for name, items in formats.omissible.items.items() if name in fields and items & {*_list(fields[name])}
    )


def _digest(fields: Fields, formats: RequestFormat) -> str:
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


def _limit_below(fields: Fields, fact: Fact, form_request: FormRequest) -> int:
    """Return the client's limit of the answer if this is lower than the model takes; 0: it is not lower.

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


def _be_lax(fields: dict[str, msgspec.Raw], fact: Fact, formats: RequestFormat) -> list[str]:
    """Make the schemas of tools and formats not strict; return the paths that the client is told."""
    if fact.value and fact.value != _digest(fields, formats):
        return []
    paths = []
    for name in (*formats.tools.offered, *formats.json_formats):
        value = _decoded(fields.get(name, b"null"))
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
        left = [item for item in _list(fields[place.top]) if item not in formats.omissible.items[place.top]]
        fields[place.top] = raw_json(left)
        if not left:
            del fields[place.top]
    elif not place.inner:
        del fields[place.top]
    else:
        _set(fields, place, None)


def _set(fields: dict[str, msgspec.Raw], place: FieldPlace, value: msgspec.Raw | None) -> None:
    """Set a field; None: leave out the field, and the objects around it that become empty."""
    if not place.inner:
        if value is not None:
            fields[place.top] = value
        else:
            del fields[place.top]
        return
    holder = dict(_object(bytes(fields[place.top])))
    _set(holder, FieldPlace(place.inner[0], place.inner[1:]), value)
    if holder:
        fields[place.top] = raw_json(holder)
    else:
        del fields[place.top]


def _value_at(fields: Fields, place: FieldPlace) -> msgspec.Raw | None:
    value = fields.get(place.top)
    for name in place.inner:
        value = None if value is None else _object(bytes(value)).get(name)
    return value


def _place_of(fields: Fields, path: str) -> FieldPlace | None:
    """Return the place of a path, as ``FieldPlace.path`` has it; None if this request has no such field."""
    if path in fields:
        return FieldPlace(path)
    top, _, inner = path.partition(".")
    while inner and top not in fields:
        more, _, inner = inner.partition(".")
        top = f"{top}.{more}"
    place = FieldPlace(top, tuple(inner.split(".")) if inner else ())
    return place if _value_at(fields, place) is not None else None


def _find(fields: Fields, named: tuple[str, ...], form_request: FormRequest) -> FieldPlace | None:
    """Return the place of a field as a refusal names it.

    A refusal may spell the name otherwise (``reasoningEffort``), or leave out the objects around the field
    (``effort`` for ``reasoning.effort``).
    """
    path = tuple(spelt(name) for name in named)
    if (alias := form_request.aliases.get(path[-1])) is not None:
        return FieldPlace(alias) if alias in fields else None
    # In other APIs a name with a dot is the client's, and not a path.
    are_paths = form_request.formats.body is not None
    for top, value in fields.items():
        own = tuple(spelt(name) for name in (top.split(".") if are_paths else (top,)))
        if path[: len(own)] == own and (inner := _within(value, path[len(own) :])) is not None:
            return FieldPlace(top, inner)
    return _find_one(fields, path[0], form_request) if len(path) == 1 else None


def _find_one(fields: Fields, name: str, form_request: FormRequest) -> FieldPlace | None:
    """Return the place of a field that is named without the objects around it, or by its name in chat."""
    for preference in form_request.formats.thinking.paths:
        if preference.replace(".", "_") == name and (place := _place_of(fields, preference)) is not None:
            return place
    for top in fields:
        if "." in top and form_request.formats.body is not None and spelt(top.rpartition(".")[2]) == name:
            return FieldPlace(top)
    around = {preference.partition(".")[0] for preference in form_request.formats.omissible.fields if "." in preference}
    for top in around & fields.keys():
        if (inner := _within(fields[top], (name,))) is not None:
            return FieldPlace(top, inner)
    return None


def _within(value: msgspec.Raw, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names of a path within an object; None: no such path. Pydantic's paths also name union types."""
    names = list[str]()
    for number, name in enumerate(path):
        inner = _object(bytes(value))
        own = next((each for each in inner if spelt(each) == name), None)
        if own is not None:
            names.append(own)
            value = inner[own]
        elif number == len(path) - 1:
            return None
    return tuple(names)


def spelt(name: str) -> str:
    """Return a field's name, or path, as refusals of Google's spell it: ``generation_config.top_k``."""
    return _HUMP.sub(lambda hump: f"_{hump[0]}", name).lower()


def _object(value: bytes) -> Mapping[str, msgspec.Raw]:
    if value[:1] != b"{" or len(value) > _LARGEST_OBJECT:
        return {}
    try:
        return _objects.decode(value)
    except UNREADABLE:
        return {}


def _list(value: msgspec.Raw) -> list[Any]:
    listed = _decoded(value)
    return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []
