"""A gateway process whose standard error is a pipe that nobody reads, or has closed."""

import asyncio
import signal
from pathlib import Path

from tests.app.gateway.log_pipe import CALLS, answered, unread


async def test_calls_are_answered_though_nobody_reads_the_log_and_it_ends_when_told(folder: Path) -> None:
    async with unread(folder) as (gateway, http):
        assert await answered(http, gateway) == CALLS
        async with http.get(f"{gateway.url}/metrics") as response:
            assert "holeshot_log_lines_dropped_total 0.0" in await response.text()
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.process.wait() == 0
        assert {line["event"] for line in await gateway.lines()} == {"call.finished"}  # the first of them


async def test_a_log_that_is_read_late_is_whole(folder: Path) -> None:
    async with unread(folder) as (gateway, http):
        assert await answered(http, gateway) == CALLS
        reading = asyncio.create_task(gateway.lines())
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.process.wait() == 0
        events = [line["event"] for line in await reading]
        assert events == [*["call.finished"] * CALLS, "gateway.stopping", "gateway.stopped"]


async def test_a_log_pipe_that_was_closed_costs_its_lines_and_nothing_else(folder: Path) -> None:
    async with unread(folder) as (gateway, http):
        gateway.pipe.close()
        assert await answered(http, gateway) == CALLS
        async with http.get(f"{gateway.url}/metrics") as response:
            assert "holeshot_log_lines_dropped_total 0.0" not in await response.text()
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.process.wait() == 0
