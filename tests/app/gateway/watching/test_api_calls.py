"""GET /api/calls over HTTP: calls are there at once, in pages, for those who may look."""

import asyncio
import base64
from typing import Any

import msgspec
import pytest

from providers.simulator import Hang, answer
from tests.app.gateway.key_desk import ROOT, bearer, in_database, sha256
from tests.app.gateway.running_gateway import RunningGateway, Serve
from tests.patience import PATIENCE_S

ID = "0198f1d2-0000-7000-8000-000000000000"


async def read(running: RunningGateway, path: str, key: str | None = None) -> tuple[int, Any]:
    async with running.get(path, headers=bearer(key) if key else {}) as response:
        return response.status, msgspec.json.decode(await response.read())


async def chat(running: RunningGateway, headers: dict[str, str] | None = None, **fields: Any) -> str:
    async with running.chat(headers, **fields) as response:
        await response.read()
        return str(response.headers["x-holeshot-call-id"])


async def test_a_call_is_listed_before_its_row_is_stored_and_after(serve: Serve) -> None:
    async with serve() as running:
        call_id = await chat(running, {"x-holeshot-tags": '{"variant": "b"}', "x-request-id": "order 1"})
        ships = running.gateway.ledger._backlog._shipping
        async with ships:  # nothing is shipped meanwhile
            call_id = await chat(running, {"x-holeshot-tags": '{"variant": "b"}', "x-request-id": "order 1"})
            _, waiting = await read(running, "/api/calls?limit=1&tag=variant:b&request_id=order%201")
            _, one = await read(running, f"/api/calls/{call_id}")
        await running.gateway.ledger.flush()
        _, stored = await read(running, "/api/calls?limit=1&tag=variant:b&request_id=order%201")
        _, same = await read(running, f"/api/calls/{call_id}")
    [row], [later] = waiting["data"], stored["data"]
    assert (row["id"], row["is_stored"], later["is_stored"]) == (call_id, False, True)
    assert row | {"is_stored": True} == later
    assert (row["deployment"], row["status_code"], row["tags"]) == ("alpha/m", 200, {"variant": "b"})
    assert stored["next"]
    assert (one["source"], same["source"]) == ("memory", "ledger")
    assert one["call"] == same["call"]
    assert one["attempts"] == same["attempts"]


async def test_listed_keys_of_metadata_become_tags_and_all_of_it_is_forwarded(serve: Serve) -> None:
    metadata = {"feature": "search", "secret": "x", "number": 7, "team": "mine"}
    config = {"tags_from_metadata": ["feature", "number", "team", "missing"]}
    async with serve(alpha=None, config=config) as running:
        await chat(running, {"x-holeshot-tags": "variant=b"}, metadata=metadata)
        await chat(running, {"x-holeshot-tags": "feature=header"}, metadata=metadata)
        rows = await running.rows("select tags from calls order by id")
        sent = running["alpha"].received
    assert [msgspec.json.decode(row["tags"]) for row in rows] == [
        {"feature": "search", "variant": "b"}, {"feature": "header"},
    ]  # fmt: skip
    assert [each.body["metadata"] for each in sent] == [metadata, metadata]


async def test_a_running_call_can_be_looked_at(serve: Serve) -> None:
    async with serve(alpha=[*answer("Hello")[:2], Hang()]) as running, running.chat(stream=True) as response:
        await response.content.readline()
        status, found = await read(running, f"/api/calls/{response.headers['x-holeshot-call-id']}")
    assert (status, found["source"], found["call"]["total_ms"]) == (200, "running", None)
    assert [each["deployment"] for each in found["attempts"]] == ["alpha/m"]


async def test_pages_follow_each_other(serve: Serve) -> None:
    async with serve() as running:
        ids = [await chat(running) for _ in range(5)]
        seen, path = [], "/api/calls?limit=2"
        while path:
            _, page = await read(running, path)
            seen += [row["id"] for row in page["data"]]
            path = f"/api/calls?limit=2&after={page['next']}" if page["next"] else ""
    assert seen == ids[::-1]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("modle=x", "did you mean 'model'?"),
        ("model=x&model=y", "more than once"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("window=2d", "window: must be one of 1h, 24h, 7d, 30d"),
        ("tag=variant", "name:value"),
        ("after=x", "after"),
        *(
            ("after=" + base64.urlsafe_b64encode(f"{at}|{call_id}".encode()).decode().rstrip("="), "after")
            for at, call_id in (
                ("2026-11-21T00:00:00+00:00", "x"),
                ("2026-11-21T00:00:00+00:00", "-" * 36),
                ("2026-11-21T00:00:00+00:00", f"{{{ID}}}"),
                ("2026-11-21T00:00:00", ID),
                ("2026-11-21T00:00:00+01:00", ID),
                ("0001-01-01T00:00:00+23:59", ID),
                ("0001-01-01T00:00:00+00:00", ID),
                ("' or true --", ID),
            )
        ),
        ("slower_than_ms=-1", "slower_than_ms"),
        ("slower_than_ms=nan", "slower_than_ms"),
        ("outcome=lost", "one of ok, failed, rejected, left"),
        ("model=%00", "model"),
        ("model=%FF", None),
        ("model=" + "x" * 513, "512"),
    ],
)
async def test_a_query_that_makes_no_sense_is_a_400_that_says_why(serve: Serve, query: str, words: str | None) -> None:
    async with serve() as running:
        status, body = await read(running, f"/api/calls?{query}")
    if words is None:
        assert status in {200, 400}
        return
    assert status == 400, body
    assert words in body["error"]["message"]


async def test_an_unknown_call_is_a_404(serve: Serve) -> None:
    async with serve() as running:
        for call_id in ("x", "0198f1d2-0000-7000-8000-000000000000", "%27%20or%20true"):
            status, body = await read(running, f"/api/calls/{call_id}")
            assert (status, body["error"]["code"]) == (404, "call_not_found")


async def test_viewers_may_look_and_clients_may_not(serve: Serve) -> None:
    clients = {
        "eye": {"key_sha256": sha256("hs-eye"), "role": "viewer"},
        "app": {"key_sha256": sha256("hs-app")},
    }
    async with serve(config=in_database(**clients)) as running:
        assert (await read(running, "/api/calls", ROOT))[0] == 200
        assert (await read(running, "/api/calls", "hs-eye"))[0] == 200
        assert (await read(running, "/api/calls", "hs-app"))[0] == 403
        assert (await read(running, "/api/calls", "hs-wrong"))[0] == 401
        assert (await read(running, "/api/calls"))[0] == 401


async def test_an_answer_that_did_not_change_is_a_304(serve: Serve) -> None:
    async with serve() as running:
        await chat(running)
        await running.gateway.ledger.flush()
        while True:  # within one minute, as the answer names it
            async with running.get("/api/calls") as first:
                etag = first.headers["etag"]
                assert first.headers["cache-control"] == "private, no-cache"
            async with running.get("/api/calls", headers={"if-none-match": etag}) as again:
                if again.status == 304:
                    assert await again.read() == b""
                    break
        await chat(running)
        async with running.get("/api/calls", headers={"if-none-match": etag}) as changed:
            assert changed.status == 200


async def test_without_its_tables_a_report_is_a_503_that_says_what_to_do(serve: Serve) -> None:
    async with serve() as running:
        (running.folder / "holeshot.db").unlink()
        for suffix in ("-wal", "-shm"):
            (running.folder / f"holeshot.db{suffix}").unlink(missing_ok=True)
        status, body = await read(running, "/api/calls")
        assert (status, body["error"]["code"]) == (503, "database_unreachable")
        assert str(running.folder) not in body["error"]["message"]
        call_id = await chat(running)
        async with asyncio.timeout(PATIENCE_S):
            assert (await read(running, f"/api/calls/{call_id}"))[0] in {200, 503}
