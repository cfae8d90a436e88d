"""Read-only questions in the asker's own SQL."""

from pathlib import Path

import pytest

from gateway.ledger import queries
from gateway.ledger.errors import DatabaseUnreachableError, QueryError


async def test_an_answer_has_names_and_rows(ledger_url: str) -> None:
    result = await queries.run(ledger_url, "select 1 as one, 'x%sx' as two -- a comment")
    assert result == queries.Result(("one", "two"), [(1, "x%sx")])


async def test_no_rows_still_have_columns(ledger_url: str) -> None:
    result = await queries.run(ledger_url, "select id, model from calls;")
    assert result == queries.Result(("id", "model"), [])


@pytest.mark.parametrize(
    "sql",
    [
        "delete from calls",
        "drop view slo",
        "create table mine (x int)",
        "select 1; select 2",
        "select 1; delete from calls",
        "commit; delete from calls",
        "select nothing from nowhere",
        "insert into alembic_version values ('x') returning version_num",
        "copy calls to program 'true'",
        "commit",
        "set statement_timeout = 0",
        "do $$ begin perform 1; end $$",
    ],
)
async def test_what_writes_is_several_or_wrong_is_refused(ledger_url: str, sql: str) -> None:
    with pytest.raises(QueryError):
        await queries.run(ledger_url, sql)
    assert (await queries.run(ledger_url, "select count(*) from alembic_version")).rows == [(1,)]


async def test_a_query_that_takes_too_long_is_stopped(ledger_url: str) -> None:
    forever = "with recursive n as (select 1 as i union all select i + 1 from n) select count(*) from n where i < 0"
    with pytest.raises(QueryError, match="longer than"):
        await queries.run(ledger_url, forever, timeout_s=0.05)


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all.db", "postgresql://u:secret@127.0.0.1:1/db"])
async def test_a_missing_database_is_unreachable(url: str, tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnreachableError) as failure:
        await queries.run(url, "select 1")
    assert "secret" not in str(failure.value)
