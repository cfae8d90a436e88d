"""Anthropic's threads: who begins one says the whole conversation, and anybody may answer; later turns do not."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, Serve

NAME = "mixed"
ANTHROPIC, OPENAI, VLLM = ("anthropic", "claude-sonnet-4-5"), ("openai", "gpt-5"), ("vllm", "Qwen/Qwen3.5-27B")

CREATE = {"type": "create"}
TOOLS = [{"name": "weather", "description": "d", "input_schema": {"type": "object", "properties": {}}}]


@asynccontextmanager
async def at(
    serve: Serve, kinds: Sequence[tuple[str, str]], *, mode: str = "single", fallbacks: Sequence[tuple[str, str]] = ()
) -> AsyncIterator[tuple[RunningGateway, list[Served]]]:
    """Serve a gateway with one model of these vendors, and another that is its fallback."""
    async with AsyncExitStack() as stack:
        vendors: list[Served] = []
        providers: dict[str, Any] = {}
        models: dict[str, Any] = {NAME: {"race": {"mode": mode}, "deployments": []}}
        if fallbacks:
            models[NAME]["fallbacks"] = ["other"]
            models["other"] = {"deployments": []}
        for number, (vendor, model) in enumerate((*kinds, *fallbacks)):
            served = await stack.enter_async_context(running_vendor(vendor, seed=str(number), account=str(number)))
            vendors.append(served)
            name = f"{vendor}{number}"
            providers[name] = {"preset": vendor, "base_url": served.base_url, "api_key": served.key}
            models[NAME if number < len(kinds) else "other"]["deployments"].append(f"{name}/{model}")
        config = {"providers": providers, "models": models}
        running = await stack.enter_async_context(serve(config=config, key="unused"))
        yield running, vendors


async def asked(running: RunningGateway, thread: Any, text: str, **fields: Any) -> tuple[int, Any, Any]:
    body = {
        "model": NAME,
        "max_tokens": 1000,
        "thread": thread,
        "messages": [{"role": "user", "content": text}],
        **fields,
    }
    headers = {"anthropic-beta": "message-threads-2026-08-12"}
    async with running.post(body, path="/v1/messages", headers=headers) as response:
        said = await response.text()
        told = json.loads(said) if said.startswith("{") else said
        return response.status, told, response.headers


def next_of(answer: dict[str, Any]) -> dict[str, str]:
    return {"type": "continue", "previous_message_id": answer["id"]}


@pytest.mark.parametrize("other", [OPENAI, VLLM])
async def test_who_begins_a_thread_is_answered_by_another_vendor_where_the_first_one_fails(
    serve: Serve, other: tuple[str, str]
) -> None:
    text = f"fail: 500 at {ANTHROPIC[1]}\nsay: hi"
    for kinds, fallbacks in (([ANTHROPIC, other], []), ([ANTHROPIC], [other])):
        async with at(serve, kinds, fallbacks=fallbacks) as (running, _):
            for stream in (False, True):
                status, said, told = await asked(running, CREATE, text, stream=stream)
                assert status == 200, said
                assert told["x-holeshot-provider"] == f"{other[0]}1"
                assert told["x-holeshot-dropped"] == "thread"


@pytest.mark.parametrize("fallback", [ANTHROPIC, VLLM])
async def test_who_begins_a_thread_is_answered_by_the_requested_model_also_where_only_its_fallback_may_keep_threads(
    serve: Serve, fallback: tuple[str, str]
) -> None:
    async with at(serve, [OPENAI], fallbacks=[fallback]) as (running, _):
        for text, name in (
            ("say: hi", "openai0"),
            (f"fail: 500 at {OPENAI[1]}\nsay: hi", f"{fallback[0]}1"),
            (f"fail: 500 at {fallback[1]}\nsay: hi", "openai0"),
        ):
            status, said, told = await asked(running, CREATE, text)
            assert (status, told.get("x-holeshot-provider")) == (200, name), said


async def test_who_begins_a_thread_races(serve: Serve) -> None:
    async with at(serve, [ANTHROPIC, OPENAI], mode="race") as (running, vendors):
        _, said, told = await asked(running, CREATE, "say: hi")
        assert told["x-holeshot-launched"] == "2", said
        assert [vendor.refusals for vendor in vendors] == [[], []]


async def test_a_thread_goes_on_where_it_is_kept(serve: Serve) -> None:
    async with at(serve, [ANTHROPIC, OPENAI], mode="race") as (running, vendors):
        only = {"provider": {"only": ["anthropic0"]}}
        _, said, _ = await asked(running, CREATE, "say: hi", **only)
        for _ in range(3):
            status, said, told = await asked(running, next_of(said), "say: more")
            assert (status, told["x-holeshot-provider"], told["x-holeshot-launched"]) == (200, "anthropic0", "1"), said
        assert vendors[1].seen == []


@pytest.mark.parametrize("other", [OPENAI, VLLM])
async def test_the_next_turn_after_anothers_answer_is_told_to_send_all(serve: Serve, other: tuple[str, str]) -> None:
    async with at(serve, [ANTHROPIC, other]) as (running, vendors):
        _, said, _ = await asked(running, CREATE, f"fail: 500 at {ANTHROPIC[1]}\nsay: hi")
        before = [len(vendor.seen) for vendor in vendors]
        status, told, _ = await asked(running, next_of(said), "say: more")
        assert (status, told["error"]["details"]) == (404, {"error_code": "thread_not_found"}), told
        assert [len(vendor.seen) for vendor in vendors] == before


@pytest.mark.parametrize("stream", [False, True])
async def test_a_next_turn_that_fails_is_told_to_send_all_where_others_can_answer(serve: Serve, stream: bool) -> None:
    for kinds, fallbacks in (([ANTHROPIC, OPENAI], []), ([ANTHROPIC], [OPENAI])):
        async with at(serve, kinds, fallbacks=fallbacks) as (running, _):
            _, said, _ = await asked(running, CREATE, "say: hi", provider={"only": ["anthropic0"]})
            status, told, _ = await asked(running, next_of(said), "fail: 500", stream=stream)
            assert (status, told["error"]["details"]) == (404, {"error_code": "thread_not_found"}), told


async def test_a_next_turn_that_fails_where_nobody_else_can_answer_is_told_as_it_is(serve: Serve) -> None:
    async with at(serve, [ANTHROPIC]) as (running, _):
        _, said, _ = await asked(running, CREATE, "say: hi")
        status, told, _ = await asked(running, next_of(said), "fail: 500")
        assert status == 502
        assert "details" not in told["error"]


async def test_a_field_of_that_name_in_another_api_is_no_thread(serve: Serve) -> None:
    async with at(serve, [ANTHROPIC, VLLM], mode="race") as (running, [claude, server]):
        body = {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "thread": CREATE}
        async with running.post(body) as response:
            assert response.status == 200
        assert (len(claude.seen), len(server.seen)) == (0, 1)  # who does not take it is not asked
