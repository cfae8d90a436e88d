"""The stand-in of OpenRouter takes what its reference has, and passes on what the vendors behind it refuse."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, WEATHER, called, chat, result

CLAUDE, GPT, GEMINI = "anthropic/claude-sonnet-4.5", "openai/gpt-4o", "google/gemini-3.1-pro-preview"
GUARD = "meta-llama/llama-guard-4-12b"
PICTURE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}


@pytest.fixture
def openrouter() -> Vendor:
    return made("openrouter")


@pytest.mark.parametrize("model", [CLAUDE, GPT, GEMINI])
def test_a_tool_loop_is_taken_and_unknown_fields_are_passed_over(openrouter: Vendor, model: str) -> None:
    first = chat(openrouter, model, tools=[WEATHER], store=False, reasoning={"effort": "low"})
    message = first.body["choices"][0]["message"]
    second = chat(openrouter, model, USER, message, result(message["tool_calls"][0]["id"]), tools=[WEATHER])
    assert second.body["choices"][0]["message"]["content"] == "The tools said: sunny"
    assert openrouter.refusals == []


def test_calls_of_gemini_without_their_details_are_refused(openrouter: Vendor) -> None:
    came = chat(openrouter, GEMINI, USER, called("call_1"), result("call_1"), tools=[WEATHER])
    error = came.body["error"]
    assert (came.status, error["message"], error["code"]) == (400, "Provider returned error", 400)
    assert error["metadata"]["provider_name"] == "Google AI Studio"
    assert error["metadata"]["raw"].startswith(
        "Gemini models require OpenRouter reasoning details to be preserved in each"
    )
    foreign = called("call_1", reasoning_details=[{"type": "reasoning.encrypted", "data": "AAAA"}])
    raw = chat(openrouter, GEMINI, USER, foreign, result("call_1"), tools=[WEATHER]).body["error"]["metadata"]["raw"]
    assert "Corrupted thought signature." in raw


def test_the_details_of_a_stream_are_taken_back(openrouter: Vendor) -> None:
    events = chat(openrouter, GEMINI, tools=[WEATHER], stream=True).events
    deltas = [event["choices"][0]["delta"] for event in events]
    details = [each for delta in deltas for each in delta.get("reasoning_details", ())]
    assert {each["type"] for each in details} == {"reasoning.text", "reasoning.encrypted"}
    message = called("call_1", reasoning_details=details)
    assert chat(openrouter, GEMINI, USER, message, result("call_1"), tools=[WEATHER]).status == 200


@pytest.mark.parametrize(
    ("model", "messages", "fields", "status", "said"),
    [
        (
            GUARD,
            [USER],
            {"tools": [WEATHER]},
            404,
            'No endpoints found that support tool use. Try disabling "get_weather".',
        ),
        ("meta-llama/llama-3.3-70b-instruct", [PICTURE], {}, 404, "No endpoints found that support image input"),
        ("x/y", [USER], {}, 400, "x/y is not a valid model ID"),
        (
            GEMINI,
            [USER],
            {"reasoning": {"effort": "none"}},
            400,
            "Reasoning is mandatory for this endpoint and cannot be",
        ),
        (CLAUDE, [USER], {"reasoning": {"effort": "low", "max_tokens": 9}}, 400, 'Only one of "reasoning.effort" and'),
        (GPT, [USER], {"max_tokens": 200_000}, 400, "This endpoint's maximum context length is 128000 tokens."),
        (GPT, [USER, called("a"), USER], {}, 400, "Provider returned error"),
    ],
)
def test_what_no_vendor_takes_is_refused(  # noqa: PLR0917 - a table
    openrouter: Vendor, model: str, messages: list[Any], fields: Any, status: int, said: str
) -> None:
    came = chat(openrouter, model, *messages, **fields)
    assert came.status == status
    assert came.body["error"]["message"].startswith(said)
    assert came.body["error"]["code"] == status


def test_a_stream_begins_with_a_comment_and_ends_with_the_price(openrouter: Vendor) -> None:
    came = chat(openrouter, GPT, stream=True)
    assert came.text.startswith(": OPENROUTER PROCESSING\n\n")
    assert came.events[-1]["usage"]["cost"]
    assert came.events[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_way_to_a_model_is_the_same_model(openrouter: Vendor) -> None:
    assert chat(openrouter, f"{GPT}:nitro").status == 200


def test_thoughts_of_an_open_model_are_plain_and_some_models_always_have_them(openrouter: Vendor) -> None:
    came = chat(openrouter, "openai/gpt-oss-120b", tools=[WEATHER])
    assert came.body["provider"] != "OpenAI"
    assert {each["type"] for each in came.body["choices"][0]["message"]["reasoning_details"]} == {"reasoning.text"}
    assert chat(openrouter, "openai/gpt-oss-120b", reasoning={"effort": "none"}).status == 400
    assert "reasoning_details" not in chat(openrouter, "moonshotai/kimi-k2.6").body["choices"][0]["message"]
