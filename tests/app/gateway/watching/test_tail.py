"""holeshot tail, of a gateway over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from providers.simulator import Status, answer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, single
from tests.patience import until
from tests.support import warm


@asynccontextmanager
async def tailing(running: RunningGateway, *options: str) -> AsyncIterator[asyncio.StreamReader]:
    """Run the command; its lines. It has connected when the block begins."""
    process = await asyncio.create_subprocess_exec(
        *(*warm.holeshot(), "tail", "--url", running.url, *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        await until(lambda: running.gateway.live.viewers or process.returncode is not None)
        assert process.returncode is None
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.terminate()
        await process.communicate()


async def test_each_call_is_a_line_of_json_as_it_ends(serve: Serve) -> None:
    async with serve(alpha=None) as running, tailing(running, "--json", "--model", MODEL) as lines:
        for _ in range(2):
            async with running.chat(stream=True) as response:
                await response.read()
            call = msgspec.json.decode(await lines.readline())
            (row,) = await running.rows("select * from calls order by id desc limit 1")
            assert (call["id"], call["status"], call["winner"]) == (row["id"], 200, row["winner_attempt_id"])
            assert [each["outcome"] for each in call["attempts"]] == ["won"]


async def test_only_what_failed_is_shown_if_that_is_asked_for(serve: Serve) -> None:
    async with serve(alpha=[Status(500)], config=single()) as running, tailing(running, "--failed") as lines:
        running["alpha"].script = answer("Hello")
        async with running.chat() as response:
            assert response.status == 200
        running["alpha"].script = [Status(500)]
        async with running.chat() as response:
            assert response.status == 502
        line = (await lines.readline()).decode()
        assert " 502 " in line
        assert "alpha/" in line
