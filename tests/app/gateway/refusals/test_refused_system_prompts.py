"""A model that takes no system prompt has the user say what the prompt says, and the client is told."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web

from providers.simulator import Raw, Status, Step
from providers.simulator import serve as serving
from tests.app.gateway.apis.test_interactions import TEXT_BYTES as INTERACTION_BYTES
from tests.app.gateway.races.test_bedrock import AWS, beside
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, refused
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.providers.test_bedrock_converse import Bedrock

Json = dict[str, Any]
SAID = "<system>\nBe brief.\n</system>"
CLIENTS: Mapping[str, tuple[str, Json]] = {
    "chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]},
    ),
    "messages": (
        "/v1/messages",
        {"max_tokens": 99, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]},
    ),
    "responses": ("/v1/responses", {"store": False, "instructions": "Be brief.", "input": "Hi"}),
    "gemini": (
        f"/v1beta/models/{MODEL}:generateContent",
        {
            "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        },
    ),
}
GOOGLES = "Developer instruction is not enabled for models/gemma-3-27b-it"
OF_CHAT = {
    "Gemma's template": "System role not supported",
    "o1-mini": "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
    "a proxy before Google": GOOGLES,
}


def in_chat(words: str) -> Callable[[Any], Sequence[Step]]:
    def answer(body: Json) -> Sequence[Step]:
        roles = {each["role"] for each in body["messages"]}
        return ANSWERS["chat"] if roles.isdisjoint({"system", "developer"}) else refused(words)

    return answer


def at_google(body: Json) -> Sequence[Step]:
    error = {"code": 400, "message": GOOGLES, "status": "INVALID_ARGUMENT"}
    return [Status(400, {"error": error})] if "systemInstruction" in body else ANSWERS["gemini"]


async def told(running: Any, client: str) -> tuple[int, str | None]:
    path, asked = CLIENTS[client]
    async with running.post({"model": MODEL, **asked}, path=path) as response:
        await response.read()
        return response.status, response.headers.get("x-holeshot-dropped")


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("words", OF_CHAT.values(), ids=[*OF_CHAT])
async def test_the_user_says_it_at_a_model_of_chat(serve: Serve, words: str, client: str) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = in_chat(words)
        for sendings in (2, 3):
            status, dropped = await told(running, client)
            assert (status, "messages[0].role" in str(dropped)) == (200, True)
            assert len(running["alpha"].received) == sendings
        assert running["alpha"].received[-1].body["messages"] == [{"role": "user", "content": f"{SAID}\n\nHi"}]


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_user_says_it_at_gemma(serve: Serve, client: str) -> None:
    async with serve(alpha=None, config={"providers": {"alpha": {"kind": "gemini"}}}) as running:
        running["alpha"].answers = at_google
        for sendings in (2, 3):
            status, dropped = await told(running, client)
            assert (status, "systemInstruction" in str(dropped)) == (200, True)
            assert len(running["alpha"].received) == sendings
        [turn] = running["alpha"].received[-1].body["contents"]
    assert (turn["role"], [part["text"] for part in turn["parts"]]) == ("user", [SAID, "Hi"])


async def test_the_user_says_it_in_googles_newer_api_too(serve: Serve) -> None:
    config = {"providers": {"alpha": {"kind": "gemini", "apis": ["interactions"]}}}
    error = {"code": 400, "message": GOOGLES, "status": "INVALID_ARGUMENT"}
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = lambda body: (
            [Status(400, {"error": error})] if "system_instruction" in body else [Raw(INTERACTION_BYTES, token=True)]
        )
        asked = {"model": MODEL, "store": False, "system_instruction": "Be brief.", "input": "Hi"}
        for sendings in (2, 3):
            async with running.post(asked, path="/v1/interactions") as response:
                await response.read()
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "system_instruction")
            assert len(running["alpha"].received) == sendings
        texts = [step["content"][0]["text"] for step in running["alpha"].received[-1].body["input"]]
    assert texts == [SAID, "Hi"]


@pytest.mark.parametrize(
    "words",
    [
        "This model doesn't support system messages. Try again without system messages.",
        "This model doesn't support the system field. Remove system and try again.",
    ],
)
async def test_the_user_says_it_at_a_model_of_bedrock(serve: Serve, words: str) -> None:
    bedrock, sent = Bedrock(), list[Json]()

    async def answered(request: web.Request) -> web.StreamResponse:
        sent.append(json.loads(await request.read()))
        if "system" in sent[-1]:
            return web.json_response({"message": words}, status=400)
        return await bedrock.answer(request)

    config = {"models": {MODEL: {"deployments": [AWS], "race": {"mode": "single"}}}}
    async with serving([web.post("/{path:.*}", answered)], bedrock.tally) as base_url:
        providers = beside(base_url)["config"]["providers"]
        async with serve(alpha=None, config={"providers": providers, **config}) as running:
            for sendings in (2, 3):
                assert await told(running, "chat") == (200, "messages[0].role")
                assert len(sent) == sendings
    assert sent[-1]["messages"] == [{"role": "user", "content": [{"text": f"{SAID}\n\nHi"}]}]


async def test_it_stays_where_it_is_at_others_and_before_an_answer_begins_with_the_model(serve: Serve) -> None:
    """Another deployment is sent what the client wrote; a conversation that the model begins gets a turn before it."""
    models = {MODEL: {"deployments": ["alpha/m"]}, "other": {"deployments": ["beta/m"]}}
    async with serve(
        alpha=None, beta=None, config={"providers": {"alpha": {"kind": "gemini"}}, "models": models}
    ) as running:
        running["alpha"].answers, running["beta"].answers = at_google, lambda _: ANSWERS["chat"]
        _, asked = CLIENTS["gemini"]
        begun = [{"role": "model", "parts": [{"text": "Yes?"}]}, *asked["contents"]]
        path = f"/v1beta/models/{MODEL}:generateContent"
        async with running.post({**asked, "contents": begun}, path=path) as response:
            assert response.status == 200
        assert [turn["role"] for turn in running["alpha"].received[-1].body["contents"]] == ["user", "model", "user"]
        _, chats = CLIENTS["chat"]
        async with running.post({"model": "other", **chats}) as response:
            assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert running["beta"].received[-1].body["messages"] == chats["messages"]


@pytest.mark.parametrize("words", ["Unexpected system prompt", "The system does not support this request now."])
async def test_words_of_something_else_move_nothing(serve: Serve, words: str) -> None:
    async with serve(alpha=refused(words)) as running:
        assert (await told(running, "chat"))[0] == 400
        assert all(each.body["messages"][0]["role"] == "system" for each in running["alpha"].received)
