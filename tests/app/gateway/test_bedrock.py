"""A deployment at Bedrock's Converse in a race with one that speaks chat."""

import json
from typing import Any

import pytest
from aiohttp import web

from providers.simulator.script import Delta, Finish, Hang
from providers.simulator.wire import serve as serving
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
