"""One word for one thing: the table of docs/concepts.md holds for page, commands and documents; reasons agree."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from gateway.core.race_failures import CAUSES

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "gateway" / "page" / "assets"
FILES = sorted([*ASSETS.glob("*.js"), *ASSETS.glob("lib/*.js"), *ASSETS.glob("views/**/*.js")])
COMMANDS = sorted((ROOT / "gateway" / "cli").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_CODE = re.compile(
    r"```.*?```|`[^`]*`|\]\([^)]*\)|^#[^\n]*|\*\*`--[^\n]*", re.DOTALL | re.MULTILINE
)  # also links, headings
_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`')
_COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"'])//[^\n]*", re.DOTALL)
_HOLE = re.compile(r"\$\{[^}]*\}")


def forbidden() -> dict[str, str]:
    """Return the words that the table names as not to be used, with the one to use instead."""
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    section = page.partition("## One word for one thing")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    return {bad.strip(): row[0].strip(" *") for row in rows for bad in row[2].split(",")}


def said(path: Path) -> list[str]:
    """Return the texts of a file that people read: those with a space, or a capital letter first."""
    code = _COMMENT.sub("", path.read_text(encoding="utf-8"))
    texts = [_HOLE.sub("…", plain or template) for plain, template in _TEXT.findall(code)]
    return [each for each in texts if " " in each or each[:1].isupper()]


def printed(path: Path) -> list[str]:
    """Return the texts of a file of the command line that people read: its messages, and the help of its verbs."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    scopes = [
        each
        for each in ast.walk(tree)
        if isinstance(each, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    docs = [doc for each in scopes if (doc := ast.get_docstring(each, clean=False)) is not None]
    texts = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [each for each in texts if (each not in docs or "holeshot " in each) and (" " in each or each[:1].isupper())]


def test_the_table_has_words() -> None:
    assert forbidden()["aborted"] == "cancelled"
    assert len(forbidden()) >= 10


def wrong(texts: Iterable[str]) -> list[str]:
    return [
        f"{text!r}: write {word!r} instead of {bad!r}"
        for text in texts
        for bad, word in forbidden().items()
        if re.search(rf"(?<!-)\b{re.escape(bad)}\b", text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_page_has_one_word_for_one_thing(path: Path) -> None:
    assert wrong(said(path)) == []


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.name)
def test_the_command_line_has_one_word_for_one_thing(path: Path) -> None:
    assert wrong(printed(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_documents_have_one_word_for_one_thing(path: Path) -> None:
    text = path.read_text(encoding="utf-8").partition("## One word for one thing")
    prose = _CODE.sub("", text[0] + text[2].partition("\n## ")[2])
    assert wrong(prose.splitlines()) == []


def test_why_an_attempt_failed_is_said_in_the_same_words_by_alerts_and_by_the_page() -> None:
    words = (ASSETS / "lib" / "words.js").read_text(encoding="utf-8")
    listed = words.partition("const ATTEMPT_ERRORS = {")[2].partition("};")[0]
    assert dict(re.findall(r'^  (\w+): "(.*)",$', listed, re.MULTILINE)) == {
        str(kind): said for kind, said in CAUSES.items()
    }
