"""What both directions of translation need of a Gemini request: spellings, nesting, schemas, effort of thinking.

Google's servers take names in ``camelCase`` and in ``snake_case``, one object where a list is expected, and Base64 in
both alphabets. Fields that are translated are read in all of these forms; fields that pass unchanged are not touched.

``generationConfig`` nests the parameters that other APIs have at the top level. In the gateway these parameters are at
the top level too, by names with a dot (``generationConfig.temperature``), so that defaults, maximums and losses can
name them. ``body_of`` puts them back.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from providers.dialects.reading import Object, RawObject, object_at, objects_at
from providers.dialects.wording import (
    BOUND_REASON,
    FORBIDDEN,
    OURS,
    PLAIN,
    Fields,
    Loss,
    Malformed,
    Wording,
    decoded,
    is_null,
    raw_json,
)

CONFIG = "generationConfig"
IN_CONFIG = f"{CONFIG}."
CANDIDATES = f"{IN_CONFIG}candidateCount"  # how many answers are asked for
_OF_THE_URL = frozenset({"model", "stream"})  # parts of the address, and in no body

UNSIGNED = "skip_thought_signature_validator"  # Google's word in place of a signature, for calls of other models
_UNSIGNED_JSON = f'"{UNSIGNED}"'.encode()
_CALLED = re.compile(rb'"function(?:C|_c)all"')
_SIGNATURES = ("thoughtSignature", "thought_signature")

_SNAKE = re.compile(r"_([a-z0-9])")


def camel(name: str) -> str:
    """Return a field's name in the spelling of Google's documents."""
    return _SNAKE.sub(lambda letter: letter[1].upper(), name) if "_" in name else name


def spelt(given: RawObject) -> RawObject:
    """Return an object with the fields' names as Google's documents spell them."""
    return {camel(name): value for name, value in given.items()} if "_" in "".join(given) else given


def spelt_at(raw: msgspec.Raw | None, path: str) -> RawObject:
    """Return an object, values still raw; an empty object if there is none.

    Raises:
        Malformed: ``raw`` is something else.

    """
    return spelt(object_at(raw, path))


def listed_at(raw: msgspec.Raw | None, path: str) -> list[RawObject]:
    """Return a list of objects; an object without a list is its only element.

    Raises:
        Malformed: ``raw`` is something else.

    """
    if raw is None:
        return []
    if bytes(memoryview(raw)[:1]) == b"{":
        return [spelt_at(raw, path)]
    return [spelt(each) for each in objects_at(raw, path)]


def flattened(fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return a body's top level with the fields of ``generationConfig`` beside the others.

    Raises:
        Malformed: the body is not an object.

    """
    flat: dict[str, msgspec.Raw] = {}
    for given, value in fields.items():
        name = camel(given)
        if name == CONFIG:
            flat.update({IN_CONFIG + inner: raw for inner, raw in spelt_at(value, CONFIG).items()})
        else:
            flat[name] = value
    return flat


def body_of(fields: Fields) -> dict[str, msgspec.Raw]:
    """Return the top level of the body that has these fields: the reverse of ``flattened``.

    A ``generationConfig`` beside the fields is the deployment's own: it replaces the client's fields.
    """
    body: dict[str, msgspec.Raw] = {}
    config: RawObject = {}
    for name, value in fields.items():
        if name.startswith(IN_CONFIG):
            config[name[len(IN_CONFIG) :]] = value
        elif name not in _OF_THE_URL:
            body[name] = value
    config.update(object_at(body.get(CONFIG), CONFIG))
    if config:
        body[CONFIG] = raw_json(config)
    return body


def is_said(raw: msgspec.Raw | None) -> bool:
    """Whether a field is there and not null."""
    return raw is not None and not is_null(raw)


def name_in_chat(name: str) -> str:
    """Return a function's name in the letters that chat allows: Gemini's names may have dots and colons."""
    return FORBIDDEN.sub("_", name)


def plain_base64(data: str) -> str:
    """Return Base64 in the usual alphabet with padding: Google's SDK for Python sends the alphabet for URLs."""
    data = data.replace("-", "+").replace("_", "/")
    return data + "=" * (-len(data) % 4)


# Which files Google reads at others' addresses, by the end of the address. Google asks for the kind of file, and takes
# signed addresses (ai.google.dev/gemini-api/docs/file-input-methods, read on 2026-11-28: all models but Gemini 2.0,
# only https).

_AT_ADDRESSES: Mapping[str, str] = {
    **dict.fromkeys(("jpg", "jpeg"), "image/jpeg"),
    **{end: f"image/{end}" for end in ("bmp", "png", "webp")},
    **{end: f"text/{end}" for end in ("css", "csv", "html", "rtf", "xml")},
    "js": "text/javascript",
    "json": "application/json",
    "pdf": "application/pdf",
    "txt": "text/plain",
}
_LONGEST_ADDRESS = 16_384  # characters: a longer address is not searched
_ADDRESS = re.compile(r"https://[^/?#]+/[^?#]*\.(\w+)(?:[?#].*)?", re.DOTALL)


def kind_at(address: str) -> str | None:
    """Return the media type of the file at an address; None if unknown, or if Google does not read such files."""
    found = _ADDRESS.fullmatch(address) if len(address) <= _LONGEST_ADDRESS else None
    return None if found is None else _AT_ADDRESSES.get(found[1].lower())


# Blank parts, which Google's servers refuse. Programs keep such parts from answers that broke off.

_BLANK = re.compile(rb'"text"\s*:\s*"(?:\s|\\[nrt])*"|"parts"\s*:\s*\[\s*\]')
_BLANK_TEXT = re.compile(rb'"(?:\s|\\[nrt])*"')
_OF_TEXTS = frozenset({"text", "thought"})  # a part with these fields alone may be blank
_NO_BLANKS = "this provider takes no parts or turns that say nothing"


def without_blanks(fields: Fields) -> Wording:
    """Return a Gemini request without blank parts, blank turns of the model and blank instructions.

    A blank turn of the user stays: it is the client's own question.

    Raises:
        Malformed: the conversation is not valid in Gemini.

    """
    losses: list[Loss] = []
    said = dict(fields)
    if _BLANK.search(bytes(fields.get("contents", b""))) is not None:
        turns: list[Object] = []
        for number, turn in enumerate(listed_at(fields["contents"], "contents")):
            parts = listed_at(turn.get("parts"), f"contents[{number}].parts")
            left = [part for part in parts if not _is_blank(part)]
            is_models = bytes(turn.get("role", b"")) == b'"model"'
            if (left or is_models) and (len(left) < len(parts) or not parts):
                losses.append(Loss(f"contents[{number}]", _NO_BLANKS, hint=True))
            if left or not is_models:
                turns.append({**turn, "parts": left} if left else turn)
        said["contents"] = raw_json(turns)
    if _BLANK.search(bytes(fields.get("systemInstruction", b""))) is not None:
        parts = listed_at(spelt_at(fields["systemInstruction"], "systemInstruction").get("parts"), "systemInstruction")
        left = [part for part in parts if not _is_blank(part)]
        said["systemInstruction"] = raw_json({"parts": left})
        if not left:
            del said["systemInstruction"]
        losses.append(Loss("systemInstruction", _NO_BLANKS, hint=True))
    return Wording(said, tuple(losses)) if losses else Wording(fields)


def _is_blank(part: RawObject) -> bool:
    return part.keys() <= _OF_TEXTS and _BLANK_TEXT.fullmatch(part.get("text", b'""')) is not None


# Schemas. Gemini's older field has schemas of OpenAPI 3.0, with types in capitals, and numbers of items as strings.

_LISTED = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "$defs", "defs"})
_RENAMED: Mapping[str, str] = {"defs": "$defs", "ref": "$ref"}
_NUMBERS = frozenset({"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"})
_MOST_DIGITS = 18  # the digits of a 64-bit number; Python refuses to read thousands
_DROPPED = frozenset({"propertyOrdering", "example", "nullable"})  # no counterpart, and no rules for an answer


def json_schema_of(schema: Any) -> Any:
    """Return a schema of OpenAPI's form as JSON Schema."""
    if not isinstance(schema, dict):
        return schema
    spelled = ((camel(given), value) for given, value in schema.items())
    made: dict[str, Any] = {
        _RENAMED.get(name, name): _keyword(name, value)
        for name, value in spelled
        if name not in _DROPPED and (name, value) != ("format", "enum")
    }
    if schema.get("nullable") is True and "type" in made:
        made["type"] = [made["type"], "null"]
        if isinstance(made.get("enum"), list):
            made["enum"] = [*made["enum"], None]
    return made


def _keyword(name: str, value: Any) -> Any:
    """Return the value of one keyword in JSON Schema's form."""
    if name in _NAMED and isinstance(value, dict):
        return {key: json_schema_of(one) for key, one in value.items()}
    if name in _LISTED and isinstance(value, list):
        return [json_schema_of(one) for one in value]
    if name in {"items", "additionalProperties"}:
        return json_schema_of(value)
    if isinstance(value, str) and name == "type":
        return value.lower()
    is_number = name in _NUMBERS and isinstance(value, str) and value.isdecimal() and len(value) <= _MOST_DIGITS
    return int(value) if is_number else value


def read_json_schema(raw: msgspec.Raw, path: str) -> Any:
    """Return a raw schema of OpenAPI's form as JSON Schema.

    Raises:
        Malformed: the schema is not an object.

    """
    schema = decoded(raw, dict[str, Any], path)
    try:
        return json_schema_of(schema)
    except RecursionError:
        raise Malformed(f"{path!r} is nested too deeply", path) from None


# How long a model thinks: a level, or a budget of tokens. The figures are those of Google's own translation from
# OpenAI's efforts.

_LEAST_BUDGET_TOKENS = 128  # the least budget of a model that cannot stop thinking
_BUDGETS_TOKENS: Mapping[str, int] = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}
_LEVELS = frozenset({"minimal", "low", "medium", "high"})
HIGHER: Mapping[str, str] = {"xhigh": "high", "max": "high"}  # Gemini has no level above high


def thinking_of(effort: str, *, levels: bool, least: str, budget: int | None = None) -> dict[str, Any] | None:
    """Return the ``thinkingConfig`` for chat's effort, ``least`` at least; None if no effort has this name.

    ``budget``: the client's own budget, if the effort stands for one.
    """
    effort = HIGHER.get(effort, effort)
    if effort not in _BUDGETS_TOKENS:
        return None
    shown: dict[str, Any] = {"includeThoughts": effort != "none"}
    if not levels and budget is not None:
        return shown | {"thinkingBudget": max(_LEAST_BUDGET_TOKENS, min(budget, _BUDGETS_TOKENS["high"]))}
    if not levels:
        return shown | {"thinkingBudget": _BUDGETS_TOKENS[effort] or (0 if least == "none" else _LEAST_BUDGET_TOKENS)}
    return shown | {"thinkingLevel": least if effort in {"none", "minimal"} else effort}


def effort_of(config: RawObject, path: str) -> str | None:
    """Return chat's effort for a ``thinkingConfig``; None where the model is to choose.

    Raises:
        Malformed: a field has another type.

    """
    level = decoded(config.get("thinkingLevel"), str, f"{path}.thinkingLevel")
    if level is not None:
        return level.lower() if level.lower() in _LEVELS else None
    budget = decoded(config.get("thinkingBudget"), int, f"{path}.thinkingBudget")
    if budget is None or budget < 0:  # -1: the model decides
        return None
    if budget == 0:
        return "none"
    if budget < _BUDGETS_TOKENS["medium"]:
        return "low"
    return "medium" if budget < _BUDGETS_TOKENS["high"] else "high"


_THINKING = IN_CONFIG + "thinkingConfig"
# Chat's tiers (ai.google.dev/gemini-api/docs/flex-inference, and priority-inference).
TIERS: Mapping[str, str] = {"flex": "flex", "priority": "priority"}


def without_effort(fields: Fields) -> Wording:
    """Return a Gemini request that does not ask for thinking, for a model that refuses to be asked.

    Raises:
        Malformed: ``thinkingConfig`` is no object.

    """
    if _THINKING not in fields:
        return Wording(fields)
    config = spelt_at(fields[_THINKING], _THINKING)
    asks = {name: value for name, value in config.items() if bytes(value) not in {b"null", b"0", b"false"}}
    losses = (Loss(_THINKING, PLAIN, hint=True),) if asks else ()
    return Wording({name: value for name, value in fields.items() if name != _THINKING}, losses)


def without_foreign(fields: Fields, *, signs: bool) -> Wording:
    """Return a Gemini request without signatures of Anthropic's models; unchanged if there are none.

    ``signs``: the model refuses calls that it has not signed. Calls of other models, and calls whose signature the
    client has lost, get Google's word for an unsigned call, ``UNSIGNED``. Otherwise Google refuses the request:
    "Function call is missing a thought_signature in functionCall parts"
    (ai.google.dev/gemini-api/docs/thought-signatures, read on 2026-11-29).

    Raises:
        Malformed: the conversation is not valid in Gemini.

    """
    raw = bytes(fields.get("contents", b""))
    if OURS not in raw and not (signs and _CALLED.search(raw) is not None):
        return Wording(fields)
    return _without(fields, lambda signature: bytes(signature).startswith(b'"' + OURS), _OF_OTHERS, tells=False)


def without_signatures(fields: Fields) -> Wording:
    """Return a Gemini request without the signatures of thoughts. Calls need a signature: they get ``UNSIGNED``.

    Raises:
        Malformed: the conversation is not valid in Gemini.

    """
    return _without(fields, lambda signature: bytes(signature) != _UNSIGNED_JSON, BOUND_REASON, tells=True)


_OF_OTHERS = "Gemini refuses the signatures of other models' thoughts"


def _without(fields: Fields, is_left_out: Callable[[msgspec.Raw], bool], reason: str, *, tells: bool) -> Wording:
    """Return a request without such signatures. ``tells``: a call that only gets ``UNSIGNED`` is a loss too."""
    losses: list[Loss] = []
    is_changed = False
    said: list[Object] = []
    for number, turn in enumerate(objects_at(fields.get("contents"), "contents")):
        path = f"contents[{number}].parts"
        kept: list[RawObject] = []
        calls: list[RawObject] = []
        for place, part in enumerate(objects_at(turn.get("parts"), path)):
            names = [name for name in _SIGNATURES if name in part and is_left_out(part[name])]
            losses += [Loss(f"{path}[{place}].{name}", reason, hint=True) for name in names]
            left = {name: value for name, value in part.items() if name not in names}
            if "functionCall" in left or "function_call" in left:
                calls.append(left)
            elif names and not left.keys() - {"text", "thought"} and bytes(left.get("text", b'""')) == b'""':
                continue  # the part was there for its signature only
            kept.append(left)
        if calls and not any(name in call for call in calls for name in _SIGNATURES):
            calls[0]["thoughtSignature"] = msgspec.Raw(_UNSIGNED_JSON)
            is_changed = True
            if tells and not losses:
                losses.append(Loss(path, "Google refuses calls without a signature", hint=True))
        if kept:
            said.append({**turn, "parts": kept})
    return Wording({**fields, "contents": raw_json(said)}, tuple(losses)) if losses or is_changed else Wording(fields)
