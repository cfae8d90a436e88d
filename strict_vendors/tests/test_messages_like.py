"""The stand-ins of vendors with Messages beside chat refuse what their pages say, and pass over what they do not know."""

from typing import Any

import pytest

from strict_vendors import made
from strict_vendors.tests.asking import Came, ask

Json = dict[str, Any]

AT = {
    "moonshot": "/anthropic/v1/messages",
    "zai": "/api/anthropic/v1/messages",
    "minimax": "/anthropic/v1/messages",
    "dashscope": "/apps/anthropic/v1/messages",
}
TOOL = {"name": "read", "input_schema": {"type": "object", "properties": {}}}
USER = {"role": "user", "content": "call: read {}"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
FORCED: Json = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "read"}}
NOT_FORCED = "The tool_choice parameter does not support being set to required or object in thinking mode"
OFF = {"thinking": {"type": "disabled"}}


def speak(name: str, model: str, *turns: Json, **fields: Any) -> Came:
    body = {"model": model, "max_tokens": 100, "messages": list(turns or [USER]), **fields}
    return ask(made(name), AT[name], body)


@pytest.mark.parametrize(
    ("name", "model"),
    [("moonshot", "kimi-k2.6"), ("zai", "glm-5.3"), ("minimax", "MiniMax-M3"), ("dashscope", "qwen3.7-plus")],
)
def test_a_loop_of_tools_with_anybody_s_thoughts_is_taken(name: str, model: str) -> None:
    first = speak(name, model, tools=[TOOL], thread={"type": "new"}, context_management={"edits": []})
    assert [block["type"] for block in first.body["content"]] == ["thinking", "tool_use"]
    thought = {"type": "thinking", "thinking": "Hm", "signature": "another's"}
    second = speak(name, model, USER, {"role": "assistant", "content": [thought, CALL]}, RESULT, tools=[TOOL])
    assert second.status == 200
    assert "thinking" not in {block["type"] for block in speak(name, model, **OFF).body["content"]}


@pytest.mark.parametrize(
    ("name", "model", "turns", "fields", "said"),
    [
        ("moonshot", "kimi-k2.6", [], FORCED, "tool_choice 'specified' is incompatible with thinking enabled"),
        ("moonshot", "kimi-k2.7-code", [], OFF, "invalid thinking: only type=enabled is allowed for this model"),
        (
            *("moonshot", "kimi-k3", [], {"output_config": {"effort": "medium"}}),
            "invalid reasoning_effort: expected one of low, high, max",
        ),
        (
            *("moonshot", "kimi-k3", [USER, {"role": "assistant", "content": [CALL]}, RESULT], {}),
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        ),
        ("zai", "glm-5.3", [], {"max_tokens": 200_000}, "[1210][The max_tokens parameter is illegal]"),
        (
            *("zai", "glm-5.3", [{"role": "user", "content": [PICTURE]}], {}),
            "[1210][Invalid API parameter, please check the documentation.]",
        ),
        (
            *("zai", "glm-5.3", [{"role": "user", "content": ""}], {}),
            "[1213][The prompt parameter was not received normally.]",
        ),
        ("zai", "glm-9", [], {}, "[1211][Unknown Model, please check the model code.]"),
        ("minimax", "MiniMax-M3", [], {"temperature": 0}, "invalid params, temperature must be in (0, 1] (2013)"),
        (
            *("minimax", "MiniMax-M2.7", [{"role": "user", "content": [PICTURE]}], {}),
            "invalid params, image is not supported (2013)",
        ),
        (
            *("minimax", "MiniMax-M3", [USER, {"role": "assistant", "content": [CALL]}, USER], {}),
            "invalid params, tool call result does not follow tool call (2013)",
        ),
        (
            *("dashscope", "qwen3.7-plus", [], FORCED),
            f"<400> InternalError.Algo.InvalidParameter: {NOT_FORCED}",
        ),
        (
            *("dashscope", "qwen3.7-plus", [], {"thinking": {"type": "enabled", "budget_tokens": 100_000}}),
            "The thinking_budget parameter must be a positive integer and not greater than 81920",
        ),
    ],
)
def test_what_it_does_not_take_is_refused_as_messages_refuse(
    name: str, model: str, turns: list[Json], fields: Json, said: str
) -> None:
    came = speak(name, model, *turns, **fields)
    assert (came.body["type"], came.body["error"]["message"]) == ("error", said)
    assert came.status in {400, 404}
    assert came.page.startswith("https://")
    assert speak(name, model if model != "glm-9" else "glm-5.3", tools=[TOOL]).status == 200


def test_chat_is_where_it_was() -> None:
    for name, model in (("zai", "glm-5.3"), ("minimax", "MiniMax-M3")):
        vendor = made(name)
        body = {"model": model, "messages": [{"role": "user", "content": "say: well"}]}
        came = ask(vendor, f"{vendor.base}/chat/completions", body)
        message = came.body["choices"][0]["message"]
        assert (message["content"], bool(message["reasoning_content"])) == ("well", True)
        off = ask(vendor, f"{vendor.base}/chat/completions", {**body, **OFF}).body["choices"][0]["message"]
        assert "reasoning_content" not in off
        assert ask(vendor, AT[name], {}, headers={"authorization": "Bearer no"}).status == 401
