"""Translated streams have their events in the order of the vendor, in whatever order a server of chat has them."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers.bodies import EventSplitter, events
from providers.dialects import CHAT, GEMINI, MESSAGES, RESPONSES, Dialect, translations
from tests.support.orders import wrong_order
from tests.unit.providers.dialects.inside.responses_streams import chunk, raw, sse, used
from tests.unit.providers.dialects.test_joins_in_pieces import Draw, merged, pieces_of

TARGETS = [MESSAGES, RESPONSES, GEMINI]
# Who shows thoughts has them in the stream, too.
ASKED: dict[str, dict[str, Any]] = {
    "messages": {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    "gemini": {"generationConfig.thinkingConfig": {"includeThoughts": True}},
}
BESIDE = [{"content": "Hi"}, {"content": ""}, {"reasoning_content": "hm"}, {}, {"refusal": "no"}, {"content": "\n"}]


def streamed(target: Dialect, deltas: list[dict[str, Any]], reason: str = "tool_calls") -> bytes:
    chunks = [chunk(role="assistant", content=""), *(chunk(**each) for each in deltas), chunk(reason), used()]
    said = b""
    [step] = translations(CHAT, target, raw(ASKED.get(target.name, {})), ())
    for event in events(EventSplitter().feed(sse(*chunks) + b"data: [DONE]\n\n")):  # as they arrive
        said += step.feed(event.raw)
    return said + step.end()


def called_in(target: Dialect, stream: bytes) -> list[tuple[str, Any]]:
    gathering = target.answers.gathering()
    for event in events(stream):
        gathering.take(target.answers.read_event(event.data, ()))
    match msgspec.json.decode(gathering.body()):
        case {"type": "message", "content": blocks}:
            return [(each["name"], each["input"]) for each in blocks if each["type"] == "tool_use"]
        case {"object": "response", "output": items}:
            called = [each for each in items if each["type"] == "function_call"]
            return [(each["name"], json.loads(each["arguments"])) for each in called]
        case {"candidates": [{"content": {"parts": parts}}]}:
            called = [each["functionCall"] for each in parts if "functionCall" in each]
            return [(each["name"], each["args"]) for each in called]
        case body:
            raise AssertionError(body)


def begun(index: int, arguments: str = "") -> dict[str, Any]:
    function = {"name": "fgh"[index], "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": f"c{index}", "type": "function", "function": function}]}


def more(index: int, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


@st.composite
def calls_in_any_order(draw: Draw) -> tuple[list[dict[str, Any]], list[tuple[str, Any]]]:
    """Return deltas of parallel calls and of what is beside them, and the calls."""
    lanes, said = [], {}
    for index in range(draw(st.integers(1, 3))):
        given_ = draw(st.sampled_from([{"x": 1}, {"a": {"b": [{}]}, "c": "{}"}, {"t": 'a"}b'}]))
        pieces = pieces_of(draw, json.dumps(given_))
        at_once = draw(st.booleans())
        lanes.append(
            [begun(index, "".join(pieces) if at_once else ""), *(more(index, p) for p in pieces if not at_once)]
        )
        said["fgh"[index]] = given_
    lanes.append(draw(st.lists(st.sampled_from(BESIDE), max_size=3)))
    mixed: list[dict[str, Any]] = merged(draw, *lanes)
    order = [call["function"]["name"] for each in mixed for call in each.get("tool_calls", ()) if "id" in call]
    return mixed, [(name, said[name]) for name in order]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
@given(said=calls_in_any_order())
def test_calls_that_are_interleaved_come_one_after_the_other(
    target: Dialect, said: tuple[list[dict[str, Any]], list[tuple[str, Any]]]
) -> None:
    stream = streamed(target, said[0])
    assert wrong_order(target.name, stream) is None
    assert called_in(target, stream) == said[1]


def test_pi_runs_each_of_two_calls_once() -> None:
    """Its reader has one current item, and runs what ends."""
    stream = streamed(RESPONSES, [begun(0, '{"x":1}'), begun(1), more(1, '{"x":2}')])
    current: dict[str, Any] = {}
    run = []
    for event in (json.loads(each.data) for each in events(stream)):
        match event["type"]:
            case "response.output_item.added":
                current = {"arguments": event["item"]["arguments"]}
            case "response.function_call_arguments.delta":
                current["arguments"] += event["delta"]
            case "response.output_item.done":
                run.append((event["item"]["name"], json.loads(current["arguments"] or event["item"]["arguments"])))
                current = {}
    assert run == [("f", {"x": 1}), ("g", {"x": 2})]


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES], ids=lambda target: target.name)
def test_a_call_is_told_as_it_comes(target: Dialect) -> None:
    """Only what is not of the open call waits: neither the first call nor, once that is whole, the next one."""
    [step] = translations(CHAT, target, {}, ())
    deltas = (begun(0), more(0, '{"x"'), more(0, ":1}"), begun(1), more(1, '{"x":'), more(1, "2}"))
    told = [step.feed(sse(chunk(**delta))) for delta in deltas]
    assert all(told)
    assert b'{\\"x\\"' in told[1]
    assert b'"g"' in told[3]
    assert told[4]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_text_amid_the_arguments_of_a_call_comes_after_it(target: Dialect) -> None:
    stream = streamed(target, [begun(0, '{"x"'), {"content": "Hi"}, more(0, ":1}")])
    assert called_in(target, stream) == [("f", {"x": 1})]
    assert wrong_order(target.name, stream) is None


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES], ids=lambda target: target.name)
def test_a_text_after_a_whole_call_is_told_at_once(target: Dialect) -> None:
    [step] = translations(CHAT, target, {}, ())
    step.feed(sse(chunk(**begun(0, '{"x":1}'))))
    assert b"Hi" in step.feed(sse(chunk(content="Hi")))


def test_a_call_that_the_limit_cut_off_is_incomplete_also_before_a_text_that_waited() -> None:
    stream = streamed(RESPONSES, [begun(0, '{"x"'), {"content": "Hi"}], reason="length")
    last = json.loads([*events(stream)][-1].data)["response"]
    assert (last["status"], [item["status"] for item in last["output"]]) == ("incomplete", ["incomplete", "incomplete"])


def test_texts_of_custom_tools_that_are_interleaved_keep_their_own() -> None:
    def custom(index: int, text: str, **head: Any) -> dict[str, Any]:
        named = {"name": "pq"[index]} if head else {}
        return {"tool_calls": [{"index": index, **head, "custom": {**named, "input": text}}]}

    head = {"type": "custom"}
    deltas = [custom(0, "a", id="c0", **head), custom(1, "b", id="c1", **head), custom(0, "A"), custom(1, "B")]
    stream = streamed(RESPONSES, deltas)
    assert wrong_order("responses", stream) is None
    output = json.loads([*events(stream)][-1].data)["response"]["output"]
    assert [(item["name"], item["input"]) for item in output] == [("p", "aA"), ("q", "bB")]
