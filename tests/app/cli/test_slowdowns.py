"""holeshot slowdowns, on a real SQLite file."""

import json
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from typer.testing import Result

from tests.app.cli.conftest import Site
from tests.support.ledgers import lay, migrated

Holeshot = Callable[..., Result]

LEDGER = {"HOLESHOT_DATABASE_URL": "sqlite:///ledger.db"}


def store(deployment: str, *, ended: bool) -> None:
    began = datetime.now(UTC) - timedelta(hours=3)
    instants = [began, began + timedelta(minutes=15), began + timedelta(hours=1) if ended else None]
    with sqlite3.connect(Path("ledger.db")) as connection:
        connection.execute(
            "insert into slowdowns "
            "(id, deployment, model, metric, began_at, noticed_at, ended_at, ratio, low, high, n, evidence_sql) "
            "values (?, ?, 'llama', 'ttft', ?, ?, ?, 1.6, 1.4, 1.8, 300, 'select 1')",
            [deployment, deployment, *(None if at is None else f"{at:%Y-%m-%d %H:%M:%S.%f}" for at in instants)],
        )
    connection.close()


def test_slowdowns_are_listed_and_those_that_go_on_by_themselves(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))
    store("groq/llama", ended=True)
    store("cerebras/llama", ended=False)

    every = holeshot("slowdowns", **LEDGER)
    now = holeshot("slowdowns", "--now", "--json", **LEDGER)

    assert every.exit_code == 0, every.output
    assert "groq/llama" in every.stdout
    assert "it goes on" in every.stdout
    [row] = json.loads(now.stdout)
    assert (row["deployment"], row["ratio"], row["ended_at"]) == ("cerebras/llama", 1.6, None)
    assert json.loads(holeshot("slowdowns", "--model", "no-such", "--json", **LEDGER).stdout) == []


def test_without_slowdowns_it_says_so(holeshot: Holeshot) -> None:
    lay(migrated(), Path("ledger.db"))
    assert holeshot("slowdowns", **LEDGER).stdout == "no deployment was slower than usual\n"


def test_what_it_cannot_do_is_one_sentence(holeshot: Holeshot) -> None:
    for arguments, code in ((("--since", "5d"), 2), ((), 1)):
        result = holeshot("slowdowns", *arguments, **LEDGER)  # there is no ledger
        assert result.exit_code == code
        assert len(result.stderr.splitlines()) == 1


def test_a_gateway_is_asked_by_its_url(holeshot: Holeshot, site: Site) -> None:
    row = {
        "deployment": "a/x", "model": "llama", "metric": "ttft", "ratio": 1.6, "low": 1.4, "high": 1.8,
        "began_at": "2030-01-01T12:00:00Z", "noticed_at": "2030-01-01T12:15:00Z", "ended_at": None,
    }  # fmt: skip
    site.answers["/api/slowdowns?window=24h&model=llama"] = {"data": [row], "sql": "select 1"}
    result = holeshot("slowdowns", "--since", "24h", "--model", "llama", "--url", site.url)
    assert result.exit_code == 0, result.stderr
    assert all(words in result.stdout for words in ("a/x", "first token", "2030-01-01 12:15", "it goes on"))
