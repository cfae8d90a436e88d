"""How much memory an open upstream stream holds over HTTP/2: the client alone, in a process of its own.

Prints the bytes that each of the streams added to the process's resident memory.
"""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import uvloop
from yarl import URL

from benchmarks.harness import machine
from benchmarks.harness.report import Row, row, skipped
from benchmarks.speed.scenarios import Effort
from providers.http import Connecting, HttpClient, HttpRequest, Response
from tests.support.measured import gateways
from tests.support.measured.gateways import MeasuredServers
from tests.support.measured.nginx import Missing

NAME = "stream memory"
STREAMS, WARM_UP = 1000, 50
TIMES, QUICK_TIMES = 3, 1
AT_MOST_KB = 10
_CONNECT_S = 5.0
_BODY = b'{"model":"benchmark-model","messages":[{"role":"user","content":"hi"}],"stream":true}'


def rows(measured: MeasuredServers, effort: Effort) -> Iterator[Row]:
    title = f"TLS, HTTP/2: memory per open stream, {STREAMS:,} of them"
    try:
        tls = measured.tls
    except Missing as missing:
        yield skipped(title, missing)
        return
    kb = []
    for number in range(1, (QUICK_TIMES if effort.quick else TIMES) + 1):
        effort.say(f"{NAME}: number {number}")
        command = [sys.executable, str(Path(__file__)), str(tls.port)]
        done = subprocess.run(command, env=gateways.environment(tls), capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.decode().strip())
        kb.append(float(done.stdout) / 1000)
    yield row(title, kb, "KB", at_most=AT_MOST_KB, detail="of the client, its connections included")


async def bytes_per_stream(port: int) -> float:
    """Open the streams, each having had its first token, and return what one of them holds."""
    client = HttpClient(
        URL(f"https://127.0.0.1:{port}"),
        headers={"content-type": "application/json"},
        connecting=Connecting(versions="2"),
    )
    head = client.head("POST", f"/held{gateways.PATH}", {})

    async def opened() -> Response:
        response = await client.send(HttpRequest(head, (), _BODY), _CONNECT_S)
        await response.read()
        return response

    for response in [await opened() for _ in range(WARM_UP)]:
        response.abort()
    gc.collect()
    before_mb = machine.memory_mb(os.getpid())
    held = [await opened() for _ in range(STREAMS)]
    grown_mb = machine.memory_mb(os.getpid()) - before_mb
    for response in held:
        response.abort()
    await client.aclose()
    return grown_mb * 1e6 / STREAMS


if __name__ == "__main__":
    sys.stdout.write(str(uvloop.run(bytes_per_stream(int(sys.argv[1])))))
