"""A fair client beside an attack: what it waits for first tokens, and what the attack leaves of the gateway.

The gateway is a process of its own with little memory; so is whoever attacks, with the provider that the attack asks.
The fair client and its provider, whose first tokens come after ``FIRST_TOKEN_S``, are in this one.
"""

import asyncio
import contextlib
import json
import re
import resource
import sys
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from gateway.ledger import migrate
from tests.app.gateway.process import COMMAND, started
from tests.hostile.attacker import ASKED_THERE, HOST, LENGTH, closing
from tests.hostile.attacks import BODIES, CLIENTS, MARK, PROMPT, TEXT, USUAL, Attack, delta, many, post
from tests.patience import PATIENCE_S

MEMORY_BYTES = 512 * 2**20
FIRST_TOKEN_S = 0.06
SPARES_S = 0.4  # of the model that answers while the fair client's own is out
CALL_EACH_S = 0.03
LONGEST_MS = 300.0
BACK_WITHIN_S = 10.0
BACK_SHARE = 1.1  # of the memory before
_ROOT = Path(__file__).parents[2]
_LIMITS = f'ulimit -d {MEMORY_BYTES // 1024}; ulimit -n {{}}; exec "$@"'
_ASKED = json.dumps({**USUAL, "messages": [{"role": "user", "content": PROMPT}]}).encode()
_CALL = b"POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer hs-fair\r\ncontent-length: %d\r\n" % len(_ASKED)
_CALL += b"content-type: application/json\r\nhost: h\r\nconnection: close\r\n\r\n" + _ASKED
# A long request that is translated, in the thread: what it loads stays, and is no attack's.
_LONG = BODIES["messages"].replace(b"hostile", b"fair") % (b"[%b]" % many(TEXT, 10_000))
_METRICS = b"GET /metrics HTTP/1.1\r\nhost: h\r\nauthorization: Bearer hs-viewer\r\nconnection: close\r\n\r\n"
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_ANSWER += delta(b'{"content":"token"}') * 5 + delta(b'{},"finish_reason":"stop"') + b"data: [DONE]\n\n"
_LONGEST = re.compile(rb'holeshot_loop_longest_turn_seconds\{work="(\w+)"\} (\S+)')


class Figures(msgspec.Struct):
    """What came of one attack. Waits are the fair client's for first tokens; infinite where none came."""

    alone_ms: list[float]
    beside_ms: list[float]
    answers: dict[str, int]  # of the attack, by status
    memory_mb: tuple[float, float, float]  # before, the most, and after
    back_s: float | None  # until the memory was back; None: it did not come back in time
    told: list[str]  # what of the answers may not be
    forms: int  # in which the fair client's requests reached its provider
    turns_ms: dict[str, float]  # the longest of the gateway's loop, by what ran
    exit_code: int | None  # None: it lives, as it should

    def missed(self) -> list[str]:
        """Return what should hold and does not."""
        alone_ms, p99_ms, longest_ms = share(self.alone_ms, 0.99), share(self.beside_ms, 0.99), max(self.beside_ms)
        said = {
            f"a fair client waited {longest_ms:.0f} ms": longest_ms > LONGEST_MS,
            f"its p99 is {p99_ms:.0f} ms, alone {alone_ms:.0f} ms": p99_ms > 2 * alone_ms,
        }
        return [*(text for text, misses in said.items() if misses), *self.lost()]

    def lost(self) -> list[str]:
        """Return what should hold however busy the machine is, and does not."""
        before_mb, peak_mb, after_mb = self.memory_mb
        said = {
            f"it ended with {self.exit_code}": self.exit_code is not None,
            f"{self.beside_ms.count(inf)} fair calls failed": inf in self.beside_ms,
            f"it took {peak_mb:.0f} MB": peak_mb * 1e6 > MEMORY_BYTES,
            f"of {before_mb:.0f} MB it kept {after_mb:.0f} MB": self.back_s is None,
            f"a fair client's requests arrived in {self.forms} forms": self.forms > 1,
        }
        return self.told + [text for text, misses in said.items() if misses]


def share(values: list[float], share: float) -> float:
    """Return a quantile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


class _FairProvider:
    """Answers the fair client, and refuses what an attack asks of it."""

    def __init__(self, attack: Attack) -> None:
        self._refusal = attack.refusal
        self.forms = set[bytes]()  # of the fair client's requests
        self._answering = set[asyncio.Task[None]]()

    async def provide(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        task = asyncio.current_task()
        assert task is not None
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        async with closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            body = await reader.readexactly(int(length[1])) if length else b""
            if self._refusal is not None and MARK in body:
                said = b"".join(self._refusal(body).pieces)
                writer.write(said.replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
            else:
                if PROMPT.encode() in body:
                    self.forms.add(body)
                await asyncio.sleep(SPARES_S if b"/spare/" in head else FIRST_TOKEN_S)
                writer.write(_ANSWER)
            await writer.drain()

    async def end(self) -> None:
        """Answer nobody any more; no connection outlives the test."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)


def _told(attack: Attack, answers: Mapping[str, int]) -> list[str]:
    """Return which answers to an attack should not have come."""
    others = {each for each in answers if answers[each]} - attack.gets - {"unanswered", ASKED_THERE}
    return [
        *(f"it got {each}" for each in sorted(others) if attack.gets),
        *([] if attack.reaches or not answers.get(ASKED_THERE) else ["its provider was asked"]),
    ]


async def _ask(port: int, request: bytes, until: bytes = b"") -> tuple[bytes, float]:
    """Return the whole answer, as far as it came, and the milliseconds after which ``until`` was in it."""
    loop = asyncio.get_running_loop()
    began_s, answer, came_s = loop.time(), b"", inf
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(HOST, port)
        async with closing(writer):
            writer.write(request)
            while data := await reader.read(2**16):
                answer += data
                if came_s == inf and until in answer:
                    came_s = loop.time()
    return answer, (came_s - began_s) * 1000


async def fair(port: int, until: asyncio.Future[Any]) -> list[float]:
    """Call at a fixed rate, however late answers are, until ``until`` is done; return the waits in milliseconds."""
    calls = []
    while not until.done():
        calls.append(asyncio.create_task(_ask(port, _CALL, b"token")))
        await asyncio.wait([until], timeout=CALL_EACH_S)
    return [waited_ms if b"[DONE]" in answer else inf for answer, waited_ms in await asyncio.gather(*calls)]


def memory_mb(pid: int, what: str = "VmRSS") -> float:
    """Return the resident memory of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        if found := re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()):
            return int(found[1]) * 1024 / 1e6
    return 0.0


def configuration(folder: Path, fair_port: int, hostile_port: int, api: str) -> dict[str, Any]:
    """Return the configuration of a gateway with a fair provider and one that speaks ``api``."""
    hostile: dict[str, Any] = {"base_url": f"http://{HOST}:{hostile_port}/v1", "api_key": "k", "apis": [api]}
    deployment = {"deployment": "hostile/m", "price_per_mtok": {"input": 10, "output": 50}}
    return {
        "database_url": f"sqlite:///{folder / 'holeshot.db'}",
        "spool_dir": str(folder / "spool"),
        "port": 0,
        "log_format": "json",
        "lame_duck_s": 0,
        "clients": CLIENTS,
        "tenant_keys": {"header": True},
        "providers": {
            "fair": {"base_url": f"http://{HOST}:{fair_port}/v1", "api_keys": ["k-1", "k-2", "k-3"]},
            "spare": {"base_url": f"http://{HOST}:{fair_port}/spare/v1", "api_key": "k"},
            "hostile": hostile | ({"kind": "gemini"} if api == "gemini" else {}),
        },
        "models": {
            "fair": {
                "deployments": [{"deployment": "fair/m", "price_per_mtok": {"input": 0.1, "output": 0.4}}],
                "fallbacks": ["spare"],
            },
            "spare": {"deployments": ["spare/m"]},
            "hostile": {"deployments": [deployment], "race": {"mode": "single"}},
        },
    }


async def beside(attack: Attack, seconds: float, folder: Path, back_within_s: float = BACK_WITHIN_S) -> Figures:
    """Attack a gateway for so long, with a fair client beside it; the memory is waited for afterwards."""
    pipe, loop = asyncio.subprocess.PIPE, asyncio.get_running_loop()
    command = (sys.executable, "-P", "-m", "tests.hostile.attacker", attack.name)
    attacker = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, cwd=_ROOT, env={"PYTHONPATH": str(_ROOT)}
    )
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    provider = _FairProvider(attack)
    server = await asyncio.start_server(provider.provide, HOST, 0)
    try:
        hostile_port = int(await attacker.stdout.readline())
        config = configuration(folder, server.sockets[0].getsockname()[1], hostile_port, attack.speaks)
        await migrate(config["database_url"])
        most = min(attack.descriptors, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        limits = _LIMITS.format(most)
        async with started(config, folder, command=("sh", "-c", limits, "sh", *COMMAND)) as running:
            port = int(running.url.rsplit(":", 1)[1])
            alone_ms = await fair(port, asyncio.ensure_future(asyncio.sleep(seconds)))
            await _ask(port, post("messages", _LONG, connection="close").pieces[0])
            before_mb = memory_mb(running.pid)
            attacker.stdin.write(json.dumps([port, seconds]).encode() + b"\n")
            attacking = asyncio.ensure_future(asyncio.wait_for(attacker.stdout.readline(), PATIENCE_S))
            beside_ms = await fair(port, attacking)
            ended_s, back_s = loop.time(), None
            page, _ = await _ask(port, _METRICS)
            while back_s is None and loop.time() < ended_s + back_within_s:
                if memory_mb(running.pid) <= before_mb * BACK_SHARE:
                    back_s = loop.time() - ended_s
                await asyncio.sleep(CALL_EACH_S)
            answers = json.loads(await attacking)
            return Figures(
                alone_ms=alone_ms,
                beside_ms=beside_ms + await fair(port, asyncio.ensure_future(asyncio.sleep(0))),  # it still answers
                answers=answers,
                memory_mb=(before_mb, memory_mb(running.pid, "VmHWM"), memory_mb(running.pid)),
                back_s=back_s,
                told=_told(attack, answers),
                forms=len(provider.forms),
                turns_ms={work.decode(): float(value) * 1000 for work, value in _LONGEST.findall(page)},
                exit_code=running.exit_code,
            )
    finally:
        server.close()
        await provider.end()
        with contextlib.suppress(ProcessLookupError):
            attacker.kill()
        await attacker.wait()
