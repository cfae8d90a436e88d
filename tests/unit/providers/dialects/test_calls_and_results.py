"""A history that no API would take is refused where it is translated, and names the message; valid ones pass."""

from typing import Any

import msgspec
import pytest

from providers.dialects import DIALECTS, Habits, Malformed, Wording, converse_from_chat, rendered
from providers.models import traits_of

Body = dict[str, Any]


def call(api: str, call_id: str) -> Any:
    """Return a call as each API has it in the model's turn."""
    function = {"name": "get_weather", "arguments": "{}"}
    return {
        "chat": {"id": call_id, "type": "function", "function": function},
        "responses": {"type": "function_call", "call_id": call_id, **function},
        "messages": {"type": "tool_use", "id": call_id, "name": "get_weather", "input": {}},
        "gemini": {"functionCall": {"id": call_id, "name": "get_weather", "args": {}}},
    }[api]


def result(api: str, call_id: str) -> Any:
    answer = {"id": call_id, "name": "get_weather", "response": {"output": "rain"}}
    return {
        "chat": {"role": "tool", "tool_call_id": call_id, "content": "rain"},
        "responses": {"type": "function_call_output", "call_id": call_id, "output": "rain"},
        "messages": {"type": "tool_result", "tool_use_id": call_id, "content": "rain"},
        "gemini": {"functionResponse": answer},
    }[api]


def history(api: str, *turns: tuple[list[str], list[str]]) -> Body:
    """Return a conversation: the user asks, then turns of calls and results, each given by their ids."""
    said: list[Any] = []
    for calls, results in turns:
        called, answered = [call(api, each) for each in calls], [result(api, each) for each in results]
        match api:
            case "chat":
                said += [{"role": "assistant", "content": None, "tool_calls": called}] if called else []
                said += answered
            case "responses":
                said += [*called, *answered]
            case "messages":
                said += [{"role": "assistant", "content": called}] if called else []
                said += [{"role": "user", "content": answered}]
            case "gemini":
                said += [{"role": "model", "parts": called}] if called else []
                said += [{"role": "user", "parts": answered}]
    question = {"role": "user", "content": "weather?"}
    if api == "gemini":
        return {"contents": [{"role": "user", "parts": [{"text": "weather?"}]}, *said]}
    if api == "responses":
        return {"model": "m", "input": [question, *said]}
    return {"model": "m", "messages": [question, *said], **({"max_tokens": 9} if api == "messages" else {})}


def translated(api: str, target: str, body: Body) -> Wording:
    fields = msgspec.json.decode(msgspec.json.encode(body), type=dict[str, msgspec.Raw])
    if target == "converse":
        return converse_from_chat(rendered(fields, DIALECTS[api], DIALECTS["chat"], Habits()).fields, "m")
    pivoting = DIALECTS[target].pivoting
    habits = (
        Habits()
        if pivoting is None or pivoting.habits_of is None
        else pivoting.habits_of(traits_of("m"), None, Habits())
    )
    return rendered(fields, DIALECTS[api], DIALECTS[target], habits)


APIS = ("chat", "responses", "messages", "gemini")
PAIRS = [(source, target) for source in APIS for target in (*APIS, "converse") if source != target]
WRONG = {
    "a result without its call": (
        [(["a"], ["a"]), ([], ["b"])],
        {
            "chat": "messages[3].tool_call_id",
            "responses": "input[3].call_id",
            "messages": "messages[3].content[0].tool_use_id",
            "gemini": "contents[3].parts[0].functionResponse.id",
        },
    ),
    "a result whose call was cut off": (
        [([], ["a"]), (["b"], ["b"])],
        {
            "chat": "messages[1].tool_call_id",
            "responses": "input[1].call_id",
            "messages": "messages[1].content[0].tool_use_id",
            "gemini": "contents[1].parts[0].functionResponse.id",
        },
    ),
    "one id for two calls": (
        [(["a", "a"], ["a", "a"])],
        {
            "chat": "messages[1].tool_calls[1].id",
            "responses": "input[2].call_id",
            "messages": "messages[1].content[1].id",
            "gemini": "contents[1].parts[1].functionCall.id",
        },
    ),
    "two results for one call": (
        [(["a", "b"], ["a", "b", "a"])],
        {
            "chat": "messages[4].tool_call_id",
            "responses": "input[5].call_id",
            "messages": "messages[2].content[2].tool_use_id",
            "gemini": "contents[2].parts[2].functionResponse.id",
        },
    ),
}


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("kind", WRONG)
def test_what_no_api_takes_is_refused_by_the_name_of_its_field(kind: str, source: str, target: str) -> None:
    turns, paths = WRONG[kind]
    with pytest.raises(Malformed) as refused:
        translated(source, target, history(source, *turns))
    assert refused.value.param == paths[source]
    assert paths[source] in refused.value.message


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", WRONG)
def test_its_own_api_gets_it_as_it_is(kind: str, api: str) -> None:
    body = history(api, *WRONG[kind][0])
    fields = msgspec.json.decode(msgspec.json.encode(body), type=dict[str, msgspec.Raw])
    assert rendered(fields, DIALECTS[api], DIALECTS[api], Habits()).fields is fields


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize(
    "turns",
    [
        [(["a", "b"], ["b", "a"])],
        [(["call_0"], ["call_0"]), (["call_0"], ["call_0"])],  # some models count the calls of each turn anew
        [(["a", "b"], ["a"])],
        [(["a"], [])],
    ],
)
def test_parallel_repeated_and_unanswered_calls_are_translated(source: str, target: str, turns: Any) -> None:
    body = history(source, *[turn for turn in turns if turn[1] or source in {"chat", "responses"}])
    assert translated(source, target, body).fields


@pytest.mark.parametrize("state", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_a_result_may_be_of_a_call_that_the_provider_stores(state: Body) -> None:
    wording = translated("responses", "chat", {**history("responses", ([], ["a"])), **state})
    assert b'"tool_call_id":"a"' in bytes(wording.fields["messages"])


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "fc_1"},
        {"type": "compaction", "encrypted_content": "..."},
    ],
)
def test_a_result_may_be_of_a_call_in_an_item_that_is_not_read(item: Body) -> None:
    body = history("responses", ([], ["a"]))
    body["input"].insert(1, item)
    assert b'"tool_call_id":"a"' in bytes(translated("responses", "chat", body).fields["messages"])


def test_items_of_responses_may_come_in_any_order() -> None:
    body = history("responses", (["a"], ["a"]))
    body["input"][1:] = reversed(body["input"][1:])
    assert translated("responses", "chat", body).fields


def test_results_of_tools_that_anthropic_runs_need_no_call_of_the_client() -> None:
    body = history("messages", (["a"], ["a"]))
    body["messages"][1]["content"][:0] = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Oslo"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": []},
    ]
    assert translated("messages", "chat", body).fields


def test_geminis_results_without_ids_are_of_the_calls_of_their_names_in_order() -> None:
    body = history("gemini", (["", ""], ["", ""]), ([""], [""]))
    messages = msgspec.json.decode(translated("gemini", "chat", body).fields["messages"])
    ids = [each["id"] for message in messages for each in message.get("tool_calls", ())]
    assert len(set(ids)) == 3
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ids


def test_geminis_results_may_have_ids_that_the_client_left_out_of_the_calls() -> None:
    body = history("gemini", ([""], ["x"]))
    messages = msgspec.json.decode(translated("gemini", "chat", body).fields["messages"])
    assert messages[2]["tool_call_id"] == messages[1]["tool_calls"][0]["id"]


def test_the_id_of_a_call_without_one_is_not_an_id_that_another_has() -> None:
    body = history("gemini", (["call_1", ""], ["call_1", ""]))
    messages = msgspec.json.decode(translated("gemini", "chat", body).fields["messages"])
    first, second = messages[1]["tool_calls"]
    assert first["id"] == "call_1" != second["id"]


def test_a_second_result_without_an_id_is_refused() -> None:
    with pytest.raises(Malformed) as refused:
        translated("gemini", "chat", history("gemini", ([""], ["", ""])))
    assert refused.value.param == "contents[2].parts[1].functionResponse"
