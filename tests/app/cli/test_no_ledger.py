"""Commands that need a ledger, where there is none: they name it and what to do, and make no file."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from tests.support.ledgers import lay, migrated

Holeshot = Callable[..., Result]

CONFIG = """\
database_url: sqlite:///no/such/ledger.db
keys: database
providers: { mine: { base_url: 'http://127.0.0.1:1/v1' } }
models: { m: { deployments: [mine/x] } }
slo: { fast: { model: m, ttft_ms: 500 } }
"""
ASKING = [
    ["keys", "list"],
    ["keys", "new", "app"],
    ["keys", "limits", "app"],
    ["keys", "rotate", "app"],
    ["keys", "revoke", "app"],
    ["sql", "select * from calls"],
    ["sql", "select * from calls", "--json"],
    ["replay"],
    ["slo"],
    ["slowdowns"],
    ["alerts"],
    ["prune"],
    ["prune", "--dry-run"],
    ["migrate", "--down-to", "base"],
]
asking = pytest.mark.parametrize("command", ASKING, ids=" ".join)
READING = [command for command in ASKING if command[0] in {"sql", "replay", "slo", "slowdowns", "alerts"}]


@pytest.fixture
def here(holeshot: Holeshot, tmp_path: Path) -> Path:
    """Return the folder of the commands, with a configuration."""
    (tmp_path / "gateway.yaml").write_text(CONFIG)
    return tmp_path


@asking
def test_a_missing_ledger_is_named_and_not_made(holeshot: Holeshot, here: Path, command: list[str]) -> None:
    result = holeshot(*command, HOLESHOT_CONFIG="gateway.yaml")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        "holeshot: there is no ledger at no/such/ledger.db; run: holeshot migrate"
    )
    assert [path.name for path in here.iterdir()] == ["gateway.yaml"]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_an_empty_file_has_no_ledger_and_stays_empty(holeshot: Holeshot, here: Path, command: list[str]) -> None:
    (here / "empty.db").touch()
    result = holeshot(*command, HOLESHOT_CONFIG="gateway.yaml", HOLESHOT_DATABASE_URL="sqlite:///empty.db")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == "holeshot: empty.db has no ledger yet; run: holeshot migrate"
    assert (here / "empty.db").read_bytes() == b""


@pytest.mark.parametrize("command", [["prune"], ["prune", "--dry-run"], ["keys", "list"]], ids=" ".join)
def test_what_works_on_an_empty_file_says_what_to_run(holeshot: Holeshot, here: Path, command: list[str]) -> None:
    (here / "empty.db").touch()
    result = holeshot(*command, HOLESHOT_CONFIG="gateway.yaml", HOLESHOT_DATABASE_URL="sqlite:///empty.db")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == "holeshot: the database has no ledger yet; run: holeshot migrate"


@asking
def test_a_folder_is_no_ledger(holeshot: Holeshot, here: Path, command: list[str]) -> None:
    (here / "folder").mkdir()
    result = holeshot(*command, HOLESHOT_CONFIG="gateway.yaml", HOLESHOT_DATABASE_URL="sqlite:///folder")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == "holeshot: database_url: folder is a folder: name a file in it"


def test_a_ledger_is_not_made_in_place_of_a_folder(holeshot: Holeshot, here: Path) -> None:
    (here / "folder").mkdir()
    result = holeshot("migrate", HOLESHOT_DATABASE_URL="sqlite:///folder")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "holeshot: database_url: folder is a folder: name a file in it\n"


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_another_file_is_named(holeshot: Holeshot, here: Path, command: list[str]) -> None:
    (here / "notes.txt").write_text("This is no database, although it is long enough for one.")
    result = holeshot(*command, HOLESHOT_CONFIG="gateway.yaml", HOLESHOT_DATABASE_URL="sqlite:///notes.txt")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == "holeshot: notes.txt: file is not a database"


def test_a_table_that_a_migration_will_make_names_the_command(holeshot: Holeshot, here: Path) -> None:
    environ = {"HOLESHOT_DATABASE_URL": "sqlite:///ledger.db"}
    lay(migrated(), Path("ledger.db"))
    assert holeshot("migrate", "--down-to", "0045", **environ).exit_code == 0
    result = holeshot("sql", "select * from a_view_of_tomorrow", **environ)

    assert result.exit_code == 1
    assert "the ledger's schema is 0045, this version needs " in result.stderr
    assert (here / "ledger.db").exists()


def test_a_name_that_no_migration_makes_is_unknown(holeshot: Holeshot) -> None:
    environ = {"HOLESHOT_DATABASE_URL": "sqlite:///ledger.db"}
    lay(migrated(), Path("ledger.db"))

    told = holeshot("sql", "select * from nowhere", **environ).stderr
    assert told.startswith("holeshot: no such table: nowhere; the views are ")
