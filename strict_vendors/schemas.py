"""JSON schemas: values made after one, and what OpenAI's strict mode refuses of one.

Rules of strict schemas: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_PLAIN: Json = {"integer": 7, "number": 7.5, "boolean": True, "null": None}
_FORMATS = {
    "date-time": "2026-01-02T03:04:05Z",
    "date": "2026-01-02",
    "time": "03:04:05Z",
    "email": "a@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "hostname": "example.com",
    "duration": "PT1S",
}


def sample(schema: Any, *, least: bool = False) -> Any:
    """Return a value that ``schema`` allows, as far as it uses what programs make from their types.

    ``least`` leaves out what need not be there, if it says what must.
    """
    return _sample(schema, schema, "answer", least=least, depth=0)


def _sample(schema: Any, root: Any, name: str, *, least: bool, depth: int) -> Any:
    if not isinstance(schema, dict):
        return f"the {name}"
    if depth > 40 or (chosen := _chosen(schema, root, depth)) is None:
        chosen = schema
    if chosen is not schema:
        return _sample(chosen, root, name, least=least, depth=depth + 1)
    fixed = [schema[word] for word in ("const", "default") if word in schema] + list(schema.get("enum") or [])
    if fixed:
        return fixed[0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    match str(kind[0] if isinstance(kind, list) else kind).lower():
        case "string":
            text = _FORMATS.get(schema.get("format", ""), f"the {name}")
            return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength", len(text) + 999)]
        case "array":
            number = max(schema.get("minItems", 1), 0 if depth > 12 else 1)
            items = schema.get("items", {"type": "string"})
            return [_sample(items, root, name, least=least, depth=depth + 1) for _ in range(number)]
        case "object":
            properties = schema.get("properties") or {}
            required = schema.get("required") or ()
            names = [key for key in properties if key in required] if least and required else list(properties)
            return {key: _sample(properties[key], root, key, least=least, depth=depth + 1) for key in names}
        case "integer" | "number" as plain:
            low, high = schema.get("minimum"), schema.get("maximum")
            value = _PLAIN[plain]
            value = low if low is not None and value < low else value
            return high if high is not None and value > high else value
        case plain:
            return _PLAIN.get(plain)


def _chosen(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    """Return the schema that stands for this one: the one referred to, or the first of several."""
    if "$ref" in schema:
        return referred(root, schema["$ref"])
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            several = schema[word]
            plain = [each for each in several if not _refers(each)] if depth > 6 else several
            return (plain or several)[0]
    return None


def _refers(schema: Any) -> bool:
    return isinstance(schema, dict) and ("$ref" in schema or schema.get("type") in {"object", "array"})


def referred(root: Any, reference: str) -> Any:
    """Return what a ``$ref`` means; None if nothing."""
    found = root
    for step in reference.removeprefix("#").split("/"):
        if step:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


# Lengths, patterns and bounds are taken since 2025 (https://github.com/pydantic/pydantic-ai/pull/4490); ``default`` and
# ``oneOf`` are not (https://github.com/dotnet/extensions/issues/6196, https://github.com/ai-dynamo/dynamo/pull/15153).
STRICT_PAGE = "https://platform.openai.com/docs/guides/structured-outputs#supported-schemas"
_NOT_IN_STRICT = (
    "allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else", "oneOf",
    "patternProperties", "unevaluatedProperties", "propertyNames", "minProperties", "maxProperties",
    "unevaluatedItems", "contains", "minContains", "maxContains", "uniqueItems", "default",
)  # fmt: skip
_STRICT_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
MOST_PROPERTIES, DEEPEST, MOST_ENUM = 5000, 10, 1000


def strict_faults(schema: Any) -> Iterator[str]:
    """Yield what strict mode refuses of a schema, in the words that stand after "In context=…, "."""
    if not isinstance(schema, dict):
        yield "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."
        return
    if schema.get("type") != "object":
        if "anyOf" in schema:
            yield "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        else:
            kind = schema.get("type")
            yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
        return
    yield from _strict(schema, (), schema)


def _strict(schema: Any, path: tuple[str, ...], root: Any) -> Iterator[str]:
    context = f"In context=({', '.join(repr(step) for step in path)}{',' if len(path) == 1 else ''}), "
    if not isinstance(schema, dict):
        yield f"{context}schema must be an object."
        return
    for word in _NOT_IN_STRICT:
        if word in schema:
            yield f"{context}'{word}' is not permitted."
    if (form := schema.get("format")) is not None and form not in _STRICT_FORMATS:
        yield f"{context}'{form}' is not a valid format."
    if "$ref" in schema:
        if not str(schema["$ref"]).startswith("#"):
            yield f"{context}reference can only point to definitions defined at the top level of the schema."
        elif len(schema) > 1:
            yield f"{context}$ref cannot have keywords {{{', '.join(repr(k) for k in schema if k != '$ref')}}}."
    elif not any(word in schema for word in ("type", "anyOf", "enum", "const")):
        yield f"{context}schema must have a 'type' key."
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "object" in kinds:
        if schema.get("additionalProperties") is not False:
            yield f"{context}'additionalProperties' is required to be supplied and to be false."
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        missing = [name for name in properties if not isinstance(required, list) or name not in required]
        extra = [name for name in required or () if name not in properties]
        if (properties and not isinstance(required, list)) or missing or extra:
            yield (
                f"{context}'required' is required to be supplied and to be an array including every key in properties."
                + (f" Missing '{missing[0]}'." if missing else f" Extra required key '{extra[0]}' supplied.")
            )
        for name, entry in properties.items():
            yield from _strict(entry, (*path, "properties", name), root)
    if "array" in kinds:
        if "items" not in schema:
            yield f"{context}array schema missing items."
        else:
            yield from _strict(schema["items"], (*path, "items"), root)
    for number, entry in enumerate(schema.get("anyOf") or ()):
        yield from _strict(entry, (*path, "anyOf", str(number)), root)
    for word in ("$defs", "definitions"):
        for name, entry in (schema.get(word) or {}).items():
            yield from _strict(entry, (*path, word, name), root)


def plain_faults(schema: Any) -> Iterator[str]:
    """Yield what is refused of any function's parameters, strict or not."""
    if not isinstance(schema, dict):
        return
    if schema.get("type", "object") != "object":
        yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{schema.get('type')}\"'."
    elif schema.get("type") == "object" and "properties" not in schema and not schema.get("additionalProperties"):
        yield "In context=(), object schema missing properties."
    elif any(word in schema for word in ("oneOf", "anyOf", "allOf", "enum", "not")):
        yield "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
    yield from _arrays_without_items(schema, ())


def _arrays_without_items(schema: Any, path: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "array" and "items" not in schema:
        yield f"In context=({', '.join(map(repr, path))}), array schema missing items."
    for name, entry in (schema.get("properties") or {}).items():
        yield from _arrays_without_items(entry, (*path, "properties", name))
    if isinstance(schema.get("items"), dict):
        yield from _arrays_without_items(schema["items"], (*path, "items"))
