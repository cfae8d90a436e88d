"""What relayed calls leave behind."""

import asyncio
from contextlib import suppress

import aiohttp

from providers.simulator import Drop
from tests.app.gateway.relayed.samples import HANGS, REFUSED, Open, plays, says
from tests.app.gateway.restarts.test_no_leaks import busy
from tests.app.gateway.running_gateway import MODEL


async def test_nothing_is_left_of_calls_that_were_relayed(opened: Open) -> None:
    never = asyncio.Event()
    sound = plays(b"a", b"b")
    scripts = [
        sound,
        plays(b"a", then=Drop()),
        says({}, status=503),
        plays(b"a", never),
        HANGS,
        says(REFUSED, status=400),
    ]
    config = {"timeouts": {"ttft_timeout_s": 0.1, "stall_timeout_s": 0.1}}
    async with opened(alpha=[*scripts, sound], beta=[*reversed(scripts), sound], config=config) as (running, _):
        for _ in scripts:
            with suppress(aiohttp.ClientError):
                async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
                    await response.read()
        await running.gateway.context.fleet.idle()
        assert busy(running) == {"alpha": 0, "beta": 0}
        rows = await running.rows("select count(*) as n from calls")
        assert rows == [{"n": len(scripts)}]
        board = running.gateway.steering.leaderboard(MODEL).deployments
        assert {row.in_flight for row in board} == {0}
