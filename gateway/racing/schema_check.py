"""Whether a value is what a client's JSON Schema allows, within a bounded number of steps and without the network.

A schema is untrusted input, and is checked on the event loop: keywords that run regular expressions or compare
everything with everything are passed over; what would take too many steps, is no schema or refers to another document
is not judged.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import create
from referencing import Registry

MOST_STEPS = 10_000  # keywords and their entries looked at; about 15 ms
MOST_BYTES = 64 * 1024  # of a schema
SCHEMAS_KEPT = 64
_STEP_CHARS = 64  # of a constant that is compared
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

_Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]


class _TooMuchError(Exception):
    """The check takes too many steps."""


class _Check:
    """One schema, ready to be checked against."""

    def __init__(self, schema: Any) -> None:
        self._left = MOST_STEPS
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

    def allows(self, value: Any) -> bool:
        self._left = MOST_STEPS
        return bool(self._validator.is_valid(value))

    def _charge(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooMuchError

    def _entries(self, schema: Any) -> Any:
        self._charge(1 + len(schema))
        return schema.items()

    def _charged(self, name: str, keyword: _Keyword) -> _Keyword:
        compares = name in {"const", "enum"}

        def charged(validator: Any, said: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
            if compares:
                self._charge(len(str(said)) // _STEP_CHARS)
            elif isinstance(said, list | dict):
                self._charge(len(said))
            if name != "additionalProperties" or "patternProperties" not in schema:
                yield from keyword(validator, said, instance, schema) or ()

        return charged


def allows(schema: bytes, value: Any) -> bool | None:
    """Return whether ``schema``, JSON, allows ``value``, decoded JSON; None where that cannot be told."""
    if len(schema) > MOST_BYTES:
        return None
    try:
        return _check(schema).allows(value)
    except Exception:  # noqa: BLE001 - whatever a client's schema does to the library, it must not harm the call
        return None


@lru_cache(maxsize=SCHEMAS_KEPT)
def _check(schema: bytes) -> _Check:
    return _Check(msgspec.json.decode(schema))
