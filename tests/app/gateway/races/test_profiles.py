"""Profiles at work: chosen by the model, the client or the request, with their race and their clocks."""

import pytest

from gateway.settings import Profile
from providers.simulator import Hang, answer
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.running_gateway import MODEL, Serve


@pytest.mark.parametrize("said", [{"profile": "voice"}, "voice"])
async def test_a_request_asks_for_a_profile_in_its_body_or_in_a_header(serve: Serve, said: object) -> None:
    config = {"models": {MODEL: {"race": {"mode": "single"}}}}
    async with serve(fast=answer("Hello"), slow=[Hang()], config=config) as running:
        running.prefer("fast", "slow")
        async with running.chat(stream=True, race=said) as response:
            await response.read()
        assert response.headers["x-holeshot-mode"] == "race"
        assert response.headers["x-holeshot-launched"] == "2"
        async with running.chat({"x-holeshot-race": "voice"}, stream=True) as response:
            await response.read()
        assert response.headers["x-holeshot-mode"] == "race"


async def test_a_client_has_a_profile_and_its_requests_go_before_it(serve: Serve) -> None:
    async with serve(fast=answer("Hello"), config=client(profile="agent"), key=KEY) as running:
        async with running.chat(keyed(), stream=True) as response:
            await response.read()
        async with running.chat(keyed(), stream=True, race="chat") as response:
            await response.read()
        rows = await running.rows("select objective from calls order by id")
    assert [row["objective"] for row in rows] == ["completion", "reading"]


async def test_a_profile_brings_its_clocks_and_the_models_own_are_weaker_only_than_one_chosen_elsewhere(
    serve: Serve,
) -> None:
    race = {"profile": "voice", "mode": "single"}
    config = {"models": {MODEL: {"race": race, "timeouts": {"ttft_timeout_s": 33}}}}
    async with serve(alpha=None, config=config) as running:
        model = running.gateway.context.fleet.models[MODEL]

        def clocks(profile: Profile | None) -> tuple[float, float]:
            [deployment] = model.under(profile).deployments.values()
            return deployment.clocks.ttft_s, deployment.clocks.stall_s

        assert clocks(None) == clocks(Profile.VOICE) == (33, 10)
        assert clocks(Profile.BATCH) == (600, 600)
        assert clocks(Profile.AGENT) == (33, 120)


async def test_the_row_of_a_call_has_the_profile_it_was_raced_under(serve: Serve) -> None:
    async with serve(fast=answer("Hello"), config=client(profile="agent"), key=KEY) as running:
        for said in ({}, {"race": "chat"}, {"race": {"profile": "voice"}}):
            async with running.chat(keyed(), stream=True, **said) as response:
                await response.read()
        rows = await running.rows("select profile from calls order by id")
    assert [row["profile"] for row in rows] == ["agent", "chat", "voice"]


async def test_a_call_without_a_profile_has_none(serve: Serve) -> None:
    async with serve(fast=answer("Hello")) as running:
        async with running.chat() as response:
            await response.read()
        [row] = await running.rows("select profile from calls")
    assert row["profile"] is None
