"""SQL comments on the ledger's tables, views and columns, from docs/reference/ledger.md and migrations/SUMS.md.

A section of these pages describes one or several tables or views. A column's comment is the definition (``: ``), the
list item or the sentence that names it first.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway.core.old_names import GONE_WITH
from gateway.ledger.schema import VIEWS, renamed
from tools.documentation import ledger_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ledger_page.PAGE, ROOT / "migrations" / "SUMS.md")
PARTS = ("Views", "Tables", "Sums")
_ROWS = ("calls", "attempts")
_ROW = "A row for each "  # begins what a table is, and names columns only

_SECTION = re.compile(r"^### ([^\n]+)\n(.*?)(?=^###? |\Z)", re.DOTALL | re.MULTILINE)
_DEFINITION = re.compile(r"^((?:`\w+`(?:, )?)+)\n: (.+)$", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")
_LIKE = re.compile(r"\bas `(\w+)`")  # it has the columns of that table, too
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_SENTENCE = re.compile(r"(?<=[.:]) (?=[A-Z`(])")


def comments() -> dict[str, dict[str, str]]:
    """Return the comments of each table and view, by column; "" is the table or view itself."""
    page = "\n".join((ledger_page.page(), *(each.read_text(encoding="utf-8") for each in PAGES[1:])))
    texts: dict[str, str] = {}
    for part in PARTS:
        start = page.index(f"\n## {part}\n") + 1
        found = re.compile(r"^## ", re.MULTILINE).search(page, start + 3)
        for heading, text in _SECTION.findall(page[start : found.start() if found else len(page)]):
            texts.update(dict.fromkeys(heading.split(", "), text))
    made = {name: _section(text) for name, text in texts.items()}
    for name, text in texts.items():
        for like in _LIKE.findall(text):
            made[name] |= {column: comment for column, comment in made[like].items() if column not in made[name]}
    for name in set(made) & set(VIEWS):
        made[name] |= {old: f"Deprecated, gone with {GONE_WITH}: now {new}." for old, new in renamed(name).items()}
    return {
        name: found
        if name in _ROWS
        else {column: _comment(made, _sources(name, found[""]), column, comment) for column, comment in found.items()}
        for name, found in made.items()
    }


def text() -> str:
    """Return the text of the file that the migrations read."""
    return json.dumps(comments(), ensure_ascii=False, indent=1) + "\n"


def _sources(name: str, said: str) -> tuple[str, ...]:
    """Return the tables that a view's columns are those of: its own (``refusals_24h``), and calls and attempts."""
    return (name.rpartition("_")[0], *(reversed(_ROWS) if "(of provider)" in said else _ROWS))


def _comment(made: dict[str, dict[str, str]], sources: Sequence[str], column: str, comment: str) -> str:
    """Return a column's comment: that of the first of ``sources`` if its own section only lists its name."""
    is_listed = comment.startswith(_ROW) or not re.search(r"(?i)(?<![\w_])[a-z]{2,}(?![\w_])", _bare(comment))
    known = (made.get(table, {}).get(column, _ROW) for table in sources)
    there = next((each for each in known if not each.startswith(_ROW)), None)
    return comment if there is None or not column or not is_listed else there


def _bare(comment: str) -> str:
    """Return a comment without column names."""
    return re.sub(r"\b\w*_\w+\b", "", comment)


def _section(written: str) -> dict[str, str]:
    """Return the comments in a section: of its table ("") and of each column."""
    found: dict[str, str] = {}
    plain = _DEFINITION.sub("", written)
    paragraphs = [each for each in re.split(r"\n\n+", plain) if each.strip()]
    found[""] = _cleaned(paragraphs[0]) if paragraphs else ""
    for names, comment in _DEFINITION.findall(written):
        columns = _NAME.findall(names)
        cleaned = _cleaned(comment)
        prefix = f"{', '.join(columns)}: " if len(columns) > 1 else ""
        found |= dict.fromkeys(columns, f"{prefix}{cleaned}")
    for piece in _pieces(paragraphs):
        for column in _NAME.findall(piece):
            found.setdefault(column, _cleaned(piece))
    return found


def _pieces(paragraphs: list[str]) -> Iterator[str]:
    """Yield the items of all lists, then the sentences of all paragraphs."""
    for paragraph in sorted(paragraphs, key=lambda each: not each.lstrip().startswith("- ")):
        if paragraph.lstrip().startswith("- "):
            yield from (item.removeprefix("- ") for item in re.split(r"\n(?=- )", paragraph.strip()))
        else:
            yield from _SENTENCE.split(" ".join(paragraph.split()))


def _cleaned(written: str) -> str:
    """Return text without Markdown, on one line."""
    return " ".join(_LINK.sub(r"\1", written).replace("`", "").replace("**", "").split()).removeprefix("- ")
