"""The pages of reference are made from the code, so they must be made again when it changes."""

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli.main import application
from gateway.settings import ClientRole, ClientSettings, RaceSettings, Settings, json_schema
from tools.documentation import advice, configuration, ledger_comments, tables
from tools.documentation.__main__ import MADE, ROOT, pages
from tools.documentation.document import openapi
from tools.documentation.links import to_repository
from tools.documentation.reasons import DEFAULTS, REASONS, SECTIONS

SHORTEST = 15  # characters of a reason

_PAGE = re.compile(r"(?<![\w/.-])(?P<path>docs/[\w/-]+\.md)(?:#(?P<section>[\w-]+))?")  # not within another address


def _sections(text: str) -> set[str]:
    """Return the sections of a page as links name them; "" is its beginning."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {"", *(re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings)}


_PAGES = {
    path.relative_to(ROOT).as_posix(): _sections(path.read_text(encoding="utf-8"))
    for path in (ROOT / "docs").rglob("*.md")
}


def _told() -> list[str]:
    """Return the files of the repository that somebody reads, or whose messages somebody reads."""
    return [
        path.relative_to(ROOT).as_posix()
        for top in ("gateway", "providers", "holeshot", "config", "docs", "benchmarks")
        for path in (ROOT / top).rglob("*")
        if path.suffix in {".py", ".md", ".yaml", ".js", ".sql"} and "vendor" not in path.parts
    ] + [path.name for path in ROOT.glob("*.md")]


def test_every_page_is_in_the_menu_of_the_site() -> None:
    trees = re.findall(r"```\{toctree\}\n(.*?)```", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")]
    assert sorted(f"docs/{name}.md" for name in listed) == sorted(_PAGES.keys() - {"docs/index.md"})


@pytest.mark.parametrize("path", sorted(MADE))
def test_a_page_is_current(path: str) -> None:
    """If not: ``python -m tools.documentation``."""
    assert (ROOT / path).read_text(encoding="utf-8") == pages()[path]


def test_every_key_has_a_reason_and_every_reason_its_key() -> None:
    assert set(configuration.keys()) == {(title, name) for title, some in REASONS.items() for name in some}
    assert [reason for some in REASONS.values() for reason in some.values() if len(reason) < SHORTEST] == []


def test_what_a_page_lacks_is_told_with_where_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"Tracing\.spam has no reason: add one to REASONS\['Tracing'\] in tools/"):
        configuration.reason("Tracing", "spam")
    with pytest.raises(SystemExit, match=r"no comment says what gateway\.spam means: write `# Event"):
        advice.demand("Event", ["gateway.spam"])
    (tmp_path / "some.py").write_text("# Event a.b: It is so.\n", encoding="utf-8")
    [block] = advice.blocks(tmp_path / "some.py")
    with pytest.raises(SystemExit, match=r"begins with 'It is so\.' has no part `# Do: …`: add it"):
        block.parts["Do"]


def test_every_key_is_on_the_page_with_its_type_and_its_default() -> None:
    text = configuration.page()
    keys = [name for _, section in configuration.sections() for name in section["properties"]]
    entries = re.findall(r"^\*\*`([^`]+)`\*\*(?: \((.+)\))?$", text, re.MULTILINE)
    sections = {
        path.removesuffix("[]").removesuffix(".NAME").rpartition(".")[2] for path, _ in configuration.sections()
    }
    assert set(keys) <= {*(name for name, _ in entries), *sections}
    assert text.count("\n: ") == len(entries)
    defaults = [
        (name, one["default"])
        for _, section in configuration.sections()
        for name, one in section["properties"].items()
        if isinstance(one.get("default"), bool | int | float) and one["default"] is not False
    ]
    assert defaults
    for name, value in defaults:
        told = f"; `{json.dumps(value).removesuffix('.0')}`"  # after its type
        assert any(key == name and facts.endswith(told) for key, facts in entries), (name, value)


@pytest.mark.parametrize("path", sorted(MADE))
def test_no_entry_of_a_list_is_empty(path: str) -> None:
    assert re.findall(r"^.*\n:\s*$", pages()[path], re.MULTILINE) == []


def test_each_section_is_described() -> None:
    paths, text = [path for path, _ in configuration.sections()], configuration.page()
    assert SECTIONS.keys() <= set(paths)
    for path in paths[1:]:
        heading = f"## `{path}`\n\n"
        assert re.search(re.escape(heading) + r"[A-Z].*\.\n", text), path


def test_defaults_that_the_schema_does_not_have_are_true() -> None:
    settings = Settings()
    assert {title for title, _ in DEFAULTS} <= REASONS.keys()
    assert f"`{settings.database_url.get_secret_value()}`" == DEFAULTS["Settings", "database_url"]
    assert (settings.replica, settings.page.signing_key.get_secret_value()) == (None, "")
    assert [RaceSettings(width=width).budget for width in (1, 2, 3)] == [1.0, 1.0, 2.0]
    assert ClientSettings(key_sha256=("0" * 64,)).role is ClientRole.CLIENT


def test_a_link_to_a_file_of_the_repository_goes_there_and_a_wrong_one_is_noticed() -> None:
    source = ["[one](../SECURITY.md#top) [two](sql.md)"]
    to_repository(None, "index", source)
    assert source == ["[one](https://github.com/holeshot/holeshot/blob/main/SECURITY.md#top) [two](sql.md)"]
    with pytest.raises(FileNotFoundError, match=r"nowhere\.md"):
        to_repository(None, "index", ["[three](../nowhere.md)"])


def test_every_page_that_a_text_names_by_its_path_exists_with_its_section() -> None:
    named = {
        (name, found["path"], found["section"] or "")
        for name in _told()
        for found in _PAGE.finditer((ROOT / name).read_text(encoding="utf-8"))
    }
    assert len(named) > 100
    assert [each for each in sorted(named) if each[1] not in _PAGES or each[2] not in _PAGES[each[1]]] == []


def _shown() -> Iterator[str]:
    """Yield what users without a checkout may read: help, schemas, the page, the code's strings but docstrings."""
    verbs: list[Any] = [typer.main.get_command(application())]
    while verbs:
        verb = verbs.pop()
        yield verb.help or ""
        yield from (str(getattr(each, "help", None) or "") for each in verb.params)
        verbs += getattr(verb, "commands", {}).values()
    yield json.dumps([openapi(), json_schema()])
    for path in (ROOT / "gateway" / "page" / "assets").glob("*/**/*.js"):
        if "vendor" not in path.parts:
            yield re.sub(r"(?:^|\s)//.*", "", path.read_text(encoding="utf-8"))
    for path in (path for top in ("gateway", "providers", "holeshot") for path in (ROOT / top).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield node.value


def test_users_without_a_checkout_are_told_of_pages_by_their_titles_and_where_these_are() -> None:
    shown = [*_shown()]
    assert [text for text in shown if _PAGE.search(text)] == []
    named = {" ".join(found["title"].split()) for text in shown for found in tables.PAGE.finditer(text)}
    assert len(named) > 5
    assert named <= tables.titles().keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Documentation"] in str(typer.main.get_command(application()).help)


def test_a_column_of_a_view_has_the_comment_of_the_table_that_it_is_from() -> None:
    found = ledger_comments.comments()
    assert found["provider_errors"]["error_kind"] == found["attempts"]["error_kind"] != found["calls"]["error_kind"]
    assert found["client_usage"]["model"] == found["calls"]["model"]
    assert found["refusals_24h"]["reason"] == found["refusals"]["reason"]
    assert found["outages_30d"]["replica"] == found["outages"]["replica"]
    assert found["alerts"]["id"] == "A UUID."
