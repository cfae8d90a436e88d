"""Checks values against a client's JSON Schema, with a limited number of steps and without network access.

Schema and answer are untrusted, and are checked on the event loop. So keywords are ignored that run regular expressions
(``pattern``) or compare all elements with each other (``uniqueItems``). Steps are counted: for the schema, for each
element that a keyword visits, and for the text of each error, which quotes the answer. There is no judgement by a
schema that needs too many steps, is invalid, or refers to anything but a path within itself (``#/$defs/…``).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import create
from referencing import Registry

from providers import encoded

MOST_STEPS = 10_000  # for schema, elements and errors together; 15 ms at most
MOST_BYTES = 64 * 1024  # of a schema
SCHEMAS_KEPT = 64
_STEP_CHARS = 64  # characters that are compared, quoted or resolved in one step
_STEPS_DEEPER = 6  # steps for each level of a reference's path
_PASSED_OVER = frozenset(
    {
        "$dynamicRef",
        "format",
        "pattern",
        "patternProperties",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)

# The time of these keywords does not depend on the answer's size. Arguments and subschemas are counted apart.
_WALKS_NOTHING = frozenset(
    {
        "$ref",
        "allOf",
        "anyOf",
        "const",
        "dependentRequired",
        "dependentSchemas",
        "enum",
        "if",
        "maxItems",
        "maxProperties",
        "minItems",
        "minProperties",
        "not",
        "oneOf",
        "prefixItems",
        "properties",
        "required",
        "type",
    }
)
_DEEP = frozenset({"const", "dependentRequired", "enum"})  # compared down to the last leaf
# The library misreads a keyword whose value has another type: it takes the letters of a text for elements.
_OF_TYPE: Mapping[str, type] = {
    **dict.fromkeys(("allOf", "anyOf", "enum", "oneOf", "prefixItems", "required"), list),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "properties"), dict),
}
_REFUSE_THEMSELVES = frozenset({"additionalProperties", "items"})  # each ``false`` here is an error of its own

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _TooMuchError(Exception):
    """The check needs too many steps."""


class _NoSchemaError(Exception):
    """A keyword's argument has the wrong type."""


class _Check:
    """One schema, prepared for checks."""

    def __init__(self, schema: Any) -> None:
        self._left = MOST_STEPS
        self._root = schema
        self._value: Any = None  # the answer that is being checked
        self._quoted: int | None = None  # steps to quote the whole answer, once known
        keywords: Mapping[str, _Keyword] = {
            name: self._charged(name, keyword)
            for name, keyword in Draft202012Validator.VALIDATORS.items()
            if name not in _PASSED_OVER
        }
        validator_class = create(
            Draft202012Validator.META_SCHEMA,
            keywords,
            type_checker=Draft202012Validator.TYPE_CHECKER,
            applicable_validators=self._entries,
        )
        self._validator = validator_class(schema, registry=Registry())

    def allows(self, value: Any, most_steps: int) -> bool:
        self._left, self._quoted, self._value = most_steps, None, value
        try:
            return bool(self._validator.is_valid(value))
        finally:
            self._value = None  # answers are not kept

    def _charge(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooMuchError

    def _entries(self, schema: Any) -> Any:
        self._charge(1 + len(schema))
        if "$id" in schema and schema is not self._root:
            raise _TooMuchError  # each reference within such a schema would search all of the schema
        return schema.items()

    def _charged(self, name: str, keyword: _Keyword) -> _Keyword:
        walks, kind = name not in _WALKS_NOTHING, _OF_TYPE.get(name)

        def charged(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            if kind is not None and not isinstance(value, kind):
                raise _NoSchemaError
            if name == "dependentRequired" and not all(isinstance(each, list) for each in value.values()):
                raise _NoSchemaError
            if name in _DEEP:
                self._charge_leaves(value)
            elif name == "$ref":
                self._charge_reference(value)
            elif value is not False or name not in _REFUSE_THEMSELVES:
                self._charge_entries(value)
            if walks and isinstance(instance, list | dict):
                self._charge(len(instance))
            if name != "additionalProperties" or "patternProperties" not in schema:
                for error in keyword(validator, value, instance, schema) or ():
                    self._charge(1 + len(error.message) // _STEP_CHARS)
                    yield error

        return charged

    def _charge_entries(self, value: Any) -> None:
        """Count a keyword's argument, and for each subschema ``false`` an error, which quotes the answer."""
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        self._charge(len(entries))
        if refused := sum(each is False for each in entries):
            if self._quoted is None:
                self._quoted = 1 + len(encoded(self._value)) // _STEP_CHARS
            self._charge(refused * self._quoted)

    def _charge_leaves(self, value: Any) -> None:
        self._charge(1 + len(value) // _STEP_CHARS if isinstance(value, str) else 1)
        if isinstance(value, dict):
            for name, each in value.items():
                self._charge_leaves(name)
                self._charge_leaves(each)
        elif isinstance(value, list):
            for each in value:
                self._charge_leaves(each)

    def _charge_reference(self, value: Any) -> None:
        """Count the steps of a path within the schema. An anchor would need a search of the whole schema."""
        if not isinstance(value, str) or (value != "#" and not value.startswith("#/")):
            raise _TooMuchError
        deeper = max(0, value.count("/") - 2)  # than #/$defs/name
        self._charge(1 + _STEPS_DEEPER * deeper + len(value) // _STEP_CHARS)


def allows(schema: bytes, value: Any, *, of: int = 1) -> bool | None:
    """Whether the JSON ``schema`` allows the decoded ``value``; None if that cannot be decided.

    ``of``: the number of the answer's values, which share the steps.
    """
    if len(schema) > MOST_BYTES:
        return None
    try:
        return _check(schema).allows(value, MOST_STEPS // of)
    except Exception:  # noqa: BLE001 - whatever a client's schema causes in the library, the call must go on
        return None


@lru_cache(maxsize=SCHEMAS_KEPT)
def _check(schema: bytes) -> _Check:
    return _Check(msgspec.json.decode(schema))
