"""The JSON Schema of the configuration file, for editors: that of ``Settings``, with what the file allows in addition.

The file may have references in place of numbers (``port: ${PORT}``), and keys without a value. What a schema cannot
express, such as names that must exist elsewhere in the file, is left to ``holeshot check``.
"""

from collections.abc import Iterator
from typing import Any

from gateway.settings.model import Settings

FILE_NAME = "gateway.schema.json"  # in the folder of the configuration
EDITOR_LINE = f"# yaml-language-server: $schema={FILE_NAME}\n"  # the first line of a configuration: editors look for it
DIALECT = "http://json-schema.org/draft-07/schema#"  # known to all editors
_REFERENCE = "Reference"
_REFERENCES: dict[str, Any] = {
    "type": "string",
    "description": "A reference: ${NAME} or ${NAME:-default}, os.environ/NAME, file:/path.",
    "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}|^os\.environ/.|^file:(/|\./|\.\./)",
}
_NOT_ANY_TEXT = ("enum", "const", "pattern")  # a string with one of these does not accept a reference by itself
_NESTED = ("anyOf", "allOf", "oneOf")


def json_schema() -> dict[str, Any]:
    """Return the schema: unknown keys are rejected, and a reference is allowed for every value."""
    schema = Settings.model_json_schema()
    # A provider of the catalog needs no settings at all: `groq:` alone is enough.
    _allow(schema["properties"]["providers"]["additionalProperties"], {"type": "null"})
    for node in reversed(list(_nodes(schema))):  # the inner ones first: a changed node hides its original
        _loosen(node)
    schema["$defs"][_REFERENCE] = _REFERENCES
    return {"$schema": DIALECT, **schema, "title": "Configuration of Holeshot"}


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield ``schema`` and every schema in it."""
    yield schema
    inner = [*schema.get("$defs", {}).values(), *schema.get("properties", {}).values()]
    inner += [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    inner += [each for key in _NESTED for each in schema.get(key, ())]
    for each in inner:
        yield from _nodes(each)


def _loosen(node: dict[str, Any]) -> None:
    """Allow in ``node`` what the file allows beyond the types; remove pydantic's titles, which repeat the names."""
    for name, field in node.get("properties", {}).items():
        field.pop("title", None)
        if field.get("default") == "**********":  # a secret, masked
            del field["default"]
        if name not in node.get("required", ()):
            _allow(field, {"type": "null"})
    kind = node.get("type")
    if kind in {"integer", "number", "boolean"} or (kind == "string" and any(key in node for key in _NOT_ANY_TEXT)):
        _allow(node, {"$ref": f"#/$defs/{_REFERENCE}"})


def _allow(node: dict[str, Any], alternative: dict[str, Any]) -> None:
    """Make ``node`` accept ``alternative`` too."""
    if "anyOf" not in node:
        about: dict[str, Any] = {key: node.pop(key) for key in ("description", "default", "title") if key in node}
        before = dict(node)
        node.clear()
        node |= {**about, "anyOf": [before]}
    if alternative not in node["anyOf"]:
        node["anyOf"].append(alternative)
