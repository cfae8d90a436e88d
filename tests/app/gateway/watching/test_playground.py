"""A call from the page is a call of its client: the same limits, rows and headers as of one over /v1."""

from typing import Any

import pytest

from providers.simulator import Status, answer, error
from tests.app.gateway.access.test_admission import KEYS, key_of
from tests.app.gateway.access.test_sessions import people, signed_in
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body
from tests.app.gateway.visitor import Visitor

SAME = ("client", "model", "answered_model", "api", "streamed", "mode", "status_code", "prompt_tokens")
OWN_IDS = {"date", "x-holeshot-call-id", "x-request-id", "request-id", "x-holeshot-ttft-ms", "x-holeshot-overhead-ms"}


def played(running: RunningGateway, visitor: Visitor, **fields: Any) -> Any:
    return running.post(chat_body(**fields), path="/api/playground", headers=visitor.own)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_row_the_headers_and_the_answer_are_those_of_the_api(serve: Serve, stream: bool) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        async with running.chat(key_of("admin"), stream=stream) as response:
            by_key, body = response.headers, b"Hello" in await response.read()
        async with played(running, visitor, stream=stream) as response:
            by_cookie = response.headers
            assert (b"Hello" in await response.read()) is body is True
        assert {*by_key} == {*by_cookie}
        assert by_cookie["x-holeshot-call-id"]
        for name in {name for name in by_key if name.lower() not in OWN_IDS}:
            assert by_key[name] == by_cookie[name], name
        one, two = await running.rows("select * from calls order by started_at")
        assert {name: one[name] for name in SAME if name in one} == {name: two[name] for name in SAME if name in two}
        assert two["client"] == "admin"
        attempts = await running.rows("select provider, outcome from attempts")
        assert [row["outcome"] for row in attempts] == ["won", "won"]


async def test_the_limits_of_the_client_count_both_ways(serve: Serve) -> None:
    config = people()
    config["clients"]["admin"]["rpm"] = 2
    async with serve(config=config, in_one_minute=True) as running:
        visitor = await signed_in(running)
        async with running.chat(key_of("admin")) as response:
            assert response.headers["x-ratelimit-remaining-requests"] == "1"
        async with played(running, visitor) as response:
            assert (response.status, response.headers["x-ratelimit-remaining-requests"]) == (200, "0")
        async with played(running, visitor) as response:
            assert response.status == 429
            assert "retry-after" in response.headers
        assert running.requests == 2


async def test_the_models_of_the_client_are_the_models_of_its_session(serve: Serve) -> None:
    config = people(models={"other": {"deployments": ["alpha/o"]}})
    config["clients"]["admin"]["models"] = ["other"]
    async with serve(config=config) as running:
        visitor = await signed_in(running)
        assert (await visitor.play())[0] == 403
        assert (await visitor.play(model="other"))[0] == 200
        assert (await visitor.play(model="nobody"))[0] == 403


async def test_a_client_plays_with_its_key_though_it_cannot_sign_in(serve: Serve) -> None:
    async with serve(config=people()) as running:
        for key, status in ((KEYS["plain"], 200), (KEYS["guest"], 403), ("hs-nobody", 401)):
            async with running.post(chat_body(), path="/api/playground", headers=bearer(key)) as response:
                assert response.status == status
        assert (await running.call())["client"] == "plain"


async def test_errors_are_those_of_the_api(serve: Serve) -> None:
    script = [Status(400, error("no such temperature"))]
    async with serve(alpha=script, config=people()) as running:
        visitor = await signed_in(running)
        status, body = await visitor.play(temperature=9)
        async with running.chat(key_of("admin"), temperature=9) as response:
            assert (status, body["error"]["message"]) == (
                response.status,
                (await response.json())["error"]["message"],
            )
        async with played(running, visitor, model=None) as response:
            assert response.status == 400


async def test_a_race_is_run_for_it(serve: Serve) -> None:
    async with serve(alpha=None, beta=answer("Hello"), config=people()) as running:
        running.answer_once_all_are_asked()
        visitor = await signed_in(running)
        async with played(running, visitor, stream=True) as response:
            assert response.headers["x-holeshot-launched"] == "2"
            await response.read()
        assert sorted((await running.outcomes()).values()) == ["lost", "won"]
        assert (await running.call())["model"] == MODEL


async def test_no_cookie_reaches_a_provider(serve: Serve) -> None:
    async with serve(config=people()) as running:
        visitor = await signed_in(running)
        assert (await visitor.play())[0] == 200
        [received] = running["alpha"].received
        assert not {"cookie", "origin", "sec-fetch-site"} & received.headers.keys()
