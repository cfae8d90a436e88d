"""Tools that take a text are functions with one string where there is nothing else, and texts again on the way back."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from providers.dialects import Wording, raw_json
from providers.dialects.chat.custom_tools import AsCustom, as_functions, custom_names

Json = dict[str, Any]
TEXT = '*** Begin Patch\n@@\n-x = "1"\\n\n+x = "2" 😀\u2028\t\n*** End Patch\n'
GRAMMAR = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /.+/"}}
PATCH: Json = {"type": "custom", "custom": {"name": "patch", "description": "Patches.", "format": GRAMMAR}}
RUN: Json = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}


def chunk(delta: Json | None = None, reason: str | None = None, index: int = 0) -> Json:
    return {"id": "c", "choices": [{"index": index, "delta": delta or {}, "finish_reason": reason}]}


def piece(arguments: Any, name: str | None = None, call_id: str | None = None, index: int | None = 0) -> Json:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    call: Json = {"function": function, **({} if index is None else {"index": index})}
    return call | ({"id": call_id, "type": "function"} if call_id else {})


def calls_of(chunks: Sequence[Json], *, names: Sequence[str] = ("patch",)) -> list[Json]:
    """Return the calls of one answer, gathered by their numbers as a client's SDK does."""
    step, said = AsCustom(names), b""
    for each in chunks:
        said += step.feed(b"data: %b\n\n" % json.dumps(each).encode())
    said += step.feed(b"data: [DONE]\n\n") + step.end()
    calls: dict[int, Json] = {}
    for line in said.decode().split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                known = calls.setdefault(call["index"], {"id": call.get("id")})
                kind, field = ("custom", "input") if "custom" in call else ("function", "arguments")
                known["kind"] = kind
                known["name"] = known.get("name", "") + call[kind].get("name", "")
                known["said"] = known.get("said", "") + call[kind].get(field, "")
    return [calls[number] for number in sorted(calls)]


def cut(text: str, length: int) -> list[str]:
    return [text[at : at + length] for at in range(0, len(text), length)]


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 1000])
def test_a_text_in_json_is_told_as_it_is_however_it_is_cut(length: int, ascii_only: bool) -> None:
    pieces = cut(json.dumps({"input": TEXT}, ensure_ascii=ascii_only), length)
    first = chunk({"role": "assistant", "tool_calls": [piece("", "patch", "a")]})
    chunks = [first, *(chunk({"tool_calls": [piece(each)]}) for each in pieces), chunk(reason="tool_calls")]
    assert calls_of(chunks) == [{"id": "a", "kind": "custom", "name": "patch", "said": TEXT}]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("*** Begin Patch\n", "*** Begin Patch\n"),  # without JSON around it, as the tool's own description asks for
        ('"x\\n"', "x\n"),
        ('{"patch":"x\\n"}', "x\n"),
        ('{"why":"y","input":"x"}', "x"),
        ('{ "input" : "x" }', "x"),
        ('{"input":"a\nb"}', "a\nb"),  # a line break that is not escaped
        ('{"input":"a\\qb"}', "a\\qb"),  # an escape that JSON does not have
        ('{"input":""}', ""),
        ("{}", ""),
        ("", ""),
        ('{"input":7}', '{"input":7}'),
        ('{"a":"x","b":"y"}', '{"a":"x","b":"y"}'),
        ({"input": "x"}, "x"),  # the object itself
    ],
)
def test_a_text_is_found_in_what_models_write_instead(arguments: Any, said: str) -> None:
    chunks = [chunk({"tool_calls": [piece(arguments, "patch", "a")]}), chunk(reason="tool_calls")]
    assert calls_of(chunks)[0]["said"] == said


def test_each_call_gets_its_own_pieces_and_functions_stay_what_they_are() -> None:
    one, two = cut(json.dumps({"input": "one"}), 4), cut(json.dumps({"input": "two"}), 4)
    chunks = [
        chunk({"tool_calls": [piece("", "patch", "a"), piece('{"c":', "run", "b", 1), piece("", "patch", "c", 2)]}),
        *(chunk({"tool_calls": [piece(x), piece(y, index=2)]}) for x, y in zip(one, two, strict=True)),
        chunk({"tool_calls": [piece("1}", index=1)]}, "tool_calls"),
    ]
    assert [(each["id"], each["kind"], each["said"]) for each in calls_of(chunks)] == [
        ("a", "custom", "one"),
        ("b", "function", '{"c":1}'),
        ("c", "custom", "two"),
    ]


def test_calls_that_a_server_numbers_alike_or_not_at_all_are_told_apart() -> None:
    for index in (0, None):
        calls = [piece(json.dumps({"input": each}), "patch", each, index) for each in ("one", "two")]
        chunks = [*(chunk({"tool_calls": [call]}) for call in calls), chunk(reason="tool_calls")]
        assert [each["said"] for each in calls_of(chunks)] == ["one", "two"]


def test_a_name_may_come_after_the_arguments() -> None:
    call = {"index": 0, "id": "a", "function": {"arguments": '{"input":'}}
    chunks = [chunk({"tool_calls": [call]}), chunk({"tool_calls": [piece('"x"}', "patch")]}), chunk(reason="stop")]
    assert calls_of(chunks) == [{"id": "a", "kind": "custom", "name": "patch", "said": "x"}]


def test_other_chunks_pass_as_they_are() -> None:
    step = AsCustom(["patch"])
    for block in (b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n', b": hm\n\n", b"data: [DONE]\n\n"):
        assert step.feed(block) == block


def test_tools_calls_and_the_choice_become_those_of_functions() -> None:
    call = {"id": "a", "type": "custom", "custom": {"name": "patch", "input": TEXT}}
    own = {"id": "b", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": 'say "custom"'},
        {"role": "assistant", "content": None, "tool_calls": [call, own]},
        {"role": "tool", "tool_call_id": "a", "content": "Done"},
    ]
    choice = {"type": "custom", "custom": {"name": "patch"}}
    asked = {"tools": [RUN, PATCH], "messages": messages, "tool_choice": choice}
    wording = as_functions(Wording({name: raw_json(value) for name, value in asked.items()}))
    said = {name: msgspec.json.decode(value) for name, value in wording.fields.items()}
    function = said["tools"][1]["function"]
    assert said["tools"][0] == RUN
    assert (function["name"], function["parameters"]["required"]) == ("patch", ["input"])
    assert "Patches." in function["description"]
    assert "start: /.+/" in function["description"]
    assert said["tool_choice"] == {"type": "function", "function": {"name": "patch"}}
    one, other = said["messages"][1]["tool_calls"]
    assert (one["id"], one["type"], one["function"]["name"]) == ("a", "function", "patch")
    assert json.loads(one["function"]["arguments"]) == {"input": TEXT}
    assert (other, said["messages"][0], said["messages"][2]) == (own, messages[0], messages[2])
    assert [(loss.field, loss.hint) for loss in wording.losses] == [("tools[1].custom.format", True)]


def test_those_among_which_a_model_may_choose_are_functions_too() -> None:
    reference = {"type": "custom", "custom": {"name": "patch"}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [reference]}}
    asked = {"tools": raw_json([RUN, PATCH]), "messages": raw_json([]), "tool_choice": raw_json(choice)}
    said = msgspec.json.decode(as_functions(Wording(asked)).fields["tool_choice"])
    assert said["allowed_tools"]["tools"] == [{"type": "function", "function": {"name": "patch"}}]


def test_a_tool_with_the_name_of_a_function_stays_one_that_takes_a_text() -> None:
    twin = {"type": "function", "function": {"name": "patch"}}
    asked = {"tools": raw_json([twin, PATCH]), "messages": raw_json([])}
    assert custom_names(asked) == frozenset()
    assert msgspec.json.decode(as_functions(Wording(asked)).fields["tools"]) == [twin, PATCH]


@pytest.mark.parametrize("tools", [7, [7], [{"type": "custom"}], [{"type": "custom", "custom": {"name": 7}}]])
def test_what_is_not_valid_is_left_to_others(tools: Any) -> None:
    asked = {"tools": raw_json(tools), "messages": raw_json([])}
    assert as_functions(Wording(asked)).fields == asked
