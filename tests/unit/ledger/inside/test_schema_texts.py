"""The texts of which migrations make views and sums: what a revision makes never changes."""

import re
from hashlib import sha256
from pathlib import Path

import pytest

from gateway import __version__
from gateway.ledger import Words, head_revision, migrations_folder
from gateway.ledger.migration_files import first_revision
from gateway.ledger.schema import SINCE, SPANS, UNTIL, VIEWS, function_sql, rendered, trigger_sql, view_sql, views_of

ROOT = Path(__file__).parents[4]
_VIEWS_LISTED = re.compile(r"^## Views\n.*?(?=^## )", re.DOTALL | re.MULTILINE)  # in docs/sql.md: all of them
POSTGRES, SQLITE = Words(is_postgres=True), Words(is_postgres=False)
REVISIONS = sorted(path.name[:4] for path in (migrations_folder() / "versions").glob("[0-9]*.py"))
# What each revision makes, as a digest; one that is not listed makes what the one before does.
MADE = {
    "0045": "5bcc994542d14d79",
    "0047": "b9202abad1d3cc3e",
    "0048": "d2e7ffa7a876a383",
    "0049": "04659633009a5d50",
    "0051": "63a97a2fd478fe60",
    "0052": "c8e1ee76f6f2eca7",
    "0053": "c9a7ad3a22ee6570",
    "0054": "025759a6a783a772",
    "0056": "b10c83b062155984",
    "0057": "df440c9129e637a8",
    "0059": "073de926d6deac87",
    "0062": "dafb14a3e22629eb",
    "0064": "54dbdedbf35d768a",
    "0065": "d076f16f1223576c",
}


def made(revision: str) -> str:
    """Return a digest of all views, functions and triggers of a revision, on both databases."""
    texts: list[str] = []
    for words in (POSTGRES, SQLITE):
        texts += [view_sql(name, words, revision) for name in views_of(revision)]
    texts += [function_sql(name, POSTGRES, "s", revision) for name in ("roll_up_fresh", "values_of_wide_tag")]
    texts.append(trigger_sql(SQLITE, revision))
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


@pytest.mark.parametrize("revision", REVISIONS)
def test_what_a_revision_makes_never_changes(revision: str) -> None:
    known = max(each for each in MADE if each <= revision)
    assert made(revision) == MADE[known], (
        f"{revision} would make other views or sums than it did. To change them takes a new revision: move the text "
        f"that is there to migrations/views/before_<revision>/, or a sum's expression to BEFORE in "
        f"gateway/ledger/sums.py, and state the new revision's digest here"
    )


def test_migrations_neither_import_each_other_nor_edit_sql() -> None:
    for path in (migrations_folder() / "versions").glob("*.py"):
        assert not re.search(r"get_revision|\bre\.|\.replace\(|noqa: SLF001", path.read_text(encoding="utf-8")), (
            path.name
        )


@pytest.mark.parametrize("words", [POSTGRES, SQLITE], ids=["postgres", "sqlite"])
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_has_no_part_that_is_not_filled_in(name: str, words: Words) -> None:
    last = [head_revision()] if name not in UNTIL else []
    for revision in (SINCE.get(name, first_revision()), *last):
        assert not re.search(r"\{[^}]", view_sql(name, words, revision))


def test_each_view_has_a_reader() -> None:
    """In the code, the documents' questions, another view or an alert: what nobody reads goes (``UNTIL``)."""
    files = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md"), *ROOT.glob("gateway/**/*.py")]
    files += [*ROOT.glob("migrations/views/*.sql"), *ROOT.glob("config/monitoring/*.yml")]
    lists = {ROOT / "gateway" / "ledger" / "schema.py", ROOT / "gateway" / "cli" / "sql.py"}
    texts = [_VIEWS_LISTED.sub("", each.read_text(encoding="utf-8")) for each in files if each not in lists]
    text = "\n".join(texts)
    text += "".join(f" from {name}_{span}" for name in re.findall(r"from (\w+)_\{window\}", text) for span in SPANS)
    unread = [
        name for name in views_of(head_revision()) if not re.search(rf"\b(from|join|view) {name}\b|`{name}`", text)
    ]
    assert unread == []


def test_a_part_that_nothing_fills_in_is_refused() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        rendered("select {nowhere}", {}, is_postgres=True)


def test_the_leaderboard_can_be_opened_as_a_file() -> None:
    text = (migrations_folder() / "views" / "leaderboard.sql").read_text(encoding="utf-8")
    assert text.startswith("-- Per model, its deployments over the last ten minutes")


def test_the_page_on_upgrades_says_which_schemas_this_version_has_and_migrates() -> None:
    row = f"| {__version__} | {head_revision()} | {first_revision()} and later |"
    assert row in (ROOT / "docs" / "guides" / "upgrades.md").read_text(encoding="utf-8")
