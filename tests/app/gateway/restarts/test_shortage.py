"""A gateway that is short of descriptors or disk: nobody else is blamed, and it is well again when it has some."""

import asyncio
import resource
import signal
import sqlite3
import sys
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.steering import STRIKES
from providers.simulator import ScriptedProvider, answer
from tests.app.gateway.process import COMMAND, started
from tests.app.gateway.running_gateway import MODEL, chat_body, configuration, single
from tests.patience import until

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere nobody changes the limits of another process"
)
IN_ORDER = {"provider": {"order": ["alpha", "beta"]}}


def descriptors(pid: int) -> set[int]:
    return {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}


def peak_kib(pid: int) -> int:
    """Return the most memory that a process has used."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


_QUIET_LOOKS = 150


async def settled(pid: int) -> None:
    """Wait until a process has opened and closed what a start does, as the ledger's file to read what it remembers."""
    seen: list[set[int]] = []

    def is_quiet() -> bool:
        seen.append(descriptors(pid))
        return len(seen) > _QUIET_LOOKS and all(each == seen[-1] for each in seen[-_QUIET_LOOKS:])

    await until(is_quiet)


def out_of_descriptors(pid: int) -> tuple[int, int]:
    """Leave a process not one descriptor more than it has; return the limits it had."""
    used = descriptors(pid)
    lowest = next(number for number in range(len(used) + 1) if number not in used)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
    return before


async def test_a_gateway_without_descriptors_blames_no_provider(folder: Path) -> None:
    async with ScriptedProvider(answer("Hello")) as provider:
        config = configuration(folder, {"alpha": provider.base_url}, **single())
        async with started(config, folder) as gateway, aiohttp.ClientSession() as http:
            async with http.get(f"{gateway.url}/health/live") as response:  # its connection is kept
                await response.read()
            await settled(gateway.pid)
            before = out_of_descriptors(gateway.pid)
            statuses, retries, bodies = [], [], []
            for _ in range(2 * STRIKES):
                async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
                    bodies.append(await response.json())
                    statuses.append(response.status)
                    retries.append(response.headers.get("retry-after"))
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, before)
            assert provider.counts.requests == 0
            assert statuses == [503] * 2 * STRIKES
            assert set(retries) == {"1"}
            assert bodies[0]["error"]["type"] == "service_unavailable"
            assert bodies[0]["error"]["code"] == "local_resources"
            assert "Too many open files" in bodies[0]["error"]["message"]
            async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
                assert response.status == 200
            async with http.get(f"{gateway.url}/leaderboard") as response:
                [row] = (await response.json())["models"][0]["deployments"]
            assert (row["state"], row["n"], row["error_rate"]) == ("ok", 1, 0.0)
            told = gateway.events("gateway.out_of_resources")
            assert len(told) == 1
            assert told[0]["level"] == "error"
            assert gateway.events("steering.opened") == []


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", chat_body(**IN_ORDER)), ("/v1/embeddings", {"model": MODEL, "input": "?", **IN_ORDER})],
)
@pytest.mark.usefixtures("views")
async def test_who_has_a_connection_already_answers(folder: Path, path: str, body: Any) -> None:
    async with ScriptedProvider(answer("Hello")) as alpha, ScriptedProvider(answer("Hello")) as beta:
        config = configuration(folder, {"alpha": alpha.base_url, "beta": beta.base_url}, **single())
        config["models"]["warm"] = {"deployments": ["beta/m"]}
        async with started(config, folder) as gateway, aiohttp.ClientSession() as http:
            async with http.post(f"{gateway.url}{path}", json={**body, "model": "warm"}) as response:
                assert response.status == 200
            await settled(gateway.pid)
            before = out_of_descriptors(gateway.pid)
            providers = []
            for _ in range(2 * STRIKES):
                async with http.post(f"{gateway.url}{path}", json=body) as response:
                    await response.read()
                    providers.append(response.headers["x-holeshot-provider"])
            resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, before)
            assert providers == ["beta"] * 2 * STRIKES
            async with http.post(f"{gateway.url}{path}", json=body) as response:
                assert response.headers["x-holeshot-provider"] == "alpha"
            gateway.send(signal.SIGINT)
            await gateway.ended()
    with closing(sqlite3.connect(folder / "holeshot.db")) as ledger:
        kinds = "select distinct outcome, error_kind from attempts where error_kind is not null"  # some may be spooled
        assert ledger.execute(kinds).fetchall() == [("interrupted", "local_resources")]
        errors = "select count(*) from samples where deployment = 'alpha/m' and is_error"
        assert ledger.execute(errors).fetchone() == (0,)


async def test_without_descriptors_new_connections_wait_and_are_answered_when_there_are_some(folder: Path) -> None:
    async with ScriptedProvider(answer("Hello")) as provider:
        config = configuration(folder, {"alpha": provider.base_url}, **single())
        async with started(config, folder) as gateway:
            await settled(gateway.pid)
            before = out_of_descriptors(gateway.pid)
            async with aiohttp.ClientSession() as http:
                waits = asyncio.create_task(http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()))
                told = await gateway.event("connections.waiting")
                assert "ulimit -n" in told["hint"]
                assert not waits.done()
                resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, before)
                async with await waits as response:
                    assert response.status == 200


async def test_with_few_descriptors_nobody_is_reset(folder: Path) -> None:
    async with ScriptedProvider(answer("Hello")) as provider:
        config = configuration(folder, {"alpha": provider.base_url}, **single())
        command = ("bash", "-c", 'ulimit -n 64; exec "$0" "$@"', *COMMAND)
        async with started(config, folder, command=command) as gateway:

            async def one() -> int:
                async with (
                    aiohttp.ClientSession() as http,
                    http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response,
                ):
                    await response.read()
                    return response.status

            statuses = await asyncio.gather(*(one() for _ in range(80)))
            assert set(statuses) <= {200, 503}
            assert statuses.count(200) > 0


async def test_many_connections_with_endless_trailers_take_no_memory_and_no_time_of_others(folder: Path) -> None:
    async with ScriptedProvider(answer("Hello")) as provider:
        config = configuration(folder, {"alpha": provider.base_url}, **single())
        key = sha256(b"hs-mine").hexdigest()
        config.update(clients={"me": {"key_sha256": key}}, connections={"max_per_address": 1_000})
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
        attack = head + b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 43_000
        async with started(config, folder) as gateway, aiohttp.ClientSession() as http:
            host, _, port = gateway.url.removeprefix("http://").rpartition(":")

            async def one() -> None:
                with suppress(ConnectionError):
                    reader, writer = await asyncio.open_connection(host, int(port))
                    writer.write(attack)
                    await reader.read()
                    writer.close()

            attacks = asyncio.gather(*(one() for _ in range(400)))
            headers = {"authorization": "Bearer hs-mine"}
            while not attacks.done():
                async with http.post(
                    f"{gateway.url}/v1/chat/completions", json=chat_body(), headers=headers
                ) as answered:
                    assert answered.status == 200
            await attacks
            assert peak_kib(gateway.pid) < 300 * 1024


async def test_a_gateway_whose_disk_is_full_answers_says_so_and_has_all_rows_when_there_is_room(folder: Path) -> None:
    async with ScriptedProvider(answer("Hello")) as provider:
        config = configuration(folder, {"alpha": provider.base_url}, **single())
        answered = []
        async with started(config, folder) as gateway, aiohttp.ClientSession() as http:
            before = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)
            for is_full in (False, True, False):
                limit = 0 if is_full else before[0]
                resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (limit, before[1]))
                for _ in range(5):
                    async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
                        assert response.status == 200
                        answered.append(response.headers["x-holeshot-call-id"])
                if is_full:
                    await gateway.event("ledger.database_unreachable")
                    async with http.get(f"{gateway.url}/health/ready") as response:
                        assert response.status == 200
                        assert (await response.json())["spool"] == {"problem": "unwritable", "lost": 0}
                    assert len(gateway.events("ledger.spool_unwritable")) == 1
            await gateway.event("ledger.database_recovered")
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
            assert gateway.events("ledger.closed_with_pending_rows") == []
    with closing(sqlite3.connect(folder / "holeshot.db")) as ledger:
        assert {row[0] for row in ledger.execute("select id from calls")} == set(answered)


async def test_a_gateway_that_stops_while_its_disk_is_full_says_how_many_rows_are_lost(folder: Path) -> None:
    async with ScriptedProvider(answer("Hello")) as provider:
        config = configuration(folder, {"alpha": provider.base_url}, **single())
        async with started(config, folder) as gateway, aiohttp.ClientSession() as http:
            hard = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)[1]
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (0, hard))
            for _ in range(3):
                async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body()) as response:
                    assert response.status == 200
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
        [left] = gateway.events("ledger.closed_with_pending_rows")
        assert (left["pending"], left["lost"]) == (0, 3)
