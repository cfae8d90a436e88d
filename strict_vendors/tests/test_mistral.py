"""The stand-in of Mistral takes what its document has, and refuses the rest with its status and words."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, WEATHER, called, chat, result

LARGE, SMALL = "mistral-large-latest", "mistral-small-latest"
_MODELS = {"mistral": LARGE, "openrouter": "anthropic/claude-sonnet-4.5", "xai": "grok-4.5"}
ID, OTHER = "abcDEF123", "abcDEF124"


@pytest.fixture
def mistral() -> Vendor:
    return made("mistral")


def test_a_tool_loop_with_its_own_ids_is_taken(mistral: Vendor) -> None:
    first = chat(mistral, LARGE, tools=[WEATHER], parallel_tool_calls=True)
    message = first.body["choices"][0]["message"]
    call_id = message["tool_calls"][0]["id"]
    assert len(call_id) == 9
    second = chat(mistral, LARGE, USER, message, result(call_id), tools=[WEATHER])
    assert second.body["choices"][0]["message"]["content"] == "The tools said: sunny"
    assert mistral.refusals == []


@pytest.mark.parametrize("vendor", ["mistral", "openrouter", "xai"])
def test_a_tool_that_the_vendor_runs_is_none_of_those_that_the_script_calls(vendor: str) -> None:
    stand_in = made(vendor)
    came = chat(stand_in, _MODELS[vendor], tools=[WEATHER, {"type": "web_search"}])
    assert [each["function"]["name"] for each in came.body["choices"][0]["message"]["tool_calls"]] == ["get_weather"]
    assert stand_in.refusals == []


@pytest.mark.parametrize("field", ["max_completion_tokens", "stream_options", "user", "store", "seed", "logit_bias"])
def test_a_field_that_its_document_does_not_name_is_a_422(mistral: Vendor, field: str) -> None:
    came = chat(mistral, LARGE, **{field: 1})
    assert (came.status, came.rule) == (422, "field unknown")
    (detail,) = came.body["detail"]
    assert (detail["type"], detail["loc"]) == ("extra_forbidden", ["body", field])
    assert detail["msg"] == "Extra inputs are not permitted"


@pytest.mark.parametrize("field", ["reasoning_content", "refusal", "annotations", "name"])
def test_a_field_of_the_assistants_turn_that_it_does_not_name_is_a_422(mistral: Vendor, field: str) -> None:
    came = chat(mistral, LARGE, USER, {"role": "assistant", "content": "Hi", field: "x"}, USER)
    assert came.status == 422
    assert came.body["detail"][0]["loc"] == ["body", "messages", 1, "assistant", field]


def refused(came: Any) -> tuple[int, str, str, str]:
    return came.status, came.body["type"], came.body["code"], came.body["message"]


def test_ids_of_another_form_are_refused(mistral: Vendor) -> None:
    came = chat(mistral, LARGE, USER, called("call_0123456789"), result("call_0123456789"), tools=[WEATHER])
    words = "Tool call id was call_0123456789 but must be a-z, A-Z, 0-9, with a length of 9."
    assert refused(came) == (400, "invalid_function_call", "3280", words)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([USER, called(ID), result(ID), USER], "Unexpected role 'user' after role 'tool'"),
        ([USER, result(ID)], "Unexpected role 'tool' after role 'user'"),
        ([USER, called(ID), USER], "Not the same number of function calls and responses"),
        ([USER, called(ID), result(OTHER)], f"Unexpected tool call id {OTHER} in tool results"),
        (
            [USER, {"role": "assistant", "content": "Hi"}, {"role": "system", "content": "Be kind"}, USER],
            "Unexpected role 'system' after role 'assistant'",
        ),
        (
            [USER, {"role": "assistant", "content": "Hi"}],
            "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant",
        ),
    ],
)
def test_an_order_that_its_templates_do_not_have_is_refused(mistral: Vendor, messages: list[Any], words: str) -> None:
    came = chat(mistral, LARGE, *messages)
    if words.startswith("Not the same"):
        assert came.status == 400
        assert came.body["message"] == words
    else:
        assert refused(came) == (400, "invalid_request_message_order", "3230", words)


def test_a_prefix_is_taken(mistral: Vendor) -> None:
    assert chat(mistral, LARGE, USER, {"role": "assistant", "content": "He", "prefix": True}).status == 200


def test_a_developer_is_no_role(mistral: Vendor) -> None:
    came = chat(mistral, LARGE, {"role": "developer", "content": "Be kind"}, USER)
    assert came.status == 422
    assert came.body["detail"][0]["type"] == "union_tag_invalid"


def test_an_effort_is_refused_by_models_that_have_none(mistral: Vendor) -> None:
    words = "reasoning_effort='high' is not supported for this model"
    assert refused(chat(mistral, LARGE, reasoning_effort="high")) == (
        400,
        "invalid_request_invalid_args",
        "3051",
        words,
    )
    came = chat(mistral, SMALL, reasoning_effort="medium")
    assert came.body["message"].startswith("reasoning_effort='medium' is not supported for this model. Must be one of")
    assert chat(mistral, SMALL, reasoning_effort="none").status == 200


def test_thoughts_are_part_of_the_content_and_are_taken_back(mistral: Vendor) -> None:
    came = chat(mistral, SMALL, reasoning_effort="high")
    message = came.body["choices"][0]["message"]
    assert [part["type"] for part in message["content"]] == ["thinking", "text"]
    assert chat(mistral, SMALL, USER, message, USER).status == 200
    streamed = chat(mistral, SMALL, reasoning_effort="high", stream=True)
    first = streamed.events[1]["choices"][0]["delta"]["content"]
    assert first[0]["thinking"][0]["text"] == "Let "
    assert streamed.events[-1]["usage"]["completion_tokens"]


def test_a_call_is_streamed_in_one_piece(mistral: Vendor) -> None:
    came = chat(mistral, LARGE, tools=[WEATHER], stream=True)
    calls = [call for event in came.events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert [call["function"]["arguments"] for call in calls] == ['{"city": "the city"}']


def test_a_prompt_that_is_too_long_is_refused(mistral: Vendor) -> None:
    came = chat(mistral, LARGE, max_tokens=300_000)
    assert came.rule == "context"
    assert "too large for model with 262144 maximum context length" in came.body["message"]
