"""The openai package, unchanged but for its base_url."""

from collections.abc import Sequence
from typing import Any

import pytest

from providers.simulator import Done, Finish, Headers, Reasoning, RoleOnly, Step, ToolCall, UsageChunk, answer
from tests.app.gateway.running_gateway import MODEL, PROMPT, Serve, single

TWO_TOOLS: Sequence[Step] = (
    RoleOnly(),
    ToolCall(name="weather", id="call_a", index=0),
    ToolCall('{"city":', index=0),
    ToolCall(name="time", id="call_b", index=1),
    ToolCall('"Paris"}', index=0),
    ToolCall('{"zone": "CET"}', index=1),
    Finish("tool_calls"),
    UsageChunk(),
    Done(),
)


async def test_a_streamed_chat_arrives_delta_by_delta(serve: Serve) -> None:
    async with serve(alpha=answer("Hel", "lo", "!")) as running:
        stream = await running.sdk.chat.completions.create(model=MODEL, messages=PROMPT, stream=True)
        deltas = [chunk.choices[0].delta.content async for chunk in stream]
    assert [delta for delta in deltas if delta] == ["Hel", "lo", "!"]


async def test_a_chat_that_is_not_streamed_is_one_answer_with_usage(serve: Serve) -> None:
    async with serve(alpha=answer("Hel", "lo")) as running:
        completion = await running.sdk.chat.completions.create(model=MODEL, messages=PROMPT)
        assert running["alpha"].received[0].body["stream"] is True  # so that it can be raced and measured
    assert completion.object == "chat.completion"
    assert completion.choices[0].message.content == "Hello"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 2


async def test_usage_comes_with_the_stream_when_it_is_asked_for(serve: Serve) -> None:
    async with serve(alpha=answer("a", "b")) as running:
        stream = await running.sdk.chat.completions.create(
            model=MODEL, messages=PROMPT, stream=True, stream_options={"include_usage": True}
        )
        usages = [chunk.usage async for chunk in stream]
    assert usages[-1] is not None
    assert usages[-1].total_tokens == 12


async def test_parallel_tool_calls_in_pieces_are_streamed_as_they_come(serve: Serve) -> None:
    async with serve(alpha=TWO_TOOLS) as running:
        stream = await running.sdk.chat.completions.create(model=MODEL, messages=PROMPT, stream=True)
        calls: dict[int, list[str]] = {}
        names: dict[int, str | None] = {}
        async for chunk in stream:
            for piece in chunk.choices[0].delta.tool_calls or ():
                assert piece.function is not None
                names.setdefault(piece.index, piece.function.name)
                calls.setdefault(piece.index, []).append(piece.function.arguments or "")
    assert names == {0: "weather", 1: "time"}
    assert {index: "".join(pieces) for index, pieces in calls.items()} == {0: '{"city":"Paris"}', 1: '{"zone": "CET"}'}


async def test_parallel_tool_calls_in_pieces_are_put_together_without_a_stream(serve: Serve) -> None:
    async with serve(alpha=TWO_TOOLS) as running:
        completion = await running.sdk.chat.completions.create(model=MODEL, messages=PROMPT)
    calls: list[Any] = list(completion.choices[0].message.tool_calls or ())
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("call_a", "weather", '{"city":"Paris"}'),
        ("call_b", "time", '{"zone": "CET"}'),
    ]
    assert completion.choices[0].finish_reason == "tool_calls"


async def test_the_sdks_own_stream_helper_accumulates_the_whole(serve: Serve) -> None:
    async with (
        serve(alpha=TWO_TOOLS) as running,
        running.sdk.chat.completions.stream(model=MODEL, messages=PROMPT) as run,
    ):
        completion = await run.get_final_completion()
    calls: list[Any] = list(completion.choices[0].message.tool_calls or ())
    assert [call.function.name for call in calls] == ["weather", "time"]


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_reasoning_keeps_the_name_its_provider_gives_it(serve: Serve, field: str) -> None:
    script = [RoleOnly(), Reasoning("Hm", field), Reasoning("m", field), *answer("Yes")[1:]]
    async with serve(alpha=script) as running:
        completion = await running.sdk.chat.completions.create(model=MODEL, messages=PROMPT)
    message = completion.choices[0].message
    assert (message.content, (message.model_extra or {})[field]) == ("Yes", "Hmm")


async def test_response_headers_say_who_answered_and_how(serve: Serve) -> None:
    script = [Headers({"x-request-id": "req-up", "x-ratelimit-remaining-requests": "9"}), *answer("Hi")]
    async with serve(alpha=script, config=single()) as running:
        raw = await running.sdk.chat.completions.with_raw_response.create(model=MODEL, messages=PROMPT)
        call = await running.call()
    headers = raw.headers
    assert headers["x-holeshot-call-id"] == call["id"]
    assert headers["x-holeshot-provider"] == "alpha"
    assert headers["x-holeshot-deployment"] == "alpha/m"
    assert headers["x-holeshot-mode"] == "single"
    assert headers["x-holeshot-launched"] == "1"
    assert float(headers["x-holeshot-ttft-ms"]) == pytest.approx(call["ttft_ms"], abs=0.1)
    assert float(headers["x-holeshot-overhead-ms"]) >= 0
    assert headers["x-holeshot-upstream-request-id"] == "req-up"
    assert headers["x-ratelimit-remaining-requests"] == "9"


async def test_a_streamed_answer_has_the_same_headers(serve: Serve) -> None:
    async with serve(alpha=answer("Hi")) as running:
        raw = await running.sdk.chat.completions.with_raw_response.create(model=MODEL, messages=PROMPT, stream=True)
        assert [chunk async for chunk in raw.parse()]
        call = await running.call()
    assert raw.headers["x-holeshot-call-id"] == call["id"]
    assert raw.headers["x-holeshot-ttft-ms"]
    assert raw.headers["content-type"].startswith("text/event-stream")


async def test_the_cost_is_told_where_prices_are_known(serve: Serve) -> None:
    deployment = {"deployment": "alpha/m", "price_per_mtok": {"input": 1.0, "output": 2.0}}
    async with serve(config={"models": {MODEL: {"deployments": [deployment]}}}) as running:
        raw = await running.sdk.chat.completions.with_raw_response.create(model=MODEL, messages=PROMPT)
    assert float(raw.headers["x-holeshot-cost-usd"]) == pytest.approx(10 * 1e-6 + 3 * 2e-6)


async def test_embeddings_come_one_for_each_input(serve: Serve) -> None:
    async with serve() as running:
        answered = await running.sdk.embeddings.create(model=MODEL, input=["one", "two"], encoding_format="float")
        assert running["alpha"].received[0].body["model"] == "m"
        call = await running.call()
    assert [len(item.embedding) for item in answered.data] == [8, 8]
    assert (call["endpoint"], call["status_code"], call["launched"]) == ("embeddings", 200, 1)


async def test_models_are_listed_and_described(serve: Serve) -> None:
    async with serve() as running:
        listed = [model.id async for model in running.sdk.models.list()]
        described = await running.sdk.models.retrieve(MODEL)
    assert listed == [MODEL]
    assert (described.id, described.owned_by) == (MODEL, "holeshot")
