"""Loops in the background: they end when they are told to."""

import ast
import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.core.tasks import end_if_cancelled
from tests.patience import PATIENCE_S

GATEWAY = Path(__file__).parents[3] / "gateway"
A_CALLS = "api/"  # loops there last as long as a call, and know no store
ENDS_ITSELF = {"ledger/retention.py _delete"}  # with the last row


def loops() -> Iterator[tuple[str, ast.While]]:
    """Yield the endless loops of coroutines that do something, then wait for a time, by file and function."""
    for path in sorted(GATEWAY.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.AsyncFunctionDef):
                name = f"{path.relative_to(GATEWAY)} {function.name}"
                for loop in ast.walk(function):
                    if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant):
                        yield name, loop


def awaited(loop: ast.While) -> set[str]:
    found = (each.value for each in ast.walk(loop) if isinstance(each, ast.Await))
    return {ast.unparse(each.func) if isinstance(each, ast.Call) else ast.unparse(each) for each in found}


def test_every_loop_that_may_lose_its_cancellation_asks_for_it_after_each_round() -> None:
    pauses = {"asyncio.sleep", "pause", "until_next"}
    found = {name: loop for name, loop in loops() if awaited(loop) & pauses and awaited(loop) - pauses}
    assert {"app/shared_facts.py run", "keys/keys.py _poll", "live/sharing.py _listen"} <= set(found)
    deaf = {name for name, loop in found.items() if "end_if_cancelled()" not in ast.unparse(loop)}
    assert {name for name in deaf if not name.startswith(A_CALLS)} == ENDS_ITSELF


async def test_a_loop_whose_round_takes_the_cancellation_for_an_error_ends_after_it() -> None:
    asked, rounds = asyncio.Event(), 0

    async def go_round() -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancelled:
            raise ConnectionError from cancelled

    async def run() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            with pytest.raises(ConnectionError):
                await go_round()
            end_if_cancelled()

    task = asyncio.create_task(run())
    await asked.wait()
    task.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert rounds == 1


async def test_a_time_limit_that_has_ended_is_no_cancellation_of_its_task() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()
    end_if_cancelled()
