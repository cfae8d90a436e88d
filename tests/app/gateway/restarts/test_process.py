"""The gateway as a real process: signals, reloading, and its end."""

import asyncio
import copy
import hashlib
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from providers.simulator import Delta, ErrorEvent, Gate, Hang, RoleOnly, ScriptedProvider, Step, answer
from tests.app.gateway.process import GatewayProcess, launched, ran, started
from tests.app.gateway.running_gateway import MODEL, chat_body, configuration, write
from tests.patience import PATIENCE_S, until


def ask(http: aiohttp.ClientSession, gateway: GatewayProcess, **fields: Any) -> Any:
    return http.post(f"{gateway.url}/v1/chat/completions", json=chat_body(**fields))


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "holeshot.db")) as connection:
        return connection.execute(query).fetchall()


@asynccontextmanager
async def gateway_before(
    folder: Path, script: list[Step] | None = None, **settings: Any
) -> AsyncIterator[tuple[GatewayProcess, ScriptedProvider, aiohttp.ClientSession, dict[str, Any]]]:
    async with ScriptedProvider(script) as provider, aiohttp.ClientSession() as http:
        config = configuration(folder, {"alpha": provider.base_url}, **settings)
        async with started(config, folder) as gateway:
            yield gateway, provider, http, config


async def test_it_migrates_serves_and_flushes_when_it_is_told_to_stop(tmp_path: Path) -> None:
    async with gateway_before(tmp_path) as (gateway, _, http, _):
        async with ask(http, gateway) as response:
            assert response.status == 200
            call_id = response.headers["x-holeshot-call-id"]
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0
    assert rows(tmp_path, "select id, status_code from calls") == [(call_id, 200)]
    assert list((tmp_path / "spool").iterdir()) == []
    [line] = gateway.events("call.finished")
    assert (line["id"], line["status"], line["winner"]) == (call_id, 200, "alpha/m")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_stream_under_way_ends_before_the_process_does(folder: Path, number: signal.Signals) -> None:
    go = asyncio.Event()
    script = [RoleOnly(), Delta("a"), Gate(go), *answer("b")[1:]]
    async with gateway_before(folder, script) as (gateway, _, http, _):
        async with ask(http, gateway, stream=True) as response:
            await response.content.readuntil(b'"a"')
            gateway.send(number)
            await gateway.event("gateway.stopping")
            go.set()
            assert (await response.read()).endswith(b"data: [DONE]\n\n")
        assert await gateway.ended() == 0
    assert rows(folder, "select status_code, error_kind from calls") == [(200, None)]


async def test_a_stream_that_does_not_end_is_cut_after_the_grace_time(folder: Path) -> None:
    async with gateway_before(folder, [RoleOnly(), Delta("a"), Hang()], shutdown_grace_s=0.1) as (
        gateway,
        provider,
        http,
        _,
    ):
        async with ask(http, gateway, stream=True) as response:
            await response.content.readuntil(b'"a"')
            gateway.send(signal.SIGTERM)
            rest = await response.read()  # its end is told: it is no broken connection
            assert b'"error"' in rest
            assert b'"shutting_down"' in rest
            assert b"[DONE]" not in rest
        assert await gateway.ended() == 0
        await provider.reach(disconnects_mid_stream=1)
    assert len(rows(folder, "select * from calls")) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", chat_body()),
        ("/v1/chat/completions", chat_body(stream=True)),
        ("/v1/messages", chat_body(max_tokens=9)),
        ("/v1/embeddings", {"model": MODEL, "input": "a"}),
    ],
    ids=["whole", "stream", "messages", "embeddings"],
)
async def test_a_call_without_a_first_byte_is_told_when_the_grace_time_is_over(
    folder: Path, path: str, body: dict[str, Any]
) -> None:
    async with gateway_before(folder, [Hang()], shutdown_grace_s=0.1) as (gateway, provider, http, _):
        asking = asyncio.create_task(http.post(gateway.url + path, json=body))
        await provider.reach(requests=1)
        gateway.send(signal.SIGTERM)
        async with await asking as response:
            assert (response.status, response.headers["connection"]) == (503, "close")
            assert "the gateway stopped" in await response.text()
        assert await gateway.ended() == 0
    assert rows(folder, "select status_code, error_kind from calls") == [(503, "shutting_down")]
    assert not gateway.events("connection.defect")


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/messages", {"max_tokens": 9}, b"event: error"),
        ("/v1/responses", {"input": "a"}, b"event: error"),
    ],
)
async def test_a_stream_that_is_cut_at_the_end_has_the_error_event_of_its_api(
    folder: Path, path: str, body: dict[str, Any], told: bytes
) -> None:
    script: list[Step] = [RoleOnly(), Delta("a"), Hang()]
    async with gateway_before(folder, script, shutdown_grace_s=0.1) as (gateway, _, http, _):
        asked = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "a"}], **body}
        if "input" in body:
            del asked["messages"]
        async with http.post(gateway.url + path, json=asked) as response:
            await response.content.readuntil(b'"a"')
            gateway.send(signal.SIGTERM)
            assert told in await response.read()
        assert await gateway.ended() == 0


async def test_two_signals_lose_no_row_that_was_answered_and_say_where_it_is(folder: Path) -> None:
    async with gateway_before(folder, lame_duck_s=LONG_S) as (gateway, _, http, config):
        async with ask(http, gateway) as response:
            call_id = response.headers["x-holeshot-call-id"]
            await response.read()
        gateway.send(signal.SIGTERM)
        await gateway.event("gateway.stopping")
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 128 + signal.SIGTERM
        assert "the next start writes them" in gateway.events("gateway.ended_at_once")[0]["hint"]
        async with started(config | {"lame_duck_s": 0}, folder) as again:
            again.send(signal.SIGTERM)
            assert await again.ended() == 0
    assert rows(folder, "select id, status_code from calls") == [(call_id, 200)]


async def test_sighup_reloads_and_an_invalid_file_changes_nothing(folder: Path) -> None:
    async with gateway_before(folder) as (gateway, _, http, config):
        changed = copy.deepcopy(config)
        changed["models"]["second"] = {"deployments": ["alpha/other"]}
        write(changed, folder)
        gateway.send(signal.SIGHUP)
        await gateway.event("configuration.reloaded")
        async with ask(http, gateway, model="second") as response:
            assert response.status == 200

        (folder / "gateway.yaml").write_text("models: {second: {deploymnets: [alpha/x]}}\n")
        gateway.send(signal.SIGHUP)
        problem = await gateway.event("configuration.invalid")
        assert "deployments" in problem["problem"]  # what was meant
        write(changed, folder)
        gateway.send(signal.SIGHUP)
        await gateway.event("configuration.valid_again")
        (folder / "gateway.yaml").write_text("models: {second: {deploymnets: [alpha/x]}}\n")
        gateway.send(signal.SIGHUP)
        await gateway.event("configuration.invalid", 2)
        async with ask(http, gateway, model="second") as response:
            assert response.status == 200

        write(config, folder)
        gateway.send(signal.SIGHUP)
        await gateway.event("configuration.reloaded", 2)
        async with ask(http, gateway, model="second") as response:
            assert response.status == 404


async def test_a_sighup_while_it_starts_does_not_end_it(folder: Path) -> None:
    async with ScriptedProvider() as provider, asyncio.timeout(PATIENCE_S):
        config = configuration(folder, {"alpha": provider.base_url}, log_level="debug")
        gateway = GatewayProcess(await launched(config, folder))
        await gateway.event("gateway.descriptors")
        gateway.send(signal.SIGHUP)
        await gateway.event("gateway.started")
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0


async def test_a_changed_file_is_noticed_without_a_signal(folder: Path) -> None:
    async with gateway_before(folder) as (gateway, _, http, config):
        config["models"]["second"] = {"deployments": ["alpha/other"]}
        write(config, folder)
        await gateway.event("configuration.reloaded")
        async with ask(http, gateway, model="second") as response:
            assert response.status == 200


async def test_what_needs_a_restart_is_said(folder: Path) -> None:
    async with gateway_before(folder) as (gateway, _, _, config):
        write(config | {"replica": "another"}, folder)
        gateway.send(signal.SIGHUP)
        assert (await gateway.event("configuration.needs_restart"))["settings"] == ["replica"]


async def test_no_secret_is_on_standard_error_whatever_the_provider_says(folder: Path) -> None:
    script: list[Step] = [ErrorEvent("no such key upstream-alpha-secret")]
    async with gateway_before(folder, script, log_level="debug") as (gateway, provider, http, _):
        async with ask(http, gateway) as response:
            assert response.status == 502
        await gateway.event("call.finished")
        assert provider.received[0].headers["authorization"] == "Bearer upstream-alpha-secret"
    assert b"upstream-alpha-secret" not in gateway.stderr


async def test_the_losers_are_cut_on_the_loop_it_runs_in_production_too(folder: Path) -> None:
    async with (
        ScriptedProvider() as fast,
        ScriptedProvider([Hang()]) as slow,
        aiohttp.ClientSession() as http,
    ):
        unaudited = {MODEL: {"race": {"audit_share": 0}}}  # an audited loser runs on
        config = configuration(folder, {"fast": fast.base_url, "slow": slow.base_url}, models=unaudited)
        async with started(config, folder) as gateway:
            for number in range(5):
                go = asyncio.Event()
                fast.once([Gate(go), *answer("fast")])
                async with asyncio.TaskGroup() as group:
                    call = group.create_task(fetch(ask(http, gateway, stream=True)))
                    await slow.reach(requests=number + 1)
                    go.set()
                assert b"fast" in call.result()
            await slow.reach(disconnects_before_first_token=5)
            assert (slow.counts.requests, slow.counts.in_flight) == (5, 0)
    assert rows(folder, "select outcome, count(*) from attempts group by 1 order by 1") == [("lost", 5), ("won", 5)]


async def fetch(request: Any) -> bytes:
    async with request as response:
        body: bytes = await response.read()
        return body


LONG_S = 600.0  # a test that waits for the end of such a lame duck fails


async def test_after_sigterm_it_says_that_it_is_not_ready_and_answers_on(folder: Path) -> None:
    async with gateway_before(folder, lame_duck_s=LONG_S) as (gateway, _, _, _):
        gateway.send(signal.SIGTERM)
        assert (await gateway.event("gateway.stopping"))["lame_duck_s"] == LONG_S
        async with aiohttp.ClientSession() as http:  # with connections of its own
            async with http.get(f"{gateway.url}/health/ready") as ready:
                assert ready.status == 503
            async with http.get(f"{gateway.url}/health/live") as live:
                assert live.status == 200
            for stream in (False, True):
                async with ask(http, gateway, stream=stream) as response:
                    assert (response.status, response.headers["connection"]) == (200, "close")
                    await response.read()
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 128 + signal.SIGTERM  # the second one ends it at once


async def test_a_lame_duck_ends_by_itself(folder: Path) -> None:
    async with gateway_before(folder, lame_duck_s=0.1) as (gateway, _, _, _):
        gateway.send(signal.SIGTERM)
        assert await gateway.ended() == 0


async def test_a_thread_that_hangs_does_not_delay_the_end(folder: Path) -> None:
    """As a look-up of a name does, or a read from a disk that is away: here the file that it reads again is a pipe."""
    async with gateway_before(folder) as (gateway, _, _, _):
        path = folder / "gateway.yaml"
        path.unlink()
        os.mkfifo(path)
        gateway.send(signal.SIGHUP)
        writer = await asyncio.to_thread(os.open, path, os.O_WRONLY)  # it is opened once the gateway reads
        try:
            gateway.send(signal.SIGINT)
            assert await gateway.ended() == 0
        finally:
            os.close(writer)
    assert gateway.events("gateway.stopped")


async def test_ctrl_c_waits_for_nobody(folder: Path) -> None:
    async with gateway_before(folder, lame_duck_s=LONG_S) as (gateway, _, http, _):
        async with ask(http, gateway) as response:
            await response.read()  # the connection is kept
        gateway.send(signal.SIGINT)
        assert (await gateway.event("gateway.stopping"))["lame_duck_s"] == 0
        assert await gateway.ended() == 0


KEY = "hs-of-the-owner"
OWNER = {"owner": {"key_sha256": hashlib.sha256(KEY.encode()).hexdigest(), "admin": True}}


def emptied(text: str) -> str:
    return text[:0]


def without_clients(text: str) -> str:
    return text[: text.index("clients:")]


def with_no_client(text: str) -> str:
    return without_clients(text) + "clients: {}\n"


def with_an_empty_section(text: str) -> str:
    return without_clients(text) + "clients:\n"


def of_nothing_but_a_port(_: str) -> str:
    return "port: 0\n"


@pytest.mark.parametrize("signalled", [False, True], ids=["noticed", "signalled"])
async def test_no_reload_lets_anybody_in_without_a_key(folder: Path, signalled: bool) -> None:
    async with gateway_before(folder, clients=OWNER) as (gateway, _, http, config):
        path = folder / "gateway.yaml"
        whole = yaml.safe_dump({name: config[name] for name in config if name != "clients"})
        cuts = (emptied, without_clients, with_no_client, with_an_empty_section, of_nothing_but_a_port)
        for cut in cuts:
            told = len(gateway.events("configuration.invalid"))
            path.write_text(cut(whole + yaml.safe_dump({"clients": OWNER})))  # clients last, as in the example
            if signalled:
                gateway.send(signal.SIGHUP)
            refused = await gateway.event("configuration.invalid", told + 1)
            assert refused["level"] == "error", cut
            assert "restart" in refused["problem"], cut
            async with ask(http, gateway) as response:
                assert response.status == 401, cut
            async with http.get(f"{gateway.url}/metrics") as response:
                assert response.status == 401, cut
            headers = {"authorization": f"Bearer {KEY}"}
            async with http.post(f"{gateway.url}/v1/chat/completions", json=chat_body(), headers=headers) as response:
                assert response.status == 200, cut
    assert gateway.events("configuration.reloaded") == []


async def test_a_deleted_file_changes_nothing(folder: Path) -> None:
    async with gateway_before(folder, clients=OWNER) as (gateway, _, http, _):
        (folder / "gateway.yaml").unlink()
        await gateway.event("configuration.invalid")
        async with ask(http, gateway) as response:
            assert response.status == 401


async def test_a_demo_whose_clients_vanish_from_its_file_stays_closed(folder: Path) -> None:
    config = {**configuration(folder, {}), "clients": OWNER}
    del config["providers"], config["models"]
    async with started(config, folder) as gateway, aiohttp.ClientSession() as http:
        (folder / "gateway.yaml").write_text("")
        await gateway.event("configuration.invalid")
        async with http.get(f"{gateway.url}/metrics") as response:
            assert response.status == 401


async def test_a_file_that_nobody_can_read_does_not_end_reloading(folder: Path) -> None:
    async with gateway_before(folder, clients=OWNER) as (gateway, _, _, config):
        for number, content in enumerate((b"\xff\xfe\x00", b"[" * 100_000, b"a: &a [*a, *a]"), start=1):
            (folder / "gateway.yaml").write_bytes(content)
            gateway.send(signal.SIGHUP)
            while len(gateway.events("configuration.invalid") + gateway.events("configuration.unreadable")) < number:
                await gateway.more()
        write(config | {"lame_duck_s": 1}, folder)
        gateway.send(signal.SIGHUP)
        await gateway.event("configuration.reloaded")
        write(config, folder)
        gateway.send(signal.SIGHUP)
        await gateway.event("configuration.reloaded", 2)


async def test_the_demo_ends_with_a_gateway_that_is_killed(folder: Path) -> None:
    config = configuration(folder, {})
    del config["providers"], config["models"]
    async with started(config, folder) as gateway:
        gateway.send(signal.SIGKILL)
        assert await gateway.ended() == -signal.SIGKILL  # nobody holds its standard error any more


async def test_a_process_of_a_test_that_does_not_end_is_killed() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "1000", stderr=asyncio.subprocess.PIPE)
    gateway = GatewayProcess(process)
    with pytest.raises(TimeoutError):
        await gateway.ended(within_s=0.0)
    assert await gateway.ended() == -signal.SIGKILL


async def test_a_command_of_a_test_that_is_given_up_ends_with_what_it_has_started(tmp_path: Path) -> None:
    running = asyncio.ensure_future(ran("sh", "-c", "sleep 1000 & touch begun; wait", cwd=tmp_path, env={**os.environ}))
    await until((tmp_path / "begun").exists)
    running.cancel()
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(asyncio.CancelledError):
            await running


async def test_a_test_that_hangs_fails_and_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    with pytest.raises(pytest.fail.Exception, match="it hangs"):
        signal.raise_signal(signal.SIGALRM)
    assert "in test_a_test_that_hangs_fails_and_says_where" in capsys.readouterr().out
