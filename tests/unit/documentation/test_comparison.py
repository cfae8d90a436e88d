"""What the comparison with other gateways says of Holeshot is counted, and what it says of others has its day."""

import re
from pathlib import Path

import pytest

from providers import load_catalog

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
_DATED = re.compile(r"^\| *\|.*\| as of \|$\n\|[-|]+\|$\n((?:^\|.*\|$\n)+)", re.MULTILINE)
_ROWS = [row for table in _DATED.findall(PAGE) for row in table.splitlines()]


@pytest.mark.parametrize("text", [PAGE, README], ids=["docs/comparison.md", "README.md"])
def test_the_number_of_vendors_is_that_of_the_catalog(text: str) -> None:
    assert {int(count) for count in re.findall(r"(\d+) (?:rows of )?vendors", text)} == {len(load_catalog())}


@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.split("|")[1].strip())
def test_every_row_of_another_gateway_says_its_source_and_when_it_was_read(row: str) -> None:
    name, *_, as_of = row.strip("|").split("|")
    if name.strip() == "Holeshot":
        return
    assert re.search(r"\d{4}-\d\d-\d\d$", as_of.strip())
    assert "](https://" in row


def test_each_gateway_that_the_readme_names_is_compared() -> None:
    named = re.search(r"^([\w, ]+) and (\w+) have a response cache", README, re.MULTILINE)
    assert named is not None
    compared = {row.split("|")[1].strip() for row in _ROWS}
    assert {*named[1].split(", "), named[2]} <= compared
