"""A new configuration takes new calls; a call under way keeps the one it began with."""

import asyncio
import copy
import hashlib

import pytest

from gateway.server import ConfigurationSource
from gateway.server.reload import LOST_CLIENTS_S, Reloader
from gateway.settings import References
from providers.simulator import Delta, Gate, RoleOnly, ScriptedProvider, answer
from tests.app.gateway.running_gateway import MODEL, Serve, read, single


async def test_a_call_under_way_keeps_its_fleet_and_new_calls_see_the_new_one(serve: Serve) -> None:
    go = asyncio.Event()
    old_script = [RoleOnly(), Delta("old"), Gate(go), *answer(" end")[1:]]
    async with serve(old=old_script) as running, ScriptedProvider(answer("new")) as replacement:
        async with running.chat(stream=True) as under_way:
            await under_way.content.readuntil(b"old")
            config = copy.deepcopy(running.config)
            config["providers"] = {"fresh": {"base_url": replacement.base_url}}
            config["models"] = {MODEL: {"deployments": ["fresh/m"]}, "second": {"deployments": ["fresh/m"]}}
            running.gateway.reload(read(config, running.folder))

            async with running.chat() as response:
                assert (await response.json())["choices"][0]["message"]["content"] == "new"
            async with running.get("/v1/models") as response:
                assert [model["id"] for model in (await response.json())["data"]] == [MODEL, "second"]
            assert running["old"].counts.disconnects == 0
            go.set()
            rest = await under_way.read()
        assert b" end" in rest
        assert rest.endswith(b"data: [DONE]\n\n")
        assert (running["old"].counts.completions, replacement.counts.completions) == (1, 1)


async def test_a_failover_of_a_call_under_way_goes_to_its_own_fleet(serve: Serve) -> None:
    go = asyncio.Event()
    async with serve(first=[Gate(go)], second=answer("of the old fleet"), config=single()) as running:
        running.prefer("first", "second")
        call = asyncio.create_task(fetch(running.chat()))
        await running["first"].requested.wait()
        config = copy.deepcopy(running.config)
        del config["providers"]["second"]
        config["models"][MODEL]["deployments"] = ["first/m"]
        running.gateway.reload(read(config, running.folder))
        go.set()
        assert b"of the old fleet" in await call


async def test_a_removed_providers_connections_close_after_their_last_call(serve: Serve) -> None:
    async with serve(kept=None, removed=None) as running:
        async with running.chat(race="race") as response:
            await response.read()
        old = running.gateway.context.fleet.upstreams
        config = copy.deepcopy(running.config)
        del config["providers"]["removed"]
        config["models"][MODEL]["deployments"] = ["kept/m"]
        running.gateway.reload(read(config, running.folder))
        assert running.gateway.fleets.retiring is not None
        await running.gateway.fleets.retiring
        new = running.gateway.context.fleet.upstreams
        assert new == {"kept": old["kept"]}  # with its warm connections
        async with running.chat() as response:
            assert response.status == 200
        [attempt] = await running.rows("select connect_ms from attempts order by started_at desc limit 1")
        assert attempt["connect_ms"] is None


async def test_clients_and_their_rights_change_with_the_configuration(serve: Serve) -> None:
    async with serve() as running:
        config = running.config | {"clients": {"me": {"key_sha256": "0" * 64}}}
        running.gateway.reload(read(config, running.folder))
        async with running.chat() as response:
            assert response.status == 401


async def test_a_deployment_that_was_out_gets_another_chance(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running.gateway.steering._learning.health_of("alpha/m").refuse(0.0)
        running.gateway.reload(read(running.config, running.folder))
        async with running.get("/leaderboard") as response:
            assert (await response.json())["models"][0]["deployments"][0]["state"] == "ok"


async def test_how_long_ids_of_responses_are_known_changes_with_the_configuration(serve: Serve) -> None:
    async with serve() as running:
        running.gateway.reload(read({**running.config, "response_ids_ttl_s": 1e-12}, running.folder))
        responses = running.gateway.context.responses
        await responses.keep_all(None, ["resp_1"], "alpha/m")
        assert await responses.find(None, "resp_1") is None


async def test_what_waits_for_a_restart_is_no_reload_each_time_that_the_files_are_read(serve: Serve) -> None:
    async with serve() as running:
        new = read({**running.config, "replica": "another"}, running.folder)
        reloader = Reloader(running.gateway, ConfigurationSource(None, lambda: new, References()))
        await reloader._reload()
        fleet = running.gateway.context.fleet
        await reloader._reload()
        assert running.gateway.context.fleet is fleet
        await reloader.close()


async def test_a_file_cut_short_cuts_no_call_until_it_was_read_again(serve: Serve) -> None:
    go = asyncio.Event()
    keys = {f"c{number}": {"key_sha256": hashlib.sha256(f"k{number}".encode()).hexdigest()} for number in range(4)}
    script = [RoleOnly(), Delta("begun"), Gate(go), *answer(" end")[1:]]
    async with serve(alpha=script, config={"clients": keys}) as running:
        cut = read({**running.config, "clients": {name: keys[name] for name in ("c0", "c1")}}, running.folder)
        now_s = [0.0]
        source = ConfigurationSource(None, lambda: cut, References())
        reloader = Reloader(running.gateway, source, clock=lambda: now_s[0])
        headers = {"authorization": "Bearer k3"}
        async with running.chat(stream=True, headers=headers) as under_way:
            await under_way.content.readuntil(b"begun")
            await reloader._reload()
            go.set()
            assert (await under_way.read()).endswith(b"data: [DONE]\n\n")
        async with running.get("/v1/models", headers=headers) as response:
            assert response.status == 200
        now_s[0] = LOST_CLIENTS_S
        await reloader._reload()
        async with running.get("/v1/models", headers=headers) as response:
            assert response.status == 401
        await reloader.close()


async def test_a_call_of_a_model_that_is_removed_ends(serve: Serve) -> None:
    go = asyncio.Event()
    script = [RoleOnly(), Delta("begun"), Gate(go), *answer(" end")[1:]]
    async with serve(alpha=script) as running, running.chat(stream=True) as under_way:
        await under_way.content.readuntil(b"begun")
        config = copy.deepcopy(running.config)
        config["models"] = {"other": {"deployments": ["alpha/other"]}}
        running.gateway.reload(read(config, running.folder))
        async with running.chat() as response:
            assert response.status == 404
        go.set()
        assert (await under_way.read()).endswith(b"data: [DONE]\n\n")


async def test_a_setting_written_as_its_profile_has_it_is_a_change(serve: Serve) -> None:
    async with serve(config={"models": {MODEL: {"race": {"profile": "agent"}}}}) as running:
        config = copy.deepcopy(running.config)
        config["models"][MODEL]["race"]["objective"] = "completion"  # written, it holds first tokens of streams
        new = read(config, running.folder)
        reloader = Reloader(running.gateway, ConfigurationSource(None, lambda: new, References()))
        await reloader._reload()
        assert running.gateway.context.fleet.models[MODEL].race.holds(streamed=True)
        await reloader.close()


async def test_nobody_listens_any_more_once_it_is_closed(serve: Serve) -> None:
    async with serve() as running:
        url = running.url
    host, _, port = url.removeprefix("http://").partition(":")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, int(port))


async def fetch(request: object) -> bytes:
    async with request as response:  # type: ignore[attr-defined] # aiohttp's request context manager
        body: bytes = await response.read()
        return body
