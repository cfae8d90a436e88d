"""/metrics tells how many tasks there are, so that a leak shows from outside."""

import asyncio

from tests.app.gateway.running_gateway import RunningGateway, Serve


async def tasks_told(running: RunningGateway) -> float:
    async with running.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    (told,) = [float(line.split()[1]) for line in lines if line.startswith("holeshot_tasks ")]
    return told


async def test_tasks_of_the_loop_are_counted_until_they_end(serve: Serve) -> None:
    """About: tasks of the start and of other requests begin and end meanwhile."""
    async with serve() as running:
        before = await tasks_told(running)
        more = [asyncio.create_task(asyncio.Event().wait()) for _ in range(300)]
        assert await tasks_told(running) > before + 200
        for task in more:
            task.cancel()
        await asyncio.gather(*more, return_exceptions=True)
        assert await tasks_told(running) < before + 100
