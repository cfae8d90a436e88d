"""One word for one thing: the table of docs/concepts.md holds for the page, and both lists of reasons agree."""

import re
from pathlib import Path

import pytest

from gateway.core.race_failures import CAUSES

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "gateway" / "page" / "assets"
FILES = sorted([*ASSETS.glob("*.js"), *ASSETS.glob("lib/*.js"), *ASSETS.glob("views/**/*.js")])
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


def test_the_table_has_words() -> None:
    assert forbidden()["winner"] == "answered by"
    assert len(forbidden()) >= 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_page_has_one_word_for_one_thing(path: Path) -> None:
    wrong = [
        f"{text!r}: write {word!r} instead of {bad!r}"
        for text in said(path)
        for bad, word in forbidden().items()
        if re.search(rf"\b{re.escape(bad)}\b", text, re.IGNORECASE)
    ]
    assert wrong == []


def test_why_an_attempt_failed_is_said_in_the_same_words_by_alerts_and_by_the_page() -> None:
    words = (ASSETS / "views" / "parts" / "words.js").read_text(encoding="utf-8")
    listed = words.partition("const ATTEMPT_ERRORS = {")[2].partition("};")[0]
    assert dict(re.findall(r'^  (\w+): "(.*)",$', listed, re.MULTILINE)) == {
        str(kind): said for kind, said in CAUSES.items()
    }
