"""Portkey's open-source gateway, on node, told by headers where each call goes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import gateways, installing
from benchmarks.harness.gateways import MeasuredServers
from benchmarks.harness.installing import UnavailableError
from benchmarks.peers.peer import BEHAVIOURS, PROVIDER_KEY, Asked, Peer, Route, serving

VERSION = "1.15.2"
# From 1.14.1 on, every stream of this version of Portkey ends in "TypeError: immutable" (Portkey-AI/gateway#1389).
_OVERRIDES = {"@hono/node-server": "1.14.0"}
_START_S = 30.0


@contextmanager
def start(measured: MeasuredServers, folder: Path) -> Iterator[Asked]:
    """Install and run it."""
    modules = installing.node_tool("portkey", {"@portkey-ai/gateway": VERSION}, _OVERRIDES)
    node = shutil.which("node")
    if node is None:
        raise UnavailableError("needs node")
    server = str(modules / "@portkey-ai" / "gateway" / "build" / "start-server.js")
    environment = {**os.environ, "TRUSTED_CUSTOM_HOSTS": "127.0.0.1"}
    with serving(
        "Portkey",
        lambda port: [node, server, f"--port={port}", "--headless"],
        environment,
        folder / "portkey.log",
        _START_S,
    ) as running:
        headers = {"x-portkey-provider": "openai", "authorization": f"Bearer {PROVIDER_KEY}"}
        host = f"http://127.0.0.1:{measured.upstream.port}"
        yield Asked(
            running,
            {
                name: Route(gateways.PATH, "benchmark-model", {**headers, "x-portkey-custom-host": f"{host}/{name}/v1"})
                for name in BEHAVIOURS
            },
        )


PORTKEY = Peer(f"Portkey {VERSION}", start)
