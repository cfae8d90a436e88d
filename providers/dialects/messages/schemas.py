"""JSON schemas for structured output in Messages: fewer keywords than in chat, and closed objects."""

from typing import Any

import msgspec

from providers.dialects.messages.losses import Object
from providers.dialects.wording import Malformed

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
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
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
