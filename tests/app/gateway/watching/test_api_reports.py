"""The other reports of /api over HTTP: what the page's views show, with real calls behind them."""

import asyncio
import gzip
import inspect
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec
import pytest

from gateway.admin import ROUTES
from gateway.ledger import ReplayRunner
from providers.simulator import Status
from tests.app.gateway.key_desk import ROOT, Desk, bearer, in_database, sha256
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.watching.test_api_calls import read

pytestmark = pytest.mark.usefixtures("views")

REPORTS = (
    "leaderboard", "explain", "history", "slowdowns", "heat", "race-value", "replay", "calls", "refusals", "slo",
    "usage", "regions", "teams", "alerts", "configuration",
)  # fmt: skip
JSON = {"content-type": "application/json"}


async def called(running: RunningGateway, key: str | None = None, **fields: Any) -> None:
    async with running.chat(bearer(key) if key else None, **fields) as response:
        await response.read()


@pytest.mark.parametrize("name", REPORTS)
async def test_a_report_without_calls_is_an_answer_too(serve: Serve, name: str) -> None:
    async with serve() as running:
        status, body = await read(running, f"/api/{name}")
    assert status == 200, body


@pytest.mark.parametrize("name", [name for name in REPORTS if name != "explain"])
async def test_an_unknown_name_in_a_query_is_a_400_that_names_the_nearest(serve: Serve, name: str) -> None:
    async with serve() as running:
        status, body = await read(running, f"/api/{name}?windows=1h&models=x")
    assert (status, body["error"]["param"]) == (400, "windows")
    assert "did you mean" in body["error"]["message"] or "known:" in body["error"]["message"]


# Tested elsewhere: what each shows depends on who asks, or, of a sign-in, nobody is known yet.
OTHERS = {"/api/session", "/api/playground", "/api/live", "/api/sign-in", "/api/signed-in", "/api/own"}


async def test_every_endpoint_of_the_api_is_closed_to_clients_and_only_keys_to_viewers_and_operators(
    serve: Serve,
) -> None:
    clients = {
        "eye": {"key_sha256": sha256("hs-eye"), "role": "viewer"},
        "on-call": {"key_sha256": sha256("hs-call"), "role": "operator"},
        "app": {"key_sha256": sha256("hs-app")},
    }
    async with serve(config=in_database(**clients)) as running:
        for route in ROUTES:
            if not route.path.startswith("/api/") or route.path in OTHERS:
                continue
            path = route.path.format(id="0198f1d2-0000-7000-8000-000000000000", name="nobody")
            statuses = []
            for key in ("hs-app", "hs-eye", "hs-call", ROOT):
                async with running.http.request(
                    route.method, running.url + path, headers=bearer(key) | JSON, data=b"{}"
                ) as response:
                    statuses.append(response.status)
            sees = 403 if route.path.startswith("/api/keys") else statuses[3]
            assert statuses[:3] == [403, sees, sees], (route, statuses)
            assert statuses[3] not in {401, 403, 500}, (route, statuses)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ("from=2026-01-01T00:00:00", "from"),
        ("to=2026-01-01T00:00:00Z", "to"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from"),
        ("from=2020-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from"),
        ("from=yesterday", "from"),
        ("from=0001-01-05T00:00:00Z&to=0001-01-06T00:00:00Z", "from"),
        ("from=9999-12-31T00:00:00Z&to=9999-12-31T23:59:00Z", "from"),
        ("from=2026-01-01T00:00:00Z&to=9999-12-31T23:59:00-05:00", "to"),
    ],
)
async def test_a_range_of_time_that_is_none_is_refused(serve: Serve, asked: str, named: str) -> None:
    async with serve() as running, running.get(f"/api/history?{asked}") as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == named


async def test_a_range_of_time_is_answered_with_its_beginning_and_its_end(serve: Serve) -> None:
    async with serve() as running:
        await called(running)
        _, body = await read(running, "/api/history?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z")
    assert (body["window"], body["from"], body["to"]) == (None, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    assert body["series"] == []


async def test_a_history_counts_the_calls_that_were_made(serve: Serve) -> None:
    async with serve(alpha=None, beta=[Status(500)]) as running:
        for _ in range(3):
            await called(running, stream=True)
        failures = await running.rows("select * from attempts where outcome = 'failed'")  # it may be cut before
        _, body = await read(running, f"/api/history?window=1h&model={MODEL}")
        _, heat = await read(running, "/api/heat?metric=n")
        _, board = await read(running, "/api/leaderboard")
    by_deployment = {series["deployment"]: series for series in body["series"]}
    assert sum(by_deployment["alpha/m"]["n_won"]) == 3
    assert sum(by_deployment["beta/m"]["n"]) == 3
    assert sum(by_deployment["beta/m"]["n_errors"]) == len(failures)
    assert body["step_s"] == 300
    assert body["from"].endswith("Z")
    assert len(body["series"][0]["t"]) == 13
    assert sum(cell["n"] for row in heat["rows"] for cell in row["cells"]) == 6
    rows = {row["deployment"]: row for row in board["models"][0]["deployments"]}
    assert rows["alpha/m"]["n_first_token"] == 3
    assert {"price", "itl_p50_ms", "itl_p95_ms", "ttft_p50_low_ms"} <= rows["alpha/m"].keys()


async def test_usage_shows_limits_beside_what_was_used(serve: Serve) -> None:
    app = {"key_sha256": sha256("hs-app"), "rpm": 60, "usd_per_day": 5.0, "max_parallel": 3}
    async with serve(config=in_database(app=app, idle={"key_sha256": sha256("hs-idle"), "tpm": 10})) as running:
        for _ in range(2):
            await called(running, "hs-app")
        await running.gateway.ledger.flush()
        _, body = await read(running, "/api/usage?window=1h", ROOT)
    rows = {row["client"]: row for row in body["data"]}
    assert rows.keys() == {"app", "idle", "root"}
    assert (rows["app"]["calls"], rows["app"]["failed"], rows["idle"]["calls"]) == (2, 0, 0)
    limits = {each["limit"]: each for each in rows["app"]["limits"]}
    assert (limits["rpm"]["of"], limits["max_parallel"]["used"], limits["max_parallel"]["resets_in_s"]) == (60, 0, None)
    assert limits["rpm"]["used"] in {0, 1, 2}  # the minute may have ended
    assert 0 <= limits["rpm"]["resets_in_s"] <= 60  # rounded to tenths
    assert limits["usd_per_day"]["used"] == 0
    assert [each["used"] for each in rows["idle"]["limits"]] == [0]  # there is no other process


async def test_the_configuration_has_no_secret(serve: Serve) -> None:
    secrets = ("upstream-alpha-secret", "sneaky-body", "sneaky-query", "sneaky-header", "sneaky-password", "hs-app")
    config = in_database(app={"key_sha256": sha256("hs-app"), "rpm": 7})
    config["providers"] = {
        "alpha": {
            "headers": {"x-team": "sneaky-header"},
            "query": {"api-key": "sneaky-query", "api-version": "2026-01"},
        },
        "other": {"base_url": "https://me:sneaky-password@example.test/v1"},
    }
    config["models"] = {
        "second": {
            "deployments": [
                {
                    "deployment": "other/m", "as": "mine", "price_per_mtok": {"input": 0.5, "output": 1.5},
                    "extra_body": {"metadata": {"access_token": "sneaky-body", "depth": 3}},
                }
            ]
        }
    }  # fmt: skip
    async with serve(config=config) as running:
        async with running.get("/api/configuration", headers=bearer(ROOT)) as response:
            text = await response.text()
        body = msgspec.json.decode(text)
    for secret in (*secrets, sha256("hs-app"), sha256(ROOT)):
        assert secret not in text, secret
    assert body["settings"]["database_url"].endswith(str(running.folder / "holeshot.db"))
    assert body["settings"]["keys"] == "database"
    assert body["settings"]["clients"]["app"]["rpm"] == 7
    assert body["settings"]["clients"]["app"]["key_sha256"] == "***"
    providers = {each["name"]: each for each in body["providers"]}
    assert providers["alpha"]["api_key"] == "***"
    assert providers["alpha"]["query"] == {"api-key": "***", "api-version": "2026-01"}
    assert providers["other"]["base_url"] == "https://me:***@example.test/v1"
    models = {each["name"]: each for each in body["models"]}
    [deployment] = models["second"]["deployments"]
    assert (deployment["as"], deployment["name"], deployment["provider"]) == ("mine", "mine", "other")
    assert deployment["price"] == {"prompt": 0.5, "completion": 1.5}
    assert deployment["extra_body"] == {"metadata": {"access_token": "***", "depth": 3}}
    assert models[MODEL]["race"]["mode"] == "race"


async def test_the_configuration_has_no_secret_in_a_place_that_is_not_for_one(serve: Serve) -> None:
    config = in_database()
    config["providers"] = {
        "hook": {
            "base_url": "http://example.test/hooks/sneaky-0/v1", "api_key": "sneaky-0",
            "query": {"code": "sneaky-1", "sig": "sneaky-2", "version": "3"}, "headers": {"x-team": "search"},
        }
    }  # fmt: skip
    body = {
        "credentials": {"value": "sneaky-3"}, "password": 31337001, "auth": "sneaky-4", "access_tokens": ["sneaky-5"],
        "callback": "https://me@example.test/x?sv=sneaky-6&n=sneaky-7", "webhook": {"url": "https://example.test/sneaky-8"},
        "max_tokens": 5, "note": "search",
    }  # fmt: skip
    config["models"] = {
        "second": {"deployments": [{"deployment": "hook/m", "extra_body": body}], "defaults": {"m": body}}
    }
    async with serve(config=config) as running, running.get("/api/configuration", headers=bearer(ROOT)) as response:
        text = await response.text()
    assert "sneaky" not in text
    assert "31337001" not in text
    read = msgspec.json.decode(text)
    [hook] = [each for each in read["providers"] if each["name"] == "hook"]
    assert hook["base_url"] == "http://example.test/hooks/***/v1"
    assert hook["query"] == {"code": "***", "sig": "***", "version": "3"}
    [second] = [each for each in read["models"] if each["name"] == "second"]
    seen = second["deployments"][0]["extra_body"]
    assert (seen["max_tokens"], seen["note"], seen["credentials"]) == (5, "search", "***")
    assert seen["callback"] == "https://me@example.test/x?sv=***&n=***"


async def test_an_outage_without_an_end_may_last_for_a_day(serve: Serve) -> None:
    async with serve() as running:
        now = datetime.now(UTC)
        with closing(sqlite3.connect(running.folder / "holeshot.db")) as connection:
            for name, hours in (("new", 2), ("old", 30)):
                began = (now - timedelta(hours=hours)).isoformat(" ", "microseconds").removesuffix("+00:00")
                connection.execute(
                    "insert into outages (id, deployment, began_at, replica) values (?, ?, ?, 'r')",
                    (str(uuid4()), f"alpha/{name}", began),
                )
            connection.commit()
        _, body = await read(running, "/api/history?window=7d")
    found = {each["deployment"]: (each["to"], each["may_last"]) for each in body["outages"]}
    assert found == {"alpha/new": (None, True), "alpha/old": (None, False)}


@asynccontextmanager
async def at_page(serve: Serve) -> AsyncIterator[tuple[RunningGateway, Desk]]:
    async with serve(config=in_database()) as running:
        yield running, Desk(running)


async def test_keys_are_the_same_at_both_doors(serve: Serve) -> None:
    async with at_page(serve) as (running, desk):

        async def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            sent = bearer(ROOT) | JSON
            data = None if body is None else msgspec.json.encode(body)
            async with running.http.request(method, f"{running.url}/api/keys{path}", headers=sent, data=data) as answer:
                return answer.status, msgspec.json.decode(await answer.read())

        status, made = await ask("POST", "", {"name": "app", "rpm": 60})
        assert status == 201
        assert await desk.status_with(made["key"]) == (200, None)
        assert (await ask("GET", "/app"))[1] == (await desk.ask("GET", "/app")).body
        assert (await ask("GET", "?all=1"))[1] == (await desk.ask("GET", "?all=1")).body
        assert made["key"] not in repr(await ask("GET", ""))
        assert (await ask("PATCH", "/app", {"rpm": 5}))[1]["rpm"] == 5
        assert (await ask("PATCH", "/app", {"rmp": 5}))[0] == 400
        _, second = await ask("POST", "/app/rotate", {"grace_s": 600})
        assert await desk.status_with(second["key"]) == (200, None)
        _, ended = await ask("DELETE", f"/app?key={made['key'][-4:]}")
        assert [each["hint"] for each in ended["revoked"]] == [made["key"][-4:]]
        assert (await ask("DELETE", "/app?kye=x"))[0] == 400
        assert await desk.status_with(made["key"]) == (401, "invalid_api_key")
        assert (await ask("DELETE", "/app"))[0] == 200
        assert await desk.status_with(second["key"]) == (401, "invalid_api_key")
        assert (await ask("GET", "/app"))[0] == 404


async def test_reports_do_not_wait_for_shipping_nor_shipping_for_reports(serve: Serve) -> None:
    async with serve() as running, running.gateway.ledger._backlog._shipping:
        await called(running)
        answers = await asyncio.gather(*(read(running, f"/api/{name}") for name in REPORTS * 5))
    assert {status for status, _ in answers} == {200}


async def test_a_long_answer_is_compressed_for_those_who_take_that(serve: Serve) -> None:
    async with serve(**dict.fromkeys(("alpha", "beta", "gamma", "delta"))) as running:
        await called(running)
        await running.gateway.ledger.flush()
        sizes = {}
        for coding in ("gzip", "identity"):
            headers = {"accept-encoding": coding}
            async with running.http.get(f"{running.url}/api/history", headers=headers, auto_decompress=False) as got:
                assert got.headers.get("content-encoding", "identity") == coding
                body = await got.read()
                sizes[coding] = len(body)
                etag = got.headers["etag"]
                text = gzip.decompress(body) if coding == "gzip" else body
                assert {each["deployment"] for each in msgspec.json.decode(text)["series"]} >= {"alpha/m"}
            async with running.get("/api/history", headers={**headers, "if-none-match": etag}) as again:
                assert again.status in {304, 200}  # the next five minutes may have begun
        assert sizes["gzip"] < sizes["identity"] / 5


async def test_keys_of_the_file_are_listed_where_none_can_be_changed(serve: Serve) -> None:
    root = {"key_sha256": sha256(ROOT), "role": "admin"}
    app = {"key_sha256": sha256("hs-app"), "rpm": 7}
    async with serve(config={"clients": {"root": root, "app": app}}) as running:
        status, body = await read(running, "/api/keys", ROOT)
        async with running.http.post(f"{running.url}/api/keys", headers=bearer(ROOT), json={"name": "x"}) as refused:
            assert refused.status == 409
    assert status == 200
    assert {(each["name"], each["source"], each.get("rpm")) for each in body["data"]} == {
        ("root", "file", None), ("app", "file", 7),
    }  # fmt: skip
    assert sha256("hs-app") not in repr(body)


async def test_without_clients_no_keys_are_listed(serve: Serve) -> None:
    async with serve() as running:
        assert await read(running, "/api/keys") == (200, {"object": "list", "data": []})


async def test_who_waits_too_long_for_another_replay_is_told_to_ask_again(serve: Serve) -> None:
    begun: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def silent_database(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.put_nowait(writer)

    database = await asyncio.start_server(silent_database, "127.0.0.1", 0)
    async with database, serve() as running:
        port = database.sockets[0].getsockname()[1]
        url = f"postgresql://reader@127.0.0.1:{port}/ledger"
        running.gateway._reports._replays = ReplayRunner(url, clock=time.monotonic, turn_s=0.01)
        first = asyncio.create_task(read(running, "/api/replay?model=first"))
        holding = await begun.get()  # its child reads now, and goes on until the database answers or hangs up
        paths = [f"/api/replay?model={number}" for number in range(7)]
        refused = await asyncio.gather(*(running.get(path) for path in paths))
        for answer in refused:
            error = msgspec.json.decode(await answer.read())["error"]
            assert (answer.status, error["code"], answer.headers["retry-after"]) == (503, "report_too_slow", "2")
        assert not first.done()
        assert begun.empty()  # no child was started for those who were refused

        holding.close()
        status, body = await first
        assert (status, body["error"]["code"]) == (503, "database_unreachable")
        following = asyncio.create_task(read(running, "/api/replay?model=0"))
        (await begun.get()).close()  # the place was given back, and a refusal is not kept
        assert (await following)[1]["error"]["code"] == "database_unreachable"


def test_a_request_waits_eight_seconds_for_another_replay() -> None:
    assert inspect.signature(ReplayRunner).parameters["turn_s"].default == 8


@pytest.mark.parametrize("path", ["/metrics", "/api/history"])
async def test_a_long_answer_s_head_has_its_length_and_nothing_follows_it(serve: Serve, path: str) -> None:
    async with serve() as running, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as http:
        for _ in range(2):  # what followed would be read as the next answer
            async with http.head(f"{running.url}{path}", headers={"accept-encoding": "identity"}) as head:
                assert (head.status, await head.read()) == (200, b"")
                assert int(head.headers["content-length"]) > 200
            async with http.get(f"{running.url}{path}", headers={"accept-encoding": "identity"}) as whole:
                assert len(await whole.read()) == int(whole.headers["content-length"])
