"""Two gateways, restarted one after the other under load, behind a balancer that heeds readiness: no call fails."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from providers.simulator import Gate, ScriptedProvider, answer
from tests.app.gateway.balancer import Balancer
from tests.app.gateway.running_gateway import configuration

CALLERS = 8
LAME_DUCK_S = 5.0  # some fifty looks of the balancer, a few on a very slow machine


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
                before = len(balancer.answered)
                await balancer.restart(name)
                await balancer.ready(name)
                assert len(balancer.answered) > before
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert balancer.failed == []
    assert all(isinstance(each, asyncio.CancelledError) for each in ended), ended
