"""docs/reference/policy.md has every constant with its value, and whoever cites a part of docs/policy.md finds it."""

import ast
import re
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import pytest

from gateway.steering import constants

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "policy.md"
TABLES = ROOT / "docs" / "reference" / "policy.md"
_ENTRY = re.compile(r"^- `(?P<name>\w+)` = (?P<value>[^(]+) \((?P<origin>[^)]+)\): (?P<why>.+)$", re.MULTILINE)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CITED = re.compile(r"(?P<before>\]\(|docs/)(?P<path>[\w./-]*policy\.md)#(?P<anchor>[\w-]+)")
_OWN = re.compile(r"\]\(#([\w-]+)\)")


def _entries(text: str) -> Iterator[tuple[str, tuple[float, ...], str]]:
    """Yield name, values and origin of each entry; several values are separated by semicolons, units follow."""
    for entry in _ENTRY.finditer(text):
        yield entry["name"], _read(entry["value"]), entry["origin"]
    for line in re.findall(r"^- Bounds: (.+)\.$", text, re.MULTILINE):
        for name, value in re.findall(r"`(\w+)` = ([^`]+?)(?=, `|$)", line):
            yield name, _read(value), "bound"


def _read(value: str) -> tuple[float, ...]:
    return tuple(float(Fraction(each.split()[0].replace(",", ""))) for each in value.split(";"))


def _values(constant: object) -> tuple[float, ...]:
    return tuple(map(float, constant)) if isinstance(constant, tuple) else (float(constant),)  # type: ignore[arg-type]


def _parts() -> tuple[str, str]:
    """Return the part with the constants of the policy, and that with those of the race."""
    policy, _, race = TABLES.read_text(encoding="utf-8").partition("\n## Constants of the race\n")
    return policy, race


def _cited(file: Path) -> Iterator[tuple[Path, str]]:
    """Yield page and anchor of each place that a file cites: of a link, or of a path from the root of the checkout."""
    for cited in _CITED.finditer(file.read_text(encoding="utf-8")):
        folder = file.parent if cited["before"] == "](" else ROOT / "docs"
        yield (folder / cited["path"]).resolve(), cited["anchor"]


def _anchors(page: Path) -> set[str]:
    """Return a page's anchors as GitHub and most renderers make them."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _policy() -> dict[str, tuple[float, ...]]:
    assigned = [
        node
        for statement in ast.parse(Path(constants.__file__).read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    ]
    assert len(assigned) > 50
    return {node.id: _values(getattr(constants, node.id)) for node in assigned}


def test_every_constant_is_on_the_page_with_its_value_and_there_are_no_others() -> None:
    shown = list(_entries(_parts()[0]))
    assert len(shown) == len({name for name, _, _ in shown}), "a constant is there twice"
    assert {name: values for name, values, _ in shown} == _policy()


def test_every_constant_says_where_it_came_from() -> None:
    for name, _, origin in _entries(_parts()[0]):
        assert origin.split()[0].strip(",;") in {"tuned", "world", "bound", "vendors", "statistics", "judgement"}, name


def test_the_constants_of_the_race_are_what_the_page_says() -> None:
    shown = list(_entries(_parts()[1]))
    assert len(shown) > 5
    for name, values, path in shown:
        module = import_module(path.strip("`").removesuffix(".py").replace("/", "."))
        assert values == _values(getattr(module, name)), name


@pytest.mark.parametrize("folder", ["gateway", "providers", "benchmarks", "docs", "tests"])
def test_whoever_cites_a_part_of_the_page_finds_it(folder: str) -> None:
    files = [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]
    cited = {place for file in files for place in _cited(file) if place[0].is_relative_to(ROOT / "docs")}
    assert [(page.name, anchor) for page, anchor in cited if anchor not in _anchors(page)] == []


def test_links_within_the_page_lead_somewhere() -> None:
    own = set(_OWN.findall(PAGE.read_text(encoding="utf-8")))
    assert own
    assert own <= _anchors(PAGE)


def test_no_text_cites_a_document_that_is_not_here() -> None:
    files = [file for folder in ("gateway", "providers", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    files += [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    assert [file.name for file in files if re.search(r"\bSTEERING\b", file.read_text(encoding="utf-8"))] == []
