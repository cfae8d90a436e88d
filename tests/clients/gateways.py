"""A gateway as a user starts it: ``holeshot serve --config FILE``, from the checkout, with a log in a file."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.clients.installs import CHECKOUT

START_LIMIT_S = 180.0


class GatewayFailed(Exception):
    """The gateway did not start, or did not stay."""


@asynccontextmanager
async def gateway(config: dict[str, Any], folder: Path) -> AsyncIterator[str]:
    """Start a gateway with ``config`` and yield its URL; stop it when the block ends. Its log is ``folder/log``.

    Raises:
        GatewayFailed: it did not start, or ended by itself; with the log's end.

    """
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    log = folder / "log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
    clean = {name: value for name, value in clean.items() if not name.endswith(("_KEY", "_TOKEN"))}
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("holeshot")), "serve", "--config", str(path)),
        cwd=CHECKOUT,
        env=clean,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    copying = None
    try:
        async with asyncio.timeout(START_LIMIT_S):
            url = await _started(process.stderr, log)
        copying = asyncio.create_task(_copy(process.stderr, log))
        yield url
        if process.returncode is not None:
            raise GatewayFailed(f"the gateway ended by itself with {process.returncode}: {_end_of(log)}")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        if copying is not None:
            await copying


async def _started(stderr: asyncio.StreamReader, log: Path) -> str:
    while line := await stderr.readline():
        _append(log, line)
        try:
            entry = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if entry.get("event") == "gateway.started":
            return str(entry["url"])
    raise GatewayFailed(f"the gateway did not start: {_end_of(log)}")


async def _copy(stderr: asyncio.StreamReader, log: Path) -> None:
    while line := await stderr.readline():
        _append(log, line)


def _append(log: Path, line: bytes) -> None:
    with log.open("ab") as file:
        file.write(line)


def mistakes_in(log: Path) -> list[str]:
    """Return what the gateway logged as mistakes of its own: each kind once, by the last line of its traceback."""
    found: dict[str, None] = {}
    for line in log.read_bytes().splitlines():
        try:
            entry = msgspec.json.decode(line)
        except msgspec.DecodeError:
            found[line.decode(errors="replace")] = None
            continue
        if "exception" in entry:
            found[f"{entry['event']}: {str(entry['exception']).strip().splitlines()[-1]}"] = None
    return list(found)


def refused_in(log: Path) -> int:
    """Return how many requests the gateway has refused before they became calls."""
    entries = map(msgspec.json.decode, log.read_bytes().splitlines())
    return sum(entry["count"] for entry in entries if entry.get("event") == "request.refused")


def _end_of(log: Path) -> str:
    return log.read_text()[-2000:] if log.exists() else "it said nothing"
