"""What the vendors changed in autumn 2026, through a gateway: nobody hears of it, and no stand-in refuses anything."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from providers import events
from providers.dialects import DIALECTS
from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving

Json = dict[str, Any]

# Models of this autumn, and those of families that go on under names that nobody has seen.
ALWAYS_THINKING = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-2", "claude-opus-5-7")
MODELS: Mapping[str, str] = {
    **dict.fromkeys((*ALWAYS_THINKING, "claude-haiku-5-5", "claude-sonnet-5"), "anthropic"),
    "deepseek-v4-pro": "deepseek",
    **dict.fromkeys(("kimi-k2.6", "kimi-k2.7-code", "kimi-k3", "kimi-k3.5"), "moonshot"),
    "qwen3.7-plus": "dashscope",
    **dict.fromkeys(("gemini-3.8-flash", "gemini-3.9-flash", "gemini-4-argon"), "google"),
    **dict.fromkeys(("gpt-6.2-astra", "gpt-6.2-sol", "gpt-6.3-sol"), "openai"),
}
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/{model}:generateContent",
}
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ARGUMENTS = {"city": "Oslo"}
SAID = f"Which city?\ndata: {json.dumps(ARGUMENTS)}"


def said(api: str, text: str = SAID) -> Json:
    """Return a request that says this."""
    match api:
        case "responses":
            return {"input": [{"role": "user", "content": text}], "store": False}
        case "gemini":
            return {"contents": [{"role": "user", "parts": [{"text": text}]}]}
        case "messages":
            return {"messages": [{"role": "user", "content": text}], "max_tokens": 2000}
        case _:
            return {"messages": [{"role": "user", "content": text}]}


def offering(api: str, *names: str) -> Json:
    """Return what offers these tools."""
    match api:
        case "chat":
            return {"tools": [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in names]}
        case "messages":
            return {"tools": [{"name": name, "input_schema": SCHEMA} for name in names]}
        case "responses":
            return {"tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in names]}
        case _:
            return {"tools": [{"functionDeclarations": [{"name": name, "parameters": SCHEMA} for name in names]}]}


NAMED: Mapping[str, Json] = {
    "chat": {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
    "messages": {"tool_choice": {"type": "tool", "name": "weather"}},
    "responses": {"tool_choice": {"type": "function", "name": "weather"}},
    "gemini": {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}}},
}
ANY: Mapping[str, Json] = {
    "chat": {"tool_choice": "required"},
    "messages": {"tool_choice": {"type": "any"}},
    "responses": {"tool_choice": "required"},
    "gemini": {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}},
}
# How each API asks for as little thinking as there is.
LEAST: Mapping[str, list[Json]] = {
    "chat": [{"reasoning_effort": "none"}, {"reasoning_effort": "minimal"}],
    "messages": [{"thinking": {"type": "disabled"}}, {"thinking": {"type": "enabled", "budget_tokens": 1024}}],
    "responses": [{"reasoning": {"effort": "none"}}],
    "gemini": [
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 1024}}},
    ],
}


def calls_of(api: str, answer: Json) -> list[tuple[str, Json]]:
    """Return the calls of an answer, by name and arguments."""
    match api:
        case "chat":
            message = answer["choices"][0]["message"]
            functions = [each["function"] for each in message.get("tool_calls") or ()]
            return [(each["name"], json.loads(each["arguments"])) for each in functions]
        case "messages":
            return [(each["name"], each["input"]) for each in answer["content"] if each["type"] == "tool_use"]
        case "responses":
            items = [each for each in answer["output"] if each["type"] == "function_call"]
            return [(each["name"], json.loads(each["arguments"])) for each in items]
        case _:
            parts = answer["candidates"][0]["content"]["parts"]
            return [
                (each["functionCall"]["name"], each["functionCall"]["args"]) for each in parts if "functionCall" in each
            ]


def finish_of(api: str, answer: Json) -> str:
    """Return why an answer ended."""
    match api:
        case "chat":
            return str(answer["choices"][0]["finish_reason"])
        case "messages":
            return str(answer["stop_reason"])
        case "responses":
            return str(answer["status"])
        case _:
            return str(answer["candidates"][0]["finishReason"])


FINISHES = {"chat": "tool_calls", "messages": "tool_use", "responses": "completed", "gemini": "STOP"}

Gateway = tuple[RunningGateway, dict[str, Served]]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway before all vendors, each model alone; at its end nobody has refused anything."""
    async with AsyncExitStack() as stack:
        names = sorted(set(MODELS.values()))
        vendors = {name: await stack.enter_async_context(running_vendor(name)) for name in names}
        providers = {
            name: {"preset": name, "base_url": vendor.base_url, "api_key": vendor.key}
            for name, vendor in vendors.items()
        }
        models = {model: {"deployments": [f"{name}/{model}"]} for model, name in MODELS.items()}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"unused": None}, providers=providers, models=models)),
            vendors,
        )
        assert {name: vendor.said for name, vendor in vendors.items() if vendor.refusals} == {}


async def answered(
    running: RunningGateway, api: str, model: str, body: Json, *, stream: bool = False
) -> tuple[Json, Mapping[str, str]]:
    """Return the whole answer, and its headers."""
    path = PATHS[api].format(model=model)
    path = path.replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else path
    sent = body if api == "gemini" else {**body, "model": model, "stream": stream}
    async with running.post(sent, path=path) as response:
        came = await response.read()
    assert response.status == 200, (model, came, body)
    if not stream:
        return json.loads(came), response.headers
    gathering = DIALECTS[api].answers.gathering()
    for event in events(came):
        if event.data.strip() not in {b"", b"[DONE]"}:
            gathering.take(DIALECTS[api].answers.read_event(event.data, ()))
    return json.loads(gathering.body()), response.headers


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PATHS)
async def test_who_forces_a_tool_gets_its_call(gateway: Gateway, api: str, stream: bool) -> None:
    running, _ = gateway
    for model in MODELS:
        for tools, choice in ((("weather", "time"), NAMED), (("weather",), ANY)):
            body = {**said(api), **offering(api, *tools), **choice[api]}
            answer, headers = await answered(running, api, model, body, stream=stream)
            assert calls_of(api, answer) == [("weather", ARGUMENTS)], (model, answer)
            assert finish_of(api, answer) == FINISHES[api]
            assert ("x-holeshot-dropped" in headers) or model not in ALWAYS_THINKING, model


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PATHS)
async def test_who_forces_any_of_several_tools_gets_one(gateway: Gateway, api: str, stream: bool) -> None:
    running, _ = gateway
    for model in MODELS:
        body = {**said(api, "Which?"), **offering(api, "weather", "time"), **ANY[api]}
        [(name, arguments)] = calls_of(api, (await answered(running, api, model, body, stream=stream))[0])
        assert name in {"weather", "time"}
        assert arguments.keys() == {"city"}


@pytest.mark.parametrize("api", PATHS)
async def test_older_models_are_forced_as_they_were(gateway: Gateway, api: str) -> None:
    running, vendors = gateway
    for model in ("claude-haiku-5-5", "claude-sonnet-5"):
        body = {**said(api), **offering(api, "weather", "time"), **NAMED[api]}
        answer, _ = await answered(running, api, model, body)
        assert calls_of(api, answer) == [("weather", ARGUMENTS)]
        assert vendors["anthropic"].seen[-1].body["tool_choice"]["type"] == "tool"


@pytest.mark.parametrize("api", PATHS)
async def test_who_wants_no_thoughts_gets_as_few_as_there_are(gateway: Gateway, api: str) -> None:
    running, vendors = gateway
    for model, vendor in MODELS.items():
        for least in LEAST[api]:
            await answered(running, api, model, {**said(api, "say: well"), **least})
            if vendor == "deepseek" and '"none"' in json.dumps(least):
                assert vendors[vendor].seen[-1].body["thinking"] == {"type": "disabled"}
            if vendor != "anthropic" or model == "claude-sonnet-5":
                continue
            sent = vendors["anthropic"].seen[-1].body
            thinking, effort = (sent.get("thinking") or {}).get("type"), (sent.get("output_config") or {}).get("effort")
            if "1024" in json.dumps(least) or "minimal" in json.dumps(least):
                continue
            if model == "claude-sonnet-5-5":
                assert thinking == "between_tools", sent
            elif model == "claude-haiku-5-5":
                assert thinking == "disabled", sent
            else:
                assert (thinking, effort) == (None, "low"), sent


# How who thinks unless told otherwise is told so, and who cannot be told so is told to think its least.
OFF: Mapping[str, Json] = {
    "deepseek-v4-pro": {"thinking": {"type": "disabled"}},
    "kimi-k2.6": {"thinking": {"type": "disabled"}},
    "qwen3.7-plus": {"enable_thinking": False},
}
LEAST_EFFORT: Mapping[str, str] = {
    **dict.fromkeys(("kimi-k2.7-code", "kimi-k3", "kimi-k3.5"), "low"),
    **dict.fromkeys(("gpt-6.2-astra", "gpt-6.2-sol", "gpt-6.3-sol"), "low"),
}
FORBIDDING: Mapping[str, list[Json]] = {
    "chat": [
        {"reasoning_effort": "none"},
        {"thinking": {"type": "disabled"}},
        {"enable_thinking": False},
        {"reasoning": {"enabled": False}},
    ],
    "messages": [
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}},
    ],
    "responses": [{"reasoning": {"effort": "none"}}],
    "gemini": [{"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}],
}
WORDS = ("thinking", "enable_thinking", "reasoning_effort", "reasoning")


@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PATHS)
async def test_who_forbids_thinking_is_obeyed_in_the_words_of_the_vendor_or_told_that_it_cannot_be(
    gateway: Gateway, api: str, stream: bool, tools: bool
) -> None:
    running, vendors = gateway
    for model in (*OFF, *LEAST_EFFORT):
        for forbidding in FORBIDDING[api]:
            body = {**said(api, "say: well"), **(offering(api, "weather") if tools else {}), **forbidding}
            _, headers = await answered(running, api, model, body, stream=stream)
            sent = vendors[MODELS[model]].seen[-1].body
            asked = {name: sent[name] for name in WORDS if name in sent}
            dropped = headers.get("x-holeshot-dropped", "")
            if model in OFF:
                assert (asked, dropped) == (OFF[model], ""), (model, forbidding)
            else:
                effort = asked.get("reasoning_effort") or asked.get("reasoning", {}).get("effort")
                assert (effort, "thinking" in asked) == (LEAST_EFFORT[model], False), (model, forbidding, asked)
                assert dropped, (model, forbidding)


@pytest.mark.parametrize("api", PATHS)
async def test_who_says_nothing_of_thinking_is_sent_as_before(gateway: Gateway, api: str) -> None:
    running, vendors = gateway
    for model in (*OFF, *LEAST_EFFORT):
        _, headers = await answered(running, api, model, said(api, "say: well"))
        sent = vendors[MODELS[model]].seen[-1].body
        assert {"thinking", "enable_thinking", "reasoning_effort"}.isdisjoint(sent)
        assert "effort" not in (sent.get("reasoning") or {})
        assert "x-holeshot-dropped" not in headers


@pytest.mark.parametrize(
    ("model", "sent"), [("claude-opus-5-5", (None, "low")), ("claude-sonnet-5", ("disabled", None))]
)
async def test_notes_between_tools_alone_are_asked_of_who_knows_them(
    gateway: Gateway, model: str, sent: tuple[str | None, str | None]
) -> None:
    running, vendors = gateway
    body = {**said("messages", "say: well"), "thinking": {"type": "between_tools"}}
    await answered(running, "messages", model, body)
    asked = vendors["anthropic"].seen[-1].body
    assert ((asked.get("thinking") or {}).get("type"), (asked.get("output_config") or {}).get("effort")) == sent
    await answered(running, "messages", "claude-sonnet-5-5", body)
    assert vendors["anthropic"].seen[-1].body["thinking"] == {"type": "between_tools"}


async def test_who_forbids_thinking_may_want_hard_work_all_the_same(gateway: Gateway) -> None:
    running, vendors = gateway
    for kind in ("disabled", "between_tools"):
        body = {**said("messages", "say: well"), "thinking": {"type": kind}, "output_config": {"effort": "max"}}
        _, headers = await answered(running, "messages", "claude-sonnet-5-5", body)
        assert vendors["anthropic"].seen[-1].body["output_config"] == {"effort": "high"}
        assert "output_config.effort" in headers["x-holeshot-dropped"]


INSTRUCTIONS = "You are a coding agent. Read before you write, and be brief. " * 120


def begun(api: str) -> Json:
    """Return a conversation's first request but for what the user says: instructions, and tools."""
    match api:
        case "chat":
            return {"messages": [{"role": "system", "content": INSTRUCTIONS}], **offering(api, "read")}
        case _:
            return {"messages": [], "system": INSTRUCTIONS, "max_tokens": 2000, **offering(api, "read")}


def gone_on(api: str, answer: Json) -> list[Json]:
    """Return the turns after an answer: itself, and results of its calls."""
    if api == "chat":
        message = answer["choices"][0]["message"]
        results: list[Json] = [
            {"role": "tool", "tool_call_id": each["id"], "content": "rain"} for each in message.get("tool_calls") or ()
        ]
        return [message, *results]
    results = [
        {"type": "tool_result", "tool_use_id": each["id"], "content": "rain"}
        for each in answer["content"]
        if each["type"] == "tool_use"
    ]
    told = [{"role": "user", "content": results}] if results else []
    return [{"role": "assistant", "content": answer["content"]}, *told]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("model", ["gpt-6.2-astra", "gpt-6.3-sol"])
async def test_instructions_to_the_newest_gpt_are_cached(gateway: Gateway, model: str, api: str, stream: bool) -> None:
    running, _ = gateway
    body = begun(api)
    for turn in range(5):
        body["messages"] = [*body["messages"], {"role": "user", "content": f"Turn {turn}: look."}]
        for _ in range(2):  # a call, and what is said of its result
            answer, _headers = await answered(running, api, model, body, stream=stream)
            body["messages"] = [*body["messages"], *gone_on(api, answer)]
    rows = await running.rows("select prompt_tokens, cached_tokens from attempts where outcome = 'won'")
    prompt, read = (sum(row[name] or 0 for row in rows) for name in ("prompt_tokens", "cached_tokens"))
    assert len(rows) == 10
    assert read / prompt > 0.8, (read, prompt)


@pytest.mark.parametrize("choice", [{"type": "tool", "name": "web_search"}, {"type": "any"}], ids=["named", "any"])
async def test_a_search_of_the_vendor_that_cannot_be_forced_is_offered_and_told(gateway: Gateway, choice: Json) -> None:
    running, vendors = gateway
    search = {"tools": [{"type": "web_search_20250305", "name": "web_search"}], "tool_choice": choice}
    for model, sent in (*((each, {"type": "auto"}) for each in ALWAYS_THINKING), ("claude-sonnet-5", choice)):
        _, headers = await answered(running, "messages", model, {**said("messages", "say: well"), **search})
        assert vendors["anthropic"].seen[-1].body["tool_choice"] == sent
        assert headers.get("x-holeshot-dropped") == ("tool_choice" if model in ALWAYS_THINKING else None)


@pytest.mark.parametrize("version", ["2023-06-01", "2026-10-21"])
async def test_sampling_is_left_out_where_the_version_of_the_api_has_none(tmp_path: Path, version: str) -> None:
    sampling = {"temperature": 0.5, "top_k": 5}
    async with running_vendor("anthropic") as vendor:
        provider = {"preset": "anthropic", "base_url": vendor.base_url, "api_key": vendor.key}
        config: Json = {
            "providers": {"anthropic": {**provider, "headers": {"anthropic-version": version}}},
            "models": {"m": {"deployments": ["anthropic/claude-sonnet-4-6"]}},
        }
        async with serving(tmp_path, {"unused": None}, **config) as running:
            for api in ("messages", "chat"):
                body = {**said(api, "say: well"), **sampling, "model": "m"}
                newest = {"anthropic-version": "2026-10-21", "authorization": "Bearer any"}
                async with running.post(body, path=PATHS[api], headers=newest) as response:
                    dropped = response.headers.get("x-holeshot-dropped")
                    assert response.status == 200, await response.text()
                    assert (dropped is None) == (version == "2023-06-01"), dropped
                sent = vendor.seen[-1]
                assert ("temperature" in sent.body, sent.headers["anthropic-version"]) == (
                    version == "2023-06-01",
                    version,
                )
        assert not vendor.refusals


# What each of Google's models thinks at least: its lowest level, by whichever of Google's APIs.
LEAST_OF_GOOGLE: Mapping[str, str] = {
    "gemini-3-flash-preview": "minimal",
    "gemini-3.1-pro-preview": "low",
    "gemini-3.5-flash-lite": "minimal",
    "gemini-3.8-flash": "low",
    "gemini-4-argon": "low",
}


@pytest.mark.parametrize("vendor", ["gemini", "google"])
@pytest.mark.parametrize("api", PATHS)
async def test_who_forbids_googles_models_to_think_gets_their_least_and_is_told(
    tmp_path: Path, api: str, vendor: str
) -> None:
    async with running_vendor(vendor) as served:
        config: Json = {
            "providers": {vendor: {"preset": vendor, "base_url": served.base_url, "api_key": served.key}},
            "models": {model: {"deployments": [f"{vendor}/{model}"]} for model in LEAST_OF_GOOGLE},
        }
        async with serving(tmp_path, {"unused": None}, **config) as running:
            for model, least in LEAST_OF_GOOGLE.items():
                for forbidding in FORBIDDING[api]:
                    if vendor == "google" and (api == "gemini" or "output_config" in forbidding):
                        continue  # passes as it is; an effort beside it says how hard to work
                    _, headers = await answered(running, api, model, {**said(api, "say: well"), **forbidding})
                    sent = served.seen[-1].body
                    if vendor == "gemini":
                        assert (sent["reasoning_effort"], "thinking" in sent) == (least, False), (model, forbidding)
                    else:
                        thinking = sent["generationConfig"]["thinkingConfig"]
                        assert thinking["thinkingLevel"].lower() == least, (model, forbidding, thinking)
                        assert "thinkingBudget" not in thinking
                    assert headers.get("x-holeshot-dropped"), (model, forbidding)
                _, headers = await answered(running, api, model, said(api, "say: well"))
                assert "x-holeshot-dropped" not in headers
                assert "reasoning_effort" not in served.seen[-1].body
        assert not served.refusals


@pytest.mark.parametrize("tools", [False, True], ids=["plain", "tools"])
@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_tier_that_the_newest_gpt_lacks_is_left_out_and_told(gateway: Gateway, api: str, tools: bool) -> None:
    running, vendors = gateway
    body = {**said(api, "say: well"), **(offering(api, "weather") if tools else {})}
    for model in ("gpt-6.2-astra", "gpt-6.2-sol", "gpt-6.3-sol"):
        for tier, told in (("flex", "service_tier"), ("priority", None), ("ultrafast", None)):
            _, headers = await answered(running, api, model, {**body, "service_tier": tier})
            assert headers.get("x-holeshot-dropped") == told
            assert vendors["openai"].seen[-1].body.get("service_tier") == (None if told else tier)


PAPER: Json = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "It rains."},
    "citations": {"enabled": True},
}
CITED: Json = {
    "type": "char_location",
    "cited_text": "It rains.",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 9,
}
CITING: list[Json] = [
    {"role": "user", "content": [PAPER, {"type": "text", "text": "What is it?", "citations": [CITED]}]},
    {"role": "assistant", "content": [{"type": "text", "text": "It rains.", "citations": [CITED]}, PAPER]},
    {"role": "user", "content": "say: well"},
]


@pytest.mark.parametrize("where", ["provider", "deployment"])
async def test_documents_and_citations_that_the_version_does_not_take_are_moved_or_left_out_and_told(
    tmp_path: Path, where: str
) -> None:
    asked = {"anthropic-version": "2026-10-21"}
    async with running_vendor("anthropic") as vendor:
        provider: Json = {"preset": "anthropic", "base_url": vendor.base_url, "api_key": vendor.key}
        deployment: Json = {"deployment": "anthropic/claude-sonnet-4-6"}
        (provider if where == "provider" else deployment)["headers" if where == "provider" else "extra_headers"] = asked
        config: Json = {
            "providers": {"anthropic": provider, "older": {**provider, "headers": {}}},
            "models": {"m": {"deployments": [deployment]}, "o": {"deployments": ["older/claude-sonnet-4-6"]}},
        }
        async with serving(tmp_path, {"unused": None}, **config) as running:
            sent: list[list[Json]] = []
            for turns in (CITING, [*CITING, {"role": "assistant", "content": "well"}, CITING[-1]]):
                _, headers = await answered(running, "messages", "m", {"messages": turns, "max_tokens": 2000})
                sent.append(vendor.seen[-1].body["messages"])
                assert headers["x-holeshot-dropped"] == "messages[0].content[1].citations, messages[1].content[1]"
            assert sent[0] == [
                {"role": "user", "content": [PAPER, {"type": "text", "text": "What is it?"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "It rains.", "citations": [CITED]}]},
                {"role": "user", "content": [PAPER, {"type": "text", "text": "say: well"}]},
            ]
            assert sent[1][:3] == sent[0]
            _, headers = await answered(running, "messages", "o", {"messages": CITING, "max_tokens": 2000})
            assert vendor.seen[-1].body["messages"] == CITING
            assert "x-holeshot-dropped" not in headers
        assert not vendor.refusals
