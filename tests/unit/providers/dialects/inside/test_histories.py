"""What a provider accepts in a conversation's history: columns of its row, applied after the translation."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from providers import load_catalog
from providers.dialects import DIALECTS, HistoryRules, Loss, Wording
from providers.dialects.histories import chat_history, messages_history
from providers.dialects.history_rules import CallIds, FittedIds

STRICTEST = HistoryRules().strictest()
NINE = CallIds(9, 9, "alphanumeric")
MISTRAL, OPENAI, GEMINI = (load_catalog()[name].quirks.history for name in ("mistral", "openai", "gemini"))
QUESTION = {"role": "user", "content": "weather?"}


def called(call_id: str = "call_1", **fields: Any) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        **fields,
    }


def result(call_id: str = "call_1", content: Any = "rain") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def fitted(history: HistoryRules, *messages: dict[str, Any]) -> tuple[list[dict[str, Any]], tuple[Loss, ...]]:
    wording = wording_of(history, *messages)
    return msgspec.json.decode(wording.fields["messages"]), wording.losses


def wording_of(history: HistoryRules, *messages: dict[str, Any]) -> Wording:
    return chat_history({"messages": msgspec.Raw(msgspec.json.encode(messages))}, history)


def test_a_history_that_a_provider_takes_stays_byte_for_byte() -> None:
    raw = msgspec.Raw(b'[ {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"} ]')
    for history in (HistoryRules(), STRICTEST, MISTRAL, OPENAI):
        assert chat_history({"messages": raw}, history).fields["messages"] is raw


def test_a_provider_that_takes_some_fields_alone_gets_no_others_in_the_parts_of_an_answer() -> None:
    repeated = {"role": "assistant", "annotations": [], "reasoning": "Hm."}
    texts = [{"type": "text", "text": "Yes."}, {"type": "refusal", "refusal": "No."}]
    answer = {"role": "assistant", "content": [{**text, **repeated} for text in texts]}
    messages, losses = fitted(MISTRAL, QUESTION, answer)
    assert messages[-1]["content"] == texts
    assert [loss.field for loss in losses] == [f"messages[1].content[{at}].reasoning" for at in (0, 1)]
    assert all(loss.hint for loss in losses)


def thought(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def test_thoughts_among_the_parts_of_an_answer_go_to_mistral_alone() -> None:
    text = {"type": "text", "text": "Yes."}
    said = [
        (called(content=[thought("Hm.")]), None),
        (called(content=[thought("Hm."), text]), [text]),
        ({"role": "assistant", "content": [thought("Hm."), text, thought("Ah."), text]}, [text, text]),
        ({"role": "assistant", "content": [thought("Hm.")]}, ""),
    ]
    for answer, left in said:
        turns = [QUESTION, answer, *([result()] if "tool_calls" in answer else []), QUESTION]
        messages, losses = fitted(OPENAI, *turns)
        assert messages == [QUESTION, {**answer, "content": left}, *turns[2:]]
        parts = [at for at, part in enumerate(answer["content"]) if part != text]
        assert [(loss.field, loss.hint) for loss in losses] == [(f"messages[1].content[{at}]", True) for at in parts]
        assert chat_history({"messages": msgspec.Raw(msgspec.json.encode(turns))}, HistoryRules()).losses == ()
        assert fitted(MISTRAL, *turns)[0][1]["content"] == answer["content"]


@pytest.mark.parametrize("call_id", ["call_PTLP8xhu3uwZk4l3nlnrrJha", "toolu_01A09q90qw90lq917835lq9", "functions.a:0"])
def test_mistral_gets_ids_of_nine_letters_and_digits_the_same_for_a_call_and_its_result(call_id: str) -> None:
    messages, losses = fitted(MISTRAL, QUESTION, called(call_id), result(call_id))
    sent = messages[1]["tool_calls"][0]["id"]
    assert re.fullmatch("[a-zA-Z0-9]{9}", sent)
    assert messages[2]["tool_call_id"] == sent
    assert not losses
    assert fitted(MISTRAL, called(call_id), result(call_id))[0][1]["tool_calls"][0]["id"] == sent  # in every turn


@given(st.lists(st.text(max_size=12), max_size=30))
def test_two_ids_never_become_one(call_ids: list[str]) -> None:
    ids = FittedIds(NINE)
    sent = {each: ids.of(each) for each in call_ids}
    assert len(set(sent.values())) == len(sent)
    assert all(NINE.takes(each) for each in sent.values())


def test_an_id_that_is_the_hash_of_another_gets_one_of_its_own() -> None:
    taken = FittedIds(NINE).of("call_1")
    ids = FittedIds(NINE)
    assert len({ids.of("call_1"), ids.of(taken)}) == 2


@pytest.mark.parametrize(("api", "longest"), [("chat", 40), ("responses", 64)])
def test_openai_gets_ids_no_longer_than_its_api_takes(api: str, longest: int) -> None:
    ids = FittedIds(OPENAI.call_ids[api])
    assert ids.of("a" * longest) == "a" * longest
    assert len(ids.of("a" * (longest + 1))) <= longest


def test_responses_items_of_one_call_keep_one_id() -> None:
    items = [{"type": "function_call", "call_id": "c" * 65, "name": "f", "arguments": "{}"}]
    items.append({"type": "function_call_output", "call_id": "c" * 65, "output": "rain"})
    with_history = DIALECTS["responses"].requests.vendors.with_history
    assert with_history is not None
    sent = with_history({"input": msgspec.Raw(msgspec.json.encode(items))}, OPENAI).fields["input"]
    first, second = msgspec.json.decode(sent)
    assert first["call_id"] == second["call_id"]
    assert len(first["call_id"]) <= 64


def test_a_text_after_a_result_goes_into_the_result_where_the_user_may_not_follow() -> None:
    messages, losses = fitted(MISTRAL, QUESTION, called("abcdefghi"), result("abcdefghi"), QUESTION)
    assert [each["role"] for each in messages] == ["user", "assistant", "tool"]
    assert messages[2]["content"] == "rain\n\nweather?"
    assert not losses


def test_of_several_texts_after_a_result_the_last_stays_the_users() -> None:
    # Codex tells the model as the user that a command was stopped, and then what the user asks.
    said = [{"role": "user", "content": text} for text in ("<turn_aborted>", "In a hurry.", "weather?")]
    messages, losses = fitted(MISTRAL, QUESTION, called("abcdefghi"), result("abcdefghi"), *said)
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[2]["content"] == "rain\n\n<turn_aborted>\n\nIn a hurry."
    assert messages[4] == said[2]
    assert not losses


def test_a_picture_after_a_result_stays_the_users() -> None:
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]}
    messages, _ = fitted(MISTRAL, called("abcdefghi"), result("abcdefghi"), picture)
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant", "user"]
    assert messages[4] == picture


def test_leading_instructions_are_one_system_message_and_later_ones_are_the_users() -> None:
    system, developer = ({"role": role, "content": f"of the {role}"} for role in ("system", "developer"))
    messages, losses = fitted(HistoryRules(one_system=True), system, developer, QUESTION, developer)
    assert messages == [
        {"role": "system", "content": "of the system\n\nof the developer"},
        QUESTION,
        {"role": "user", "content": "<system>\nof the developer\n</system>"},
    ]
    assert [(loss.field, loss.hint) for loss in losses] == [("messages[3].role", True)]


def test_in_the_strictest_form_roles_alternate() -> None:
    system, answer = {"role": "developer", "content": "Be brief."}, {"role": "assistant", "content": "a"}
    parts = {"role": "user", "content": [{"type": "text", "text": "more"}]}
    messages, _ = fitted(STRICTEST, system, QUESTION, parts, answer, answer, called(), result(), QUESTION)
    assert [each["role"] for each in messages] == ["system", "user", "assistant", "assistant", "tool"]
    assert messages[1]["content"] == "weather?\n\nmore"


@pytest.mark.parametrize("content", [None, "Now"])
def test_two_answers_in_a_row_are_one_where_a_call_must_follow_the_user(content: str | None) -> None:
    said, call = {"role": "assistant", "content": "First"}, called(content=content)
    one = {**called(), "content": "First" if content is None else "First\n\nNow"}
    assert fitted(GEMINI, QUESTION, said, call, result()) == ([QUESTION, one, result()], ())
    for steps in ([QUESTION, called(), result(), said, QUESTION, QUESTION], [QUESTION, called(), called("call_2")]):
        assert fitted(GEMINI, *steps)[0] == steps  # results of the first follow; the user may say two things


@pytest.mark.parametrize("vendor", ["deepseek", "moonshot"])
def test_reasoning_that_is_demanded_and_missing_is_filled_and_told(vendor: str) -> None:
    history = load_catalog()[vendor].quirks.history
    messages, losses = fitted(history, QUESTION, called(), result(), called(reasoning_content="Hm."))
    assert messages[1]["reasoning_content"] == history.missing_reasoning
    assert messages[3]["reasoning_content"] == "Hm."
    assert [(loss.field, loss.hint) for loss in losses] == [("messages[1].reasoning_content", True)]


@pytest.mark.parametrize("vendor", ["mistral", "groq", "cerebras"])
def test_fields_that_a_vendor_refuses_are_left_out_of_assistant_messages(vendor: str) -> None:
    said = called("abcdefghi", reasoning_content="Hm.", annotations=[], refusal=None)
    said["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "s"}}
    messages, losses = fitted(load_catalog()[vendor].quirks.history, QUESTION, said)
    assert messages[1] == called("abcdefghi")
    assert [(loss.field, loss.hint) for loss in losses] == [("messages[1].reasoning_content", True)]


def test_a_refusal_is_what_the_assistant_said() -> None:
    messages, losses = fitted(MISTRAL, QUESTION, {"role": "assistant", "content": None, "refusal": "No."})
    assert messages[1] == {"role": "assistant", "content": "No."}
    assert not losses


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_a_call_without_arguments_has_an_empty_object_where_they_are_read(blank: str) -> None:
    call = called()
    call["tool_calls"][0]["function"] |= {"arguments": blank, "name": "f"}
    messages, losses = fitted(MISTRAL, QUESTION, call, result())
    assert messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert not losses


class CountedNames(frozenset[str]):
    """Names that count how often one is looked up."""

    looks = 0

    def __contains__(self, name: object) -> bool:
        type(self).looks += 1
        return super().__contains__(name)


def test_each_field_of_a_call_is_looked_up_once_however_many_there_are() -> None:
    names = [f"field_{number}" for number in range(500)]
    call = called()
    call["tool_calls"][0]["function"] |= dict.fromkeys([*names, "added"], 1)
    messages, _ = fitted(HistoryRules(refused_fields=CountedNames({"added"})), QUESTION, call, result())
    assert messages[1]["tool_calls"][0]["function"].keys() == {"name", "arguments", *names}
    assert CountedNames.looks < 2 * len(names)


@pytest.mark.parametrize("messages", [b'"text"', b"[1]", b'[{"role":"assistant","tool_calls":7}]', b"null"])
def test_what_is_no_conversation_is_left_to_the_provider(messages: bytes) -> None:
    fields = {"messages": msgspec.Raw(messages)}
    assert chat_history(fields, MISTRAL) == Wording(fields)


def test_deepseek_gets_texts_in_no_lists() -> None:
    """It refuses any list, of texts too."""
    two = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    seen = [*two, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
    history = load_catalog()["deepseek"].quirks.history
    given: list[dict[str, Any]] = [
        {"role": "system", "content": two},
        {"role": "user", "content": seen},
        called(),
        result(content=two),
    ]
    messages, _ = fitted(history, *given)
    assert [message["content"] for message in messages] == ["a\n\nb", seen, None, "a\n\nb"]


def test_the_mark_of_a_document_that_is_sent_as_a_text_is_its_texts() -> None:
    mark = {"type": "ephemeral"}
    source = {"type": "text", "media_type": "text/plain", "data": "rain"}
    content = [{"type": "document", "source": source, "cache_control": mark}]
    fields = {"messages": msgspec.Raw(msgspec.json.encode([{"role": "user", "content": content}]))}
    wording = messages_history(fields, HistoryRules(documents=False))
    [message] = msgspec.json.decode(wording.fields["messages"])
    assert message["content"] == [{"type": "text", "text": "rain", "cache_control": mark}]
