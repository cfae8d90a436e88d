"""Markdown: tables, code, and plain text from the code's own strings, escaped for a page."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"

_CODE = re.compile(r"`[^`]*`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
PAGE = re.compile(r"(?P<before>\b[Tt]he page\s+)'(?P<title>[A-Z][^']+)'")


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
    return PAGE.sub(_link, with_options)


def _link(match: re.Match[str]) -> str:
    title = " ".join(match["title"].split())
    return f"{match['before']}[{title}](../{titles()[title]})"


@cache
def titles() -> dict[str, str]:
    """Return the pages of the documentation, as paths in its folder, by their titles."""
    return {
        page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "): page.relative_to(DOCS).as_posix()
        for page in DOCS.rglob("*.md")
    }


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
