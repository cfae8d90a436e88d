"""The items of a conversation so far, as the next turn sends them."""

import msgspec
import pytest

from providers import events
from providers.dialects import Heard, items_of, joined, warmed_up


@pytest.mark.parametrize(
    ("prompt", "items"),
    [
        (None, b""),
        (b'"Say \\"hi\\"."', b'{"role":"user","content":"Say \\"hi\\"."}'),
        (b"[]", b""),
        (b' [ {"a": [1]} , {} ] ', b'{"a": [1]} , {}'),
        (b"7", None),
        (b"null", None),
    ],
)
def test_an_input_is_a_list_of_items(prompt: bytes | None, items: bytes | None) -> None:
    assert items_of(None if prompt is None else msgspec.Raw(prompt)) == items


def test_empty_lists_leave_no_comma() -> None:
    assert joined(b"", b"1", b"", b"2,3", b"") == b"1,2,3"


def heard(*said: object) -> Heard:
    found = Heard()
    for each in said:
        found.hear(msgspec.json.encode(each))
    return found


def completed(*output: object, kind: str = "response.completed") -> object:
    return {"type": kind, "response": {"id": "resp_1", "output": output}}


def test_an_answer_is_over_with_its_last_event_also_where_a_limit_cut_it() -> None:
    created = {"type": "response.created", "response": {"id": "resp_1", "output": []}}
    assert (heard(created).id, heard(created).is_over) == ("resp_1", False)
    assert heard(created, completed(kind="response.incomplete")).is_over
    assert not heard(created, completed(kind="response.failed")).is_over


def test_a_text_about_an_event_is_none() -> None:
    quoted = {"type": "response.output_text.delta", "delta": '"type":"response.completed"'}
    assert not heard(quoted).is_over


def test_items_that_the_last_event_lacks_are_those_that_were_done() -> None:
    done = {"type": "response.output_item.done", "item": {"type": "message", "id": "msg_1", "content": []}}
    assert heard(done, completed()).output == b'{"type":"message","content":[]}'
    assert heard(done, completed({"type": "message", "n": 2})).output == b'{"type":"message","n":2}'


@pytest.mark.parametrize(
    ("item", "kept"),
    [
        ({"type": "message", "id": "msg_1", "x": 1}, {"type": "message", "x": 1}),
        ({"type": "function_call", "id": "fc_1", "call_id": "c"}, {"type": "function_call", "call_id": "c"}),
        ({"type": "reasoning", "id": "rs_1", "summary": [{}]}, None),
        ({"type": "reasoning", "id": "rs_1", "encrypted_content": None, "content": []}, None),
        (
            {"type": "reasoning", "id": "rs_1", "encrypted_content": "x"},
            {"type": "reasoning", "encrypted_content": "x"},
        ),
        ({"type": "reasoning", "id": "rs_translated_1"}, {"type": "reasoning", "id": "rs_translated_1"}),
        ({"type": "computer_call", "id": "cu_1"}, {"type": "computer_call", "id": "cu_1"}),
        ({"id": "x"}, {"id": "x"}),
    ],
)
def test_ids_that_only_name_an_item_and_reasoning_that_only_its_provider_has_stay_behind(
    item: object, kept: object
) -> None:
    output = heard(completed(item)).output
    assert (msgspec.json.decode(output) if output else None) == kept


def test_a_warm_up_begins_and_ends_a_response_without_an_output() -> None:
    fields = {"instructions": msgspec.Raw(b'"Be brief."')}
    said = [
        msgspec.json.decode(each.data)
        for each in events(warmed_up(fields, response_id="resp_1", created_at=7, model="m"))
    ]
    assert [each["type"] for each in said] == ["response.created", "response.in_progress", "response.completed"]
    assert [each["sequence_number"] for each in said] == [0, 1, 2]
    last = said[-1]["response"]
    assert (last["id"], last["status"], last["output"], last["instructions"]) == (
        "resp_1",
        "completed",
        [],
        "Be brief.",
    )
    assert last["usage"]["total_tokens"] == 0
