"""A fair client beside an attack: what it waits for first tokens, and what the attack leaves of the gateway.

The gateway is a process of its own with little memory; so is whoever attacks, with the provider that the attack asks.
The fair client and its provider, whose first tokens come after ``FIRST_TOKEN_S``, are in this one.
"""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from gateway.ledger import migrate
from tests.app.gateway.process import COMMAND, GatewayProcess, started
from tests.hostile.attacks import CLIENTS, KEYS, MODEL, Attack, delta
from tests.patience import PATIENCE_S

HOST = "127.0.0.1"
MEMORY_BYTES = 512 * 2**20
FIRST_TOKEN_S = 0.06
CALL_EACH_S = 0.03
ALONE_S = 3.0
BACK_WITHIN_S = 10.0
BACK_SHARE = 1.1  # of the memory before
_LOOK_S = 0.02
_ASKED = json.dumps({"model": "fair", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}).encode()
_REQUEST = (
    f"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {KEYS['fair']}\r\n"
    f"content-type: application/json\r\ncontent-length: {len(_ASKED)}\r\nconnection: close\r\n\r\n"
).encode() + _ASKED
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_TOKEN = delta(b'{"content":"token"}')
_END = delta(b"{}").replace(b'"delta":{}', b'"delta":{},"finish_reason":"stop"') + b"data: [DONE]\n\n"
_LONGEST = re.compile(rb'holeshot_loop_longest_turn_seconds\{work="(\w+)"\} (\S+)')


class Waits(msgspec.Struct):
    """What the fair client waited for first tokens, in milliseconds; ``failed`` are calls without one."""

    first_ms: list[float] = msgspec.field(default_factory=list)
    failed: int = 0

    def share(self, share: float) -> float:
        """Return a quantile."""
        return sorted(self.first_ms)[min(len(self.first_ms) - 1, int(len(self.first_ms) * share))]


class Figures(msgspec.Struct):
    """What came of one attack. ``turns_ms`` are the longest turns of the gateway's loop, by what ran."""

    alone: Waits
    beside: Waits
    answers: dict[str, int]  # of the attack, by status
    before_mb: float
    peak_mb: float
    after_mb: float
    back_s: float | None  # None: the memory did not come back in time
    turns_ms: dict[str, float]
    exit_code: int | None  # None: it lives, as it should

    def missed(self) -> list[str]:
        """Return what should hold and does not."""
        alone_ms, p99_ms, longest_ms = (self.alone.share(0.99), self.beside.share(0.99), self.beside.share(1))
        said = {
            f"it ended with {self.exit_code}": self.exit_code is not None,
            f"{self.beside.failed} fair calls failed": self.beside.failed > 0,
            f"a fair client waited {longest_ms:.0f} ms": longest_ms > 300,
            f"its p99 is {p99_ms:.0f} ms, alone {alone_ms:.0f} ms": p99_ms > 2 * alone_ms,
        }
        return [*(text for text, holds in said.items() if holds), *self.lasting()]

    def lasting(self) -> list[str]:
        """Return what should hold however busy the machine is, and does not."""
        said = {
            f"it took {self.peak_mb:.0f} MB": self.peak_mb * 1e6 > MEMORY_BYTES,
            f"of {self.before_mb:.0f} MB it kept {self.after_mb:.0f} MB": self.back_s is None,
        }
        return [text for text, holds in said.items() if holds]


async def _provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(FIRST_TOKEN_S)
        writer.write(_ANSWER + _TOKEN * 5 + _END)
        await writer.drain()
    writer.close()


async def _call(port: int, waits: Waits) -> None:
    """Make one call, and note when its first token came."""
    loop = asyncio.get_running_loop()
    began_s, answer, came_s = loop.time(), b"", None
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(_REQUEST)
        while data := await reader.read(2**16):
            answer += data
            if came_s is None and b"token" in answer:
                came_s = loop.time()
        writer.close()
    if came_s is None or b"[DONE]" not in answer:
        waits.failed += 1
        waits.first_ms.append((loop.time() - began_s) * 1000)
    else:
        waits.first_ms.append((came_s - began_s) * 1000)


async def fair(port: int, until: asyncio.Future[Any]) -> Waits:
    """Call at a fixed rate, however late the answers are, until ``until`` is done."""
    waits = Waits()
    async with asyncio.TaskGroup() as calls:
        while not until.done():
            calls.create_task(_call(port, waits))
            await asyncio.wait([until], timeout=CALL_EACH_S)
    return waits


def _memory_mb(pid: int, what: str = "VmRSS") -> float:
    with contextlib.suppress(OSError):
        if found := re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()):
            return int(found[1]) * 1024 / 1e6
    return 0.0  # it has ended


def configuration(folder: Path, fair_port: int, hostile_port: int, api: str, **models: Any) -> dict[str, Any]:
    """Return the configuration of a gateway with a fair provider and one that speaks ``api``."""
    hostile: dict[str, Any] = {"base_url": f"http://{HOST}:{hostile_port}/v1", "api_key": "k", "apis": [api]}
    if api == "gemini":
        hostile["kind"] = "gemini"
    price = {"price_per_mtok": {"input": 10, "output": 50}}
    return {
        "database_url": f"sqlite:///{folder / 'holeshot.db'}",
        "spool_dir": str(folder / "spool"),
        "port": 0,
        "log_format": "json",
        "lame_duck_s": 0,
        "clients": CLIENTS,
        "providers": {"fair": {"base_url": f"http://{HOST}:{fair_port}/v1", "api_key": "k"}, "hostile": hostile},
        "models": {
            "fair": {"deployments": ["fair/m"]},
            MODEL: {"deployments": [{"deployment": "hostile/m", **price}], "race": {"mode": "single"}},
            **models,
        },
    }


@asynccontextmanager
async def attacker(attack: Attack) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Start the process that attacks, and give the port of its provider."""
    command = (sys.executable, "-P", "-m", "tests.hostile.attacker", attack.name)
    pipe = asyncio.subprocess.PIPE
    root = Path(__file__).parents[2]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, cwd=root, env={"PYTHONPATH": str(root)}
    )
    assert process.stdout is not None
    try:
        yield process, int(await process.stdout.readline())
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@asynccontextmanager
async def gateway(config: dict[str, Any], folder: Path) -> AsyncIterator[tuple[GatewayProcess, int]]:
    """Run a gateway that may have no more than ``MEMORY_BYTES``; give its port, too."""
    await migrate(config["database_url"])
    limited = ("sh", "-c", f'ulimit -d {MEMORY_BYTES // 1024}; exec "$@"', "sh", *COMMAND)
    async with started(config, folder, command=limited) as running:
        yield running, int(running.url.rsplit(":", 1)[1])


async def beside(attack: Attack, seconds: float, folder: Path) -> Figures:
    """Attack a gateway for so long, with a fair client beside it."""
    server = await asyncio.start_server(_provide, HOST, 0)
    async with server, attacker(attack) as (process, hostile_port):
        config = configuration(folder, server.sockets[0].getsockname()[1], hostile_port, attack.speaks)
        async with gateway(config, folder) as (running, port):
            return await _measured(running, port, process, seconds)


async def _measured(running: GatewayProcess, port: int, process: asyncio.subprocess.Process, seconds: float) -> Figures:
    assert process.stdin is not None
    assert process.stdout is not None
    alone = await fair(port, asyncio.ensure_future(asyncio.sleep(ALONE_S)))
    before_mb = _memory_mb(running.pid)
    process.stdin.write(json.dumps([port, seconds]).encode() + b"\n")
    attacking = asyncio.ensure_future(asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
    waits = await fair(port, attacking)
    loop = asyncio.get_running_loop()
    ended_s, back_s = loop.time(), None
    page = await _page(port)
    while back_s is None and loop.time() < ended_s + BACK_WITHIN_S:
        if _memory_mb(running.pid) <= before_mb * BACK_SHARE:
            back_s = loop.time() - ended_s
        await asyncio.sleep(_LOOK_S)
    await fair(port, asyncio.ensure_future(asyncio.sleep(_LOOK_S)))  # it still answers
    return Figures(
        alone=alone,
        beside=waits,
        answers=json.loads(await attacking),
        before_mb=before_mb,
        peak_mb=_memory_mb(running.pid, "VmHWM"),
        after_mb=_memory_mb(running.pid),
        back_s=back_s,
        turns_ms={work.decode(): float(value) * 1000 for work, value in _LONGEST.findall(page)},
        exit_code=running.exit_code,
    )


async def _page(port: int) -> bytes:
    """Return the page of metrics; empty if nothing answers."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(BACK_WITHIN_S):
            reader, writer = await asyncio.open_connection(HOST, port)
            told = f"authorization: Bearer {KEYS['viewer']}\r\nconnection: close\r\n\r\n"
            writer.write(b"GET /metrics HTTP/1.1\r\nhost: h\r\n" + told.encode())
            page = await reader.read()
            writer.close()
            return page
    return b""
