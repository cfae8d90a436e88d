"""Errors that are plain texts or web pages, and the text of any error as it is shown."""

import html
import re
from collections.abc import Sequence

from providers.refusals.redaction import redact

_LONGEST_MESSAGE = 4096  # characters that the caller sees; fewer are kept (``MOST_KEPT``)
_UNSAFE_END = 100  # last characters of a text that was cut: perhaps the beginning of a key, too short to be noticed
LONGEST_TEXT = _LONGEST_MESSAGE + _UNSAFE_END  # characters of an error's text, before anything is searched for in it

# Each pattern stops at the next tag, so a text full of ``<title`` takes no longer than any other.
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
_HEADING = re.compile(r"<h1[^<>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")


def message_of_text(body: bytes) -> str:
    """Return the message of a body that is not a JSON error: the title of a web page, or the text's beginning."""
    if not is_page(body):
        return without_tags(body)
    text = body[:LONGEST_TEXT].decode(errors="replace")
    title = _TITLE.search(text) or _HEADING.search(text)
    return html.unescape(_TAG.sub(" ", f"a web page: {title[1]}" if title else "a web page"))


def without_tags(body: bytes) -> str:
    """Return a text, or a page, without the tags."""
    return html.unescape(_TAG.sub(" ", body[:LONGEST_TEXT].decode(errors="replace")))


def is_page(body: bytes) -> bool:
    """Whether a body is a web page."""
    begin = body[:1000].lower()
    return b"<html" in begin or b"<!doctype" in begin


def presentable(message: str, secrets: Sequence[str]) -> str:
    """Return a message in one line, without secrets, as the caller may see it."""
    # Redacted before it is shortened, so that no part of a key is left at the end.
    # Control characters could write to the terminal in which the log is read.
    shown = redact(message[:LONGEST_TEXT], secrets)
    shown = shown if len(message) <= LONGEST_TEXT else shown[:-_UNSAFE_END]
    message = " ".join("".join(each if each.isprintable() else " " for each in shown).split())
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"
