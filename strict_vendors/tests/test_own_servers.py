"""The stand-ins of vLLM, Ollama and llama.cpp's server refuse what their source does, and pass over the rest."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import USER, WEATHER, ask, called, chat, result

NAMES = {
    "vllm": "Qwen/Qwen3.5-27B",
    "ollama": "qwen3:8b",
    "ollama_old": "qwen3:8b",
    "llama_cpp": "any-name",
}
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
SHOWN = {"role": "user", "content": [{"type": "text", "text": "Look"}, PICTURE]}
LATE_SYSTEM = [USER, {"role": "assistant", "content": "Hi"}, {"role": "system", "content": "Be kind"}, USER]


@pytest.mark.parametrize(("name", "model"), NAMES.items())
def test_a_tool_loop_is_taken_and_unknown_fields_are_passed_over(name: str, model: str) -> None:
    server = made(name)
    first = chat(server, model, tools=[WEATHER], store=False, prompt_cache_key="a", metadata={"a": 1}, verbosity="low")
    message = first.body["choices"][0]["message"]
    second = chat(server, model, USER, message, result(message["tool_calls"][0]["id"]), tools=[WEATHER])
    assert second.body["choices"][0]["message"]["content"] == "The tools said: sunny"
    assert server.refusals == []


@pytest.mark.parametrize(
    ("name", "field"), [("vllm", "reasoning"), ("ollama", "reasoning"), ("llama_cpp", "reasoning_content")]
)
def test_thoughts_are_told_in_its_own_field(name: str, field: str) -> None:
    assert chat(made(name), NAMES[name]).body["choices"][0]["message"][field] == "Let me think about it."


@pytest.mark.parametrize("name", ["vllm", "ollama"])
def test_a_call_is_streamed_when_it_is_complete(name: str) -> None:
    events = chat(made(name), NAMES[name], tools=[WEATHER], stream=True).events
    calls = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert [call["function"]["arguments"] for call in calls] == ['{"city": "the city"}']


@pytest.mark.parametrize(
    ("name", "model", "messages", "fields", "status", "said"),
    [
        ("vllm", NAMES["vllm"], LATE_SYSTEM, {}, 400, "System message must be at the beginning."),
        ("vllm", "google/gemma-3-27b-it", [USER, USER], {}, 400, "Conversation roles must alternate user/assistant"),
        ("vllm", NAMES["vllm"], [USER], {"tools": []}, 400, "`tools` must not be an empty array."),
        ("vllm", NAMES["vllm"], [USER], {"stream_options": {"include_usage": True}}, 400, "Stream options can only be"),
        ("vllm", NAMES["vllm"], [USER], {"tool_choice": "auto"}, 400, "When using `tool_choice`, `tools` must be set."),
        (
            "vllm",
            NAMES["vllm"],
            [USER],
            {"reasoning_effort": "ultra"},
            400,
            "1 validation error:\n  {'type': 'literal_err",
        ),
        (
            "vllm",
            NAMES["vllm"],
            [USER],
            {"max_tokens": 40_000},
            400,
            "This model's maximum context length is 32768 tokens.",
        ),
        (
            "vllm",
            "meta-llama/Llama-3.3-70B-Instruct",
            [SHOWN],
            {},
            400,
            "At most 0 image(s) may be provided in one prompt.",
        ),
        ("vllm", "other", [USER], {}, 404, "The model `other` does not exist."),
        (
            "ollama",
            "gemma3:4b",
            [USER],
            {"tools": [WEATHER]},
            400,
            "registry.ollama.ai/library/gemma3:4b does not support",
        ),
        ("ollama", "llama3.1:8b", [USER], {"reasoning_effort": "low"}, 400, '"llama3.1:8b" does not support thinking'),
        (
            "ollama",
            "qwen3:8b",
            [USER],
            {"reasoning_effort": "most"},
            400,
            'invalid reasoning value: "most" (must be "min',
        ),
        (
            "ollama",
            "gemma3:4b",
            [SHOWN],
            {},
            400,
            "image URLs are not currently supported, please use base64 encoded data",
        ),
        ("ollama", "qwen3:8b", [called("a", "not JSON"), result("a")], {}, 400, "invalid tool call arguments"),
        ("ollama", "other", [USER], {}, 404, "model 'other' not found"),
        (
            "llama_cpp",
            "any",
            [SHOWN],
            {},
            500,
            "image input is not supported - hint: if this is unexpected, you may need",
        ),
        ("llama_cpp", "any", [{"role": "user"}], {}, 400, "All non-assistant messages must contain 'content'"),
        ("llama_cpp", "any", [USER], {"response_format": {"type": "x"}}, 400, "response_format type must be one of"),
        ("llama_cpp", "any", [USER], {"top_logprobs": 2}, 400, "top_logprobs requires logprobs to be set to true"),
    ],
)
def test_what_it_does_not_take_is_refused(  # noqa: PLR0917 - a table
    name: str, model: str, messages: list[Any], fields: Any, status: int, said: str
) -> None:
    came = chat(made(name), model, *messages, **fields)
    assert came.status == status
    assert came.body["error"]["message"].startswith(said)
    assert came.page


def test_a_template_of_llama_cpp_raises_with_500() -> None:
    came = chat(made("llama_cpp"), "any", *LATE_SYSTEM)
    assert came.status == 500
    assert came.body["error"]["message"].endswith("Jinja Exception: System message must be at the beginning.")
    assert came.body["error"]["type"] == "server_error"


def test_a_prompt_that_is_too_long_for_llama_cpp_is_refused_with_its_length() -> None:
    error = chat(made("llama_cpp"), "any", {"role": "user", "content": "word " * 20_000}).body["error"]
    assert (error["type"], error["n_ctx"]) == ("exceed_context_size_error", 16_384)


def test_vllm_without_parsers_refuses_tools_and_thinks_in_its_text() -> None:
    plain = made("vllm_plain")
    model = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"
    refused = chat(plain, model, tools=[WEATHER])
    assert refused.body["error"]["message"].startswith('"auto" tool choice requires --enable-auto-tool-choice')
    assert (
        chat(plain, model).body["choices"][0]["message"]["content"].startswith("Let me think about it.\n</think>\n\n")
    )
    tagged = chat(plain, "Qwen/QwQ-32B", stream=True).events
    text = "".join(event["choices"][0]["delta"].get("content") or "" for event in tagged)
    assert text.startswith("<think>\nLet me think about it.\n</think>\n\nHello from")


@pytest.mark.parametrize(
    ("name", "status", "body"),
    [
        ("vllm_plain", 404, {"detail": "Not Found"}),
        ("ollama_old", 404, b"404 page not found"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses"])
def test_an_older_server_has_no_such_path(name: str, status: int, body: Any, path: str) -> None:
    server: Vendor = made(name)
    came = ask(server, path, {"model": "a", "messages": [USER]})
    assert (came.status, came.body) == (status, body)


def test_a_missing_path_of_llama_cpp_is_a_file_not_found() -> None:
    came = ask(made("llama_cpp"), "/v2/rerank", {})
    assert came.body == {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}


THINKER = {"vllm": "Qwen/Qwen3.5-27B", "ollama": "qwen3:8b", "llama_cpp": "any"}
FUNCTION = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item] # WEATHER's
TOOL = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}  # type: ignore[index]


def respond(name: str, given: Any, **fields: Any) -> Any:
    return ask(made(name), "/v1/responses", {"model": THINKER[name], "input": given, **fields})


def speak(name: str, *messages: Any, **fields: Any) -> Any:
    body = {"model": THINKER[name], "max_tokens": 100, "messages": list(messages or [USER]), **fields}
    return ask(made(name), "/v1/messages", body)


@pytest.mark.parametrize("name", THINKER)
def test_responses_tell_thoughts_in_the_clear_and_take_them_back(name: str) -> None:
    first = respond(name, "Hello", tools=[FUNCTION], store=False, unknown=1)
    thoughts, call = first.body["output"]
    told = thoughts["summary" if name == "ollama" else "content"]
    assert told[0]["text"] == "Let me think about it."
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    start = {"role": "user", "content": "Hello"}
    second = respond(name, [start, thoughts, call, output], tools=[FUNCTION], instructions="Be kind")
    assert second.body["output"][-1]["content"][0]["text"] == "The tools said: sunny"
    events = respond(name, "Hello", stream=True).events
    kind = "reasoning_summary_text" if name == "ollama" else "reasoning_text"
    assert f"response.{kind}.delta" in [event["type"] for event in events]
    assert events[-1]["type"] == "response.completed"


@pytest.mark.parametrize("name", THINKER)
def test_messages_are_answered_with_the_servers_own_signature_or_none(name: str) -> None:
    first = speak(name, tools=[TOOL], unknown=1)
    thinking, call = first.body["content"]
    assert thinking["thinking"] == "Let me think about it."
    assert ("signature" in thinking) is (name != "ollama")
    done = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}]}
    second = speak(name, USER, {"role": "assistant", "content": first.body["content"]}, done, tools=[TOOL])
    assert second.body["content"][-1]["text"] == "The tools said: sunny"
    kinds = [event.get("delta", {}).get("type") for event in speak(name, stream=True).events]
    assert ("signature_delta" in kinds) is (name != "ollama")


@pytest.mark.parametrize(
    ("name", "given", "fields", "status", "said"),
    [
        ("vllm", "Hello", {"previous_response_id": "resp_1"}, 404, "Response with id 'resp_1' not found."),
        (
            "llama_cpp",
            "Hello",
            {"previous_response_id": "a"},
            400,
            "llama.cpp does not support 'previous_response_id'.",
        ),
        ("llama_cpp", [{"role": "assistant", "content": "Hi"}], {}, 400, "Cannot determine type of 'item'"),
        ("llama_cpp", [{"type": "item_reference", "id": "a"}], {}, 400, "Cannot determine type of 'item'"),
        ("llama_cpp", [{"type": "reasoning", "summary": []}], {}, 400, "item['content'] is not an array"),
        ("ollama", [{"type": "item_reference", "id": "a"}], {}, 400, 'input[0]: unknown input item type: "item_refere'),
    ],
)
def test_what_responses_do_not_take_is_refused(name: str, given: Any, fields: Any, status: int, said: str) -> None:
    came = respond(name, given, **fields)
    assert came.status == status
    assert came.body["error"]["message"].startswith(said)
    assert came.page


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("ollama", {"max_tokens": 0}, "max_tokens is required and must be positive"),
        ("ollama", {"messages": []}, "messages is required"),
        ("ollama", {"model": "other"}, "model 'other' not found"),
        ("vllm", {"max_tokens": None}, "1 validation error:"),
    ],
)
def test_what_messages_do_not_take_is_refused_in_anthropics_shape(name: str, fields: Any, said: str) -> None:
    came = speak(name, **fields)
    assert came.body["type"] == "error"
    assert came.body["error"]["message"].startswith(said)


@pytest.mark.parametrize("name", ["vllm", "llama_cpp"])
def test_a_second_system_message_is_refused_by_the_template_in_responses_too(name: str) -> None:
    given = [{"role": "user", "content": "Hello"}, {"role": "system", "content": "Be brief"}]
    assert "System message must be at the beginning." in respond(name, given).body["error"]["message"]


def test_vllm_takes_no_key_as_anthropic_has_it() -> None:
    vendor = made("vllm")
    body = {"model": THINKER["vllm"], "max_tokens": 1, "messages": [USER]}
    assert ask(vendor, "/v1/messages", body, {"x-api-key": vendor.key}).status == 401
    assert ask(made("llama_cpp"), "/v1/messages", body, {"x-api-key": made("llama_cpp").key}).status == 200
