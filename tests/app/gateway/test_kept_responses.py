"""A stored response can be looked at, cancelled and deleted where it is kept, by the client it was made for."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from aiohttp import web
from openai.types.responses import ResponseIncludable

from providers.simulator.wire import Tally, json_response, serve
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.test_dialects import RESPONSE, RESPONSE_BYTES
from tests.app.gateway.test_overload import reload

INCLUDED: tuple[ResponseIncludable, ...] = ("reasoning.encrypted_content", "message.output_text.logprobs")
KEPT = {**RESPONSE, "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "created_at": 1}


@asynccontextmanager
async def keeper(go: asyncio.Event | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve a provider that makes one response and keeps it; yield its base URL, and what it was asked.

    It tells of that one only after ``go``.
    """
    asked: list[str] = []

    async def make(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=RESPONSE_BYTES, headers={"content-type": "text/event-stream"})

    async def look(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path_qs}")
        if go is not None:
            await go.wait()
        if request.match_info["id"] != "resp_abc":
            return json_response({"error": {"message": "no such response", "type": "not_found"}}, status=404)
        return json_response(KEPT)

    routes = [
        web.post("/v1/responses", make),
        web.route("*", "/v1/responses/{id}", look),
        web.route("*", "/v1/responses/{id}/{rest}", look),
    ]
    async with serve(routes, Tally()) as base_url:
        yield base_url, asked


def kept_at(base_url: str, **settings: Any) -> dict[str, Any]:
    return {
        "providers": {"keeper": {"base_url": base_url, "api_key": "k", "apis": ["responses"]}},
        "models": {MODEL: {"deployments": ["keeper/m"]}},
        **settings,
    }


async def stored(running: RunningGateway, **headers: str) -> None:
    body = {"model": MODEL, "input": "Hi", "store": True}
    async with running.post(body, path="/v1/responses", headers=headers) as response:
        assert response.status == 200


async def test_a_stored_response_is_looked_at_where_it_is_kept(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url)) as running:
        await stored(running)
        found = await running.sdk.responses.retrieve("resp_abc", include=list(INCLUDED))
        assert found.id == "resp_abc"
        await running.sdk.responses.cancel("resp_abc")
        await running.sdk.responses.delete("resp_abc")
        await running.sdk.responses.input_items.list("resp_abc")
        assert [each.partition("?")[0] for each in asked] == [
            "GET /v1/responses/resp_abc",
            "POST /v1/responses/resp_abc/cancel",
            "DELETE /v1/responses/resp_abc",
            "GET /v1/responses/resp_abc/input_items",
        ]
        assert all(name in asked[0] for name in INCLUDED)
        assert len(await running.rows("select * from calls")) == 1


async def test_a_head_is_answered_without_a_body_and_asked_of_the_provider_as_get(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url)) as running:
        await stored(running)
        async with running.http.head(f"{running.url}/v1/responses/resp_abc") as response:
            assert (response.status, await response.read()) == (200, b"")
    assert asked == ["GET /v1/responses/resp_abc"]


async def test_a_provider_that_does_not_answer_about_a_stored_response_is_not_waited_for_for_good(serve: Serve) -> None:
    go = asyncio.Event()
    async with keeper(go) as (base_url, asked), serve(config=kept_at(base_url)) as running:
        await stored(running)
        reload(running, timeouts={"ttft_timeout_s": 0.05})
        async with running.get("/v1/responses/resp_abc") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (504, "all_providers_timed_out")
        assert len(asked) == 1
        go.set()


async def test_what_nobody_made_is_asked_of_nobody(serve: Serve) -> None:
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url)) as running:
        for response_id in ("resp_zzz", "..%2Fmodels", "resp_abc"):
            with pytest.raises(openai.NotFoundError):
                await running.sdk.responses.retrieve(response_id)
        assert asked == []


async def test_a_response_is_shown_to_its_own_client_only(serve: Serve) -> None:
    clients = {name: {"key_sha256": hashlib.sha256(name.encode()).hexdigest()} for name in ("ann", "bob")}
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url, clients=clients)) as running:
        await stored(running, authorization="Bearer ann")
        for name, status in (("bob", 404), ("ann", 200)):
            async with running.get("/v1/responses/resp_abc", headers={"authorization": f"Bearer {name}"}) as response:
                assert response.status == status
        assert len(asked) == 1


async def test_requests_for_stored_responses_count_in_the_limits_of_their_client(serve: Serve) -> None:
    clients = {"ann": {"key_sha256": hashlib.sha256(b"ann").hexdigest(), "rpm": 3}}
    async with (
        keeper() as (base_url, asked),
        serve(config=kept_at(base_url, clients=clients), in_one_minute=True) as running,
    ):
        await stored(running, authorization="Bearer ann")
        found = []
        for _ in range(3):
            async with running.get("/v1/responses/resp_abc", headers={"authorization": "Bearer ann"}) as response:
                found.append(response.status)
    assert found == [200, 200, 429]
    assert len(asked) == 2


async def test_requests_for_stored_responses_need_no_seat(serve: Serve) -> None:
    overload = {"max_in_flight": 1, "queue": 0}
    async with keeper() as (base_url, asked), serve(config=kept_at(base_url, overload=overload)) as running:
        await stored(running)
        intake = running.gateway.context.intake
        assert intake.enter()
        assert intake.is_full
        async with running.get("/v1/responses/resp_abc") as response:
            assert response.status == 200
        intake.leave()
    assert len(asked) == 1
