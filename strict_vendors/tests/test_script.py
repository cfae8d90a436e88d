"""What stand-ins answer is decided by the conversation, the same in each API."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from strict_vendors import NAMES, Fault, Shape, Vendor, made
from strict_vendors.apis.messages import turns_of
from strict_vendors.known.anthropic import Anthropic
from strict_vendors.known.google import Google
from strict_vendors.known.openai import OpenAI
from strict_vendors.schemas import sample, strict_faults
from strict_vendors.script import Asked, Broken, Given, Said, Tool, answered
from strict_vendors.tests.asking import USER, ask

TOOLS = (Tool("a", {"type": "object", "properties": {"x": {"type": "integer"}}}), Tool("b", {"type": "object"}))


def answer(text: str, *turns: Said, **fields: Any) -> Given:
    return answered(Asked(model="m", body={}, turns=[Said("user", text), *turns], **fields), {})


def names(given: Given) -> list[str]:
    return [call.name for call in given.calls]


CALLED, TOLD = Said("assistant", calls=1), Said("tool", "rain")


def test_tools_are_called_and_their_results_told() -> None:
    assert names(answer("weather?", tools=TOOLS)) == ["a"]
    assert names(answer("weather? in parallel", tools=TOOLS)) == ["a", "b"]
    assert names(answer("weather? in parallel", tools=TOOLS, parallel=False)) == ["a"]
    assert answer("weather?", CALLED, TOLD, tools=TOOLS).text == "The tools said: rain"
    assert names(answer("do it twice", CALLED, TOLD, tools=TOOLS)) == ["b"]
    assert names(answer("do it twice", CALLED, TOLD, CALLED, TOLD, tools=TOOLS)) == []
    assert names(answer("weather?", tools=TOOLS, choice="none")) == []
    assert names(answer("say: hello", tools=TOOLS, choice="b")) == ["b"]


@pytest.mark.parametrize(
    "schema", [{}, {"description": "nothing"}, {"type": None}, {"type": ["object", "null"]}], ids=str
)
def test_a_function_without_parameters_is_called_with_an_object(schema: dict[str, Any]) -> None:
    assert answer("weather?", tools=[Tool("a", schema)]).calls[0].arguments == "{}"


def test_lines_of_the_text_decide_more() -> None:
    given = answer('call: b {"y": 1}\ncall: a {"x": 2}\nthen: a {"x": 3}', tools=TOOLS)
    assert [(call.name, json.loads(call.arguments)) for call in given.calls] == [("b", {"y": 1}), ("a", {"x": 2})]
    text = 'call: b {"y": 1}\nthen: a {"x": 3}'
    assert answer(text, CALLED, TOLD, tools=TOOLS).calls[0].arguments == '{"x": 3}'
    assert answer("say: hello", tools=TOOLS).text == "hello"
    assert answer("think: deeply\nsay: hello", thinks=True).thoughts == "deeply"


def test_a_failure_and_a_cut_may_come_once() -> None:
    failures: dict[str, int] = {}
    asked = Asked(model="m", body={}, turns=[Said("user", "fail: 500 times 1 here\ncut: once there")])
    with pytest.raises(Broken):
        answered(asked, failures)
    assert answered(asked, failures).cut
    assert not answered(asked, failures).cut


@pytest.mark.parametrize(
    "wanted",
    [
        "Do not call any tools. Sum up.",
        "First, reason. Then, generate the updated <state_snapshot>.",
        "You are performing a CONTEXT CHECKPOINT COMPACTION.",
        "Go on after:\n<previous_response_suffix>\nonce\n</previous_response_suffix>",
    ],
)
def test_a_program_that_wants_a_summary_is_told_what_was_wanted_before(wanted: str) -> None:
    turns = [Said("user", "Turn 1: look.\ncall: a {}"), CALLED, TOLD, Said("user", wanted)]
    given = answered(Asked(model="m", body={}, turns=turns, tools=TOOLS), {})
    assert (given.text, names(given)) == ("Turn 1: look.\ncall: a {}", [])


def test_a_stream_may_end_early_and_an_answer_be_short_once() -> None:
    failures: dict[str, int] = {}
    asked = Asked(model="m", body={}, turns=[Said("user", "cut: early a\nlength: 2 b\nsay: one two three")])
    first, second = (answered(asked, failures) for _ in range(2))
    assert (first.cut, first.text, first.finish) == ("early", "one two ", "length")
    assert (second.cut, second.text, second.finish) == (False, "one two three", "stop")


def test_an_answer_ends_where_it_was_told_to() -> None:
    assert answer("say: one two three", most=2).finish == "length"
    assert answer("say: one two three", stop=["two"]).text == "one "


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["a", "b"]},
        "inner": {"anyOf": [{"$ref": "#/$defs/inner"}, {"type": "null"}]},
        "list": {"type": "array", "items": {"type": "number"}, "minItems": 2},
        "when": {"type": "string", "format": "date-time"},
    },
    "required": ["kind", "inner", "list", "when"],
    "additionalProperties": False,
    "$defs": {
        "inner": {
            "type": "object",
            "properties": {"self": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/inner"}]}},
            "required": ["self"],
            "additionalProperties": False,
        }
    },
}


def test_a_schema_is_filled() -> None:
    jsonschema.validate(sample(SCHEMA), SCHEMA)
    assert list(strict_faults(SCHEMA)) == []
    assert json.loads(answer("anything", schema=SCHEMA).text) == sample(SCHEMA)


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"type": "array", "items": {}}, "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"array\"'."),
        ({**SCHEMA, "required": ["kind"]},
         ("In context=(), 'required' is required to be supplied and to be an array including every key in properties."
         " Missing 'inner'.")),
        ({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}, "required": ["a"],
          "additionalProperties": False}, "In context=('properties', 'a'), 'default' is not permitted."),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
         "In context=('properties', 'a'), schema must have a 'type' key."),
    ],
)  # fmt: skip
def test_what_strict_mode_does_not_take_is_told(schema: dict[str, Any], fault: str) -> None:
    assert next(strict_faults(schema)) == fault


@pytest.mark.parametrize("name", NAMES)
def test_each_vendor_says_where_its_rules_come_from(name: str) -> None:
    assert made(name).pages


def test_a_vendor_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(LookupError, match="no stand-in of 'nobody'; there are: anthropic, "):
        made("nobody")


def test_a_failure_and_a_cut_may_be_one_models_alone() -> None:
    assert answer("cut: now at m").cut
    assert not answer("cut: now at another").cut
    assert answer("cut: silent at another\ncut: now at m").cut is True
    with pytest.raises(Broken):
        answer("fail: 500 at m")
    assert answer("say: hello\nfail: 500 at another").text == "hello"


def test_an_answer_by_a_schema_is_mended_where_a_result_says_what_is_wrong() -> None:
    text, called = 'data: {"age": 3}\nthen: Person {"age": 36}', Said("assistant", calls=1)
    assert answer(text, schema={}).text == '{"age": 3}'
    assert answer(text, called, Said("tool", "too young"), schema={}).text == '{"age": 36}'


def test_an_answer_that_was_begun_is_gone_on_with() -> None:
    text, begun = "say: one two three", Said("assistant", "one")
    given = answer(text, begun, begun="one", thinks=True)
    assert (given.text, given.thoughts) == (" two three", "")
    assert answer(text, Said("assistant", "no"), begun="no").text == "one two three"
    assert answer(text, begun, begun="one", most=1).finish == "length"


def test_a_summary_has_the_last_lines_and_calls_nothing() -> None:
    said = Said("user", 'Turn 1: look.\ncall: a {"x": 1}\nrecall: now')
    asked = Said("user", "Do NOT call any tools. Write a summary.")
    summary = answered(Asked(model="m", body={}, turns=[said, CALLED, TOLD, asked], tools=TOOLS), {})
    assert (summary.text, names(summary)) == (said.text, [])
    assert names(answer(f"It was so far:\n{summary.text}", tools=TOOLS)) == ["a"]


def test_reminders_of_a_program_are_no_turn_of_the_user() -> None:
    reminder = Said("user", "<system-reminder>\nBe kind.\n</system-reminder>\n")
    assert answer("say: hello", reminder, tools=TOOLS).text == "hello"
    mixed = Said("user", f"{reminder.text}say: bye")
    assert answer("say: hello", mixed, tools=TOOLS).text == "bye"


def test_a_request_for_a_summary_is_a_turn_also_beside_results() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}
    for words, turns in (("Look here.", ["tool"]), ("Do NOT call any tools.", ["tool", "user"])):
        message = {"role": "user", "content": [result, {"type": "text", "text": words}]}
        assert [turn.who for turn in turns_of([message])] == turns


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("openai", "chat/completions", {"model": "gpt-5", "messages": [USER]}),
        ("openai", "responses", {"model": "gpt-5", "input": [USER]}),
        ("anthropic", "messages", {"model": "claude-opus-5-5", "messages": [USER], "max_tokens": 10}),
        (
            "google",
            "models/gemini-2.5-flash:generateContent",
            {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        ),
        (
            "bedrock",
            "model/us.anthropic.claude-haiku-4-5-20251001-v1:0/converse",
            {"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
        ),
        ("llama_cpp", "chat/completions", {"messages": [USER]}),
    ],
)
def test_models_hold_as_many_tokens_as_a_stand_in_is_told(name: str, path: str, body: Any) -> None:
    for context, rule in ((0, ""), (1, "context")):
        vendor = made(name, context=context)
        keys = {
            "authorization": f"Bearer {vendor.key}",
            "x-api-key": vendor.key,
            "x-goog-api-key": vendor.key,
            "anthropic-version": "2023-06-01",
        }
        for account in (vendor, vendor.second_account):
            own = {header: given.replace(vendor.key, account.key) for header, given in keys.items()}
            assert ask(account, f"{vendor.base}/{path}", body, own).rule == rule, vendor.refusals


def test_an_answer_is_as_late_and_rests_as_long_as_its_own_text_asks() -> None:
    vendor = made("openai")
    for text, waits_s in (("slow: 0.5\nrest: 1", (0.5, 1.0)), ("Hello", (0.0, 0.0))):
        body = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}).encode()
        reply = vendor.answer("POST", "/v1/chat/completions", {"authorization": f"Bearer {vendor.key}"}, body)
        assert (reply.status, (reply.late_s, reply.rest_s)) == (200, waits_s)


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        (OpenAI, "/v1/chat/completions", {"model": "gpt-4o", "messages": [USER]}),
        (OpenAI, "/v1/responses", {"model": "gpt-4o", "input": "Hello"}),
        (Anthropic, "/v1/messages", {"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [USER]}),
        (Google, "/v1beta/models/gemini-2.5-flash:generateContent", {"contents": [{"parts": [{"text": "Hello"}]}]}),
    ],
)
def test_a_stand_in_of_ones_own_lets_pass_what_it_says_and_answers_as_it_will(
    kind: type[Vendor], path: str, body: dict[str, Any]
) -> None:
    class Lenient(kind):  # type: ignore[misc, valid-type] # whichever it is
        key = "own"

        def faults_in(self, shape: Shape, body: Any) -> Iterator[Fault]:
            return (fault for fault in super().faults_in(shape, body) if fault.kind != "unknown")

        def given(self, asked: Asked) -> Given:
            return Given(text="as I will")

    headers = {"authorization": "Bearer own", "anthropic-version": "2023-06-01", "x-goog-api-key": "own"}
    odd, wrong = {**body, "xFuture": [None]}, {**body, "xFuture": [None], "metadata": 5, "store": 5, "contents": 5}
    assert ask(Lenient(), path, odd, headers).status == 200
    assert "as I will" in str(ask(Lenient(), path, odd, headers).body)
    assert ask(Lenient(), path, wrong, headers).status == 400
    assert (
        ask(kind(), path, odd, headers | {"authorization": f"Bearer {kind.key}", "x-goog-api-key": kind.key}).status
        == 400
    )
