"""holeshot report, on a real SQLite file."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.ledger import Ledger
from tests.unit.ledger.records import call, new_id, won

Holeshot = Callable[..., Result]
LEDGER = {"HOLESHOT_DATABASE_URL": "sqlite:///ledger.db"}
OCTOBER = datetime(2026, 10, 9, tzinfo=UTC)


@pytest.fixture
def stored(holeshot: Holeshot, tmp_path: Path) -> None:
    assert holeshot("migrate", **LEDGER).exit_code == 0
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db", tmp_path / "spool", "report")
    ledger.call_finished(call(won(new_id(), started_at=OCTOBER, model="llama"), started_at=OCTOBER))

    async def store() -> None:
        await ledger.flush()
        await ledger.close()

    asyncio.run(store())


@pytest.mark.usefixtures("stored")
def test_it_is_markdown_json_or_a_file_of_html(holeshot: Holeshot, tmp_path: Path) -> None:
    asked = ("report", "--provider", "groq", "--month", "2026-10")
    assert holeshot(*asked, **LEDGER).stdout.startswith("# groq: 2026-10-01 to 2026-10-31 (UTC)\n")
    assert json.loads(holeshot(*asked, "--json", **LEDGER).stdout)["attempts"] == 1
    written = holeshot(*asked, "--html", "-o", "groq.html", **LEDGER)
    assert (written.exit_code, written.stdout) == (0, "")
    assert (tmp_path / "groq.html").read_text().startswith("<!doctype html>")
    again = holeshot(*asked, "--html", "-o", "groq.html", **LEDGER)
    assert (again.exit_code, again.stderr) == (1, "holeshot: groq.html already exists; --force overwrites it\n")


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--provider", "grok", "--month", "2026-10"), 1, "no attempts of 'grok'; it has of: groq"),
        (("--provider", "groq", "--month", "2026-13"), 2, "is not a month; write it like"),
        (("--provider", "groq", "--month", "October"), 2, "is not a month; write it like"),
        (("--provider", "groq", "--month", "0000-01"), 2, "is not a month; write it like"),
        (("--provider", "groq", "--month", "9999-12"), 2, "that is in the future"),
        (("--provider", "groq", "--html", "--json"), 2, "choose --html or --json"),
    ],
)
def test_what_cannot_be_reported_is_a_sentence(
    holeshot: Holeshot, options: tuple[str, ...], code: int, words: str
) -> None:
    result = holeshot("report", *options, **LEDGER)
    assert result.exit_code == code
    assert result.stdout == ""
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_database_that_is_away_is_a_sentence(holeshot: Holeshot) -> None:
    away = {"HOLESHOT_DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none"}
    result = holeshot("report", "--provider", "groq", "--month", "2026-10", **away)
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
