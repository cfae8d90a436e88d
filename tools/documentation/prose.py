"""How much there is to read: the words that the site shows, and its hardest sentences, by length and nesting.

The reference is looked up, not read, so its sentences are left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs"
SHOWN = 20  # of the hardest sentences
_CLAUSE = 3  # words that one more comma, colon or bracket is as hard as
_WORD = re.compile(r"\S*\w\S*")
_TARGET = re.compile(r"\]\([^)]*\)|\]\[[^\]]*\]")
_FENCE = re.compile(r"^ *(`{3,})[^\n]*\n.*?^ *\1 *$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.|:) +")
_ENDS = re.compile(r"(?<=[.?!])[\"')*_]* +(?=[A-Z`*\[(\"])")
_NAMES = re.compile(r"code(?:,? (?:and |or )?code)+")  # a list of names is no harder than one
_NESTED = re.compile(r"[,;:(]")


class Sentence(NamedTuple):
    """A sentence, the page that has it, and how hard it is to read: its words, and three for each nested part."""

    score: int
    page: str
    text: str


def words(text: str) -> int:
    """Return the number of words that a reader sees of a page: no marks of tables and lists, no targets of links."""
    return len(_WORD.findall(_TARGET.sub("]", text)))


def read_pages(folder: Path = DOCS) -> Mapping[str, str]:
    """Return the text of each page, by its path in ``folder``."""
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*.md")}


def hardest(pages: Mapping[str, str]) -> list[Sentence]:
    """Return the twenty hardest sentences of all pages, the hardest first."""
    found = (
        Sentence(_score(text), page, text)
        for page, whole in pages.items()
        if not page.startswith("reference/")
        for text in _sentences(whole)
    )
    return sorted(set(found), reverse=True)[:SHOWN]


def report() -> Iterator[str]:
    """Yield the lines for whoever makes the site."""
    pages = read_pages()
    total = sum(len(text.split()) for text in pages.values())
    yield f"{total:,} words; the hardest sentences, by words and nesting:"
    yield from (f"{each.score:4} {each.page}: {each.text}" for each in hardest(pages))


def _score(sentence: str) -> int:
    return words(sentence) + _CLAUSE * len(_NESTED.findall(sentence))


def _sentences(page: str) -> Iterator[str]:
    for block in _blocks(_FENCE.sub("", page).splitlines()):
        for each in _ENDS.split(_TARGET.sub("]", block)):
            if plain := _NAMES.sub("code", _CODE.sub("code", each)).strip():
                yield plain


def _blocks(lines: Iterable[str]) -> Iterator[str]:
    """Yield paragraphs, items of lists and definitions, each on one line; no headings, tables and directives."""
    block: list[str] = []
    for line in [*lines, ""]:
        bare = line.strip()
        if not bare or bare[0] in "#|<" or bare.startswith("**`") or _ITEM.match(line):
            if block:
                yield " ".join(block)
            block = []
        if bare and bare[0] not in "#|<" and not bare.startswith("**`"):
            block.append(_ITEM.sub("", line).strip())
