"""JSON schemas that an answer of Messages is kept to: fewer keywords than chat takes, and objects that are closed."""

from typing import Any

import msgspec

from providers.dialects.messages.losses import Object
from providers.dialects.wording import Malformed

_UNKNOWN = frozenset(  # to its grammar; it answers each with an error
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
_INNER = ("items",)  # where other schemas stand: one
_LISTED = ("allOf", "anyOf")  # a list
_NAMED = ("$defs", "definitions", "properties")  # an object of them


class KeptSchema:
    """A schema as Messages can keep to it.

    An object that says nothing of other properties is closed: what keeps to that keeps to the schema as it was.
    """

    def __init__(self, raw: msgspec.Raw, path: str) -> None:
        """Read the schema at ``path``.

        Raises:
            Malformed: it is no JSON object.

        """
        self.lost: list[str] = []  # paths of what it cannot be kept to
        self._changed = False
        try:
            schema = msgspec.json.decode(raw, type=Object)
            kept = self._keep(schema, path)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Malformed(f"{path!r} is invalid: {error}", path) from None
        self.kept: Any = kept if self._changed else raw  # as it came, where nothing is amiss

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
    """Whether a keyword has a value that Messages keeps to."""
    if name == "additionalProperties":
        return value is False
    return name != "minItems" or value in (0, 1)


def _is_object(schema: Object) -> bool:
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema
