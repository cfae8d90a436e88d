"""What lies at a provider is known to its client after a restart, also without Redis: the ledger knows."""

import asyncio
import base64
import hashlib
import sqlite3
from typing import Any

import pytest

from gateway.limits import level_of_key
from tests.app.gateway.description import Description
from tests.app.gateway.responses.test_kept_responses import IN_BACKGROUND, Worker, keeper, kept_at, stored
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.patience import eventually, until

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
            for name, shown, continued in (("bob", 404, 400), ("ann", 200, 200)):
                headers = {"authorization": f"Bearer {name}"}
                async with running.get("/v1/responses/resp_abc", headers=headers) as response:
                    assert response.status == shown
                async with running.post(body, path="/v1/responses", headers=headers) as response:
                    assert response.status == continued
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


async def test_each_api_in_which_a_name_may_be_unreachable_says_so_in_its_description(serve: Serve) -> None:
    file = {"role": "user", "content": [{"type": "file", "file": {"file_id": "file-abc"}}]}
    async with keeper() as (base_url, _), serve(config=kept_at(base_url, clients=clients("ann"))) as running:
        description = await Description.of(running)
        with sqlite3.connect(running.folder / "holeshot.db") as database:
            database.execute("alter table stored_names rename to away")
            database.commit()
        for path, body in (
            ("/v1/chat/completions", {"model": MODEL, "messages": [file]}),
            ("/v1/responses", {"model": MODEL, "input": "And?", "previous_response_id": "resp_abc"}),
            ("/v1/conversations/conv_abc", {"metadata": {}}),
        ):
            async with running.post(body, path=path, headers=ANN) as response:
                said = await description.check(description.path_of("POST", path), response)
                assert (response.status, said["error"]["code"]) == (503, "stored_names_unreachable")


async def test_an_ordinary_call_asks_the_database_for_no_name(serve: Serve) -> None:
    async with serve() as running:
        [names, *_] = running.gateway._names_on_disk
        async with running.chat() as response:
            await response.read()
        body = {"model": MODEL, "input": "Hi"}
        async with running.post(body, path="/v1/responses") as response:
            first = (await response.json())["id"]
        async with running.post({**body, "previous_response_id": first}, path="/v1/responses") as response:
            assert response.status == 200
        assert "_engine" not in vars(names._database)
        assert await running.rows("select * from stored_names") == []


def background(base_url: str, **settings: Any) -> dict[str, Any]:
    return {
        "clients": clients("ann", **LIMITS),
        "providers": {"own": {"base_url": base_url, "api_key": "k", "apis": ["responses"]}},
        "models": {
            name: {"deployments": [{"deployment": f"own/{name}", "price_per_mtok": {"input": usd, "output": 10 * usd}}]}
            for name, usd in ((MODEL, 1.0), ("cheap", 1e-9))
        },
        **settings,
    }


async def spent(running: RunningGateway) -> float:
    async with running.post({"model": "cheap", "input": "Hi"}, path="/v1/responses", headers=ANN) as response:
        assert response.status == 200  # a limit is read when it is first asked
    [standing] = running.gateway.context.limits.standings(level_of_key("ann", LIMITS))
    assert standing.used is not None
    return standing.used


async def begun(running: RunningGateway) -> None:
    async with running.post(IN_BACKGROUND, path="/v1/responses", headers=ANN) as response:
        assert response.status == 200


async def costs(running: RunningGateway) -> list[float | None]:
    return [
        each["cost_usd"]
        for each in await running.rows(f"select cost_usd from calls where model = '{MODEL}' order by started_at")
    ]


async def test_what_ran_in_the_background_is_asked_for_after_a_restart_though_its_client_never_looks(
    serve: Serve,
) -> None:
    worker = Worker(asyncio.Event())
    worker.go.set()
    async with worker.serving() as base_url:
        config = background(base_url)
        async with serve(config=config) as running:
            await begun(running)
            [row] = await running.rows("select sealed from stored_names where sealed is not null")
            assert row["sealed"]
            assert b"resp_" not in base64.b64decode(row["sealed"])
        worker.is_done = True
        async with serve(config=config) as running:

            async def two() -> list[float | None] | None:
                return found if len(found := await costs(running)) > 1 else None

            assert await eventually(two) == [None, pytest.approx(0.021)]
            assert await spent(running) == pytest.approx(0.021)
            assert await running.rows("select id from stored_names where sealed is not null") == []
        async with serve(config=config) as running:
            async with running.get("/v1/responses/resp_abc", headers=ANN) as response:
                assert response.status == 200
            assert len(await costs(running)) == 2
            assert await spent(running) == pytest.approx(0.021)


async def test_what_still_runs_after_a_restart_counts_in_the_days_limit_with_what_it_may_cost(serve: Serve) -> None:
    worker = Worker(asyncio.Event())
    worker.go.set()
    async with worker.serving() as base_url:
        config = background(base_url)
        async with serve(config=config) as running:
            await begun(running)
            may_cost = await spent(running)
            assert may_cost > 0.05
        async with serve(config=config) as running:
            assert await spent(running) == pytest.approx(may_cost)
            await until(lambda: worker.looked)
            worker.is_done = True
            async with running.get("/v1/responses/resp_abc", headers=ANN) as response:
                assert response.status == 200
            assert await costs(running) == [None, pytest.approx(0.021)]
            assert await spent(running) == pytest.approx(0.021)


async def test_what_ran_in_the_background_before_a_restart_has_a_row_of_its_cost_and_counts_in_the_days_limit(
    serve: Serve,
) -> None:
    worker = Worker(asyncio.Event())
    worker.go.set()
    async with worker.serving() as base_url:
        config = background(base_url)
        async with serve(config=config) as running:
            await begun(running)
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
