"""The stand-in of Gemini's chat completions refuses as generateContent does, in a list of one."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, WEATHER, called, chat, result

NEW, FLASH, PRO = "gemini-3.5-flash", "gemini-2.5-flash", "gemini-2.5-pro"


@pytest.fixture
def google() -> Vendor:
    return made("gemini")


def words(came: Any) -> str:
    return str(came.body[0]["error"]["message"])


def test_signatures_go_both_ways_in_extra_content(google: Vendor) -> None:
    message = chat(google, NEW, tools=[WEATHER]).body["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert call["extra_content"]["google"]["thought_signature"]
    done = result(call["id"])
    assert chat(google, NEW, USER, message, done, tools=[WEATHER]).status == 200
    unsigned = chat(google, NEW, USER, called(call["id"]), done, tools=[WEATHER])
    assert unsigned.status == 400
    assert words(unsigned).startswith("Function call is missing a thought_signature in functionCall parts.")
    word = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    turn = called(call["id"])
    turn["tool_calls"][0]["extra_content"] = word
    assert chat(google, NEW, USER, turn, done, tools=[WEATHER]).status == 200
    word["google"]["thought_signature"] = "another's"
    assert words(chat(google, NEW, USER, turn, done, tools=[WEATHER])) == "Corrupted thought signature."


def test_each_call_of_a_stream_comes_whole_and_is_numbered_0(google: Vendor) -> None:
    both = {"role": "user", "content": "parallel"}
    tools = [WEATHER, {"type": "function", "function": {**WEATHER["function"], "name": "get_time"}}]  # type: ignore[dict-item]
    events = chat(google, NEW, both, tools=tools, stream=True).events
    calls = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert [call["index"] for call in calls] == [0, 0]
    assert ["extra_content" in call for call in calls] == [True, False]


@pytest.mark.parametrize(
    ("model", "messages", "fields", "status", "said"),
    [
        (
            FLASH,
            [USER],
            {"prompt_cache_key": "x"},
            400,
            'Invalid JSON payload received. Unknown name "prompt_cache_key": Cannot find field.',
        ),
        (
            FLASH,
            [USER],
            {"extra_body": {"google": {"thinking": 1}}},
            400,
            "Invalid JSON payload received. Unknown name \"thinking\" at 'extra_body.google': Cannot find field.",
        ),
        (
            PRO,
            [USER],
            {"reasoning_effort": "none"},
            400,
            "Budget 0 is invalid. This model only works in thinking mode.",
        ),
        (FLASH, [USER, result("a")], {}, 400, "Please ensure that function response turn comes immediately after"),
        (
            FLASH,
            [USER, called("a"), USER],
            {},
            400,
            "Please ensure that the number of function response parts is equal",
        ),
        (FLASH, [{"role": "system", "content": "Hi"}], {}, 400, "* GenerateContentRequest.contents: contents is not"),
        ("gemini-9", [USER], {}, 404, "models/gemini-9 is not found for API version v1main"),
    ],
)
def test_what_it_does_not_take_is_refused(  # noqa: PLR0917 - a table
    google: Vendor, model: str, messages: list[Any], fields: Any, status: int, said: str
) -> None:
    came = chat(google, model, *messages, **fields)
    assert came.status == status
    assert words(came).startswith(said)
    assert came.page


def test_thoughts_of_others_in_a_history_are_passed_over(google: Vendor) -> None:
    answered: dict[str, Any] = {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "Hm",
        "refusal": None,
        "annotations": [],
    }
    assert chat(google, f"models/{FLASH}", USER, answered, USER, parallel_tool_calls=True).status == 200
