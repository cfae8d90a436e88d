"""/metrics tells how many tasks there are, so that a leak shows from outside."""

import asyncio

from tests.app.gateway.running_gateway import RunningGateway, Serve


async def tasks_told(running: RunningGateway) -> float:
    async with running.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    (told,) = [float(line.split()[1]) for line in lines if line.startswith("holeshot_tasks ")]
    return told


async def test_each_task_of_the_loop_is_counted_until_it_ends(serve: Serve) -> None:
    async with serve() as running:
        await tasks_told(running)  # its connection, which is kept, has tasks on both sides
        before = await tasks_told(running)
        more = [asyncio.create_task(asyncio.Event().wait()) for _ in range(3)]
        assert await tasks_told(running) == before + 3
        for task in more:
            task.cancel()
        await asyncio.gather(*more, return_exceptions=True)
        assert await tasks_told(running) == before
