"""holeshot migrate and sql, on a real SQLite file."""

import csv
import io
import json
import os
import re
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import Result

from tests.support import warm
from tests.support.ledgers import lay, migrated

Holeshot = Callable[..., Result]

ROOT = Path(__file__).parents[3]
LEDGER = {"HOLESHOT_DATABASE_URL": "sqlite:///ledger.db"}


def test_migrate_makes_the_ledger_and_sql_asks_it(holeshot: Holeshot) -> None:
    migrated = holeshot("migrate", **LEDGER)

    assert migrated.exit_code == 0, migrated.output
    assert migrated.output.startswith("the ledger's schema is ")
    asked = holeshot("sql", "select count(*) as n, null as missing from calls", **LEDGER)
    assert list(csv.reader(io.StringIO(asked.output))) == [["n", "missing"], ["0", ""]]


def test_a_migration_that_waits_for_too_long_says_why(holeshot: Holeshot) -> None:
    with closing(sqlite3.connect("ledger.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        waited = holeshot("migrate", "--wait", "0", **LEDGER)
    assert waited.exit_code == 1
    assert "another process writes to" in waited.output
    assert "--wait SECONDS" in waited.output


def test_the_help_of_sql_lists_every_view_there_is(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))
    asked = holeshot("sql", "select name from sqlite_master where type = 'view'", "--json", **LEDGER)
    made = {row["name"] for row in json.loads(asked.output)}

    listed = holeshot("sql", "--help").output.partition("Views: ")[2].partition("Example:")[0]
    names = set()
    for part in re.split(r"Views of all time, and in brackets of the last hour, day or month:|Only lately:", listed):
        for name, windows in re.findall(r"(\w+)(?:\s+\((_[^)]+)\))?", part):
            names |= {name, *(f"{name}{window}" for window in re.findall(r"_\w+", windows))}

    assert names == made


def test_sql_reads_the_question_from_standard_input(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))

    result = holeshot("sql", "-", "--json", stdin="select 'a' as letter", **LEDGER)

    assert json.loads(result.output) == [{"letter": "a"}]


@pytest.mark.parametrize("form", ["--csv", "--jsonl", "--json"])
def test_a_reader_that_has_gone_is_no_news(holeshot: Holeshot, form: str) -> None:
    lay(migrated(), Path("ledger.db"))
    ours, its = os.pipe()
    os.close(ours)

    command = [*warm.holeshot(), "sql", form, "select 1 as n"]
    environ = {**os.environ, **LEDGER, "PYTHONPATH": str(ROOT)}
    asked = subprocess.run(command, stdout=its, stderr=subprocess.PIPE, env=environ, check=False)

    os.close(its)
    assert (asked.returncode, asked.stderr) == (1, b"")


def test_sql_writes_nothing_into_the_ledger(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))

    result = holeshot("sql", "delete from calls", **LEDGER)

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_sql_answers_in_one_form(holeshot: Holeshot) -> None:
    result = holeshot("sql", "select 1", "--csv", "--jsonl", **LEDGER)

    assert (result.exit_code, result.stderr) == (2, "holeshot: one of --json, --jsonl and --csv\n")


def test_sql_without_a_question_says_what_it_wants(holeshot: Holeshot) -> None:
    result = holeshot("sql", **LEDGER)

    assert (result.exit_code, result.stderr) == (2, "holeshot: give a query, or - to read it from standard input\n")


def test_sql_has_no_role_to_offer_for_a_file(holeshot: Holeshot) -> None:
    assert "no roles" in holeshot("sql", "--reader-role", **LEDGER).stderr


def test_sql_makes_no_other_file(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))

    result = holeshot("sql", "attach 'other.db' as other", **LEDGER)

    assert result.exit_code == 1
    assert "other files are not attached" in result.stderr
    assert not Path("other.db").exists()


def test_a_wrong_question_is_answered_in_one_line(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))

    result = holeshot("sql", "select * from nope", **LEDGER)

    assert result.exit_code == 1
    assert result.stderr.startswith("holeshot: no such table: nope; the views are answer_quality_24h, ")
    assert result.stderr.count("\n") == 1
    result = holeshot("sql", "select ttft from calls", **LEDGER)
    assert result.stderr == "holeshot: no such column: ttft; did you mean 'ttft_ms'?\n"


def test_sql_before_migrate_says_what_to_run(holeshot: Holeshot) -> None:
    assert "holeshot migrate" in holeshot("sql", "select 1", **LEDGER).stderr


def test_json_and_csv_at_once_make_no_sense(holeshot: Holeshot) -> None:
    assert holeshot("sql", "select 1", "--json", "--csv", **LEDGER).exit_code == 2


def test_migrate_goes_down_again(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))

    assert holeshot("migrate", "--down-to", "base", **LEDGER).output == "the ledger's schema is base\n"
    assert holeshot("sql", "select * from calls", **LEDGER).exit_code == 1


def test_a_revision_that_does_not_exist_is_one_line(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))

    result = holeshot("migrate", "--down-to", "nope", **LEDGER)

    assert result.exit_code == 1
    assert result.stderr.startswith("holeshot: ")


def test_migrate_needs_no_providers_key(holeshot: Holeshot) -> None:
    Path("gateway.yaml").write_text(
        "database_url: sqlite:///ledger.db\nproviders: { groq: { api_key: ${GROQ_API_KEY} } }\n"
    )

    assert holeshot("migrate", "--config", "gateway.yaml").exit_code == 0


def test_an_unreachable_database_is_one_line_without_its_password(holeshot: Holeshot) -> None:
    result = holeshot("migrate", HOLESHOT_DATABASE_URL="postgresql://me:s3cret@127.0.0.1:1/ledger")

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "s3cret" not in result.stderr
