"""The command line as a whole: its version, and what a shell completes."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli.main import COMMANDS, application

Holeshot = Callable[..., Result]


def test_the_option_prints_what_the_verb_prints(holeshot: Holeshot) -> None:
    asked = holeshot("--version")

    assert (asked.exit_code, asked.stdout) == (0, holeshot("version").stdout)
    assert re.match(r"holeshot \S+ \(ledger schema \d{4}, Python ", asked.stdout)


def test_without_a_verb_the_help_is_shown(holeshot: Holeshot) -> None:
    assert "First steps:" in holeshot().output


def test_a_shell_completes_verbs_and_options(holeshot: Holeshot) -> None:
    def completed(words: str) -> list[str]:
        environ = {"_HOLESHOT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return holeshot(**environ).output.split()

    assert completed("holeshot lead") == ["leaderboard"]
    assert completed("holeshot sql --exc") == ["--excel"]


def test_the_script_of_completion_asks_this_program(holeshot: Holeshot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))  # whatever runs the tests

    assert "_HOLESHOT_COMPLETE=complete_bash" in holeshot("--show-completion").output


def test_starting_imports_nothing_that_draws_or_serves() -> None:
    slow = "{'rich', 'pydantic', 'aiohttp', 'sqlalchemy', 'litellm'}"
    code = f"from gateway.cli.main import application; application(); import sys; print({slow} & set(sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"set()\n"


@pytest.mark.parametrize("asked", ["--version", "version"])
def test_the_version_is_told_without_what_serves(asked: str) -> None:
    code = f"""
import atexit, sys
from holeshot.__main__ import main

slow = {{"rich", "aiohttp", "sqlalchemy", "litellm", "structlog", "asyncpg", "providers"}}
atexit.register(lambda: print(slow & set(sys.modules)))
sys.argv = ["holeshot", {asked!r}]
main()
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout

    assert said.startswith("holeshot ")
    assert said.endswith("set()\n")


def test_a_reload_that_is_asked_for_while_serve_is_imported_does_not_end_it() -> None:
    code = """
import importlib.abc, os, signal, sys
from holeshot.__main__ import main

class HangUp(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "gateway":
            os.kill(os.getpid(), signal.SIGHUP)

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests may ignore it
sys.meta_path.insert(0, HangUp())
sys.argv = ["holeshot", *sys.argv[1:]]
main()
"""
    ended = {
        command: subprocess.run([sys.executable, "-c", code, command, "--help"], capture_output=True, check=False)
        for command in ("serve", "tail")
    }

    assert {command: each.returncode for command, each in ended.items()} == {"serve": 0, "tail": -signal.SIGHUP}


def test_an_argument_that_is_not_utf_8_is_named() -> None:
    command = [sys.executable, "-m", "gateway.cli", "tail", "--model", "\udcff"]
    result = subprocess.run(command, capture_output=True, check=False)

    words = b"holeshot: argument 3 is not UTF-8 text\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, b"", words)


@pytest.mark.parametrize("command", [["sql", "-"], ["sql", "-", "--json"], ["race", "-"]], ids=" ".join)
def test_standard_input_that_is_not_utf_8_is_refused(holeshot: Holeshot, command: list[str]) -> None:
    result = holeshot(*command, stdin=b"select 1,\n '\xff'")

    words = "holeshot: standard input is not UTF-8 text (line 2, byte 12): save it as UTF-8\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", words)


@pytest.mark.parametrize("query", ["", " \n"])
def test_an_empty_query_is_refused(holeshot: Holeshot, query: str) -> None:
    for result in (holeshot("sql", query), holeshot("sql", "-", stdin=query)):
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", "holeshot: the query is empty\n")


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_if_they_were_empty(streams: str) -> None:
    command = f"exec {sys.executable} -m gateway.cli sql - {streams}"
    result = subprocess.run(["/bin/sh", "-c", command], input=b"", capture_output=True, check=False)

    words = b"" if "2>&-" in streams else b"holeshot: the query is empty\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, b"", words)


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("verb", ["version", "schema"])
def test_a_full_disk_is_one_sentence(verb: str) -> None:
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "gateway.cli", verb]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)

    words = b"holeshot: No space left on device: what was to be written is not complete\n"
    assert (result.returncode, result.stderr) == (1, words)


@pytest.mark.parametrize("asked", COMMANDS)
def test_a_command_that_is_asked_for_is_made_alone_and_says_the_same(asked: str) -> None:
    alone, among = (CliRunner().invoke(app, [asked, "--help"]) for app in (application(asked), application()))
    assert (alone.exit_code, among.exit_code) == (0, 0)
    assert alone.output == among.output


def test_a_command_that_there_is_not_is_told_with_near_names() -> None:
    refused = CliRunner().invoke(application("serv"), ["serv"])
    assert refused.exit_code == 2
    assert "Did you mean 'serve'?" in refused.output
