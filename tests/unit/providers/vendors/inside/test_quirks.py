"""Shaping a client's body to a vendor's taste."""

import json
from typing import Any

import msgspec
import pytest

from providers import load_catalog
from providers.dialects import HistoryRules
from providers.vendors import Quirks, demanded, is_plain, losses, shape
from providers.vendors.catalog import Restriction


def fields(**values: Any) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(values), type=dict[str, msgspec.Raw])


def shaped(quirks: Quirks, **values: Any) -> Any:
    return json.loads(msgspec.json.encode(shape(fields(**values), quirks)))


def test_without_quirks_a_body_stays_as_it_is() -> None:
    body = {"model": "m", "messages": [{"role": "developer", "content": "Be brief."}], "n": 2, "unheard_of": {"a": 1}}
    assert shaped(Quirks(), **body) == body
    assert losses(fields(**body), Quirks().drop) == ()


# What they say of translations and answers, of models, or of requests that are not sent, or are before: their shape
# stays as it is.
NO_CHANGE = {
    "beyond", "free", "functions_only", "habits", "ignores", "lacks_schemas", "preferences", "refuses_storing",
    "repairs", "states_cost", "takes_signed", "temperatures", "whole",
}  # fmt: skip
OTHERS: dict[str, Any] = {
    "drop": frozenset({"seed"}),
    "rename": {"seed": "random_seed"},
    "taken_if": {"metadata": Restriction(beside="store")},
    "usage_option": "none",
    "unsigned_call": "whoever",
    "unsigned_details": {"m": "whoever"},
    "history": HistoryRules(one_system=True),
}


@pytest.mark.parametrize("name", sorted({*Quirks.__struct_fields__} - NO_CHANGE))
def test_what_changes_a_request_is_not_plain(name: str) -> None:
    assert is_plain(Quirks())
    assert not is_plain(Quirks(**{name: OTHERS.get(name, True)}))


def test_the_client_s_fields_are_never_changed_in_place() -> None:
    body = fields(model="m", seed=1)
    shape(body, Quirks(drop=frozenset({"seed"})))
    assert "seed" in body


def test_a_parameter_the_vendor_refuses_is_left_out_and_reported() -> None:
    quirks = Quirks(drop=frozenset({"logit_bias", "logprobs"}))
    body = {"model": "m", "logprobs": True, "logit_bias": {"1": 2}}
    assert shaped(quirks, **body) == {"model": "m"}
    assert [loss.field for loss in losses(fields(**body), quirks.drop)] == ["logprobs", "logit_bias"]


def test_how_to_call_tools_is_left_out_where_there_are_none() -> None:
    quirks = Quirks(calls_with_tools=True)
    assert shaped(quirks, parallel_tool_calls=False, tool_choice="auto") == {}
    assert shaped(quirks, tools=[], tool_choice="none") == {}
    assert shaped(quirks, tool_choice="required") == {"tool_choice": "required"}
    assert shaped(quirks, tools=[], tool_choice="required") == {"tool_choice": "required"}
    assert shaped(quirks, tools=5) == {"tools": 5}  # which the vendor refuses
    offered = {"tools": [{"type": "function"}], "parallel_tool_calls": False, "tool_choice": "auto"}
    assert shaped(quirks, **offered) == offered


@pytest.mark.parametrize("vendor", ["openai", "azure"])
def test_how_agents_call_their_tools_is_no_reason_to_plan_each_call_anew(vendor: str) -> None:
    dropped = load_catalog()[vendor].quirks.may_drop("chat", is_chats=True)
    assert dropped.isdisjoint({"parallel_tool_calls", "tool_choice"})


@pytest.mark.parametrize(
    "default",
    [
        {"logprobs": None},
        {"logprobs": False},
        {"store": False},
        {"frequency_penalty": 0},
        {"logit_bias": {}},
        {"verbosity": "medium"},
    ],
)
def test_what_asks_for_nothing_is_left_out_and_not_missed(default: dict[str, Any]) -> None:
    quirks = Quirks(drop=frozenset(default))
    assert shaped(quirks, **default) == {}
    assert losses(fields(**default), quirks.drop) == ()


def test_what_changes_no_answer_is_missed_but_keeps_nobody_out() -> None:
    quirks = Quirks(drop=frozenset({"user", "seed", "prompt_cache_options", "prompt_cache_retention"}))
    asked = fields(user="ann", seed=1, prompt_cache_options={"mode": "explicit"}, prompt_cache_retention="24h")
    lost = losses(asked, quirks.drop)
    assert [loss.field for loss in lost] == ["user", "seed", "prompt_cache_options", "prompt_cache_retention"]
    assert [loss.field for loss in demanded(lost, asked)] == ["seed"]


def test_a_parameter_gets_the_name_the_vendor_has_for_it() -> None:
    quirks = Quirks(rename={"max_completion_tokens": "max_tokens"})
    assert shaped(quirks, max_completion_tokens=7) == {"max_tokens": 7}


def test_of_both_names_the_vendor_s_own_is_kept() -> None:
    quirks = Quirks(rename={"max_completion_tokens": "max_tokens"})
    assert shaped(quirks, max_completion_tokens=7, max_tokens=5) == {"max_tokens": 5}


def test_stream_options_are_not_sent_where_usage_comes_unasked() -> None:
    quirks = Quirks(usage_option="none")
    body = {"stream_options": {"include_usage": True}}
    assert shaped(quirks, **body) == {}
    assert losses(fields(**body), quirks.drop) == ()


def test_a_developer_message_becomes_a_system_message_with_everything_else_kept() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}], "name": "boss"},
        {"role": "user", "content": 'What does a "developer" do?'},
    ]
    assert shaped(Quirks(system_role=True), messages=messages) == {
        "messages": [messages[0] | {"role": "system"}, messages[1]]
    }


def test_messages_without_a_developer_are_not_even_copied() -> None:
    body = fields(messages=[{"role": "user", "content": "Hi"}])
    assert shape(body, Quirks(system_role=True))["messages"] is body["messages"]


@pytest.mark.parametrize("messages", [{"role": "developer"}, ["developer"], "developer"])
def test_messages_that_are_none_are_left_for_the_vendor_to_refuse(messages: Any) -> None:
    assert shaped(Quirks(system_role=True), messages=messages) == {"messages": messages}


SIGNING = Quirks(unsigned_call="whoever")
SIGNED = {"google": {"thought_signature": "whoever"}}


def call(call_id: str, **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}, **fields}


def test_the_first_call_of_a_message_without_a_signature_gets_one() -> None:
    ask, answer = {"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "a", "content": "x"}
    made = {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]}
    signed = {**made, "tool_calls": [call("a", extra_content=SIGNED), call("b")]}
    assert shaped(SIGNING, messages=[ask, made, answer]) == {"messages": [ask, signed, answer]}


def test_calls_that_are_signed_keep_their_bytes() -> None:
    own = [{"role": "assistant", "tool_calls": [call("a", extra_content={"google": {"thought_signature": "own"}})]}]
    body = fields(messages=own)
    assert shape(body, SIGNING)["messages"] is body["messages"]


@pytest.mark.parametrize("messages", ["tool_calls", [{"tool_calls": 5}], [5], [{"tool_calls": []}]])
def test_what_has_no_calls_to_sign_is_left_to_the_vendor(messages: Any) -> None:
    assert shaped(SIGNING, messages=messages) == {"messages": messages}


DETAILED = Quirks(unsigned_details={"google/gemini": "whoever"})


def detailed(message: dict[str, Any], model: str = "google/gemini-3.5-flash") -> Any:
    sent = shape(fields(messages=[message]), DETAILED, model)["messages"]
    return msgspec.json.decode(sent)[0].get("reasoning_details")


def test_calls_without_a_sealed_detail_get_one_at_the_models_that_need_it() -> None:
    made = {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]}
    sealed = {"type": "reasoning.encrypted", "data": "whoever", "id": "a", "format": "google-gemini-v1", "index": 0}
    told = {"type": "reasoning.text", "text": "Hm."}
    assert detailed(made) == [sealed]
    assert detailed({**made, "reasoning_details": [told]}) == [told, sealed]
    assert detailed(made, "anthropic/claude-sonnet-4.5") is None
    assert detailed({**made, "reasoning_details": [{**sealed, "data": "own"}]}) == [{**sealed, "data": "own"}]
    assert detailed({"role": "user", "content": "tool_calls"}) is None


@pytest.mark.parametrize("messages", ["tool_calls", [{"tool_calls": 5}], [5], [{"tool_calls": []}]])
def test_what_has_no_calls_to_detail_is_left_to_the_vendor(messages: Any) -> None:
    sent = shape(fields(messages=messages), DETAILED, "google/gemini-3.5-flash")
    assert msgspec.json.decode(sent["messages"]) == messages


def test_moonshot_gets_the_type_within_the_branches_and_nothing_twice_beside_a_reference() -> None:
    quirks = load_catalog()["moonshot"].quirks
    value = {"type": "string", "description": "A value."}
    parameters = {
        "type": "object",
        "anyOf": [{"required": ["type"]}, {"type": "null"}],
        "properties": {
            "type": {"type": "string", "anyOf": [{"enum": ["a"]}, {"$ref": "#/$defs/value"}]},
            "anyOf": {"$ref": "#/$defs/value", "type": "string", "description": "Mine.", "default": "b"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/nothing", "description": "Mine."}},
        },
        "$defs": {"value": value},
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    [sent] = shaped(quirks, tools=[tool])["tools"]
    assert sent["function"]["parameters"] == {
        "anyOf": [{"type": "object", "required": ["type"]}, {"type": "null"}],
        "properties": {
            "type": {"anyOf": [{"type": "string", "enum": ["a"]}, {"$ref": "#/$defs/value"}]},
            "anyOf": {"$ref": "#/$defs/value", "default": "b"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/nothing", "description": "Mine."}},
        },
        "$defs": {"value": value},
    }
    bare = [{"type": "function", "function": {"name": "anyOf"}}, {"type": "builtin_function"}]
    assert shaped(quirks, tools=bare)["tools"] == bare
    assert shaped(quirks, tools="anyOf") == {"tools": "anyOf"}


@pytest.mark.parametrize("vendor", ["ollama", "lm_studio", "llama_cpp"])
def test_servers_that_ignore_the_newer_limit_get_the_older_one(vendor: str) -> None:
    assert shaped(load_catalog()[vendor].quirks, max_completion_tokens=9) == {"max_tokens": 9}
