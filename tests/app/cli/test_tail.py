"""holeshot tail where there is nothing to show."""

import os
import pty
import subprocess
from collections.abc import Callable
from typing import Any

from typer.testing import Result

from tests.support import warm

Holeshot = Callable[..., Result]


def test_a_gateway_that_is_away_or_a_model_that_nobody_has_is_a_sentence(holeshot: Holeshot, site: Any) -> None:
    site.answers["/api/leaderboard"] = {"models": [{"model": "chat"}]}
    unknown = holeshot("tail", "--url", site.url, "--model", "nope")
    assert (unknown.exit_code, unknown.stderr) == (1, "holeshot: no model 'nope'; there are: chat\n")
    away = holeshot("tail", "--url", "http://127.0.0.1:9")
    assert away.exit_code == 1
    assert away.stderr.startswith("holeshot: no gateway at http://127.0.0.1:9 (")
    assert "holeshot serve" in away.stderr


def test_on_a_terminal_it_says_what_it_waits_for(site: Any) -> None:
    site.answers["/api/leaderboard"] = {"models": [{"model": "chat"}]}
    ours, its = pty.openpty()

    command = [*warm.holeshot(), "tail", "--url", site.url, "--model", "chat", "--slow", "500"]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=its, check=False)  # ends: there are no live events

    told = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(its)
    assert (process.returncode, process.stdout) == (1, b"")
    words = f"waiting for calls (model chat, slower than 500 ms) at {site.url}; Ctrl-C stops"
    assert " ".join(told.split()).startswith(words)  # broken where the terminal is too narrow
