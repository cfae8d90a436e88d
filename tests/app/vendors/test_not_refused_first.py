"""What a vendor's documents settle is not refused first: no preference and no hint costs a refused request.

And the other side: what a vendor takes reaches it as it was sent.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served
from tests.app.gateway.running_gateway import RunningGateway
from tests.app.vendors.places import Place, gateway_before, standing_in

Json = dict[str, Any]

PLACES: Mapping[str, Place] = {
    "gpt-4.1": Place("openai", "openai", "gpt-4.1", "chat"),
    "gpt-5": Place("openai", "openai", "gpt-5", "chat"),
    "azure-4.1": Place("azure", "azure", "gpt-4.1", "chat"),
    "gpt-oss": Place("groq", "groq", "openai/gpt-oss-120b", "chat"),
    "llama": Place("groq", "groq", "llama-3.3-70b-versatile", "chat"),
    "kimi-k3": Place("moonshot", "moonshot", "kimi-k3", "chat"),
    "google": Place("google", "google", "gemini-3.8-flash", "gemini"),
    "qwen": Place("groq", "groq", "qwen/qwen3-32b", "chat"),
    "grok": Place("xai", "xai", "grok-4.5", "chat"),
    "grok-named": Place("xai", "xai", "grok-4.20-0309-reasoning", "chat"),
    "mistral": Place("mistral", "mistral", "mistral-medium-latest", "chat"),
    "mistral-large": Place("mistral", "mistral", "mistral-large-latest", "chat"),
    "gemini": Place("gemini", "gemini", "gemini-3.5-flash", "chat"),
    "deepseek": Place("deepseek", "deepseek", "deepseek-v4-pro", "chat"),
}
PATHS = {
    "chat": "/v1/chat/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/{}:generateContent",
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
MARK = {"cache_control": {"type": "ephemeral"}}
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def user(*parts: Json) -> Json:
    """Return messages that say these parts, in chat and in Messages."""
    return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "Hi"}]}]}


SAID: Mapping[str, Json] = {
    "chat": user(),
    "messages": {**user(), "max_tokens": 4096},
    "responses": {"input": "Hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}
CALLED: Json = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
MARKED = {"role": "user", "content": [{"type": "text", "text": "Hi", **MARK}]}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}
FOUND = {
    "type": "search_result",
    "source": "a.example",
    "title": "A",
    "content": [{"type": "text", "text": "rain"}, {"type": "text", "text": "sun"}],
}
RESULT: Sequence[Json] = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "tool_calls": [{"id": "call00001", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "call00001", "content": "rain", **MARK},
]
# What an answer of Groq's compound models has, sent back.
TOLD: Json = {"role": "assistant", "content": "Yo", "executed_tools": []}
# An answer that broke off before it said anything, as programs keep it, also behind a tool's result.
BLANK = {"role": "assistant", "content": ""}
GOES_ON = {"role": "user", "content": "Go on"}
# What Messages and Responses have of a tool, as clients of chat write it for LiteLLM, beside its function or in it.
OF_TOOLS = {
    "allowed_callers": ["direct"],
    "async": True,
    "defer_loading": False,
    "eager_input_streaming": True,
    "input_examples": [{"city": "Oslo"}],
}
NAMED = {"role": "user", "name": "ann", "content": "Hi"}
BREAKPOINT = {"role": "user", "content": [{"type": "text", "text": "Hi", "prompt_cache_breakpoint": {}}]}
# What real clients send of preferences and hints, and keep of broken answers, in each API.
PREFERENCES: Mapping[str, Sequence[Json]] = {
    "chat": [
        *({"reasoning_effort": effort} for effort in EFFORTS),
        {"verbosity": "low"},
        {"thinking": {"type": "enabled"}},
        {"thinking": {"type": "disabled"}},
        {"enable_thinking": True},
        {"enable_thinking": False},
        {"thinking_budget": 1024},
        {"reasoning": {"effort": "low"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"top_k": 40, "min_p": 0.05},
        {"frequency_penalty": 0.1, "presence_penalty": 0.1},
        {"prompt_cache_key": "k", "safety_identifier": "u"},
        {"drop_params": True, "litellm_session_id": "s"},
        {"metadata": {"a": "b"}},
        {"service_tier": "default"},
        {"service_tier": "on_demand"},
        {"modalities": ["text"]},
        {"parallel_tool_calls": True},
        {"parallel_tool_calls": False},
        {"tool_choice": "auto"},
        {"tool_choice": "none", "parallel_tool_calls": True},
        {"tools": [], "tool_choice": "none"},
        {"extra_body": {"google": {"thinking_config": {"include_thoughts": True}}}},
        {"messages": [{"role": "user", "content": "Hi"}, TOLD, {"role": "user", "content": "Hi"}]},
        MARK,
        {"messages": [{"role": "system", "content": "Be."}, MARKED]},
        {"tools": [{**CALLED, **MARK}]},
        {"tools": [{**CALLED, **OF_TOOLS}]},
        {"tools": [{**CALLED, "function": {**CALLED["function"], **OF_TOOLS}}]},
        {"messages": [{"role": "system", "name": "app", "content": "Be."}, NAMED]},
        {"messages": [BREAKPOINT]},
        {"tools": [CALLED], "messages": RESULT},
        {"messages": [*user()["messages"], BLANK, GOES_ON]},
        {"tools": [CALLED], "messages": [*RESULT, BLANK, GOES_ON]},
        {"messages": [{"role": "system", "content": ""}, GOES_ON]},
    ],
    "responses": [
        *({"reasoning": {"effort": effort}} for effort in EFFORTS),
        {"text": {"verbosity": "low"}},
        {"frequency_penalty": 0.1, "presence_penalty": 0.1},
        {"include": ["reasoning.encrypted_content"], "store": False},
        {"truncation": "auto", "prompt_cache_key": "k", "safety_identifier": "u"},
        {"max_output_tokens": 5},
        *({"tool_choice": choice, "parallel_tool_calls": False} for choice in ("auto", "none")),
        {"input": [GOES_ON, BLANK, GOES_ON]},
        {"input": [{"role": "developer", "content": ""}, GOES_ON]},
        {"input": [GOES_ON, {"role": "assistant", "content": [{"type": "output_text", "text": ""}]}, GOES_ON]},
    ],
    "messages": [
        *({"output_config": {"effort": effort}} for effort in EFFORTS[2:]),
        {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        {"thinking": {"type": "disabled"}},
        *({"tool_choice": {"type": choice}} for choice in ("auto", "none")),
        {"system": [{"type": "text", "text": "Be.", **MARK}]},
        {"tools": [{"name": "f", "input_schema": SCHEMA, **MARK}]},
        {"messages": [{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be."}, MARKED]},
        user(DOCUMENT),
        user({**DOCUMENT, "context": "Of today"}),
        user(FOUND),
        {"messages": [*user()["messages"], {**BLANK, "content": [{"type": "text", "text": ""}]}, GOES_ON]},
    ],
    "gemini": [
        *({"generationConfig": {"thinkingConfig": {"thinkingLevel": level}}} for level in ("MINIMAL", "HIGH")),
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
        {"generationConfig": {"temperature": 1, "topP": 0.95, "topK": 64}},
        *({"toolConfig": {"functionCallingConfig": {"mode": mode}}} for mode in ("AUTO", "NONE")),
        {"labels": {"a": "b"}, "generationConfig": {"audioTimestamp": False}},
        {"systemInstruction": {"parts": [{"text": ""}]}},
        {
            "contents": [
                *SAID["gemini"]["contents"],
                {"role": "model", "parts": [{"text": ""}]},
                *SAID["gemini"]["contents"],
            ]
        },
    ],
}
Gateway = tuple[RunningGateway, dict[str, Served]]


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway before all places, each alone, and two that are raced."""
    raced: Json = {
        "raced": {
            "deployments": [f"{name}/{PLACES[name].model}" for name in ("azure-4.1", "gpt-oss", "grok", "mistral")],
            "race": {"mode": "race", "width": 4},
        }
    }
    async with AsyncExitStack() as stack:
        vendors = await stack.enter_async_context(standing_in(PLACES))
        yield await stack.enter_async_context(gateway_before(tmp_path, PLACES, vendors, models=raced)), vendors


async def asked(running: RunningGateway, api: str, model: str, fields: Json, *, stream: bool = False) -> str:
    """Ask; return what its client is told was left out."""
    path = PATHS[api].format(model)
    sent = {**SAID[api], **fields}
    if api == "gemini":
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else path
    else:
        sent |= {"model": model, "stream": stream}
    async with running.post(sent, path=path) as response:
        assert response.status == 200, (model, fields, await response.text())
        await response.read()
    return str(response.headers.get("x-holeshot-dropped", ""))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("api", PATHS)
async def test_no_preference_is_refused_first(gateway: Gateway, api: str, stream: bool) -> None:
    running, vendors = gateway
    wrong = []
    for model in (*PLACES, "raced"):
        for fields in PREFERENCES[api]:
            before = {name: len(vendor.refusals) for name, vendor in vendors.items()}
            await asked(running, api, model, fields, stream=stream)
            refused = [each.message for name, vendor in vendors.items() for each in vendor.refusals[before[name] :]]
            wrong += [(model, fields, *refused)] if refused else []
    assert wrong == []


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-oss"])
@pytest.mark.parametrize(("field", "value"), [("service_tier", "priority"), ("tool_choice", "required")])
async def test_a_must_is_never_left_out(gateway: Gateway, model: str, field: str, value: str) -> None:
    running, vendors = gateway
    async with running.post({**SAID["chat"], field: value, "model": model}, path=PATHS["chat"]) as response:
        assert response.status == 200 or field in await response.text()
    assert [one.body[field] for one in vendors[model].seen] in ([], [value])


async def test_a_blank_turn_that_is_left_out_is_told(gateway: Gateway) -> None:
    running, vendors = gateway
    history = [*RESULT[:2], {"role": "tool", "tool_call_id": "call00001", "content": "rain"}, BLANK, GOES_ON]
    for model in ("mistral", "grok"):
        assert await asked(running, "chat", model, {"messages": history, "tools": [CALLED]}) == "messages[3]"
        assert BLANK not in vendors[model].seen[-1].body["messages"]


async def test_details_of_tools_and_names_that_are_left_out_are_told(gateway: Gateway) -> None:
    running, vendors = gateway
    named = {"messages": [{"role": "system", "name": "app", "content": "Be."}, NAMED]}
    for model in ("gpt-4.1", "azure-4.1", "gpt-oss", "mistral"):
        told = await asked(running, "chat", model, {"tools": [{**CALLED, **OF_TOOLS}]})
        assert sorted(told.split(", ")) == [f"tools.{name}" for name in OF_TOOLS]
        assert vendors[model].seen[-1].body["tools"] == [CALLED]
    assert await asked(running, "chat", "mistral", named) == "messages[0].name, messages[1].name"
    result = [*RESULT[:2], {"role": "tool", "tool_call_id": "call00001", "name": "f", "content": "rain"}]
    assert await asked(running, "chat", "mistral", {"messages": result, "tools": [CALLED]}) == ""
    assert vendors["mistral"].seen[-1].body["messages"] == result


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_answer_is_as_short_as_asked_for_where_openai_writes_sixteen_tokens(
    gateway: Gateway, stream: bool
) -> None:
    running, vendors = gateway
    for limit, asks, told in ((2, 16, "max_output_tokens"), (16, 16, ""), (400, 400, "")):
        sent: Json = {**SAID["responses"], "model": "gpt-4.1", "max_output_tokens": limit, "stream": stream}
        async with running.post(sent, path=PATHS["responses"]) as response:
            text = await response.text()
        assert (response.status, response.headers.get("x-holeshot-dropped", "")) == (200, told)
        assert ("incomplete" in text and '"reason":"max_output_tokens"' in text) is (limit == 2), text
        assert vendors["gpt-4.1"].seen[-1].body["max_output_tokens"] == asks
    kept: Json = {**SAID["responses"], "model": "gpt-4.1", "max_output_tokens": 2, "store": True}
    async with running.post(kept, path=PATHS["responses"]) as response:
        assert response.status == 400  # what the vendor keeps would have more


TAKING: Mapping[str, Place] = {
    "openrouter": Place("openrouter", "openrouter", "anthropic/claude-sonnet-4.5", "chat"),
    "dashscope": Place("dashscope", "dashscope", "qwen3.7-plus", "chat"),
    "vllm": Place("vllm", "vllm", "Qwen/Qwen3.5-27B", "chat"),
    "gpt-oss": PLACES["gpt-oss"],
    "gpt-4.1": PLACES["gpt-4.1"],
}
# By place, what reaches it as it was sent.
TAKEN: Mapping[str, Sequence[Json]] = {
    "openrouter": [
        {"tools": [{**CALLED, **MARK}], "messages": [MARKED]},
        {"verbosity": "low"},
        {"reasoning": {"effort": "low"}},
    ],
    "dashscope": [{"messages": [MARKED]}, {"enable_thinking": True, "thinking_budget": 1024}],
    "vllm": [
        {"messages": [MARKED]},
        {"messages": [NAMED], "tools": [{**CALLED, **OF_TOOLS}]},
        {"messages": [MARKED, BLANK, GOES_ON]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"top_k": 40},
    ],
    "gpt-oss": [
        {"messages": [MARKED]},
        {"messages": [NAMED]},
        {"reasoning_effort": "high"},
        {"include_reasoning": True},
    ],
    "gpt-4.1": [
        {"messages": [NAMED, BREAKPOINT]},
        {"prompt_cache_key": "k", "safety_identifier": "u", "service_tier": "flex"},
        {"frequency_penalty": 0.1, "temperature": 0.7, "top_p": 0.9},
        {"verbosity": "medium"},
        {"metadata": {"a": "b"}, "store": True},
        {"tools": [CALLED], "tool_choice": "auto", "parallel_tool_calls": True},
    ],
}


@pytest.mark.parametrize("fields", [{"tool_choice": "auto"}, {"tools": []}, {"tools": [], "tool_choice": "none"}])
async def test_vllm_is_sent_nothing_about_tools_where_there_are_none(tmp_path: Path, fields: Json) -> None:
    place = {"vllm": TAKING["vllm"]}
    async with AsyncExitStack() as stack:
        vendors = await stack.enter_async_context(standing_in(place))
        running = await stack.enter_async_context(gateway_before(tmp_path, place, vendors))
        assert await asked(running, "chat", "vllm", fields) == ""
        assert vendors["vllm"].refusals == []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_a_vendor_takes_reaches_it(tmp_path: Path, stream: bool) -> None:
    async with standing_in(TAKING) as vendors, gateway_before(tmp_path, TAKING, vendors) as running:
        for name, given in TAKEN.items():
            for fields in given:
                dropped = await asked(running, "chat", name, fields, stream=stream)
                sent = vendors[name].seen[-1].body
                arrived = {field: sent.get(field) for field in fields if fields[field] != "medium"}
                assert (arrived, dropped) == ({each: fields[each] for each in arrived}, ""), (name, fields)
        assert {name: vendor.said for name, vendor in vendors.items() if vendor.refusals} == {}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("top_k", [1, 40])
async def test_vllm_reads_the_top_k_of_clients_of_each_api(tmp_path: Path, top_k: int, stream: bool) -> None:
    place = {"vllm": TAKING["vllm"]._replace(says_api=True)}
    asks: Mapping[str, Json] = {"messages": {"top_k": top_k}, "gemini": {"generationConfig": {"topK": top_k}}}
    async with standing_in(place) as vendors, gateway_before(tmp_path, place, vendors) as running:
        for api, fields in asks.items():
            assert await asked(running, api, "vllm", fields, stream=stream) == ""
            assert vendors["vllm"].seen[-1].body["top_k"] == top_k


REFUSING_BLANKS: Mapping[str, Place] = {
    "claude-4.5": Place("anthropic", "anthropic", "claude-haiku-4-5", "messages"),
    "claude-5.5": Place("anthropic", "anthropic", "claude-opus-5-5", "messages"),
    "bedrock": Place("bedrock", "bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0", "converse"),
    "google": PLACES["google"],
    "interactions": Place("google", "google", "gemini-3.6-flash", "interactions", says_api=True),
}
SAYS = {"role": "assistant", "content": "Yo"}
EACH_BLANK = "".join(filter(str.isspace, map(chr, range(0x10000)))) * 3


def blanks(text: str) -> Iterator[tuple[str, Json]]:
    """Yield requests of each API in which somebody says this blank text."""
    part, asks, calls = {"type": "text", "text": text}, RESULT[0], RESULT[1]
    result = {"role": "tool", "tool_call_id": "call00001"}
    tools = {"tools": [CALLED]}
    yield "chat", {"messages": [{"role": "system", "content": text}, GOES_ON]}
    yield "chat", {"messages": [GOES_ON, SAYS, {"role": "developer", "content": text}]}
    for content in (text, [part]):
        yield "chat", {"messages": [GOES_ON, {"role": "assistant", "content": content}, GOES_ON]}
        yield "chat", {"messages": [GOES_ON, SAYS, {"role": "user", "content": content}]}
        yield "chat", {**tools, "messages": [asks, calls, {**result, "content": content}]}
        yield "chat", {**tools, "messages": [asks, {**calls, "content": content}, {**result, "content": "1"}]}
    yield "chat", {"messages": [{"role": "user", "content": [part, {"type": "text", "text": "Hi"}]}]}
    yield "responses", {"input": [GOES_ON, {"role": "assistant", "content": text}, GOES_ON], "instructions": text}
    yield "responses", {"input": [GOES_ON, SAYS, {"role": "user", "content": text}]}
    said = SAID["gemini"]["contents"]
    yield "gemini", {"contents": [*said, {"role": "model", "parts": [{"text": text}]}, *said]}
    yield "gemini", {"systemInstruction": {"parts": [{"text": text}]}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_no_blank_of_another_api_is_refused_first(tmp_path: Path, stream: bool) -> None:
    async with standing_in(REFUSING_BLANKS) as vendors, gateway_before(tmp_path, REFUSING_BLANKS, vendors) as running:
        for name, vendor in vendors.items():
            for text in ("", " ", "\n" * 99, EACH_BLANK):
                for api, fields in blanks(text):
                    await asked(running, api, name, fields, stream=stream)
                    assert vendor.refusals == [], (name, api, fields)


async def test_a_last_turn_without_words_lets_no_model_go_on_with_its_answer(tmp_path: Path) -> None:
    async with standing_in(REFUSING_BLANKS) as vendors, gateway_before(tmp_path, REFUSING_BLANKS, vendors) as running:
        for name, field in (("claude-4.5", "messages"), ("google", "contents"), ("interactions", "input")):
            messages = [GOES_ON, SAYS, {"role": "user", "content": ""}]
            await asked(running, "chat", name, {"messages": messages})
            last = vendors[name].seen[-1].body[field][-1]
            assert "…" in str(last), last
