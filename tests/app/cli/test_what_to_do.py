"""Errors of commands say what to do: the file, the folder, the server and the command, as their reader knows them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Holeshot = Callable[..., Result]

CONFIG = """\
database_url: {url}
keys: database
providers: {{ mine: {{ base_url: 'http://127.0.0.1:1/v1' }} }}
models: {{ m: {{ deployments: [mine/x] }} }}
port: 1
"""
AWAY = "postgresql://someone:a-password@127.0.0.1:1/holeshot"
ASKING = [["migrate"], ["prune"], ["slowdowns"], ["alerts"], ["keys", "list"], ["leaderboard", "--since", "1h"]]


def write(url: str, path: str = "my file.yaml") -> None:
    Path(path).write_text(CONFIG.format(url=url))


@pytest.mark.parametrize("command", ASKING, ids=" ".join)
def test_a_database_that_is_away_is_named_as_it_was_written(holeshot: Holeshot, command: list[str]) -> None:
    write(AWAY)
    told = holeshot(*command, "-c", "my file.yaml").stderr.splitlines()[-1]
    assert told == (
        "holeshot: the database postgresql://someone:***@127.0.0.1:1/holeshot cannot be used: Connection refused;"
        " start Postgres there, or correct the host and port of database_url"
    )


def test_a_host_that_is_not_known_is_told(holeshot: Holeshot) -> None:
    write("postgresql://someone@no.such.host.invalid/holeshot")
    told = holeshot("migrate", "-c", "my file.yaml").stderr
    assert "; correct the host of database_url" in told


@pytest.mark.parametrize(
    "command", [["sql", "select 1"], ["slowdowns"], ["keys", "list"], ["migrate", "--down-to", "base"]], ids=" ".join
)
def test_the_command_that_is_proposed_reads_the_same_configuration(holeshot: Holeshot, command: list[str]) -> None:
    write("sqlite:///there/is/none.db")
    told = holeshot(*command, "-c", "my file.yaml").stderr
    assert told.endswith("run: holeshot migrate -c 'my file.yaml'\n")
    without = holeshot(*command, HOLESHOT_CONFIG="my file.yaml").stderr
    assert without.endswith("run: holeshot migrate\n")


@pytest.mark.parametrize("command", [["leaderboard"], ["explain", "m"], ["facts"], ["tail"]], ids=" ".join)
def test_a_gateway_that_is_away_is_named_without_what_was_asked_of_it(holeshot: Holeshot, command: list[str]) -> None:
    write("sqlite:///var/holeshot.db")
    assert holeshot(*command, "-c", "my file.yaml").stderr == (
        "holeshot: no gateway at http://127.0.0.1:1 (Connection refused); start one with"
        " `holeshot serve -c 'my file.yaml'`, or give --url\n"
    )


def test_a_folder_that_cannot_be_made_has_its_whole_name(holeshot: Holeshot) -> None:
    Path("var").touch()
    write("sqlite:///var/ledger/holeshot.db")
    told = holeshot("migrate", "-c", "my file.yaml").stderr
    folder = Path.cwd() / "var" / "ledger"
    assert told == (
        f"holeshot: database_url: the folder {folder} cannot be made: Not a directory; name a file in another one\n"
    )


def test_init_names_the_whole_folder_too(holeshot: Holeshot) -> None:
    Path("config").touch()
    told = holeshot("init", GROQ_API_KEY="gsk-1").stderr
    assert f"the folder {Path.cwd() / 'config'} cannot be made" in told


@pytest.mark.parametrize("command", [["serve"], ["check"], ["slowdowns"], ["tail"]], ids=" ".join)
def test_a_configuration_that_cannot_be_read_says_what_to_name(holeshot: Holeshot, command: list[str]) -> None:
    Path("folder").mkdir()
    told = holeshot(*command, "-c", "missing.yaml").stderr
    assert "missing.yaml: cannot be read: No such file or directory; name one that is there" in told
    told = holeshot(*command, "-c", "folder").stderr
    assert "folder: cannot be read: Is a directory; name a file in it" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read each file")
def test_a_configuration_of_another_user_says_which_right_is_missing(holeshot: Holeshot) -> None:
    write("sqlite:///var/holeshot.db")
    Path("my file.yaml").chmod(0)
    assert "give this user the right to read it" in holeshot("check", "-c", "my file.yaml").stderr


@pytest.mark.parametrize("also", [{}, {"OPENAI_API_KEY": "sk-1"}], ids=["alone", "beside another"])
def test_init_passes_over_no_key_in_silence(holeshot: Holeshot, also: dict[str, str]) -> None:
    result = holeshot("init", GROQ_APIKEY="made-up", AZURE_API_KEY="made-up", **also)
    told = result.stdout if also else result.stderr
    assert result.exit_code == (0 if also else 1)
    assert "note: GROQ_APIKEY is set, but is not read: did you mean GROQ_API_KEY (Groq)?" in told
    assert "note: AZURE_API_KEY is set, but not where your Azure OpenAI is" in told
    assert "made-up" not in told


def test_init_writes_azure_where_all_that_it_needs_is_there(holeshot: Holeshot) -> None:
    environ = {"AZURE_API_KEY": "made-up", "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com"}
    result = holeshot("init", **environ)
    assert result.exit_code == 0
    assert "providers found in the environment: azure" in result.stdout
    written = Path("config/gateway.yaml").read_text(encoding="utf-8")
    assert 'azure: { base_url: "${AZURE_OPENAI_ENDPOINT}", api_key: "${AZURE_API_KEY}" }' in written
    assert holeshot("check", **environ).exit_code == 0


def test_check_tells_of_a_key_under_another_name(holeshot: Holeshot) -> None:
    assert "GROQ_APIKEY is set, but is not read" in holeshot("check", GROQ_APIKEY="made-up").stdout
    Path("gateway.yaml").write_text("providers: { groq: { api_key: '${GROQ_API_KEY}' } }\n")
    told = holeshot("check", "-c", "gateway.yaml", GROQ_APIKEY="made-up").stderr
    assert "GROQ_API_KEY is not set, but GROQ_APIKEY is: did you mean that one?" in told
