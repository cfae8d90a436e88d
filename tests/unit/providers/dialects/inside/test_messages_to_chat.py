"""Requests of Messages in the words of chat: what is said, what is lost, what is refused."""

from typing import Any

import msgspec
import pytest

from providers.dialects import Habits, Malformed
from providers.dialects.messages.request_to_chat import to_chat
from providers.dialects.messages.thoughts import without_unsigned_thoughts
from providers.dialects.wording import NOBODYS
from tests.unit.providers.dialects.inside.messages_wordings import (
    ASK,
    MARK,
    PDF,
    PNG,
    chat_of,
    lost,
    messages_of,
    raw,
    said,
)

TEXT = {"type": "text", "text": "x"}
CALLED = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "medium"),
        ({"thinking": {"type": "enabled", "budget_tokens": 31999}}, "high"),
        ({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}}, "max"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "high"}}, "high"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "disabled"}}, None),
    ],
)
def test_thinking_becomes_an_effort(fields: dict[str, Any], effort: str | None) -> None:
    wording = chat_of(**fields)
    assert (said(wording).get("reasoning_effort"), wording.losses) == (effort, ())


@pytest.mark.parametrize(
    ("fields", "field", "hint"),
    [
        ({"top_k": 5}, "top_k", False),
        ({"mcp_servers": [{"url": "u"}]}, "mcp_servers", False),
        ({"container": "c"}, "container", False),
        ({"inference_geo": "eu"}, "inference_geo", False),
        ({"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}, "context_management", False),
        ({"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, "context_management", True),
        ({"speed": "fast"}, "speed", True),
        ({"service_tier": "from_the_future"}, "service_tier", False),
        ({"cache_control": MARK}, "cache_control", True),
        ({"from_the_future": 1}, "from_the_future", False),
        ({"max_tokens": 0}, "max_tokens", False),
        ({"stop_sequences": ["1", "2", "3", "4", "5"]}, "stop_sequences", False),
        ({"metadata": {"user_id": "u", "x": 1}}, "metadata.x", False),
        ({"output_config": {"task_budget": {}}}, "output_config.task_budget", False),
        ({"thinking": {"type": "between_tools"}}, "thinking", False),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]", False),
        ({"tools": [{"name": "f", "input_schema": {}, "cache_control": MARK}]}, "tools[0].cache_control", True),
        ({"tools": [{"name": "f", "input_schema": {}, "input_examples": [{}]}]}, "tools[0].input_examples", False),
        ({"system": [{"type": "text", "text": "s", "cache_control": MARK}]}, "system[0].cache_control", True),
    ],
)
def test_what_chat_cannot_say_of_a_request_is_a_loss(fields: dict[str, Any], field: str, hint: bool) -> None:
    assert lost(chat_of(**fields)) == {field: hint}


@pytest.mark.parametrize(
    ("block", "field", "hint"),
    [
        ({"type": "text", "text": "x", "cache_control": MARK}, ".cache_control", True),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, ".source", False),
        ({"type": "document", "source": {"type": "url", "url": "u"}}, ".source", False),
        ({"type": "document", "source": PDF, "citations": {"enabled": True}}, ".citations", False),
        ({"type": "document", "source": PDF, "context": "c"}, ".context", True),
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "title": "t"},
            ".title",
            True,
        ),
        ({"type": "search_result", "source": "s", "title": "t", "content": []}, ".type", True),
        ({"type": "from_the_future"}, "", False),
        (
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": PNG}]},
            ".content[0]",
            True,
        ),
    ],
)
def test_what_chat_cannot_say_of_a_block_is_a_loss(block: dict[str, Any], field: str, hint: bool) -> None:
    wording = chat_of(messages=[CALLED, {"role": "user", "content": [block]}])
    assert lost(wording) == {f"messages[1].content[0]{field}": hint}


def test_what_is_told_of_a_document_and_what_a_search_has_found_are_texts() -> None:
    words = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}, "context": "c"}
    found = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [found]}
    [_, told, asked] = said(chat_of(messages=[CALLED, {"role": "user", "content": [result, words, found]}]))["messages"]
    assert told["content"] == "t\n\ns\n\nx"
    assert [part["text"] for part in asked["content"]] == ["c", "x", "t\n\ns\n\nx"]


@pytest.mark.parametrize(
    "fields",
    [
        {"service_tier": "auto", "speed": "standard", "mcp_servers": [], "container": None, "metadata": {}},
        {"tools": [{"type": "custom", "name": "f", "input_schema": {}, "defer_loading": False}]},
        {"tools": [{"name": "f", "input_schema": {}, "allowed_callers": ["direct"]}]},
        {"tools": [{"type": "", "name": "f", "input_schema": {}}]},
    ],
)
def test_what_is_the_default_of_messages_is_no_loss(fields: dict[str, Any]) -> None:
    assert chat_of(**fields).losses == ()


def test_a_tool_that_is_loaded_when_it_is_found_is_loaded_at_once() -> None:
    """Claude Code has such tools, and tells in a result which ones it has found."""
    found = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "tool_reference", "tool_name": "Fetch"}]}
    tools = [{"name": "Fetch", "input_schema": {"type": "object", "properties": {}}, "defer_loading": True}]
    wording = chat_of(tools=tools, messages=[CALLED, {"role": "user", "content": [found]}])
    assert lost(wording) == {"tools[0].defer_loading": True}
    assert said(wording)["tools"][0]["function"]["name"] == "Fetch"
    assert said(wording)["messages"][1] == {"role": "tool", "tool_call_id": "a", "content": "Tool loaded: Fetch"}


def test_a_tools_failure_is_told_by_its_text() -> None:
    def told(text: Any) -> Any:
        result = {"type": "tool_result", "tool_use_id": "a", "is_error": True, "content": text}
        return said(chat_of(messages=[CALLED, {"role": "user", "content": [result]}]))["messages"][1]["content"]

    assert told("no such file") == "Error: no such file"
    assert told([{"type": "text", "text": "ERROR 5"}]) == "ERROR 5"
    assert told([]) == "Error"


def test_thoughts_in_history_are_left_out_with_a_hint() -> None:
    thoughts = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
    ]
    turn = {"role": "assistant", "content": [*thoughts, {"type": "text", "text": "A"}, {"type": "text", "text": "B"}]}
    wording = chat_of(messages=[*ASK, turn, *ASK])
    assert said(wording)["messages"] == [*ASK, {"role": "assistant", "content": "AB"}, *ASK]
    assert lost(wording) == {"messages[1].content[0]": True, "messages[1].content[1]": True}


def test_a_plain_text_file_is_a_document_of_text() -> None:
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,SMOp"}}
    wording = messages_of(messages=[{"role": "user", "content": [part]}])
    source = {"type": "text", "media_type": "text/plain", "data": "Hé"}
    assert said(wording)["messages"][0]["content"] == [{"type": "document", "source": source, "title": "a.txt"}]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": "Hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tool_choice": {}}, "tool_choice.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"stop_sequences": "x"}, "stop_sequences"),
    ],
)
def test_what_messages_forbids_is_malformed(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Malformed) as caught:
        chat_of(**fields)
    assert caught.value.param == param


def test_a_whole_number_may_be_written_with_a_point() -> None:
    assert said(chat_of(max_tokens=9.0))["max_completion_tokens"] == 9
    with pytest.raises(Malformed):
        chat_of(max_tokens=9.5)


@pytest.mark.parametrize("signature", ["", NOBODYS])
def test_thoughts_that_nobody_signed_do_not_go_to_messages(signature: str) -> None:
    unsigned = {"type": "thinking", "thinking": "hm", "signature": signature}
    signed = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    text = {"type": "text", "text": 'I wrote "signature":""'}
    turns = [
        *ASK,
        {"role": "assistant", "content": [unsigned, signed, text]},
        *ASK,
        {"role": "assistant", "content": [unsigned]},
        *ASK,
    ]
    wording = without_unsigned_thoughts(raw({"model": "m", "messages": turns}))
    kept = {"role": "assistant", "content": [signed, text]}
    assert said(wording) == {"model": "m", "messages": [*ASK, kept, *ASK, *ASK]}
    assert lost(wording) == {"messages[1].content[0]": True, "messages[3].content[0]": True}


def test_a_sealed_thought_without_anything_in_it_does_not_go_to_messages() -> None:
    turns = [*ASK, {"role": "assistant", "content": [{"type": "redacted_thinking", "data": ""}, TEXT]}, *ASK]
    wording = without_unsigned_thoughts(raw({"messages": turns}), Habits(signs=True))
    assert said(wording)["messages"][1]["content"] == [TEXT]
    assert lost(wording) == {"messages[1].content[0]": True}


def test_a_request_without_such_thoughts_keeps_its_bytes() -> None:
    for content in ("Hi", 'I wrote "signature":""', [{"type": "text", "text": "x", "signature": ""}]):
        fields = {"messages": msgspec.Raw(b" " + msgspec.json.encode([{"role": "user", "content": content}]))}
        assert without_unsigned_thoughts(fields).fields is fields


@pytest.mark.parametrize("bound", [{"thinking": "a", "signature": "c2ln"}, {"data": "c2ln"}], ids=["signed", "sealed"])
def test_after_a_call_without_thoughts_a_claude_is_not_to_think_on_whatever_it_thought_before(
    bound: dict[str, str],
) -> None:
    thought = {"type": "redacted_thinking" if "data" in bound else "thinking", **bound}
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "rain"}]}
    asked = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    earlier = [*ASK, {"role": "assistant", "content": [thought, {"type": "text", "text": "b"}]}, *ASK]
    for calling, kept in (([call], {}), ([thought, call], asked)):
        turns = [*earlier, {"role": "assistant", "content": calling}, result]
        wording = without_unsigned_thoughts(raw({**asked, "messages": turns}), Habits(signs=True))
        assert said(wording) == {**kept, "messages": turns}
        assert lost(wording) == ({} if kept else {"thinking": True})


def test_a_last_turn_without_content_is_the_providers_to_refuse() -> None:
    thought = {"type": "thinking", "thinking": "a", "signature": ""}
    turns = [{"role": "assistant", "content": [thought, {"type": "text", "text": "b"}]}, {"role": "user"}]
    wording = without_unsigned_thoughts(
        raw({"thinking": {"type": "enabled", "budget_tokens": 2000}, "messages": turns})
    )
    assert msgspec.json.decode(wording.fields["messages"])[1:] == turns[1:]


def test_a_loss_says_why() -> None:
    assert [loss.reason for loss in chat_of(top_k=5, speed="fast", other=1).losses] == [
        "chat has no top_k",
        "chat has no fast mode",
        "chat has no such field",
    ]


def test_tools_and_choices_that_messages_does_not_have_are_losses() -> None:
    function = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    custom = {"type": "custom", "custom": {"name": "g"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}}
    wording = messages_of(tools=[custom, function], tool_choice=allowed)
    assert said(wording)["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert lost(wording) == {"tools[0]": False, "tool_choice": False}


def test_the_note_for_anthropics_bill_is_no_part_of_the_prompt() -> None:
    note = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=abc12;"}
    wording = chat_of(system=[note, {"type": "text", "text": "Be brief."}])
    assert said(wording)["messages"] == [{"role": "system", "content": "Be brief."}, *ASK]
    assert lost(wording) == {"system[0]": True}
    assert said(chat_of(system=[note]))["messages"] == ASK


@pytest.mark.parametrize(
    "text", ["Never write x-anthropic-billing-header: a", "x-anthropic-billing-header: a\nBe brief."]
)
def test_a_prompt_that_says_more_than_whom_to_bill_is_kept(text: str) -> None:
    wording = chat_of(system=[{"type": "text", "text": text}])
    assert said(wording)["messages"] == [{"role": "system", "content": text}, *ASK]
    assert lost(wording) == {}


def test_top_k_which_servers_of_open_models_take_is_said_without_loss() -> None:
    wording = messages_of(top_k=5)
    assert (said(wording)["top_k"], lost(wording)) == (5, {})


def test_a_result_of_several_texts_is_one() -> None:
    """Some servers take no list there, even of texts."""
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": texts}
    turns = [*ASK, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    assert said(chat_of(messages=turns))["messages"][-1] == {"role": "tool", "tool_call_id": "c", "content": "a\n\nb"}


@pytest.mark.parametrize("content", [[], [{"type": "thinking", "thinking": "Hm", "signature": "s"}]])
def test_a_mark_of_the_whole_prompt_has_no_place_where_nothing_of_it_is_left(content: list[Any]) -> None:
    asked: dict[str, Any] = {"max_tokens": 9, "cache_control": MARK}
    wording = to_chat(raw({**asked, "messages": [{"role": "user", "content": content}]}), marks=True)
    assert said(wording)["messages"] == []
    wording = to_chat(raw({**asked, "messages": [*ASK, {"role": "system", "content": []}]}), marks=True)
    assert said(wording)["messages"][-1] == {"role": "system", "content": []}
