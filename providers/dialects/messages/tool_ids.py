"""Ids of tool calls in the characters that Messages allows: it refuses a conversation with others."""

import re

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


def allowed_id(call_id: str) -> str:
    """Return a tool call's id in letters, digits, ``_`` and ``-``; equal ids stay equal, different ones different.

    Some chat providers number calls ``functions.get_weather:0``.
    """
    return _FORBIDDEN.sub(lambda letter: f"_{ord(letter[0]):x}_", call_id)
