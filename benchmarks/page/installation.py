"""A gateway before the simulated fleet, as somebody without a key starts it, and calls through it."""

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from benchmarks.harness.servers import ROOT

MODEL = "demo-chat"
CALLS_PER_S = 6.0
SHORT_TOKENS, APART_S = 60, 2.0  # of slow calls
PROMPTS = ("Why race?", "Summarize this page.", "What is a holeshot?", "Write a haiku about latency.", "Translate: go!")
START_LIMIT_S = 30.0


@asynccontextmanager
async def installed() -> AsyncIterator[str]:
    """Start the gateway and yield its address; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="holeshot-page-") as folder:
        path = Path(folder) / "gateway.yaml"
        settings = {"port": 0, "database_url": f"sqlite:///{folder}/ledger.db", "spool_dir": f"{folder}/spool"}
        path.write_text(yaml.safe_dump({**settings, "lame_duck_s": 0, "log_format": "json"}), encoding="utf-8")
        ours = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
        ours = {name: value for name, value in ours.items() if not name.startswith("HOLESHOT_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.cli", "serve", "--config", str(path)),
            cwd=ROOT,
            env={**ours, "PYTHONPATH": str(ROOT)},
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        reading = None
        try:
            async with asyncio.timeout(START_LIMIT_S):
                url = await _started(process.stderr)
            reading = asyncio.create_task(_drop(process.stderr))  # or its log would fill the pipe
            yield url
        finally:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            await process.wait()
            if reading is not None:
                await reading


@asynccontextmanager
async def called(url: str) -> AsyncIterator[None]:
    """Make streamed calls by chance, six a second on average, until the block ends; then cut what still runs."""
    async with aiohttp.ClientSession(url) as client, asyncio.TaskGroup() as group:
        calling = group.create_task(_call_on(client))
        try:
            yield
        finally:
            calling.cancel()


@asynccontextmanager
async def called_slowly(url: str) -> AsyncIterator[None]:
    """Have short answers raced by three, one after the other, until the block ends: each race can be read."""
    async with aiohttp.ClientSession(url) as client, asyncio.TaskGroup() as group:
        calling = group.create_task(_call_slowly(client))
        try:
            yield
        finally:
            calling.cancel()


async def _call_slowly(client: aiohttp.ClientSession) -> None:
    while True:
        await _call(client, PROMPTS[0], race={"mode": "race", "width": 3}, max_tokens=SHORT_TOKENS)
        await asyncio.sleep(APART_S)


async def _call_on(client: aiohttp.ClientSession) -> None:
    draw = random.Random(16)
    async with asyncio.TaskGroup() as running:
        while True:
            await asyncio.sleep(draw.expovariate(CALLS_PER_S))
            running.create_task(_call(client, draw.choice(PROMPTS)))


async def _call(client: aiohttp.ClientSession, prompt: str, **more: Any) -> None:
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": prompt}], **more}
    with suppress(aiohttp.ClientError):  # a simulated provider may end a stream with an error: that is to be seen too
        async with client.post("/v1/chat/completions", json=body) as response:
            async for _ in response.content.iter_any():
                pass


async def _started(log: asyncio.StreamReader) -> str:
    said = b""
    while line := await log.readline():
        said += line
        if b'"gateway.started"' in line:
            return str(json.loads(line)["url"])
    raise RuntimeError(f"the gateway did not start: {said.decode(errors='replace')[-2000:]}")


async def _drop(log: asyncio.StreamReader) -> None:
    while await log.read(65_536):
        pass
