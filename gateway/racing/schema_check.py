"""Whether a value is what a client's JSON Schema allows, within a bounded number of steps and without the network.

A schema is untrusted input, and so is an answer; both are checked on the event loop. Keywords that run regular
expressions or compare everything with everything are passed over. Each step of the schema is charged, each element of
the answer that a keyword walks, and the text of each error, which quotes the answer. What would take too many steps,
is no schema, or refers to anything but a place in it by its path (``#/$defs/…``) is not judged.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import create
from referencing import Registry

MOST_STEPS = 10_000  # of the schema, the elements of the answer and the errors; 15 ms at most
MOST_BYTES = 64 * 1024  # of a schema
SCHEMAS_KEPT = 64
_STEP_CHARS = 64  # of text that is compared, quoted or resolved: one step
_STEPS_DEEPER = 6  # a level of a reference's path takes as long as so many other steps
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

# These take no longer for a longer answer; what they are told and what they descend to is charged by itself.
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
_DEEP = frozenset({"const", "dependentRequired", "enum"})  # are compared to the last leaf
_REFUSE_THEMSELVES = frozenset(
    {"additionalProperties", "items"}
)  # where they are ``false``, with an error of their own

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _TooMuchError(Exception):
    """The check takes too many steps."""


class _Check:
    """One schema, ready to be checked against."""

    def __init__(self, schema: Any) -> None:
        self._left = MOST_STEPS
        self._root = schema
        self._value: Any = None  # the answer, while it is checked
        self._quoted: int | None = None  # steps that it takes to quote the whole answer, once that is known
        keywords: Mapping[str, _Keyword] = {
            name: self._charged(name, keyword)
            for name, keyword in Draft202012Validator.VALIDATORS.items()
            if name not in _PASSED_OVER
        }
        made = create(
            Draft202012Validator.META_SCHEMA,
            keywords,
            type_checker=Draft202012Validator.TYPE_CHECKER,
            applicable_validators=self._entries,
        )
        self._validator = made(schema, registry=Registry())

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
            raise _TooMuchError  # references from within it search the whole schema, each time
        return schema.items()

    def _charged(self, name: str, keyword: _Keyword) -> _Keyword:
        walks = name not in _WALKS_NOTHING

        def charged(validator: Any, said: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            if name in _DEEP:
                self._charge_leaves(said)
            elif name == "$ref":
                self._charge_reference(said)
            elif said is not False or name not in _REFUSE_THEMSELVES:
                self._charge_entries(said)
            if walks and isinstance(instance, list | dict):
                self._charge(len(instance))
            if name != "additionalProperties" or "patternProperties" not in schema:
                for error in keyword(validator, said, instance, schema) or ():
                    self._charge(1 + len(error.message) // _STEP_CHARS)
                    yield error

        return charged

    def _charge_entries(self, said: Any) -> None:
        """Charge what a keyword is told, and each subschema ``false`` for its error, which quotes the answer."""
        entries = said.values() if isinstance(said, dict) else said if isinstance(said, list) else (said,)
        self._charge(len(entries))
        if refused := sum(each is False for each in entries):
            if self._quoted is None:
                self._quoted = 1 + len(msgspec.json.encode(self._value)) // _STEP_CHARS
            self._charge(refused * self._quoted)

    def _charge_leaves(self, said: Any) -> None:
        self._charge(1 + len(said) // _STEP_CHARS if isinstance(said, str) else 1)
        if isinstance(said, dict):
            for name, each in said.items():
                self._charge_leaves(name)
                self._charge_leaves(each)
        elif isinstance(said, list):
            for each in said:
                self._charge_leaves(each)

    def _charge_reference(self, said: Any) -> None:
        """Charge a path within the schema, step by step. An anchor would be searched for in the whole schema."""
        if not isinstance(said, str) or (said != "#" and not said.startswith("#/")):
            raise _TooMuchError
        deeper = max(0, said.count("/") - 2)  # than #/$defs/name
        self._charge(1 + _STEPS_DEEPER * deeper + len(said) // _STEP_CHARS)


def allows(schema: bytes, value: Any, *, of: int = 1) -> bool | None:
    """Return whether ``schema``, JSON, allows ``value``, decoded JSON; None where that cannot be told.

    It is one of ``of`` values in an answer, which share the steps.
    """
    if len(schema) > MOST_BYTES:
        return None
    try:
        return _check(schema).allows(value, MOST_STEPS // of)
    except Exception:  # noqa: BLE001 - whatever a client's schema does to the library, it must not harm the call
        return None


@lru_cache(maxsize=SCHEMAS_KEPT)
def _check(schema: bytes) -> _Check:
    return _Check(msgspec.json.decode(schema))
