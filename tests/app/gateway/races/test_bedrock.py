"""A deployment at Bedrock's Converse in a race with one that speaks chat."""

import json
from typing import Any

import pytest
from aiohttp import web

from providers.simulator import Delta, Finish, Hang
from providers.simulator import serve as serving
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.providers.families import COMPLETION_TOKENS, PROMPT_TOKENS
from tests.app.providers.test_bedrock_converse import Bedrock

AWS = "aws/amazon.nova-pro-v1:0"


def beside(base_url: str) -> dict[str, Any]:
    provider = {
        "preset": "bedrock_converse",
        "base_url": base_url.removesuffix("/v1"),
        "api_key": "the-very-secret-key",
    }
    model = {"deployments": ["alpha/m", AWS], "race": {"mode": "race", "width": 2}}
    return {"config": {"providers": {"aws": provider}, "models": {MODEL: model}}}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("stream", [True, False])
async def test_it_wins_a_race_for_clients_of_every_api(serve: Serve, path: str, stream: bool) -> None:
    bedrock = Bedrock()
    prompt = {"input": "Hi"} if "responses" in path else {"messages": [{"role": "user", "content": "Hi"}]}
    body = {"model": MODEL, "stream": stream, "max_tokens": 50, **prompt}
    if "responses" in path:
        del body["max_tokens"]
    async with (
        serving([web.post("/{path:.*}", bedrock.answer)], bedrock.tally) as base_url,
        serve(alpha=[Hang()], **beside(base_url)) as running,
    ):
        async with running.post(body, path=path) as response:
            said = await response.text()
        assert response.status == 200, said
        assert "Hello" in said or ("Hel" in said and "lo" in said)
        assert await running.outcomes() == {"alpha": "lost", "aws": "won"}
        call = await running.call()
        assert (call["prompt_tokens"], call["completion_tokens"]) == (PROMPT_TOKENS, COMPLETION_TOKENS)
    assert json.loads(bedrock.body)["messages"] == [{"role": "user", "content": [{"text": "Hi"}]}]


async def test_a_request_that_converse_has_no_words_for_goes_to_the_others(serve: Serve) -> None:
    bedrock = Bedrock()
    async with (
        serving([web.post("/{path:.*}", bedrock.answer)], bedrock.tally) as base_url,
        serve(alpha=[Delta("Hello"), Finish()], **beside(base_url)) as running,
    ):
        async with running.chat(seed=7) as response:
            assert (await response.json())["choices"][0]["message"]["content"] == "Hello"
        assert await running.outcomes() == {"alpha": "won"}
    assert bedrock.tally.counts.requests == 0


MARK = {"cache_control": {"type": "ephemeral"}}
POINT = {"cachePoint": {"type": "default"}}


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **more}


MARKED: dict[str, Any] = {  # as a coding agent asks
    "model": MODEL,
    "max_tokens": 50,
    "system": [text("You are"), text("a programmer", **MARK)],
    "tools": [{"name": "ls", "input_schema": {"type": "object"}, **MARK}],
    "messages": [
        {"role": "user", "content": [text("Look", **MARK)]},
        {"role": "assistant", "content": [text("So"), {"type": "tool_use", "id": "t", "name": "ls", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a.py", **MARK}]},
    ],
}


@pytest.mark.parametrize(
    ("cached", "more"), [(True, {}), (True, MARK), (False, {})], ids=["marks", "automatic", "no cache"]
)
async def test_what_a_client_of_messages_has_marked_is_cached_where_the_model_has_a_cache(
    serve: Serve, cached: bool, more: dict[str, Any]
) -> None:
    bedrock = Bedrock()
    price = {"input": 3.0, "output": 15.0} | ({"cached_input": 0.3, "cache_write": 3.75} if cached else {})
    config = beside("")["config"]
    config["models"][MODEL] = {"deployments": [{"deployment": AWS, "price_per_mtok": price}]}
    async with serving([web.post("/{path:.*}", bedrock.answer)], bedrock.tally) as base_url:
        config["providers"]["aws"]["base_url"] = base_url.removesuffix("/v1")
        async with serve(config=config) as running, running.post(MARKED | more, path="/v1/messages") as response:
            assert response.status == 200, await response.text()
            lost = response.headers.get("x-holeshot-dropped", "")
    sent = json.loads(bedrock.body)
    assert ("cache_control" in lost) is not cached
    points = [POINT] if cached else []
    assert sent["system"] == [{"text": "You are"}, {"text": "a programmer"}, *points]
    assert sent["toolConfig"]["tools"][1:] == points
    assert sent["messages"][0]["content"] == [{"text": "Look"}, *points]
    assert sent["messages"][2]["content"][1:] == points
