"""Gemini requests, answers and streams: Google's own bytes, and the way to chat and back."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import (
    CHAT,
    GEMINI,
    WHOLE_CALL,
    Chunk,
    Habits,
    JsonFormat,
    Malformed,
    Wording,
    flattened,
    translations,
)
from providers.dialects.gemini.dialect import habits_of
from providers.dialects.gemini.events import GeminiGathering, error_body, events_of_answer, failure, read_event, texts
from providers.dialects.gemini.fields import UNSIGNED, body_of, json_schema_of
from providers.dialects.gemini.request_to_chat import to_chat
from providers.dialects.gemini.streams import FromChat, ToChat
from providers.models import Usage, traits_of
from providers.refusals import ErrorKind, UpstreamError

ASK = [{"role": "user", "parts": [{"text": "Hi"}]}]
CHAT_ASK = [{"role": "user", "content": "Hi"}]
SIGNATURE = "EjQKMgERTTIHsOlQ1oMEqxYzQvHGfVnTk+Wfz5Yk7BQ/abc="
PIXEL = "iVBORw0KGgo="
# As Google's documents and servers have them.
FIRST = (
    b'{"candidates": [{"content": {"parts": [{"text": "Here you go!\\n\\n"}],"role": "model"},"index": 0}],'
    b'"usageMetadata": {"promptTokenCount": 5,"candidatesTokenCount": 39,"totalTokenCount": 230,"promptTokensDetails":'
    b' [{"modality": "TEXT","tokenCount": 5}],"thoughtsTokenCount": 186},"modelVersion":'
    b' "models/gemini-2.5-flash-preview-05-20","responseId": "AdVRaMmDCYekqtsPrb_-iAw"}'
)
LAST = (
    b'{"candidates": [{"content": {"parts": [{"text": "Ciao"}],"role": "model"},"finishReason": "STOP","index": 0}],'
    b'"usageMetadata": {"promptTokenCount": 5,"candidatesTokenCount": 44,"totalTokenCount": 235,"thoughtsTokenCount":'
    b' 186,"cachedContentTokenCount": 2,"toolUsePromptTokenCount": 3},"modelVersion": "m","responseId": "r"}'
)


def raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def in_chat(*, thoughts: bool = False, **fields: Any) -> Wording:
    return to_chat(flattened(raw({"contents": ASK, **fields})), thoughts=thoughts)


def in_gemini(*, model: str = "gemini-3-flash", **fields: Any) -> Wording:
    assert GEMINI.pivoting is not None
    return GEMINI.pivoting.from_chat(raw({"messages": CHAT_ASK, **fields}), habits_of(traits_of(model), None, Habits()))


def said(wording: Wording) -> dict[str, Any]:
    return {name: msgspec.json.decode(value) for name, value in wording.fields.items()}


def body(wording: Wording) -> dict[str, Any]:
    return {name: msgspec.json.decode(value) for name, value in body_of(wording.fields).items()}


def lost(wording: Wording, *, hint: bool = False) -> list[str]:
    return [loss.field for loss in wording.losses if loss.hint is hint]


def event(**fields: Any) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\r\n\r\n"


def parts(*given: dict[str, Any], finish: str | None = None, index: int = 0) -> bytes:
    end = {} if finish is None else {"finishReason": finish}
    return event(candidates=[{"content": {"parts": list(given), "role": "model"}, "index": index, **end}])


def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + msgspec.json.encode({"id": "c", "model": "m", "choices": [choice], **more}) + b"\n\n"


def datas(stream: bytes) -> list[Any]:
    return [msgspec.json.decode(each.data) for each in events(stream) if each.data and each.data != b"[DONE]"]


# Events.


def test_an_event_of_googles_is_read() -> None:
    first, last = read_event(FIRST), read_event(LAST)
    assert (first.meaningful, first.answer, first.finished, first.done, first.text_chars) == (
        True,
        True,
        False,
        False,
        14,
    )
    assert first.usage == Usage(5, 225, 186, None)
    assert (first.model, first.id) == ("models/gemini-2.5-flash-preview-05-20", "AdVRaMmDCYekqtsPrb_-iAw")
    assert (last.finished, last.finish_reason, last.usage) == (True, "STOP", Usage(8, 230, 186, 2))
    assert [*texts(FIRST)] == [(0, "Here you go!\n\n")]


def test_thoughts_are_reasoning_and_no_text_of_the_answer() -> None:
    data = parts({"text": "hm", "thought": True})[6:-4]
    read = read_event(data)
    assert (read.meaningful, read.answer, read.reasoning, read.text_chars) == (True, False, True, 2)
    assert [*texts(data)] == []


def test_calls_are_whole_wherever_they_stand() -> None:
    call = {"functionCall": {"name": "f", "args": {"x": 1}}}
    read = read_event(parts(call, {"functionCall": {"name": "g"}})[6:-4])
    assert read.tools == [(WHOLE_CALL, '{"x":1}'), (WHOLE_CALL, "{}")]
    assert (read.names, read.answer) == (["f", "g"], True)


def test_arguments_that_are_not_utf_8_do_not_stop_the_reading() -> None:
    read = read_event(parts({"functionCall": {"name": "f", "args": {"x": "?"}}})[6:-4].replace(b"?", b"\xff"))
    assert read.tools == [(WHOLE_CALL, '{"x":"\N{REPLACEMENT CHARACTER}"}')]


def test_a_blocked_prompt_is_a_refusal_without_an_answer() -> None:
    read = read_event(
        b'{"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 5}}'
    )
    assert (read.meaningful, read.finished, read.refused) == (False, True, True)
    assert read.finish_reason in GEMINI.answers.refusals
    no_content = read_event(b'{"candidates": [{"finishReason": "SAFETY", "index": 0}]}')
    assert (no_content.finished, no_content.meaningful) == (True, False)
    assert no_content.finish_reason in GEMINI.answers.refusals


@pytest.mark.parametrize(
    "data",
    [
        b'{"candidates": [{"content": {"parts": [{"text": 5}, {"text": "Hi"}]}, "finishReason": 7, "index": "x"}]}',
        b'{"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "index": "x"}, 5], "usageMetadata": "many"}',
        b'[{"candidates": [{"content": {"parts": [{"text": "Hi"}]}}], "modelVersion": 3}]',
    ],
)
def test_what_does_not_fit_is_left_out(data: bytes) -> None:
    read = read_event(data)
    assert (read.answer, read.text_chars, read.error) == (True, 2, None)


def test_errors_are_read_in_both_forms() -> None:
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    for data in (msgspec.json.encode(error), msgspec.json.encode([error])):
        found = read_event(data).error
        assert found is not None
        assert (found.kind, found.status, found.message) == (ErrorKind.SERVER_ERROR, 503, "The model is overloaded.")
    for data in (b"5", b"no", b'"x"'):
        with pytest.raises(UpstreamError):
            read_event(data)


def test_errors_are_told_in_googles_words() -> None:
    told = json.loads(error_body(429, "x", "too many", "id-1"))["error"]
    assert (told["code"], told["status"], told["details"][0]["requestId"]) == (429, "RESOURCE_EXHAUSTED", "id-1")
    assert json.loads(error_body(418, "", "no", None))["error"] == {
        "code": 418,
        "message": "no",
        "status": "INVALID_ARGUMENT",
    }
    [kept] = datas(failure("ttft_timeout", "late"))
    assert kept["error"] == {"code": 504, "message": "late", "status": "DEADLINE_EXCEEDED"}


# Whole answers.


def gathered(stream: bytes) -> Any:
    gathering = GeminiGathering()
    for each in events(stream):
        gathering.take(Chunk(each.data))
    return msgspec.json.decode(gathering.body())


def test_texts_are_joined_and_signed_parts_are_kept_apart() -> None:
    stream = b"".join(
        [
            parts({"text": "h", "thought": True}),
            parts({"text": "m", "thought": True}, {"text": "Hel"}),
            parts({"text": "lo"}),
            parts({"text": "!", "thoughtSignature": SIGNATURE}),
            parts({"functionCall": {"name": "f", "args": {}}}, {"text": " bye"}, finish="STOP"),
        ]
    )
    [candidate] = gathered(stream)["candidates"]
    assert candidate["content"]["parts"] == [
        {"text": "hm", "thought": True},
        {"text": "Hello"},
        {"text": "!", "thoughtSignature": SIGNATURE},
        {"functionCall": {"name": "f", "args": {}}},
        {"text": " bye"},
    ]
    assert candidate["finishReason"] == "STOP"


def test_candidates_are_gathered_by_their_numbers() -> None:
    stream = parts({"text": "a"}) + parts({"text": "b"}, index=1) + parts({"text": "c"}, finish="STOP", index=1)
    first, second = gathered(stream)["candidates"]
    assert [each["content"]["parts"][0]["text"] for each in (first, second)] == ["a", "bc"]
    assert gathered(event(candidates=[{"finishReason": "SAFETY"}]))["candidates"] == [{"finishReason": "SAFETY"}]


def test_what_is_null_is_as_if_it_were_missing() -> None:
    null = {"index": None, "finishReason": None, "content": {"parts": None}}
    stream = event(candidates=[null], promptFeedback=None) + event(candidates=None) + parts({"text": "a"})
    [candidate] = gathered(stream)["candidates"]
    assert candidate["content"]["parts"] == [{"text": "a"}]


def test_a_whole_answer_is_one_event() -> None:
    assert gathered(events_of_answer(LAST)) == json.loads(LAST)
    for wrong in (b"{}", b'{"choices": []}'):
        with pytest.raises(UpstreamError):
            events_of_answer(wrong)
    with pytest.raises(UpstreamError, match="overloaded"):
        events_of_answer(b'[{"error": {"code": 503, "message": "overloaded"}}]')


# Requests.


def test_parameters_are_lifted_out_of_their_nest_and_put_back() -> None:
    config = {"temperature": 0.5, "topK": 3, "aNewOne": {"x": 1}}
    given = raw({"contents": ASK, "generation_config": config, "safety_settings": [], "x": None})
    flat = flattened(given)
    assert bytes(flat["generationConfig.temperature"]) == b"0.5"
    back = {name: msgspec.json.decode(value) for name, value in body_of({**flat, **raw({"model": "m"})}).items()}
    assert back == {"contents": ASK, "generationConfig": config, "safetySettings": [], "x": None}
    own = raw({"generationConfig": {"temperature": 1.5}})
    assert msgspec.json.decode(body_of({**flat, **own})["generationConfig"])["temperature"] == 1.5


def test_a_request_of_googles_is_worded_in_chat() -> None:
    schema = {"type": "OBJECT", "properties": {"city": {"type": "STRING", "nullable": True}}, "required": ["city"]}
    wording = in_chat(
        systemInstruction={"parts": {"text": "Be brief."}},
        generationConfig={
            "temperature": 0.5,
            "topP": 0.9,
            "maxOutputTokens": 90,
            "stopSequences": ["END"],
            "candidateCount": 2,
            "seed": 7,
            "responseMimeType": "application/json",
            "responseSchema": schema,
            "thinkingConfig": {"thinkingBudget": 0},
        },
        tools=[{"functionDeclarations": [{"name": "w", "description": "d", "parameters": schema}]}],
        toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["w"]}},
        safetySettings=[{"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"}],
    )
    made = {
        "type": "object",
        "properties": {"city": {"type": ["string", "null"]}},
        "required": ["city"],
    }
    assert lost(wording) == lost(wording, hint=True) == []
    assert said(wording) == {
        "messages": [{"role": "system", "content": "Be brief."}, *CHAT_ASK],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_completion_tokens": 90,
        "n": 2,
        "seed": 7,
        "stop": ["END"],
        "tools": [{"type": "function", "function": {"name": "w", "description": "d", "parameters": made}}],
        "tool_choice": {"type": "function", "function": {"name": "w"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": made}},
        "reasoning_effort": "none",
    }


def test_a_conversation_with_functions_is_worded_in_chat() -> None:
    turns = [
        *ASK,
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"text": "Let me see."},
                {"functionCall": {"name": "w", "args": {"city": "Oslo"}}, "thoughtSignature": SIGNATURE},
                {"function_call": {"name": "w", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "w", "response": {"result": "rain"}}},
                {"function_response": {"name": "w", "response": {"a": 1}}},
                {"text": "And?"},
            ],
        },
    ]
    wording = in_chat(contents=turns)
    _, assistant, first, second, user = said(wording)["messages"]
    one, two = assistant["tool_calls"]
    assert (assistant["content"], one["function"]["arguments"]) == ("Let me see.", '{"city":"Oslo"}')
    assert one["id"] != two["id"]
    assert first == {"role": "tool", "tool_call_id": one["id"], "content": "rain"}
    assert second == {"role": "tool", "tool_call_id": two["id"], "content": '{"a":1}'}
    assert user == {"role": "user", "content": "And?"}
    assert lost(wording) == []
    assert lost(wording, hint=True) == ["contents[1].parts[0]", "contents[1].parts[2].thoughtSignature"]
    assert said(in_chat(contents=turns, thoughts=True))["messages"][1]["reasoning_content"] == "hm"


def test_the_turns_of_a_streams_pieces_are_one_message() -> None:
    turns = [
        {"role": "model", "parts": [{"text": "Let me "}]},
        {"role": "model", "parts": [{"text": "look."}]},
        {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "weather", "args": {}}}]},
        {"role": "model", "parts": [{"text": ""}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c", "name": "weather", "response": {"result": "rain"}}}],
        },
    ]
    asked, called, answered = said(in_chat(contents=[*ASK, *turns]))["messages"]
    assert asked == CHAT_ASK[0]
    assert (called["role"], called["content"], len(called["tool_calls"])) == ("assistant", "Let me look.", 1)
    assert (answered["role"], answered["tool_call_id"]) == ("tool", "c")


def test_a_turn_with_only_empty_text_has_that_as_its_content_and_one_with_calls_alone_none() -> None:
    empty, call = {"text": ""}, {"functionCall": {"name": "w"}}
    for parts_said, content in (([empty], ""), ([empty, empty], ""), ([empty, call], None), ([call], None)):
        turns = said(in_chat(contents=[*ASK, {"role": "model", "parts": parts_said}]))["messages"]
        assert turns[1]["content"] == content


def test_what_a_chat_part_has_besides_its_data_is_told_or_noted() -> None:
    picture, pdf = f"data:image/png;base64,{PIXEL}", f"data:application/pdf;base64,{PIXEL}"
    content = [
        {"type": "image_url", "image_url": {"url": picture, "detail": "low", "crop": True}},
        {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav", "rate": 8000}},
        {"type": "file", "file": {"file_data": pdf, "filename": "bill.pdf", "file_id": "file-1"}},
    ]
    wording = in_gemini(messages=[{"role": "user", "content": content, "name": "ann"}])
    at = "messages[0].content"
    assert lost(wording, hint=True) == [f"{at}[0].image_url.detail", f"{at}[2].file.filename"]
    assert lost(wording) == [
        "messages[0].name",
        f"{at}[0].image_url.crop",
        f"{at}[1].input_audio.rate",
        f"{at}[2].file.file_id",
    ]


def test_a_name_that_chat_cannot_give_is_noted() -> None:
    def named(kind: str) -> list[str]:
        data = {"mimeType": kind, "data": PIXEL, "displayName": "a name"}
        return lost(in_chat(contents=[{"parts": [{"inlineData": data}]}]), hint=True)

    assert named("application/pdf") == []
    assert named("image/png") == named("audio/wav") == ["contents[0].parts[0].inlineData.displayName"]


def test_pictures_sounds_and_files_are_worded_in_chat() -> None:
    given = [
        {"inlineData": {"mimeType": "image/png", "data": "_-8"}},  # in the alphabet for URLs, as Google's SDK has it
        {"inline_data": {"mime_type": "audio/wav", "data": PIXEL}},
        {"inlineData": {"mimeType": "application/pdf", "data": PIXEL}},
        {"inlineData": {"mimeType": "text/plain", "data": "SGk="}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/cat.png"}},
    ]
    [message] = said(in_chat(contents=[{"parts": given}]))["messages"]
    picture, sound, pdf, text, address = message["content"]
    assert picture == {"type": "image_url", "image_url": {"url": "data:image/png;base64,/+8="}}
    assert sound == {"type": "input_audio", "input_audio": {"data": PIXEL, "format": "wav"}}
    assert pdf["file"]["file_data"] == f"data:application/pdf;base64,{PIXEL}"
    assert text == {"type": "text", "text": "Hi"}
    assert address == {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tools": [{"googleSearch": {}}]}, "tools[0].googleSearch"),
        ({"generationConfig": {"topK": 5}}, "generationConfig.topK"),
        ({"generationConfig": {"responseModalities": ["IMAGE"]}}, "generationConfig.responseModalities"),
        ({"generationConfig": {"logprobs": 3}}, "generationConfig.logprobs"),
        ({"generationConfig": {"stopSequences": list("abcde")}}, "generationConfig.stopSequences"),
        ({"cachedContent": "cachedContents/x"}, "cachedContent"),
        ({"safetySettings": [{"threshold": "BLOCK_LOW_AND_ABOVE"}]}, "safetySettings[0]"),
        (
            {"contents": [{"parts": [{"inlineData": {"mimeType": "video/mp4", "data": ""}}]}]},
            "contents[0].parts[0].inlineData",
        ),
        ({"contents": [{"parts": [{"executableCode": {}}]}]}, "contents[0].parts[0]"),
        ({"contents": [*ASK, {"role": "model", "parts": [{"text": "So"}]}]}, "contents[1]"),
        ({"aFieldOfTheFuture": 1}, "aFieldOfTheFuture"),
    ],
)
def test_what_chat_has_no_words_for_is_a_loss(fields: dict[str, Any], field: str) -> None:
    assert lost(in_chat(**fields)) == [field]


@pytest.mark.parametrize(
    "fields",
    [
        {"contents": [{"role": "nobody", "parts": []}]},
        {"contents": [{"parts": [{"functionResponse": {"name": "w", "response": {}}}]}]},
        {"contents": [{"role": "model", "parts": [{"functionCall": {"name": "w", "args": 5}}]}]},
        {
            "toolConfig": {"functionCallingConfig": {"mode": "SOME"}},
            "tools": [{"functionDeclarations": [{"name": "w"}]}],
        },
        {"systemInstruction": "Be brief."},
        {"generationConfig": 5},
    ],
)
def test_what_is_not_valid_in_gemini_is_malformed(fields: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        in_chat(**fields)


def test_a_request_of_chats_is_worded_in_gemini() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": "w", "description": "d", "parameters": schema, "strict": True}
    wording = in_gemini(
        model="m",
        stream=True,
        max_tokens=90,
        temperature=0.5,
        top_p=0.9,
        top_k=4,
        n=2,
        seed=7,
        stop="END",
        presence_penalty=0,
        tools=[{"type": "function", "function": function}],
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}},
        reasoning_effort="medium",
        messages=[
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "See:"}, picture(PIXEL)]},
            {"role": "assistant", "content": "Yes.", "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "tool_call_id": "a", "content": "rain"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "sun"}]},
        ],
    )
    assert wording.losses == ()
    assert body(wording) == {
        "contents": [
            {"role": "user", "parts": [{"text": "See:"}, {"inlineData": {"mimeType": "image/png", "data": PIXEL}}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Yes."},
                    {"functionCall": {"id": "a", "name": "w", "args": {"city": "a"}}, "thoughtSignature": UNSIGNED},
                    {"functionCall": {"id": "b", "name": "w", "args": {"city": "b"}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "a", "name": "w", "response": {"output": "rain"}}},
                    {"functionResponse": {"id": "b", "name": "w", "response": {"output": "sun"}}},
                ],
            },
        ],
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{"name": "w", "description": "d", "parametersJsonSchema": schema}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "VALIDATED"}},
        "generationConfig": {
            "temperature": 0.5,
            "topP": 0.9,
            "topK": 4,
            "candidateCount": 2,
            "presencePenalty": 0,
            "seed": 7,
            "maxOutputTokens": 90,
            "stopSequences": ["END"],
            "responseMimeType": "application/json",
            "responseJsonSchema": schema,
            "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "medium"},
        },
    }


def picture(data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": "w", "arguments": f'{{"city":"{name}"}}'}, **more}


def test_signatures_are_given_back_as_they_came() -> None:
    signed = {"extra_content": {"google": {"thought_signature": SIGNATURE}}}
    message = {"role": "assistant", "content": "", "tool_calls": [call("a", **signed), call("b")]}
    results = [{"role": "tool", "tool_call_id": name, "content": ""} for name in "ab"]
    turns = body(in_gemini(messages=[*CHAT_ASK, message, *results]))["contents"]
    assert [part.get("thoughtSignature") for part in turns[1]["parts"]] == [SIGNATURE, None]
    text = {"role": "assistant", "content": "Yes.", **signed}
    turns = body(in_gemini(messages=[*CHAT_ASK, text, *CHAT_ASK]))["contents"]
    assert turns[1]["parts"] == [{"text": "Yes.", "thoughtSignature": SIGNATURE}]


def test_answers_in_a_row_are_one_turn_so_that_no_call_follows_another_turn_of_the_model() -> None:
    """An agent keeps an answer that broke off, and the one that followed; Google wants a user's turn before a call."""
    texts = [{"role": "assistant", "content": text} for text in ("Well.", "Yes.")]
    called = {"role": "assistant", "content": None, "tool_calls": [call("a")]}
    result = {"role": "tool", "tool_call_id": "a", "content": "rain"}
    turns = body(in_gemini(messages=[*CHAT_ASK, *texts, called, result, texts[0], *CHAT_ASK]))["contents"]
    assert [turn["role"] for turn in turns] == ["user", "model", "user", "model", "user"]
    assert [part.get("text") for part in turns[1]["parts"]] == ["Well.", "Yes.", None]


@pytest.mark.parametrize(
    ("model", "effort", "config"),
    [
        ("gemini-3-pro-preview", "high", {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-3.1-flash", "max", {"includeThoughts": True, "thinkingLevel": "high"}),
        ("gemini-3.1-flash", "none", {"includeThoughts": False, "thinkingLevel": "minimal"}),
        ("gemini-2.5-flash", "low", {"includeThoughts": True, "thinkingBudget": 1024}),
        ("gemini-2.5-flash", "none", {"includeThoughts": False, "thinkingBudget": 0}),
        ("a-model-of-the-future", "low", {"includeThoughts": True, "thinkingLevel": "low"}),
    ],
)
def test_an_effort_is_a_level_or_a_budget(model: str, effort: str, config: dict[str, Any]) -> None:
    wording = in_gemini(model=model, reasoning_effort=effort)
    assert body(wording)["generationConfig"]["thinkingConfig"] == config
    assert lost(wording) == []


@pytest.mark.parametrize(
    ("model", "effort", "said"),
    [  # as Google's servers accept them: they refuse another budget, another level
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("google/gemini-2.5-pro-preview-06-05", "minimal", {"thinkingBudget": 1024}),
        ("gemini-2.5-flash-lite", "none", {"thinkingBudget": 0}),
        ("gemini-3-pro-preview", "none", {"thinkingLevel": "low"}),
        ("gemini-3.1-pro-preview", "minimal", {"thinkingLevel": "low"}),
        ("gemini-3.5-flash-lite", "minimal", {"thinkingLevel": "minimal"}),
        ("gemini-3.6-flash", "none", {"thinkingLevel": "minimal"}),
        ("gemini-3.8-flash", "minimal", {"thinkingLevel": "low"}),
        ("gemini-flash-lite-latest", "none", {"thinkingLevel": "minimal"}),
        ("gemini-flash-latest", "none", {"thinkingLevel": "low"}),
        ("a-model-of-the-future", "none", {"thinkingLevel": "low"}),
    ],
)
def test_a_model_that_cannot_stop_thinking_thinks_its_least(model: str, effort: str, said: dict[str, Any]) -> None:
    wording = in_gemini(model=model, reasoning_effort=effort)
    config = body(wording)["generationConfig"]["thinkingConfig"]
    assert config == {"includeThoughts": effort != "none", **said}
    goes_on = effort == "none" and config.get("thinkingBudget") != 0
    assert lost(wording, hint=True) == (["reasoning_effort"] if goes_on else [])


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_penalties_are_for_the_models_that_take_them(name: str) -> None:
    assert lost(in_gemini(model="gemini-2.0-flash", **{name: 0.5})) == []
    for model in ("gemini-2.5-flash", "gemini-3.1-pro-preview", "gemini-flash-latest"):
        wording = in_gemini(model=model, **{name: 0.5})
        assert lost(wording) == [name]
        assert "generationConfig" not in body(wording)
        assert lost(in_gemini(model=model, **{name: 0.0})) == []


@pytest.mark.parametrize(
    "form", [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}]
)
def test_older_models_are_not_asked_for_json_and_offered_functions_at_once(form: dict[str, Any]) -> None:
    asked: dict[str, Any] = {
        "response_format": form,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    }
    wording = in_gemini(model="gemini-2.5-flash", **asked)
    assert lost(wording) == ["response_format"]
    assert (body(wording).keys() & {"generationConfig", "tools"}) == {"tools"}
    assert lost(in_gemini(model="gemini-2.5-flash", response_format=form)) == []
    assert lost(in_gemini(model="gemini-2.5-flash", tools=asked["tools"], response_format={"type": "text"})) == []
    assert lost(in_gemini(model="gemini-3-flash", **asked)) == []


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"reasoning_effort": "endless"}, "reasoning_effort"),
        ({"stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        ({"stop": list("abcdef")}, "stop"),
        ({"messages": [*CHAT_ASK, {"role": "assistant", "content": "So"}]}, "messages[1]"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.gif"}}]}
                ]
            },
            "messages[0].content[0].image_url",
        ),
        ({"x_future": 1}, "x_future"),
    ],
)
def test_what_gemini_has_no_words_for_is_a_loss(fields: dict[str, Any], field: str) -> None:
    assert field in lost(in_gemini(**fields))


def test_a_call_that_is_of_no_function_is_a_loss_with_its_result() -> None:
    custom = {"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls"}}
    made = {"role": "assistant", "content": "Yes.", "tool_calls": [custom, call("a")]}
    results = [{"role": "tool", "tool_call_id": name, "content": "x"} for name in "ca"]
    wording = in_gemini(messages=[*CHAT_ASK, made, *results])
    assert lost(wording) == ["messages[1].tool_calls[0]", "messages[2]"]
    *_, answers = body(wording)["contents"]
    assert [part["functionResponse"]["id"] for part in answers["parts"]] == ["a"]


def test_a_result_of_no_call_is_malformed() -> None:
    with pytest.raises(Malformed, match="tool_call_id"):
        in_gemini(messages=[*CHAT_ASK, {"role": "tool", "tool_call_id": "x", "content": ""}])


def test_schemas_of_openapi_become_json_schemas() -> None:
    given = {
        "type": "OBJECT",
        "propertyOrdering": ["a"],
        "properties": {"a": {"type": "ARRAY", "items": {"type": "INTEGER"}, "maxItems": "3"}},
        "any_of": [{"type": "STRING", "enum": ["x"], "format": "enum", "nullable": True}],
    }
    assert json_schema_of(given) == {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}},
        "anyOf": [{"type": ["string", "null"], "enum": ["x", None]}],
    }


def test_a_number_of_items_with_thousands_of_digits_stays_as_it_is_written() -> None:
    endless = "9" * 5_000
    assert json_schema_of({"type": "ARRAY", "maxItems": endless}) == {"type": "array", "maxItems": endless}
    asked = raw({"old": {"type": "ARRAY", "maxItems": endless}})["old"]
    assert GEMINI.requests.json_formats["generationConfig.responseSchema"](asked) is not None


def test_what_a_request_expects_is_read() -> None:
    formats = GEMINI.requests.json_formats
    asked = raw(
        {"json": {"type": "object"}, "old": {"type": "OBJECT"}, "mime": "application/json", "text": "text/plain"}
    )
    assert formats["generationConfig.responseJsonSchema"](asked["json"]) == JsonFormat(schema=b'{"type":"object"}')
    assert formats["generationConfig.responseSchema"](asked["old"]) == JsonFormat(schema=b'{"type":"object"}')
    assert formats["generationConfig.responseMimeType"](asked["mime"]) == JsonFormat()
    assert formats["generationConfig.responseMimeType"](asked["text"]) is None
    declared = [
        {"name": "f", "parameters": {"type": "OBJECT"}},
        {"name": "g", "parametersJsonSchema": {"type": "object"}},
    ]
    offered = GEMINI.requests.tools.offered["tools"](raw({"tools": [{"functionDeclarations": declared}]})["tools"])
    assert [(each.name, each.schema) for each in offered] == [("f", b'{"type":"object"}'), ("g", b'{"type":"object"}')]


# Streams.


def chunks_of(*stream: bytes) -> list[Any]:
    translation = ToChat((), lambda: 0.0, lambda: "new")
    return datas(b"".join(map(translation.feed, stream)) + translation.end())


TWO = {"generationConfig": {"candidateCount": 2}}


def events_of(*stream: bytes, asked: dict[str, Any] | None = None) -> list[Any]:
    translation = FromChat(flattened(raw({"contents": ASK, **(asked or {})})))
    return datas(b"".join(map(translation.feed, stream)) + translation.end())


def test_googles_events_become_chunks() -> None:
    call = {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": SIGNATURE}
    usage = event(usageMetadata={"promptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 3})
    said = chunks_of(
        parts({"text": "hm", "thought": True}),
        parts({"text": "Hi"}, call),
        parts({"text": "", "thoughtSignature": SIGNATURE}, finish="STOP"),
        usage,
    )
    deltas = [choice["delta"] for each in said for choice in each["choices"]]
    signed = {"google": {"thought_signature": SIGNATURE}}
    function = {"name": "f", "arguments": '{"x":1}'}
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "Hi"},
        {
            "tool_calls": [
                {"index": 0, "id": "call_0_new", "type": "function", "function": function, "extra_content": signed}
            ]
        },
        {"extra_content": signed},
        {},
    ]
    assert said[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert said[-1]["usage"]["completion_tokens"] == 5
    assert said[-1]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}


@pytest.mark.parametrize(
    ("reason", "chats"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("A_NEW_ONE", "stop"),
    ],
)
def test_googles_finish_reasons_become_chats(reason: str, chats: str) -> None:
    *_, last = chunks_of(parts({"text": "Hi"}, finish=reason))
    assert last["choices"][0]["finish_reason"] == chats


def test_a_blocked_prompt_is_a_filters_refusal_and_behind_a_text_its_end() -> None:
    with pytest.raises(UpstreamError, match="The prompt was blocked: OTHER") as refused:
        chunks_of(event(promptFeedback={"blockReason": "OTHER"}))
    assert refused.value.is_of_content
    *_, last = chunks_of(parts({"text": "Hi"}) + event(promptFeedback={"blockReason": "OTHER"}))
    assert last["choices"][0]["finish_reason"] == "content_filter"


def test_an_answer_that_broke_off_gets_no_end() -> None:
    said = chunks_of(parts({"text": "Hi"}))
    assert all(choice["finish_reason"] is None for each in said for choice in each["choices"])
    assert all("finishReason" not in one for each in events_of(chunk({"content": "Hi"})) for one in each["candidates"])


def test_the_end_is_held_back_until_the_usage_is_known() -> None:
    translation = ToChat()
    translation.feed(parts({"text": "Hi"}, finish="STOP"))
    assert (translation.finishing, b"[DONE]" in translation.end(), translation.finishing) == (True, True, False)
    other = FromChat({})
    assert b"finishReason" not in other.feed(chunk({"content": "Hi"}, "stop"))
    assert other.finishing
    assert b'"finishReason":"STOP"' in other.end()


def test_the_end_is_held_back_until_each_of_several_answers_has_its_own() -> None:
    translation = ToChat()
    translation.feed(parts({"text": "a"}, finish="STOP") + parts({"text": "b"}, index=1))
    assert (translation.finishing, translation.end()) == (False, b"")
    translation.feed(parts(finish="STOP", index=1))
    assert (translation.finishing, b"[DONE]" in translation.end()) == (True, True)
    other = FromChat(flattened(raw(TWO)))
    other.feed(chunk({"content": "a"}, "stop") + chunk({"content": "b"}, index=1))
    assert not other.finishing
    other.feed(chunk({}, "stop", 1))
    assert other.finishing


def test_an_answer_that_has_not_begun_holds_the_end_of_the_others_back_in_chat() -> None:
    ended = [parts({"text": each}, finish="STOP", index=index) for index, each in enumerate("ab")]
    [translation] = translations(GEMINI, CHAT, raw({"n": 2}), ())
    said, held_back = translation.feed(ended[0]), [translation.finishing]
    said += translation.feed(ended[1])
    assert [*held_back, translation.finishing] == [False, True]
    reasons = [choice["finish_reason"] for each in datas(said + translation.end()) for choice in each["choices"]]
    assert reasons[-2:] == ["stop", "stop"]
    [fewer] = translations(GEMINI, CHAT, raw({"n": 2}), ())
    fewer.feed(ended[0])
    assert (fewer.finishing, b"[DONE]" in fewer.end()) == (False, True)


def test_a_prompt_that_is_blocked_behind_texts_ends_each_of_them_with_the_usage() -> None:
    counts = {"promptTokenCount": 5, "candidatesTokenCount": 2}
    said = parts({"text": "a"}) + parts({"text": "b"}, index=1)
    *_, first, second, last = chunks_of(said, event(promptFeedback={"blockReason": "OTHER"}, usageMetadata=counts))
    ends = [(each["choices"][0]["index"], each["choices"][0]["finish_reason"]) for each in (first, second)]
    assert ends == [(0, "content_filter"), (1, "content_filter")]
    assert last["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("data", [b"5", b'{"candidates": 5}', b'{"candidates": [{"content": {"parts": [5]}}]}', b"no"])
def test_what_is_no_event_is_an_invalid_response(data: bytes) -> None:
    with pytest.raises(UpstreamError) as raised:
        ToChat().feed(b"data: " + data + b"\n\n")
    assert raised.value.kind is ErrorKind.INVALID_RESPONSE


def test_an_error_in_a_stream_is_raised_in_both_directions() -> None:
    with pytest.raises(UpstreamError, match="overloaded"):
        ToChat().feed(event(error={"code": 503, "message": "overloaded"}))
    with pytest.raises(UpstreamError, match="overloaded"):
        FromChat({}).feed(b'data: {"error": {"message": "overloaded"}}\n\n')
    with pytest.raises(UpstreamError):  # as OpenRouter ends an answer that its provider broke off
        FromChat({}).feed(chunk({"content": ""}, "error"))


@pytest.mark.parametrize(
    "reason",
    ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MISSING_THOUGHT_SIGNATURE", "TOO_MANY_TOOL_CALLS"],
)
def test_an_answer_the_model_has_botched_is_an_error_in_chat(reason: str) -> None:
    with pytest.raises(UpstreamError, match=reason) as raised:
        ToChat().feed(parts({"text": "Hm", "thought": True}, finish=reason))
    assert raised.value.kind is ErrorKind.STREAM_ERROR


@pytest.mark.parametrize("reason", ["OTHER", "NO_IMAGE", "IMAGE_OTHER", "A_NEW_ONE"])
def test_an_answer_that_says_nothing_has_failed_unless_it_stopped_or_was_cut_or_filtered(reason: str) -> None:
    for nothing in ({"text": "hm", "thought": True}, {"text": "", "thoughtSignature": SIGNATURE}):
        with pytest.raises(UpstreamError, match=reason) as raised:
            ToChat().feed(parts(nothing, finish=reason))
        assert raised.value.kind is ErrorKind.STREAM_ERROR
    for something in ({"text": "Hi"}, {"functionCall": {"name": "f"}}, {"inlineData": {"data": "aGk="}}):
        *_, last = chunks_of(parts(something), parts(finish=reason))
        assert last["choices"][0]["finish_reason"] in ("stop", "tool_calls")
    for ended in ("STOP", "MAX_TOKENS", "SAFETY"):
        *_, last = chunks_of(parts(finish=ended))
        assert last["choices"][0]["finish_reason"] in ("stop", "length", "content_filter")


def test_what_another_answer_has_said_is_not_this_ones() -> None:
    with pytest.raises(UpstreamError, match="OTHER"):
        ToChat().feed(parts({"text": "Hi"}, finish="STOP") + parts(finish="OTHER", index=1))


def test_chunks_become_googles_events() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "completion_tokens_details": {"reasoning_tokens": 3}}
    done = b"data: " + msgspec.json.encode({"choices": [], "usage": usage}) + b"\n\ndata: [DONE]\n\n"
    stream = (chunk({"reasoning_content": "hm"}), chunk({"content": "Hi"}), chunk({}, "length"), done)
    thinking = {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
    thought, text, last = events_of(*stream, asked=thinking)
    assert thought["candidates"][0]["content"] == {"parts": [{"text": "hm", "thought": True}], "role": "model"}
    assert text["candidates"][0]["content"]["parts"] == [{"text": "Hi"}]
    assert last["candidates"][0]["finishReason"] == "MAX_TOKENS"
    counted = {"promptTokenCount": 5, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "totalTokenCount": 12}
    assert last["usageMetadata"] == counted
    assert (last["modelVersion"], last["responseId"]) == ("m", "c")
    assert len(events_of(*stream)) == 2  # without thoughts


def test_calls_are_sent_together_in_the_last_event_as_google_sends_them() -> None:
    def piece(index: int, **function: str) -> bytes:
        opened = {"id": f"id-{index}"} if "name" in function else {}
        return chunk({"tool_calls": [{"index": index, **opened, "function": function}]})

    asked = {"tools": [{"functionDeclarations": [{"name": "a.weather:of"}]}]}
    said = events_of(
        *(piece(0, name="a_weather_of", arguments='{"x"'), piece(0, arguments=":1}"), piece(1, name="g", arguments="")),
        chunk({}, "tool_calls"),
        asked=asked,
    )
    calls = [[part.get("functionCall") for part in each["candidates"][0]["content"]["parts"]] for each in said]
    first, second = {"id": "id-0", "name": "a.weather:of", "args": {"x": 1}}, {"id": "id-1", "name": "g", "args": {}}
    assert calls == [[first, second]]


def test_arguments_that_are_no_object_are_an_invalid_response() -> None:
    function = {"name": "f", "arguments": "[1"}
    with pytest.raises(UpstreamError) as raised:
        FromChat({}).feed(chunk({"tool_calls": [{"index": 0, "id": "x", "function": function}]}, "tool_calls"))
    assert raised.value.kind is ErrorKind.INVALID_RESPONSE


def test_a_call_that_the_limit_has_cut_is_left_out() -> None:
    def called(index: int, arguments: str) -> bytes:
        function = {"name": "f", "arguments": arguments}
        return chunk({"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]})

    said = events_of(called(0, '{"x":1}'), called(1, '{"x":'), chunk({}, "length"))
    sent = [part for each in said for part in each["candidates"][0]["content"]["parts"]]
    assert [part["functionCall"]["id"] for part in sent if "functionCall" in part] == ["c0"]
    assert said[-1]["candidates"][0]["finishReason"] == "MAX_TOKENS"


def test_answers_side_by_side_keep_their_numbers() -> None:
    stream = chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk({}, "stop"), chunk({}, "stop", 1)
    said = events_of(*stream, asked=TWO)
    assert [one["index"] for each in said for one in each["candidates"]] == [0, 1, 0, 1]
    back = chunks_of(parts({"text": "a"}), parts({"text": "b"}, index=1))
    assert [choice["index"] for each in back for choice in each["choices"]] == [0, 0, 1]


@pytest.mark.parametrize("in_turns", [True, False], ids=["a turn for each piece", "one turn"])
def test_what_a_stream_of_thoughts_becomes_takes_no_more_memory_than_it_has(*, in_turns: bool) -> None:
    pieces = [{"text": "I should look. ", "thought": True}, {"text": "Here you go!"}] * 2_000
    turns = (
        [{"role": "model", "parts": [each]} for each in pieces] if in_turns else [{"role": "model", "parts": pieces}]
    )
    asked = flattened(raw({"contents": [*ASK, *turns, *ASK]}))
    tracemalloc.start()
    try:
        message = said(to_chat(asked, thoughts=True))["messages"][1]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert message["content"] == "Here you go!" * 2_000
    assert message["reasoning_content"] == "I should look. " * 2_000
    assert most < 16 * 2**20  # with a message for each turn so far, 100 MiB
