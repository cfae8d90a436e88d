"""Streams of chat that differ from OpenAI's, gathered into one answer and translated into each dialect."""

import json
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.bodies import EventSplitter, events
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect, read_event, translations
from providers.dialects.chat.deltas import CallNumbers

TARGETS = [CHAT, MESSAGES, RESPONSES, GEMINI]


def chunk(finish_reason: str | None = None, *, called: str = "delta", **delta: Any) -> bytes:
    choice = {"index": 0, called: delta, "finish_reason": finish_reason}
    return b"data: " + msgspec.json.encode({"id": "c1", "object": "chunk", "model": "m", "choices": [choice]}) + b"\n\n"


def answer(target: Dialect, *chunks: bytes) -> tuple[str, list[tuple[str, Any]]]:
    """Return the text of the answer that ``target`` makes of these chunks, and its calls: names and arguments."""
    return said_in(ended(target, *chunks))


def ended(target: Dialect, *chunks: bytes) -> dict[str, Any]:
    """Return the whole answer that ``target`` makes of these chunks."""
    stream = b"".join(chunks) + b"data: [DONE]\n\n"
    for step in translations(CHAT, target, {}, ()):
        stream = step.feed(EventSplitter().feed(stream)) + step.end()
    gathering = target.answers.gathering()
    for event in events(stream):
        if event.data and event.data != b"[DONE]":
            gathering.take(target.answers.read_event(event.data, ()))
    return dict(msgspec.json.decode(gathering.body()))


def said_in(body: Any) -> tuple[str, list[tuple[str, Any]]]:
    match body:
        case {"object": "chat.completion", "choices": [{"message": message}]}:
            functions = [call["function"] for call in message.get("tool_calls") or ()]
            calls = [(each["name"], each["arguments"]) for each in functions]
            return message["content"] or "", [(name, msgspec.json.decode(written or "{}")) for name, written in calls]
        case {"type": "message", "content": blocks}:
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
            return text, [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        case {"object": "response", "output": items}:
            texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
            called = [item for item in items if item["type"] == "function_call"]
            return "".join(texts), [(item["name"], msgspec.json.decode(item["arguments"])) for item in called]
        case {"candidates": [{"content": {"parts": parts}}]}:
            called = [part["functionCall"] for part in parts if "functionCall" in part]
            return "".join(part.get("text", "") for part in parts), [(call["name"], call["args"]) for call in called]
    raise AssertionError(body)


@pytest.mark.parametrize("target", TARGETS)
def test_a_delta_that_is_called_a_message_is_one(target: Dialect) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    said = answer(
        target,
        chunk(called="message", role="assistant", content="Hel"),
        chunk(called="message", content="lo"),
        chunk(called="message", content=None, tool_calls=[call]),
        chunk("tool_calls", called="message", content=None),
    )
    assert said == ("Hello", [("f", {"x": 1})])


def test_a_message_beside_a_delta_is_not_read() -> None:  # Perplexity sends the text so far as one
    data = b'{"choices":[{"delta":{"content":"lo"},"message":{"content":"Hello"}}]}'
    read = read_event(data)
    assert read.text_chars == 2
    assert read.data is data


def test_clients_of_chat_are_told_a_delta() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    data = msgspec.json.encode(
        {"object": "chat.completion", "choices": [{"message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    )
    assert msgspec.json.decode(read_event(data).data) == {
        "object": "chat.completion.chunk",
        "choices": [{"delta": {"tool_calls": [{"index": 0, **call}]}, "finish_reason": "tool_calls"}],
    }


@pytest.mark.parametrize(
    "odd", [b'{"choices":[{"message":"no"}]}', b'{"choices":[{"message":5,"finish_reason":"stop"}]}']
)
def test_a_message_that_is_no_object_stays(odd: bytes) -> None:
    assert read_event(odd).data is odd


def calling(*pieces: Any) -> bytes:
    return chunk(tool_calls=list(pieces))


def piece(arguments: str, call_id: str | None = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"function": function, **({} if call_id is None else {"id": call_id, "type": "function"}), **more}


ONE = [("f", {"x": 1})]
TWO = [("f", {"x": 1}), ("g", {})]
ALIKE = [("f", {"x": 1}), ("f", {"x": 2})]
ZERO: dict[str, Any] = {"index": 0}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        # All at index 0, whole or in pieces, in one chunk or several.
        ([calling(piece('{"x":1}', "a", "f", **ZERO)), calling(piece("{}", "b", "g", **ZERO))], TWO),
        ([calling(piece('{"x":1}', "a", "f", **ZERO), piece("{}", "b", "g", **ZERO))], TWO),
        (
            [
                *(calling(piece("", "a", "f", **ZERO)), calling(piece('{"x"', **ZERO)), calling(piece(":1}", **ZERO))),
                *(calling(piece("", "b", "g", **ZERO)), calling(piece("{}", **ZERO))),
            ],
            TWO,
        ),
        # The same tool twice: the second begins after the first one's arguments.
        ([calling(piece('{"x":1}', "a", "f", **ZERO)), calling(piece('{"x":2}', "b", "f", **ZERO))], ALIKE),
        # No index at all, and no id either.
        ([calling(piece('{"x":1}', "a", "f")), calling(piece("", "b", "g")), calling(piece("{}"))], TWO),
        ([calling(piece('{"x":1}', None, "f")), calling(piece("{}", None, "g"))], TWO),
        ([calling(piece('{"x":1}', "", "f", **ZERO)), calling(piece('{"x":2}', "", "f", **ZERO))], ALIKE),
        # The id, and even the name, are repeated with each piece.
        ([calling(piece('{"x"', "a", "f", **ZERO)), calling(piece(":1}", "a", "f", **ZERO))], ONE),
        ([calling(piece('{"x"', None, "f", **ZERO)), calling(piece(":1}", None, "f", **ZERO))], ONE),
        ([calling(piece('{"x":1}', None, "f", **ZERO)), calling(piece("", None, "f", **ZERO))], ONE),
        ([calling(piece('{"x"', "a", "f")), calling(piece(":1}", "a")), calling(piece("", "a"))], ONE),
        # Each piece has an id of its own (vLLM before 0.9).
        ([calling(piece('{"x"', "a", "f", **ZERO)), calling(piece(":1}", "b", **ZERO))], ONE),
        ([calling(piece('{"x"', "a", "f", **ZERO)), calling(piece(":1}", "b", "f", **ZERO))], ONE),
        # The index comes later than the call, and the id later than the name.
        ([calling(piece('{"x"', "a", "f")), calling(piece(":1}", **ZERO))], ONE),
        ([calling(piece('{"x"', None, "f", **ZERO)), calling(piece(":1}", "a", **ZERO))], ONE),
        # One id for all, and no index, or one index: nothing goes on behind a whole object.
        ([calling(piece('{"x":1}', "a", "f")), calling(piece("", "a", "g")), calling(piece("{}", "a"))], TWO),
        ([calling(piece('{"x":1}', "a", "f", **ZERO)), calling(piece('{"x":2}', "a", "f", **ZERO))], ALIKE),
        # One id for all, but numbered.
        ([calling(piece('{"x":1}', "a", "f", **ZERO)), calling(piece("{}", "a", "g", index=1))], TWO),
    ],
)
def test_each_tool_call_has_its_own_arguments(target: Dialect, chunks: list[bytes], calls: Any) -> None:
    assert answer(target, *chunks, chunk("tool_calls")) == ("", calls)


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES, GEMINI])
def test_the_deprecated_call_of_a_function_is_a_tool_call(target: Dialect) -> None:
    said = answer(
        target,
        chunk(content=None, function_call={"name": "f", "arguments": ""}),
        chunk(function_call={"arguments": '{"x"'}),
        chunk(function_call={"arguments": ":1}"}),
        chunk("function_call", function_call=None),
    )
    assert said == ("", ONE)


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES, GEMINI])
def test_the_deprecated_call_in_a_whole_answer_is_a_tool_call(target: Dialect) -> None:
    message = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"x":1}'}}
    choice = {"index": 0, "message": message, "finish_reason": "function_call"}
    body = msgspec.json.encode({"id": "c1", "object": "chat.completion", "model": "m", "choices": [choice]})
    assert answer(target, CHAT.answers.events_of_answer(body, ())) == ("", ONE)


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES, GEMINI])
def test_a_call_that_is_told_in_both_ways_is_made_once(target: Dialect) -> None:
    function = {"name": "f", "arguments": '{"x":1}'}
    call = {"index": 0, "id": "a", "type": "function", "function": function}
    assert answer(target, chunk(tool_calls=[call], function_call=function), chunk("tool_calls")) == ("", ONE)


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(['{"city', '{"city": "Os', '{"city": "Oslo"}'], id="all so far with each"),
        pytest.param(['{"city": ', '"Oslo"}', '{"city": "Oslo"}'], id="all once more at the end"),
        pytest.param(['{"city": ', '"Oslo"}', '{"city":"Oslo"}'], id="all once more, written otherwise"),
        pytest.param(["", '{"city": "Oslo"}', '{"city": "Oslo"}'], id="twice"),
    ],
)
def test_arguments_that_a_server_sends_more_than_once_count_once(pieces: list[str]) -> None:
    whole = '{"city": "Oslo"}'
    assert taken(pieces) == whole


def taken(pieces: Iterable[str]) -> str:
    """Return the arguments of one call whose server sends these pieces of them."""
    numbers = CallNumbers()
    calls = [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    return "".join(numbers.take(call)[1]["function"]["arguments"] for call in calls)


@pytest.mark.parametrize(
    "pieces",
    [
        ['{"a": "x', '{"a": "x ', '{"a": "x y"}'],
        ['{"a": "x', " ", 'y"}', '{"a": "x y"}'],
        ["", " ", '{"a": "x', " ", 'y"}', " ", '{"a": "x y"}'],
    ],
)
def test_blanks_in_arguments_are_a_part_of_what_was_sent_already(pieces: list[str]) -> None:
    assert taken(pieces).strip() == '{"a": "x y"}'


def cuts(whole: str) -> list[tuple[int, int]]:
    return list(combinations(range(1, len(whole) + 1), 2))


NESTED = ['{"a": {"a": 1}}', '{"filter":{"filter":1}}', '{"c":[{"c":[]}]}', '{"c":[0,{"c":[0,{}]}]}', '{":":{":":","}}']


@pytest.mark.parametrize("whole", [*NESTED, "[[1,[1]]]", '[{"a":1},{"a":1}]'])
def test_pieces_of_what_repeats_itself_are_all_new(whole: str) -> None:
    for first, second in cuts(whole):
        assert taken([whole[:first], whole[first:second], whole[second:]]) == whole


@pytest.mark.parametrize("whole", NESTED)
def test_what_repeats_itself_counts_once_if_its_server_sends_it_more_than_once(whole: str) -> None:
    assert taken(whole[:end] for end in range(1, len(whole) + 1)) == whole
    for first, second in cuts(whole):
        assert taken([whole[:first], whole[first:second], whole[second:], whole]) == whole
        if whole[:first].rstrip()[-1] not in ":[,":  # there, what follows could also be its continuation
            assert taken([whole[:first], whole[:second], whole]) == whole


@given(st.lists(st.text('{}":,a \\', max_size=4), max_size=8))
def test_pieces_of_one_object_are_all_new(values: list[str]) -> None:
    """However they are cut, and whatever stands in them."""
    whole = json.dumps({"a": values, "{": {"{": values}})
    numbers = CallNumbers()
    for size in (1, 2, 3, 7):
        numbers = CallNumbers()
        pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
        said = [numbers.take({"index": 0, "function": {"arguments": piece}})[1] for piece in pieces]
        assert "".join(each["function"]["arguments"] for each in said) == whole


def test_a_server_that_gives_a_reason_with_each_chunk_is_believed_when_it_was_cut_short() -> None:
    chunks = [chunk("stop", content="Hel"), chunk("stop", content="lo"), chunk("length", content="!"), chunk("stop")]
    assert ended(MESSAGES, *chunks)["stop_reason"] == "max_tokens"
    assert ended(RESPONSES, *chunks)["incomplete_details"] == {"reason": "max_output_tokens"}
    assert ended(GEMINI, *chunks)["candidates"][0]["finishReason"] == "MAX_TOKENS"
    for target in TARGETS:
        assert answer(target, *chunks)[0] == "Hello!"


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_an_answer_of_thoughts_alone_is_not_empty(field: str) -> None:
    chunks = [chunk(role="assistant", content=""), chunk(**{field: "Hm"}), chunk(**{field: "m"}), chunk("stop")]
    [block] = ended(MESSAGES, *chunks)["content"]
    assert (block["type"], block["thinking"]) == ("thinking", "Hmm")
    parts = ended(GEMINI, *chunks)["candidates"][0]["content"]["parts"]
    assert [part for part in parts if part.get("text")] == [{"text": "Hmm", "thought": True}]


def test_thoughts_before_an_answer_stay_unseen_where_nobody_asked_for_them() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for said in (chunk(content="Hi"), chunk(tool_calls=[call])):
        chunks = [chunk(reasoning_content="Hmm"), said, chunk("stop")]
        assert b"Hmm" not in msgspec.json.encode([ended(MESSAGES, *chunks), ended(GEMINI, *chunks)])


@pytest.mark.parametrize("target", [MESSAGES, GEMINI])
def test_thoughts_that_nobody_asked_for_stay_unseen_also_where_each_chunk_has_a_finish_reason(target: Dialect) -> None:
    thoughts = [chunk("stop", reasoning_content="Hm"), chunk("stop", reasoning_content="m")]
    spoken = msgspec.json.encode(ended(target, *thoughts, chunk("stop", content="Hi")))
    assert b"Hm" not in spoken
    assert b"Hi" in spoken
    alone = msgspec.json.encode(ended(target, *thoughts, chunk("stop")))
    assert alone.count(b"Hm") == alone.count(b"Hmm") == 1


@pytest.mark.parametrize("target", [MESSAGES, GEMINI])
def test_thoughts_that_nobody_asked_for_are_told_at_the_end_of_a_stream_without_its_mark(target: Dialect) -> None:
    [step] = translations(CHAT, target, {}, ())
    assert b"Hmm" not in step.feed(chunk(reasoning_content="Hmm") + chunk("stop"))
    assert step.end().count(b"Hmm") == 1
    assert step.end() == b""


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES, GEMINI])
def test_a_part_whose_type_is_no_text_is_none(target: Dialect) -> None:
    odd = chunk(content={"type": []})
    assert not read_event(odd.removeprefix(b"data: ")).meaningful
    assert answer(target, chunk(content="Hi"), odd, chunk("stop")) == ("Hi", [])
