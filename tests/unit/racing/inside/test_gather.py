import asyncio
from typing import Any

import msgspec
import pytest

from gateway.racing import Block, GatheringSink, Winner
from gateway.racing.reader import WholeEvents
from providers.dialects import CHAT, read_event
from tests.unit.racing.track import DONE, FINISH, ROLE, Timetable, TimetableExchange, Track, delta, event, usage
from tests.unit.racing.virtual_time import run


def gathered(*blocks: bytes) -> Any:
    async def main() -> Any:
        sink = GatheringSink(CHAT)
        exchange = TimetableExchange(Timetable("a"), (), 0.0)
        call: Any = None  # not looked at
        await sink.begin(Winner("a", "a", 1, 1.0, 0.1, exchange, call))
        for block in blocks:
            await sink.write(Block(block, (WholeEvents(block, [read_event(block.removeprefix(b"data: ").strip())]),)))
        return msgspec.json.decode(sink.body())

    return asyncio.run(main())


def choice(**fields: Any) -> bytes:
    return event(id="c1", model="m", choices=[{"index": 0, **fields}])


def test_text_is_joined_in_order_and_the_rest_is_as_a_completion_has_it() -> None:
    answer = gathered(ROLE, delta("Hel"), delta("lo"), FINISH, usage(prompt=3, completion=2), DONE)
    assert answer["object"] == "chat.completion"
    assert answer["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}
    ]
    assert answer["usage"]["completion_tokens"] == 2
    assert (answer["id"], answer["model"]) == ("c1", "m")


def test_parallel_tool_calls_are_joined_by_index_and_lose_it() -> None:
    def tool(index: int, **fields: Any) -> bytes:
        return choice(delta={"tool_calls": [{"index": index, **fields}]})

    answer = gathered(
        tool(0, id="t0", type="function", function={"name": "f", "arguments": ""}),
        tool(0, function={"arguments": '{"a"'}),
        tool(1, id="t1", type="function", function={"name": "g", "arguments": "{}"}),
        tool(0, function={"arguments": ":1}"}),
    )
    assert answer["choices"][0]["message"]["tool_calls"] == [
        {"id": "t0", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "t1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    assert answer["choices"][0]["message"]["content"] is None


def test_tool_calls_without_an_index_are_joined_by_id() -> None:
    def tool(**fields: Any) -> bytes:
        return choice(delta={"tool_calls": [fields]})

    answer = gathered(
        tool(id="a", function={"name": "f", "arguments": "{"}),
        tool(id="b", function={"name": "g", "arguments": "["}),
        tool(id="a", function={"arguments": "}"}),
        tool(function={"arguments": "!"}),
    )
    arguments = [call["function"]["arguments"] for call in answer["choices"][0]["message"]["tool_calls"]]
    assert arguments == ["{}", "[!"]


def test_several_choices_are_kept_apart() -> None:
    def of(index: int, text: str) -> bytes:
        return event(id="c1", choices=[{"index": index, "delta": {"content": text}}])

    answer = gathered(of(1, "b"), of(0, "a"), of(1, "B"), of(0, "A"))
    assert [item["message"]["content"] for item in answer["choices"]] == ["aA", "bB"]


def test_log_probabilities_are_appended() -> None:
    answer = gathered(
        choice(delta={"content": "a"}, logprobs={"content": [{"token": "a"}]}),
        choice(delta={"content": "b"}, logprobs={"content": [{"token": "b"}]}),
    )
    assert [item["token"] for item in answer["choices"][0]["logprobs"]["content"]] == ["a", "b"]


def test_unknown_strings_in_a_delta_are_joined_and_unknown_top_level_fields_are_the_last() -> None:
    first = event(id="c1", note="x", choices=[{"index": 0, "delta": {"reasoning_content": "so "}}])
    second = event(id="c1", note="y", choices=[{"index": 0, "delta": {"reasoning_content": "what"}}])
    answer = gathered(first, second)
    assert answer["choices"][0]["message"]["reasoning_content"] == "so what"
    assert answer["note"] == "y"


def test_the_padding_of_chunks_is_no_field_of_the_answer() -> None:
    pieces = [event(id="c1", obfuscation=pad, choices=[{"index": 0, "delta": {"content": pad}}]) for pad in "abc"]
    answer = gathered(*pieces)
    assert answer["choices"][0]["message"]["content"] == "abc"
    assert "obfuscation" not in answer


def test_typed_parts_are_kept_and_text_after_them_becomes_one() -> None:
    answer = gathered(
        choice(delta={"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
        choice(delta={"content": "so"}),
    )
    content = answer["choices"][0]["message"]["content"]
    assert content[0]["type"] == "thinking"
    assert content[1] == {"type": "text", "text": "so"}


def test_a_repeated_role_is_no_longer_role_and_an_empty_name_forgets_nothing() -> None:
    answer = gathered(
        choice(delta={"role": "assistant", "tool_calls": [{"index": 0, "id": "t", "function": {"name": "f"}}]}),
        choice(delta={"role": "assistant", "tool_calls": [{"index": 0, "function": {"name": "", "arguments": "{}"}}]}),
    )
    message = answer["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_a_null_does_not_erase_what_was_said() -> None:
    answer = gathered(choice(delta={"content": "a"}), FINISH, choice(delta={}, finish_reason=None))
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_tool_calls_that_are_null_at_first_are_none_yet() -> None:
    answer = gathered(
        choice(delta={"role": "assistant", "content": None, "tool_calls": None}),
        choice(delta={"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": "{}"}}]}),
    )
    assert answer["choices"][0]["message"]["tool_calls"][0]["id"] == "t"


@pytest.mark.parametrize("fields", [{}, {"response_format": {"type": "json_object"}}])
def test_half_a_character_among_plain_events_is_replaced_and_no_bug(fields: dict[str, Any]) -> None:
    half = delta("HALF").replace(b"HALF", "€".encode()[:2])
    steps = [(0.1, ROLE), (0.1, delta("a")), (0.2, half), (0.3, delta("b")), (0.4, FINISH), (0.4, DONE), (0.4, None)]
    sink = GatheringSink(CHAT)
    record = run(Track(Timetable("a", steps), sink=sink, streamed=False, fields=fields).run())
    assert record.error_kind is None
    assert msgspec.json.decode(sink.body())["choices"][0]["message"]["content"] == "a\ufffdb"
