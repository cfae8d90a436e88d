"""The stand-in of OpenAI has GPT-6.2: its reasoning is bound to what came before, its instructions are never cached."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import Came, ask, chat

TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASTRA, SOL = "gpt-6.2-astra", "gpt-6.2-sol"
ASK = {"role": "user", "content": "weather, twice"}
LONG = "You are a coding agent. Read before you write. " * 200
DEVELOPER = {"role": "developer", "content": LONG}


@pytest.fixture
def openai() -> Vendor:
    return made("openai")


def respond(vendor: Vendor, *items: Any, model: str = ASTRA, **fields: Any) -> Came:
    body = {"model": model, "input": [*items], "store": False, "include": ["reasoning.encrypted_content"], **fields}
    return ask(vendor, "/v1/responses", {"tools": [TOOL], **body})


def gone_on(*items: Any, answer: Came) -> list[Any]:
    output = answer.body["output"]
    calls = [each["call_id"] for each in output if each["type"] == "function_call"]
    results = [{"type": "function_call_output", "call_id": each, "output": "rain"} for each in calls]
    return [*items, *output, *results]


def dropped(came: Came) -> list[str]:
    assert came.status == 200, came.body
    return [each["reason"] for each in came.body["input_transformations"]]


@pytest.mark.parametrize("model", [ASTRA, SOL])
def test_reasoning_is_dropped_where_the_beginning_is_another(openai: Vendor, model: str) -> None:
    first = gone_on(ASK, answer=respond(openai, ASK, model=model))
    second = gone_on(*first, answer=respond(openai, *first, model=model))
    again = respond(openai, *second, model=model, instructions="It is noon.")  # these are none of the beginning
    assert dropped(again) == []
    edited = [each if each.get("output") is None else {**each, "output": "snow"} for each in second]
    assert dropped(respond(openai, *edited, model=model)) == [
        "prefix_mismatch"
    ]  # what was thought before the edit stays
    assert dropped(respond(openai, *second, model=model, tools=[])) == ["prefix_mismatch"] * 2
    form = {"format": {"type": "json_object"}}
    said = [*second, {"role": "user", "content": "as json"}]
    assert dropped(respond(openai, *said, model=model, text=form)) == ["prefix_mismatch"] * 2
    assert dropped(respond(openai, *second, model=model, safety_identifier="ann")) == ["end_user_mismatch"] * 2
    told = respond(openai, *edited, model=model).body["input_transformations"]
    assert told[0]["id"] == next(each["id"] for each in second[::-1] if each.get("type") == "reasoning")


def test_reasoning_is_dropped_where_its_account_or_a_lesser_model_reads_it(openai: Vendor) -> None:
    said = gone_on(ASK, answer=respond(openai, ASK))
    assert dropped(respond(made("openai"), *said)) == []
    assert dropped(respond(made("openai", key="sk-another"), *said)) == ["organization_mismatch"]
    assert dropped(respond(openai, *said, model=SOL)) == ["model_mismatch"]
    from_sol = gone_on(ASK, answer=respond(openai, ASK, model=SOL))
    assert dropped(respond(openai, *from_sol)) == []


def test_what_is_stored_is_dropped_likewise(openai: Vendor) -> None:
    first = respond(openai, ASK, store=True)
    results = [each for each in gone_on(answer=first) if each["type"] == "function_call_output"]
    on: dict[str, Any] = {"previous_response_id": first.body["id"], "store": True}
    assert dropped(respond(openai, *results, **on)) == []
    assert dropped(respond(openai, *results, tools=[{**TOOL, "description": "Tells it."}], **on)) == ["prefix_mismatch"]


def test_older_models_keep_their_reasoning_and_tell_nothing(openai: Vendor) -> None:
    said = gone_on(ASK, answer=respond(openai, ASK, model="gpt-6-astra"))
    came = respond(openai, *said, model="gpt-6-astra", tools=[{**TOOL, "description": "Tells it."}])
    assert (came.status, "input_transformations" in came.body) == (200, False)


@pytest.mark.parametrize("model", [ASTRA, "gpt-5"])
def test_instructions_of_the_newest_stand_behind_the_input_where_no_cache_has_them(openai: Vendor, model: str) -> None:
    def cached(*items: Any, **fields: Any) -> int:
        return int(
            respond(openai, *items, model=model, **fields).body["usage"]["input_tokens_details"]["cached_tokens"]
        )

    more = [ASK, {"role": "user", "content": "say: more"}]
    assert cached(DEVELOPER, *more[:1]) == 0
    assert cached(DEVELOPER, *more) > 2000
    assert cached({**DEVELOPER, "content": f"Now: {LONG}"}, *more) == 0
    assert cached(DEVELOPER, *more, tools=[]) == 0
    assert cached(*more[:1], instructions=LONG) == 0
    assert (cached(*more, instructions=LONG) > 2000) is (model != ASTRA)


def test_a_prompt_of_chat_is_cached_too(openai: Vendor) -> None:
    said = [{"role": "system", "content": LONG}, {"role": "user", "content": "Hello"}]
    assert chat(openai, "gpt-4.1", *said).body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    more = [*said, {"role": "assistant", "content": "Hi"}, said[1]]
    assert chat(openai, "gpt-4.1", *more).body["usage"]["prompt_tokens_details"]["cached_tokens"] > 2000


@pytest.mark.parametrize("model", [ASTRA, SOL])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning": {"effort": "none"}}, "reasoning.effort"),
        ({"temperature": 0.5}, "temperature"),
        ({"top_p": 0.5}, "top_p"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"service_tier": "flex"}, "service_tier"),
    ],
)
def test_what_they_do_not_take(openai: Vendor, model: str, fields: dict[str, Any], param: str) -> None:
    came = respond(openai, ASK, model=model, **fields)
    assert (came.status, came.body["error"]["param"]) == (400, param)
    assert came.page.startswith("https://")


def test_tools_are_only_in_responses(openai: Vendor) -> None:
    inner = {name: value for name, value in TOOL.items() if name != "type"}
    came = chat(openai, ASTRA, tools=[{"type": "function", "function": inner}])
    assert came.status == 400
    assert came.body["error"]["message"].startswith("Function tools with reasoning_effort are not supported")
    assert chat(openai, ASTRA).status == 200


def test_an_answer_may_have_words_beside_calls_and_more_than_one_reasoning_item(openai: Vendor) -> None:
    asked = {"role": "user", "content": "think: one\nthink: two\nbeside: I look.\ncall: get_weather {}"}
    for stream in (False, True):
        came = respond(openai, asked, stream=stream, reasoning={"summary": "auto"})
        output = came.events[-1]["response"]["output"] if stream else came.body["output"]
        assert [each["type"] for each in output] == ["reasoning", "message", "reasoning", "function_call"]
        assert [each["summary"][0]["text"] for each in output[::2]] == ["one", "two"]
        result = {"type": "function_call_output", "call_id": output[-1]["call_id"], "output": "rain"}
        assert dropped(respond(openai, asked, *output, result)) == []
        assert dropped(respond(openai, asked, output[0], *output[2:], result)) == ["prefix_mismatch"]


def test_settings_change_by_an_item_at_the_end(openai: Vendor) -> None:
    said = gone_on(ASK, answer=respond(openai, ASK, tools=[{**TOOL, "async": True}]))
    harder = {"type": "configuration_update", "reasoning": {"effort": "high"}}
    assert dropped(respond(openai, *said, harder, tools=[{**TOOL, "async": True}])) == []
