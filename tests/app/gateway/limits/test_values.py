"""Requests of very many small values: bounded where they must be built, passed on where they need not be."""

import gc
import json
import threading
from hashlib import sha256
from io import BytesIO
from typing import Any

import pytest

from gateway.core.errors import TooManyValues
from providers.simulator import Raw
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, speaking
from tests.app.gateway.running_gateway import MODEL, Serve

MESSAGES: dict[str, Any] = {"model": MODEL, "max_tokens": 100}
BLOCK = {"type": "text", "text": "x"}


def blocks(number: int) -> list[dict[str, Any]]:
    return [BLOCK] * number


def body_of(path: str, number: int) -> dict[str, Any]:
    """Return a request with ``number`` small blocks in one turn."""
    if path == "/v1/messages":
        return {**MESSAGES, "messages": [{"role": "user", "content": blocks(number)}]}
    if path == "/v1/responses":
        items = [{"type": "input_text", "text": "x"}] * number
        return {"model": MODEL, "input": [{"role": "user", "content": items}]}
    if path == "/v1/chat/completions":
        return {"model": MODEL, "messages": [{"role": "user", "content": blocks(number)}]}
    return {"contents": [{"role": "user", "parts": [{"text": "x"}] * number}]}


def written(body: dict[str, Any]) -> BytesIO:
    """Return a long body in a form that aiohttp's client sends in pieces."""
    return BytesIO(json.dumps(body).encode())


GEMINI = f"/v1beta/models/{MODEL}:generateContent"
OTHER = {"/v1/messages": "chat", "/v1/responses": "chat", "/v1/chat/completions": "messages", GEMINI: "chat"}


@pytest.mark.parametrize("path", OTHER)
async def test_more_values_than_may_be_translated_are_400_in_the_apis_own_shape(serve: Serve, path: str) -> None:
    async with serve(config={"providers": {"alpha": speaking(OTHER[path])}}) as running:
        async with running.post(written(body_of(path, 60_000)), path=path) as response:
            said = await response.json()
            assert response.status == 400, said
        assert "limits.max_values" in json.dumps(said)
        if path == "/v1/messages":
            assert (said["type"], said["error"]["type"]) == ("error", "invalid_request_error")
        elif path == GEMINI:
            assert said["error"]["status"] == "INVALID_ARGUMENT"
        else:
            assert said["error"]["code"] == "too_many_values"
        assert not running["alpha"].received


@pytest.mark.parametrize(
    ("path", "api", "sent"),
    [("/v1/messages", "messages", MESSAGE_BYTES), ("/v1/responses", "responses", RESPONSE_BYTES)],
)
async def test_what_passes_as_bytes_may_have_any_number_of_values(
    serve: Serve, path: str, api: str, sent: bytes
) -> None:
    asked = body_of(path, 60_000)
    async with serve(alpha=[Raw(sent, token=True)], config={"providers": {"alpha": speaking(api)}}) as running:
        async with running.post(written({**asked, "stream": True}), path=path) as response:
            assert (response.status, await response.read()) == (200, sent)
        [received] = running["alpha"].received
        assert received.body | {"model": MODEL} == received.body | asked


async def test_commas_and_brackets_of_a_text_are_no_values(serve: Serve) -> None:
    text = '[{"a":1},{"b":2}],' * 10_000
    async with serve(config={"providers": {"alpha": speaking("chat")}}) as running:
        asked = {**MESSAGES, "messages": [{"role": "user", "content": text}]}
        async with running.post(written(asked), path="/v1/messages") as response:
            assert response.status == 200, await response.text()
        assert running["alpha"].received[0].body["messages"][0]["content"] == text


def agents_request() -> dict[str, Any]:
    """Return the largest request of an agent: 200 tools of ten parameters, and 1,000 messages with their calls."""
    parameters = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string", "description": "What it is for, in a sentence."} for n in range(10)},
        "required": ["p0", "p1"],
        "additionalProperties": False,
    }
    tools = [{"name": f"tool_{n}", "description": "Does it.", "input_schema": parameters} for n in range(200)]
    messages: list[dict[str, Any]] = []
    for n in range(500):
        call = {"type": "tool_use", "id": f"t{n}", "name": f"tool_{n % 200}", "input": {f"p{i}": "x" for i in range(5)}}
        messages.append({"role": "assistant", "content": [{"type": "text", "text": "Now this."}, call]})
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": [{"type": "text", "text": "y" * 500}]}
        messages.append({"role": "user", "content": [result]})
    return {**MESSAGES, "tools": tools, "messages": [{"role": "user", "content": "Go."}, *messages]}


async def test_the_largest_request_of_an_agent_is_translated_in_the_thread(serve: Serve) -> None:
    async with serve(config={"providers": {"alpha": speaking("chat")}}) as running:
        async with running.post(written(agents_request()), path="/v1/messages") as response:
            assert response.status == 200, await response.text()
        [received] = running["alpha"].received
        assert (len(received.body["messages"]), len(received.body["tools"])) == (1_001, 200)
        assert any(each.name.startswith("work") for each in threading.enumerate())
        assert running.gateway.context.bodies.size == 0


async def test_a_short_request_needs_no_thread(serve: Serve) -> None:
    async with serve(config={"providers": {"alpha": speaking("chat")}}) as running:
        async with running.post(body_of("/v1/messages", 10), path="/v1/messages") as response:
            assert response.status == 200
        assert running.gateway.context.work_thread.runs == 0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_field_that_is_read_here_may_not_have_too_many_values_either(serve: Serve, path: str) -> None:
    api = "chat" if "chat" in path else "messages"
    async with serve(config={"providers": {"alpha": speaking(api)}}) as running:
        asked = {**MESSAGES, "messages": [{"role": "user", "content": "Hi"}], "tools": [{}] * 40_000}
        async with running.post(written(asked), path=path) as response:
            said = await response.json()
            assert (response.status, "'tools'" in said["error"]["message"]) == (400, True), said
        assert not running["alpha"].received


async def test_an_operator_may_allow_more_values(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("chat")}, "limits": {"max_values": 200_000}}
    async with serve(config=config) as running:
        async with running.post(written(body_of("/v1/messages", 30_000)), path="/v1/messages") as response:
            assert response.status == 200, await response.text()
        assert len(running["alpha"].received[0].body["messages"][0]["content"]) == 30_000


async def test_another_deployment_in_the_clients_own_api_still_answers(serve: Serve) -> None:
    config = {"providers": {"alpha": speaking("chat"), "beta": speaking("messages")}}
    async with serve(alpha=None, beta=[Raw(MESSAGE_BYTES, token=True)], config=config) as running:
        asked = {**body_of("/v1/messages", 60_000), "stream": True}
        async with running.post(written(asked), path="/v1/messages") as response:
            assert (response.status, await response.read()) == (200, MESSAGE_BYTES)
        assert not running["alpha"].received


async def test_the_longest_turn_of_the_loop_is_told_by_what_ran(serve: Serve) -> None:
    async with serve() as running:
        asked = {"model": MODEL, "messages": [{"role": "user", "content": "x" * (2 * 2**20)}]}
        async with running.post(written(asked)) as response:
            assert response.status == 200
        async with running.get("/metrics") as response:
            page = await response.text()
    said = {line.split()[0]: float(line.split()[1]) for line in page.splitlines() if "longest_turn_seconds{" in line}
    assert said.keys() == {
        f'holeshot_loop_longest_turn_seconds{{work="{work}"}}' for work in ("any", "body", "request")
    }
    assert all(0 <= seconds < 60 for seconds in said.values())


async def test_a_client_with_too_little_left_has_nothing_translated(serve: Serve) -> None:
    deployment = {"deployment": "alpha/m", "price_per_mtok": {"input": 5.0, "output": 5.0}}
    mine = {"key_sha256": sha256(b"hs-mine").hexdigest(), "usd_per_day": 0.0001}
    config: dict[str, Any] = {"clients": {"me": mine}, "models": {MODEL: {"deployments": [deployment]}}}
    config["providers"] = {"alpha": speaking("chat")}
    async with serve(config=config, key="hs-mine") as running:
        asked, headers = written(body_of("/v1/messages", 10_000)), {"authorization": "Bearer hs-mine"}
        async with running.post(asked, path="/v1/messages", headers=headers) as response:
            assert response.status == 429, await response.text()
        assert running.gateway.context.work_thread.runs == 0


async def test_no_translation_begins_for_which_there_is_no_memory(serve: Serve) -> None:
    async with serve(config={"providers": {"alpha": speaking("chat")}}) as running:
        bodies = running.gateway.context.bodies
        bodies.most_bytes = 8 * 2**20  # for the body, and not for its objects
        async with running.post(written(body_of("/v1/messages", 16_000)), path="/v1/messages") as response:
            assert response.status == 429, await response.text()
        assert (bodies.size, running["alpha"].received) == (0, [])
        async with running.post(written(body_of("/v1/messages", 3_000)), path="/v1/messages") as response:
            assert response.status == 200, await response.text()


async def test_what_is_refused_leaves_neither_its_frames_nor_its_body_to_the_garbage_collector(serve: Serve) -> None:
    async with serve(config={"providers": {"alpha": speaking("chat")}}) as running:
        gc.collect()
        gc.disable()
        try:
            async with running.post(written(body_of("/v1/messages", 60_000)), path="/v1/messages") as response:
                assert response.status == 400, await response.read()
            await running.gateway.context.work_thread.run(lambda: None)  # the thread has let go of what it did before
            left = [each for each in gc.get_objects() if isinstance(each, TooManyValues)]
        finally:
            gc.enable()
    assert not left
