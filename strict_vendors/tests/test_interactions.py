"""The stand-in of Google's interactions takes what its SDK sends, goes on from what it has stored, and refuses the rest."""

from typing import Any

import pytest

from strict_vendors import Vendor, made
from strict_vendors.tests.asking import Came, ask

MODEL = "gemini-3.1-pro-preview"
TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
CALL = {"type": "function_call", "id": "c1", "name": "get_weather", "arguments": {}}
RESULT = {"type": "function_result", "call_id": "c1", "name": "get_weather", "result": "sunny"}
SIGNED = {"type": "thought", "signature": "skip_thought_signature_validator"}
USER = {"type": "user_input", "content": [{"type": "text", "text": "Hello"}]}


@pytest.fixture
def google() -> Vendor:
    return made("google")


def create(google: Vendor, given: Any = "Hello", **fields: Any) -> Came:
    body = {"model": MODEL, "input": given, **fields}
    body = {name: value for name, value in body.items() if value is not None}
    return ask(google, "/v1beta/interactions", body, {"x-goog-api-key": google.key})


def look(google: Vendor, path: str, method: str = "GET") -> Came:
    return ask(google, f"/v1/interactions/{path}", None, {"x-goog-api-key": google.key}, method)


def test_a_tool_loop_goes_on_from_what_is_stored_and_from_what_is_sent(google: Vendor) -> None:
    first = create(google, tools=[TOOL]).body
    assert (first["status"], [each["type"] for each in first["steps"]]) == (
        "requires_action",
        ["thought", "function_call"],
    )
    result = {**RESULT, "call_id": first["steps"][-1]["id"]}
    stored = create(google, [result], tools=[TOOL], previous_interaction_id=first["id"]).body
    second = create(google, [USER, *first["steps"], result], tools=[TOOL], store=False).body
    for answer in (stored, second):
        assert answer["steps"][-1]["content"][0]["text"] == "The tools said: sunny"
    assert look(google, first["id"]).body == first
    assert look(google, second["id"]).status == 404  # it was not to be stored
    assert look(google, first["id"], "DELETE").body == {}
    assert look(google, first["id"]).status == 404


def test_a_stream_has_steps_and_its_end_has_none(google: Vendor) -> None:
    events = create(google, "say: one two", stream=True, generation_config={"thinking_summaries": "auto"}).events
    assert [events[0]["event_type"], events[-1]["event_type"]] == ["interaction.created", "interaction.completed"]
    assert "steps" not in events[-1]["interaction"]
    texts = [each["delta"]["text"] for each in events if each.get("delta", {}).get("type") == "text"]
    assert "".join(texts) == "one two"


def test_what_runs_in_the_background_is_looked_at(google: Vendor) -> None:
    begun = create(google, agent="deep-research-preview-04-2026", model=None, background=True).body
    assert (begun["status"], look(google, begun["id"]).body["status"]) == ("in_progress", "completed")
    assert look(google, f"{begun['id']}/cancel", "POST").body["status"] == "cancelled"


@pytest.mark.parametrize(
    ("fields", "status", "rule"),
    [
        ({"speed": 1}, 400, "field unknown"),
        ({"generation_config": {"thinking_level": "most"}}, 400, "field value"),
        ({"generation_config": {"top_k": 3}}, 400, "field unknown"),
        ({"agent": "deep-research-preview-04-2026"}, 400, "model or agent"),
        ({"given": []}, 400, "no input"),
        ({"background": True, "store": False}, 400, "background without store"),
        ({"given": [USER, RESULT]}, 400, "result without call"),
        ({"given": [USER, SIGNED, CALL, USER]}, 400, "call without result"),
        ({"given": [USER, CALL, RESULT]}, 400, "call without signature"),
        ({"tools": [{**TOOL, "parameters": {"type": "object", "required": []}}]}, 400, "empty required"),
        ({"given": [USER, SIGNED, CALL]}, 400, "call without result"),
        ({"given": [USER, {"type": "thought", "signature": "Zm9yZWlnbg=="}, CALL, RESULT]}, 400, "foreign signature"),
        ({"given": [USER, {"type": "model_output", "content": []}]}, 400, "ends with the model"),
        ({"given": [{"type": "text"}]}, 400, "field missing"),
        ({"model": "gpt-4o"}, 404, "model"),
        ({"previous_interaction_id": "v1_nobodys"}, 404, "interaction not stored"),
    ],
)
def test_the_rest_is_refused_in_its_own_shape(google: Vendor, fields: dict[str, Any], status: int, rule: str) -> None:
    came = create(google, **fields)
    assert (came.status, came.rule, sorted(came.body["error"])) == (status, rule, ["code", "message"])
