"""Who guesses keys waits for the answers; who has a good key, hangs up, or stops the gateway does not."""

import asyncio

import aiohttp
import pytest

from gateway.access import auth
from gateway.access.auth import FREE, WAITING_PER_ADDRESS
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.running_gateway import RunningGateway, Serve
from tests.patience import PATIENCE_S, until

WRONG = {"authorization": "Bearer hs-a-wrong-key"}


@pytest.fixture
def long_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait ends by itself, however slow the machine is."""
    monkeypatch.setattr(auth, "FIRST_S", 10 * PATIENCE_S)
    monkeypatch.setattr(auth, "LONGEST_S", 10 * PATIENCE_S)


async def guess(
    running: RunningGateway, http: aiohttp.ClientSession | None = None, client: str = ""
) -> tuple[int, str | None]:
    """Try a wrong key; return the status, and whether the connection ends. ``client`` is whom a proxy names."""
    headers = {**WRONG, "x-forwarded-for": client}
    async with (http or running.http).get(f"{running.url}/v1/models", headers=headers) as response:
        await response.read()
        return response.status, response.headers.get("connection")


async def guesses_wait(
    running: RunningGateway, number: int, http: aiohttp.ClientSession | None = None
) -> list[asyncio.Task[tuple[int, str | None]]]:
    """Return ``number`` guesses whose answers wait; the first few a second or two, all others for five."""
    for _ in range(FREE):
        assert await guess(running, http) == (401, None)
    tasks = [asyncio.create_task(guess(running, http)) for _ in range(number)]
    await until(lambda: running.gateway.context.wrong_keys.delayed >= number)
    return tasks


async def figures(running: RunningGateway, *names: str) -> list[float]:
    body, _ = await running.gateway.metrics.render()
    found = dict(
        line.split() for line in body.decode().splitlines() if line.startswith("holeshot_") and "{" not in line
    )
    return [float(found[f"holeshot_{name}"]) for name in names]


@pytest.mark.usefixtures("long_delays")
async def test_a_good_key_is_answered_while_wrong_ones_from_the_same_address_wait(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        waiting = await guesses_wait(running, 8)
        names = ("guessing_addresses", "delayed_refusals_total", "undelayed_refusals_total")
        assert await figures(running, *names) == [1.0, 8.0, 0.0]
        assert await figures(running, "waiting_refusals") > [0.0]
        for stream in (False, True):
            async with running.chat(key_of("plain"), stream=stream) as response:
                assert response.status == 200
                await response.read()
        assert running.gateway.context.wrong_keys.waiting
        assert not all(task.done() for task in waiting)
        running.gateway.context.wrong_keys.release()
        assert {status for status, _ in await asyncio.gather(*waiting)} == {401}


async def test_a_request_without_any_key_is_no_guess(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        for _ in range(3 * FREE):
            async with running.get("/v1/models") as response:
                assert response.status == 401
        assert running.gateway.context.wrong_keys.delayed == 0
        assert await figures(running, "guessing_addresses") == [0.0]


async def test_a_guesser_who_hangs_up_leaves_nothing_behind(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        waiting = await guesses_wait(running, WAITING_PER_ADDRESS)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        await until(lambda: not running.gateway.context.wrong_keys.waiting)


@pytest.mark.usefixtures("long_delays")
async def test_more_guesses_than_may_wait_are_answered_and_cost_a_connection_each(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        waiting = await guesses_wait(running, WAITING_PER_ADDRESS)
        more = [asyncio.create_task(guess(running)) for _ in range(50)]
        await until(lambda: running.gateway.context.wrong_keys.at_once >= 50)
        running.gateway.context.wrong_keys.release()
        assert await asyncio.gather(*more) == [(401, "close")] * 50
        assert await figures(running, "undelayed_refusals_total") == [50.0]
        assert await asyncio.gather(*waiting) == [(401, None)] * WAITING_PER_ADDRESS


@pytest.mark.usefixtures("long_delays")
async def test_a_gateway_that_stops_answers_those_who_wait_within_its_grace(serve: Serve) -> None:
    """The grace is a second here, the delays are longer: cut answers would be errors of the connection."""
    async with aiohttp.ClientSession() as http:
        async with serve(config=clients(plain={})) as running:
            waiting = await guesses_wait(running, WAITING_PER_ADDRESS, http)
        assert await asyncio.gather(*waiting) == [(401, "close")] * WAITING_PER_ADDRESS


async def test_behind_a_trusted_proxy_each_client_is_delayed_for_its_own_guesses(serve: Serve) -> None:
    config = {**clients(plain={}), "trusted_proxies": ["127.0.0.1/32"]}
    async with serve(config=config) as running:
        for number in range(3 * FREE):
            assert await guess(running, client=f"192.0.2.{number}") == (401, None)
        assert running.gateway.context.wrong_keys.delayed == 0
