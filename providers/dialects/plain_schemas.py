"""Schemas in the few words that every server takes, for servers that refuse others.

For example, older servers of Google's refuse ``additionalProperties`` (400 "Unknown name"), and Moonshot's a type
beside ``anyOf``. The words that are left say the same as before or less. A rule that is left out goes into the
description, where the model can read the rule: ``{"type": "integer", "description": "the page {minimum: 1}"}``.
That is for tools. The schema of an answer is a must: it gets plain words only if they say the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from providers.dialects.wording import Fields, Loss, Wording, raw_json
from providers.refusals import UNREADABLE

Schema = dict[str, Any]
NOT_TAKEN: Final = "this provider refuses words of JSON Schema: rules are told in the descriptions"
_AROUND: Final = frozenset(
    {"format", "function", "functionDeclarations", "function_declarations", "json_schema", "tools"}
)  # what has tools or schemas in it, below a request's tools and formats
HOLDERS: Final = {name: name for name in ("input_schema", "parameters", "schema")}  # fields with schemas
_PLAIN: Final = frozenset({"description", "enum", "items", "properties", "required", "type"})
# These say nothing that an answer could break, or what a model does anyway.
_UNTOLD: Final = frozenset(
    {"$comment", "$defs", "$id", "$schema", "additionalProperties", "definitions", "defs", "nullable", "title"}
)
# Without these, a schema says the same: of ``additionalProperties`` only ``true`` and ``false``, as nobody adds any.
_SAME: Final = _UNTOLD - {"nullable"}
_LONGEST_TOLD: Final = 200  # characters of a rule in a description
_LEVELS: Final = 24  # of a schema: one that contains itself ends there
_ALTERNATIVES: Final = ("anyOf", "oneOf")


class PlainSchema:
    """A schema in plain words, and the words that it has lost; ``is_weaker``: it allows what the given one forbids."""

    def __init__(self, schema: Schema) -> None:
        self.lost: dict[str, None] = {}  # in order
        self.is_weaker = False
        self._root = schema
        self.plain = self._plain(schema, _LEVELS)

    def _plain(self, given: Any, levels: int) -> Schema:
        schema = self._joined(given if isinstance(given, dict) else {}, levels)
        told = [self._told(name, value) for name, value in schema.items() if name not in _PLAIN]
        plain: Schema = {"type": _type_of(schema)}
        if isinstance(schema.get("description"), str):
            plain["description"] = schema["description"]
        if (kinds := _types(schema)) != [plain["type"]]:
            told += [self._told("type", kinds)] if len(kinds) > 1 else []
            self.lost["type"] = None
        if isinstance(values := schema.get("enum"), list):
            texts = [value for value in values if isinstance(value, str) and value]
            if len(texts) == len(values) and plain["type"] == "string":
                plain["enum"] = texts
            else:
                told.append(self._told("enum", values))
        if plain["type"] == "object" and isinstance(own := schema.get("properties"), dict) and levels:
            plain["properties"] = {name: self._plain(each, levels - 1) for name, each in own.items()}
            required = schema.get("required")
            if names := [name for name in required if name in own] if isinstance(required, list) else []:
                plain["required"] = names
        if plain["type"] == "array":
            plain["items"] = self._plain(schema.get("items"), levels - 1) if levels else {"type": "string"}
        if rules := ", ".join(filter(None, told)):
            before = plain.get("description")
            plain["description"] = f"{before} {{{rules}}}" if before else f"{{{rules}}}"
        return plain

    def _joined(self, schema: Schema, levels: int) -> Schema:
        """Return a schema with what it refers to, with all that it must match, and with its first alternative."""
        if levels <= 0:
            self.is_weaker = True
            return {"type": "object"}
        reference = schema.get("$ref")
        if isinstance(reference, str):
            self.lost["$ref"] = None
            beside = {name: value for name, value in schema.items() if name != "$ref"}
            return {**self._joined(self._named(reference), levels - 1), **beside}
        if "const" in schema:
            self.lost["const"] = None
            schema = {"enum": [schema["const"]], **{name: value for name, value in schema.items() if name != "const"}}
        if isinstance(parts := schema.get("allOf"), list):
            self.lost["allOf"], self.is_weaker = None, True
            schema = {name: value for name, value in schema.items() if name != "allOf"}
            for part in parts:
                schema = _both(schema, self._joined(part if isinstance(part, dict) else {}, levels - 1))
        for name in _ALTERNATIVES:
            if isinstance(schema.get(name), list):
                schema = self._with_first(schema, name, levels)
        return schema

    def _with_first(self, schema: Schema, name: str, levels: int) -> Schema:
        """Return a schema with the first of its alternatives; several texts become one list of texts."""
        rest = {word: value for word, value in schema.items() if word != name}
        alternatives = [self._joined(each if isinstance(each, dict) else {}, levels - 1) for each in schema[name]]
        said = [each for each in alternatives if _types(each) != ["null"]]
        self.lost[name] = None
        self.is_weaker |= len(alternatives) > 1
        if not said:
            return rest
        if all(isinstance(each.get("enum"), list) for each in said):
            return {**said[0], "enum": [value for each in said for value in each["enum"]], **rest}
        chosen = {**said[0], **rest}
        if said[1:] and (rule := _short(f"{name}: {_json(schema[name])}")):
            before = chosen.get("description")
            chosen["description"] = f"{before} {{{rule}}}" if before else f"{{{rule}}}"
        return chosen

    def _named(self, reference: str) -> Schema:
        """Return the part of the whole schema to which a reference points; an empty schema if there is none."""
        found: Any = self._root
        for name in reference.removeprefix("#").strip("/").split("/") if reference.startswith("#") else ("",):
            found = found.get(name) if name and isinstance(found, dict) else found if not name else None
        if isinstance(found, dict) and found is not self._root:
            return found
        self.is_weaker = True
        return {"type": "object"}

    def _told(self, name: str, value: Any) -> str:
        self.lost[name] = None
        self.is_weaker |= name not in _SAME or (isinstance(value, dict) and name == "additionalProperties")
        return "" if name in _UNTOLD else _short(f"{name}: {_json(value)}")


def _json(value: Any) -> str:
    return bytes(raw_json(value)).decode()


def _short(rule: str) -> str:
    return rule if len(rule) <= _LONGEST_TOLD else ""


def _types(schema: Schema) -> list[str]:
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    return [each.lower() for each in kinds if isinstance(each, str)]


def _type_of(schema: Schema) -> str:
    """Return the one type of a schema; by what the schema says if it has no type."""
    kinds = [kind for kind in _types(schema) if kind != "null"]
    if kinds:
        return kinds[0]
    if "items" in schema:
        return "array"
    values = schema.get("enum")
    if isinstance(values, list) and values and not isinstance(values[0], str):
        return {bool: "boolean", int: "integer", float: "number"}.get(type(values[0]), "string")
    return "object" if "properties" in schema else "string"


def _both(one: Schema, other: Schema) -> Schema:
    """Return a schema for what matches both."""
    joined = {**other, **one}
    for name in ("properties", "required"):
        mine, its = one.get(name), other.get(name)
        if isinstance(mine, dict) and isinstance(its, dict):
            joined[name] = {**its, **mine}
        elif isinstance(mine, list) and isinstance(its, list):
            joined[name] = [*its, *(each for each in mine if each not in its)]
    return joined


Made = Mapping[str, str]  # the names of fields with schemas, and the names that these get


def with_plain(
    fields: Fields,
    tools: Sequence[str],
    formats: Sequence[str] = (),
    made: Made = HOLDERS,
    written: Callable[[Schema], Schema | None] = lambda s: s,
) -> Wording:
    """Return a request whose tools and formats have schemas in plain words; a format, if these say the same.

    ``written`` puts a plain schema into the API's own form; None: the field is left out.
    """
    said, lost = dict(fields), dict[str, None]()
    for name in (*tools, *formats):
        found: list[PlainSchema] = []
        try:
            value = msgspec.json.decode(fields.get(name, b"null"))
            changed = _within(value, made, written, found)
        except (*UNREADABLE, RecursionError):
            continue
        if changed != value and not (name in formats and any(schema.is_weaker for schema in found)):
            said[name] = raw_json(changed)
            lost |= {f"{name}.{word}": None for schema in found for word in schema.lost}
    return Wording(said, tuple(Loss(path, NOT_TAKEN, nearly=True) for path in lost))


def _within(value: Any, made: Made, written: Callable[[Schema], Schema | None], found: list[PlainSchema]) -> Any:
    if isinstance(value, list):
        return [_within(each, made, written, found) for each in value]
    if not isinstance(value, dict):
        return value
    left: Schema = {}
    for name, each in value.items():
        if name in made and isinstance(each, dict):
            found.append(PlainSchema(each))
            if (schema := written(found[-1].plain)) is not None:
                left[made[name]] = schema
        else:
            left[name] = _within(each, made, written, found) if name in _AROUND else each
    return left
