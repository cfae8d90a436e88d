"""A balancer that heeds readiness, and clients behind it who call without a pause."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import aiohttp

from tests.app.gateway.process import CHECKOUT, GatewayProcess, launched
from tests.app.gateway.running_gateway import chat_body

PROBE_S = 0.1


class Balancer:
    """Gateways by name, and which of them said last that they are ready; ``answered`` has the ids of their calls."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.answered: list[str] = []
        self.failed: list[str] = []
        self._config = config
        self._folder = folder
        self._running: dict[str, GatewayProcess] = {}
        self._ready: set[str] = set()
        self._looked = asyncio.Event()
        self.pace = asyncio.Event()  # lets all answers begin that wait for it, at each look
        self._turn = 0

    async def start(self, name: str, checkout: Path = CHECKOUT) -> None:
        """Start a gateway of the version that is in ``checkout``."""
        environ = {"PYTHONPATH": str(checkout)}
        gateway = GatewayProcess(await launched(self._config, self._folder / name, environ, cwd=checkout))
        try:
            gateway.url = (await gateway.event("gateway.started"))["url"]
        finally:
            self._running[name] = gateway

    async def restart(self, name: str, checkout: Path = CHECKOUT) -> None:
        gateway = self._running[name]
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0
        await self.start(name, checkout)

    async def close(self) -> None:
        for gateway in self._running.values():
            gateway.send(signal.SIGINT)
            await gateway.ended()

    async def probe(self) -> None:
        async with aiohttp.ClientSession() as http:
            while True:
                for name, gateway in list(self._running.items()):
                    try:
                        async with http.get(f"{gateway.url}/health/ready") as ready:
                            is_ready = ready.status == 200
                    except aiohttp.ClientError:
                        is_ready = False
                    (self._ready.add if is_ready else self._ready.discard)(name)
                self._looked.set()
                self.pace.set()
                self.pace.clear()
                await asyncio.sleep(PROBE_S)

    async def ready(self, *names: str) -> None:
        """Wait until these have said that they are ready."""
        while not self._ready.issuperset(names):
            self._looked.clear()
            await self._looked.wait()

    async def more(self, count: int) -> None:
        """Wait until so many more calls have been answered, or one has failed."""
        wanted = len(self.answered) + count
        while len(self.answered) < wanted and not self.failed:
            self._looked.clear()
            await self._looked.wait()

    async def call_for_ever(self, number: int) -> None:
        """Call without a pause, on kept connections; every second caller makes one for each call."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=number % 2 == 0)) as http:
            while True:
                self._turn += 1
                ready = sorted(self._ready)
                gateway = self._running[ready[self._turn % len(ready)]]
                url = f"{gateway.url}/v1/chat/completions"
                try:
                    async with http.post(url, json=chat_body(stream=self._turn % 3 == 0)) as response:
                        await response.read()
                        if response.status == 200:
                            self.answered.append(response.headers["x-holeshot-call-id"])
                        else:
                            self.failed.append(await response.text())
                except aiohttp.ClientError as error:
                    self.failed.append(repr(error))
