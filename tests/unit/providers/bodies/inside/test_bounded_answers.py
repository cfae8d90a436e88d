"""What an answer may consist of is bounded, and gathering its pieces takes as long as they are."""

from collections.abc import Callable
from time import process_time

import msgspec
import pytest

from providers.bodies import check_values, events
from providers.bodies.sse import MOST_VALUES
from providers.dialects import DIALECTS, Arguments, is_json, translations
from providers.dialects.events import MOST_OF_ANSWER
from providers.refusals import ErrorKind, UpstreamError


def chat(*choices: object) -> bytes:
    return msgspec.json.encode({"choices": choices})


def calls(number: int) -> object:
    said = [{"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}} for n in range(number)]
    return {"index": 0, "delta": {"tool_calls": said}}


@pytest.mark.parametrize(
    "data",
    [b"[" + b"0," * MOST_VALUES + b"0]", b"[" * MOST_VALUES * 2, b'{"a":{},' * MOST_VALUES],
    ids=["numbers", "lists", "objects"],
)
def test_an_event_has_a_million_values_at_most(data: bytes) -> None:
    with pytest.raises(UpstreamError, match="more than 1000000 values") as told:
        check_values(data)
    assert told.value.kind is ErrorKind.INVALID_RESPONSE


def test_values_in_texts_are_none() -> None:
    text = msgspec.json.encode({"content": 'a, [b] {"c"} \\ ' * MOST_VALUES})
    check_values(text)
    check_values(b"[" + b"0," * (MOST_VALUES - 1) + b"0]")
    check_values(msgspec.json.encode({"picture": "A" * 40_000_000}))


@pytest.mark.parametrize(
    "data",
    [
        chat(calls(MOST_OF_ANSWER + 1)),
        chat(*({"index": n, "delta": {"content": "a"}} for n in range(MOST_OF_ANSWER + 1))),
    ],
)
def test_a_chunk_has_two_thousand_choices_and_calls_at_most(data: bytes) -> None:
    read_event = DIALECTS["chat"].answers.read_event
    with pytest.raises(UpstreamError, match="the answer has more than 2048"):
        read_event(data, ())
    assert read_event(chat(calls(MOST_OF_ANSWER)), ()).names


CHOICE = {"index": 0, "delta": {"content": "a"}}
SAID = {"type": "output_text", "text": "a"}
ITEM = {"type": "message", "id": "m", "role": "assistant", "content": [SAID]}
BLOCK = {"type": "text", "text": "a"}
# (API, the whole answer with as many as are given): each of them becomes an event of its own, or several.
WHOLE: dict[str, tuple[str, Callable[[int], dict[str, object]]]] = {
    "items": ("responses", lambda n: {"object": "response", "status": "completed", "output": [ITEM] * n}),
    "parts": (
        "responses",
        lambda n: {"object": "response", "status": "completed", "output": [{**ITEM, "content": [SAID] * n}]},
    ),
    "blocks": ("messages", lambda n: {"type": "message", "role": "assistant", "content": [BLOCK] * n}),
    "citations": (
        "messages",
        lambda n: {"type": "message", "role": "assistant", "content": [{**BLOCK, "citations": [{"type": "c"}] * n}]},
    ),
}
PICTURE = "A" * 40_000_000
TEXT = 'a, [b] {"c"} ' * 300_000  # a million tokens
# (API, a whole answer as large as real ones are)
LARGEST: dict[str, tuple[str, object]] = {
    "a text, chat": ("chat", {"choices": [{"index": 0, "message": {"content": TEXT}, "finish_reason": "stop"}]}),
    "a text, Messages": ("messages", WHOLE["blocks"][1](1) | {"content": [{"type": "text", "text": TEXT}]}),
    "a text, Responses": (
        "responses",
        WHOLE["items"][1](1) | {"output": [{**ITEM, "content": [{"type": "output_text", "text": TEXT}]}]},
    ),
    "a text, Gemini's": ("gemini", {"candidates": [{"content": {"parts": [{"text": TEXT}]}, "finishReason": "STOP"}]}),
    "a picture, Responses": (
        "responses",
        WHOLE["items"][1](1) | {"output": [{"type": "image_generation_call", "id": "i", "result": PICTURE}]},
    ),
    "a picture, Gemini's": (
        "gemini",
        {"candidates": [{"content": {"parts": [{"inlineData": {"data": PICTURE}}]}, "finishReason": "STOP"}]},
    ),
}
# (API, the API it is translated to, one event with as many as are given)
EVENTS: dict[str, tuple[str, str, Callable[[int], object]]] = {
    "parts": ("gemini", "chat", lambda n: {"candidates": [{"content": {"parts": [{"text": "a"}] * n}}]}),
    "candidates": ("gemini", "chat", lambda n: {"candidates": [{"content": {"parts": [{"text": "a"}]}}] * n}),
    "choices, to Messages": ("chat", "messages", lambda n: {"id": "c", "choices": [CHOICE] * n}),
    "choices, to Gemini's": ("chat", "gemini", lambda n: {"id": "c", "choices": [CHOICE] * n}),
    "choices, to Responses": ("chat", "responses", lambda n: {"id": "c", "choices": [CHOICE] * n}),
    "items": (
        "responses",
        "chat",
        lambda n: {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [ITEM] * n}},
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer_has_two_thousand_of_what_becomes_an_event_at_most(name: str) -> None:
    api, answer = WHOLE[name]
    events_of_answer = DIALECTS[api].answers.events_of_answer
    assert events_of_answer(msgspec.json.encode(answer(MOST_OF_ANSWER)), ())
    with pytest.raises(UpstreamError, match="the answer has more than 2048") as told:
        events_of_answer(msgspec.json.encode(answer(MOST_OF_ANSWER + 1)), ())
    assert told.value.kind is ErrorKind.INVALID_RESPONSE


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_real_answers_pass(name: str) -> None:
    api, answer = LARGEST[name]
    answers = DIALECTS[api].answers
    sent = answers.events_of_answer(msgspec.json.encode(answer), ())
    check_values(sent)
    gathering = answers.gathering()
    for event in events(sent):
        chunk = answers.read_event(event.data, ())
        if not chunk.done or b"[DONE]" not in event.data:
            gathering.take(chunk)
    assert len(gathering.body()) > 3_000_000


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_that_is_translated_has_two_thousand_of_what_becomes_an_event_at_most(name: str) -> None:
    source, target, event = EVENTS[name]

    def translated(number: int) -> bytes:
        [step] = translations(DIALECTS[source], DIALECTS[target], {}, ())
        return step.feed(b"data: " + msgspec.json.encode(event(number)) + b"\n\n")

    assert translated(MOST_OF_ANSWER)
    with pytest.raises(UpstreamError, match="the answer has more than 2048"):
        translated(MOST_OF_ANSWER + 1)


def test_calls_that_come_one_by_one_are_bounded_as_well() -> None:
    answers = DIALECTS["chat"].answers
    gathering = answers.gathering()

    def take(number: int) -> None:
        call = {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}}
        gathering.take(answers.read_event(chat({"index": 0, "delta": {"tool_calls": [call]}}), ()))

    for number in range(MOST_OF_ANSWER):
        take(number)
    with pytest.raises(UpstreamError, match="more than 2048 tool calls"):
        take(MOST_OF_ANSWER)


def test_pieces_of_every_field_are_joined_in_their_order() -> None:
    answers = DIALECTS["chat"].answers
    gathering = answers.gathering()
    for n in range(100):
        function = {"arguments": str(n % 10)}
        delta = {"reasoning": f"{n} ", "tool_calls": [{"index": 0, "function": function}], "images": [n]}
        gathering.take(answers.read_event(chat({"index": 0, "delta": delta}), ()))
    message = msgspec.json.decode(gathering.body())["choices"][0]["message"]
    assert message["reasoning"] == "".join(f"{n} " for n in range(100))
    assert message["tool_calls"][0]["function"]["arguments"] == "0123456789" * 10
    assert message["images"] == list(range(100))


@pytest.mark.parametrize("begin", ["1", '"', "{", " "])
@pytest.mark.parametrize("api", ["messages", "gemini"])
def test_arguments_in_many_pieces_are_translated_in_a_time_like_their_length(api: str, begin: str) -> None:
    def seconds(number: int) -> float:
        translation = translations(DIALECTS["chat"], DIALECTS[api], {}, ())[-1]
        began_s = process_time()
        for n, text in enumerate([begin, *[" " if begin == " " else "1"] * number]):
            for index in (0, 1) if n else (0,):
                call = {"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": text}}
                translation.feed(b"data: " + chat({"index": 0, "delta": {"tool_calls": [call]}}) + b"\n\n")
        return process_time() - began_s

    seconds(1_000)
    least = [min(seconds(number) for _ in range(3)) for number in (2_000, 8_000)]
    assert least[1] < 7 * least[0]


@pytest.mark.parametrize(
    "text",
    ['{"a": "}\\"{", "b": [1, {"c": []}]}', '"a\\\\"', "null", "-1.5e3", "[]", '{"a":1}{"b":2}', "{}}", '{"a"}', "{"],
)
def test_arguments_are_whole_where_they_are_json_however_they_are_cut(text: str) -> None:
    for size in range(1, len(text) + 1):
        arguments = Arguments()
        for at in range(0, len(text), size):
            arguments.pieces.append(text[at : at + size])
            assert arguments.is_whole() == is_json("".join(arguments.pieces))
