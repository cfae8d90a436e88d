"""Preferences keep no deployment out, and fail no call; musts do; whatever is left out is told."""

import json
from typing import Any

import pytest

from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.apis.test_plain_models import CHAT, GEMINI, MESSAGES, RESPONSES, SCRIPTS, TURN, deployments
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, refused, refusing
from tests.app.gateway.running_gateway import MODEL, Serve

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "original"}
# As the configurations of Gemini CLI 0.61.0 have it for chats (defaultModelConfigs.ts, read on 2026-11-29).
OF_GEMINI_CLI = {
    "temperature": 1,
    "topP": 0.95,
    "topK": 64,
    "thinkingConfig": {"includeThoughts": True, "thinkingBudget": 8192},
}
DECLARED = [{"functionDeclarations": [{"name": "look", "parametersJsonSchema": {"type": "object"}}]}]
PRESETS = {
    "claude-sonnet-4-5": ("messages", {"preset": "anthropic"}),
    "claude-opus-4-8": ("messages", {"preset": "anthropic"}),
    "gpt-5.2": ("chat", {"preset": "openai", "apis": ["chat"]}),
    "gpt-5.2 ": ("responses", {"preset": "openai", "apis": ["responses"]}),
    "o3": ("chat", {"preset": "openai", "apis": ["chat"]}),
    "deepseek-v4-pro": ("chat", {"preset": "deepseek"}),
    "qwen3-coder": ("chat", {}),
    "gemini-3-pro-preview": ("gemini", {"kind": "gemini"}),
}


def at(model: str, **item: Any) -> tuple[Any, dict[str, Any]]:
    """Return the script and the configuration of one deployment of ``model``, at its vendor."""
    api, provider = PRESETS[model]
    if not provider:
        config = deployments(api, item)
    else:
        models = {MODEL: {"deployments": [{"deployment": f"alpha/{model.strip()}", **item}]}}
        config = {"models": models, "providers": {"alpha": provider}}
    return SCRIPTS[api], config


@pytest.mark.parametrize("tools", [[], DECLARED], ids=["", "tools"])
@pytest.mark.parametrize("model", PRESETS)
async def test_gemini_cli_in_its_default_is_answered_by_every_vendor(
    serve: Serve, model: str, tools: list[Any]
) -> None:
    script, config = at(model)
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}]
    body = {"contents": contents, "generationConfig": OF_GEMINI_CLI, **({"tools": tools} if tools else {})}
    async with serve(alpha=script, config=config) as running:
        async with running.post(body, path=GEMINI) as response:
            assert response.status == 200, await response.text()
            dropped = response.headers.get("x-holeshot-dropped", "").split(", ")
        sent = json.dumps(running["alpha"].received[0].body)
    takes = model == "gemini-3-pro-preview"
    assert ('"topK": 64' in sent, "generationConfig.topK" in dropped) == (takes, not takes)


# As its helpers ask, as which model is to answer.
OF_A_HELPER = {"temperature": 0, "topP": 1, "maxOutputTokens": 1024, "thinkingConfig": {"thinkingBudget": 512}}


@pytest.mark.parametrize("model", [*PRESETS, "refuses"])
async def test_helpers_of_gemini_cli_are_answered_by_every_vendor_too(serve: Serve, model: str) -> None:
    is_refused = model == "refuses"  # by a server that is known by its kind alone
    script, config = at("qwen3-coder" if is_refused else model)
    body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], "generationConfig": OF_A_HELPER}
    async with serve(alpha=script, config=config) as running:
        if is_refused:
            running["alpha"].answers = refusing("temperature")
        async with running.post(body, path=GEMINI) as response:
            assert response.status == 200, await response.text()
            dropped = response.headers.get("x-holeshot-dropped", "").split(", ")
        sent = json.dumps(running["alpha"].received[-1].body)
    told = {"temperature", "generationConfig.temperature"} & {*dropped}
    assert (
        bool(told)
        is ('"temperature": 0' not in sent)
        is (model in {"claude-opus-4-8", "gpt-5.2", "gpt-5.2 ", "o3", "refuses"})
    )


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-8", "qwen3-coder", "gemini-3-pro-preview"])
async def test_pictures_of_codex_are_looked_at_as_closely_as_can_be(serve: Serve, model: str) -> None:
    script, config = at(model)
    asked = [{"type": "input_text", "text": "look"}, PICTURE]
    body = {"model": MODEL, "input": [{"role": "user", "content": asked}], "store": False, "text": {"verbosity": "low"}}
    async with serve(alpha=script, config=config) as running:
        async with running.post(body, path=RESPONSES) as response:
            assert response.status == 200, await response.text()
            assert "input[0].content[1].detail" in response.headers["x-holeshot-dropped"]
        assert "iVBORw0KGgo=" in json.dumps(running["alpha"].received[0].body)


# A picture of each API, and how a server names what it refuses of it, without a word of what it takes.
DETAILS: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": (
        CHAT,
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": {"url": PICTURE["image_url"], "detail": "original"}},
                    ],
                }
            ]
        },
        "messages[0].content[1].image_url.detail",
    ),
    "responses": (
        RESPONSES,
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "look"}, PICTURE]}], "store": False},
        "input[0].content[1].detail",
    ),
}


@pytest.mark.parametrize("named", ["param", "short", "words"])
@pytest.mark.parametrize("code", ["invalid_value", None])
@pytest.mark.parametrize("api", DETAILS)
async def test_a_detail_that_a_refusal_only_names_is_left_out(
    serve: Serve, api: str, named: str, code: str | None
) -> None:
    path, body, at_detail = DETAILS[api]
    param = {"param": at_detail, "short": "detail", "words": None}[named]
    said = f"Invalid value for '{at_detail}'." if named == "words" else "The request is invalid."
    config = {"providers": {"alpha": speaking(api)}}
    async with serve(alpha=SCRIPTS[api], config=config) as running:
        running["alpha"].answers = lambda sent: (
            refused(said, param=param, code=code) if '"original"' in json.dumps(sent) else ANSWERS[api]
        )
        for _ in range(2):
            async with running.post({"model": MODEL, **body}, path=path) as response:
                assert response.status == 200, await response.text()
                assert "detail" in response.headers["x-holeshot-dropped"]
            assert PICTURE["image_url"] in json.dumps(running["alpha"].received[-1].body)
        assert len(running["alpha"].received) == 3
        low = json.loads(json.dumps(body).replace("original", "low"))
        async with running.post({"model": MODEL, **low}, path=path) as response:
            assert response.status == 200
        assert ('"low"' in json.dumps(running["alpha"].received[-1].body)) is (named != "short")


async def test_an_effort_beside_a_forced_tool_is_left_out_and_told(serve: Serve) -> None:
    script, config = at("claude-sonnet-4-5")
    body = {"model": MODEL, "messages": TURN, "tools": [TOOL], "tool_choice": "required", "reasoning_effort": "high"}
    async with serve(alpha=script, config=config) as running:
        async with running.post({**body, "verbosity": "low"}, path=CHAT) as response:
            assert response.status == 200, await response.text()
            assert response.headers["x-holeshot-dropped"] == "reasoning_effort, verbosity"
        sent = running["alpha"].received[0].body
    assert (sent["tool_choice"], "thinking" in sent) == ({"type": "any"}, False)


SEED = "generationConfig.seed"
MUSTS: list[tuple[str, str, dict[str, Any], str]] = [
    ("claude-opus-4-8", CHAT, {"messages": TURN, "temperature": 0}, "temperature"),
    ("claude-opus-4-8", CHAT, {"messages": TURN, "seed": 7}, "seed"),
    ("claude-opus-4-8", CHAT, {"messages": TURN, "n": 2}, "n"),
    ("claude-opus-4-8", CHAT, {"messages": TURN, "logprobs": True}, "logprobs"),
    ("claude-opus-4-8", CHAT, {"messages": TURN, "service_tier": "priority"}, "service_tier"),
    ("gpt-5.2", MESSAGES, {"messages": TURN, "max_tokens": 99, "inference_geo": "us"}, "inference_geo"),
    ("o3", MESSAGES, {"messages": TURN, "max_tokens": 99, "temperature": 0}, "temperature"),
    ("claude-opus-4-8", GEMINI, {"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": {"seed": 7}}, SEED),
    ("gpt-5.2 ", CHAT, {"messages": TURN, "stop": ["x"]}, "stop"),
]


@pytest.mark.parametrize("drop_params", [False, True])
@pytest.mark.parametrize(("model", "path", "body", "field"), MUSTS)
async def test_a_must_keeps_out_who_cannot_hold_it(  # noqa: PLR0917 - a row of the table
    serve: Serve, model: str, path: str, body: dict[str, Any], field: str, drop_params: bool
) -> None:
    script, config = at(model, drop_params=drop_params)
    async with serve(alpha=script, config=config) as running:
        async with running.post({"model": MODEL, **body}, path=path) as response:
            if drop_params:
                assert (response.status, response.headers["x-holeshot-dropped"]) == (200, field)
            else:
                assert response.status == 400
                assert f"'{field}'" in await response.text()
        assert len(running["alpha"].received) == drop_params


# Two deployments of which alpha's model takes no temperature.


def beside(**race: Any) -> dict[str, Any]:
    models = {MODEL: {"deployments": ["alpha/o3", "beta/m"], "race": race}}
    return {"models": models, "providers": {"alpha": {"preset": "openai", "apis": ["chat"]}, "beta": {}}}


async def test_of_equals_the_one_that_takes_a_preference_is_asked_first(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=beside(mode="single")) as running:
        for _ in range(8):
            async with running.chat(temperature=0.2) as response:
                assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert (len(running["alpha"].received), len(running["beta"].received)) == (0, 8)
        assert all(each.body["temperature"] == 0.2 for each in running["beta"].received)


async def test_of_equals_the_one_that_takes_whose_request_it_is_is_asked_first(serve: Serve) -> None:
    models = {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "single"}}}
    config = {
        "models": models,
        "providers": {"alpha": {"preset": "groq"}, "beta": {"preset": "openai", "apis": ["chat"]}},
    }
    async with serve(alpha=None, beta=None, config=config) as running:
        for _ in range(8):
            async with running.chat(safety_identifier="u") as response:
                assert (response.status, response.headers.get("x-holeshot-dropped")) == (200, None)
        assert (len(running["alpha"].received), len(running["beta"].received)) == (0, 8)


async def test_a_preference_takes_nobody_out_of_a_race(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=beside(mode="race", width=2)) as running:
        async with running.chat(temperature=0.2) as response:
            assert response.status == 200
        assert (len(running["alpha"].received), len(running["beta"].received)) == (1, 1)
        assert "temperature" not in running["alpha"].received[0].body


# The same of what a vendor refuses by name.


async def test_a_preference_that_is_refused_is_left_out_and_a_must_is_not(serve: Serve) -> None:
    async with serve(alpha=None, config={"models": {MODEL: {"deployments": ["alpha/m"]}}}) as running:
        preferences: dict[str, Any] = {"top_k": 40, "min_p": 0.1, "truncation": "auto", "verbosity": "low"}
        preferences["safety_identifier"] = "u"
        for field, value in preferences.items():
            running["alpha"].answers = refusing(field)
            async with running.post({"model": MODEL, "messages": TURN, field: value}) as response:
                assert (response.status, response.headers["x-holeshot-dropped"]) == (200, field)
        running["alpha"].answers = refusing("tool_choice")
        for choice in ("auto", "required"):  # the default, and what the client came for
            body = {"model": MODEL, "messages": TURN, "tools": [TOOL], "tool_choice": choice}
            async with running.post(body) as response:
                assert response.status == (200 if choice == "auto" else 400)
        musts: dict[str, Any] = {"service_tier": "priority", "seed": 1, "stop": ["x"], "temperature": 0}
        for field, value in musts.items():
            running["alpha"].answers = refusing(field)
            async with running.post({"model": MODEL, "messages": TURN, field: value}) as response:
                assert response.status == 400
