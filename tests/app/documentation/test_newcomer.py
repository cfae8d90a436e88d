"""A newcomer's first hour: a fresh folder, an empty environment, and every command run as it is printed."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.app.gateway.process import GatewayProcess, ran
from tests.patience import PATIENCE_S
from tests.support.warm import holeshot

ROOT = Path(__file__).parents[3]
KEYS = {"GROQ_API_KEY": "gsk-made-up", "CEREBRAS_API_KEY": "csk-made-up"}


class Folder:
    """A fresh folder with the command in ``.venv/bin``, as ``make install`` leaves it, and an empty environment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        programs = path / ".venv" / "bin"
        programs.mkdir(parents=True)
        self.write(programs / "holeshot", f'exec {" ".join(holeshot())} "$@"')
        self.write(programs / "python", f'exec {sys.executable} "$@"')
        self.environ = {"PATH": f"{programs}{os.pathsep}/usr/bin:/bin", "HOME": str(path), "PYTHONPATH": str(ROOT)}

    @staticmethod
    def write(path: Path, line: str) -> None:
        path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        path.chmod(0o755)

    async def run(self, command: str, environ: Mapping[str, str] = {}) -> tuple[int | None, str]:
        """Run what was printed; return the exit code and all that it wrote."""
        return await ran("bash", "-euo", "pipefail", "-c", command, cwd=self.path, env={**self.environ, **environ})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[GatewayProcess]:
        """Serve on a free port, as a gateway does whose port is taken; ends it."""
        process = await asyncio.create_subprocess_exec(
            self.path / ".venv" / "bin" / "holeshot", "serve", "--port", "0", cwd=self.path,
            env=self.environ, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        gateway = GatewayProcess(process)
        try:
            async with asyncio.timeout(PATIENCE_S):
                gateway.url = (await gateway.event("gateway.started"))["url"]
                while b"race_value" not in gateway.stderr:
                    await gateway.more()
            yield gateway
        finally:
            process.send_signal(signal.SIGINT)
            await gateway.ended()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def commands(welcome: str) -> list[str]:
    """Return what the gateway says to try: lines that go on after a backslash, or to the end of a document, are one."""
    text = welcome[welcome.index("Try it:") :]
    found = re.findall(r"^  (\S(?:.*\\\n)*.*(?:(?<=<<'PY')\n(?:.*\n)*?PY$)?)", text, re.MULTILINE)
    return [each for each in found if "pip install" not in each]


async def test_a_port_that_is_taken_is_told_with_the_command_that_works(folder: Folder) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        code, said = await folder.run(f"holeshot serve --port {taken.getsockname()[1]}")
    assert code == 1
    assert re.search(r"HOLESHOT_PORT=\d+ make run", said)
    assert "HOLESHOT_PORT=4001 make run" in (ROOT / "README.md").read_text(encoding="utf-8")


async def test_every_command_that_is_printed_at_the_start_works_as_it_is_printed(folder: Folder) -> None:
    async with folder.serving() as gateway:
        printed = commands(gateway.stderr.decode())
        assert len(printed) == 5
        for command in printed:
            if "from openai" in command and find_spec("openai") is None:
                continue  # the line before it installs that
            code, said = await folder.run(command)
            breaks = "holeshot race" in command and "the answer broke off" in said  # simulated ones do now and then
            assert code == 0 or breaks, f"{command}: {said}"
        code, said = await folder.run("holeshot leaderboard")  # at a port that nobody told it
        assert code == 0, said
        code, said = await folder.run("holeshot leaderboard", {"HOLESHOT_PORT": "9"})
        assert (code, "no gateway at http://127.0.0.1:9" in said) == (1, True), said
        [note] = (folder.path / "var").glob("address-*.json")
        left = note.read_bytes()
    assert "holeshot leaderboard" in printed[-2]
    assert "race_value" in printed[-1]
    assert not note.exists()
    note.write_bytes(left)  # as after a kill
    (folder.path / "config").mkdir()
    (folder.path / "config" / "gateway.yaml").write_text("port: 9\n", encoding="utf-8")  # somebody may have 4000
    code, said = await folder.run("holeshot leaderboard")
    assert code == 1
    assert re.search(r"the gateway at http://127.0.0.1:\d+ has ended \(process \d+\); this asks", said)


async def test_without_keys_nothing_is_written_and_the_command_that_is_named_works_with_keys(folder: Folder) -> None:
    code, said = await folder.run("holeshot init")
    assert code == 1
    assert not (folder.path / "config").exists()
    [command] = [line.strip() for line in said.splitlines() if line.startswith("  ")]
    named = command.rpartition("... ")[2].removesuffix(" --live")  # which would ask the vendors
    code, said = await folder.run(named, KEYS)
    assert code == 0, said
    assert (folder.path / "config" / "gateway.yaml").exists()
    check, serve = (part.strip() for part in said.rpartition("next: ")[2].split(", then "))
    assert serve.endswith("holeshot serve")
    code, said = await folder.run(check.removesuffix(" --live"), KEYS)
    assert code == 0, said
    assert said.splitlines()[-1] == "config/gateway.yaml: ok"
