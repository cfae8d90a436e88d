"""Responses with ``store: true`` where some deployments store and others do not, one of which fails in a later turn."""

from typing import Any

from tests.app.gateway.responses.test_threads import ANTHROPIC, NAME, OPENAI, VLLM, at
from tests.app.gateway.running_gateway import RunningGateway, Serve


async def asked(running: RunningGateway, text: str, previous: str | None = None) -> tuple[int, Any, Any]:
    body = {"model": NAME, "input": text, "store": True, "previous_response_id": previous}
    async with running.post(body, path="/v1/responses") as response:
        return response.status, await response.json(), response.headers


async def test_who_stores_is_asked_first_and_another_answers_where_it_fails_which_the_gateway_keeps(
    serve: Serve,
) -> None:
    async with at(serve, [ANTHROPIC, OPENAI]) as (running, _):
        status, said, told = await asked(running, "Turn 1: hi\nsay: a")
        assert (status, told["x-holeshot-provider"]) == (200, "openai1"), said
        status, said, told = await asked(running, f"Turn 1: hi\nfail: 500 at {OPENAI[1]}\nsay: a")
        assert (status, told["x-holeshot-provider"], told["x-holeshot-dropped"]) == (200, "anthropic0", "store"), said
        status, said, told = await asked(running, "Turn 2: hi\nrecall: now", said["id"])
        assert (status, "turns 2" in str(said["output"])) == (200, True), said


async def test_a_response_that_a_fallback_has_stored_is_continued_there(serve: Serve) -> None:
    async with at(serve, [VLLM], fallbacks=[OPENAI]) as (running, [_, openai]):
        status, said, told = await asked(running, f"Turn 1: hi\nfail: 503 at {VLLM[1]}\nsay: a")
        assert (status, told["x-holeshot-provider"]) == (200, "openai1"), said
        status, again, told = await asked(running, "Turn 2: hi\nrecall: now", said["id"])
        assert (status, told["x-holeshot-provider"], told["x-holeshot-fallback"]) == (200, "openai1", "other"), again
        assert (openai.seen[-1].body["previous_response_id"], "turns 2" in str(again["output"])) == (said["id"], True)
