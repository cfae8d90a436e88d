"""Pages of many models and clients are made in slices, between which the event loop does other work."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.app.gateway.running_gateway import RunningGateway, Serve
from tests.support.measured.gateways import hashed

pytestmark = pytest.mark.usefixtures("views")

MANY = 600  # models, and as many clients
MOST = 1 / 6  # of a page's Python calls, in one turn
KEY = "hs-reader"
ANTHROPICS, GOOGLES = {"anthropic-version": "2023-06-01"}, {"x-goog-api-key": KEY}
PAGES: dict[str, dict[str, str]] = {
    "/metrics": {},
    "/leaderboard": {},
    "/leaderboard?explain=1": {},
    "/api/leaderboard": {},
    "/api/explain": {},
    "/api/configuration": {},
    "/api/keys": {},
    "/api/usage": {},
    "/api/teams": {},
    "/v1/models": {},
    "/v1/models?limit=1000": ANTHROPICS,
    "/v1/models?": GOOGLES,
}


async def test_a_turn_of_the_loop_has_a_small_part_of_a_page(serve: Serve) -> None:
    turns = await _turns(serve)
    stands = {page: (max(calls), sum(calls)) for page, calls in turns.items() if max(calls) > sum(calls) * MOST}
    assert not stands


async def _turns(serve: Serve) -> dict[str, list[int]]:
    """Return the Python calls of each turn while each page is read."""
    limit = {"tokens_per_day": 1_000_000}
    deployments = [{"deployments": [f"alpha/m-{each}", f"beta/m-{each}"], **limit} for each in range(MANY)]
    config: dict[str, Any] = {
        "models": {f"model-{each}": model for each, model in enumerate(deployments)},
        "clients": {
            "reader": {"key_sha256": hashed(KEY), "admin": True},
            **{f"client-{each}": {"key_sha256": hashed(f"hs-client-{each}"), "rpm": 60} for each in range(MANY)},
        },
    }
    found = {}
    async with serve(alpha=None, beta=None, config=config, key=KEY) as running:
        for page, headers in PAGES.items():
            await _read(running, page, headers)  # its modules are loaded
            with _counted() as turns:
                await _read(running, page, headers)
            found[page] = turns
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
