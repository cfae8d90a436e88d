"""The stand-in of OpenAI's Responses keeps what it stores and nothing else, and refuses the rest with its words."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import Came, ask
from strict_vendors.tests.test_openai_chat import CLOSED, STRICT, said

TOOL: dict[str, Any] = {"type": "function", "name": "get_weather", "strict": True, "parameters": CLOSED}
USER = {"role": "user", "content": "weather?"}
SEALED: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}


@pytest.fixture
def openai() -> Vendor:
    return made("openai")


def respond(vendor: Vendor, given: Any = "Hello", model: str = "gpt-5", **fields: Any) -> Came:
    return ask(vendor, "/v1/responses", {"model": model, "input": given, **fields})


def outputs(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "rain"}
        for item in output
        if item["type"] == "function_call"
    ]


@pytest.mark.parametrize("fields", [{}, {"store": True}, SEALED])
@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-codex", "gpt-5.6-sol"])
def test_the_guides_loop_works(openai: Vendor, model: str, fields: dict[str, Any]) -> None:
    output = respond(openai, [USER], model, tools=[TOOL], **fields).body["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    second = respond(openai, [USER, *output, *outputs(output)], model, tools=[TOOL], **fields).body
    assert second["output"][-1]["content"][0]["text"] == "The tools said: rain"
    assert openai.refusals == []


def test_a_chain_of_responses_works_while_they_are_stored(openai: Vendor) -> None:
    first = respond(openai, tools=[TOOL]).body
    given = outputs(first["output"])
    assert respond(openai, given, previous_response_id=first["id"], tools=[TOOL]).status == 200
    words = f"No tool output found for function call {given[0]['call_id']}."
    assert said(respond(openai, [USER], previous_response_id=first["id"])) == (400, None, "input", words)
    loose = respond(openai, tools=[TOOL], store=False).body
    assert said(respond(openai, given, previous_response_id=loose["id"])) == (
        400,
        "previous_response_not_found",
        "previous_response_id",
        f"Previous response with id '{loose['id']}' not found.",
    )


def test_tools_that_an_item_adds_are_called_in_their_namespace(openai: Vendor) -> None:
    tools = [{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]
    added = {"type": "additional_tools", "role": "developer", "tools": tools}
    user = {"role": "user", "content": 'call: functions__exec {"input": "text(1)"}'}
    output = respond(openai, [added, user], **SEALED).body["output"]
    assert [output[-1][name] for name in ("type", "namespace", "name", "input")] == [
        "custom_tool_call", "functions", "exec", "text(1)",
    ]  # fmt: skip
    told = {"type": "custom_tool_call_output", "call_id": output[-1]["call_id"], "output": "1"}
    assert respond(openai, [added, user, *output, told], **SEALED).status == 200


def test_a_connection_is_warmed_with_no_input(openai: Vendor) -> None:
    message = {"type": "response.create", "model": "gpt-5", "input": []}
    assert openai.hear({**message, "generate": False}, {})[0][-1]["type"] == "response.completed"
    assert openai.hear(message, {})[0][-1]["type"] == "error"


def test_an_item_is_referred_to_while_it_is_stored(openai: Vendor) -> None:
    output = respond(openai, [USER], tools=[TOOL]).body["output"]
    named = [{"type": "item_reference", "id": item["id"]} for item in output]
    assert respond(openai, [USER, *named, *outputs(output)], tools=[TOOL]).status == 200
    loose = respond(openai, [USER], tools=[TOOL], **SEALED).body["output"]
    for store, end in (
        (True, ""),
        (False, (" Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this"
                " item from your input.")),
    ):  # fmt: skip
        came = respond(openai, [USER, {"type": "item_reference", "id": loose[0]["id"]}], store=store)
        assert said(came) == (404, None, "input", f"Item with id '{loose[0]['id']}' not found.{end}")


def test_reasoning_that_is_neither_stored_nor_sealed_is_a_404(openai: Vendor) -> None:
    output = respond(openai, [USER], tools=[TOOL], store=False).body["output"]
    assert "encrypted_content" not in output[0]
    came = respond(openai, [USER, *output, *outputs(output)], tools=[TOOL], store=False)
    assert said(came)[:3] == (404, None, "input")


def test_reasoning_that_another_account_sealed_is_refused(openai: Vendor) -> None:
    other = made("openai", account="another")
    output = respond(other, [USER], tools=[TOOL], **SEALED).body["output"]
    status, code, param, words = said(respond(openai, [USER, *output, *outputs(output)], **SEALED))
    assert (status, code, param) == (400, "invalid_encrypted_content", None)
    assert words.endswith("could not be verified. Reason: Encrypted content could not be decrypted or parsed.")
    same = made("openai")
    assert respond(same, [USER, *respond(openai, [USER], **SEALED).body["output"], USER], **SEALED).status == 200


def test_reasoning_and_its_item_belong_together(openai: Vendor) -> None:
    output = respond(openai, [USER], tools=[TOOL]).body["output"]
    thoughts, call = output
    assert said(respond(openai, [USER, thoughts, USER]))[3] == (
        f"Item '{thoughts['id']}' of type 'reasoning' was provided without its required following item."
    )
    assert said(respond(openai, [USER, call, *outputs(output)]))[3] == (
        f"Item '{call['id']}' of type 'function_call' was provided without its required 'reasoning' item:"
        f" '{thoughts['id']}'."
    )
    nameless = {name: value for name, value in call.items() if name != "id"}
    assert respond(openai, [USER, nameless, *outputs(output)]).status == 200
    assert said(respond(openai, [USER, *output, *output, *outputs(output)]))[3] == (
        f"Duplicate item found with id {thoughts['id']}. Remove duplicate items from your input and try again."
    )


CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "x"}
THOUGHTS = {"type": "reasoning", "id": "rs_1", "summary": []}


@pytest.mark.parametrize(
    ("items", "code", "param", "words"),
    [
        ([OUTPUT], None, "input", "No tool call found for function call output with call_id c."),
        ([CALL], None, "input", "No tool output found for function call c."),
        ([{**CALL, "id": "call_1"}, OUTPUT], "invalid_value", "input[0].id",
         "Invalid 'input[0].id': 'call_1'. Expected an ID that begins with 'fc'."),
        ([{**CALL, "call_id": "x" * 65}], "string_above_max_length", "input[0].call_id",
         ("Invalid 'input[0].call_id': string too long. Expected a string with maximum length 64, but got a string with"
         " length 65 instead.")),
        ([{**CALL, "parsed_arguments": None}], "unknown_parameter", "input[0].parsed_arguments",
         "Unknown parameter: 'input[0].parsed_arguments'."),
        ([{**THOUGHTS, "status": "completed"}], "unknown_parameter", "input[0].status",
         "Unknown parameter: 'input[0].status'."),
        ([{**THOUGHTS, "content": [{"type": "reasoning_text", "text": "x"}]}], "array_above_max_length",
         "input[0].content",
         ("Invalid 'input[0].content': array too long. Expected an array with maximum length 0, but got an array with length"
         " 1 instead.")),
        ([{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}], "invalid_value",
         "input[0].content[0].type",
         "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'."),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}]}], "invalid_value", "input[0].content[0].type",
         "Invalid value: 'text'. Supported values are: 'input_text', 'input_image', and 'input_file'."),
        ([{"role": "tool", "content": "x"}], "invalid_value", "input[0].role",
         "Invalid value: 'tool'. Supported values are: 'user', 'system', 'developer', and 'assistant'."),
    ],
)  # fmt: skip
def test_an_item_is_refused(openai: Vendor, items: list[Any], code: str | None, param: str, words: str) -> None:
    assert said(respond(openai, items)) == (400, code, param, words)


@pytest.mark.parametrize(
    ("fields", "code", "param", "words"),
    [
        ({"stop": ["x"]}, "unknown_parameter", "stop", "Unknown parameter: 'stop'."),
        ({"max_tokens": 99}, "unsupported_parameter", "max_tokens",
         ("Unsupported parameter: 'max_tokens'. In the Responses API, this parameter has moved to 'max_output_tokens'. Try"
         " again with the new parameter. See the API documentation for more information:"
         " https://platform.openai.com/docs/api-reference/responses/create.")),
        ({"max_output_tokens": 5}, "integer_below_min_value", "max_output_tokens",
         "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 5 instead."),
        ({"temperature": 0}, None, "temperature",
         "Unsupported parameter: 'temperature' is not supported with this model."),
        ({"reasoning": {"effort": "xhigh"}}, "unsupported_value", "reasoning.effort",
         ("Unsupported value: 'xhigh' is not supported with the 'gpt-5' model. Supported values are: 'minimal', 'low',"
         " 'medium', and 'high'.")),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "missing_required_parameter", "tools[0].name",
         "Missing required parameter: 'tools[0].name'."),
        ({"tools": [{**TOOL, "parameters": STRICT}]}, "invalid_function_parameters", "tools[0].parameters",
         ("Invalid schema for function 'get_weather': In context=(), 'additionalProperties' is required to be supplied and"
         " to be false.")),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": STRICT, "strict": True}}},
         "invalid_json_schema", "text.format.schema",
         ("Invalid schema for response_format 'x': In context=(), 'additionalProperties' is required to be supplied and to"
         " be false.")),
        ({"include": ["nothing"]}, "invalid_value", "include[0]", None),
    ],
)  # fmt: skip
def test_a_field_is_refused(
    openai: Vendor, fields: dict[str, Any], code: str | None, param: str, words: str | None
) -> None:
    found = said(respond(openai, **fields))
    assert found[:3] == (400, code, param)
    assert words is None or found[3] == words


@pytest.mark.parametrize(
    ("fields", "code", "param", "words"),
    [
        ({"reasoning": {"effort": "low"}}, "unsupported_parameter", "reasoning.effort",
         "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
        ({"include": ["reasoning.encrypted_content"]}, None, "include",
         "Encrypted content is not supported with this model."),
        ({"text": {"verbosity": "low"}}, "unsupported_value", "text.verbosity",
         "Unsupported value: 'low' is not supported with the 'gpt-4o' model. Supported values are: 'medium'."),
    ],
)  # fmt: skip
def test_a_model_that_does_not_think_is_not_told_how(
    openai: Vendor, fields: dict[str, Any], code: str | None, param: str, words: str
) -> None:
    assert said(respond(openai, model="gpt-4o", **fields)) == (400, code, param, words)


def test_a_stream_has_openais_events(openai: Vendor) -> None:
    came = respond(openai, [USER], tools=[TOOL], stream=True)
    assert [event["sequence_number"] for event in came.events] == list(range(len(came.events)))
    assert [event["type"] for event in came.events if "delta" not in event["type"]] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert came.events[-1]["response"]["usage"]["total_tokens"] > 0


def test_a_tool_is_strict_unless_it_says_otherwise(openai: Vendor) -> None:
    plain = {"type": "function", "name": "f", "parameters": CLOSED}
    loose = {**plain, "name": "g", "parameters": STRICT}
    told = respond(openai, tools=[plain, loose, {**plain, "name": "h", "strict": False}]).body["tools"]
    assert [tool["strict"] for tool in told] == [True, False, False]


def test_a_conversation_grows_with_its_responses(openai: Vendor) -> None:
    name = ask(openai, "/v1/conversations", {"items": [USER]}).body["id"]
    assert respond(openai, "more", conversation=name).status == 200
    items = ask(openai, f"/v1/conversations/{name}/items", None, method="GET").body["data"]
    assert [item["type"] for item in items] == ["message", "message", "reasoning", "message"]
    assert said(respond(openai, conversation="conv_none"))[0] == 404


def test_a_response_is_read_and_deleted(openai: Vendor) -> None:
    made_ = respond(openai).body
    assert ask(openai, f"/v1/responses/{made_['id']}", None, method="GET").body == made_
    assert ask(openai, f"/v1/responses/{made_['id']}", None, method="DELETE").body["deleted"]
    came = ask(openai, f"/v1/responses/{made_['id']}", None, method="GET")
    assert said(came) == (404, None, None, f"Response with id '{made_['id']}' not found.")


def test_items_of_a_conversation_are_added_told_and_taken_out_and_its_notes_replaced(openai: Vendor) -> None:
    name = ask(openai, "/v1/conversations", {"metadata": {"topic": "cats"}}).body["id"]
    assert ask(openai, f"/v1/conversations/{name}", {"metadata": {"topic": "dogs"}}).body["metadata"] == {
        "topic": "dogs"
    }
    [added] = ask(openai, f"/v1/conversations/{name}/items", {"items": [USER]}).body["data"]
    assert added["content"] == [{"type": "input_text", "text": USER["content"]}]
    item = f"/v1/conversations/{name}/items/{added['id']}"
    assert ask(openai, item, None, method="GET").body == added
    assert ask(openai, item, None, method="DELETE").body["id"] == name
    assert ask(openai, f"/v1/conversations/{name}/items", None, method="GET").body["data"] == []
    assert ask(openai, item, None, method="GET").status == 404
