"""The process whose instructions are counted: driver, gateway and mock upstream on one loop, one call at a time.

Only the way of a call is in it: nothing is shipped, shared or looked after in the background, and the collector is off,
so that the same code runs the same instructions. Run under a ``ticking`` clock. It obeys lines on its standard input,
``SUBJECT WAY CALLS``, with a subject: ``gateway``; ``direct``, the driver at the mock itself; ``watch``, from which on
somebody looks at the calls live; ``trace``, which writes the functions that a call calls to a file named after its way.
It says ``done``. Its second argument may be one of ``MORE``, what the gateway does besides. What a thread does that
exports traces is not counted.
"""

import asyncio
import gc
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
import uvloop

from gateway.app import Gateway
from gateway.live import events
from gateway.server.listener import bind, listening
from gateway.server.server import speed_up_enums
from gateway.settings import load
from gateway.watching import logs
from tests.support.measured import gateways
from tests.support.measured.gateways import WAYS
from tests.support.measured.load import Caller, Order, Question, carry_out
from tests.support.measured.mock_upstream import Connection
from tests.support.measured.servers import ROOT, Server
from tests.support.servers import free_port

_FIVE = {"rpm": 1e9, "tpm": 1e12, "max_parallel": 1e6, "usd_per_day": 1e9, "usd_per_month": 1e9}
_CLIENT = {"key_sha256": gateways.hashed(gateways.KEY), "admin": True}
MORE: Mapping[str, Mapping[str, Any]] = {  # sections of the configuration
    "traced": {"tracing": {"enabled": True}},
    "client": {"clients": {"benchmark": {**_CLIENT, **_FIVE}}},
    "team": {"clients": {"benchmark": {**_CLIENT, **_FIVE, "team": "measured"}}, "teams": {"measured": _FIVE}},
    "end user": {
        "clients": {"benchmark": {**_CLIENT, **_FIVE, "team": "measured"}},
        "teams": {"measured": {**_FIVE, "end_users": _FIVE}},
        "page": {"signing_key": "0123456789abcdef" * 4},
    },
}


async def obey(folder: Path, more: Mapping[str, Any]) -> None:
    """Serve, and carry out what standard input says, until it ends."""
    port, upstream_port = free_port(), free_port()
    config = gateways.write_config(folder, upstream_port, port, gateways.sqlite(folder), more=more)
    settings = load(config, {})
    logs.configure(settings.log_level, settings.log_format)
    logs.HELD_S = 1e6  # lines go out when many wait, as with 500 calls/s: the log's thread has a clock of its own
    loop = asyncio.get_running_loop()
    counts: Counter[str] = Counter()
    await loop.create_server(lambda: Connection(counts), "127.0.0.1", upstream_port)
    async with listening(Gateway(settings), bind("127.0.0.1", port), grace_s=0.0):
        gc.collect()
        gc.disable()
        gateway = Server("gateway", os.getpid(), port, gateways.HEADERS)
        for line in sys.stdin:  # it blocks the loop, which has nothing to do until then
            subject, name, calls = line.split()
            if subject == "watch":
                await look(port)
                _say_done()
                continue
            question = WAYS[name].question(gateway)
            if subject == "direct":
                path = f"/burst{gateways.PATH}"
                question = msgspec.structs.replace(
                    WAYS["stream" if question.streamed else "json"].question(gateway),
                    port=upstream_port,
                    path=path,
                    launched=None,
                )
            if subject == "trace":
                write(folder / f"{name}.json", await trace(question))
            else:
                await carry_out(Order(question=question, calls=int(calls), concurrency=1))
            _say_done()


def write(path: Path, content: bytes) -> None:
    """Write a file: nothing else is to be done meanwhile."""
    path.write_bytes(content)


async def trace(question: Question) -> bytes:
    """Return which functions a call has called, in their order, as ``path.Passed`` in JSON.

    It is the difference of two calls and one, so that opening the client's connection is not in it.
    """
    one, two = await _called(question, 1), await _called(question, 2)
    root = f"{ROOT}/"
    passed = []
    for code, counts in two.items():
        before, after = (count - less for count, less in zip(counts, one.get(code, (0, 0)), strict=True))
        if before or after:
            file = code.co_filename.removeprefix(root)
            passed.append({"file": file, "function": code.co_qualname, "before": before, "after": after})
    return msgspec.json.encode(passed)


async def _called(question: Question, calls: int) -> Mapping[CodeType, Sequence[int]]:
    found: dict[CodeType, list[int]] = {}
    driving = (str(ROOT / "benchmarks"), str(ROOT / "tests"))
    sent, reached = Caller.call.__code__, Connection.data_received.__code__
    on_the_wire = 0

    def notice(frame: FrameType, event: str, _: object) -> None:
        nonlocal on_the_wire
        if event != "call":
            return
        code = frame.f_code
        if code is reached:
            on_the_wire = 1
        elif code is sent:
            on_the_wire = 0
        elif not code.co_filename.startswith(driving):
            found.setdefault(code, [0, 0])[on_the_wire] += 1

    sys.setprofile(notice)
    try:
        await carry_out(Order(question=question, calls=calls, concurrency=1))
    finally:
        sys.setprofile(None)
    return found


class Discarding(asyncio.Protocol):
    """A client of the live stream that reads, and keeps nothing."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - asyncio's name
        """Note that the stream has begun."""
        self.began.set()


async def look(port: int) -> None:
    """Open a live stream.

    Under callgrind a call takes much longer than it does: events go out when many wait, as they do with 500 calls/s.
    """
    events.GATHER_S = 1e6
    transport, client = await asyncio.get_running_loop().create_connection(Discarding, "127.0.0.1", port)
    key = gateways.VIEWER_HEADERS["authorization"]
    transport.write(f"GET /api/live HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: {key}\r\n\r\n".encode())
    await client.began.wait()


def _say_done() -> None:
    sys.stdout.write("done\n")
    sys.stdout.flush()


def main() -> None:
    """Run in the folder given."""
    speed_up_enums()  # as each serving process does
    uvloop.run(obey(Path(sys.argv[1]), MORE[sys.argv[2]] if sys.argv[2:] else {}))
