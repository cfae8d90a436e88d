"""docs/contributing/first-day.md names files that are there, and what is in them."""

import re

from tools.house import ROOT

PAGE = (ROOT / "docs" / "contributing" / "first-day.md").read_text(encoding="utf-8")
_TOP = "config|docs|gateway|migrations|providers|tests|tools"
_PATH = re.compile(rf"`((?:{_TOP})/[\w./-]*)`")
_HAS = re.compile(rf"`((?:{_TOP})/[\w./-]*)` \(((?:`\w+`(?:, )?)+)")


def test_every_file_that_it_names_is_there() -> None:
    named = set(_PATH.findall(PAGE))
    assert len(named) > 30
    written_there = {  # by the reader
        "gateway/cli/NAME.py",
        "providers/dialects/NAME/dialect.py",
        "migrations/versions/NEXT_http_version.py",
    }
    assert sorted(path for path in named - written_there if not (ROOT / path).exists()) == []


def test_every_file_has_what_the_page_says_is_in_it() -> None:
    said = [(path, name) for path, names in _HAS.findall(PAGE) for name in re.findall(r"\w+", names)]
    assert len(said) > 10
    assert [
        (path, name) for path, name in said if not re.search(rf"\b{name}\b", (ROOT / path).read_text(encoding="utf-8"))
    ] == []
