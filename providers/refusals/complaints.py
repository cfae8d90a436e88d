"""Complaints of validators (Ajv, pydantic, zod, JSON:API) as one message that names the fields."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from providers.refusals.texts import LONGEST_TEXT
from providers.refusals.zod_issues import issues_in

# vLLM, Mistral; FastAPI; Cloudflare; zod; Anthropic; Baidu; AWS's Lambda
COMPLAINTS = ("message", "detail", "errors", "issues", "msg", "error_message", "error_msg", "errorMessage")
# Of each in a list of these: Cloudflare; JSON:API; Writer; RFC 7807; pydantic.
_TEXTS = ("message", "detail", "description", "title", "reason", "msg")
# Of an entry: Java's validators; zod; RFC 9457; pydantic; RFC 7807.
_PLACES = ("field", "property", "propertyPath", "param", "path", "pointer", "loc", "name")
# Lists of these, beside a message, or beside the error itself.
PLACED = ("detail", "details", "errors", "issues", "validation", "violations", "invalid_params", "invalid-params")
# Of an error with one field: the names that others have for OpenAI's ``param``.
_PARAMS = ("param", "parameter", "field", "property", "target", "argument")


def with_message(error: dict[str, Any]) -> dict[str, Any]:
    """Return an error whose message also has zod's issues, and the fields that a google.rpc.BadRequest names."""
    message = error.get("message") or next((words_of(said) for name in COMPLAINTS if (said := error.get(name))), "")
    if not message and error.keys().isdisjoint({"code", "type", "status"}):  # ``{"error": {"verbosity": ["unknown"]}}``
        message = words_of(error)
    if isinstance(message, str):
        message = with_places(message, error)
    if "param" not in error and (param := param_named(error)):
        error = {**error, "param": param}
    return error if not message or message == error.get("message") else {**error, "message": message}


def param_named(error: Mapping[str, Any]) -> str | None:
    """Return the name of the field that an error is about, if the error has one; not a sentence."""
    named = (_written(error.get(name)) for name in (*_PARAMS, "loc"))
    return next((each for each in named if each and " " not in each), None)


def _written(place: Any) -> str:
    """Return a path, which may be a list, as a text."""
    return ".".join(map(str, place)) if isinstance(place, list) else place if isinstance(place, str) else ""


def with_places(message: str, error: Mapping[str, Any]) -> str:
    """Return ``message`` with the fields named in lists beside the message: Fastify's ``validation``, zod's issues."""
    entries = [each for name in PLACED for each in _entries(error.get(name)) if isinstance(each, dict)]
    violations = [each for entry in entries for each in as_list(entry.get("fieldViolations")) if isinstance(each, dict)]
    own = [error] if _extra_in(error) else []
    for entry in (*violations, *own, *(each for each in entries if _place_in(each))):
        if len(message) >= LONGEST_TEXT:  # nobody reads more
            break
        said, place = _said_of(entry), _place_in(entry)
        is_told = bool(said) and said in message and re.split("[./]", place)[-1] in message
        about = f"{place}: {said}" if place and said and place not in said else said or place
        if about and not is_told:
            message = f"{message}; {about}" if message else about
    return message


def words_of(error_object: Any) -> str:
    """Return a complaint as a text: ``{"errors": [{"code": 7000, "message": "No such model"}]}`` is Cloudflare's."""
    if isinstance(error_object, str):
        return error_object
    texts = [text for each in _entries(error_object) if (text := _text_of(each))]
    return "; ".join(texts) if texts else msgspec.json.encode(error_object).decode()


def _entries(complaints: Any) -> list[Any]:
    """Return the entries of a list of complaints, of zod's those that come nearest; also of zod's ``fieldErrors``."""
    match complaints:
        case {"fieldErrors": dict(fields)}:
            return [{"path": name, "message": said} for name, texts in fields.items() for said in as_list(texts)]
    return issues_in(complaints) or as_list(complaints)


def _text_of(told: Any) -> str:
    """Return the text in an entry of a list of complaints, and its place; "" if FastAPI's, or without a text."""
    if not isinstance(told, dict):
        return told if isinstance(told, str) else ""
    said, place = _said_of(told), _place_in(told)
    if not told.keys().isdisjoint({"loc", "msg"}) or not said:
        return ""
    return f"{place}: {said}" if place and place not in said else said


def _said_of(told: Mapping[str, Any]) -> str:
    return next((text for name in _TEXTS if isinstance(text := told.get(name), str)), "")


def _place_in(told: Mapping[str, Any]) -> str:
    """Return the field that a complaint is about: JSON:API's pointer, Ajv's property, zod's keys or path; "": none."""
    match told:
        case {"source": {"pointer": str(place)}}:
            return place
        case {"keys": [str(place), *_]}:
            return place
    places = (_extra_in(told), *(_written(told.get(name)).removeprefix("body.") for name in _PLACES))
    return next(filter(None, places), "")


def _extra_in(told: Mapping[str, Any]) -> str:
    """Return the path of a property that Ajv does not allow; "": none."""
    match told:
        case {"params": {"additionalProperty": str(name)}}:
            around = _written(told.get("instancePath")).strip("/").replace("/", ".")
            return f"{around}.{name}" if around else name
    return ""


def as_list(value: Any) -> list[Any]:
    """Return a value that is a list; else []."""
    return value if isinstance(value, list) else []
