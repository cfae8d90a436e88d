"""The stand-ins of Groq, xAI and OpenRouter have Responses, of which only xAI's keep something."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import WEATHER, ask

MODELS = {"groq": "openai/gpt-oss-120b", "xai": "grok-4.5", "openrouter": "anthropic/claude-sonnet-4.5"}
FUNCTION = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item] # the one of chat
SEALED = {"include": ["reasoning.encrypted_content"]}


def respond(vendor: Vendor, given: Any, **fields: Any) -> Any:
    return ask(vendor, f"{vendor.base}/responses", {"model": MODELS[vendor.name], "input": given, **fields})


def words(came: Any) -> str:
    error = came.body["error"]
    return str(error if isinstance(error, str) else error["message"])


@pytest.mark.parametrize("name", MODELS)
def test_a_loop_of_tools_goes_on_with_all_that_was_answered(name: str) -> None:
    vendor = made(name)
    first = respond(vendor, "Hello", tools=[FUNCTION])
    call = first.body["output"][-1]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    history = [{"role": "user", "content": "Hello"}, *first.body["output"], output]
    second = respond(vendor, history, tools=[FUNCTION], store=False)
    assert second.body["output"][-1]["content"][0]["text"] == "The tools said: sunny"
    events = respond(vendor, history, tools=[FUNCTION], stream=True).events
    assert events[-1]["type"] == "response.completed"


def test_groqs_thoughts_are_told_in_the_clear() -> None:
    thoughts = respond(made("groq"), "Hello").body["output"][0]
    assert thoughts["content"] == [{"type": "reasoning_text", "text": "Let me think about it."}]


@pytest.mark.parametrize(
    ("name", "field", "value", "said"),
    [
        ("groq", "previous_response_id", "resp_1", "property 'previous_response_id' is unsupported"),
        ("groq", "store", True, "property 'store' is unsupported"),
        ("groq", "include", ["reasoning.encrypted_content"], "property 'include' is unsupported"),
        ("groq", "prompt_cache_key", "a", "property 'prompt_cache_key' is unsupported"),
        ("openrouter", "store", True, "Invalid input: store: expected false, received true"),
        ("openrouter", "previous_response_id", "a", 'Invalid input: previous_response_id: expected null, received "a"'),
        ("xai", "previous_response_id", "a", "Response with id=a not found."),
    ],
)
def test_what_is_not_kept_cannot_be_gone_on_from(name: str, field: str, value: Any, said: str) -> None:
    came = respond(made(name), "Hello", **{field: value})
    assert came.status in {400, 404}
    assert words(came) == said
    assert came.page


def test_xais_responses_are_kept_with_all_before_them() -> None:
    vendor = made("xai")
    first = respond(vendor, "Hello", tools=[FUNCTION]).body
    output = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "sunny"}
    second = respond(vendor, [output], previous_response_id=first["id"], tools=[FUNCTION], stream=True).events
    assert second[-1]["response"]["output"][-1]["content"][0]["text"] == "The tools said: sunny"
    third = respond(vendor, "And now?", previous_response_id=second[-1]["response"]["id"])
    assert third.status == 200
    twice = respond(vendor, "And now?", previous_response_id=first["id"], instructions="Be kind")
    assert words(twice) == "Argument not supported: instructions and previous_response_id together"
    unkept = respond(vendor, "Hello", store=False).body
    assert respond(vendor, "And now?", previous_response_id=unkept["id"]).status == 404


def test_xai_opens_only_thoughts_that_it_sealed() -> None:
    vendor = made("xai")
    thoughts = respond(vendor, "Hello", **SEALED).body["output"][0]
    assert respond(vendor, [thoughts, {"role": "user", "content": "Hi"}], **SEALED).status == 200
    others = {**thoughts, "encrypted_content": "gAAAAAB of another"}
    assert words(respond(vendor, [others])).startswith("Could not decrypt the provided encrypted_content.")
    bare = {name: value for name, value in thoughts.items() if name != "summary"}
    assert words(respond(vendor, [bare])).startswith("Could not decode the compaction blob.")


@pytest.mark.parametrize(
    ("name", "said"), [("groq", "`reasoning_effort` is not supported"), ("xai", "Model grok-4.20-")]
)
def test_an_effort_is_refused_in_responses_as_in_chat(name: str, said: str) -> None:
    model = {"groq": "llama-3.3-70b-versatile", "xai": "grok-4.20-0309-non-reasoning"}[name]
    assert words(respond(made(name), "Hello", model=model, reasoning={"effort": "low"})).startswith(said)
