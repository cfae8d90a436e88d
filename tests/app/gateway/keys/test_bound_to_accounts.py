"""Thoughts that are bound to an account are sent to no other, which would drop them in silence."""

import json
from typing import Any

import pytest

from providers.simulator import Raw, Status, Step
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, event, speaking
from tests.app.gateway.responses.test_moved_conversations import MESSAGES, REASONING, RESPONSES, THOUGHT, Made, asked
from tests.app.gateway.running_gateway import MODEL, Serve

MADE = [
    Raw(
        event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "made elsewhere"})
        + MESSAGE_BYTES,
        token=True,
    )
]
USER = {"role": "user", "content": "Hi"}
BROKEN: list[Step] = [Status(500, {"error": {"message": "broken"}})]


def config(claude: str, mode: str, api: str = "messages", **provider: str) -> dict[str, Any]:
    names = ("alpha", "beta")
    deployments = [{"deployment": f"{name}/{MODEL}", "same_as": claude} for name in names]
    return {
        "providers": {name: speaking(api, **provider) for name in names},
        "models": {MODEL: {"race": {"mode": mode}, "deployments": deployments}},
    }


@pytest.mark.parametrize("mode", ["single", "auto", "race"])
async def test_they_go_back_to_their_maker_alone(serve: Serve, mode: str) -> None:
    async with serve(alpha=MADE, beta=MADE, config=config("claude-sonnet-5-5", mode)) as running:
        running.prefer("alpha", "beta", name_there=MODEL, first_s=5.0)  # no hedge is due
        async with running.post(asked(MESSAGES, messages=[USER], stream=True), path=MESSAGES.path) as response:
            await response.read()
            maker = response.headers["x-holeshot-provider"]
        other = "beta" if maker == "alpha" else "alpha"
        before = len(running[other].received)
        running.prefer(other, maker, name_there=MODEL, first_s=5.0)
        for _ in range(3):
            async with running.post(asked(MESSAGES, stream=True), path=MESSAGES.path) as response:
                await response.read()
            assert response.headers["x-holeshot-provider"] == maker
            assert "x-holeshot-dropped" not in response.headers
        assert len(running[other].received) == before


async def test_another_account_that_answers_instead_is_asked_without_them_and_told(serve: Serve) -> None:
    async with serve(alpha=MADE, beta=MADE, config=config("claude-sonnet-5-5", "single")) as running:
        async with running.post(asked(MESSAGES, messages=[USER], stream=True), path=MESSAGES.path) as response:
            await response.read()
            maker = response.headers["x-holeshot-provider"]
        other = "beta" if maker == "alpha" else "alpha"
        running[maker].answers = lambda _: BROKEN
        async with running.post(asked(MESSAGES, stream=True), path=MESSAGES.path) as response:
            await response.read()
        assert (response.status, response.headers["x-holeshot-provider"]) == (200, other)
        assert response.headers["x-holeshot-dropped"] == MESSAGES.dropped
        [sent] = running[other].received
        assert sent.body["messages"] == MESSAGES.without


@pytest.mark.parametrize(
    ("claude", "account"), [("claude-sonnet-5-5", "acme"), ("claude-sonnet-5", None), ("claude-opus-5-5", None)]
)
async def test_they_are_raced_where_both_can_read_them(serve: Serve, claude: str, account: str | None) -> None:
    both = config(claude, "race", **({} if account is None else {"account": account}))
    async with serve(alpha=MADE, beta=MADE, config=both) as running:
        for messages in ({"messages": [USER]}, {}):
            async with running.post(asked(MESSAGES, stream=True, **messages), path=MESSAGES.path) as response:
                await response.read()
                assert "x-holeshot-dropped" not in response.headers
        for name in ("alpha", "beta"):
            assert MESSAGES.mark in json.dumps(running[name].received[-1].body), name


CHAT = MESSAGES._replace(
    path="/v1/chat/completions",
    body={
        "messages": [USER, {"role": "assistant", "content": "Hello", "thinking_blocks": [THOUGHT]}, USER],
        "reasoning_effort": "low",
    },
)
MADE_BY_RESPONSES = [
    Raw(event("response.output_item.done", output_index=0, item=REASONING) + RESPONSE_BYTES, token=True)
]


@pytest.mark.parametrize("mode", ["single", "race"])
@pytest.mark.parametrize(
    ("made", "model", "steps"),
    [
        (MESSAGES, "claude-sonnet-5-5", MADE),
        (CHAT, "claude-sonnet-5-5", MADE),
        (RESPONSES, "gpt-6.2", MADE_BY_RESPONSES),
    ],
    ids=["messages", "chat", "responses"],
)
async def test_after_a_restart_without_redis_they_go_back_to_their_maker_alone(
    serve: Serve, made: Made, model: str, steps: list[Step], mode: str
) -> None:
    settings = config(model, mode, api=made.api)
    first = {"input": [USER]} if made is RESPONSES else {"messages": [USER]}
    async with serve(alpha=steps, beta=steps, config=settings) as running:
        running.prefer("alpha", "beta", name_there=MODEL, first_s=5.0)
        async with running.post(asked(made, **first, stream=True), path=made.path) as response:
            await response.read()
            maker = response.headers["x-holeshot-provider"]
        await running.rows("select * from stored_names")
    other = "beta" if maker == "alpha" else "alpha"
    async with serve(alpha=steps, beta=steps, config=settings) as running:
        running.prefer(other, maker, name_there=MODEL, first_s=5.0)
        for _ in range(2):
            async with running.post(asked(made, stream=True), path=made.path) as response:
                await response.read()
            assert response.headers["x-holeshot-provider"] == maker
        assert running[other].received == []
        rows = await running.rows("select * from stored_names where known like '%account%'")
        assert rows
        assert "made elsewhere" not in f"{rows}"


async def test_where_one_account_can_be_asked_nothing_is_kept_of_who_made_them(serve: Serve) -> None:
    settings = config("claude-sonnet-5-5", "single", account="acme")
    async with serve(alpha=MADE, beta=MADE, config=settings) as running:
        for messages in ({"messages": [USER]}, {}):
            async with running.post(asked(MESSAGES, stream=True, **messages), path=MESSAGES.path) as response:
                await response.read()
        assert await running.rows("select * from stored_names") == []
