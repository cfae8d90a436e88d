"""How the fields of a stream's events join into one whole answer, by each dialect's table."""

import sys
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import DIALECTS, Chunk
from providers.dialects.gemini.streams import FromChat as GeminiFromChat
from providers.dialects.gemini.streams import ToChat as GeminiToChat
from providers.dialects.interactions.streams import FromChat as InteractionsFromChat
from providers.dialects.messages.stream_from_chat import FromChat as MessagesFromChat
from providers.dialects.messages.stream_to_chat import ToChat as MessagesToChat
from providers.dialects.responses.stream_from_chat import FromChat as ResponsesFromChat
from providers.dialects.responses.stream_to_chat import ToChat as ResponsesToChat
from providers.refusals import ErrorKind, UpstreamError

SOUND = bytes(range(9))
COUNTED = {"prompt_tokens": 1336, "completion_tokens": 31, "total_tokens": 1367}


def gathered(dialect: str, *said: Mapping[str, Any], single: bool = True) -> Any:
    gathering = DIALECTS[dialect].answers.gathering()
    gathering.single = single
    for event in said:
        gathering.take(Chunk(msgspec.json.encode(event), meaningful=True))
    return msgspec.json.decode(gathering.body())


def chunk(delta: Mapping[str, Any] | None = None, reason: str | None = None, **choice: Any) -> dict[str, Any]:
    given = {"delta": delta or {}, "finish_reason": reason, "index": 0, **choice}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [given]}


def message(*deltas: Mapping[str, Any]) -> Any:
    return gathered("chat", *map(chunk, deltas))["choices"][0]["message"]


def encoded(data: bytes) -> str:
    return b64encode(data).decode()


def test_lists_with_one_entry_a_token_are_continued_at_every_level() -> None:
    of_chat = gathered(
        "chat",
        {**chunk({"content": "a"}, token_ids=[1], logprobs={"content": [1]}), "prompt_token_ids": [7]},
        {
            **chunk({"content": "b"}, "stop", token_ids=[2], logprobs={"content": [2], "refusal": None}),
            "token_ids": [3],
        },
        {**chunk(), "token_ids": [4]},
    )
    [choice] = of_chat["choices"]
    assert (choice["token_ids"], choice["logprobs"]["content"]) == ([1, 2], [1, 2])
    assert (of_chat["prompt_token_ids"], of_chat["token_ids"]) == ([7], [3, 4])
    pieces = [{"choices": [{"index": "0", "text": text, "token_ids": [ord(text)]}]} for text in "ab"]
    [choice] = gathered("completions", *pieces)["choices"]
    assert (choice["text"], choice["token_ids"], choice["index"]) == ("ab", [97, 98], 0)


def test_the_log_probabilities_of_gemini_are_continued_and_its_grounding_is_the_last() -> None:
    def said(token: str, **more: Any) -> dict[str, Any]:
        probabilities = {"chosenCandidates": [{"token": token}], "topCandidates": [{"candidates": [{"token": token}]}]}
        part = {"content": {"parts": [{"text": token}], "role": "model"}, "logprobsResult": probabilities}
        return {"candidates": [{**part, **more}], "responseId": "r"}

    one, two = {"uri": "1"}, {"uri": "2"}
    answer = gathered(
        "gemini",
        said("a", groundingMetadata={"queries": [1]}, citationMetadata={"citationSources": [one]}),
        said("b", groundingMetadata={"queries": [1, 2]}, citationMetadata={"citationSources": [one, two]}),
    )
    [candidate] = answer["candidates"]
    assert [each["token"] for each in candidate["logprobsResult"]["chosenCandidates"]] == ["a", "b"]
    assert len(candidate["logprobsResult"]["topCandidates"]) == 2
    assert candidate["groundingMetadata"] == {"queries": [1, 2]}
    assert candidate["citationMetadata"] == {"citationSources": [one, two]}


@pytest.mark.parametrize("cuts", [(4, 9), (3, 9), (1, 2, 9), (9,)])
def test_pieces_of_base64_are_joined_as_bytes(cuts: tuple[int, ...]) -> None:
    pieces = [SOUND[begin:end] for begin, end in zip((0, *cuts), cuts, strict=False)]
    deltas = [{"audio": {"id": "a", "transcript": "he"}}, *({"audio": {"data": encoded(one)}} for one in pieces)]
    audio = message(*deltas, {"audio": {"transcript": "y", "expires_at": 5}})["audio"]
    assert audio == {"id": "a", "transcript": "hey", "data": encoded(SOUND), "expires_at": 5}
    sound = [{"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": encoded(one)}} for one in pieces]
    answer = gathered("gemini", *({"candidates": [{"content": {"parts": [one]}}]} for one in sound))
    [part] = answer["candidates"][0]["content"]["parts"]
    assert b64decode(part["inlineData"]["data"], validate=True) == SOUND


def test_one_base64_text_that_was_cut_anywhere_stays_one_text() -> None:
    whole = encoded(SOUND)
    assert message({"audio": {"data": whole[:5]}}, {"audio": {"data": whole[5:]}})["audio"]["data"] == whole


def test_pictures_of_gemini_stay_apart() -> None:
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    answer = gathered("gemini", *({"candidates": [{"content": {"parts": [picture]}}]} for _ in range(2)))
    assert answer["candidates"][0]["content"]["parts"] == [picture, picture]


def test_reasoning_details_are_merged_by_index_and_keep_their_signature() -> None:
    def detail(index: int, kind: str = "text", **more: Any) -> dict[str, Any]:
        return {"reasoning_details": [{"type": f"reasoning.{kind}", "index": index, "format": "anthropic", **more}]}

    said = message(
        detail(0, text="Let ", signature=None),
        detail(0, text="me"),
        detail(0, text="", signature="sig"),
        detail(1, text="then"),
        detail(1, "encrypted", data="xyz", id="e"),
    )
    assert said["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "format": "anthropic", "text": "Let me", "signature": "sig"},
        {"type": "reasoning.text", "index": 1, "format": "anthropic", "text": "then"},
        {"type": "reasoning.encrypted", "index": 1, "format": "anthropic", "data": "xyz", "id": "e"},
    ]


@pytest.mark.parametrize("name", ["reasoning_details", "thinking_blocks", "content"])
def test_many_details_join_in_as_many_steps_each(name: str) -> None:
    def steps(number: int) -> int:
        details = [
            {"type": "reasoning.text", "index": place, "id": f"r{place}", "text": "a"} for place in range(number)
        ]
        called: list[str] = []
        sys.setprofile(lambda frame, _what, _of: called.append(frame.f_code.co_name))
        try:
            said = message({"content": None, name: details}, {name: details[:1]})
        finally:
            sys.setprofile(None)
        assert [part["text"] for part in said[name]] == ["aa"] + ["a"] * (number - 1)
        return len(called)

    assert steps(800) < 9 * steps(100)


def test_citations_that_come_again_are_said_once() -> None:
    def candidate(*places: int) -> dict[str, Any]:
        sources = [{"uri": f"https://example.com/{place}", "startIndex": place} for place in places]
        return {"candidates": [{"index": 0, "citationMetadata": {"citationSources": sources}}]}

    said = gathered("gemini", candidate(0, 1), candidate(1, 2), candidate(0, 2, 3))
    sources = said["candidates"][0]["citationMetadata"]["citationSources"]
    assert [source["startIndex"] for source in sources] == [0, 1, 2, 3]


def test_thinking_blocks_without_an_index_end_with_their_signature() -> None:
    def block(**fields: Any) -> dict[str, Any]:
        return {
            "thinking_blocks": [{"type": "thinking", **fields}],
            "provider_specific_fields": {"thinking_blocks": []},
        }

    said = message(
        block(thinking="a", signature=""),
        block(thinking="b"),
        block(thinking="", signature="s1"),
        block(thinking="c"),
        block(signature="s2"),
        {"thinking_blocks": [{"type": "redacted_thinking", "data": "x"}]},
        {"thinking_blocks": [{"type": "redacted_thinking", "data": "y"}]},
    )
    assert said["thinking_blocks"] == [
        {"type": "thinking", "thinking": "ab", "signature": "s1"},
        {"type": "thinking", "thinking": "c", "signature": "s2"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "redacted_thinking", "data": "y"},
    ]


def test_texts_references_and_thinking_stay_in_the_order_in_which_they_came() -> None:
    def thinking(text: str) -> dict[str, Any]:
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}

    reference = {"type": "reference", "reference_ids": [1]}
    said = message(
        {"role": "assistant", "content": ""},
        *map(thinking, ("hm", "m")),
        {"content": "See "},
        {"content": "it"},
        {"content": [reference]},
        {"content": [{"type": "text", "text": " a"}]},
        {"content": "nd"},
        {"content": [reference]},
        {"content": [reference]},
    )
    assert said["content"] == [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]},
        {"type": "text", "text": "See it"},
        reference,
        {"type": "text", "text": " and"},
        reference,
        reference,
    ]


def test_an_unknown_field_of_a_delta_joins_by_its_type_and_another_is_the_last() -> None:
    first = {"new_text": "a", "new_list": [1], "new_object": {"t": "x"}, "indexed": [{"index": 0, "v": "p"}]}
    second = {"new_text": "b", "new_list": [2], "new_object": {"t": "y"}, "indexed": [{"index": 0, "v": "q"}]}
    answer = gathered("chat", {**chunk(first, new="1"), "newer": [1]}, {**chunk(second, new="2"), "newer": [1, 2]})
    joined = {"new_text": "ab", "new_list": [1, 2], "new_object": {"t": "xy"}, "indexed": [{"index": 0, "v": "pq"}]}
    assert joined.items() <= answer["choices"][0]["message"].items()
    assert (answer["choices"][0]["new"], answer["newer"]) == ("2", [1, 2])


def test_usage_inside_a_choice_is_that_of_the_answer() -> None:
    said = [chunk({"content": "hi"}), chunk({}, "stop", usage=COUNTED)]
    answer = gathered("chat", *said)
    assert answer["usage"] == COUNTED
    assert "usage" not in answer["choices"][0]
    read = DIALECTS["chat"].answers.read_event(msgspec.json.encode(said[1]), ())
    assert read.usage is not None
    assert read.usage.completion_tokens == 31
    stream = b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in said)
    for translation in (MessagesFromChat({}), ResponsesFromChat({}), GeminiFromChat({})):
        assert b"31" in translation.feed(stream) + translation.end()


def test_every_choice_is_part_of_the_one_answer_that_was_asked_for() -> None:
    stream = [
        chunk({"role": "assistant", "reasoning_content": "hm"}),
        chunk({"content": "Hel"}, index=1),
        chunk({"content": "lo"}, index="1"),
        chunk({}, "stop"),
    ]
    [choice] = gathered("chat", *stream)["choices"]
    assert choice["message"]["content"] == "Hello"
    assert (choice["message"]["reasoning_content"], choice["finish_reason"]) == ("hm", "stop")
    assert len(gathered("chat", *stream, single=False)["choices"]) == 2
    sent = b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in stream)
    for translation in (MessagesFromChat({}), ResponsesFromChat({}), GeminiFromChat({})):
        said = translation.feed(sent) + translation.end()
        assert b"Hel" in said
        assert b'"lo"' in said


CALL = {"id": "fc_1", "type": "function_call", "status": "in_progress", "call_id": "c9", "name": "add", "arguments": ""}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
ADDED = {"type": "response.output_item.added", "output_index": 0, "item": CALL}
PIECE = {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a"'}
REST = {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": ":1}"}
ENDED = {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": '{"a":1}'}
WHOLE = {**CALL, "status": "completed", "arguments": '{"a":1}'}
DONE = {"type": "response.output_item.done", "output_index": 0, "item": WHOLE}


def last(*output: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [*output]}}


@pytest.mark.parametrize(
    "stream",
    [
        (ADDED, PIECE, REST, ENDED, last(MESSAGE)),
        (ADDED, PIECE, REST, last()),
        (ADDED, ENDED, last({**CALL, "status": "completed"}, MESSAGE)),
        (ADDED, PIECE, ENDED, DONE, last({**CALL, "id": "other"})),
        (DONE, last(MESSAGE)),
        (ADDED, last(WHOLE)),
        (ADDED, PIECE, REST, last({**WHOLE, "id": "x", "call_id": "another"})),
    ],
)
def test_a_call_is_whole_whichever_event_has_its_arguments(stream: tuple[Mapping[str, Any], ...]) -> None:
    calls = [item for item in gathered("responses", *stream)["output"] if item["type"] == "function_call"]
    assert [(call["name"], call["arguments"], call["status"]) for call in calls] == [("add", '{"a":1}', "completed")]


def test_a_text_that_the_last_event_lacks_is_that_of_its_events() -> None:
    def text(what: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"response.output_text.{what}", "output_index": 0, "content_index": 0, **fields}

    empty = {**MESSAGE, "content": [{"type": "output_text", "text": "", "annotations": []}]}
    begun = {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE, "content": []}}
    for stream in ((begun, text("delta", delta="h"), text("delta", delta="i")), (begun, text("done", text="hi"))):
        [item] = gathered("responses", *stream, last(empty))["output"]
        assert [part["text"] for part in item["content"]] == ["hi"]


# Pictures and sound, for clients of every API that has a place for them.

PICTURE = "iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
WITH_PICTURE = [chunk({"role": "assistant", "content": "Look"}), chunk({"images": [IMAGE]}), chunk({}, "stop")]
WITH_SOUND = [chunk({"audio": {"id": "a", "transcript": "hi"}}), chunk({"audio": {"data": "AQID"}}), chunk()]


def sse(*said: Mapping[str, Any]) -> bytes:
    return b"".join(b"data: " + msgspec.json.encode(each) + b"\n\n" for each in said) + b"data: [DONE]\n\n"


def told(translation: Any, *said: Mapping[str, Any]) -> list[Any]:
    stream = translation.feed(sse(*said)) + translation.end()
    return [msgspec.json.decode(each.data) for each in events(stream) if each.data and each.data != b"[DONE]"]


def test_a_picture_is_an_item_in_responses_and_inline_data_in_gemini() -> None:
    response = gathered("responses", *told(ResponsesFromChat({}), *WITH_PICTURE))
    assert [item["type"] for item in response["output"]] == ["message", "image_generation_call"]
    assert response["output"][1]["result"] == PICTURE
    assert (response["output"][1]["status"], response["output"][1]["output_format"]) == ("completed", "png")
    answer = gathered("gemini", *told(GeminiFromChat({}), *WITH_PICTURE))
    inline = {"inlineData": {"mimeType": "image/png", "data": PICTURE}}
    assert answer["candidates"][0]["content"]["parts"][:2] == [{"text": "Look"}, inline]


def test_the_address_of_a_picture_is_file_data_in_gemini() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.example/a.jpg"}}
    answer = gathered("gemini", *told(GeminiFromChat({}), chunk({"content": [image]}, "stop")))
    file = {"mimeType": "image/jpeg", "fileUri": "https://x.example/a.jpg"}
    assert answer["candidates"][0]["content"]["parts"][0] == {"fileData": file}
    with pytest.raises(UpstreamError, match="no place"):
        ResponsesFromChat({}).feed(sse(chunk({"images": [image]})))


@pytest.mark.parametrize(
    ("translation", "said"),
    [(MessagesFromChat({}), WITH_PICTURE), (MessagesFromChat({}), WITH_SOUND), (ResponsesFromChat({}), WITH_SOUND)],
)
def test_what_an_api_has_no_place_for_is_an_error_that_says_so(translation: Any, said: list[Any]) -> None:
    with pytest.raises(UpstreamError, match=r"for which the \w+ API has no place") as caught:
        translation.feed(sse(*said))
    assert caught.value.kind is ErrorKind.NO_PLACE


def test_sound_without_a_finish_reason_is_whole_and_inline_data_in_gemini() -> None:
    answer = gathered("gemini", *told(GeminiFromChat({}), *WITH_SOUND))
    [candidate] = answer["candidates"]
    sound = {"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": "AQID"}}
    assert candidate["content"]["parts"][:2] == [{"text": "hi"}, sound]
    assert candidate["finishReason"] == "STOP"
    [choice] = gathered("chat", *WITH_SOUND)["choices"]
    assert choice["finish_reason"] == "stop"


def test_pictures_and_sound_of_gemini_and_responses_reach_chat() -> None:
    parts = [{"inlineData": {"mimeType": kind, "data": PICTURE}} for kind in ("image/png", "audio/L16;rate=24000")]
    google = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}], "responseId": "r"}
    said = gathered("chat", *told(GeminiToChat(), google))["choices"][0]["message"]
    assert (said["images"], said["audio"]["data"]) == ([IMAGE], PICTURE)
    with pytest.raises(UpstreamError, match="no place"):
        GeminiToChat().feed(sse({"candidates": [{"content": {"parts": [{"inlineData": {"mimeType": "video/mp4"}}]}}]}))
    item = {"type": "image_generation_call", "id": "ig", "status": "completed", "result": PICTURE}
    done = {"type": "response.output_item.done", "output_index": 0, "item": item}
    for stream in ([done, last(item)], [last(item)]):
        assert gathered("chat", *told(ResponsesToChat(), *stream))["choices"][0]["message"]["images"] == [IMAGE]


@pytest.mark.parametrize("stream", [(ADDED, ENDED, last(CALL)), (ADDED, last(WHOLE)), (ADDED, DONE, last(MESSAGE))])
def test_arguments_that_no_delta_has_reach_chat(stream: tuple[Mapping[str, Any], ...]) -> None:
    said = gathered("chat", *told(ResponsesToChat(), *stream))["choices"][0]["message"]
    assert [call["function"] for call in said["tool_calls"]] == [{"name": "add", "arguments": '{"a":1}'}]


def test_each_call_has_an_id_of_its_own_whoever_numbers_them() -> None:
    """Clients find a call by its id alone, and some servers give all calls of an answer one id, or none."""

    def ids(*chunks: Mapping[str, Any]) -> list[str]:
        return [call["id"] for call in gathered("chat", *chunks)["choices"][0]["message"]["tool_calls"]]

    start = {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {}}}
    blocks = [
        {"type": "content_block_start", "index": at, "content_block": {"type": "tool_use", "id": "a", "name": "add"}}
        for at in range(2)
    ]
    end = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}
    assert ids(*told(MessagesToChat(), start, *blocks, end)) == ["a", "a_2"]
    parts = [{"functionCall": {"id": "a", "name": "add", "args": {}}}] * 2
    google = {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}], "responseId": "r"}
    assert ids(*told(GeminiToChat(), google)) == ["a", "a_2"]
    items = [{"type": "function_call", "id": f"fc_{at}", "name": "add", "arguments": "{}"} for at in range(2)]
    done = [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(items)]
    assert ids(*told(ResponsesToChat(), *done, last(*items))) == ["fc_0", "fc_1"]
    alike = [{**item, "call_id": "a"} for item in items]
    done = [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(alike)]
    assert ids(*told(ResponsesToChat(), *done, last(*alike))) == ["a", "a_2"]
    calls = [{"index": at, "id": "a", "function": {"name": "add", "arguments": "{}"}} for at in range(2)]
    answer = gathered("gemini", *told(GeminiFromChat({}), chunk({"tool_calls": calls}), chunk(reason="tool_calls")))
    parts = answer["candidates"][0]["content"]["parts"]
    assert [part["functionCall"]["id"] for part in parts if "functionCall" in part] == ["a", "a_2"]
    steps = gathered(
        "interactions", *told(InteractionsFromChat({}), chunk({"tool_calls": calls}), chunk(reason="stop"))
    )
    assert [step["id"] for step in steps["steps"]] == ["a", "a_2"]


def test_arguments_of_a_block_that_never_stops_reach_chat() -> None:
    block = {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 1}}
    stream = (
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    )
    [call] = gathered("chat", *told(MessagesToChat(), *stream))["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a":1}'}
