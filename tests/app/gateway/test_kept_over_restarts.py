"""What lies at a provider is known to its client after a restart, also without Redis: the ledger knows."""

import asyncio
import hashlib
import sqlite3
from typing import Any

import pytest

from gateway.limits import level_of_key
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.test_kept_responses import IN_BACKGROUND, Worker, keeper, kept_at, stored

ANN = {"authorization": "Bearer ann"}
LIMITS = {"usd_per_day": 1.0}


def clients(*names: str, **limits: float) -> dict[str, Any]:
    return {name: {"key_sha256": hashlib.sha256(name.encode()).hexdigest(), **limits} for name in names}


async def test_a_stored_response_is_continued_and_shown_after_a_restart_to_its_client_alone(serve: Serve) -> None:
    async with keeper() as (base_url, asked):
        config = kept_at(base_url, clients=clients("ann", "bob"))
        async with serve(config=config) as running:
            await stored(running, **ANN)
        async with serve(config=config) as running:
            body = {"model": MODEL, "input": "And?", "store": True, "previous_response_id": "resp_abc"}
            for name, status in (("bob", 404), ("ann", 200)):
                headers = {"authorization": f"Bearer {name}"}
                async with running.get("/v1/responses/resp_abc", headers=headers) as response:
                    assert response.status == status
                async with running.post(body, path="/v1/responses", headers=headers) as response:
                    assert response.status == status
    assert asked == ["GET /v1/responses/resp_abc"]


async def test_on_disk_are_hashes_and_no_id(serve: Serve) -> None:
    async with keeper() as (base_url, _), serve(config=kept_at(base_url, clients=clients("ann"))) as running:
        await stored(running, **ANN)
        [spool] = (running.folder / "spool").iterdir()
        lines = [line for each in spool.glob("*.jsonl") for line in each.read_text().splitlines() if '"named"' in line]
        rows = await running.rows("select * from stored_names")
    assert lines
    assert {(each["client"], each["known"]) for each in rows} == {("ann", '{"deployment":"keeper/m"}')}
    assert not any(name in f"{lines}{rows}" for name in ("resp_", "msg_"))


async def test_names_are_found_with_another_password_and_not_with_another_secret(serve: Serve) -> None:
    async with keeper() as (base_url, _):
        found: list[int] = []
        for secret in ("a" * 64, "a" * 64, "b" * 64):
            async with serve(config=kept_at(base_url, page={"signing_key": secret})) as running:
                if not found:
                    await stored(running)
                async with running.get("/v1/responses/resp_abc") as response:
                    found.append(response.status)
    assert found == [200, 200, 404]


async def test_a_name_that_has_expired_is_found_no_more(serve: Serve) -> None:
    async with keeper() as (base_url, _):
        async with serve(config=kept_at(base_url, response_ids_ttl_s=1e-3)) as running:
            await stored(running)
            await running.rows("select * from stored_names")
        async with serve(config=kept_at(base_url)) as running, running.get("/v1/responses/resp_abc") as response:
            said = (await response.json())["error"]["message"]
            assert response.status == 404
    assert "kept for 30 days" in said
    assert "responses_memory" in said


async def test_a_name_is_looked_for_when_the_database_is_back_and_until_then_nobody_says_that_there_is_none(
    serve: Serve,
) -> None:
    async with keeper() as (base_url, _):
        async with serve(config=kept_at(base_url)) as running:
            await stored(running)
        async with serve(config=kept_at(base_url)) as running:
            with sqlite3.connect(running.folder / "holeshot.db") as database:
                database.execute("alter table stored_names rename to away")
                database.commit()
                body = {"model": MODEL, "input": "And?", "store": True, "previous_response_id": "resp_abc"}
                async with running.post(body, path="/v1/responses") as response:
                    said = (await response.json())["error"]
                    assert (response.status, said["code"]) == (503, "stored_names_unreachable")
                database.execute("alter table away rename to stored_names")
                database.commit()
            async with running.post(body, path="/v1/responses") as response:
                assert response.status == 200


async def test_an_ordinary_call_asks_the_database_for_no_name(serve: Serve) -> None:
    async with serve() as running:
        [names, _] = running.gateway._names_on_disk
        async with running.chat() as response:
            await response.read()
        body = {"model": MODEL, "input": "Hi"}
        async with running.post(body, path="/v1/responses") as response:
            first = (await response.json())["id"]
        async with running.post({**body, "previous_response_id": first}, path="/v1/responses") as response:
            assert response.status == 200
        assert "_engine" not in vars(names._database)
        assert await running.rows("select * from stored_names") == []


async def test_what_ran_in_the_background_before_a_restart_has_a_row_of_its_cost_and_counts_in_the_days_limit(
    serve: Serve,
) -> None:
    worker = Worker(asyncio.Event())
    async with worker.serving() as base_url:
        config = {
            "clients": clients("ann", **LIMITS),
            "providers": {"own": {"base_url": base_url, "api_key": "k", "apis": ["responses"]}},
            "models": {
                MODEL: {"deployments": [{"deployment": "own/m", "price_per_mtok": {"input": 1.0, "output": 10.0}}]}
            },
        }
        async with (
            serve(config=config) as running,
            running.post(IN_BACKGROUND, path="/v1/responses", headers=ANN) as response,
        ):
            assert response.status == 200
        worker.is_done = True
        for is_next in (True, False):
            async with serve(config=config) as running:
                for _ in range(2):
                    async with running.get("/v1/responses/resp_abc", headers=ANN) as response:
                        assert response.status == 200
                costs = await running.rows("select cost_usd from calls order by started_at")
                assert [each["cost_usd"] for each in costs[:2]] == [None, pytest.approx(0.021)]
                if not is_next:
                    assert len(costs) == 3
                    continue
                async with running.post(IN_BACKGROUND, path="/v1/responses", headers=ANN) as response:
                    assert response.status == 200
                [standing] = running.gateway.context.limits.standings(level_of_key("ann", LIMITS))
                assert standing.used == pytest.approx(0.121, abs=0.001)  # what it cost, and what the next one may
