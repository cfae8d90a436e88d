"""What a vendor breaks in its chunks is mended, and nothing else is touched."""

from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects.chat.continuing import FinishReason, ToolIndex, repairs_of


def event(*calls: dict[str, Any], choice: int = 0) -> bytes:
    chunk = {"choices": [{"index": choice, "delta": {"tool_calls": list(calls)}}]}
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def call(call_id: str | None = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": call_id, "function": {"name": name, "arguments": "{"}, **more}


def indexes(stream: bytes) -> list[Any]:
    return [
        tool_call.get("index")
        for one in events(stream)
        for choice in msgspec.json.decode(one.data)["choices"]
        for tool_call in choice["delta"]["tool_calls"]
    ]


def test_calls_without_an_index_are_numbered_by_their_ids() -> None:
    repair = ToolIndex()
    assert indexes(repair.feed(event(call("a", "f"), call("b", "g")))) == [0, 1]
    assert indexes(repair.feed(event(call("a"), call("c", "h")))) == [0, 2]


def test_a_fragment_without_an_id_continues_the_last_call() -> None:
    repair = ToolIndex()
    assert indexes(repair.feed(event(call("a", "f")) + event(call()) + event(call("b", "g")) + event(call()))) == [
        0,
        0,
        1,
        1,
    ]


def test_calls_without_ids_are_told_apart_by_their_names() -> None:
    assert indexes(ToolIndex().feed(event(call(None, "f"), call(None, "f")))) == [0, 1]


def test_parallel_calls_that_all_claim_index_0_are_told_apart() -> None:
    assert indexes(ToolIndex().feed(event(call("a", "f", index=0)) + event(call("b", "g", index=0)))) == [0, 1]


def test_a_fragment_continues_the_call_that_last_had_its_index() -> None:
    repair = ToolIndex()
    begun = event(call("a", "f", index=0)) + event(call("b", "g", index=0))
    assert indexes(repair.feed(begun + event(call(index=0)))) == [0, 1, 1]
    from_one = ToolIndex()
    begun = event(call("a", "f", index=1), call("b", "g", index=2))
    assert indexes(from_one.feed(begun + event(call(index=1), call(index=2)))) == [0, 1, 0, 1]


def test_each_choice_counts_for_itself() -> None:
    repair = ToolIndex()
    assert indexes(repair.feed(event(call("a", "f")) + event(call("b", "f"), choice=1))) == [0, 0]


def test_what_is_numbered_rightly_or_no_tool_call_stays_as_it_came() -> None:
    block = b'data: {"choices":[]}\n\n: "tool_calls"\n\n' + event(call("a", "f", index=0)) + b'data: {"tool_calls"\n\n'
    assert ToolIndex().feed(block) == block
    plain = b"data: 1\n\n"
    assert ToolIndex().feed(plain) is plain


@pytest.mark.parametrize(
    "data",
    [
        b'{"choices": 5, "tool_calls": 1}',
        b'{"choices": [{"index": [1], "delta": {"tool_calls": [{"id": "a"}]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"id": "a", "index": []}]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"id": ["a"]}]}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"function": "f"}]}}]}',
        b'{"choices": [{"index": [], "delta": {"content": "x"}}], "tool_calls": 1}',
        b'{"choices": [{"index": {}, "delta": {"content": "x"}, "finish_reason": 1}]}',
    ],
)
def test_what_is_no_chunk_is_left_to_who_reads_it(data: bytes) -> None:
    block = b"data: " + data + b"\n\n"
    assert ToolIndex().feed(block) == block
    assert FinishReason({"delta": {}}).feed(block) == block


def test_only_named_repairs_are_made() -> None:
    assert repairs_of(frozenset()) == []
    assert [type(repair) for repair in repairs_of(frozenset({"tool_index"}))] == [ToolIndex]


@pytest.mark.parametrize(
    ("delta", "reason"), [({"content": "hi"}, "stop"), ({"tool_calls": [{"index": 0}]}, "tool_calls")]
)
def test_a_finish_reason_that_is_left_out_is_added_before_done(delta: dict[str, Any], reason: str) -> None:
    repair = FinishReason({"delta": {}})
    chunk = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    said = repair.feed(b"data: " + msgspec.json.encode(chunk) + b"\n\n") + repair.feed(b"data: [DONE]\n\n")
    _, end, done = events(said)
    added = {"index": 0, "delta": {}, "finish_reason": reason}
    assert (msgspec.json.decode(end.data), done.data) == ({"id": "c", "choices": [added]}, b"[DONE]")


def test_a_finish_reason_that_was_sent_is_not_added_nor_one_to_a_stream_that_breaks_off() -> None:
    finished = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'
    assert FinishReason({"delta": {}}).feed(finished) == finished
    repair = FinishReason({"delta": {}})
    assert repair.feed(event()) + repair.end() == event()


def test_a_stream_of_calls_that_says_stop_ends_as_the_same_answer_in_one_body() -> None:
    """Google says tool_calls only where it does not stream."""
    called = {"choices": [{"index": 0, "delta": {"tool_calls": [{"id": "a", "function": {"name": "f"}}]}}]}
    ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    repair = ToolIndex()
    block = b"".join(b"data: " + msgspec.json.encode(one) + b"\n\n" for one in (called, ended)) + b"data: [DONE]\n\n"
    *_, last, done = events(repair.feed(block))
    assert msgspec.json.decode(last.data)["choices"][0]["finish_reason"] == "tool_calls"
    assert done.data == b"[DONE]"
    plain = b"data: " + msgspec.json.encode(ended) + b"\n\n"
    assert ToolIndex().feed(plain) == plain
