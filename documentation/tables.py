"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; in a cell neither lines nor bars end it."""
    return [_line(titles), "|" + "---|" * len(titles), *(_line([cell(each) for each in row]) for row in rows)]


def cell(text: str) -> str:
    """Return a text as it can stand in a cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Return a text as code, or nothing for nothing."""
    return f"`{text}`" if text else ""


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
