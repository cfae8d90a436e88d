"""The simulated fleet, asked over real HTTP. Personas here are quick: what they draw is tested without sockets."""

import asyncio
import json
import struct
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import msgspec
import pytest
from openai import AsyncOpenAI

from providers.simulator import CHAT_MODEL, EMBEDDING_MODEL, Persona, SimulatedFleet, SimulatedProvider, run_fleet

QUICK = Persona(name="quick", ttft_median_s=0.001, ttft_sigma=0.0, decode_tps=100_000)
BODY = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "Why race?"}]}


def persona(**changes: Any) -> Persona:
    return msgspec.structs.replace(QUICK, **changes)


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def post(
    client: aiohttp.ClientSession, provider: SimulatedProvider, path: str = "chat/completions", **fields: Any
) -> tuple[int, Mapping[str, str], str]:
    async with client.post(f"{provider.base_url}/{path}", json=BODY | fields) as response:
        return response.status, response.headers, await response.text()


async def test_the_openai_package_streams_an_answer_with_right_usage() -> None:
    async with (
        SimulatedProvider(QUICK, seed=1) as provider,
        AsyncOpenAI(base_url=provider.base_url, api_key="any") as openai,
    ):
        stream = await openai.chat.completions.create(
            model=CHAT_MODEL,
            messages=[{"role": "user", "content": "Why race?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    tokens = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == len(tokens)
    assert 60 <= len(tokens) < 260
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert "".join(tokens).endswith(".")


async def test_max_tokens_is_honoured_streamed_or_not(client: aiohttp.ClientSession) -> None:
    async with SimulatedProvider(QUICK, seed=1) as provider:
        whole = json.loads((await post(client, provider, max_tokens=5))[2])
        assert whole["usage"]["completion_tokens"] == 5
        assert whole["choices"][0]["finish_reason"] == "length"
        _, _, text = await post(client, provider, max_completion_tokens=5, stream=True)
        assert text.count('"content"') == 1 + 5  # the role chunk has an empty one
        assert text.endswith("data: [DONE]\n\n")


async def test_a_seed_repeats_the_answers_request_by_request(client: aiohttp.ClientSession) -> None:
    said = []
    for _ in range(2):
        async with SimulatedProvider(QUICK, seed=3) as provider:
            said.append([(await post(client, provider, stream=True))[2] for _ in range(2)])
    assert said[0] == said[1]
    assert said[0][0] != said[0][1]


async def test_a_persona_may_send_no_role_chunk_and_one_may_send_comments(client: aiohttp.ClientSession) -> None:
    async with SimulatedProvider(persona(role_first=False), seed=1) as provider:
        _, _, text = await post(client, provider, stream=True)
        first = json.loads(text.split("\n\n", 1)[0].removeprefix("data: "))["choices"][0]["delta"]
        assert first["role"] == "assistant"
        assert first["content"]
    async with SimulatedProvider(persona(ttft_median_s=0.02, comment_every_s=0.002), seed=1) as provider:
        _, _, text = await post(client, provider, stream=True)
        assert ": processing\n\n" in text


async def test_one_request_too_many_is_a_429_that_says_when(client: aiohttp.ClientSession) -> None:
    async with SimulatedProvider(persona(requests_per_window=1, window_s=60), seed=1) as provider:
        assert (await post(client, provider))[0] == 200
        status, headers, text = await post(client, provider)
        assert status == 429
        assert 1 <= int(headers["retry-after"]) <= 60
        assert json.loads(text)["error"]["code"] == "rate_limit_exceeded"
        assert (provider.counts.completions, provider.counts.rate_limited) == (1, 1)


async def test_failures_are_errors_of_every_kind(client: aiohttp.ClientSession) -> None:
    seen = set()
    async with SimulatedProvider(persona(error_share=1.0), seed=1) as provider:
        for _ in range(40):
            try:
                status, _, text = await post(client, provider, stream=True)
                seen.add("refused" if status == 503 else "error event" if '"error"' in text else text)
            except aiohttp.ClientError:
                seen.add("broken")
        assert seen == {"refused", "error event", "broken"}
        assert provider.counts.errors == 40
        assert provider.counts.disconnects == 0


async def test_a_client_that_hangs_up_is_noticed_before_and_after_the_first_token(
    client: aiohttp.ClientSession,
) -> None:
    async with SimulatedProvider(persona(ttft_median_s=3600), seed=1) as provider:
        asking = asyncio.create_task(post(client, provider, stream=True))
        await provider.reach(requests=1)
        asking.cancel()
        await asyncio.wait([asking])
        await provider.reach(disconnects_before_first_token=1)
    async with SimulatedProvider(persona(decode_tps=0.001, role_first=False), seed=1) as provider:
        async with client.post(f"{provider.base_url}/chat/completions", json=BODY | {"stream": True}) as response:
            await response.content.readany()
        await provider.reach(disconnects_mid_stream=1)


@pytest.mark.parametrize(
    ("fields", "status"), [({"model": "other"}, 404), ({"messages": []}, 400), ({"messages": None}, 400)]
)
async def test_a_wrong_request_is_refused_in_openai_s_shape(
    client: aiohttp.ClientSession, fields: dict[str, Any], status: int
) -> None:
    async with SimulatedProvider(QUICK, seed=1) as provider:
        answered, _, text = await post(client, provider, **fields)
        assert answered == status
        assert json.loads(text)["error"]["type"] == "invalid_request_error"


async def test_embeddings_and_models_are_answered(client: aiohttp.ClientSession) -> None:
    async with SimulatedProvider(QUICK, seed=1) as provider:
        status, _, text = await post(client, provider, "embeddings", model=EMBEDDING_MODEL, input=["a", "b"])
        assert status == 200
        assert len(json.loads(text)["data"]) == 2
        async with client.get(f"{provider.base_url}/models") as response:
            assert [model["id"] for model in (await response.json())["data"]] == [CHAT_MODEL, EMBEDDING_MODEL]


async def test_embeddings_come_as_their_floats_where_a_request_asks_for_base64(client: aiohttp.ClientSession) -> None:
    async with SimulatedProvider(QUICK, seed=1) as provider:
        said: list[list[Any]] = []
        for fields in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
            asked = {"model": EMBEDDING_MODEL, "input": ["a", "b"]} | fields
            _, _, text = await post(client, provider, "embeddings", **asked)
            said.append([each["embedding"] for each in json.loads(text)["data"]])
    plain, as_asked, packed = said
    assert plain == as_asked
    for vector, floats in zip(plain, packed, strict=True):
        assert struct.unpack(f"<{len(vector)}f", b64decode(floats)) == pytest.approx(vector, abs=1e-6)


async def test_a_fleet_answers_on_ports_of_its_own_and_shows_its_counts(client: aiohttp.ClientSession) -> None:
    async with SimulatedFleet([QUICK, persona(name="other")], seed=1) as fleet:
        assert set(fleet.base_urls) == {"quick", "other"}
        await post(client, fleet.providers["other"])
        async with client.get(fleet.base_urls["other"].removesuffix("/v1") + "/_stats") as response:
            stats = await response.json()
        assert (stats["requests"], stats["completions"], stats["in_flight"]) == (1, 1, 0)
        assert fleet.providers["quick"].counts.requests == 0


async def test_a_fleet_runs_until_it_is_cancelled(client: aiohttp.ClientSession) -> None:
    announced: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(run_fleet(announced.set_result, [QUICK]))
    url = (await announced)["quick"]
    async with client.get(f"{url}/models") as response:
        assert response.status == 200
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.get(f"{url}/models")
