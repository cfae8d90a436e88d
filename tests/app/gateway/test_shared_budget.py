"""Extra attempts are shared by clients: who races each call takes none of the others'."""

from collections.abc import Mapping
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


async def raced(running: RunningGateway, client: str, calls: int) -> int:
    """Let ``client`` call; return how many of its calls had all attempts that they asked for."""
    whole = 0
    for _ in range(calls):
        async with running.chat({"authorization": f"Bearer hs-{client}"}) as response:
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
