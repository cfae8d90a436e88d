"""A deployment of a spent account is out, whatever the status that says so, and its clients are not told to return."""

from typing import Any

import pytest

from providers.simulator import ErrorEvent, RoleOnly, Status, answer
from tests.app.gateway.running_gateway import Serve

SPENT = {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
RATED = {"message": "Quota exceeded for metric: requests per minute", "type": "tokens", "code": "rate_limit_exceeded"}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "first", [[Status(429, {"error": SPENT}, {"retry-after": "1"})], [ErrorEvent(SPENT["message"], SPENT["code"])]]
)
async def test_a_client_of_a_spent_account_is_not_told_to_return(serve: Serve, first: list[Any], stream: bool) -> None:
    async with serve(alpha=first) as running:
        for _ in range(2):
            async with running.chat(stream=stream) as response:
                told = await response.json()
            assert (response.status, told["error"]["code"]) == (424, "insufficient_quota")
            assert "retry-after" not in response.headers
        async with running.get("/leaderboard") as response:
            [model] = (await response.json())["models"]
        assert [row["state"] for row in model["deployments"]] == ["out"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_client_at_a_rate_limit_is_told_when_to_return(serve: Serve, stream: bool) -> None:
    async with serve(alpha=[Status(429, {"error": RATED}, {"retry-after": "7"})]) as running:
        async with running.chat(stream=stream) as response:
            await response.read()
        assert (response.status, response.headers["retry-after"]) == (429, "7")


async def test_another_deployment_answers_for_a_spent_one_and_from_then_on_alone(serve: Serve) -> None:
    spent = [RoleOnly(), ErrorEvent(SPENT["message"], SPENT["code"])]
    async with serve(alpha=spent, beta=answer("ok")) as running:
        running.prefer("alpha", "beta")
        for _ in range(3):
            async with running.chat() as response:
                assert response.status == 200
                await response.read()
        assert running.requests == 4
