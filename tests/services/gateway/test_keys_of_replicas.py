"""Keys in one real Postgres, of several gateways: changes reach all of them, and its absence stops none."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from gateway.keys import changes, new_key
from gateway.keys import keys as watch
from gateway.ledger import SqlKeyStore
from providers.simulator import Delta, Hang, RoleOnly, Step
from tests.app.gateway.key_desk import ROOT, Desk, bearer, in_database
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.patience import PATIENCE_S, until
from tests.support.relay import Relay

ENDLESS: Sequence[Step] = (RoleOnly(), Delta("a"), Hang())


def given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a database that hangs given up at once; one that answers may take its time until then."""
    monkeypatch.setattr("gateway.ledger.key_store.TIMEOUT_S", 0.3)


async def changed(running: RunningGateway) -> None:
    """Return when the gateway has put another table in force."""
    table = running.gateway.context.admission.keys.table
    event, before = asyncio.Event(), table.on_changed

    def note() -> None:
        before()
        event.set()

    table.on_changed = note
    await event.wait()
    table.on_changed = before


async def ready(running: RunningGateway) -> tuple[int, Any]:
    async with running.get("/health/ready") as response:
        body = await response.json()
        return response.status, (body["status"], body["keys"])


async def test_what_one_replica_makes_and_revokes_the_other_lets_in_and_ends(tmp_path: Path, postgres_url: str) -> None:
    stores = {"database_url": postgres_url, **in_database()}
    async with (
        serving(tmp_path / "one", {"alpha": ENDLESS}, **stores) as one,
        serving(tmp_path / "two", {"alpha": ENDLESS}, **stores) as two,
    ):
        seen = asyncio.create_task(changed(two))
        key = await Desk(one).create("app")
        await seen  # by itself, within about a second
        async with (
            one.chat(bearer(key), stream=True) as here,
            two.chat(bearer(key), stream=True) as there,
        ):
            for each in (here, there):
                assert each.status == 200
                await each.content.readuntil(b'"a"')
            assert (await Desk(one).ask("DELETE", "/app")).status == 200
            for each in (here, there):
                with pytest.raises(aiohttp.ClientPayloadError):
                    await each.read()
        for running in (one, two):
            await running["alpha"].reach(disconnects_mid_stream=1)
            await running.gateway.ledger.flush()
        assert (await Desk(two).status_with(key)) == (401, "invalid_api_key")


async def test_what_the_command_line_changes_reaches_a_running_gateway(tmp_path: Path, postgres_url: str) -> None:
    stores = {"database_url": postgres_url, **in_database()}
    async with serving(tmp_path, {"alpha": None}, **stores) as running:
        key = await Desk(running).create("app")
        seen = asyncio.create_task(changed(running))
        store, new = SqlKeyStore(postgres_url), new_key()
        now = running.gateway.context.admission.keys.utc_now()
        decide = changes.rotated("app", new, grace_s=0, key_id="01a1ff48-30a1-7adf-9f68-b2dd774bccc3", who="me", at=now)
        await store.change("app", decide, who="me", at=now)
        await store.aclose()
        await seen
        assert await Desk(running).status_with(key) == (401, "invalid_api_key")
        assert await Desk(running).status_with(new.text) == (200, None)


@pytest.mark.parametrize("how", ["is gone", "hangs"])
async def test_a_database_that_goes_away_leaves_known_keys_good_and_is_said_loudly(
    tmp_path: Path, relay: Relay, relayed_url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "STALE_S", 0.0)
    with structlog.testing.capture_logs() as logged:
        async with serving(tmp_path, {"alpha": None}, database_url=relayed_url, **in_database()) as running:
            desk = Desk(running)
            key = await desk.create("app")
            given_up_soon(monkeypatch)
            if how == "hangs":
                relay.hang()
            else:
                await relay.cut()
            await until(lambda: any(entry["event"] == "keys.stale" for entry in logged))
            assert await desk.status_with(key) == (200, None)
            assert await desk.status_with("hs-unknown") == (401, "invalid_api_key")
            for method, path, body in (("GET", "", None), ("POST", "", {"name": "x"}), ("DELETE", "/app", None)):
                reply = await desk.ask(method, path, body)
                assert (reply.status, reply.error["code"]) == (503, "keys_unreachable")
                assert "postgres" not in reply.error["message"]
            status, (word, keys) = await ready(running)
            while not keys["stale_s"]:  # in tenths
                status, (word, keys) = await ready(running)
            assert (status, word, keys["loaded"], keys["clients"]) == (200, "degraded", True, 1)
            assert b"holeshot_keys_stale_s 0.0\n" not in (await running.gateway.metrics.render())[0]

            monkeypatch.setattr("gateway.ledger.key_store.TIMEOUT_S", PATIENCE_S)
            if how == "hangs":
                relay.resume()
            else:
                await relay.listen()
            await until(lambda: any(entry["event"] == "keys.fresh_again" for entry in logged))
            assert (await desk.ask("DELETE", "/app")).status == 200
            assert await desk.status_with(key) == (401, "invalid_api_key")
    assert len([entry for entry in logged if entry["event"] == "keys.stale"]) == 1


async def test_until_the_keys_were_read_they_are_answered_with_503_and_those_of_the_file_are_good(
    tmp_path: Path, postgres_url: str, relay: Relay, relayed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path / "one", {"alpha": None}, database_url=postgres_url, **in_database()) as one:
        key = await Desk(one).create("app")
    given_up_soon(monkeypatch)
    monkeypatch.setattr(watch, "STALE_S", PATIENCE_S)
    relay.hang()
    async with serving(tmp_path / "two", {"alpha": None}, database_url=relayed_url, **in_database()) as two:
        async with two.chat(bearer(key)) as response:
            error = (await response.json())["error"]
        assert (response.status, error["code"], response.headers["retry-after"]) == (503, "keys_not_loaded", "2")
        assert "could not be read from the database yet" in error["message"]
        assert (await Desk(two).status_with(ROOT)) == (200, None)
        async with two.chat() as response:
            assert response.status == 401
        assert await ready(two) == (503, ("keys_not_loaded", {"loaded": False, "stale_s": 0.0, "clients": 0}))

        seen = asyncio.create_task(changed(two))
        monkeypatch.setattr("gateway.ledger.key_store.TIMEOUT_S", PATIENCE_S)
        relay.resume()
        await seen
        assert await Desk(two).status_with(key) == (200, None)
        assert (await ready(two))[0] == 200


async def test_a_gateway_ends_while_the_database_of_its_keys_hangs(
    tmp_path: Path, relay: Relay, relayed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, {"alpha": None}, database_url=relayed_url, **in_database()) as running:
        key = await Desk(running).create("app")
        await Desk(running).status_with(key)
        keys = running.gateway.context.admission.keys
        given_up_soon(monkeypatch)
        relay.hang()
        async with asyncio.timeout(PATIENCE_S):
            await keys.close()
        monkeypatch.setattr("gateway.ledger.key_store.TIMEOUT_S", PATIENCE_S)
        relay.resume()
