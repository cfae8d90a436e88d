"""The scripted provider, asked over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from providers.simulator import (
    Comment,
    Delta,
    Done,
    Drop,
    ErrorEvent,
    Finish,
    Gate,
    Hang,
    Headers,
    Raw,
    Reasoning,
    RoleOnly,
    ScriptedProvider,
    Status,
    Step,
    ToolCall,
    answer,
)


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def ask(client: aiohttp.ClientSession, provider: ScriptedProvider, **fields: Any) -> tuple[int, str]:
    body = {"model": "test-model", "messages": [{"role": "user", "content": "Hi"}], "stream": True, **fields}
    async with client.post(f"{provider.base_url}/chat/completions", json=body) as response:
        return response.status, await response.text()


def chunks(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def test_an_ordinary_answer_is_role_tokens_finish_usage_and_done(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider(answer("Hel", "lo")) as provider:
        status, text = await ask(client, provider, stream_options={"include_usage": True})
        seen = chunks(text)
        assert status == 200
        assert [chunk["choices"][0]["delta"] for chunk in seen[:3]] == [
            {"role": "assistant", "content": ""},
            {"content": "Hel"},
            {"content": "lo"},
        ]
        assert seen[3]["choices"][0]["finish_reason"] == "stop"
        assert seen[4]["choices"] == []
        assert seen[4]["usage"]["completion_tokens"] == 2
        assert seen[5] == "[DONE]"
        assert provider.counts.completions == 1
        assert provider.received[0].body["messages"] == [{"role": "user", "content": "Hi"}]


async def test_usage_comes_only_when_asked_for(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider() as provider:
        _, text = await ask(client, provider)
        assert "usage" not in text


async def test_a_request_that_is_not_streamed_gets_the_same_tokens_as_one_body(client: aiohttp.ClientSession) -> None:
    script: list[Step] = [
        Reasoning("Hm."),
        ToolCall('{"a"', name="f", id="call_9"),
        ToolCall(":1}"),
        *answer("Hel", "lo"),
    ]
    async with ScriptedProvider(script) as provider:
        _, text = await ask(client, provider, stream=False)
        whole = json.loads(text)
        message = whole["choices"][0]["message"]
        assert message["content"] == "Hello"
        assert message["reasoning_content"] == "Hm."
        assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
        assert whole["usage"]["completion_tokens"] == 5


async def test_a_status_refuses_with_its_headers_and_an_error_in_openai_s_shape(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider([Status(429, headers={"retry-after": "7"})]) as provider:
        async with client.post(f"{provider.base_url}/chat/completions", json={"stream": True}) as response:
            assert response.status == 429
            assert response.headers["retry-after"] == "7"
            assert (await response.json())["error"]["code"] == 429
        assert provider.counts.rate_limited == 1


async def test_once_answers_one_request_differently(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider(answer("ok")) as provider:
        provider.once([Status(503)])
        assert (await ask(client, provider))[0] == 503
        assert (await ask(client, provider))[0] == 200
        assert (provider.counts.errors, provider.counts.completions) == (1, 1)


async def test_a_gate_holds_the_first_token_until_it_is_opened(client: aiohttp.ClientSession) -> None:
    opened = asyncio.Event()
    async with ScriptedProvider([RoleOnly(), Gate(opened), Delta("x"), Done()]) as provider:
        body = {"stream": True}
        async with client.post(f"{provider.base_url}/chat/completions", json=body) as response:
            assert b'"role"' in await response.content.readany()
            opened.set()
            assert b'"content":"x"' in await response.content.read()


@pytest.mark.parametrize("script", [[Hang()], [Headers(), Hang()], [RoleOnly(), Hang()], [Comment(), Hang()]])
async def test_a_hang_up_before_the_first_token_is_counted(client: aiohttp.ClientSession, script: list[Step]) -> None:
    async with ScriptedProvider(script) as provider:
        asking = asyncio.create_task(ask(client, provider))
        await provider.requested.wait()
        asking.cancel()
        await asyncio.wait([asking])
        await provider.disconnected.wait()
        assert provider.counts.disconnects_before_first_token == 1
        assert provider.counts.in_flight == 0


async def test_a_hang_up_after_the_first_token_is_counted_apart(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider([Delta("x"), Hang()]) as provider:
        async with client.post(f"{provider.base_url}/chat/completions", json={"stream": True}) as response:
            await response.content.readany()
        await provider.reach(disconnects=1)
        assert provider.counts.disconnects_mid_stream == 1


async def test_a_drop_breaks_the_connection_mid_stream(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider([Delta("a"), Drop()]) as provider:
        with pytest.raises(aiohttp.ClientError):
            await ask(client, provider)
        await provider.reach(errors=1)
        assert provider.counts.disconnects == 0


async def test_an_error_event_and_raw_bytes_are_sent_as_told(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider([Delta("a"), ErrorEvent("boom", code=500), Raw(b"data: {broken")]) as provider:
        _, text = await ask(client, provider)
        assert '"message":"boom"' in text
        assert text.endswith("data: {broken")
        assert provider.counts.errors == 1


async def test_an_error_event_is_a_status_when_nothing_is_streamed(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider([Delta("a"), ErrorEvent("boom", code=502), Finish()]) as provider:
        status, text = await ask(client, provider, stream=False)
        assert (status, json.loads(text)["error"]["message"]) == (502, "boom")


async def test_closing_the_provider_cuts_what_hangs_and_counts_no_disconnect(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider([Hang()]) as provider:
        asking = asyncio.create_task(ask(client, provider))
        await provider.requested.wait()
    with pytest.raises(aiohttp.ClientError):
        await asking
    assert provider.counts.disconnects == 0


async def test_models_and_embeddings_are_answered(client: aiohttp.ClientSession) -> None:
    async with ScriptedProvider(models=["m"]) as provider:
        async with client.get(f"{provider.base_url}/models") as response:
            assert [model["id"] for model in (await response.json())["data"]] == ["m"]
        body = {"model": "e", "input": ["a", "b", "a"]}
        async with client.post(f"{provider.base_url}/embeddings", json=body) as response:
            vectors = [item["embedding"] for item in (await response.json())["data"]]
        assert vectors[0] == vectors[2] != vectors[1]
        provider.once([Status(500)])
        async with client.post(f"{provider.base_url}/embeddings", json=body) as response:
            assert response.status == 500
