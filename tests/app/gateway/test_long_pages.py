"""Pages of many models and clients are made in slices: the longest turn of the loop does not grow with their number."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.app.gateway.running_gateway import RunningGateway, Serve
from tests.support.measured.gateways import hashed

pytestmark = pytest.mark.usefixtures("views")

FEW, MANY = 150, 600  # models, and as many clients
KEY = "hs-reader"
ANTHROPICS, GOOGLES = {"anthropic-version": "2023-06-01"}, {"x-goog-api-key": KEY}
PAGES: dict[str, dict[str, str]] = {
    "/leaderboard": {},
    "/leaderboard?explain=1": {},
    "/api/leaderboard": {},
    "/api/explain": {},
    "/v1/models": {},
    "/v1/models?limit=1000": ANTHROPICS,
    "/v1/models?": GOOGLES,
}


async def test_the_longest_turn_of_a_page_is_the_same_for_four_times_as_many_models_and_clients(serve: Serve) -> None:
    few, many = [await _longest_turns(serve, number) for number in (FEW, MANY)]
    grown = {page: (few[page], calls) for page, calls in many.items() if calls > 2 * few[page]}
    assert not grown


async def _longest_turns(serve: Serve, number: int) -> dict[str, int]:
    """Return the Python calls of the longest turn while each page is read, of so many models and clients."""
    deployments = [{"deployments": [f"alpha/m-{each}", f"beta/m-{each}"]} for each in range(number)]
    config: dict[str, Any] = {
        "models": {f"model-{each}": model for each, model in enumerate(deployments)},
        "clients": {
            "reader": {"key_sha256": hashed(KEY), "admin": True},
            **{f"client-{each}": {"key_sha256": hashed(f"hs-client-{each}"), "rpm": 60} for each in range(number)},
        },
    }
    found = {}
    async with serve(alpha=None, beta=None, config=config, key=KEY) as running:
        for page, headers in PAGES.items():
            await _read(running, page, headers)  # its modules are loaded
            with _counted() as turns:
                await _read(running, page, headers)
            found[page] = max(turns)
    return found


async def _read(running: RunningGateway, page: str, headers: dict[str, str]) -> None:
    headers = {"authorization": f"Bearer {KEY}", "connection": "close", **headers}  # a task of its own serves it
    async with running.get(page, headers=headers) as answer:
        assert answer.status == 200, page
        await answer.read()


@contextmanager
def _counted() -> Iterator[list[int]]:
    """Yield the Python calls of each turn of the loop so far, without those of timers and of tasks that run already."""
    turns = [0]
    loop, before = asyncio.get_running_loop(), sys.getprofile()
    others = {None, *asyncio.all_tasks()}

    def count(frame: object, event: str, arg: object) -> None:
        del frame, arg
        if event in {"call", "c_call"} and asyncio.current_task() not in others:
            turns[-1] += 1

    def turn() -> None:
        if sys.getprofile() is count:
            turns.append(0)
            loop.call_soon(turn)

    sys.setprofile(count)
    turn()
    try:
        yield turns
    finally:
        sys.setprofile(before)
