"""Extra attempts are shared by clients: who races each call takes none of the others'."""

from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

NAMES = ("racer", "fair")
CLIENTS = {name: {"key_sha256": sha256(f"hs-{name}".encode()).hexdigest()} for name in NAMES}
RACE = {"mode": "race", "width": 2, "budget": 0.1, "audit_share": 0}
CONFIG: Mapping[str, Any] = {
    "models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": RACE}},
    "clients": CLIENTS,
}


async def raced(running: RunningGateway, client: str, calls: int, **fields: int) -> int:
    """Let ``client`` call; return how many of its calls had all attempts that they asked for."""
    whole = 0
    for _ in range(calls):
        async with running.chat({"authorization": f"Bearer hs-{client}"}, **fields) as response:
            assert response.status == 200
            await response.read()
            whole += "x-holeshot-narrowed" not in response.headers
    return whole


async def test_a_client_that_races_each_call_leaves_the_others_their_part(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=CONFIG) as running:
        assert await raced(running, "fair", 1) == 1
        assert 8 <= await raced(running, "racer", 30) <= 14
        assert await raced(running, "fair", 5) == 5


async def test_a_client_alone_uses_the_whole_budget(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=CONFIG) as running:
        assert 20 <= await raced(running, "racer", 30) <= 24


def of_a_day(usd: float) -> Mapping[str, Any]:
    """Let each call race, as long as the day's dollars last."""
    prices = {"input": 0.0, "output": 1.0}
    priced = [{"deployment": f"{name}/m", "price_per_mtok": prices} for name in ("alpha", "beta")]
    race = {**RACE, "budget": 1.0, "usd_per_day": usd}
    return {"models": {MODEL: {"deployments": priced, "race": race}}, "clients": CLIENTS}


MIDDAY = partial(float, 1_800_014_400.0)
ONE = {"max_tokens": 1}  # an attempt costs a millionth of a dollar


async def test_a_client_that_races_each_call_leaves_the_others_their_part_of_the_days_dollars(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=of_a_day(20.5e-6), unix_clock=MIDDAY) as running:
        assert await raced(running, "fair", 1, **ONE) == 1
        assert await raced(running, "racer", 30, **ONE) == 10
        assert await raced(running, "fair", 30, **ONE) == 9


async def test_a_client_alone_uses_all_of_the_days_dollars(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=of_a_day(20.5e-6), unix_clock=MIDDAY) as running:
        assert await raced(running, "racer", 30, **ONE) == 20
