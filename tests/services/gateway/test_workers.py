"""Two workers of one gateway, as real processes on a real Postgres and a real Redis."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest

from providers.simulator import Delta, Gate, Hang, RoleOnly, ScriptedProvider, Step, answer
from tests.app.gateway import lacking
from tests.app.gateway.log_pipe import CALLS as UNREAD_CALLS
from tests.app.gateway.log_pipe import answered, unread
from tests.app.gateway.process import COMMAND, GatewayProcess, launched, started
from tests.app.gateway.running_gateway import MODEL, chat_body, configuration, write
from tests.patience import PATIENCE_S, eventually

CALLS = 24


async def chat(gateway: GatewayProcess) -> str:
    """Make one call on a connection of its own, so that either worker may get it; return the call's id."""
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{gateway.url}/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
        return response.headers["x-holeshot-call-id"]


async def leaderboard(gateway: GatewayProcess) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{gateway.url}/leaderboard?model={MODEL}") as response:
        [model] = (await response.json())["models"]
    return {row["deployment"]: row for row in model["deployments"]}


async def ids(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [str(row["id"]) for row in await connection.fetch("select id from calls")]
    finally:
        await connection.close()


async def closed(port: int) -> None:
    """Return once nobody listens on ``port``: each worker closes it a moment after its signal."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionResetError:
            continue  # it was about to be accepted as the socket closed
        except ConnectionRefusedError:
            return
        writer.close()


async def test_a_provider_that_no_worker_could_open_is_told_before_one_is_forked(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2}
    config = configuration(tmp_path, {"alpha": "http://127.0.0.1:9/v1"}, **stores)
    process = await launched(config, tmp_path, {"http_proxy": "socks5://127.0.0.1:9", "no_proxy": ""})
    async with asyncio.timeout(PATIENCE_S):
        _, stderr = await process.communicate()
    assert process.returncode == 2
    assert stderr.count(b"HTTP_PROXY must be http://host:port") == 1
    assert b"worker." not in stderr


async def test_two_workers_share_port_ledger_and_leaderboard(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2}
    async with ScriptedProvider() as fast, ScriptedProvider([Hang()]) as slow:
        config = configuration(tmp_path, {"fast": fast.base_url, "slow": slow.base_url}, **stores)
        async with started(config, tmp_path, command=COMMAND) as gateway:  # with all that it imports: others are forked
            workers = {(await gateway.event("gateway.started", 2))["pid"], gateway.events("gateway.started")[0]["pid"]}
            assert len(workers) == 2
            made = await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))

            async def all_are_known() -> bool:  # each worker tells and reads once a second
                return bool((await leaderboard(gateway))["fast/m"]["n_first_token"] >= CALLS)

            await eventually(all_are_known)
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
    assert sorted(await ids(postgres_url)) == sorted(made)
    assert gateway.events("garbled") == []
    assert {entry["status"] for entry in gateway.events("call.finished")} == {200}


async def test_workers_share_max_in_flight(tmp_path: Path, postgres_url: str, redis_url: str) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2, "queue_timeout_s": 600}
    go = asyncio.Event()
    async with ScriptedProvider([Gate(go), *answer("Hello")]) as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url}, **stores)
        deployments = [{"deployment": "alpha/m", "max_in_flight": 5}]
        config["models"][MODEL] = {"deployments": deployments, "race": {"mode": "single"}}
        async with started(config, tmp_path) as gateway:
            await gateway.event("gateway.started", 2)
            calls = [asyncio.create_task(chat(gateway)) for _ in range(CALLS)]
            while provider.counts.in_flight < 4:  # two of each: a busy worker may have left all of them to the other
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await provider.reach(in_flight=4)
                calls.append(asyncio.create_task(chat(gateway)))
            go.set()
            await asyncio.gather(*calls)
    assert provider.counts.most_in_flight == 4
    assert provider.counts.completions == len(calls)


async def test_a_worker_that_dies_is_replaced_and_its_rows_are_not_lost(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2}
    async with ScriptedProvider() as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url}, **stores)
        async with started(config, tmp_path) as gateway:
            victim = (await gateway.event("gateway.started", 2))["pid"]
            made = await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
            os.kill(victim, signal.SIGKILL)
            assert (await gateway.event("worker.died"))["pid"] == victim
            await gateway.event("gateway.started", 3)
            made.append(await chat(gateway))
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
        async with started(config | {"workers": 1}, tmp_path) as last:
            last.send(signal.SIGTERM)
            await last.ended()
    assert sorted(await ids(postgres_url)) == sorted(made)


async def test_workers_and_their_parent_end_though_nobody_reads_their_log(
    tmp_path: Path, postgres_url: str, redis_url: str
) -> None:
    stores = {"database_url": postgres_url, "redis_url": redis_url, "workers": 2}
    async with unread(tmp_path, **stores) as (gateway, http):
        assert await answered(http, gateway) == UNREAD_CALLS
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.process.wait() == 0


SLOW: list[Step] = [RoleOnly(), Delta("a")]


@asynccontextmanager
async def two_workers(
    folder: Path, stores: dict[str, Any], provider: ScriptedProvider, **settings: Any
) -> AsyncIterator[tuple[GatewayProcess, set[int]]]:
    """Two workers, and their process ids."""
    config = configuration(folder, {"alpha": provider.base_url}, **stores, workers=2, **settings)
    async with started(config, folder) as gateway:
        await gateway.event("gateway.started", 2)
        yield gateway, {entry["pid"] for entry in gateway.events("gateway.started")}


@pytest.fixture
def stores(postgres_url: str, redis_url: str) -> dict[str, Any]:
    return {"database_url": postgres_url, "redis_url": redis_url}


def port_of(gateway: GatewayProcess) -> int:
    return int(gateway.url.rpartition(":")[2])


async def test_workers_let_calls_end_and_then_end_when_their_parent_is_killed(
    tmp_path: Path, stores: dict[str, Any]
) -> None:
    go = asyncio.Event()
    async with (
        ScriptedProvider([*SLOW, Gate(go), *answer("b")[1:]]) as provider,
        two_workers(tmp_path, stores, provider, lame_duck_s=600) as (gateway, _),
        aiohttp.ClientSession(gateway.url) as http,
        http.post("/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        await response.content.readuntil(b'"a"')
        gateway.send(signal.SIGKILL)
        await gateway.event("gateway.stopping", 2)
        await closed(port_of(gateway))  # it is free for the next one while the stream goes on
        go.set()
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert await gateway.ended() == -signal.SIGKILL  # and nobody holds its standard error any more
        assert len(gateway.events("gateway.stopped")) == 2
    assert len(await ids(stores["database_url"])) == 1


async def test_nobody_can_connect_to_workers_that_drain(tmp_path: Path, stores: dict[str, Any]) -> None:
    go = asyncio.Event()
    async with (
        ScriptedProvider([*SLOW, Gate(go), *answer("b")[1:]]) as provider,
        two_workers(tmp_path, stores, provider) as (gateway, _),
        aiohttp.ClientSession(gateway.url) as http,
        http.post("/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        await response.content.readuntil(b'"a"')
        gateway.send(signal.SIGTERM)
        await gateway.event("gateway.stopped")  # the idle one
        await closed(port_of(gateway))
        go.set()
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert await gateway.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_signal_that_parent_and_workers_get_is_one_signal(
    tmp_path: Path, stores: dict[str, Any], number: signal.Signals
) -> None:
    """A terminal sends Ctrl-C to all of them, a supervisor such as systemd SIGTERM."""
    go = asyncio.Event()
    async with (
        ScriptedProvider([*SLOW, Gate(go), *answer("b")[1:]]) as provider,
        two_workers(tmp_path, stores, provider) as (gateway, workers),
        aiohttp.ClientSession(gateway.url) as http,
        http.post("/v1/chat/completions", json=chat_body(stream=True)) as response,
    ):
        await response.content.readuntil(b'"a"')
        for pid in workers:
            os.kill(pid, number)
        await gateway.event("gateway.stopping", 2)
        gateway.send(number)
        await gateway.event("gateway.stopped")  # the idle one
        go.set()
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert await gateway.ended() == 0


async def test_all_workers_are_lame_ducks_until_a_second_signal_kills_them(
    tmp_path: Path, stores: dict[str, Any]
) -> None:
    async with (
        ScriptedProvider() as provider,
        two_workers(tmp_path, stores, provider, lame_duck_s=600) as (gateway, _),
    ):
        gateway.send(signal.SIGTERM)
        await gateway.event("gateway.stopping", 2)
        for _ in range(CALLS):  # on connections of their own, so that either answers some
            async with aiohttp.ClientSession(gateway.url) as http, http.get("/health/ready") as ready:
                assert ready.status == 503
            await chat(gateway)
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 128 + signal.SIGTERM


async def test_a_worker_that_is_started_later_demands_the_keys_that_a_reload_brought(
    tmp_path: Path, stores: dict[str, Any]
) -> None:
    async with (
        ScriptedProvider() as provider,
        two_workers(tmp_path, stores, provider) as (gateway, workers),
    ):
        config = configuration(tmp_path, {"alpha": provider.base_url}, **stores, workers=2)
        write(config | {"clients": {"me": {"key_sha256": "0" * 64}}}, tmp_path)
        gateway.send(signal.SIGHUP)
        await gateway.event("configuration.reloaded", 2)
        write(config, tmp_path)  # cut short before its last section
        gateway.send(signal.SIGHUP)
        await gateway.event("configuration.invalid", 2)
        for number, pid in enumerate(workers, start=1):
            os.kill(pid, signal.SIGKILL)
            await gateway.event("gateway.started", 2 + number)
        for _ in range(CALLS):
            async with (
                aiohttp.ClientSession(gateway.url) as http,
                http.post("/v1/chat/completions", json=chat_body()) as response,
            ):
                assert response.status == 401


async def test_a_worker_that_the_system_refuses_to_fork_is_tried_again(tmp_path: Path, stores: dict[str, Any]) -> None:
    async with ScriptedProvider() as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url}, **stores, workers=2)
        async with started(config, tmp_path, command=lacking.command("later_forks")) as gateway:
            await gateway.event("worker.not_forked", 1)  # the second
            first = await gateway.event("gateway.started", 2)
            os.kill(first["pid"], signal.SIGKILL)
            await gateway.event("worker.not_forked", 2)  # the fourth, in place of the one that died
            await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
            await gateway.event("gateway.started", 3)
            await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
            gateway.send(signal.SIGTERM)
            assert await gateway.ended() == 0
    assert b"Traceback" not in gateway.stderr


async def test_a_first_worker_that_is_refused_ends_the_start_in_one_line(
    tmp_path: Path, stores: dict[str, Any]
) -> None:
    config = configuration(tmp_path, {"alpha": "http://127.0.0.1:9/v1"}, **stores, workers=2)
    process = await launched(config, tmp_path, command=lacking.command("first_fork"))
    async with asyncio.timeout(PATIENCE_S):
        _, stderr = await process.communicate()
    assert process.returncode == 1
    assert b"no process can be started: raise how many" in stderr
    assert b"Traceback" not in stderr


@pytest.mark.parametrize("what", ["uvloop", "prctl", "pthread_sigmask", "reuseport", "reuseport_refused", "macos"])
async def test_workers_serve_on_a_system_without(tmp_path: Path, stores: dict[str, Any], what: str) -> None:
    async with ScriptedProvider() as provider:
        config = configuration(tmp_path, {"alpha": provider.base_url}, **stores, workers=2)
        async with started(config, tmp_path, command=lacking.command(what)) as gateway:
            first = await gateway.event("gateway.started", 2)
            await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
            os.kill(first["pid"], signal.SIGKILL)
            await gateway.event("gateway.started", 3)  # the socket of the one that died is made, or shared, again
            await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
            os.kill(gateway.pid, signal.SIGKILL)  # its workers learn of it
            assert await gateway.ended() == -signal.SIGKILL
    assert gateway.events("gateway.stopped")


async def test_a_worker_that_stands_still_takes_no_new_connections_and_is_told_and_replaced(
    tmp_path: Path, stores: dict[str, Any]
) -> None:
    async with ScriptedProvider() as provider, two_workers(tmp_path, stores, provider) as (gateway, workers):
        victim = max(workers)
        os.kill(victim, signal.SIGSTOP)
        calls = [asyncio.create_task(chat(gateway)) for _ in range(CALLS)]  # about half wait at the stopped one
        assert (await gateway.event("worker.stopped"))["stopped"] == victim
        await asyncio.gather(*calls)
        assert gateway.events("worker.replaced") == []
        async with aiohttp.ClientSession(gateway.url) as http:
            async with http.get("/health/ready") as ready:
                body = await ready.json()
                assert (ready.status, body["status"], body["workers"]) == (200, "degraded", {"stopped": [victim]})
            async with http.get("/metrics") as metrics:
                assert "\nholeshot_workers_stopped 1.0\n" in await metrics.text()
        alert = await gateway.event("alert.opened")
        assert (alert["kind"], alert["severity"]) == ("worker_stopped", "page")
        await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
        assert (await gateway.event("worker.replaced"))["pid"] == victim
        assert (await gateway.event("worker.died"))["pid"] == victim
        await gateway.event("gateway.started", 3)
        await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
        await healthy(gateway)


async def test_a_worker_that_goes_on_before_it_is_replaced_serves_again(tmp_path: Path, stores: dict[str, Any]) -> None:
    async with ScriptedProvider() as provider, two_workers(tmp_path, stores, provider) as (gateway, workers):
        victim = max(workers)
        os.kill(victim, signal.SIGSTOP)
        await gateway.event("worker.stopped")
        os.kill(victim, signal.SIGCONT)
        await healthy(gateway)
        await asyncio.gather(*(chat(gateway) for _ in range(CALLS)))
        assert gateway.events("worker.died") == []


async def healthy(gateway: GatewayProcess) -> None:
    """Wait until no worker stands still: on a busy machine, one may for a moment."""

    async def is_ok() -> bool:
        async with aiohttp.ClientSession(gateway.url) as http, http.get("/health/ready") as ready:
            return bool((await ready.json())["status"] == "ok")

    await eventually(is_ok)
