"""Answers translated between Responses and chat completions, as OpenAI's own SDK hears them."""

from collections.abc import Callable, Iterator
from typing import Any, get_args

import httpx
import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel

from providers.dialects.chat.events import read_event as read_chat
from providers.dialects.responses.answers import events_of_answer
from providers.dialects.responses.events import read_event
from providers.dialects.responses.streams import FromChat, ToChat
from providers.errors import ErrorKind, UpstreamError
from providers.sse import events

EVENT_TYPES: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model for model in get_args(get_args(ResponseStreamEvent)[0])
}
TOOLS = [{"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}]
USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 5,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def sse(*data: Any) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(item) + b"\n\n" for item in data)


def chunk(finish_reason: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
    top = {"id": "chatcmpl-abc", "object": "chat.completion.chunk", "created": 5, "model": "m"}
    return {**top, "choices": [choice]}


def call(index: int, arguments: str, **named: str) -> dict[str, Any]:
    first = {"id": named["id"], "type": "function"} if named else {}
    name = {"name": named["name"]} if named else {}
    return chunk(tool_calls=[{"index": index, **first, "function": {**name, "arguments": arguments}}])


def used(usage: Any = USAGE) -> dict[str, Any]:
    return {**chunk(), "choices": [], "usage": usage}


def from_chat(*chunks: Any, asked: dict[str, Any] | None = None, done: bool = True) -> list[dict[str, Any]]:
    """Return the typed events of a chat stream, each seen to be what the SDK's types demand."""
    translation = FromChat(raw(asked or {"model": "m", "input": "hi"}))
    said = translation.feed(sse(*chunks) + (b"data: [DONE]\n\n" if done else b"")) + translation.end()
    told = [msgspec.json.decode(event.data) for event in events(said)]
    for number, (event, one) in enumerate(zip(events(said), told, strict=True)):
        assert event.raw.startswith(b"event: " + one["type"].encode() + b"\n")
        assert one["sequence_number"] == number
        EVENT_TYPES[one["type"]].model_validate(one)
    return told


def to_chat(*told: Any) -> list[Any]:
    translation = ToChat()
    said = translation.feed(sse(*told)) + translation.end()
    return [event.data if event.data == b"[DONE]" else msgspec.json.decode(event.data) for event in events(said)]


def deltas(chunks: list[Any]) -> list[dict[str, Any]]:
    return [one["choices"][0]["delta"] for one in chunks if one != b"[DONE]" and one["choices"]]


def sdk(stream: bytes) -> openai.OpenAI:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)

    transport = httpx.Client(transport=httpx.MockTransport(answer))
    return openai.OpenAI(api_key="k", base_url="http://gateway/v1", http_client=transport, max_retries=0)


def types(told: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in told]


TEXT = (chunk(role="assistant", content=""), chunk(content="He"), chunk(content="llo"), chunk("stop"), used())
CALLS = (
    chunk(content="Looking."),
    call(0, "", id="call_a", name="weather"),
    call(0, '{"city":'),
    call(1, "{}", id="call_b", name="weather"),
    call(0, '"Bern"}'),
    chunk("tool_calls"),
    used(),
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
    assert (whole.id, whole.status, whole.output_text, whole.created_at) == ("resp_abc", "completed", "Hello", 5)
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
    assert [event["output_index"] for event in told if event["type"].endswith("arguments.delta")] == [1, 2, 1]
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


@pytest.mark.parametrize(("reason", "why"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_was_cut_is_incomplete_and_says_why(reason: str, why: str) -> None:
    last = from_chat(chunk(content="Hel"), chunk(reason), used())[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": why}
    assert last["response"]["output"][0]["status"] == "incomplete"


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


def test_an_error_in_the_stream_is_told_as_one_and_ends_it() -> None:
    failed = {"error": {"message": "slow down", "code": 429}}
    told = from_chat(*TEXT[:2], failed, *TEXT[2:])
    assert types(told)[-1] == "error"
    error = read_event(msgspec.json.encode(told[-1])).error
    assert error is not None
    assert (error.kind, error.message) == (ErrorKind.RATE_LIMITED, "slow down")


@pytest.mark.parametrize("make", [lambda: FromChat({}), ToChat], ids=["FromChat", "ToChat"])
@pytest.mark.parametrize("data", [b"[]", b"{", b"5", b'{"a": \xff}'])
def test_events_that_are_no_json_objects_are_an_invalid_response(make: Callable[..., Any], data: bytes) -> None:
    with pytest.raises(UpstreamError, match="not a JSON object") as caught:
        make().feed(b"data: " + data + b"\n\n")
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


def whole(asked: dict[str, Any], *chunks: Any) -> bytes:
    translation = FromChat(raw(asked))
    return translation.feed(sse(*chunks) + b"data: [DONE]\n\n") + translation.end()


def test_the_sdk_accumulates_a_translated_stream() -> None:
    client = sdk(whole({"model": "m", "tools": TOOLS}, chunk(reasoning="hm"), *CALLS))
    with client.responses.stream(model="m", input="hi") as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert snapshots == ['{"city":', "{}", '{"city":"Bern"}']
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert final.output_text == "Looking."


def test_the_sdk_parses_structured_output_out_of_a_translated_stream() -> None:
    class City(BaseModel):
        name: str

    client = sdk(whole({"model": "m"}, chunk(content='{"name":'), chunk(content='"Bern"}'), chunk("stop"), used()))
    with client.responses.stream(model="m", input="hi", text_format=City) as stream:
        assert stream.get_final_response().output_parsed == City(name="Bern")


def test_the_sdk_raises_on_an_error_in_a_translated_stream() -> None:
    client = sdk(whole({"model": "m"}, chunk(content="x"), {"error": {"message": "broke"}}))
    with pytest.raises(openai.APIError, match="broke"):
        list(client.responses.create(model="m", input="hi", stream=True))


def test_the_sdk_accumulates_chat_that_was_told_by_responses() -> None:
    translation = ToChat()
    client = sdk(translation.feed(sse(*from_chat(chunk(reasoning="hm"), *CALLS))) + translation.end())
    with client.chat.completions.stream(model="m", messages=[], stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()
    choice = final.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Looking.", "tool_calls")
    assert [one.function.arguments for one in choice.message.tool_calls or ()] == ['{"city":"Bern"}', "{}"]
    assert final.usage is not None
    assert final.usage.model_dump(exclude_none=True)["prompt_tokens_details"]["cached_tokens"] == 4


RESPONSE = {"id": "resp_1", "object": "response", "created_at": 5, "model": "m", "output": []}


def test_chat_ends_with_the_finish_reason_then_usage_alone_then_done() -> None:
    usage = {
        "input_tokens": 7,
        "output_tokens": 5,
        "total_tokens": 12,
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    first, text, end, last, done = to_chat(
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.output_text.delta", "output_index": 0, "delta": "Hi"},
        {"type": "response.completed", "response": {**RESPONSE, "usage": usage}},
    )
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (text["id"], text["created"], text["model"]) == ("resp_1", 5, "m")
    assert end["choices"][0]["finish_reason"] == "stop"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    assert done == b"[DONE]"


@pytest.mark.parametrize(
    ("details", "reason"),
    [({"reason": "max_output_tokens"}, "length"), ({"reason": "content_filter"}, "content_filter"), (None, "length")],
)
def test_an_incomplete_response_has_its_finish_reason(details: Any, reason: str) -> None:
    chunks = to_chat({"type": "response.incomplete", "response": {**RESPONSE, "incomplete_details": details}})
    assert [one["choices"][0]["finish_reason"] for one in chunks[:-1]] == [None, reason]


ITEMS = [
    {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "message", "id": "msg", "content": [{"type": "output_text", "text": "Hi"}]},
    {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"},
]
CALLED = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
TOLD = [
    {"role": "assistant", "content": ""},
    {"reasoning_content": "hm"},
    {"content": "Hi"},
    {"tool_calls": [CALLED]},
    {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
    {},
]


@pytest.mark.parametrize("events_told", [1, 0])
def test_what_no_delta_tells_is_told_with_the_whole_item_or_the_whole_answer(events_told: int) -> None:
    done = [{"type": "response.output_item.done", "output_index": i, "item": item} for i, item in enumerate(ITEMS)]
    end = {"type": "response.completed", "response": {**RESPONSE, "output": ITEMS}}
    assert deltas(to_chat(*done * events_told, end)) == TOLD


def test_what_deltas_have_told_is_not_told_again_even_by_servers_that_count_parts_wrongly() -> None:
    said = [
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 7 + i, "delta": letter}
        for i, letter in enumerate("Hi")
    ]
    done = {"type": "response.output_item.done", "output_index": 1, "item": ITEMS[1]}
    end = {"type": "response.completed", "response": {**RESPONSE, "output": ITEMS}}
    assert "".join(delta.get("content", "") for delta in deltas(to_chat(*said, done, end))) == "Hi"


def test_parts_of_a_summary_are_paragraphs_and_raw_reasoning_is_not_told_beside_it() -> None:
    def piece(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "output_index": 0, **fields}

    chunks = to_chat(
        piece("reasoning_summary_part.added", summary_index=0),
        piece("reasoning_summary_text.delta", summary_index=0, delta="One."),
        piece("reasoning_text.delta", content_index=0, delta="raw"),
        piece("reasoning_summary_part.added", summary_index=1),
        piece("reasoning_summary_text.delta", summary_index=1, delta="Two."),
    )
    assert "".join(delta.get("reasoning_content", "") for delta in deltas(chunks)) == "One.\n\nTwo."


@pytest.mark.parametrize(
    "failed",
    [
        {"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}}},
        {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None},
        {"type": "error", "error": {"type": "too_many_requests", "code": "too_many_requests", "message": "slow"}},
    ],
)
def test_a_failed_response_is_an_error_of_its_kind_in_chat_too(failed: dict[str, Any]) -> None:
    (told,) = to_chat(failed)
    error = read_chat(msgspec.json.encode(told)).error
    assert error is not None
    assert (error.kind, error.message) == (ErrorKind.RATE_LIMITED, "slow")


def test_a_response_that_broke_off_gives_chat_no_end() -> None:
    assert deltas(to_chat({"type": "response.created", "response": RESPONSE})) == [{"role": "assistant", "content": ""}]
    assert to_chat() == []


words = st.text(min_size=1, max_size=8)
answers = st.lists(
    st.one_of(
        st.builds(lambda text: ("content", text), words),
        st.builds(lambda text: ("reasoning_content", text), words),
        st.builds(lambda text: ("refusal", text), words),
        st.builds(lambda index, text: (index, text), st.integers(0, 2), words),
    ),
    max_size=12,
)


def streamed(pieces: list[tuple[Any, str]], finish_reason: str) -> Iterator[dict[str, Any]]:
    named = set()
    for kind, text in pieces:
        if isinstance(kind, str):
            yield chunk(**{kind: text})
        elif kind in named:
            yield call(kind, text)
        else:
            named.add(kind)
            yield call(kind, text, id=f"call_{kind}", name="f")
    yield chunk(finish_reason)
    yield used()


def gathered(chunks: list[Any]) -> dict[str, Any]:
    """Return what a chat stream says in all, calls by their id."""
    said: dict[str, Any] = {}
    ids: dict[int, str] = {}
    for delta in deltas(chunks):
        for name in ("content", "reasoning_content", "refusal"):
            said[name] = said.get(name, "") + (delta.get(name) or "")
        for one in delta.get("tool_calls", ()):
            key = ids.setdefault(one["index"], one.get("id"))
            said[key] = said.get(key, "") + one["function"]["arguments"]
    ends = [one["choices"][0]["finish_reason"] for one in chunks if one != b"[DONE]" and one["choices"]]
    usages = [one["usage"] for one in chunks if one != b"[DONE]" and one.get("usage")]
    said["end"] = [end for end in ends if end], [(one["prompt_tokens"], one["completion_tokens"]) for one in usages]
    return said


@given(pieces=answers, is_cut=st.booleans())
def test_chat_told_by_way_of_responses_says_the_same(pieces: list[tuple[Any, str]], is_cut: bool) -> None:
    has_calls = any(isinstance(kind, int) for kind, _ in pieces)
    chunks = list(streamed(pieces, "length" if is_cut else "tool_calls" if has_calls else "stop"))
    assert gathered(to_chat(*from_chat(*chunks))) == gathered([chunk(role="assistant", content=""), *chunks])


@pytest.mark.parametrize("make", [FromChat, ToChat])
@given(data=st.data())
def test_it_does_not_matter_how_events_are_put_into_blocks(make: Callable[..., Any], data: st.DataObject) -> None:
    def translation() -> Any:
        return FromChat({}, new_id=lambda: "x", wall_clock=lambda: 0) if make is FromChat else ToChat()

    source = list(streamed(data.draw(answers), "stop"))
    told = source if make is FromChat else from_chat(*source)
    once, pieces = translation(), translation()
    cut = data.draw(st.integers(0, len(told)))
    in_two = pieces.feed(sse(*told[:cut])) + pieces.feed(sse(*told[cut:])) + pieces.end()
    assert in_two == once.feed(sse(*told)) + once.end()


def test_a_function_called_without_arguments_has_none_in_json() -> None:
    told = from_chat(call(0, "", id="a", name="weather"), chunk("tool_calls"))
    assert [event["delta"] for event in told if event["type"] == "response.function_call_arguments.delta"] == ["{}"]
    assert told[-1]["response"]["output"][0]["arguments"] == "{}"


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
