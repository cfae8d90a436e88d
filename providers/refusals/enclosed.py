"""Errors inside the messages of other errors: the JSON of a vendor's error that a proxy quotes.

For example, OpenRouter answers 400 "Provider returned error" with ``{"error": {"code": "tool_use_failed"}}`` of its
vendor as a text, or "Invalid Responses API request" with a list of all that zod has found wrong, for each kind of item
(openai/codex/issues/18307, CherryHQ/cherry-studio/issues/10477, zed-industries/zed/issues/46508, read on 2026-12-01).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from providers.refusals.complaints import words_of
from providers.refusals.error_shapes import error_object_in, message_of, status_of
from providers.refusals.errors import UNREADABLE
from providers.refusals.zod_issues import issues_in

_OPENED = ("code", "type", "param", "status", "details")  # what an error that another one quotes has instead
_MOST_ENCLOSED = 3  # errors inside errors
_UNQUOTED = str.maketrans("'\"`", "   ")
_LONGEST = 64 * 1024  # characters of a message with JSON in it


class _Enclosed(NamedTuple):
    """JSON in a message, and the text around it."""

    before: str
    value: Any
    after: str


def unwrapped(error: dict[str, Any], own: Callable[[str], str]) -> dict[str, Any]:
    """Return an error in which the JSON of its message is read: the words, code and type of a proxy's vendor.

    JSON that the request has stays as it is.
    """
    for _ in range(_MOST_ENCLOSED):
        if (found := _enclosed_in(message_of(error))) is None:
            break
        issues = issues_in(found.value)
        inner = {"message": words_of(issues)} if issues else error_object_in(found.value)
        said = "" if inner is None else message_of(inner)
        quoted = f'got "{said.translate(_UNQUOTED)}"'
        if inner is None or " " not in said or own(quoted) != quoted:
            break
        named = {name: value for name in _OPENED if (value := inner.get(name))}
        if (status := status_of(error)) is not None:
            named["http_status"] = status
        if isinstance(metadata := error.get("metadata"), dict):
            named["metadata"] = {**metadata, "raw": ""}  # the raw text is a part of the message
        error = {**error, **named, "message": f"{found.before}{said}{found.after}"}
    return error


def _enclosed_in(message: str) -> _Enclosed | None:
    """Return the JSON object or list in a message; None: there is none, or more than one."""
    end = max(message.rfind("}"), message.rfind("]")) + 1
    if not end or len(message) > _LONGEST:
        return None
    for begin in sorted(at for sign in "{[" if 0 <= (at := message.find(sign)) < end):
        try:
            return _Enclosed(message[:begin], msgspec.json.decode(message[begin:end]), message[end:])
        except UNREADABLE:
            continue
    return None
