"""Markdown: tables, code, and plain text from the code's own strings, escaped for a page."""

import re
from collections.abc import Iterable, Sequence

_CODE = re.compile(r"`[^`]*`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_PAGE = re.compile(r"\bdocs/(?P<folder>[a-z]+/)?(?P<page>[a-z-]+)\.md(?P<anchor>#[a-z-]+)?")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table. Line breaks and bars in a cell do not break it."""
    return [_line(titles), "|" + "---|" * len(titles), *(_line([cell(each) for each in row]) for row in rows)]


def cell(text: str) -> str:
    """Return a text escaped for a cell: on one line, with its bars escaped."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Return a text as code; "" stays ""."""
    return f"`{text}`" if text else ""


def marked(text: str) -> str:
    """Return a text with options as code and pages of the documentation as links. Text in code stays unchanged."""
    parts, last = [], 0
    for match in _CODE.finditer(text):
        parts += [_marked(text[last : match.start()]), match[0]]
        last = match.end()
    return "".join([*parts, _marked(text[last:])])


def _marked(text: str) -> str:
    with_options = _OPTION.sub(lambda match: code(match[0]), text.replace("<", "\\<"))
    return _PAGE.sub(r"[\g<page>](../\g<folder>\g<page>.md\g<anchor>)", with_options)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
