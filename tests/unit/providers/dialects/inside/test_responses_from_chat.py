"""Answers in chat completions, told as Responses, as OpenAI's own SDK hears them."""

from typing import Any

import msgspec
import pytest
from openai.types.responses import Response

from providers.bodies import events
from providers.dialects.responses.events import events_of_answer
from providers.dialects.responses.stream_from_chat import FromChat
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.dialects.inside.responses_streams import (
    CALLS,
    TEXT,
    TOOLS,
    call,
    chunk,
    deltas,
    from_chat,
    sse,
    to_chat,
    types,
    used,
)


def test_a_text_is_told_with_all_events_in_the_order_of_the_api() -> None:
    told = from_chat(*TEXT)
    assert types(told) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    whole = Response.model_validate(told[-1]["response"])
    assert (whole.id, whole.status, whole.output_text, whole.created_at) == ("resp_own", "completed", "Hello", 5)
    assert whole.usage is not None
    assert whole.usage.input_tokens_details.cached_tokens == 4
    assert whole.usage.output_tokens_details.reasoning_tokens == 2
    assert whole.usage.total_tokens == 12


def test_a_response_echoes_what_was_asked_and_says_that_it_is_not_stored() -> None:
    asked = {"model": "m", "instructions": "be", "tools": TOOLS, "temperature": 0.5, "metadata": {"a": "b"}}
    for event in (told := from_chat(*TEXT, asked=asked))[0], told[-1]:
        response = event["response"]
        assert {name: response[name] for name in asked} == asked
        assert response["store"] is False


def test_an_echo_of_a_request_that_was_laid_out_stays_on_one_line() -> None:
    translation = FromChat({"metadata": msgspec.Raw(b'{\n  "a": "b"\r\n}')})
    for event in events(translation.feed(sse(*TEXT))):
        msgspec.json.decode(event.data)


def test_parallel_calls_keep_their_own_arguments_however_they_are_interleaved() -> None:
    told = from_chat(*CALLS)
    message, first, second = told[-1]["response"]["output"]
    assert message["content"][0]["text"] == "Looking."
    assert (first["call_id"], first["arguments"]) == ("call_a", '{"city":"Bern"}')
    assert (second["call_id"], second["arguments"]) == ("call_b", "{}")
    assert [event["output_index"] for event in told if event["type"].endswith("arguments.delta")] == [1, 1, 2]
    assert {item["status"] for item in (message, first, second)} == {"completed"}


def test_a_custom_tool_is_called_with_text() -> None:
    named = {"id": "call_c", "type": "custom", "custom": {"name": "sql", "input": "SELECT "}}
    more = {"index": 0, "custom": {"input": "1"}}
    told = from_chat(chunk(tool_calls=[{"index": 0, **named}]), chunk(tool_calls=[more]), chunk("tool_calls"))
    (item,) = told[-1]["response"]["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "sql", "SELECT 1")


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_reasoning_is_an_item_of_its_own_before_the_message(name: str) -> None:
    told = from_chat(chunk(**{name: "hm"}), chunk(**{name: "m"}), chunk(content="Yes"), chunk("stop"))
    thought, message = told[-1]["response"]["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "hmm"}]
    assert message["content"][0]["text"] == "Yes"
    assert types(told)[2:6] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
    ]


def test_who_asks_for_a_summary_of_the_reasoning_is_told_it_as_one() -> None:
    asked = {"model": "m", "reasoning": {"summary": "auto"}}
    told = from_chat(chunk(reasoning="hmm"), chunk("stop"), asked=asked)
    assert told[-1]["response"]["output"][0]["summary"] == [{"type": "summary_text", "text": "hmm"}]
    assert types(told)[3:7] == [
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ]


def test_thinking_in_parts_of_the_content_is_reasoning() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Yes"}]
    thought, message = from_chat(chunk(content=parts), chunk("stop"))[-1]["response"]["output"]
    assert (thought["content"][0]["text"], message["content"][0]["text"]) == ("hm", "Yes")


def test_refusals_log_probabilities_and_annotations_have_their_places() -> None:
    tokens = [{"token": "A", "logprob": -0.5, "bytes": [65], "top_logprobs": []}]
    cited = {"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 1, "url": "u", "title": "t"}}
    told = from_chat(
        chunk(content="A", logprobs={"content": tokens, "refusal": None}),
        chunk(annotations=[cited]),
        chunk(refusal="No"),
        chunk(refusal="."),
        chunk("stop"),
    )
    text, refusal = told[-1]["response"]["output"][0]["content"]
    assert text["logprobs"] == tokens
    assert text["annotations"] == [{"type": "url_citation", **cited["url_citation"]}]  # type: ignore[dict-item]  # JSON
    assert refusal == {"type": "refusal", "refusal": "No."}
    back = to_chat(*told)
    assert [delta["refusal"] for delta in deltas(back) if "refusal" in delta] == ["No", "."]
    assert [delta["annotations"] for delta in deltas(back) if "annotations" in delta] == [[cited]]
    assert [one["choices"][0]["logprobs"]["content"] for one in back[1:2]] == [tokens]


@pytest.mark.parametrize("summary", ["auto", None])
def test_an_answer_is_told_with_the_same_events_as_the_whole_response_it_makes(summary: str | None) -> None:
    custom = {"index": 1, "id": "call_b", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    pieces = [chunk(reasoning="hm"), chunk(content="A"), chunk(refusal="No."), chunk(reasoning="hmm")]
    for called in call(0, "{}", id="call_a", name="f"), chunk(tool_calls=[custom]):
        told = from_chat(*pieces, called, chunk("tool_calls"), asked={"reasoning": {"summary": summary}})
        assert [item["type"] for item in told[-1]["response"]["output"][:3]] == ["reasoning", "message", "reasoning"]
        retold = events(events_of_answer(msgspec.json.encode(told[-1]["response"])))
        assert told[2:] == [msgspec.json.decode(event.data) for event in retold[2:]]


@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "insufficient_system_resource"])
def test_an_answer_whose_server_failed_says_by_which_reason(reason: str) -> None:
    with pytest.raises(UpstreamError, match=f"the answer ended with finish_reason '{reason}'"):
        from_chat(chunk(content="Hel"), chunk(reason), used())


def test_an_answer_that_broke_off_is_given_no_end() -> None:
    assert types(from_chat(*TEXT[:3], done=False))[-1] == "output_text.delta"
    assert from_chat(done=False) == []


def test_a_finish_reason_makes_an_answer_whole_without_done_and_without_usage() -> None:
    last = from_chat(*TEXT[:4], done=False)[-1]
    assert last["type"] == "response.completed"
    assert last["response"]["usage"] is None


def test_ids_and_time_are_made_where_the_provider_gives_none() -> None:
    translation = FromChat({}, new_id=lambda: "made", wall_clock=lambda: 9.5)
    said = translation.feed(sse({"choices": [{"delta": {"content": "x"}}]}))
    response, item = (msgspec.json.decode(events(said)[number].data) for number in (0, 2))
    assert (response["response"]["id"], response["response"]["created_at"]) == ("resp_made", 9)
    assert item["item"]["id"] == "msg_made_0"


def test_a_function_called_without_arguments_has_none_in_json() -> None:
    told = from_chat(call(0, "", id="a", name="weather"), chunk("tool_calls"))
    assert [event["delta"] for event in told if event["type"] == "response.function_call_arguments.delta"] == ["{}"]
    assert told[-1]["response"]["output"][0]["arguments"] == "{}"


def test_a_call_whose_arguments_are_an_object_has_them_as_text() -> None:
    whole = {"index": 0, "id": "a", "type": "function", "function": {"name": "weather", "arguments": {"city": "Bern"}}}
    told = from_chat(chunk(tool_calls=[whole]), chunk("tool_calls"))
    assert told[-1]["response"]["output"][0]["arguments"] == '{"city":"Bern"}'


def test_a_response_begins_with_the_first_chunk_that_says_whose_it_is() -> None:
    filters = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    told = from_chat(filters, *TEXT, asked={"model": "as-asked", "input": "hi"})
    assert {(event["response"]["id"], event["response"]["model"]) for event in (told[0], told[-1])} == {
        ("resp_own", "m")
    }


@pytest.mark.parametrize("usage", [{"prompt_tokens": None, "completion_tokens": None}, {"total_time": 0.1}])
def test_usage_that_counts_nothing_is_not_told_as_zero(usage: dict[str, Any]) -> None:
    assert from_chat(*TEXT[:-1], used(usage))[-1]["response"]["usage"] is None


def test_a_call_that_was_cut_off_before_its_arguments_has_none() -> None:
    told = from_chat(call(0, "", id="a", name="weather"), chunk("length"))
    assert told[-1]["response"]["output"][0]["arguments"] == ""


def test_a_call_whose_name_comes_late_has_it() -> None:
    early = chunk(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"arguments": ""}}])
    told = from_chat(
        early, chunk(tool_calls=[{"function": {"name": "weather", "arguments": "{}"}}]), chunk("tool_calls")
    )
    item = told[-1]["response"]["output"][0]
    assert (item["name"], item["call_id"], item["arguments"]) == ("weather", "a", "{}")
    assert [event["item"]["name"] for event in told if "item" in event] == ["weather"] * 2


def test_a_call_that_never_gets_a_name_is_no_answer() -> None:
    early = chunk(tool_calls=[{"index": 0, "id": "a", "type": "function", "function": {"arguments": "{}"}}])
    with pytest.raises(UpstreamError) as caught:
        from_chat(early, chunk("tool_calls"))
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


def test_a_call_has_an_id_that_no_earlier_one_has() -> None:
    """Some models count their calls from 0 in each turn, and agents find a call by its id alone."""
    earlier = [{"type": "function_call_output", "call_id": "list_dir:0", "output": "x"}]
    told = from_chat(
        call(0, "{}", id="list_dir:0", name="list_dir"),
        chunk("tool_calls"),
        asked={"model": "m", "input": earlier},
    )
    assert [item["call_id"] for item in told[-1]["response"]["output"]] == ["list_dir:0_2"]
