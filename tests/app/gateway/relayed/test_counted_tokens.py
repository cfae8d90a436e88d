"""Counted tokens: by a provider, or estimated."""

from typing import Any

import pytest

from tests.app.gateway.relayed.samples import MESSAGE, NO_SUCH_PATH, Open, says
from tests.app.gateway.running_gateway import MODEL


async def test_tokens_are_counted_by_whoever_speaks_messages(opened: Open) -> None:
    config: dict[str, Any] = {"providers": {"alpha": {"apis": ["chat"]}, "beta": {"apis": ["messages"]}}}
    deployments: list[Any] = ["alpha/m", {"deployment": "beta/m", "extra_body": {"temperature": 1}}]
    config["models"] = {MODEL: {"deployments": deployments}}
    async with opened(alpha=[], beta=[says({"input_tokens": 42})], config=config) as (running, upstreams):
        async with running.post(MESSAGE, path="/v1/messages/count_tokens", headers={"anthropic-beta": "x"}) as response:
            assert (response.status, await response.json()) == (200, {"input_tokens": 42})
        assert "x-holeshot-estimated" not in response.headers
        [received] = upstreams["beta"].received
        assert (received.path, received.body) == ("/v1/messages/count_tokens", {**MESSAGE, "model": "m"})
        assert received.headers["anthropic-beta"] == "x"
        call = await running.call()
    assert (call["endpoint"], call["status_code"]) == ("messages.count_tokens", 200)
    assert (call["prompt_tokens"], call["cost_usd"]) == (None, None)


@pytest.mark.parametrize(("preset", "is_kept"), [("anthropic", False), ("deepseek", True)])
async def test_thoughts_that_are_not_sent_are_not_counted(opened: Open, preset: str, is_kept: bool) -> None:
    config = {"providers": {"alpha": {"preset": preset, "apis": ["messages"]}}}
    thoughts = [{"type": "thinking", "thinking": "Hm", "signature": each} for each in ("", "google-text:abc")]
    said = {"type": "text", "text": "Hello"}
    turns = [
        *MESSAGE["messages"],
        {"role": "assistant", "content": [*thoughts, said]},
        {"role": "user", "content": "?"},
    ]
    async with opened(alpha=[says({"input_tokens": 42})], config=config) as (running, upstreams):
        async with running.post({**MESSAGE, "messages": turns}, path="/v1/messages/count_tokens") as response:
            assert (response.status, await response.json()) == (200, {"input_tokens": 42})
        [received] = upstreams["alpha"].received
    assert received.body["messages"][1]["content"] == ([thoughts[0], said] if is_kept else [said])


UNSIGNED = {"type": "thinking", "thinking": "Hm"}
GOOGLES = {"type": "thinking", "thinking": "", "signature": "google-text:abc"}
SAID = {"type": "text", "text": "Hello"}
TURNS = [
    *MESSAGE["messages"],
    {"role": "assistant", "content": [UNSIGNED, GOOGLES, SAID]},
    {"role": "user", "content": "?"},
]
BUDGET = {"type": "enabled", "budget_tokens": 2048}


@pytest.mark.parametrize(
    ("preset", "model"),
    [("anthropic", "claude-opus-5"), ("anthropic", "claude-haiku-4-5"), ("anthropic", "m"), ("deepseek", "m")],
)
async def test_a_prompt_is_counted_as_its_model_would_be_sent_it(opened: Open, preset: str, model: str) -> None:
    config = {
        "providers": {"alpha": {"preset": preset, "apis": ["messages"]}},
        "models": {MODEL: {"deployments": [f"alpha/{model}"]}},
    }
    answer = {"type": "message", "role": "assistant", "content": [SAID], "usage": {}}
    asked = {**MESSAGE, "messages": TURNS, "thinking": BUDGET}
    async with opened(alpha=[says({"input_tokens": 42}), says(answer)], config=config) as (running, upstreams):
        async with running.post(asked, path="/v1/messages/count_tokens") as response:
            assert (response.status, await response.json()) == (200, {"input_tokens": 42})
        told = response.headers.get("x-holeshot-dropped")
        async with running.post({**asked, "max_tokens": 4096}, path="/v1/messages") as response:
            assert response.status == 200
        counted, sent = upstreams["alpha"].received
    assert told == response.headers.get("x-holeshot-dropped")
    for field in ("messages", "thinking", "output_config"):
        assert counted.body.get(field) == sent.body.get(field), field


async def test_a_prompt_that_a_call_would_be_refused_for_is_counted_as_asked(opened: Open) -> None:
    deployment = {"deployment": "alpha/claude-opus-5-5", "forced_tools": "refuse"}
    config = {
        "providers": {"alpha": {"preset": "anthropic", "apis": ["messages"]}},
        "models": {MODEL: {"deployments": [deployment]}},
    }
    asked = {**MESSAGE, "tools": [{"name": "look", "input_schema": {"type": "object"}}], "tool_choice": {"type": "any"}}
    async with opened(alpha=[says({"input_tokens": 42})], config=config) as (running, upstreams):
        async with running.post({**asked, "max_tokens": 10}, path="/v1/messages") as response:
            assert response.status == 400
        async with running.post(asked, path="/v1/messages/count_tokens") as response:
            assert (response.status, await response.json()) == (200, {"input_tokens": 42})
        [received] = upstreams["alpha"].received
    assert received.body == {**asked, "model": "claude-opus-5-5"}


async def test_they_are_counted_without_a_beta_that_is_refused(opened: Open) -> None:
    said = "Unexpected value(s) `web-search-2025-03-05` for the `anthropic-beta` header."  # Vertex
    refusal = says({"type": "error", "error": {"type": "invalid_request_error", "message": said}}, status=400)
    sent = {"anthropic-beta": "web-search-2025-03-05,interleaved-thinking-2025-05-14"}
    counted, config = says({"input_tokens": 42}), {"providers": {"alpha": {"apis": ["messages"]}}}
    async with opened(alpha=[refusal, counted, counted], config=config) as (running, upstreams):
        for sendings in (2, 3):
            async with running.post(MESSAGE, path="/v1/messages/count_tokens", headers=sent) as response:
                assert (response.status, await response.json()) == (200, {"input_tokens": 42})
            assert response.headers["x-holeshot-dropped"] == "anthropic-beta: web-search-2025-03-05"
            assert len(upstreams["alpha"].received) == sendings
        assert upstreams["alpha"].received[-1].headers["anthropic-beta"] == "interleaved-thinking-2025-05-14"


async def test_tokens_nobody_can_count_are_estimated(opened: Open) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}}
    config = {"providers": {"alpha": {"apis": ["chat"]}}}
    async with opened(config=config) as (running, upstreams):
        body = {"model": MODEL, "messages": [{"role": "user", "content": [picture]}]}
        headers = {"x-request-id": "mine-2"}
        async with running.post(body, path="/v1/messages/count_tokens", headers=headers) as response:
            counted = (await response.json())["input_tokens"]
        assert (response.status, response.headers["x-holeshot-estimated"]) == (200, "true")
        assert response.headers["request-id"] == "mine-2"
        assert 1000 <= counted <= 1100
        assert upstreams["alpha"].received == []
        assert await running.rows("select * from calls") == []


async def test_tokens_are_estimated_where_a_speaker_of_messages_cannot_count(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["chat", "messages"]}}}
    async with opened(alpha=[NO_SUCH_PATH], config=config) as (running, _):
        for _ in range(3):
            async with running.post(MESSAGE, path="/v1/messages/count_tokens") as response:
                assert (response.status, response.headers["x-holeshot-estimated"]) == (200, "true")
        rows = await running.rows("select status_code, error_kind, launched from calls")
        assert [tuple(row.values()) for row in rows] == [(200, None, 1)] * 3
        [board] = running.gateway.steering.leaderboard(MODEL).deployments
        assert (board.state, board.error_rate) == ("ok", None)


async def test_counting_fails_in_anthropics_words(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["messages"]}}}
    refusal = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    async with opened(alpha=[says(refusal, status=529)], config=config) as (running, _):
        for body, status, kind in (
            (MESSAGE, 503, "overloaded_error"),
            ({"messages": [{}]}, 400, "invalid_request_error"),
            ({"model": MODEL}, 400, "invalid_request_error"),
            ({**MESSAGE, "model": "nobody"}, 404, "not_found_error"),
        ):
            async with running.post(body, path="/v1/messages/count_tokens") as response:
                said = await response.json()
            assert (response.status, said["type"], said["error"]["type"]) == (status, "error", kind)
