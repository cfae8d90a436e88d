"""Streams between Messages and chat: every event in its place, however the bytes arrive, and no end made up."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from providers.bodies import EventSplitter, events
from providers.dialects import Chunk, Translation, read_event
from providers.dialects.messages.answers import MessageGathering
from providers.dialects.messages.stream_from_chat import FromChat
from providers.dialects.messages.stream_to_chat import ToChat
from providers.dialects.wording import NOBODYS
from providers.refusals import ErrorKind, UpstreamError

SHOWN = {"thinking": {"type": "adaptive"}, "stop_sequences": ["END"]}
COUNTED = {
    "prompt_tokens": 20,
    "completion_tokens": 9,
    "total_tokens": 29,
    "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
USED = {
    "input_tokens": 13,
    "cache_creation_input_tokens": 2,
    "cache_read_input_tokens": 5,
    "output_tokens": 9,
    "output_tokens_details": {"thinking_tokens": 3},
}


def from_chat(asked: Mapping[str, Any] = SHOWN) -> FromChat:
    return FromChat({name: msgspec.Raw(msgspec.json.encode(value)) for name, value in asked.items()})


def to_chat() -> ToChat:
    return ToChat(unix_s=lambda: 1700000000.5)


def sse(*data: Any) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(one) + b"\n\n" for one in data)


def chunk(*choices: Any, **fields: Any) -> dict[str, Any]:
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **fields}


def delta(**fields: Any) -> dict[str, Any]:
    return chunk({"index": 0, "delta": fields, "finish_reason": None})


def tool(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> dict[str, Any]:
    piece: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    if name is not None:
        piece |= {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return delta(tool_calls=[piece])


def finish(reason: str, **fields: Any) -> dict[str, Any]:
    return chunk({"index": 0, "delta": {}, "finish_reason": reason, **fields})


def chat(*deltas: Any, reason: str = "stop", usage: Any = COUNTED) -> bytes:
    return sse(*deltas, finish(reason), chunk(usage=usage)) + b"data: [DONE]\n\n"


def translated(translation: Translation, stream: bytes, sizes: Sequence[int] = ()) -> bytes:
    """Return what a whole stream is translated to when it arrives in reads of ``sizes``, then in one."""
    splitter = EventSplitter()
    said = b""
    for size in (*sizes, len(stream)):
        read, stream = stream[:size], stream[size:]
        if block := splitter.feed(read):
            said += translation.feed(block)
    return said + translation.end()


def told(stream: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(event.data) for event in events(stream) if event.data != b"[DONE]"]


def message(stream: bytes) -> dict[str, Any]:
    gathering = MessageGathering()
    for event in events(stream):
        gathering.take(Chunk(event.data))
    body: dict[str, Any] = msgspec.json.decode(gathering.body())
    return body


def begin(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def add(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def over(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def stopped(reason: str, usage: Any = USED, **fields: Any) -> dict[str, Any]:
    change = {"stop_reason": reason, "stop_sequence": None, **fields}
    return {"type": "message_delta", "delta": change, "usage": usage}


STARTED: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "c1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    },
}
STOP = {"type": "message_stop"}


def test_a_chat_answer_is_told_in_the_events_of_messages() -> None:
    stream = chat(
        delta(role="assistant", content=""),
        delta(reasoning_content="hm"),
        delta(content="Let"),
        delta(content=" me"),
        tool(0, "", "a", "f"),
        tool(0, '{"x":'),
        tool(0, "1}"),
        tool(1, "{}", "b", "g"),
        reason="tool_calls",
    )
    said = translated(from_chat(), stream)
    assert told(said) == [
        STARTED,
        begin(0, type="thinking", thinking="", signature=""),
        add(0, type="thinking_delta", thinking="hm"),
        add(0, type="signature_delta", signature=NOBODYS),
        over(0),
        begin(1, type="text", text=""),
        add(1, type="text_delta", text="Let"),
        add(1, type="text_delta", text=" me"),
        over(1),
        begin(2, type="tool_use", id="a", name="f", input={}),
        add(2, type="input_json_delta", partial_json='{"x":'),
        add(2, type="input_json_delta", partial_json="1}"),
        over(2),
        begin(3, type="tool_use", id="b", name="g", input={}),
        add(3, type="input_json_delta", partial_json="{}"),
        over(3),
        stopped("tool_use"),
        STOP,
    ]
    assert said.startswith(b'event: message_start\ndata: {"type":"message_start",')


def test_calls_streamed_at_the_same_time_are_told_one_after_the_other() -> None:
    stream = chat(
        tool(0, "", "a", "f"),
        tool(1, "", "b", "g"),
        tool(0, '{"x":'),
        tool(1, '{"y":'),
        tool(0, "1}"),
        tool(1, "2}"),
        reason="tool_calls",
    )
    said = translated(from_chat(), stream)
    assert [(one["type"], one.get("index")) for one in told(said)[1:-2]] == [
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
    ]
    assert [block["input"] for block in message(said)["content"]] == [{"x": 1}, {"y": 2}]


def test_text_may_follow_tools_and_calls_may_have_no_index() -> None:
    calls = [{"id": one, "function": {"name": one, "arguments": '{"x":1}'}} for one in ("a", "b")]
    stream = chat(delta(tool_calls=calls), delta(content="Done"), reason="stop")
    said = message(translated(from_chat(), stream))
    assert [block["type"] for block in said["content"]] == ["tool_use", "tool_use", "text"]
    assert said["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("reason", "fields", "expected"),
    [
        ("stop", {}, ("end_turn", None)),
        ("eos", {}, ("end_turn", None)),
        ("stop", {"stop_reason": "END"}, ("stop_sequence", "END")),
        ("stop", {"stop_reason": 128001}, ("end_turn", None)),  # vLLM: a token's id
        ("stop", {"stop_reason": "</s>"}, ("end_turn", None)),  # the server's own
    ],
)
def test_why_it_stopped_is_said_in_the_words_of_messages(reason: str, fields: Any, expected: Any) -> None:
    said = message(translated(from_chat(), sse(delta(content="x"), finish(reason, **fields)) + b"data: [DONE]\n\n"))
    assert (said["stop_reason"], said["stop_sequence"]) == expected


def test_a_server_that_stops_for_tools_it_did_not_call_ended_its_turn() -> None:
    assert message(translated(from_chat(), chat(delta(content="Hi"), reason="tool_calls")))["stop_reason"] == "end_turn"


def test_a_refusal_is_text_that_stops_as_one() -> None:
    said = message(translated(from_chat(), chat(delta(refusal="No."))))
    assert (said["content"], said["stop_reason"]) == ([{"type": "text", "text": "No."}], "refusal")


@pytest.mark.parametrize(
    "asked", [{}, {"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive", "display": "omitted"}}]
)
def test_a_client_that_did_not_ask_for_thinking_sees_none(asked: dict[str, Any]) -> None:
    said = message(translated(from_chat(asked), chat(delta(reasoning="hm"), delta(content="Yes"))))
    assert said["content"] == [{"type": "text", "text": "Yes"}]


@pytest.mark.parametrize(
    "thought",
    [{"reasoning": "hm"}, {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}],
)
def test_thoughts_are_found_wherever_servers_put_them(thought: dict[str, Any]) -> None:
    said = message(translated(from_chat(), chat(delta(**thought), delta(content=[{"type": "text", "text": "Yes"}]))))
    assert said["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": NOBODYS},
        {"type": "text", "text": "Yes"},
    ]


@pytest.mark.parametrize(
    ("stream", "usage"),
    [
        (sse(delta(content="x"), chunk({"index": 0, "delta": {}, "finish_reason": "stop"}, usage=COUNTED)), USED),
        (sse({**delta(content="x"), "x_groq": {"usage": COUNTED}}, finish("stop")), USED),
        (sse(delta(content="x"), finish("stop")), {"output_tokens": 0}),  # no answer has none: not told
    ],
)
def test_usage_is_told_wherever_it_came_from(stream: bytes, usage: dict[str, Any]) -> None:
    assert told(translated(from_chat(), stream))[-2:] == [stopped("end_turn", usage), STOP]


def test_the_last_of_several_counts_is_told() -> None:
    early = {**COUNTED, "completion_tokens": 1, "total_tokens": 21}
    answer = sse(delta(content="Hi") | {"usage": early}, finish("stop"), chunk(usage=COUNTED)) + b"data: [DONE]\n\n"
    assert message(translated(from_chat(), answer))["usage"] == USED
    uncounted = sse(delta(content="Hi") | {"usage": early}, finish("stop")) + b"data: [DONE]\n\n"
    assert message(translated(from_chat(), uncounted))["usage"]["output_tokens"] == 1


def test_a_finish_is_told_once_at_the_end() -> None:
    translation = from_chat()
    assert b"message_delta" not in translation.feed(sse(delta(content="x"), finish("stop"), chunk(usage=COUNTED)))
    assert told(translation.feed(b"data: [DONE]\n\n")) == [over(0), stopped("end_turn"), STOP]
    assert translation.end() == b""


@pytest.mark.parametrize("done", [b"data: [DONE]\n\n", b""])
def test_what_follows_a_finish_reason_stands_before_the_end(done: bytes) -> None:
    choices = ({"index": 0, "delta": {"content": text}, "finish_reason": "stop"} for text in "ab")
    said = told(translated(from_chat(), sse(*(chunk(choice, usage=COUNTED) for choice in choices)) + done))
    assert [each["type"] for each in said[1:]] == [
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]


@pytest.mark.parametrize(
    "stream", [b"", b": ping\n\n", sse(delta(content="x")), sse(delta(content="x")) + b"data: [DONE]\n\n"]
)
def test_an_answer_that_broke_off_is_given_no_end(stream: bytes) -> None:
    said = translated(from_chat(), stream)
    assert b"message_delta" not in said
    assert b"message_stop" not in said


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (b"data: {broken\n\n", ErrorKind.INVALID_RESPONSE),
        (b"data: []\n\n", ErrorKind.INVALID_RESPONSE),
        (sse({"choices": [{"delta": 5}]}), ErrorKind.INVALID_RESPONSE),
        (sse({"error": {"message": "busy", "code": 429}}), ErrorKind.RATE_LIMITED),
        (sse(finish("error")), ErrorKind.STREAM_ERROR),
        (sse(finish("abort")), ErrorKind.STREAM_ERROR),
        (
            sse(delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), finish("stop")),
            ErrorKind.INVALID_RESPONSE,
        ),
    ],
)
def test_a_chunk_that_is_none_or_an_error_raises(stream: bytes, kind: ErrorKind) -> None:
    with pytest.raises(UpstreamError) as caught:
        from_chat().feed(stream)
    assert caught.value.kind is kind


def test_a_text_amid_the_arguments_of_a_call_comes_after_it() -> None:
    said = message(
        translated(from_chat(), sse(tool(0, "{", "a", "f"), delta(content="x"), tool(0, "}"), finish("tool_calls")))
    )
    assert [(block["type"], block.get("input")) for block in said["content"]] == [("tool_use", {}), ("text", None)]


def test_an_empty_object_behind_the_text_that_follows_its_call_is_what_was_said() -> None:
    said = message(
        translated(from_chat(), sse(tool(0, "", "a", "f"), delta(content="x"), tool(0, "{}"), finish("stop")))
    )
    assert [(block["type"], block.get("input")) for block in said["content"]] == [("tool_use", {}), ("text", None)]


ANSWER = [
    {
        **STARTED,
        "message": {
            **STARTED["message"],
            "usage": {
                "input_tokens": 13,
                "cache_creation_input_tokens": 2,
                "cache_read_input_tokens": 5,
                "output_tokens": 1,
            },
        },
    },
    {"type": "ping"},
    begin(0, type="thinking", thinking="", signature=""),
    add(0, type="thinking_delta", thinking="hm"),
    add(0, type="signature_delta", signature="s"),
    over(0),
    begin(1, type="text", text=""),
    add(1, type="text_delta", text="Let"),
    add(1, type="text_delta", text=""),
    add(1, type="text_delta", text=" me"),
    over(1),
    begin(2, type="tool_use", id="a", name="f", input={}),
    add(2, type="input_json_delta", partial_json=""),
    add(2, type="input_json_delta", partial_json='{"x":'),
    add(2, type="input_json_delta", partial_json="1}"),
    over(2),
    begin(3, type="tool_use", id="b", name="g", input={}),
    over(3),
    begin(4, type="from_the_future", text="?"),
    over(4),
    stopped("tool_use", {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 3}}),
    STOP,
]


def test_a_message_is_told_in_chat_chunks() -> None:
    said = translated(to_chat(), sse(*ANSWER))
    assert [one["choices"][0]["delta"] for one in told(said)[:-2]] == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
        {"content": "Let"},
        {"content": " me"},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]},  # which no call is without
    ]
    assert told(said)[-2]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    assert told(said)[-1] == {**chunk(usage=COUNTED), "created": 1700000000, "choices": []}
    assert said.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("change", "finish_reason", "refusal"),
    [
        ({"stop_reason": "end_turn"}, "stop", None),
        ({"stop_reason": "max_tokens"}, "length", None),
        ({"stop_reason": "model_context_window_exceeded"}, "length", None),
        ({"stop_reason": "pause_turn"}, "stop", None),
        ({"stop_reason": "refusal"}, "content_filter", None),
        (
            {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "No."}},
            "content_filter",
            "No.",
        ),
    ],
)
def test_why_it_stopped_is_said_in_the_words_of_chat(change: Any, finish_reason: str, refusal: str | None) -> None:
    ending = {"type": "message_delta", "delta": change, "usage": {"output_tokens": 3}}
    chunks = [one for one in told(translated(to_chat(), sse(STARTED, ending, STOP))) if one["choices"]]
    assert chunks[-1]["choices"][0]["finish_reason"] == finish_reason
    assert [one["choices"][0]["delta"].get("refusal") for one in chunks[1:-1]] == ([refusal] if refusal else [])


def test_which_stop_sequence_was_met_is_told_as_vllm_does() -> None:
    ending = stopped("stop_sequence", stop_sequence="END")
    assert told(translated(to_chat(), sse(STARTED, ending, STOP)))[1]["choices"][0]["stop_reason"] == "END"


def test_a_call_whose_input_came_at_its_beginning_has_it_once() -> None:
    said = translated(to_chat(), sse(STARTED, begin(0, type="tool_use", id="a", name="f", input={"x": 1}), over(0)))
    pieces = [one["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for one in told(said)[1:]]
    assert pieces == ["", '{"x":1}']


def test_a_message_whose_stop_reason_came_is_whole_and_one_without_is_not() -> None:
    whole = translated(to_chat(), sse(*ANSWER[:-1]))
    assert whole == translated(to_chat(), sse(*ANSWER))
    broken = translated(to_chat(), sse(*ANSWER[:-2]))
    assert all(one["choices"][0]["finish_reason"] is None for one in told(broken))
    assert b"[DONE]" not in broken


def test_usage_that_was_never_told_is_not_made_up() -> None:
    begun = {**STARTED, "message": {**STARTED["message"], "usage": {"input_tokens": 13, "output_tokens": 1}}}
    said = translated(to_chat(), sse(begun, stopped("end_turn", None), STOP))  # no count of the answer
    assert [bool(one["choices"]) for one in told(said)] == [True, True]
    assert said.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("event", "kind", "status"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, ErrorKind.SERVER_ERROR, 529),
        ({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, ErrorKind.RATE_LIMITED, 429),
        ({"type": "error", "error": {"type": "new_error", "message": "?"}}, ErrorKind.STREAM_ERROR, None),
        ({"error": {"message": "?"}}, ErrorKind.STREAM_ERROR, None),
        ({"type": "content_block_delta", "index": 0}, ErrorKind.INVALID_RESPONSE, None),
        ({"type": "content_block_start", "index": 0, "content_block": 5}, ErrorKind.INVALID_RESPONSE, None),
    ],
)
def test_an_event_that_is_none_or_an_error_raises(event: Any, kind: ErrorKind, status: int | None) -> None:
    with pytest.raises(UpstreamError) as caught:
        to_chat().feed(sse(STARTED, event))
    assert (caught.value.kind, caught.value.status) == (kind, status)


@given(sizes=st.lists(st.integers(1, 40)))
def test_reads_of_any_size_give_the_same_stream(sizes: list[int]) -> None:
    stream = chat(delta(role="assistant"), delta(reasoning="hm"), delta(content="Hé"), tool(0, "{}", "a", "f"))
    assert translated(from_chat(), stream, sizes) == translated(from_chat(), stream)
    assert translated(to_chat(), sse(*ANSWER), sizes) == translated(to_chat(), sse(*ANSWER))


@given(
    st.lists(
        st.builds(lambda text: delta(content=text), st.text())
        | st.builds(lambda text: delta(reasoning_content=text), st.text(min_size=1)),
        min_size=1,
    )
)
def test_an_answer_comes_back_from_messages_as_it_was(deltas: list[Any]) -> None:
    back = translated(to_chat(), translated(from_chat(), chat(*deltas)))
    for name in ("content", "reasoning_content"):
        before = "".join(one["choices"][0]["delta"].get(name) or "" for one in deltas)
        after = "".join(one["choices"][0]["delta"].get(name) or "" for one in told(back)[:-1])
        assert after == before
    assert read_event(events(back)[-2].data).usage == read_event(msgspec.json.encode(chunk(usage=COUNTED))).usage


def test_openais_sdk_takes_what_is_made_of_a_message() -> None:
    stream = translated(to_chat(), sse(*ANSWER))
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=stream)
    with (
        httpx.Client(transport=httpx.MockTransport(lambda _: answer)) as http,
        OpenAI(api_key="k", base_url="http://x.test", http_client=http).chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "Hi"}]
        ) as chunks,
    ):
        completion = chunks.get_final_completion()
    choice = completion.choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me")
    assert [(one.id, one.function.name, one.function.arguments) for one in choice.message.tool_calls or ()] == [
        ("a", "f", '{"x":1}'),
        ("b", "g", "{}"),
    ]
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (20, 9)


@pytest.mark.parametrize("nonsense", [[1], {"a": 1}, "7"])
@pytest.mark.parametrize(
    ("name", "left"),
    [("input_tokens", 7), ("cache_read_input_tokens", 15), ("cache_creation_input_tokens", 18)],
)
def test_counts_that_are_no_numbers_do_not_count(name: str, left: int, nonsense: Any) -> None:
    stream = sse(begin(0, type="text", text=""), add(0, type="text_delta", text="Hi"), over(0))
    stream += sse(stopped("end_turn", usage={**USED, name: nonsense}), {"type": "message_stop"})
    usage = told(translated(to_chat(), stream))[-1]["usage"]
    assert usage["prompt_tokens"] == left


def test_a_call_has_an_id_that_no_earlier_one_has() -> None:
    """Some models count their calls from 0 in each turn, and clients find a call by its id alone."""
    earlier = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "list_dir:0".replace(":", "_3a_")}]}
    asked = {**SHOWN, "messages": [{"role": "user", "content": "Hi"}, earlier]}
    stream = chat(tool(0, "{}", "list_dir:0", "list_dir"), tool(1, "{}", "list_dir:1", "list_dir"), reason="tool_calls")
    content = message(translated(from_chat(asked), stream))["content"]
    assert [block["id"] for block in content] == ["list_dir_3a_0_2", "list_dir_3a_1"]


def test_an_answer_without_an_id_gets_one_of_its_own() -> None:
    """Clients put answers with one id together."""
    stream = b"".join(sse({**one, "id": ""}) for one in (delta(content="a"), finish("stop"))) + b"data: [DONE]\n\n"
    ids = [message(translated(from_chat(), stream))["id"] for _ in range(2)]
    assert all(ids)
    assert ids[0] != ids[1]


def test_a_count_of_0_at_the_end_does_not_replace_that_of_the_beginning() -> None:
    counted = {"input_tokens": 15, "cache_read_input_tokens": 4, "output_tokens": 1}
    start = {"type": "message_start", "message": {"id": "m", "model": "m", "usage": counted}}
    end = stopped("end_turn", {"input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 7})
    stream = sse(start, begin(0, type="text", text=""), add(0, type="text_delta", text="a"), over(0), end)
    [usage] = [chunk["usage"] for chunk in told(translated(to_chat(), stream)) if chunk.get("usage")]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (19, 7)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 4
    assert message(stream)["usage"] == {"input_tokens": 15, "cache_read_input_tokens": 4, "output_tokens": 7}
