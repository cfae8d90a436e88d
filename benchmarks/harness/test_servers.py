"""A measured server that does not start says why, and none of its processes outlives it."""

import os
import select
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tests.support.measured import servers
from tests.support.servers import free_port

STUBBORN = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.run([sys.executable, "-c", "import os, time; os.write(1, b'up'); time.sleep(600)"])
"""


def test_a_server_that_does_not_start_says_why_and_was_in_its_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os, sys; sys.exit(f'no luck in {os.getcwd()}')"]
    log = tmp_path / "stderr"
    with log.open("wb") as output, servers.running(command, None, output, tmp_path) as process:
        process.wait(PATIENCE_S)
        with pytest.raises(RuntimeError, match=f"no luck in {tmp_path}"):
            servers.wait_until_listening(process, free_port(), log=log)


def test_the_workers_of_a_server_that_does_not_end_are_killed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "STOP_LIMIT_S", 0.0)
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb", buffering=0) as heard, os.fdopen(writes, "wb") as output:
        with servers.running([sys.executable, "-c", STUBBORN], output=output):
            assert heard.read(2) == b"up"
        output.close()
        assert select.select([heard], [], [], PATIENCE_S)[0], "a worker still holds the pipe"
        assert heard.read(1) == b""
