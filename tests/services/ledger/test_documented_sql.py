"""The SQL that pages show can be run, on both databases; docs/sql.md has a test of its own."""

import pytest

from gateway.ledger import LedgerError, parse_url, queries
from tests.app.documentation.snippets import Snippet, snippets


@pytest.mark.parametrize("snippet", snippets("sql"), ids=str)
async def test_a_statement_is_answered(snippet: Snippet, ledger_url: str) -> None:
    if snippet.variant and not parse_url(ledger_url).get_backend_name().startswith(snippet.variant):
        pytest.skip(f"it is for {snippet.variant}")
    for statement in filter(str.strip, snippet.text.split(";")):
        await queries.run(ledger_url, statement)


async def test_a_column_that_does_not_exist_is_noticed(ledger_url: str) -> None:
    with pytest.raises(LedgerError, match="no_such_column"):
        await queries.run(ledger_url, "select no_such_column from calls")
