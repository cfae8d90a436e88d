"""docs/reference/ledger.md: what its columns of calls, attempts, refusals and outages mean is declared by the records.

All else on the page is written there: views, other tables, and what stands around these columns.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from gateway.core.columns import Described
from gateway.ledger import TABLES
from tools.documentation.tables import code

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "ledger.md"
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
    return text


def _definitions(columns: tuple[Described, ...]) -> Iterator[str]:
    """Yield the definitions; columns of which the same is said are defined together."""
    for said in dict.fromkeys(each.about.says for each in columns):
        names = ", ".join(code(each.name) for each in columns if each.about.says == said)
        yield f"{names}\n: {said}\n"
