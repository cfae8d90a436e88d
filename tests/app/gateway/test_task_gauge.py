"""/metrics tells how many tasks there are, so that a leak shows from outside."""

import asyncio

from tests.app.gateway.running_gateway import RunningGateway, Serve


async def tasks_told(running: RunningGateway) -> float:
    async with running.get("/metrics") as response:
        lines = (await response.text()).splitlines()
    (told,) = [float(line.split()[1]) for line in lines if line.startswith("holeshot_tasks ")]
    return told


async def reaches(running: RunningGateway, number: float) -> bool:
    """Return once so many are told: tasks of the start and of other requests end meanwhile."""
    while await tasks_told(running) != number:  # noqa: ASYNC110 - nobody else is told
        await asyncio.sleep(0)
    return True


async def test_each_task_of_the_loop_is_counted_until_it_ends(serve: Serve) -> None:
    async with serve() as running:
        while (before := await tasks_told(running)) != await tasks_told(running):  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0)
        more = [asyncio.create_task(asyncio.Event().wait()) for _ in range(30)]
        assert await reaches(running, before + 30)
        for task in more:
            task.cancel()
        await asyncio.gather(*more, return_exceptions=True)
        assert await reaches(running, before)
