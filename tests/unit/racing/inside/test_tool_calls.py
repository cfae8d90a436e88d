"""Tool calls of an answer: counted in each dialect, and known to be JSON or not."""

from typing import Any

import msgspec
import pytest

from gateway.racing import Measurement
from gateway.racing.measurement import MOST_CALLS, MOST_CHARS, AnswerMetadata, ToolCalls
from providers.dialects import CHAT, COMPLETIONS, Dialect
from providers.dialects import read_event as read_chat
from providers.dialects.messages.events import read_event as read_messages
from providers.dialects.responses.events import read_event as read_responses


def of(*pieces: tuple[int, str]) -> ToolCalls:
    calls = ToolCalls()
    calls.add(pieces)
    return calls


def test_pieces_are_put_together_by_call() -> None:
    calls = of((0, ""), (0, '{"city":'), (1, '{"n"'), (0, ' "Rome"}'), (1, ": 1}"))
    assert (calls.number(), calls.valid()) == (2, True)


@pytest.mark.parametrize("broken", ['{"city": "Ro', "{city: 1}", "{} {}", "Rome,"])
def test_one_call_whose_arguments_do_not_parse_makes_all_invalid(broken: str) -> None:
    assert of((0, "{}"), (1, broken)).valid() is False


def test_arguments_that_are_nested_too_deep_to_be_read_are_not_valid() -> None:
    assert of((0, "[" * 100_000)).valid() is False


def test_no_arguments_are_valid_and_too_many_are_not_known() -> None:
    assert of((0, "")).valid() is True
    assert of((0, "[" + "1," * MOST_CHARS)).valid() is None


class Looked(str):
    """A piece of arguments that counts how often its length is asked."""

    __slots__ = ()
    times = 0

    def __len__(self) -> int:
        Looked.times += 1
        return super().__len__()


def test_each_piece_is_looked_at_a_few_times_however_many_begin_as_an_object() -> None:
    number = 2000
    Looked.times = 0
    calls = of((0, "["), *((0, Looked('{"a":1}, ')) for _ in range(number)), (0, "{}]"))
    assert Looked.times <= 10 * number
    assert calls.valid() is True


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


def chat(index: int | None, arguments: str, name: str | None = None) -> bytes:
    call = {"function": {"name": name, "arguments": arguments}, **({} if index is None else {"index": index})}
    return encoded({"id": "chatcmpl-1", "model": "m-0613", "choices": [{"delta": {"tool_calls": [call]}}]})


def test_chat_tells_calls_model_and_reason() -> None:
    measurement = Measurement(0.0)
    end = encoded({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    for at, data in enumerate([chat(0, "", "f"), chat(0, '{"a"'), chat(0, ":1}"), chat(1, "{", "g"), end]):
        measurement.event(read_chat(data), at + 1.0)
    assert measurement.reported.tool_calls is not None
    assert (measurement.reported.tool_calls.number(), measurement.reported.tool_calls.valid()) == (2, False)
    assert (measurement.reported.model_version, measurement.reported.answer_id) == ("m-0613", "chatcmpl-1")
    assert measurement.reported.finish_reason == "tool_calls"


@pytest.mark.parametrize("second", ["f", "g"])
def test_calls_with_one_index_are_told_apart_where_the_first_is_complete(second: str) -> None:
    measurement = Measurement(0.0)
    pieces = [chat(0, "", "f"), chat(0, '{"a"'), chat(0, ":1}"), chat(0, "", second), chat(0, "{"), chat(0, "}")]
    for at, data in enumerate(pieces):
        measurement.event(read_chat(data), at + 1.0)
    calls = measurement.reported.tool_calls
    assert calls is not None
    assert (calls.names, calls.arguments(), calls.valid()) == (["f", second], ['{"a":1}', "{}"], True)


def test_a_call_whose_name_is_sent_with_each_piece_is_one() -> None:
    measurement = Measurement(0.0)
    for at, data in enumerate([chat(0, '{"a"', "f"), chat(0, ":1}", "f"), chat(0, "", "f")]):
        measurement.event(read_chat(data), at + 1.0)
    assert measurement.reported.tool_calls is not None
    assert measurement.reported.tool_calls.arguments() == ['{"a":1}']


def test_a_name_may_come_after_the_arguments() -> None:
    measurement = Measurement(0.0)
    for at, data in enumerate([chat(0, "{}"), chat(0, "", "f")]):
        measurement.event(read_chat(data), at + 1.0)
    assert measurement.reported.tool_calls is not None
    assert measurement.reported.tool_calls.arguments() == ["{}"]


def test_calls_of_one_chunk_with_one_index_are_told_apart() -> None:
    measurement = Measurement(0.0)
    both = [{"index": 0, "id": name, "function": {"name": name, "arguments": "{}"}} for name in "fg"]
    measurement.event(read_chat(encoded({"choices": [{"delta": {"tool_calls": both}}]})), 1.0)
    assert measurement.reported.tool_calls is not None
    assert measurement.reported.tool_calls.arguments() == ["{}", "{}"]


def test_a_first_chunk_without_model_and_id_does_not_hide_them() -> None:
    measurement = Measurement(0.0)
    filters = encoded({"id": "", "model": "", "choices": [], "prompt_filter_results": []})
    for at, data in enumerate([filters, chat(0, "{}", "f")]):
        measurement.event(read_chat(data), at + 1.0)
    assert (measurement.reported.model_version, measurement.reported.answer_id) == ("m-0613", "chatcmpl-1")


def test_the_calls_of_several_choices_are_kept_apart() -> None:
    measurement = Measurement(0.0)
    for at, index in enumerate([0, 1]):
        call = {"index": 0, "function": {"name": "f", "arguments": '{"a": 1}'}}
        choice = {"index": index, "delta": {"tool_calls": [call]}}
        measurement.event(read_chat(encoded({"choices": [choice]})), at + 1.0)
    both = [{"index": index, "delta": {"tool_calls": [{"index": 1, "function": {"name": "g"}}]}} for index in (0, 1)]
    measurement.event(read_chat(encoded({"choices": both})), 3.0)
    assert measurement.reported.tool_calls is not None
    assert (measurement.reported.tool_calls.number(), measurement.reported.tool_calls.valid()) == (4, True)


F, G = {"id": "a", "function": {"name": "f"}}, {"id": "b", "function": {"name": "g"}}


@pytest.mark.parametrize(
    "pieces",
    [
        [F, {"function": {"arguments": '{"a":'}}, {"function": {"arguments": "1}"}}, G],
        [{**F, "function": {"arguments": '{"a":'}}, {"id": "a", "function": {"arguments": "1}"}}, G],
        [{"function": {"name": "f", "arguments": '{"a":1}'}}, {"function": {"name": "g", "arguments": '{"a":1}'}}],
    ],
    ids=["the id is in the first piece", "the id is in each piece", "no id"],
)
def test_calls_that_come_without_index_are_kept_apart(pieces: list[dict[str, Any]]) -> None:
    measurement = Measurement(0.0)
    for at, piece in enumerate(pieces):
        measurement.event(read_chat(encoded({"choices": [{"delta": {"tool_calls": [piece]}}]})), at + 1.0)
    assert measurement.reported.tool_calls is not None
    assert (measurement.reported.tool_calls.number(), measurement.reported.tool_calls.valid()) == (2, True)


def test_the_call_of_a_custom_tool_is_one_without_arguments() -> None:
    """Its input is text, as that of Codex's apply_patch."""
    function = {"index": 1, "function": {"name": "f", "arguments": '{"a": 1}'}}
    pieces = [{"index": 0, "custom": {"name": "sql", "input": "SELECT"}}, {"index": 0, "custom": {"input": " 1"}}]
    of_chat = [{"choices": [{"delta": {"tool_calls": [piece]}}]} for piece in (*pieces, function)]
    of_responses: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "custom_tool_call", "name": "sql"}},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "SELECT 1"},
        {"type": "response.output_item.added", "output_index": 1, "item": {"type": "function_call", "name": "f"}},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"a": 1}'},
    ]
    for read, events in ((read_chat, of_chat), (read_responses, of_responses)):
        measurement = Measurement(0.0)
        for event in events:
            measurement.event(read(encoded(event)), 1.0)
        calls = measurement.reported.tool_calls
        assert calls is not None
        assert (calls.number(), calls.names, calls.arguments()) == (2, ["sql", "f"], ["", '{"a": 1}'])


def test_more_calls_than_anybody_makes_are_not_kept() -> None:
    calls = of(*((place, "") for place in range(MOST_CALLS + 1)))
    assert (calls.number(), calls.valid()) == (None, None)


def test_messages_tell_the_same() -> None:
    measurement = Measurement(0.0)
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "f", "input": {}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
    ]
    for at, event in enumerate(events):
        measurement.event(read_messages(encoded(event)), at + 1.0)
    assert measurement.reported.tool_calls is not None
    assert (measurement.reported.tool_calls.number(), measurement.reported.tool_calls.valid()) == (1, True)
    assert (measurement.reported.model_version, measurement.reported.answer_id) == ("claude-x", "msg_1")
    assert measurement.reported.finish_reason == "tool_use"


def test_responses_tell_the_same() -> None:
    measurement = Measurement(0.0)
    response = {
        "id": "resp_1",
        "model": "gpt-x",
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
    }
    arguments = {"type": "response.function_call_arguments.delta", "output_index": 2}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "name": "f"}},
        {**arguments, "delta": '{"a":'},
        {"type": "response.incomplete", "response": response},
    ]
    for at, event in enumerate(events):
        measurement.event(read_responses(encoded(event)), at + 1.0)
    assert measurement.reported.tool_calls is not None
    assert (measurement.reported.tool_calls.number(), measurement.reported.tool_calls.valid()) == (1, False)
    assert (measurement.reported.model_version, measurement.reported.answer_id) == ("gpt-x", "resp_1")
    assert measurement.reported.finish_reason == "max_output_tokens"


@pytest.mark.parametrize("dialect", [CHAT, COMPLETIONS])
def test_a_fingerprint_is_the_first_that_an_answer_states(dialect: Dialect) -> None:
    reported = AnswerMetadata()
    for said in (b'"model": "m"', b'"system_fingerprint": "fp_1"', b'"system_fingerprint": "fp_2"'):
        reported.note(dialect.answers.read_event(b'{"choices": [], %s}' % said, ()))
    assert (reported.model_version, reported.fingerprint) == ("m", "fp_1")


ADDED = {"type": "response.output_item.added", "item": {"type": "function_call", "name": "f", "arguments": ""}}
WHOLE = {"type": "function_call", "name": "f", "arguments": '{"a":1}'}
ENDS: list[dict[str, Any]] = [
    {"type": "response.function_call_arguments.done", "arguments": '{"a":1}'},
    {"type": "response.output_item.done", "item": WHOLE},
    {"type": "response.completed", "response": {"status": "completed", "output": [WHOLE]}},
]


@pytest.mark.parametrize("pieces", [[], ['{"a"', ":1}"]], ids=["none", "some"])
@pytest.mark.parametrize("ends", [*([each] for each in ENDS), ENDS], ids=["arguments", "item", "response", "all"])
def test_responses_arguments_may_come_only_in_an_event_that_has_them_whole(
    pieces: list[str], ends: list[dict[str, Any]]
) -> None:
    measurement = Measurement(0.0)
    deltas = [{"type": "response.function_call_arguments.delta", "delta": piece} for piece in pieces]
    for at, event in enumerate([ADDED, *deltas, *ends]):
        measurement.event(read_responses(encoded(event)), at + 1.0)
    calls = measurement.reported.tool_calls
    assert calls is not None
    assert (calls.names, calls.arguments()) == (["f"], ['{"a":1}'])


def test_a_whole_item_that_never_began_is_no_call_of_the_client() -> None:
    measurement = Measurement(0.0)
    measurement.event(read_responses(encoded(ENDS[1])), 1.0)
    assert measurement.reported.tool_calls is None
