"""Chat requests as Converse requests, held against botocore's description of the service; answers as chat chunks."""

import json
from typing import Any

import msgspec
import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from providers.bodies import events
from providers.dialects import (
    ConverseToChat,
    FrameMessage,
    Malformed,
    converse_from_chat,
    events_of_converse,
    read_event,
)
from providers.dialects.converse.request_from_chat import ConverseTurns
from providers.dialects.wording import Losses
from providers.refusals import ErrorKind, UpstreamError

NOVA, CLAUDE, OLD_CLAUDE = (
    "amazon.nova-pro-v1:0",
    "us.anthropic.claude-opus-4-8",
    "eu.anthropic.claude-sonnet-4-20250514-v1:0",
)
PDF = "data:application/pdf;base64,JVBERg=="
PNG = "data:image/png;base64,iVBORw0KGgo="
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"properties": {"city": {"type": "string"}}}}}


@pytest.fixture(scope="module")
def shape() -> Any:
    description = Loader().load_service_model("bedrock-runtime", "service-2")
    return ServiceModel(description).operation_model("ConverseStream").input_shape


def worded(shape: Any, fields: dict[str, Any], model: str = NOVA) -> tuple[dict[str, Any], list[str]]:
    """Translate, check the result as botocore checks what is given to it, and return it with the lost fields."""
    raw = msgspec.json.decode(json.dumps(fields), type=dict[str, msgspec.Raw])
    wording = converse_from_chat(raw, model)
    said = {name: json.loads(bytes(value)) for name, value in wording.fields.items()}
    report = ParamValidator().validate({"modelId": model, **said}, shape)
    assert not report.has_errors(), report.generate_report()
    return said, [loss.field for loss in wording.losses if not loss.hint]


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


HI = [user(text("hi"))]


def test_a_conversation_with_tools_and_pictures(shape: Any) -> None:
    call = {"id": "call|1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rom"}'}}
    call["extra_content"] = {"google": {"thought_signature": "c2ln"}}  # another model has answered before
    said, lost = worded(
        shape,
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                user(text("Look:"), {"type": "image_url", "image_url": {"url": PNG}}),
                {"role": "user", "content": "And the weather?"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call|1", "name": "weather", "content": "sunny"},
                {"role": "user", "content": "Thanks"},
            ],
            "tools": [TOOL],
            "tool_choice": "required",
            "max_completion_tokens": 100,
            "temperature": 0.5,
            "stop": "END",
        },
    )
    assert not lost
    assert said["system"] == [{"text": "Be brief."}]
    assert [turn["role"] for turn in said["messages"]] == ["user", "assistant", "user"]  # they must alternate
    first, second, third = (turn["content"] for turn in said["messages"])
    assert first[1] == {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}
    assert second == [{"toolUse": {"toolUseId": "call_7c_1", "name": "weather", "input": {"city": "Rom"}}}]
    assert third == [{"toolResult": {"toolUseId": "call_7c_1", "content": [{"text": "sunny"}]}}, {"text": "Thanks"}]
    assert said["toolConfig"]["toolChoice"] == {"any": {}}
    assert said["toolConfig"]["tools"][0]["toolSpec"]["inputSchema"]["json"]["type"] == "object"
    assert said["inferenceConfig"] == {"maxTokens": 100, "temperature": 0.5, "stopSequences": ["END"]}


def test_a_conversation_that_the_assistant_begins_is_sent_whole_behind_a_turn_of_the_user(shape: Any) -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "assistant", "content": "Hello!"}, *HI]
    said, lost = worded(shape, {"messages": messages})
    assert not lost
    assert [each["role"] for each in said["messages"]] == ["user", "assistant", "user"]


def test_documents_sound_and_cache_markers(shape: Any) -> None:
    said, lost = worded(
        shape,
        {
            "messages": [
                {"role": "system", "content": [{**text("Long"), "cache_control": {"type": "ephemeral"}}]},
                user(
                    text("Read"),
                    {
                        "type": "file",
                        "file": {"file_data": PDF, "filename": "a_b  c.pdf"},
                    },
                    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
                ),
            ]
        },
    )
    assert not lost
    assert said["system"] == [{"text": "Long"}, {"cachePoint": {"type": "default"}}]
    _, document, sound = said["messages"][0]["content"]
    assert document == {"document": {"format": "pdf", "name": "ab c", "source": {"bytes": "JVBERg=="}}}
    assert sound == {"audio": {"format": "wav", "source": {"bytes": "UklGRg=="}}}


def test_no_two_documents_have_one_name(shape: Any) -> None:
    names = ["report.pdf", "Report.docx", "document 4.pdf", None, "report 2.pdf", "x" * 300, "x" * 300]
    files = [{"type": "file", "file": {"file_data": PDF} | ({"filename": name} if name else {})} for name in names]
    said, lost = worded(shape, {"messages": [user(*files[:4]), user(*files[4:])]})
    told = [block["document"]["name"] for turn in said["messages"] for block in turn["content"]]
    assert told == ["report", "Report 2", "document 4", "document 2", "report 2 2", "x" * 200, "x" * 192 + " 2"]
    assert lost == []


class _Looks(set[str]):
    """Names, and how often one was looked for."""

    number = 0

    def __contains__(self, name: object) -> bool:
        self.number += 1
        return super().__contains__(name)


def test_very_many_documents_of_one_name_are_no_more_work_than_of_as_many() -> None:
    conversation = ConverseTurns(Losses())
    looks = conversation._names = _Looks()
    names = [conversation._own_name(f"{'x' * 195}{each % 100:05}") for each in range(1000)]
    assert len({name.lower() for name in names}) == 1000
    assert looks.number <= 2000


def test_a_schema_and_a_tier_and_an_effort(shape: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    said, lost = worded(
        shape, {"messages": HI, "response_format": form, "service_tier": "flex", "reasoning_effort": "minimal"}
    )
    assert not lost
    schema = said["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert (json.loads(schema["schema"]), schema["name"]) == ({"type": "object", "additionalProperties": False}, "n")
    assert (said["outputConfig"]["effort"], said["serviceTier"]) == ("low", {"type": "flex"})


def test_claude_thinks_as_in_its_own_api(shape: Any) -> None:
    said, _ = worded(shape, {"messages": HI, "reasoning_effort": "high"}, CLAUDE)
    assert said["additionalModelRequestFields"] == {
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "high"},
    }
    said, lost = worded(shape, {"messages": HI, "reasoning_effort": "low", "temperature": 0.2}, OLD_CLAUDE)
    assert said["additionalModelRequestFields"]["thinking"]["type"] == "enabled"
    assert said["inferenceConfig"]["maxTokens"] > said["additionalModelRequestFields"]["thinking"]["budget_tokens"]
    assert lost == ["temperature"]
    said, lost = worded(shape, {"messages": HI, "top_k": 5}, OLD_CLAUDE)
    assert (said["additionalModelRequestFields"], lost) == ({"top_k": 5}, [])


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"n": 2}, "n"),
        ({"seed": 1}, "seed"),
        ({"logprobs": True}, "logprobs"),
        ({"temperature": 1.5}, "temperature"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"top_k": 5}, "top_k"),
        ({"stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"messages": [user({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}, text("x"))]},
         "messages[0].content[0].image_url.url"),
        ({"messages": [user({"type": "file", "file": {"filename": "a.pdf"}}, text("x"))]},
         "messages[0].content[0].file.file_data"),
        ({"messages": [*HI, {"role": "assistant", "content": "so"}]}, "messages[1]"),
    ],
)  # fmt: skip
def test_what_converse_has_no_words_for_is_named(shape: Any, fields: dict[str, Any], field: str) -> None:
    assert worded(shape, {"messages": HI, **fields})[1] == [field]


@pytest.mark.parametrize("name", ["n", "logprobs", "store", "parallel_tool_calls", "user", "stream_options"])
def test_defaults_and_hints_keep_nobody_out(shape: Any, name: str) -> None:
    usual: dict[str, Any] = {"n": 1, "logprobs": False, "store": False, "parallel_tool_calls": True}
    assert worded(shape, {"messages": HI, name: usual.get(name, {} if name != "user" else "u")})[1] == []


def test_no_messages_and_a_message_without_content_are_the_client_s_fault() -> None:
    for messages in ([], [{"role": "user"}], [{"content": "x"}]):
        with pytest.raises(Malformed):
            converse_from_chat({"messages": msgspec.Raw(json.dumps(messages).encode())}, NOVA)


def message(kind: str, **payload: Any) -> FrameMessage:
    return FrameMessage(
        {":message-type": "event", ":event-type": kind}, json.dumps({**payload, "p": "abcdef"}).encode()
    )


def failure(kind: str, words: str) -> FrameMessage:
    return FrameMessage(
        {":message-type": "exception", ":exception-type": kind}, json.dumps({"message": words}).encode()
    )


def translator() -> ConverseToChat:
    return ConverseToChat("nova", "r1", ("very-secret-key",), unix_s=lambda: 1.0)


def chunks(stream: bytes) -> list[dict[str, Any]]:
    payloads = [event.data for event in events(stream)]
    assert payloads[-1] == b"[DONE]"
    return [json.loads(data) for data in payloads[:-1]]


USAGE = {"inputTokens": 3, "outputTokens": 5, "totalTokens": 15, "cacheReadInputTokens": 4, "cacheWriteInputTokens": 3}
STOP = message("messageStop", stopReason="end_turn")
END = message("metadata", usage=USAGE, metrics={"latencyMs": 1})


def test_text_reasoning_and_calls_become_chunks_of_chat() -> None:
    stream = translator().feed(
        [
            message("messageStart", role="assistant"),
            message("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"text": "Hm"}}),
            message("contentBlockDelta", contentBlockIndex=0, delta={"reasoningContent": {"signature": "abc"}}),
            message("contentBlockStop", contentBlockIndex=0),
            message("contentBlockDelta", contentBlockIndex=1, delta={"text": 'Gr\u00fc\u00df "dich"\n'}),
            message(
                "contentBlockStart", contentBlockIndex=2, start={"toolUse": {"toolUseId": "t1", "name": "weather"}}
            ),
            message("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": '{"city"'}}),
            message("contentBlockDelta", contentBlockIndex=2, delta={"toolUse": {"input": ':"Rom"}'}}),
            message("contentBlockStop", contentBlockIndex=2),
            message("contentBlockStart", contentBlockIndex=3, start={"toolUse": {"toolUseId": "t2", "name": "now"}}),
            message("contentBlockStop", contentBlockIndex=3),
            message("messageStop", stopReason="tool_use"),
            END,
        ]
    )
    said = chunks(stream)
    deltas = [chunk["choices"][0]["delta"] for chunk in said if chunk["choices"]]
    assert {(chunk["id"], chunk["model"], chunk["object"]) for chunk in said} == {
        ("r1", "nova", "chat.completion.chunk")
    }
    assert [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta] == ["Hm"]
    assert "".join(delta.get("content") or "" for delta in deltas) == 'Grüß "dich"\n'
    pieces = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [(piece["index"], piece["function"]["arguments"]) for piece in pieces] == [
        (0, ""), (0, '{"city"'), (0, ':"Rom"}'), (1, ""), (1, "{}"),
    ]  # fmt: skip
    usage = read_event(json.dumps(said[-1]).encode()).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.cache_write_tokens) == (
        10,
        5,
        4,
        3,
    )


@pytest.mark.parametrize(("tier", "told"), [("flex", "flex"), ({"type": "flex"}, "flex"), (None, None), (7, None)])
def test_a_tier_in_another_form_spoils_no_answer(tier: Any, told: str | None) -> None:
    last = message("metadata", usage=USAGE, serviceTier=tier)
    translation = translator()
    translation.feed([STOP, last])
    usage = translation.usage
    assert usage is not None
    assert (usage.completion_tokens, usage.tier) == (5, told)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons(reason: str, expected: str) -> None:
    said = chunks(translator().feed([message("messageStop", stopReason=reason), END]))
    assert [chunk["choices"][0]["finish_reason"] for chunk in said if chunk["choices"]][-1] == expected


def test_an_answer_the_model_has_botched_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="malformed_tool_use"):
        translator().feed([message("messageStop", stopReason="malformed_tool_use")])


@pytest.mark.parametrize(
    ("name", "kind", "status"),
    [
        ("throttlingException", ErrorKind.RATE_LIMITED, 429),
        ("validationException", ErrorKind.BAD_REQUEST, 400),
        ("modelStreamErrorException", ErrorKind.STREAM_ERROR, 424),
        ("internalServerException", ErrorKind.STREAM_ERROR, 500),
        ("serviceUnavailableException", ErrorKind.STREAM_ERROR, 503),
        ("unheardOfException", ErrorKind.STREAM_ERROR, None),
    ],
)
def test_an_exception_keeps_its_kind_and_comes_after_what_was_said(
    name: str, kind: ErrorKind, status: int | None
) -> None:
    to_chat = translator()
    hello = message("contentBlockDelta", contentBlockIndex=0, delta={"text": "Hel"})
    assert b"Hel" in to_chat.feed([hello, failure(name, "no, very-secret-key")])
    with pytest.raises(UpstreamError) as raised:
        to_chat.end()
    assert (raised.value.kind, raised.value.status, raised.value.message) == (kind, status, "no, ***")


def test_an_error_of_the_stream_itself_is_told() -> None:
    broken = FrameMessage({":message-type": "error", ":error-code": "500", ":error-message": "lost"}, b"")
    with pytest.raises(UpstreamError, match="lost") as raised:
        translator().feed([broken])
    assert raised.value.kind is ErrorKind.STREAM_ERROR


def test_a_stream_without_its_stop_reason_has_no_end_and_one_without_usage_has() -> None:
    to_chat = translator()
    to_chat.feed([message("contentBlockDelta", contentBlockIndex=0, delta={"text": "Hel"})])
    assert to_chat.end() == b""
    to_chat.feed([STOP])
    assert to_chat.end() == b"data: [DONE]\n\n"
    assert to_chat.end() == b""


@pytest.mark.parametrize("payload", [b"", b"[]", b'{"delta":{"text":1}}', b'{"delta":7}', b"\xff"])
def test_a_malformed_event_is_an_invalid_response(payload: bytes) -> None:
    with pytest.raises(UpstreamError) as raised:
        translator().feed([FrameMessage({":message-type": "event", ":event-type": "contentBlockDelta"}, payload)])
    assert raised.value.kind is ErrorKind.INVALID_RESPONSE


def test_unknown_events_are_left_out() -> None:
    assert translator().feed([message("somethingNew", a=1), message("contentBlockStart", start={"image": {}})]) == b""


def test_a_whole_answer_is_presented_as_a_stream() -> None:
    content = [
        {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "s"}}},
        {"text": "Hello"},
        {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Rom"}}},
    ]
    body = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "tool_use", "usage": USAGE}
    said = chunks(events_of_converse(json.dumps(body).encode(), translator()))
    deltas = [chunk["choices"][0]["delta"] for chunk in said if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hello"
    arguments = "".join(call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", ()))
    assert json.loads(arguments) == {"city": "Rom"}
    assert said[-1]["usage"]["prompt_tokens"] == 10
    with pytest.raises(UpstreamError, match="not Converse's"):
        events_of_converse(b'{"choices":[]}', translator())


@pytest.mark.parametrize("pieces", [["iVBORw0KGgo="], ["iVBO", "Rw0KGgo="], ["iVBORw==", "DQoaCg=="]])
def test_a_picture_of_an_answer_reaches_chat_whole(pieces: list[str]) -> None:
    start = message("contentBlockStart", start={"image": {"format": "png"}}, contentBlockIndex=0)
    parts = [
        message("contentBlockDelta", delta={"image": {"source": {"bytes": piece}}}, contentBlockIndex=0)
        for piece in pieces
    ]
    stop = message("contentBlockStop", contentBlockIndex=0)
    one = translator()
    said = chunks(one.feed([start, *parts, stop, message("messageStop", stopReason="end_turn")]) + one.end())
    [images] = [delta["images"] for each in said for delta in [each["choices"][0]["delta"]] if "images" in delta]
    assert images == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]


def test_a_whole_answer_keeps_its_picture_and_is_refused_for_what_chat_has_no_place_for() -> None:
    def answered(block: dict[str, Any]) -> bytes:
        output = {"message": {"role": "assistant", "content": [block]}}
        return json.dumps({"output": output, "stopReason": "end_turn"}).encode()

    picture = answered({"image": {"format": "webp", "source": {"bytes": "UklGRg=="}}})
    assert b"data:image/webp;base64,UklGRg==" in events_of_converse(picture, translator())
    with pytest.raises(UpstreamError, match="video"):
        events_of_converse(answered({"video": {"format": "mp4", "source": {"bytes": "AAAA"}}}), translator())


def test_a_picture_that_could_not_be_made_is_an_error() -> None:
    failed = message("contentBlockDelta", delta={"image": {"error": {"message": "no"}}}, contentBlockIndex=0)
    with pytest.raises(UpstreamError, match="picture"):
        translator().feed([failed])


def test_a_picture_in_what_the_assistant_said_is_a_loss(shape: Any) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    turns = [*HI, {"role": "assistant", "content": [text("Here."), picture]}, *HI]
    body, lost = worded(shape, {"messages": turns})
    assert lost == ["messages[1].content[1]"]
    assert body["messages"][1]["content"] == [{"text": "Here."}]


def test_a_claude_is_sent_no_blank_stop_sequence(shape: Any) -> None:
    asked = {"messages": HI, "stop": ["\n", "END"]}
    (claude, lost), (other, kept) = worded(shape, asked, CLAUDE), worded(shape, asked)
    assert (claude["inferenceConfig"]["stopSequences"], lost) == (["END"], ["stop"])
    assert (other["inferenceConfig"]["stopSequences"], kept) == (["\n", "END"], [])


@pytest.mark.parametrize(("limit", "strict"), [({}, True), ({"minimum": 1}, False)])
def test_a_strict_tool_is_best_effort_where_converse_cannot_keep_to_its_schema(
    shape: Any, limit: dict[str, int], *, strict: bool
) -> None:
    parameters = {"type": "object", "properties": {"days": {"type": "integer", **limit}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    fields = {"messages": HI, "tools": [tool]}
    said, lost = worded(shape, fields, CLAUDE)
    [told] = said["toolConfig"]["tools"]
    assert lost == []
    assert told["toolSpec"].get("strict", False) == strict
    assert told["toolSpec"]["inputSchema"]["json"] == {
        **parameters,
        **({"additionalProperties": False} if strict else {}),
    }
    raw = msgspec.json.decode(json.dumps(fields), type=dict[str, msgspec.Raw])
    hints = [loss.field for loss in converse_from_chat(raw, CLAUDE).losses if loss.hint]
    assert hints == ([] if strict else ["tools[0].function.strict"])
