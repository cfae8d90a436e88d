"""Names of tools and users, where one API takes what the other refuses."""

from typing import Any, SupportsIndex

import msgspec
import pytest

from providers.bodies import events
from providers.dialects import Chunk, Wording
from providers.dialects.messages.answers import MessageGathering
from providers.dialects.messages.request_from_chat import from_chat
from providers.dialects.messages.request_to_chat import to_chat
from providers.dialects.messages.stream_from_chat import FromChat
from providers.dialects.wording import UniqueIds, short_name

LONG = "mcp__" + "a_server_with_a_long_name_" * 3 + "__read"
TOOL = {"name": LONG, "input_schema": {"type": "object"}}
ASK = [{"role": "user", "content": "Hi"}]


def raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def chat_of(**fields: Any) -> Wording:
    return to_chat(raw({"max_tokens": 9, "messages": ASK, **fields}))


def messages_of(**fields: Any) -> Wording:
    return from_chat(raw({"messages": ASK, **fields}))


def said(wording: Wording, name: str) -> Any:
    return msgspec.json.decode(wording.fields[name])


def test_a_tools_name_is_in_chat_no_longer_than_chat_allows_and_always_the_same() -> None:
    used = {"type": "tool_use", "id": "t", "name": LONG, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    turns = [*ASK, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}]
    wording = chat_of(tools=[TOOL], tool_choice={"type": "tool", "name": LONG}, messages=turns)
    name = said(wording, "tools")[0]["function"]["name"]
    assert len(name) == 64
    assert said(wording, "tool_choice")["function"]["name"] == name
    assert said(wording, "messages")[1]["tool_calls"][0]["function"]["name"] == name
    assert short_name(LONG + "x") != name


def test_a_call_of_a_tool_with_a_long_name_names_it_in_full() -> None:
    function = {"name": short_name(LONG), "arguments": "{}"}
    delta = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]}
    chunk = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": "tool_calls"}]}
    translation = FromChat(raw({"tools": [TOOL]}))
    gathering = MessageGathering()
    for event in events(translation.feed(b"data: " + msgspec.json.encode(chunk) + b"\n\n") + translation.end()):
        gathering.take(Chunk(event.data))
    assert msgspec.json.decode(gathering.body())["content"][0]["name"] == LONG


def test_a_choice_among_tools_that_chat_does_not_have_is_not_sent() -> None:
    wording = chat_of(tools=[{"type": "web_search_20250305", "name": "web_search"}], tool_choice={"type": "any"})
    assert [loss.field for loss in wording.losses] == ["tools[0]"]
    assert "tool_choice" not in wording.fields


def test_a_user_whose_name_is_too_long_for_chat_is_known_by_its_hash() -> None:
    long = '{"device_id":"' + "0" * 64 + '","session_id":"s"}'
    wording, again = chat_of(metadata={"user_id": long}), chat_of(metadata={"user_id": long})
    assert len(said(wording, "user")) == 64
    assert said(wording, "user") == said(again, "user")
    assert [(loss.field, loss.hint) for loss in wording.losses] == [("metadata.user_id", True)]
    assert said(chat_of(metadata={"user_id": "u" * 64}), "user") == "u" * 64


@pytest.mark.parametrize("name", ["ann@example.org", "+49 (170) 123-4567", "u" * 257])
@pytest.mark.parametrize("field", ["user", "safety_identifier"])
def test_a_user_whose_name_messages_refuses_is_known_by_its_hash(field: str, name: str) -> None:
    wording = messages_of(**{field: name})
    user = said(wording, "metadata")["user_id"]
    assert len(user) == 64
    assert user != said(messages_of(**{field: name + "1"}), "metadata")["user_id"]
    assert [(loss.field, loss.hint) for loss in wording.losses] == [(field, True)]


@pytest.mark.parametrize("name", ["user-17", "ann at example", "0b5c6a12-9f4e-4d43-a1a0-5f4d8a3c9e11"])
def test_any_other_name_of_a_user_is_told_as_it_is(name: str) -> None:
    wording = messages_of(user=name)
    assert (said(wording, "metadata"), wording.losses) == ({"user_id": name}, ())


class CountedText(str):
    """A text that counts how often its beginning is taken."""

    __slots__ = ()
    taken = 0

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        type(self).taken += 1
        return super().__getitem__(key)


def test_ids_that_begin_alike_are_each_numbered_in_one_step() -> None:
    ids, given = UniqueIds(CountedText), ["x" * 60 + f"{number:03}" for number in range(100)]
    assert [ids.of_call(each) for each in given] == given
    assert [ids.of_call(each) for each in given] == ["x" * 56 + f"_{number}" for number in range(2, 102)]
    assert CountedText.taken <= 2 * len(given)
