"""What a refusal of a request teaches: the facts by which ``forms.py`` sends the request in another form."""

import re
from collections.abc import Mapping

import msgspec

from providers.dialects import HistoryRules, RequestFormat
from providers.exchange import betas, members
from providers.exchange.forms import (
    ARGUMENTS,
    BLANK,
    CALL_ARGUMENTS,
    DOCUMENT,
    IDS,
    KEPT,
    NULL,
    OF_MAKING,
    OF_USAGE,
    ONLY_BESIDE,
    ROLE,
    SCHEMAS_IN,
    SYSTEM,
    TEXTS,
    WORDS,
    FormRequest,
    be_lax,
    clients_name,
    digest,
    essential,
    forces,
    has_beside,
    has_must,
    limit_below,
    may_lose,
    of_operator,
)
from providers.exchange.places import FieldPlace, Fields, place_of, spelt, value_at, with_humps, within
from providers.exchange.prefill import begun
from providers.exchange.quotes import OF_CLIENTS, named_by_client
from providers.refusals import NOTHING, Betas, Fact, Facts, Kind, RefusalReading, RefusedField
from providers.vendors import (
    DEVELOPER,
    demand_of,
    is_mistaken,
    is_neutral,
    may_go,
    nearest_effort,
    nested_named,
    samples,
)

_TWO_EFFORTS = ("low", "high")  # every known effort is near to one of these
_OF_TYPES = "tools.type"  # some servers refuse even the default, such as ``custom`` in Messages
_XHIGH = b'"xhigh"'
_DISABLED = '"disabled"'
_PRIVATE = frozenset({"client_metadata", "labels", "metadata", "prompt_cache_key", "safety_identifier", "user"})
_EMPTY = re.compile(r'[\s\[\]{},"]{1,40}')  # a text, list or object in which nothing is said
_SHORT = re.compile(r'"[\w.-]{1,40}"|[\d.eE+-]{1,24}|true|false|null', re.ASCII)


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
    for of_part in (_of_instructions, _of_texts, _of_turns, _of_calls, _of_words):
        if facts_of_it := of_part(reading, fields, form_request):
            return facts_of_it
    named = _of_fields(reading, fields, form_request)
    if named is None or any(fact.kind is Kind.MUST for fact in named):
        return tuple(named or _of_forced(reading, fields, form_request))
    facts = [Fact(Kind.SCHEMAS, value=digest(fields, formats), dialect=api)] if reading.of_schemas else []
    facts += named
    if reading.of_thinking and not facts:
        places = (place_of(fields, path) for path in formats.thinking.paths)
        here = reading.of_thinking_here
        facts += [Fact(Kind.FIELD, place.path, dialect=api, passing=here) for place in places if place is not None]
    if (reading.of_effort or reading.of_xhigh) and not facts:  # such a refusal says nothing of other fields
        values = {path: value_at(fields, place) for path in formats.thinking.paths if (place := place_of(fields, path))}
        facts += [
            Fact(Kind.FIELD, path, value=bytes(value).decode(errors="replace"), dialect=api)
            for path, value in values.items()
            if value is not None
            and (reading.of_effort or bytes(value) == _XHIGH)
            and _may_be_told(FieldPlace(path), bytes(value).decode(errors="replace"), formats)
        ]
    facts += _of_limits(reading, fields, form_request)
    is_of_part = any(fact.field.startswith("stream_options.") for fact in facts)
    if reading.of_usage and not is_of_part and may_lose(fields, FieldPlace("stream_options"), form_request) is not None:
        is_named = reading.of_names and not named_by_client(fields).isdisjoint(OF_USAGE)
        facts.append(Fact(Kind.FIELD, "stream_options", dialect=api, passing=is_named))
    if (reading.of_history or reading.of_roles) and formats.vendors.with_history is not None:
        only = ROLE if reading.of_roles and _has_developer(fields, formats) else ""
        facts.append(Fact(Kind.HISTORY, only, dialect=api))
    return (
        tuple(dict.fromkeys(facts))
        or _of_forced(reading, fields, form_request)
        or (_of_value if reading.mentions_value else _of_mentioned)(reading, fields, form_request)
    )


def _of_instructions(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a model takes no system prompt, if the request has one."""
    without_system = form_request.formats.vendors.without_system
    if not reading.of_instructions or without_system is None or not without_system(fields).losses:
        return NOTHING
    return (Fact(Kind.HISTORY, SYSTEM, dialect=form_request.api),)


def _of_texts(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that Messages are taken with a text in place of a list of texts, if the request has such lists.

    In chat such a refusal demands the strictest history.
    """
    with_history = form_request.formats.vendors.with_history
    if not reading.of_texts or with_history is None:
        return NOTHING
    is_other = with_history(fields, HistoryRules(plain_blocks=True)).fields is not fields
    return (Fact(Kind.HISTORY, TEXTS, dialect=form_request.api),) if is_other else NOTHING


def _of_turns(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a model takes no such turns, or blocks in turns, whatever field or value a refusal names."""
    formats, api = form_request.formats, form_request.api
    if reading.of_prefill and begun(fields, formats) is not None:
        return (Fact(Kind.PREFILL, dialect=api),)
    if (fitted := formats.vendors.with_history) is None:
        return NOTHING
    if reading.of_blanks and fitted(fields, HistoryRules(blank_turns=False)).losses:
        return (Fact(Kind.HISTORY, BLANK, dialect=api),)
    if reading.of_system or reading.of_ids is not None:
        letters, longest = reading.of_ids or ("", 0)
        return (Fact(Kind.HISTORY, IDS if letters else "", value=letters, dialect=api, tokens=longest),)
    if not reading.of_documents or b'"document"' not in bytes(fields.get(formats.prompt, b"")):
        return NOTHING
    must = Fact(Kind.MUST, formats.prompt, value=DOCUMENT, dialect=api)
    return (must,) if has_must(must, fields, formats) else (Fact(Kind.HISTORY, DOCUMENT, dialect=api),)


def _of_calls(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a name of a tool, or the arguments of a call, are not taken, if the request has such."""
    formats = form_request.formats
    if reading.of_calls == CALL_ARGUMENTS and formats.vendors.with_history is not None:
        fitted = formats.vendors.with_history(fields, HistoryRules(blank_arguments=False))
        if fitted.fields is not fields:
            return (Fact(Kind.HISTORY, ARGUMENTS, dialect=form_request.api),)
    must = Fact(Kind.MUST, formats.prompt, value=reading.of_calls, dialect=form_request.api)
    return (must,) if reading.of_calls and has_must(must, fields, formats) else NOTHING


def _of_words(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that schemas are taken in plain words alone, if the request has others.

    A path below a schema names one of its words: ``tools[0].function_declarations[0].parameters.additionalProperties``.
    """
    plain = form_request.formats.vendors.with_plain_schemas
    names = (*form_request.formats.tools.offered, *form_request.formats.json_formats)
    own = {spelt(name.partition(".")[0]) for name in names}
    is_below = any(
        refused.path[0] in own
        and not SCHEMAS_IN.isdisjoint(map(spelt, refused.path[1:]))
        and OF_CLIENTS.isdisjoint(refused.path[-2:-1])  # the client's own name, as of a property called ``strict``
        for refused in reading.fields
    )
    if plain is None or not (is_below or reading.of_words) or plain(fields).fields == fields:
        return NOTHING
    return (Fact(Kind.SCHEMAS, WORDS, dialect=form_request.api),)


def _of_limits(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> list[Fact]:
    """Return what a refusal says of the longest or shortest answer, or of the room beside this request's prompt."""
    if reading.least:
        parameters = form_request.formats.parameters
        least = (
            Fact(Kind.LEAST, name, dialect=form_request.api, tokens=reading.least) for name in parameters.answer_limits
        )
        return [fact for fact in least if limit_below(fields, fact, form_request)]
    most = reading.longest or reading.room.left_by(fields)
    if not most or not form_request.request.is_ceiling:
        return []
    limits, here = form_request.formats.parameters.answer_limits, not reading.longest
    facts = [
        Fact(Kind.LIMIT, name, dialect=form_request.api, tokens=most, passing=here) for name in limits if name in fields
    ]
    together = reading.room.fact_of(fields) if here else None
    return facts if together is None else [*facts, together]


def _has_developer(fields: Fields, formats: RequestFormat) -> bool:
    """Whether a conversation has the role ``developer``, which can be named system."""
    return formats.vendors.takes_quirks and DEVELOPER in bytes(fields.get(formats.prompt, b""))


def _of_betas(
    refused_betas: Betas, fields: Fields, headers: Mapping[str, str], form_request: FormRequest
) -> Facts | None:
    """Return the facts that the vendor takes no such betas; None if the request has none.

    The betas are those that the refusal names; if it names none, those that the body does not need, or else all, in
    one fact about all of them together. If the request needs a beta, the fact says that other deployments are asked.
    """
    own = of_operator(form_request.request)
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


def _of_forced(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a model calls no forced tool while it thinks, if the refusal says so, and one was forced."""
    formats = form_request.formats
    if not reading.of_forced or formats.thinking.forbidding is None or not forces(fields, formats):
        return NOTHING
    return (Fact(Kind.FORCED, reading.of_forced, dialect=form_request.api),)


def _of_fields(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> list[Fact] | None:
    """Return what to do about the fields that a refusal names; None if the request may not lose one of them.

    Such a field alone, if no request with the field is taken: then others are asked first.
    """
    formats, api, facts = form_request.formats, form_request.api, list[Fact]()
    of_client = named_by_client(fields) if reading.of_names else frozenset[str]()
    of_turns = {"role": reading.of_roles, "content": reading.of_history}  # what is known of the turns otherwise
    for refused in reading.fields:
        # The name may be the API's field, or a name that the client gave something. The next answer does not tell which
        # of the two was refused; a path would.
        of_this_alone = {"passing": True} if len(refused.path) == 1 and refused.path[0] in of_client else {}
        if (member := _member_of(refused, fields, form_request)) is not None:
            facts.append(msgspec.structs.replace(member, **of_this_alone))
        elif (refused.path[0] == formats.prompt and of_turns.get(refused.path[-1])) or (
            reading.least and refused.is_of_value and refused.path[-1] in formats.parameters.answer_limits
        ):
            continue
        elif refused.path[0] == formats.prompt:
            if formats.vendors.with_history is not None and refused.is_of_value and refused.path[-1] == "role":
                facts.append(Fact(Kind.HISTORY, dialect=api))
                continue
            if formats.vendors.with_history is None or refused.path[-1] not in OF_MAKING or refused.is_of_value:
                return None
            facts.append(Fact(Kind.HISTORY, refused.path[-1], dialect=api))
        elif (place := _find(fields, refused.path, form_request)) is not None:
            if (fact := _fact_of(refused, place, fields, form_request)) is None:
                must = Fact(Kind.MUST, clients_name(place, form_request), dialect=api)
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
    if len(refused.path) > 1 and refused.path[0] not in _PRIVATE:  # in these the names are the client's own
        of_member = _of_fields(reading._replace(fields=(refused,)), fields, form_request)
        if of_member and of_member[0].kind is not Kind.MUST:
            return tuple(of_member)
    place = _find(fields, refused.path, form_request) if refused.path else None
    if place is None or place.top in form_request.request.extra_body or is_mistaken(place.path, fields):
        return NOTHING
    value = bytes(value_at(fields, place) or b"").decode(errors="replace")
    only = value if _may_be_told(place, value, form_request.formats) else ""
    # A value of these is not kept, so the fact is of any value: of a whole field whose value the words do not mean.
    is_private = place.top in _PRIVATE and (len(refused.path) > 1 or reading.is_of_foreign_value)
    is_clients = _may_be_clients(reading, fields) or is_private
    if may_lose(fields, place, form_request) is not None:
        if not only and value.startswith('"') and place.top not in _PRIVATE:
            return NOTHING  # the client's own text, and no vendor's value
        return (Fact(Kind.FIELD, place.path, value=only, dialect=form_request.api, passing=is_clients),)
    is_kept = place.top in KEPT | essential(form_request.formats)
    if is_kept or not _is_must(refused, place, form_request):
        return NOTHING
    if value.startswith('"'):
        only = ""  # a text that is no preference is the client's own
        is_clients = is_clients or reading.is_of_foreign_value
    if _EMPTY.fullmatch(value) is not None:
        only = value
    elif '""' in value:
        is_clients = True  # what is refused may be the empty text, or the whole field
    name, api = clients_name(place, form_request), form_request.api
    return (Fact(Kind.MUST, name, value=only, dialect=api, passing=is_clients),)


def _of_value(reading: RefusalReading, fields: Fields, form_request: FormRequest) -> Facts:
    """Return the fact that a value is refused which others take: a temperature of 1.5, an effort of "max", ``[]``."""
    place = _find(fields, reading.mentioned, form_request)
    if place is None or place.top in form_request.request.extra_body:
        return NOTHING
    value = bytes(value_at(fields, place) or b"").decode(errors="replace")
    effort, is_of_thinking = value.strip('"'), place.path in form_request.formats.thinking.paths
    is_effort = is_of_thinking and nearest_effort(effort, [each for each in _TWO_EFFORTS if each != effort])
    is_chance = samples(place.path) and demand_of(place.path, fields, form_request.request.unchosen) is not None
    if not (is_effort or is_chance or is_neutral(place.path, fields)):
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
    is_alone = refused == RefusedField(("strict",)) and "strict" not in fields  # named alone, without a path
    if (refused.path[-1] == "strict" and refused.path[0] in around) or (
        is_alone and be_lax(dict(fields), Fact(Kind.SCHEMAS, dialect=api), formats)
    ):
        # A wrong value of one request says nothing of others.
        return Fact(Kind.SCHEMAS, value=digest(fields, formats) if refused.is_of_value else "", dialect=api)
    path = f"{refused.path[0]}.{refused.path[-1]}"
    if len(refused.path) == 1 and refused.path[0] not in fields:  # named without its place: ``type``
        path = next((each for each in formats.omissible.in_tools if each.endswith(f".{refused.path[0]}")), path)
    without = formats.omissible.in_tools.get(path)
    if without is not None and len(refused.path) == 1 and without(fields) is fields:
        without = None
    if without is not None and (not refused.is_of_value or (path == _OF_TYPES and without(fields) is not fields)):
        return Fact(Kind.FIELD, path, dialect=api)
    return _listed_member_of(refused, fields, form_request)


def _listed_member_of(refused: RefusedField, fields: Fields, form_request: FormRequest) -> Fact | None:
    """Return that a member of a list's items is left out that is a hint or null; None: there is no such member."""
    alias = form_request.aliases.get(spelt(refused.path[-1]), "")
    member = members.found(fields, alias.split(".") if "." in alias else refused.path, spelt)
    said = b"" if member is None else bytes(member.value or b"")
    if member is not None and said == NULL.encode():
        return Fact(Kind.FIELD, member.path, value=NULL, dialect=form_request.api)
    if member is None or not may_go(member.path, fields):
        return None
    value = said.decode(errors="replace") if refused.is_of_value else ""
    if refused.is_of_value and _SHORT.fullmatch(value) is None:
        return None
    return Fact(Kind.FIELD, member.path, value=value, dialect=form_request.api, passing=refused.is_conditional)


def _fact_of(refused: RefusedField, place: FieldPlace, fields: Fields, form_request: FormRequest) -> Fact | None:
    """Return what to do about a field; None if nothing may be done."""
    api, limits = form_request.api, form_request.formats.parameters.answer_limits
    if place.top in form_request.request.extra_body:
        return None  # the operator has set the field
    if not place.inner and place.top in limits and not refused.is_of_value:
        other = next((name for name in limits if name != place.top and refused.instead in {"", name}), None)
        if other is not None:
            return Fact(Kind.NAME, place.top, other, dialect=api)
    value = bytes(value_at(fields, place) or b"").decode(errors="replace")
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
    if may_lose(fields, place, form_request) is None or not may_tell:
        return None
    only = value if refused.is_of_value else ""
    is_of_others = place.path in ONLY_BESIDE and not has_beside(fields, place)
    is_passing = refused.is_conditional and not is_of_others
    return Fact(Kind.FIELD, place.path, value=only, dialect=api, passing=is_passing)


def _may_be_told(place: FieldPlace, value: str, formats: RequestFormat) -> bool:
    """Whether a value may be in a fact, which the log and the page show: the value must not reveal a client's words."""
    if place.path in formats.thinking.paths:
        return not value.startswith('"') or _SHORT.fullmatch(value) is not None
    if is_neutral(place.path, {place.path: msgspec.Raw(value.encode())}):
        return True  # nobody's words
    return place.top not in _PRIVATE and _SHORT.fullmatch(value) is not None


def _find(fields: Fields, named: tuple[str, ...], form_request: FormRequest) -> FieldPlace | None:
    """Return the place of a field as a refusal names it.

    A refusal may spell the name otherwise (``reasoningEffort``), or leave out the objects around the field
    (``effort`` for ``reasoning.effort``).
    """
    path = tuple(spelt(name) for name in named)
    aliases = form_request.aliases
    if (alias := aliases.get(path[-1], aliases.get(path[0]))) is not None:
        return FieldPlace(alias) if alias in fields else None
    # In other APIs a name with a dot is the client's, and not a path.
    are_paths = form_request.formats.body is not None
    for top, value in fields.items():
        own = tuple(spelt(name) for name in (top.split(".") if are_paths else (top,)))
        if path[: len(own)] == own and (inner := within(value, path[len(own) :])) is not None:
            return FieldPlace(top, inner)
    return _find_one(fields, path[0], form_request) if len(path) == 1 else None


def _find_one(fields: Fields, name: str, form_request: FormRequest) -> FieldPlace | None:
    """Return the place of a field that is named without the objects around it, or by its name in chat."""
    for preference in form_request.formats.thinking.paths:
        if preference.replace(".", "_") == name and (place := place_of(fields, preference)) is not None:
            return place
    for top in fields:
        if "." in top and form_request.formats.body is not None and spelt(top.rpartition(".")[2]) == name:
            return FieldPlace(top)
    around = {preference.partition(".")[0] for preference in form_request.formats.omissible.fields if "." in preference}
    for top in around & fields.keys():
        if (inner := within(fields[top], (name,))) is not None:
            return FieldPlace(top, inner)
    spelled = (own for path in nested_named(name) for own in dict.fromkeys((path, with_humps(path))))
    return next((place for own in spelled if (place := place_of(fields, own)) is not None), None)
