"""Arguments and schemas that are valid in one API, and refused in the next."""

import re

import msgspec
import pytest

from providers import events
from providers.dialects import DIALECTS, Habits, arguments_object, converse_from_chat, rendered, translations
from providers.dialects.wording import with_properties, written_object
from providers.models import traits_of
from providers.refusals import UpstreamError

NONE = ["", "  ", "null", " null\n", '"null"', '""', "{}", '"{}"']


@pytest.mark.parametrize("written", NONE)
def test_no_arguments_are_an_empty_object(written: str) -> None:
    assert bytes(arguments_object(written) or b"") == b"{}"


def test_arguments_that_were_encoded_twice_are_the_inner_object() -> None:
    assert bytes(arguments_object('"{\\"city\\":\\"Oslo\\"}"') or b"") == b'{"city":"Oslo"}'


@pytest.mark.parametrize("written", ["[]", "7", '"text"', "{", '"', "[" * 100_000])
def test_what_is_no_object_is_none(written: str) -> None:
    assert arguments_object(written) is None
    raw = msgspec.Raw(msgspec.json.encode(written))
    assert written_object(raw) is raw


def history(written: str) -> dict[str, msgspec.Raw]:
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": written}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    return {"model": msgspec.Raw(b'"m"'), "messages": msgspec.Raw(msgspec.json.encode(messages))}


@pytest.mark.parametrize("written", NONE)
@pytest.mark.parametrize("api", ["messages", "gemini", "responses", "converse"])
def test_a_history_with_no_arguments_is_taken_by_every_api(api: str, written: str) -> None:
    if api == "converse":
        wording = converse_from_chat(history(written), "m")
    else:
        target = DIALECTS[api]
        habits_of = target.pivoting.habits_of if target.pivoting is not None else None
        habits = Habits() if habits_of is None else habits_of(traits_of("m"), None, Habits())
        wording = rendered(history(written), DIALECTS["chat"], target, habits)
    assert all(loss.hint for loss in wording.losses)
    sent = msgspec.json.encode(wording.fields)
    assert b"null" not in sent.replace(b'"content":null', b"")
    assert b"{}" in sent


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        (b'{"type":"object"}', b'{"type":"object","properties":{}}'),
        (b'{"type": "object", "properties": {"a": {}}}', b'{"type": "object", "properties": {"a": {}}}'),
        (b'{"anyOf":[]}', b'{"anyOf":[]}'),
        (b"true", b"true"),
    ],
)
def test_an_objects_schema_gets_the_properties_that_it_lacks(schema: bytes, sent: bytes) -> None:
    assert bytes(with_properties(msgspec.Raw(schema))) == sent


CHUNKS = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function",'
    b'"function":{"name":"f","arguments":%b}}]},"finish_reason":null}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"%b"}]}\n\ndata: [DONE]\n\n'
)
TOOLS = {
    "messages": '[{"name": "f", "input_schema": %s}]',
    "gemini": '[{"functionDeclarations": [{"name": "f", "parametersJsonSchema": %s}]}]',
}
NEEDS = '{"type": "object", "properties": {"city": {}}, "required": ["city"]}'


def streamed(api: str, schema: str, arguments: str, reason: str = "tool_calls") -> bytes:
    """Return what a client of ``api`` gets of a call in chat."""
    asked = {"tools": msgspec.Raw((TOOLS[api] % schema).encode())}
    pivoting = DIALECTS[api].pivoting
    assert pivoting is not None
    return pivoting.stream_from_chat(asked, ()).feed(CHUNKS % (msgspec.json.encode(arguments), reason.encode()))


@pytest.mark.parametrize("api", TOOLS)
@pytest.mark.parametrize("arguments", ["", " ", "null"])
def test_a_call_without_the_arguments_that_its_tool_requires_is_an_error(api: str, arguments: str) -> None:
    with pytest.raises(UpstreamError, match="without the arguments"):
        streamed(api, NEEDS, arguments)
    assert b'"f"' in streamed(api, '{"type": "object", "required": []}', arguments)
    assert b"Oslo" in streamed(api, NEEDS, '{"city": "Oslo"}')


@pytest.mark.parametrize("api", TOOLS)
def test_arguments_that_a_limit_may_have_cut_off_are_no_error(api: str) -> None:
    assert streamed(api, NEEDS, "", "length")


@pytest.mark.parametrize("api", ["chat", "messages", "gemini", "responses"])
@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        (["{}", '{"city":"Oslo"}'], {"city": "Oslo"}),
        (["{}", "{", '"city":', '"Oslo"}'], {"city": "Oslo"}),
        (["{ }", "", '{"city":"Oslo"}'], {"city": "Oslo"}),
        (["{}"], {}),
        (["{}", "{}"], {}),
        (["{", "}"], {}),
    ],
)
def test_an_empty_object_that_came_before_the_arguments_were_known_is_none_of_them(
    api: str, pieces: list[str], arguments: dict[str, str]
) -> None:
    """Some servers send it with a call's name, and the arguments in later pieces."""
    calls = [[{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": pieces[0]}}]]
    calls += [[{"index": 0, "function": {"arguments": piece}}] for piece in pieces[1:]]
    calls.append([{"index": 1, "id": "d", "type": "function", "function": {"name": "g", "arguments": '{"a":1}'}}])
    choices: list[dict[str, object]] = [
        {"index": 0, "delta": {"tool_calls": each}, "finish_reason": None} for each in calls
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    top = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    stream = b"".join(b"data: %b\n\n" % msgspec.json.encode({**top, "choices": [each]}) for each in choices)
    target = DIALECTS[api]
    for step in translations(DIALECTS["chat"], target, {}, ()):
        stream = step.feed(stream) + step.feed(b"data: [DONE]\n\n")
    gathering = target.answers.gathering()
    for event in events(stream):
        if event.data:
            gathering.take(target.answers.read_event(event.data, ()))
    body = msgspec.json.encode(msgspec.json.decode(gathering.body())).replace(b"\\", b"")
    found = re.findall(rb'"(?:arguments|input|args)":"?(\{[^{}]*\})', body)
    assert [msgspec.json.decode(each) for each in found] == [arguments, {"a": 1}]
