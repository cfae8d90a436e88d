"""A fault of a shape in a vendor's words: OpenAI's, and those of servers that check with pydantic.

OpenAI's codes and forms are those of its errors in public reports, of which each function names some.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from strict_vendors.shapes import Fault, Path, Shape, Tag, faults
from strict_vendors.vendor import Refused

OPENAI_ERRORS = "https://platform.openai.com/docs/guides/error-codes"
_A = {
    "string": "a string",
    "integer": "an integer",
    "decimal": "a decimal",
    "boolean": "a boolean",
    "array": "an array",
    "object": "an object",
    "anything": "any value",
}


def place(path: Path) -> str:
    """Write a path as OpenAI does: ``messages[0].content``."""
    written = ""
    for step in path:
        if isinstance(step, int):
            written += f"[{step}]"
        elif not isinstance(step, Tag):
            written += f".{step}" if written else step
    return written


def listed(values: Iterable[Any], last: str = "and") -> str:
    """Write values as OpenAI does: ``'a', 'b', and 'c'``."""
    written = [f"'{value}'" for value in values]
    if len(written) < 3:
        return f" {last} ".join(written)
    return f"{', '.join(written[:-1])}, {last} {written[-1]}"


def in_openais_words(fault: Fault, *, unrecognized: bool = False) -> Refused:
    """Return the refusal of a fault, as OpenAI's servers write it.

    ``unrecognized``: chat completions call an unknown field of the request itself an argument
    (https://github.com/open-webui/open-webui/issues/14520), and one within it a parameter, as Responses do
    (https://github.com/1jehuang/jcode/issues/1028).
    """
    where, value, bound = place(fault.path), fault.value, fault.bound
    match fault.kind:
        case "unknown" if unrecognized and len(fault.path) == 1:
            return _refused(fault, f"Unrecognized request argument supplied: {where}", None, None)
        case "unknown":
            return _refused(fault, f"Unknown parameter: '{where}'.", "unknown_parameter", where)
        case "missing":
            return _refused(fault, f"Missing required parameter: '{where}'.", "missing_required_parameter", where)
        case "type":
            wanted = bound if isinstance(bound, list) else [bound]
            one = "one of " if len(wanted) > 1 else ""
            expected = f"{one}{' or '.join(_A[each] for each in wanted)}"
            return _refused(
                fault,
                f"Invalid type for '{where}': expected {expected}, but got {_got(value)} instead.",
                "invalid_type",
                where,
            )
        case "value" | "tag":
            known = f"Supported values are: {listed(bound)}." if len(bound) > 1 else f"Value must be {listed(bound)}."
            return _refused(fault, f"Invalid value: '{value}'. {known}", "invalid_value", where)
        case "pattern":
            return _refused(
                fault,
                f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern"
                f" '{bound}'.",
                "invalid_value",
                where,
            )
        case "low" | "high":
            number = "integer" if isinstance(value, int) and not isinstance(bound, float) else "decimal"
            way, sign, end = (
                ("below minimum", ">=", "below_min") if fault.kind == "low" else ("above maximum", "<=", "above_max")
            )
            return _refused(
                fault,
                f"Invalid '{where}': {number} {way} value. Expected a value {sign} {bound}, but got {value} instead.",
                f"{number}_{end}_value",
                where,
            )
        case "short" | "few" if not value:
            what, article = ("string", "a string") if fault.kind == "short" else ("array", "an array")
            return _refused(
                fault,
                f"Invalid '{where}': empty {what}. Expected {article} with minimum length {bound}, but got an empty {what}"
                " instead.",
                f"empty_{what}",
                where,
            )
        case "short" | "long" | "few" | "many" if not isinstance(value, dict):
            what, article = ("string", "a string") if isinstance(value, str) else ("array", "an array")
            size, way, end = (
                ("short", "minimum", "below_min")
                if fault.kind in {"short", "few"}
                else ("long", "maximum", "above_max")
            )
            return _refused(
                fault,
                f"Invalid '{where}': {what} too {size}. Expected {article} with {way} length {bound}, but got {article}"
                f" with length {len(value)} instead.",
                f"{what}_{end}_length",
                where,
            )
        case "key":
            return _refused(
                fault,
                f"Invalid property name in '{place(fault.path[:-1])}': '{value}' is too long. Expected a string with"
                f" maximum length {bound}, but got a string with length {len(value)} instead.",
                "string_above_max_length",
                place(fault.path[:-1]),
            )
        case _:
            return _refused(
                fault,
                f"Invalid '{where}': too many properties. Expected an object with at most {bound} properties, but got an"
                f" object with {len(value)} properties instead.",
                "object_above_max_properties",
                where,
            )


def _refused(fault: Fault, message: str, code: str | None, param: str | None) -> Refused:
    return Refused(400, message, code=code, param=param, rule=fault.kind, page=fault.page or OPENAI_ERRORS)


def _got(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


PYDANTIC_ERRORS = "https://docs.pydantic.dev/latest/errors/validation_errors/"
_VALID = {
    "string": "a valid string",
    "integer": "a valid integer",
    "decimal": "a valid number",
    "boolean": "a valid boolean",
    "array": "a valid list",
    "object": "a valid dictionary",
}


def pydantics_place(path: Path) -> str:
    """Write a path as pydantic does, with the names of shapes: ``messages.0.content.1.tool_use.id``."""
    return ".".join(map(str, path))


def pydantics_message(fault: Fault) -> str:
    """Return pydantic's message of a fault, without its place."""
    value, bound = fault.value, fault.bound
    match fault.kind:
        case "unknown":
            return "Extra inputs are not permitted"
        case "missing":
            return "Field required"
        case "type":
            wanted = bound[0] if isinstance(bound, list) else bound
            return f"Input should be {_VALID[wanted]}"
        case "value":
            written = [f"'{each}'" for each in bound]
            return f"Input should be {' or '.join([', '.join(written[:-1])] * (len(written) > 1) + written[-1:])}"
        case "tag":
            expected = ", ".join(f"'{each}'" for each in bound)
            return (
                f"Input tag '{value}' found using '{fault.field}' does not match any of the expected tags: {expected}"
            )
        case "low":
            return f"Input should be greater than or equal to {bound}"
        case "high":
            return f"Input should be less than or equal to {bound}"
        case "pattern":
            return f"String should match pattern '{bound}'"
        case "short":
            return f"String should have at least {bound} character{'s' * (bound != 1)}"
        case "long" | "key":
            return f"String should have at most {bound} character{'s' * (bound != 1)}"
        case "few":
            return f"List should have at least {bound} item{'s' * (bound != 1)} after validation, not {len(value)}"
        case "many":
            kind = "Dictionary" if isinstance(value, dict) else "List"
            return f"{kind} should have at most {bound} item{'s' * (bound != 1)} after validation, not {len(value)}"


def first_fault(shape: Shape, body: Any) -> Fault | None:
    """Return the first fault of a body."""
    return next(faults(shape, body), None)


def all_faults(shape: Shape, body: Any) -> Sequence[Fault]:
    """Return all of them."""
    return list(faults(shape, body))
