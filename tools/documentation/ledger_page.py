"""docs/reference/ledger.md: what the columns that records declare mean is declared by the records.

All else on the page is written there: views, other tables, and what stands around these columns.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from gateway.core.columns import DescribedColumn
from gateway.core.old_names import GONE_WITH, old_names
from gateway.core.reports import HistorySeries
from gateway.ledger import TABLES
from gateway.ledger.migration_files import head_revision
from gateway.ledger.schema import renamed, views_of
from gateway.steering import Row
from tools.documentation.tables import code

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "ledger.md"
_OLD_NAMES = "\n## Old names\n"
_DEFINED = r"(?:`\w+`(?:, )?)+\n: .+\n"


def page() -> str:
    """Return the page, with the columns of these tables as they are declared now."""
    text = PAGE.read_text(encoding="utf-8")
    for table, columns in TABLES.items():
        section = re.compile(rf"^### {table}\n\n.+?\n\n((?:{_DEFINED}\n?)+)", re.MULTILINE)
        found = section.search(text)
        assert found is not None, f"docs/reference/ledger.md has no section of {table}"
        defined = "\n".join(_definitions(columns.declared))
        text = f"{text[: found.start(1)]}{defined}\n{text[found.end(1) :]}"
    start, end = text.index(_OLD_NAMES) + len(_OLD_NAMES), text.index("\n## Tables\n")
    return f"{text[:start]}\n{_old_names()}{text[end:]}"


def _old_names() -> str:
    """Return the list of names that columns had before, by view, beside those that they have."""
    said = [
        f"Deprecated: views have these columns twice until {GONE_WITH}, and answers in JSON these fields.\n",
        "| where | old | name |",
        "|---|---|---|",
    ]
    by_names: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for view in views_of(head_revision()):
        by_names.setdefault(tuple(renamed(view).items()), []).append(view)
    for names, views in by_names.items():
        said += [f"| {', '.join(map(code, views))} | {code(old)} | {code(new)} |" for old, new in names]
    for where, struct in _ANSWERS.items():
        said += [f"| {where} | {code(old)} | {code(new)} |" for old, new in old_names(struct).items()]
    return "\n".join(said) + "\n"


# Answers whose fields have old names, and where they are.
_ANSWERS = {
    "`GET /leaderboard`, `GET /api/leaderboard`, `holeshot leaderboard --json`": Row,
    "series of `GET /api/history`": HistorySeries,
}


def _definitions(columns: tuple[DescribedColumn, ...]) -> Iterator[str]:
    """Yield the definitions; columns of which the same is said are defined together."""
    for said in dict.fromkeys(each.about.says for each in columns):
        names = ", ".join(code(each.name) for each in columns if each.about.says == said)
        yield f"{names}\n: {said}\n"
