"""A gateway as a process of its own, ``python -P -m gateway.cli serve``: started, watched by its log, and signalled."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from tests.app.gateway.running_gateway import write
from tests.patience import PATIENCE_S
from tests.support.warm import DEPRECATED, WarmProcess, forked

CHECKOUT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-P", *DEPRECATED, "-m", "gateway.cli")


class GatewayProcess:
    """The running process; ``url`` is where it listens, ``logged`` its log so far."""

    def __init__(self, process: asyncio.subprocess.Process | WarmProcess) -> None:
        self.url = ""
        self.logged: list[dict[str, Any]] = []
        self.stderr = b""
        self._process = process
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(lambda _: self._news.set())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self, within_s: float = PATIENCE_S) -> int:
        """Wait for its end, and that of every process it has started; return the exit code.

        Raises:
            TimeoutError: it went on, and was killed; what it has said is shown with the failure.

        """
        try:
            async with asyncio.timeout(within_s):
                await asyncio.shield(self._reader)
                return await self._process.wait()
        except TimeoutError:  # its test fails, and the others go on: workers end with their parent
            self._process.kill()
            sys.stdout.write(self.stderr[-4000:].decode(errors="replace"))
            raise

    async def event(self, name: str, count: int = 1) -> dict[str, Any]:
        """Wait until it has logged the event ``name`` so often; return the last of them."""
        while len(self.events(name)) < count and not self._reader.done():
            await self.more()
        found = self.events(name)
        assert len(found) >= count, self.stderr.decode()
        return found[count - 1]

    async def more(self) -> None:
        """Wait for its next line, or its end; it must not have ended."""
        assert not self._reader.done(), self.stderr.decode()
        self._news.clear()
        await self._news.wait()

    def events(self, name: str) -> list[dict[str, Any]]:
        return [entry for entry in self.logged if entry["event"] == name]

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.stderr += line
            try:
                self.logged.append(msgspec.json.decode(line, type=dict[str, Any]))
            except msgspec.DecodeError:
                self.logged.append({"event": "garbled", "line": line})
            self._news.set()


async def launched(
    config: Mapping[str, Any],
    folder: Path,
    environ: Mapping[str, str] = MappingProxyType({}),
    *,
    command: Sequence[str] | None = None,
    cwd: Path = CHECKOUT,
    stderr: int = asyncio.subprocess.PIPE,
) -> asyncio.subprocess.Process | WarmProcess:
    """Launch a gateway with ``config`` and no key in its environment: by ``command``, or forked by a warm parent."""
    path = write(config, folder)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
    clean = {name: value for name, value in clean.items() if not name.endswith(("_KEY", "_TOKEN"))}
    if command is None and cwd == CHECKOUT and sys.platform == "linux":
        arguments = ("serve", "--config", str(path))
        return await forked(arguments, cwd=cwd, env={**clean, **environ}, stderr=stderr)
    return await asyncio.create_subprocess_exec(
        *(command or COMMAND),
        "serve",
        "--config",
        str(path),
        cwd=cwd,
        env={**clean, **environ},
        stderr=stderr,
    )


@asynccontextmanager
async def started(
    config: Mapping[str, Any],
    folder: Path,
    *,
    command: Sequence[str] | None = None,
    cwd: Path = CHECKOUT,
    **environ: str,
) -> AsyncIterator[GatewayProcess]:
    """Start a gateway with ``config`` and wait until it serves; stop it, if it still runs, when the block ends."""
    process = await launched(config, folder, environ, command=command, cwd=cwd)
    running = GatewayProcess(process)
    try:
        async with asyncio.timeout(PATIENCE_S):
            running.url = (await running.event("gateway.started"))["url"]
            yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await running.ended()


async def ran(*command: str, cwd: Path, env: Mapping[str, str], within_s: float = PATIENCE_S) -> tuple[int | None, str]:
    """Run a command to its end; return its exit code and all that it wrote.

    Raises:
        TimeoutError: it went on, and was killed with all that it has started, which may hold its output open.

    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(within_s):
            said, _ = await process.communicate()
    except (TimeoutError, asyncio.CancelledError):
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    return process.returncode, said.decode()
