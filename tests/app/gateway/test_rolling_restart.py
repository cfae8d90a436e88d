"""Two gateways, restarted one after the other under load, behind a balancer that heeds readiness: no call fails."""

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from providers.simulator.script import Gate, answer
from providers.simulator.scripted import ScriptedProvider
from tests.app.gateway.process import GatewayProcess, launched
from tests.app.gateway.stage import chat_body, configuration

CALLERS = 8
LAME_DUCK_S = 2.0  # some twenty looks of the balancer
PROBE_S = 0.1


class Balancer:
    """Gateways by name, and which of them said last that they are ready."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.answered = 0
        self.failed: list[str] = []
        self._config = config
        self._folder = folder
        self._running: dict[str, GatewayProcess] = {}
        self._ready: set[str] = set()
        self._looked = asyncio.Event()
        self.pace = asyncio.Event()  # lets all answers begin that wait for it, at each look
        self._turn = 0

    async def start(self, name: str) -> None:
        gateway = GatewayProcess(await launched(self._config, self._folder / name))
        try:
            gateway.url = (await gateway.event("gateway.started"))["url"]
        finally:
            self._running[name] = gateway

    async def restart(self, name: str) -> None:
        gateway = self._running[name]
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0
        await self.start(name)

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
                            self.answered += 1
                        else:
                            self.failed.append(await response.text())
                except aiohttp.ClientError as error:
                    self.failed.append(repr(error))


async def test_no_call_fails_while_gateways_are_restarted_one_after_the_other(folder: Path) -> None:
    async with ScriptedProvider([]) as provider, AsyncExitStack() as stack:
        config = configuration(folder, {"alpha": provider.base_url}, lame_duck_s=LAME_DUCK_S)
        balancer = Balancer(config, folder)
        provider.script = [Gate(balancer.pace), *answer("Hello")]
        stack.push_async_callback(balancer.close)
        for name in ("one", "two"):
            await balancer.start(name)
        tasks = [asyncio.create_task(balancer.probe())]
        try:
            await balancer.ready("one", "two")
            tasks += [asyncio.create_task(balancer.call_for_ever(number)) for number in range(CALLERS)]
            for name in ("one", "two"):
                before = balancer.answered
                await balancer.restart(name)
                await balancer.ready(name)
                assert balancer.answered > before
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert balancer.failed == []
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
