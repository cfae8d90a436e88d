"""How long tests wait for what must come, and how; and how they end what nobody waits for. Every room does both.

The limit only ends a test that would hang, and is no measure: the machine may be slow, and busy with other things.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0
_LOOK_S = 0.005  # between two looks
_ROUND_S = 0.05  # likewise, where others have to say something in between, or after many looks


async def until(holds: Callable[[], object]) -> None:
    """Return once it holds: for what tells nobody, as another process, a server, or a clock that is not ours."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - as said
            await asyncio.sleep(_LOOK_S)


async def eventually(look: Callable[[], Awaitable[T | None]]) -> T:
    """Look until there is something, and return it: likewise. A look asks somebody, so it becomes rarer."""
    look_s = _LOOK_S
    async with asyncio.timeout(PATIENCE_S):
        while not (seen := await look()):
            await asyncio.sleep(look_s)
            look_s = min(_ROUND_S, 1.5 * look_s)
    return seen


async def until_for_good(holds: Callable[[], Awaitable[bool]], looks: int) -> None:
    """Return once it has held at so many looks in a row: nothing tells that something will never come again."""
    held = 0
    async with asyncio.timeout(PATIENCE_S):
        while held < looks:
            if await holds():
                held += 1
                await asyncio.sleep(_ROUND_S)
            else:
                held = 0


async def end_others() -> None:
    """End the other tasks of this loop, with their connections: the loop is to be closed."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
