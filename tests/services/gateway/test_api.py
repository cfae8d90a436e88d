"""/api of a gateway on Postgres: with its database, without it, and with it again."""

from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy.engine import make_url

from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.support.relay import Relay

OF_SQL = ("history", "heat", "race-value", "race-value?by=client&window=7d", "calls", "refusals", "usage", "regions")
OF_MEMORY = ("leaderboard", "explain", "configuration", "session")


async def read(running: RunningGateway, name: str) -> tuple[int, Any]:
    async with running.get(f"/api/{name}") as response:
        return response.status, msgspec.json.decode(await response.read())


def unlike(name: str) -> str:
    """Ask for another window: the answer of the first is kept for some seconds."""
    other = "1h" if name == "regions" else "30d"
    return name.replace("7d", other) if "window" in name else f"{name}?window={other}"


async def chat(running: RunningGateway) -> str:
    async with running.chat() as response:
        assert response.status == 200
        await response.read()
        return str(response.headers["x-holeshot-call-id"])


async def test_what_is_in_memory_is_shown_without_a_database_and_the_rest_says_so(
    tmp_path: Path, postgres_url: str
) -> None:
    server = make_url(postgres_url)
    relay = Relay(str(server.host), int(server.port or 0))
    await relay.listen()
    url = server.set(host="127.0.0.1", port=relay.port).render_as_string(hide_password=False)
    async with serving(tmp_path, {"alpha": None, "beta": None}, database_url=url) as running:
        first = await chat(running)
        await running.gateway.ledger.flush()
        await running.gateway.ledger.fold()
        for name in (*OF_SQL, *OF_MEMORY):
            assert (await read(running, name))[0] == 200, name
        _, usage = await read(running, "usage")
        assert [(row["client"], row["calls"]) for row in usage["data"]] == [(None, 1)]
        assert usage["sums_trail_s"] == 0

        await relay.cut()
        second = await chat(running)
        for name in OF_SQL:
            status, body = await read(running, unlike(name))
            assert (status, body["error"]["code"]) == (503, "database_unreachable"), name
            assert str(relay.port) not in body["error"]["message"]
        for name in OF_MEMORY:
            assert (await read(running, name))[0] == 200, name
        status, waiting = await read(running, f"calls/{second}")
        assert (status, waiting["source"]) == (200, "memory")
        assert (await read(running, f"calls/{first}"))[0] == 503

        await relay.listen()
        _, listed = await read(running, "calls")
        assert [row["id"] for row in listed["data"]] == [second, first]
        await running.gateway.ledger.flush()
        _, listed = await read(running, "calls")
        assert [(row["id"], row["is_stored"]) for row in listed["data"]] == [(second, True), (first, True)]
        _, stored = await read(running, f"calls/{second}")
        assert stored["source"] == "ledger"
        assert stored["call"] == waiting["call"]
        assert stored["attempts"] == waiting["attempts"]
    await relay.cut()


async def test_an_id_of_no_time_that_there_is_belongs_to_no_call(tmp_path: Path, postgres_url: str) -> None:
    async with serving(tmp_path, {"alpha": None}, database_url=postgres_url) as running:
        for call_id in ("ffffffff-ffff-7fff-bfff-ffffffffffff", "e677d21f-dbff-7fff-bfff-ffffffffffff"):
            status, body = await read(running, f"calls/{call_id}")
            assert (status, body["error"]["code"]) == (404, "call_not_found")
