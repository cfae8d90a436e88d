"""How hard to think, and how long to answer, at models that do neither: left out or lowered, told, and each its own."""

import json
from typing import Any

import pytest

from providers.simulator import Raw, Step
from tests.app.gateway.apis.test_dialects import MESSAGE_BYTES, RESPONSE_BYTES, speaking
from tests.app.gateway.apis.test_gemini import TEXT_BYTES
from tests.app.gateway.running_gateway import MODEL, Serve

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
GEMINI = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
TURN = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": MODEL, "messages": TURN, "reasoning_effort": "high"},
    MESSAGES: {
        "model": MODEL,
        "max_tokens": 8000,
        "messages": TURN,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    },
    RESPONSES: {
        "model": MODEL,
        "input": TURN,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
    },
    GEMINI: {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "generationConfig": {"thinkingConfig": {"thinkingLevel": "high"}, "temperature": 0.5},
    },
}
APIS = {CHAT: "chat", MESSAGES: "messages", RESPONSES: "responses", GEMINI: "gemini"}
SCRIPTS: dict[str, list[Step] | None] = {
    "chat": None,
    "messages": [Raw(MESSAGE_BYTES, token=True)],
    "responses": [Raw(RESPONSE_BYTES, token=True)],
    "gemini": [Raw(TEXT_BYTES, token=True)],
}
THINKING = ("reasoning_effort", "reasoning", "thinking", "output_config", "context_management", "thinkingConfig")
PLAIN, THINKS = {"capabilities": {"reasoning": False}}, {"capabilities": {"reasoning": True}}


def deployments(api: str, *items: dict[str, Any], **settings: Any) -> dict[str, Any]:
    named = [{"deployment": f"{name}/m", **item} for name, item in zip(("alpha", "beta"), items, strict=False)]
    kind = {**speaking(api), **({"kind": "gemini"} if api == "gemini" else {})}
    providers = {name: {**kind, **settings} for name in ("alpha", "beta")[: len(items)]}
    return {"models": {MODEL: {"deployments": named}}, "providers": providers}


def said(body: dict[str, Any]) -> set[str]:
    """Return what a request that was sent says of thinking."""
    return {name for name in THINKING if f'"{name}"' in json.dumps(body)} | ({"include"} & body.keys())


@pytest.mark.parametrize("api", APIS.values())
@pytest.mark.parametrize("path", BODIES)
async def test_a_model_that_does_not_think_is_not_told_how_hard_to(serve: Serve, path: str, api: str) -> None:
    async with serve(alpha=SCRIPTS[api], config=deployments(api, PLAIN)) as running:
        async with running.post(BODIES[path], path=path) as response:
            assert response.status == 200, await response.text()
            dropped = response.headers["x-holeshot-dropped"]
        [received] = running["alpha"].received
        told = said(received.body)
        if api == "responses" and path == RESPONSES:
            assert received.body.pop("include") == []
            told.discard("include")
        assert told == set()
        expected = {CHAT: "reasoning_effort", MESSAGES: "thinking", RESPONSES: "reasoning.effort"}
        assert expected.get(path, "generationConfig.thinkingConfig") in dropped


@pytest.mark.parametrize("path", BODIES)
async def test_a_model_that_thinks_or_may_think_is_told_as_its_client_says(serve: Serve, path: str) -> None:
    for item in (THINKS, {}):
        async with serve(alpha=SCRIPTS[APIS[path]], config=deployments(APIS[path], item)) as running:
            async with running.post(BODIES[path], path=path) as response:
                assert response.status == 200
                assert "x-holeshot-dropped" not in response.headers
            assert said(running["alpha"].received[0].body) == said(BODIES[path]) != set()


@pytest.mark.parametrize("path", BODIES)
async def test_in_a_race_each_model_is_told_what_it_takes(serve: Serve, path: str) -> None:
    script = SCRIPTS[APIS[path]]
    config = deployments(APIS[path], PLAIN, THINKS)
    async with serve(alpha=script, beta=script, config=config) as running:
        running.answer_once_all_are_asked(script)
        async with running.post(BODIES[path], path=path) as response:
            assert response.status == 200
            assert response.headers["x-holeshot-launched"] == "2"
            await response.read()
        plain, thinking = said(running["alpha"].received[0].body), said(running["beta"].received[0].body)
        assert plain <= {"include"}
        assert thinking == said(BODIES[path])


async def test_the_shipped_table_tells_which_models_are_plain(serve: Serve) -> None:
    config = {
        "models": {MODEL: {"deployments": ["alpha/gpt-4o", "beta/o4-mini"]}},
        "providers": {name: {"preset": "openai", "apis": ["chat"]} for name in ("alpha", "beta")},
    }
    async with serve(alpha=None, beta=None, config=config) as running:
        running.answer_once_all_are_asked()
        async with running.chat(reasoning_effort="low") as response:
            assert response.status == 200
        assert "reasoning_effort" not in running["alpha"].received[0].body
        assert running["beta"].received[0].body["reasoning_effort"] == "low"


async def test_no_thinking_that_is_asked_for_is_not_told_as_left_out(serve: Serve) -> None:
    async with serve(alpha=None, config=deployments("chat", PLAIN)) as running:
        async with running.chat(reasoning_effort="none") as response:
            assert "x-holeshot-dropped" not in response.headers
        assert "reasoning_effort" not in running["alpha"].received[0].body


async def test_a_plain_model_is_sent_no_earlier_reasoning_in_responses(serve: Serve) -> None:
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Yes?"}]},
        {"role": "user", "content": "So?"},
    ]
    body = {**BODIES[RESPONSES], "input": items}
    async with serve(alpha=SCRIPTS["responses"], config=deployments("responses", PLAIN)) as running:
        async with running.post(body, path=RESPONSES) as response:
            assert response.status == 200
            assert "input[1]" in response.headers["x-holeshot-dropped"]
        sent = running["alpha"].received[0].body["input"]
        assert [item.get("type", "message") for item in sent] == ["message", "message", "message"]
        assert not any("id" in item for item in sent)


# The limit of an answer in Messages, where clients have to set one.


@pytest.mark.parametrize("api", APIS.values())
@pytest.mark.parametrize("stream", [False, True])
async def test_in_messages_a_limit_beyond_the_longest_answer_is_lowered_and_told(
    serve: Serve, api: str, *, stream: bool
) -> None:
    body = {"model": MODEL, "max_tokens": 32_000, "messages": TURN, "stream": stream}
    item = {"capabilities": {"max_output_tokens": 8192}}
    async with serve(alpha=SCRIPTS[api], config=deployments(api, item)) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200, await response.text()
            assert response.headers["x-holeshot-lowered"] == "max_tokens"
        assert "8192" in json.dumps(running["alpha"].received[0].body)
        assert "32000" not in json.dumps(running["alpha"].received[0].body)


async def test_in_a_race_each_deployment_has_its_own_limit(serve: Serve) -> None:
    items = ({"capabilities": {"max_output_tokens": 8192}}, {"capabilities": {"max_output_tokens": 64_000}})
    body = {"model": MODEL, "max_tokens": 32_000, "messages": TURN}
    async with serve(alpha=None, beta=None, config=deployments("chat", *items)) as running:
        running.answer_once_all_are_asked()
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200
            winner = response.headers["x-holeshot-deployment"]
            assert ("x-holeshot-lowered" in response.headers) == (winner == "alpha/m")
        limits = [running[name].received[0].body["max_completion_tokens"] for name in ("alpha", "beta")]
        assert limits == [8192, 32_000]


@pytest.mark.parametrize(("longest", "budget"), [(64_000, 31_999), (20_000, 15_000), (1_100, 1024), (1_000, None)])
async def test_a_budget_of_thinking_stays_below_the_lowered_limit(
    serve: Serve, longest: int, budget: int | None
) -> None:
    body = {"model": MODEL, "max_tokens": 32_000, "messages": TURN}
    body["thinking"] = {"type": "enabled", "budget_tokens": 31_999}
    item = {"capabilities": {"max_output_tokens": longest}}
    async with serve(alpha=SCRIPTS["messages"], config=deployments("messages", item)) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200
            lowered = response.headers.get("x-holeshot-lowered", "")
        sent = running["alpha"].received[0].body
    assert sent["max_tokens"] == min(32_000, longest)
    assert sent.get("thinking", {}).get("budget_tokens") == budget
    assert ("thinking.budget_tokens" in lowered) == (longest < 32_000)


@pytest.mark.parametrize(("longest", "limit"), [(64_000, 16_000), (8_000, 8_000)])
async def test_a_budget_stays_below_the_models_maximum_and_the_deployments(
    serve: Serve, longest: int, limit: int
) -> None:
    body = {"model": MODEL, "max_tokens": 32_000, "messages": TURN}
    body["thinking"] = {"type": "enabled", "budget_tokens": 31_999}
    config = deployments("messages", {"capabilities": {"max_output_tokens": longest}})
    config["models"][MODEL]["maximums"] = {"max_tokens": 16_000}
    async with serve(alpha=SCRIPTS["messages"], config=config) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200
            assert response.headers["x-holeshot-lowered"] == "max_tokens, thinking.budget_tokens"
        sent = running["alpha"].received[0].body
    assert (sent["max_tokens"], sent["thinking"]["budget_tokens"]) == (limit, limit * 3 // 4)


async def test_a_limit_below_the_maximum_stays_where_another_parameter_is_lowered(serve: Serve) -> None:
    body = {"model": MODEL, "max_tokens": 100, "messages": TURN, "temperature": 1.0}
    config = deployments("messages", {})
    config["models"][MODEL]["maximums"] = {"max_tokens": 16_000, "temperature": 0.5}
    async with serve(alpha=SCRIPTS["messages"], config=config) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.headers["x-holeshot-lowered"] == "temperature"
        assert running["alpha"].received[0].body["max_tokens"] == 100


# And in the others, where the limit is a maximum: who gives all of it comes first, and if nobody does, fewer are asked.


def limited(path: str, most: int) -> dict[str, Any]:
    name = {CHAT: "max_completion_tokens", RESPONSES: "max_output_tokens"}
    if path == GEMINI:
        return {**BODIES[path], "generationConfig": {"maxOutputTokens": most}}
    return {**BODIES[path], name[path]: most}


@pytest.mark.parametrize("api", APIS.values())
@pytest.mark.parametrize("path", [CHAT, RESPONSES, GEMINI])
async def test_of_those_whose_answers_are_shorter_than_allowed_as_much_as_they_give_is_asked(
    serve: Serve, path: str, api: str
) -> None:
    config = deployments(api, {"capabilities": {"max_output_tokens": 100}})
    async with serve(alpha=SCRIPTS[api], config=config) as running:
        for most in (1000, 1000, 90):
            async with running.post(limited(path, most), path=path) as response:
                assert response.status == 200, await response.text()
                assert ("x-holeshot-lowered" in response.headers) is (most == 1000)
        sent = [json.dumps(each.body) for each in running["alpha"].received]
        assert all(": 100" in each and "1000" not in each for each in sent[:2])
        assert ": 90" in sent[2]


@pytest.mark.parametrize("path", [CHAT, RESPONSES, GEMINI])
async def test_who_gives_all_of_it_is_asked_for_all_of_it(serve: Serve, path: str) -> None:
    items = ({"capabilities": {"max_output_tokens": 100}}, {"capabilities": {"max_output_tokens": 2000}})
    config = deployments("chat", *items)
    async with serve(alpha=SCRIPTS["chat"], beta=SCRIPTS["chat"], config=config) as running:
        async with running.post(limited(path, 1000), path=path) as response:
            assert (response.status, response.headers["x-holeshot-provider"]) == (200, "beta")
            assert "x-holeshot-lowered" not in response.headers
        assert running["alpha"].received == []


# Thinking that nobody signed, sent back to one who signs.

UNSIGNED = {"type": "thinking", "thinking": "hm"}
CALL = {"type": "tool_use", "id": "toolu_9", "name": "look", "input": {}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "rain"}]}
TOOLS = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]


@pytest.mark.parametrize("signature", [{}, {"signature": None}, {"signature": ""}, {"signature": "google-text:"}])
async def test_thinking_without_a_signature_is_not_sent_to_one_who_signs(serve: Serve, signature: Any) -> None:
    thought = UNSIGNED | signature
    signed = {"type": "thinking", "thinking": "so", "signature": "c2ln"}
    turns = [
        *(*TURN, {"role": "assistant", "content": [signed, {"type": "text", "text": 'a "thinking": b'}]}),
        *(*TURN, {"role": "assistant", "content": [thought, CALL]}, RESULT),
    ]
    body = {"model": MODEL, "max_tokens": 4000, "messages": turns, "tools": TOOLS}
    body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
    config = deployments("messages", {}, {})
    config["models"][MODEL]["deployments"] = ["alpha/claude-sonnet-4-5", "beta/own"]
    script = SCRIPTS["messages"]
    async with serve(alpha=script, beta=script, config=config) as running:
        running.answer_once_all_are_asked(script)
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200
            await response.read()
        to_claude, to_own = (running[name].received[0].body for name in ("alpha", "beta"))
    assert to_claude["messages"][1]["content"][0] == signed
    assert to_claude["messages"][3]["content"] == [CALL]
    assert "thinking" not in to_claude
    if thought.get("signature") is None:
        assert to_own["messages"][3]["content"] == [thought, CALL]  # an own server's model reads it again
        assert to_own["thinking"] == body["thinking"]


# What a model that thinks does not take of OpenAI's parameters.

SAMPLED: dict[str, Any] = {"temperature": 0.2, "top_p": 0.9, "presence_penalty": 0.5, "stop": ["END"], "max_tokens": 50}


def at_openai(api: str, model: str = "o3", preset: str = "openai", **item: Any) -> dict[str, Any]:
    deployments = [{"deployment": f"alpha/{model}", **item}]
    provider = {"preset": preset, **({"apis": [api]} if preset == "openai" else {})}
    return {"models": {MODEL: {"deployments": deployments}}, "providers": {"alpha": provider}}


@pytest.mark.parametrize("stream", [False, True])
async def test_with_drop_params_what_a_thinking_model_does_not_take_is_left_out_and_told(
    serve: Serve, *, stream: bool
) -> None:
    async with serve(alpha=None, config=at_openai("chat", drop_params=True)) as running:
        async with running.chat(**SAMPLED, stream=stream) as response:
            assert response.status == 200
            assert response.headers["x-holeshot-dropped"] == "temperature, top_p, presence_penalty, stop"
        sent = running["alpha"].received[0].body
    assert SAMPLED.keys() & sent.keys() == set()
    assert sent["max_completion_tokens"] == 50


async def test_without_it_the_reason_says_what_would_help_and_nothing_is_asked(serve: Serve) -> None:
    async with serve(alpha=None, config=at_openai("chat")) as running:
        async with running.chat(**SAMPLED) as response:
            assert response.status == 400
            assert "does not support 'stop': this model does not take it (drop_params" in await response.text()
        assert not running["alpha"].received


async def test_defaults_and_the_older_limit_still_reach_a_thinking_model(serve: Serve) -> None:
    async with serve(alpha=None, config=at_openai("chat")) as running:
        async with running.chat(temperature=1, max_tokens=50, presence_penalty=0) as response:
            assert response.status == 200
            assert "x-holeshot-dropped" not in response.headers
        sent = running["alpha"].received[0].body
    assert sent["max_completion_tokens"] == 50
    assert {"temperature", "max_tokens"} & sent.keys() == set()


async def test_a_thinking_model_is_spared_its_vendors_refusal_in_responses(serve: Serve) -> None:
    body = {"model": MODEL, "input": "Hi", "temperature": 0.2, "top_p": 0.9, "reasoning": {"effort": "xhigh"}}
    async with serve(alpha=SCRIPTS["responses"], config=at_openai("responses", drop_params=True)) as running:
        async with running.post(body, path=RESPONSES) as response:
            assert response.status == 200
            assert response.headers["x-holeshot-dropped"] == "reasoning.effort, temperature, top_p"
        sent = running["alpha"].received[0].body
    assert {"temperature", "top_p"} & sent.keys() == set()
    assert sent["reasoning"] == {"effort": "high"}


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_from_messages_too(serve: Serve, api: str) -> None:
    body = {"model": MODEL, "max_tokens": 50, "messages": TURN, "temperature": 0.2, "stop_sequences": ["END"]}
    body |= {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}
    async with serve(alpha=SCRIPTS[api], config=at_openai(api, drop_params=True)) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200, await response.text()
            dropped = response.headers["x-holeshot-dropped"].split(", ")
            assert {"stop_sequences", "thinking", "temperature"} <= set(dropped)
        sent = running["alpha"].received[0].body
    assert {"temperature", "stop"} & sent.keys() == set()
    assert '"high"' in json.dumps(sent)


# Claude's versions are told in different forms how hard to think.


@pytest.mark.parametrize(
    ("model", "asked", "sent", "dropped"),
    [
        (
            "claude-haiku-4-5",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
            {"thinking": {"type": "enabled", "budget_tokens": 4096}},
            "thinking, output_config.effort",
        ),
        (
            "claude-sonnet-4-5",
            {"thinking": {"type": "adaptive"}},
            {"thinking": {"type": "enabled", "budget_tokens": 4096}},
            "thinking",
        ),
        (
            "claude-opus-4-5",
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"}},
            "thinking",
        ),
        (
            "claude-opus-4-8",
            {"thinking": {"type": "enabled", "budget_tokens": 3000}},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
            "thinking.budget_tokens",
        ),
        (
            "claude-sonnet-4-5",
            {"output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}}},
            {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
            "output_config.effort",
        ),
    ],
)
async def test_a_claude_is_told_in_its_own_form_how_hard_to_think(
    serve: Serve, model: str, asked: dict[str, Any], sent: dict[str, Any], dropped: str
) -> None:
    body = {"model": MODEL, "max_tokens": 8000, "messages": TURN, **asked}
    config = deployments("messages", {})
    config["models"][MODEL]["deployments"] = [f"alpha/{model}"]
    async with serve(alpha=SCRIPTS["messages"], config=config) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200
            assert response.headers["x-holeshot-dropped"] == dropped
        received = running["alpha"].received[0].body
    assert {name: received[name] for name in ("thinking", "output_config") if name in received} == sent


@pytest.mark.parametrize(
    ("model", "asked"),
    [
        ("claude-opus-4-6", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("claude-opus-4-6", {"thinking": {"type": "enabled", "budget_tokens": 3000}}),
        ("claude-haiku-4-5", {"thinking": {"type": "enabled", "budget_tokens": 3000}}),
        ("claude-haiku-4-5", {"thinking": {"type": "disabled"}}),
        ("an-own-model", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
    ],
)
async def test_what_it_takes_passes_as_it_is(serve: Serve, model: str, asked: dict[str, Any]) -> None:
    body = {"model": MODEL, "max_tokens": 8000, "messages": TURN, **asked}
    config = deployments("messages", {})
    config["models"][MODEL]["deployments"] = [f"alpha/{model}"]
    async with serve(alpha=SCRIPTS["messages"], config=config) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200
            assert "x-holeshot-dropped" not in response.headers
        received = running["alpha"].received[0].body
    assert {name: received[name] for name in asked} == asked


async def test_an_older_claude_does_not_think_on_after_a_tool_without_its_thoughts(serve: Serve) -> None:
    turns = [*TURN, {"role": "assistant", "content": [CALL]}, RESULT]
    body = {"model": MODEL, "max_tokens": 8000, "messages": turns, "tools": TOOLS, "thinking": {"type": "adaptive"}}
    config = deployments("messages", {})
    config["models"][MODEL]["deployments"] = ["alpha/claude-haiku-4-5"]
    async with serve(alpha=SCRIPTS["messages"], config=config) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == 200
            assert response.headers["x-holeshot-dropped"] == "thinking"
        assert "thinking" not in running["alpha"].received[0].body


@pytest.mark.parametrize("drop_params", [False, True])
async def test_a_claude_that_takes_no_sampling_is_asked_without_it_or_not_at_all(
    serve: Serve, *, drop_params: bool
) -> None:
    body = {"model": MODEL, "max_tokens": 100, "messages": TURN, "temperature": 0}
    deployment = {"deployment": "alpha/claude-opus-4-8", "drop_params": drop_params}
    config = {"models": {MODEL: {"deployments": [deployment]}}, "providers": {"alpha": {"preset": "anthropic"}}}
    async with serve(alpha=SCRIPTS["messages"], config=config) as running:
        async with running.post(body, path=MESSAGES) as response:
            assert response.status == (200 if drop_params else 400)
            assert drop_params == (response.headers.get("x-holeshot-dropped") == "temperature")
        async with running.post({**body, "temperature": 1}, path=MESSAGES) as response:
            assert response.status == 200
        assert not any("temperature" in each.body for each in running["alpha"].received)


@pytest.mark.parametrize("path", [MESSAGES, CHAT])
async def test_a_deployment_with_a_name_of_its_own_is_told_in_the_form_of_the_model_it_is(
    serve: Serve, path: str
) -> None:
    """Claude Haiku 4.5 takes a budget, and neither an effort nor to decide itself."""
    own = {"same_as": "claude-haiku-4-5", **THINKS}
    async with serve(alpha=SCRIPTS["messages"], config=deployments("messages", own)) as running:
        async with running.post(BODIES[path], path=path) as response:
            assert response.status == 200, await response.text()
        [received] = running["alpha"].received
        assert received.body["thinking"]["type"] == "enabled"
        assert "effort" not in received.body.get("output_config", {})
