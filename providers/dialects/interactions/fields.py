"""What both directions need of an interaction's request: its nesting, the steps of its input, and its errors.

``generation_config`` nests the parameters that other APIs have at the top level. In the gateway these parameters are at
the top level too, by names with a dot (``generation_config.temperature``), so that defaults, maximums and losses can
name them. ``body_of`` puts them back. An agent's name has a field of its own (``agent``); in the gateway the agent is
the model.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from providers.bodies import encoded
from providers.dialects.gemini.fields import UNSIGNED
from providers.dialects.meanings import Details
from providers.dialects.reading import RawObject, object_at
from providers.dialects.wording import Fields, Malformed, is_null, is_string, raw_json
from providers.refusals import UNREADABLE, ErrorKind

CONFIG = "generation_config"
IN_CONFIG = f"{CONFIG}."
AGENT = "agent"


def flattened_interaction(fields: Mapping[str, msgspec.Raw]) -> dict[str, msgspec.Raw]:
    """Return a body's top level with the fields of ``generation_config`` beside the others.

    Raises:
        Malformed: the body is not an object.

    """
    flat = {name: value for name, value in fields.items() if name != CONFIG}
    if CONFIG in fields:
        flat.update({IN_CONFIG + name: value for name, value in object_at(fields[CONFIG], CONFIG).items()})
    return flat


def body_of(fields: Fields) -> dict[str, msgspec.Raw]:
    """Return the top level of the body that has these fields: the reverse of ``flattened_interaction``.

    A ``generation_config`` beside the fields is the deployment's own: its fields replace the client's.
    """
    body: dict[str, msgspec.Raw] = {}
    config: RawObject = {}
    for name, value in fields.items():
        if name.startswith(IN_CONFIG):
            config[name[len(IN_CONFIG) :]] = value
        else:
            body[name] = value
    config.update(object_at(body.get(CONFIG), CONFIG))
    if config:
        body[CONFIG] = raw_json(config)
    if AGENT in body and "model" in body:
        body[AGENT] = body.pop("model")
    return body


# The input: a text, a content, a list of contents, or the steps of a conversation. All of these become steps.

CONTENTS = frozenset({"audio", "document", "image", "text", "video"})  # the types of contents; all others are of steps


class _Typed(msgspec.Struct, gc=False):
    type: str | None = None


_typed = msgspec.json.Decoder(_Typed)
_lists = msgspec.json.Decoder(list[msgspec.Raw])


def steps_of(prompt: msgspec.Raw | None) -> list[bytes] | None:
    """Return each step of an ``input``; None: the input is no text, no object and no array of objects."""
    if prompt is None or is_null(prompt):
        return []
    if is_string(prompt):
        return [_users(b'{"type":"text","text":%b}' % bytes(prompt).strip())]
    try:
        if bytes(memoryview(prompt)[:1]) == b"{":
            return [_users(bytes(prompt)) if _typed.decode(prompt).type in CONTENTS else bytes(prompt)]
        given = _lists.decode(prompt)
        if given and _typed.decode(given[0]).type in CONTENTS:
            return [_users(b",".join(map(bytes, given)))]
    except UNREADABLE:
        return None
    return [bytes(each) for each in given]


def _users(contents: bytes) -> bytes:
    return b'{"type":"user_input","content":[%b]}' % contents


def items_of(prompt: msgspec.Raw | None) -> bytes | None:
    """Return the steps of an ``input``, as JSON without the brackets; None: the input has no steps."""
    steps = steps_of(prompt)
    return None if steps is None else b",".join(steps)


# Steps of the model. "Replayed model turns that contain function_call but no cryptographic thought signature cause 400
# Invalid Argument". Google accepts a thought with its word for "unsigned" before these calls
# (github.com/earendil-works/pi/pull/2172, read on 2026-11-29).
_OF_MODEL = frozenset({"model_output", "thought", "function_call"})
_UNSIGNED_THOUGHT: Mapping[str, Any] = {"type": "thought", "signature": UNSIGNED}


def with_signed_calls(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return steps in which each turn of the model with a call is signed: a turn without a signature gets ``UNSIGNED``.

    A step's values may still be raw.
    """
    said: list[Mapping[str, Any]] = []
    begun, is_signed = 0, False
    for step in steps:
        given = step.get("type", "")
        kind = given if isinstance(given, str) else bytes(given).decode().strip('"')
        if kind not in _OF_MODEL:
            begun, is_signed = len(said) + 1, False
        elif kind == "thought" and is_said_in(step, "signature"):
            is_signed = True
        elif kind == "function_call" and not is_signed:
            said.insert(begun, _UNSIGNED_THOUGHT)
            is_signed = True
        said.append(step)
    return said


def is_said_in(step: Mapping[str, Any], name: str) -> bool:
    """Whether a step has a field that is not null; the step's values may still be raw."""
    value = step.get(name)
    return bool(value) and not (isinstance(value, msgspec.Raw) and is_null(value))


def without_empty_required(schema: Any) -> Any:
    """Return a schema without empty lists of required properties: by the same report they are a 400."""
    if isinstance(schema, list):
        return [without_empty_required(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: without_empty_required(value)
        for name, value in schema.items()
        if not (name == "required" and value == [])
    }


def step_objects(fields: Fields) -> list[RawObject]:
    """Return the steps of a request's input, values still raw.

    Raises:
        Malformed: the input has no steps.

    """
    steps = steps_of(fields.get("input"))
    if steps is None:
        raise Malformed("'input' must be a text, a content, or an array of contents or steps", "input")
    return [object_at(msgspec.Raw(step), f"input[{number}]") for number, step in enumerate(steps)]


# Errors: a word and a message, {"error": {"code": "invalid_request", "message": …}}. Words up to 429 are those of
# ai.google.dev/gemini-api/docs/api-errors, read on 2026-11-30. The rest of that page was not found, so the other words
# are Google's words for HTTP's statuses in lower case. Google's SDKs go by the status. Older words are those of
# github.com/allenhutchison/gemini-cli-deep-research/issues/73 and the tests of google-genai 3.6.1.

_WORDS: Mapping[int, str] = {
    400: "invalid_request",
    401: "authentication",
    402: "payment_required",
    403: "permission_denied",
    404: "not_found",
    409: "aborted",
    416: "out_of_range",
    422: "invalid_request",
    424: "failed_precondition",
    429: "rate_limit_exceeded",
    499: "cancelled",
    500: "internal",
    502: "unavailable",
    503: "unavailable",
    504: "deadline_exceeded",
}
_STATUS_OF_KIND: Mapping[str, int] = {  # all other kinds are errors of the gateway or the provider
    **{kind: kind.status for kind in ErrorKind if kind.status is not None},
    **{word: status for status, word in reversed([*_WORDS.items()])},
    "model_not_found": 404,
    "parameter_unknown": 400,
    "quota_exceeded": 429,
    "too_many_requests": 429,  # an older word
    "unauthenticated": 401,  # an older word
    "INVALID_ARGUMENT": 400,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "NOT_FOUND": 404,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "DEADLINE_EXCEEDED": 504,
    "FAILED_PRECONDITION": 424,
}
_FIRST_SERVER_STATUS = 500


def error_word(status: int) -> str:
    """Return the word for this HTTP status."""
    return _WORDS.get(status) or ("internal" if status >= _FIRST_SERVER_STATUS else "invalid_request")


def error_body(status: int, type_: str, message: str, request_id: str | None, details: Details = ()) -> bytes:
    """Return an error's body."""
    del type_, request_id, details  # a provider's own word; a header has the id; and the body has no place for details
    return encoded({"error": _error(status, message)})


def _error(status: int, message: str) -> dict[str, str]:
    return {"code": error_word(status), "message": message}


def event(kind: str, fields: Mapping[str, Any]) -> bytes:
    """Return an event in its wire format."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encoded({**fields, "event_type": kind}))


ENDING = b"event: done\ndata: [DONE]\n\n"


def failure(kind: str, message: str, details: Details = (), _: str | None = None) -> bytes:
    """Return the event of an error of this kind of ours, or with this word for its status."""
    del details
    status = _STATUS_OF_KIND.get(kind, HTTPStatus.INTERNAL_SERVER_ERROR)
    return event("error", {"error": _error(status, message)})


# Words for levels of thinking, the same as chat's efforts.
LEVELS: Sequence[str] = ("minimal", "low", "medium", "high", "xhigh")
TIERS: Mapping[str, str] = {"flex": "flex", "priority": "priority"}
