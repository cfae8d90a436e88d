"""The stand-in of xAI takes what its reference has, and refuses the rest with its status and words."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, WEATHER, ask, chat, result

GROK = "grok-4.5"


@pytest.fixture
def xai() -> Vendor:
    return made("xai")


@pytest.mark.parametrize("model", [GROK, "grok-4.3", "grok-4.20-0309-non-reasoning"])
def test_a_tool_loop_is_taken_and_unknown_fields_are_passed_over(xai: Vendor, model: str) -> None:
    first = chat(xai, model, tools=[WEATHER], store=False, prompt_cache_key="a")
    message = first.body["choices"][0]["message"]
    second = chat(xai, model, USER, message, result(message["tool_calls"][0]["id"]), tools=[WEATHER])
    assert second.body["choices"][0]["message"]["content"] == "The tools said: sunny"
    assert xai.refusals == []


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        (GROK, {"presence_penalty": 0}, "Model grok-4.5 does not support parameter presencePenalty."),
        (GROK, {"frequency_penalty": 0}, "Model grok-4.5 does not support parameter frequencyPenalty."),
        (GROK, {"stop": ["a"]}, "Model grok-4.5 does not support parameter stop."),
        (GROK, {"reasoning_effort": "none"}, "Invalid reasoning effort."),
        (
            "grok-4.20-0309-reasoning",
            {"reasoning_effort": "low"},
            "Model grok-4.20-0309-reasoning does not support parameter reasoningEffort.",
        ),
    ],
)
def test_models_refuse_parameters_by_their_names(xai: Vendor, model: str, fields: Any, said: str) -> None:
    came = chat(xai, model, **fields)
    assert (came.status, came.body) == (400, {"code": "invalid-argument", "error": said})


def test_a_message_without_content_is_refused(xai: Vendor) -> None:
    came = chat(xai, GROK, {"role": "user", "content": ""})
    assert came.body["error"] == "Invalid request content: Each message must have at least one content element."


def test_a_prompt_that_is_too_long_is_refused(xai: Vendor) -> None:
    came = chat(xai, GROK, {"role": "user", "content": "word " * 450_000})
    assert came.body["error"].startswith("This model's maximum prompt length is 500000 but the request contains ")


def test_thoughts_are_counted_apart(xai: Vendor) -> None:
    usage = chat(xai, GROK).body["usage"]
    thought = usage["completion_tokens_details"]["reasoning_tokens"]
    assert thought
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] + thought
    assert usage["cost_in_usd_ticks"]


def test_a_call_is_streamed_whole_and_the_last_chunk_has_the_usage(xai: Vendor) -> None:
    events = chat(xai, GROK, tools=[WEATHER], stream=True).events
    calls = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert [call["function"]["arguments"] for call in calls] == ['{"city": "the city"}']
    assert events[-1]["usage"]["total_tokens"]


def test_what_its_reader_cannot_read_is_plain_text(xai: Vendor) -> None:
    came = chat(xai, GROK, {"role": "robot", "content": "Hi"})
    assert came.status == 422
    assert came.body.startswith(b"Failed to deserialize the JSON body into the target type: messages[0].role: unknown")


@pytest.mark.parametrize("kind", ["custom", "namespace", "tool_search", "local_shell"])
def test_responses_refuse_tools_of_another_type(xai: Vendor, kind: str) -> None:
    shapes: dict[str, dict[str, Any]] = {
        "custom": {"name": "patch"},
        "namespace": {"name": "a", "description": "a", "tools": [{"type": "function", "name": "b", "parameters": {}}]},
    }
    tools = [{"type": "web_search"}, {"type": kind, **shapes.get(kind, {})}]
    came = ask(xai, "/v1/responses", {"model": GROK, "input": "Hi", "tools": tools})
    assert (came.status, f"tools[1].type: unknown variant `{kind}`" in str(came.body)) == (422, True)
