"""Pictures and documents that tools show: chat's results are text, so that they come in the user's turn behind."""

from typing import Any

import msgspec

from providers.dialects import Wording
from providers.dialects.messages import request_to_chat as messages_to_chat
from providers.dialects.responses import request_to_chat as responses_to_chat

URL = "data:image/png;base64,aGk="
PICTURE = {"type": "image_url", "image_url": {"url": URL}}
LATER = {"type": "text", "text": "(Shown in the user's next message.)"}


def raw(fields: dict[str, Any]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in fields.items()}


def said(wording: Wording) -> list[dict[str, Any]]:
    assert all(loss.hint for loss in wording.losses)
    answer: list[dict[str, Any]] = msgspec.json.decode(wording.fields["messages"])
    return answer


def shown(call_id: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": f"(Part of the result of tool call {call_id}:)"}, PICTURE]


def result(call_id: str, *content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": list(content)}


def calls(*call_ids: str) -> dict[str, Any]:
    called_ = [{"type": "tool_use", "id": call_id, "name": "look", "input": {}} for call_id in call_ids]
    return {"role": "assistant", "content": called_}


def text(said_: str) -> dict[str, Any]:
    return {"type": "text", "text": said_}


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}


def test_pictures_of_parallel_results_follow_all_of_them_with_what_the_user_says() -> None:
    turn = {"role": "user", "content": [result("a", text("One:"), IMAGE), result("b", IMAGE), text("Which?")]}
    wording = messages_to_chat.to_chat(raw({"max_tokens": 9, "messages": [calls("a", "b"), turn]}))
    assert said(wording)[1:] == [
        {"role": "tool", "tool_call_id": "a", "content": f"One:\n\n{LATER['text']}"},
        {"role": "tool", "tool_call_id": "b", "content": LATER["text"]},
        {"role": "user", "content": [*shown("a"), *shown("b"), text("Which?")]},
    ]
    assert [loss.field for loss in wording.losses] == [
        "messages[1].content[0].content[1]",
        "messages[1].content[1].content[0]",
    ]


def test_a_document_of_a_result_follows_likewise() -> None:
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
    turn = {"role": "user", "content": [result("a", document)]}
    *_, user = said(messages_to_chat.to_chat(raw({"max_tokens": 9, "messages": [calls("a"), turn]})))
    assert [part["type"] for part in user["content"]] == ["text", "file"]


def test_a_failure_that_shows_a_picture_is_told_as_one() -> None:
    turn = {"role": "user", "content": [{**result("a", IMAGE), "is_error": True}]}
    _, tool, user = said(messages_to_chat.to_chat(raw({"max_tokens": 9, "messages": [calls("a"), turn]})))
    assert tool["content"] == f"Error: {LATER['text']}"
    assert user["content"] == shown("a")


def responses_messages(*items: Any) -> list[dict[str, Any]]:
    return said(responses_to_chat.to_chat(raw({"input": list(items)})))


def called(call_id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}


def seen(call_id: str) -> dict[str, Any]:
    output = [{"type": "input_image", "image_url": URL}]
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def test_pictures_of_calls_follow_all_results_of_a_turn() -> None:
    told = responses_messages(called("a"), called("b"), seen("a"), seen("b"), called("c"))
    assert [message["role"] for message in told] == ["assistant", "tool", "tool", "user", "assistant"]
    assert told[3]["content"] == [*shown("a"), *shown("b")]
    assert [message["content"] for message in told[1:3]] == [LATER["text"]] * 2


def test_pictures_of_calls_are_one_turn_with_what_the_user_says_then() -> None:
    told = responses_messages(called("a"), seen("a"), {"role": "user", "content": "Which?"})
    assert told[2:] == [{"role": "user", "content": [*shown("a"), text("Which?")]}]


def test_pictures_of_the_last_call_are_not_forgotten() -> None:
    told = responses_messages(called("a"), seen("a"))
    assert told[2:] == [{"role": "user", "content": shown("a")}]


def test_pictures_come_before_what_a_developer_or_the_assistant_says_next() -> None:
    for role in ("developer", "assistant"):
        told = responses_messages(called("a"), seen("a"), {"role": role, "content": "x"})
        assert [message["role"] for message in told] == ["assistant", "tool", "user", role]
