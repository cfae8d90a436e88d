"""Thoughts that are bound to an account are sent to no other, which would drop them in silence."""

import json
from typing import Any

import pytest

from providers.simulator.script import Raw, Status, Step
from tests.app.gateway.running_gateway import MODEL, Serve
from tests.app.gateway.test_dialects import MESSAGE_BYTES, event, speaking
from tests.app.gateway.test_moved_conversations import MESSAGES, asked

MADE = [
    Raw(
        event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "made elsewhere"})
        + MESSAGE_BYTES,
        token=True,
    )
]
USER = {"role": "user", "content": "Hi"}
BROKEN: list[Step] = [Status(500, {"error": {"message": "broken"}})]


def config(claude: str, mode: str, **provider: str) -> dict[str, Any]:
    names = ("alpha", "beta")
    deployments = [{"deployment": f"{name}/{MODEL}", "same_as": claude} for name in names]
    return {
        "providers": {name: speaking("messages", **provider) for name in names},
        "models": {MODEL: {"race": {"mode": mode}, "deployments": deployments}},
    }


@pytest.mark.parametrize("mode", ["single", "auto", "race"])
async def test_they_go_back_to_their_maker_alone(serve: Serve, mode: str) -> None:
    async with serve(alpha=MADE, beta=MADE, config=config("claude-sonnet-5-5", mode)) as running:
        running.prefer("alpha", "beta", first_s=5.0)  # no hedge is due
        async with running.post(asked(MESSAGES, messages=[USER], stream=True), path=MESSAGES.path) as response:
            await response.read()
            maker = response.headers["x-holeshot-provider"]
        other = "beta" if maker == "alpha" else "alpha"
        before = len(running[other].received)
        running.prefer(other, maker, first_s=5.0)
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
