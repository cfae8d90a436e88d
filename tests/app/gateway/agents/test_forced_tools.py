"""A request that forces a call of a tool gets the call, whatever its model thinks of that."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from providers.simulator import Raw, Step, answer
from tests.app.gateway.apis.test_gemini import TEXT_BYTES as GEMINI_BYTES
from tests.app.gateway.refusals.test_refused_fields import refused
from tests.app.gateway.running_gateway import MODEL, Serve

Json = dict[str, Any]
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string", "minLength": 2}}, "required": ["city"]}
OTHER: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
QUESTION = [{"role": "user", "content": "Where?"}]


def chat(*schemas: tuple[str, Json], **more: Any) -> Json:
    tools = [{"type": "function", "function": {"name": name, "parameters": each}} for name, each in schemas]
    return {"messages": QUESTION, "tools": tools, "tool_choice": "required", **more}


def messages(*schemas: tuple[str, Json], **more: Any) -> Json:
    tools = [{"name": name, "input_schema": each} for name, each in schemas]
    return {"max_tokens": 500, "messages": QUESTION, "tools": tools, "tool_choice": {"type": "any"}} | more


def said(*texts: str) -> list[Step]:
    """Return the stream of a Claude that thinks, then answers with these pieces of text."""

    def event(kind: str, **more: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"

    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "c", "content": []}
    usage = {"input_tokens": 5, "output_tokens": 1}
    events = [
        event("message_start", message={**message, "stop_reason": None, "stop_sequence": None, "usage": usage}),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(event("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in texts),
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 9}),
        event("message_stop"),
    ]
    return [Raw("".join(events).encode(), token=True)]


def answers(body: Mapping[str, Any]) -> Sequence[Step]:
    """Answer as Claude Opus 5.5, which takes no forced tool."""
    if body.get("tool_choice", {}).get("type") in {"any", "tool"}:
        return refused('tool_choice: "any" is not supported for this model')
    if "format" not in body.get("output_config", {}):
        return said("I will not.")
    is_one = "anyOf" not in body["output_config"]["format"]["schema"]
    return said('{"city":', '"Rome"}') if is_one else said('{"tool":"count",', '"arguments":{"n":3}}')


def claude(model: str = "claude-opus-5-5", *others: str) -> Json:
    deployments = [f"alpha/{model}", *others]
    return {
        "providers": {"alpha": {"kind": "anthropic"}},
        "models": {MODEL: {"deployments": deployments, "race": {"mode": "single"}}},
    }


ONE, TWO = [("look", SCHEMA)], [("look", SCHEMA), ("count", OTHER)]
CALLS = {"one": (ONE, "look", {"city": "Rome"}), "two": (TWO, "count", {"n": 3})}


@pytest.mark.parametrize(
    "model", ["claude-opus-5-5", "us.anthropic.claude-sonnet-5-5-v1:0", "claude-opus-7", "claude-fable-5-2"]
)
@pytest.mark.parametrize("tools", CALLS)
async def test_claude_of_this_autumn_is_asked_for_json_which_is_given_back_as_the_call(
    serve: Serve, tools: str, model: str
) -> None:
    offered, name, arguments = CALLS[tools]
    lost = "tool_choice, tools[0].{}.properties.city.minLength"
    async with serve(alpha=None, config=claude(model)) as running:
        running["alpha"].answers = answers
        async with running.chat(**chat(*offered)) as response:
            told = (response.status, response.headers["x-holeshot-dropped"])
            assert told == (200, lost.format("function.parameters"))
            choice = (await response.json())["choices"][0]
        (call,) = choice["message"]["tool_calls"]
        assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
        assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (name, arguments)
        async with running.post({"model": MODEL, **messages(*offered)}, path="/v1/messages") as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, lost.format("input_schema"))
            answered = await response.json()
        assert answered["stop_reason"] == "tool_use"
        (block,) = answered["content"]
        assert (block["type"], block["name"], block["input"]) == ("tool_use", name, arguments)
        assert [each.body["tool_choice"] for each in running["alpha"].received] == [{"type": "none"}] * 2


async def test_a_streamed_call_comes_in_pieces(serve: Serve) -> None:
    async with serve(alpha=None, config=claude()) as running:
        running["alpha"].answers = answers
        async with running.chat(**chat(*ONE, stream=True)) as response:
            lines = (await response.text()).splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    pieces = [call for each in chunks for choice in each["choices"] for call in choice["delta"].get("tool_calls", ())]
    assert "".join(each["function"]["arguments"] for each in pieces) == '{"city":"Rome"}'
    assert [each["function"].get("name") for each in pieces] == ["look", None]
    ends = [choice["finish_reason"] for each in chunks for choice in each["choices"] if choice["finish_reason"]]
    assert ends == ["tool_calls"]


async def test_where_another_deployment_obeys_it_is_asked_first_and_the_other_only_if_it_fails(serve: Serve) -> None:
    async with serve(alpha=None, beta=answer("as forced"), config=claude("claude-opus-5-5", "beta/m")) as running:
        running["alpha"].answers = answers
        for _ in range(5):
            async with running.chat(**chat(*ONE)) as response:
                assert response.headers["x-holeshot-provider"] == "beta"
        assert running["alpha"].received == []
        assert [each.body["tool_choice"] for each in running["beta"].received] == ["required"] * 5
        running["beta"].answers = lambda _: refused("broken", status=503)
        async with running.chat(**chat(*ONE)) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "alpha")


async def test_models_before_are_forced_as_ever(serve: Serve) -> None:
    async with serve(alpha=said("so"), config=claude("claude-opus-5")) as running:
        async with running.post({"model": MODEL, **messages(*ONE)}, path="/v1/messages") as response:
            assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert running["alpha"].received[0].body["tool_choice"] == {"type": "any"}


@pytest.mark.parametrize(
    ("preset", "model", "sent"),
    [
        ("deepseek", "deepseek-v4-flash", {"thinking": {"type": "disabled"}}),
        ("moonshot", "kimi-k2.6", {"thinking": {"type": "disabled"}}),
        ("dashscope", "qwen3.8-max", {"enable_thinking": False}),
    ],
)
async def test_a_model_that_thinks_by_default_does_not_where_a_call_is_forced(
    serve: Serve, preset: str, model: str, sent: Json
) -> None:
    config = {
        "providers": {"alpha": {"preset": preset}},
        "models": {MODEL: {"deployments": [f"alpha/{model}"]}},
    }
    async with serve(alpha=None, config=config) as running:
        async with running.chat(**chat(*ONE, reasoning_effort="high")) as response:
            assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "reasoning_effort")
        async with running.chat(**chat(*ONE, tool_choice="auto", reasoning_effort="high")) as response:
            assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        forced, free = (each.body for each in running["alpha"].received)
    assert {name: forced[name] for name in sent} == sent
    assert (forced["tool_choice"], "reasoning_effort" in forced) == ("required", False)
    assert (sent.keys() & free.keys(), free["reasoning_effort"]) == (set(), "high")


WORDS: Mapping[str, Json] = {
    "Thinking mode does not support this tool_choice": {"thinking": {"type": "disabled"}},
    "tool_choice 'required' is incompatible with thinking enabled": {"thinking": {"type": "disabled"}},
    "The tool_choice parameter does not support being set to required or object in thinking mode": {
        "enable_thinking": False
    },
}


@pytest.mark.parametrize("words", WORDS)
async def test_a_server_that_is_not_known_teaches_it_by_one_refusal(serve: Serve, words: str) -> None:
    def answered(body: Json) -> Sequence[Step]:
        is_calm = all(body.get(name) == value for name, value in WORDS[words].items())
        return answer("so") if is_calm or body.get("tool_choice") == "auto" else refused(words)

    async with serve(alpha=None) as running:
        running["alpha"].answers = answered
        for sendings in (2, 3):
            async with running.chat(**chat(*ONE, reasoning_effort="high")) as response:
                assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "reasoning_effort")
            assert len(running["alpha"].received) == sendings
        async with running.chat(**chat(*ONE, tool_choice="auto", reasoning_effort="high")) as response:
            assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert WORDS[words].keys().isdisjoint(running["alpha"].received[-1].body)


async def test_a_claude_that_is_asked_to_think_teaches_it_too(serve: Serve) -> None:
    def answered(body: Json) -> Sequence[Step]:
        is_calm = body.get("thinking", {}).get("type") == "disabled"
        return said("so") if is_calm else refused("Thinking may not be enabled when tool_choice forces tool use.")

    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    async with serve(alpha=None, config=claude("claude-sonnet-4-5")) as running:
        running["alpha"].answers = answered
        for sendings in (2, 3):
            asked = {"model": MODEL, **messages(*ONE, **thinking)}
            async with running.post(asked, path="/v1/messages") as response:
                assert (response.status, response.headers["x-holeshot-dropped"]) == (200, "thinking")
            assert len(running["alpha"].received) == sendings


async def test_an_operator_may_keep_the_refusal(serve: Serve) -> None:
    config = claude()
    config["models"][MODEL]["deployments"] = [{"deployment": "alpha/claude-opus-5-5", "forced_tools": "refuse"}]
    async with serve(alpha=None, config=config) as running:
        running["alpha"].answers = answers
        async with running.chat(**chat(*ONE)) as response:
            assert response.status == 400
            assert "takes no forced tool" in await response.text()
        assert running["alpha"].received == []


# instructor asks in Responses for a forced tool, and for its schema as the format beside it (1.17, read on 2026-11-29).
PERSON: Json = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 18, "description": "In years."}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORM: Json = {"type": "json_schema", "name": "Person", "schema": PERSON, "strict": True}
INSTRUCTOR: Json = {
    "input": QUESTION,
    "tools": [{"type": "function", "name": "Person", "parameters": PERSON, "strict": True}],
    "tool_choice": {"type": "function", "name": "Person"},
    "text": {"format": FORM},
    "store": False,
}
FORMED: Json = {"type": "json_schema", "json_schema": {"name": "Person", "schema": PERSON, "strict": True}}


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-5-5", "gemini-2.5-flash"])
async def test_a_format_beside_a_forced_tool_is_left_out_where_there_is_one_or_the_other(
    serve: Serve, model: str
) -> None:
    config, is_gemini = claude(model), model.startswith("gemini")
    if is_gemini:
        config["providers"] = {"alpha": {"kind": "gemini"}}
    async with serve(alpha=[Raw(GEMINI_BYTES, token=True)] if is_gemini else said("{}"), config=config) as running:
        async with running.post({"model": MODEL, **INSTRUCTOR}, path="/v1/responses") as response:
            assert response.status == 200, await response.text()
            dropped = response.headers["x-holeshot-dropped"].split(", ")
        sent = running["alpha"].received[0].body
    assert "text.format" in dropped
    if model != "claude-opus-5-5":
        assert ("Person" in json.dumps(sent["tools"]), "JsonSchema" in json.dumps(sent)) == (True, is_gemini)
        assert not {"output_config", "responseJsonSchema"} & {*sent, *sent.get("generationConfig", ())}
    else:  # it is the call that is asked for as JSON
        assert (sent["tool_choice"], "tools[0]" in dropped) == ({"type": "none"}, True)
        age = sent["output_config"]["format"]["schema"]["properties"]["age"]
        assert age == {"type": "integer", "description": "In years.\n\n{minimum: 18}"}


async def test_of_a_schema_that_is_asked_for_alone_all_is_a_must(serve: Serve) -> None:
    asked = {"model": MODEL, "messages": QUESTION, "response_format": FORMED}
    tools = [{"type": "function", "function": {"name": "Person", "parameters": PERSON}}]
    async with serve(alpha=said("so"), config=claude("claude-sonnet-4-5")) as running:
        for body in (asked, {**asked, "tools": tools}, {**asked, "tools": tools, "tool_choice": "auto"}):
            async with running.post(body) as response:
                assert (response.status, "age.minimum" in await response.text()) == (400, True)
        assert running["alpha"].received == []
    config = claude("claude-sonnet-4-5")
    config["models"][MODEL]["deployments"] = [{"deployment": "alpha/claude-sonnet-4-5", "drop_params": True}]
    async with serve(alpha=said("so"), config=config) as running:
        async with running.post(asked) as response:
            assert (response.status, "age.minimum" in response.headers["x-holeshot-dropped"]) == (200, True)
        age = running["alpha"].received[0].body["output_config"]["format"]["schema"]["properties"]["age"]
    assert age["description"] == "In years.\n\n{minimum: 18}"
