"""What the gateway refused is in SQL, of a client's words only a model's name: by minute, reason, client, address."""

import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from structlog.typing import EventDict

from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.process import started
from tests.app.gateway.running_gateway import MODEL, Serve, chat_body, configuration
from tests.app.gateway.watching.test_refusals import WRONG, refusals

BEHIND = {"trusted_proxies": ["127.0.0.1/32"]}


def stored(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of a gateway that has ended; minutes that began in the course of it are added up."""
    with closing(sqlite3.connect(folder / "holeshot.db")) as connection:
        connection.row_factory = sqlite3.Row
        query = (
            "select status_code, reason, client, address, sum(n) as n, replica from refusals "
            "group by status_code, reason, client, address, replica order by status_code, reason, address"
        )
        return [dict(row) for row in connection.execute(query)]


async def test_misuse_is_in_sql_with_its_client_and_a_guess_with_its_address(serve: Serve, folder: Path) -> None:
    async with serve(config={**clients(plain={}), "max_body_mb": 0.25}) as running:
        for _ in range(3):
            async with running.chat(WRONG) as response:
                assert response.status == 401
        async with running.get("/v1/models") as response:
            assert response.status == 401
        for body in (chat_body(model="nobody"), chat_body(model="no-one"), b" " * 300_000):
            async with running.post(body, headers=key_of("plain")) as response:
                assert response.status in {404, 413}
        async with running.chat(key_of("plain")) as response:
            assert response.status == 200
    everybody = {"address": "127.0.0.1", "replica": "here"}
    assert stored(folder) == [
        {"status_code": 401, "reason": "invalid_api_key", "client": None, "n": 3, **everybody},
        {"status_code": 401, "reason": "no_api_key", "client": None, "n": 1, **everybody},
        {"status_code": 404, "reason": "model_not_found", "client": "plain", "n": 2, **everybody},
        {"status_code": 413, "reason": "body_too_large", "client": "plain", "n": 1, **everybody},
    ]


@pytest.mark.usefixtures("views")
async def test_the_model_that_was_asked_for_is_in_sql_and_in_the_pages_answer(serve: Serve, folder: Path) -> None:
    names = ["claude-opus-4-8", "claude-opus-4-8", "x" * 150, "hs-" + "a1b2" * 10]
    async with serve(config=clients(plain={}, guest={"models": [MODEL]}, admin={"admin": True})) as running:
        for name in names:
            async with running.chat(key_of("plain"), model=name) as response:
                assert response.status == 404
        async with running.chat(key_of("guest"), model="claude-fable-5") as response:
            assert response.status == 403
        running.gateway.context.refusals.close()  # the minute's end
        await running.gateway.ledger.emptied()
        async with running.get("/api/refusals?window=1h", headers=key_of("admin")) as response:
            told = (await response.json())["data"]
    with closing(sqlite3.connect(folder / "holeshot.db")) as connection:
        rows = connection.execute("select client, reason, model, sum(n) from refusals group by 1, 2, 3").fetchall()
    assert sorted(rows) == [
        ("guest", "forbidden", "claude-fable-5", 1),
        ("plain", "model_not_found", "***", 1),
        ("plain", "model_not_found", "claude-opus-4-8", 2),
        ("plain", "model_not_found", "x" * 100, 1),
    ]
    assert sorted((row["client"], row["reason"], row["model"], row["n"]) for row in told) == sorted(rows)


async def test_metrics_name_the_client_and_no_address(serve: Serve) -> None:
    async with serve(config=clients(plain={})) as running:
        for name in ("nobody", "no-one"):
            async with running.chat(key_of("plain"), model=name) as response:
                assert response.status == 404
        async with running.chat(WRONG) as response:
            assert response.status == 401
        page = (await running.gateway.metrics.render())[0].decode()
    assert 'holeshot_client_refusals_total{client="plain",reason="model_not_found"} 2.0\n' in page
    assert 'holeshot_refusals_total{reason="invalid_api_key",status="401"} 1.0\n' in page
    assert page.count("holeshot_client_refusals_total{") == 1
    assert "127.0.0.1" not in page


async def test_what_is_no_http_and_what_no_route_has_is_in_sql(serve: Serve, folder: Path) -> None:
    async with serve(config=clients(plain={})) as running:
        async with running.get("/nowhere") as response:
            assert response.status == 404
        async with running.get("/v1/chat/completions") as response:
            assert response.status == 405
        async with running.get("/v1/models", headers={"x" * 40_000: "y"}) as response:
            assert response.status == 431
    assert [(row["status_code"], row["reason"], row["n"]) for row in stored(folder)] == [
        (404, "not_found", 1),
        (405, "method_not_allowed", 1),
        (431, "headers_too_large", 1),
    ]


async def test_behind_a_trusted_proxy_each_client_has_its_row_and_those_beyond_a_hundred_share_one(
    serve: Serve, folder: Path
) -> None:
    async with serve(config={**clients(plain={}), **BEHIND}) as running:
        for number in range(120):
            async with running.get("/v1/models", headers={"x-forwarded-for": f"192.0.2.{number}"}) as response:
                assert response.status == 401
        for number in (1, 2):
            async with running.get("/v1/models", headers={"x-forwarded-for": f"192.0.2.{number}"}) as response:
                assert response.status == 401
    counts = Counter({row["address"]: row["n"] for row in stored(folder)})
    assert counts.total() == 122
    assert counts["192.0.2.1"] == counts["192.0.2.2"] == 2
    assert counts["other"] <= 20  # fewer if a minute began meanwhile


async def test_an_ipv6_client_is_its_network(serve: Serve, folder: Path) -> None:
    async with serve(config={**clients(plain={}), **BEHIND}) as running:
        for host in ("1", "2:3"):
            async with running.get("/v1/models", headers={"x-forwarded-for": f"2001:db8::{host}"}) as response:
                assert response.status == 401
    assert [(row["address"], row["n"]) for row in stored(folder)] == [("2001:db8::/64", 2)]


async def test_without_addresses_neither_the_rows_nor_the_log_have_one(
    serve: Serve, folder: Path, logged: list[EventDict]
) -> None:
    async with serve(config={**clients(plain={}), "refusals": {"addresses": False}}) as running:
        async with running.chat(WRONG) as response:
            assert response.status == 401
        async with running.get("/v1/models", headers={"x" * 40_000: "y"}) as response:
            assert response.status == 431
    assert [(row["reason"], row["address"]) for row in stored(folder)] == [
        ("invalid_api_key", None),
        ("headers_too_large", None),
    ]
    assert len(refusals(logged)) == 2
    assert "127.0.0.1" not in repr(refusals(logged))


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
async def test_the_open_minute_is_stored_when_the_gateway_is_stopped(folder: Path, ending: signal.Signals) -> None:
    config = configuration(folder, {"alpha": "http://127.0.0.1:9"}, **clients(plain={}))
    async with started(config, folder) as gateway, aiohttp.ClientSession() as http:
        for _ in range(4):
            async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body(), headers=WRONG) as response:
                assert response.status == 401
        gateway.send(ending)
        assert await gateway.ended() == 0
    assert [(row["reason"], row["n"]) for row in stored(folder)] == [("invalid_api_key", 4)]
