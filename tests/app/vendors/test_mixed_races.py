"""What a program would hear of a refusal, and take back, nobody hears in a race: each vendor is asked all the same."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import running_vendor
from tests.app.gateway.running_gateway import serving

Json = dict[str, Any]

SCHEMA: Json = {"type": "object", "properties": {"path": {"type": "string"}}}
FOUND: Json = {
    "type": "tool_result",
    "tool_use_id": "toolu_1",
    "content": [{"type": "tool_reference", "tool_name": "Fetch"}],
}
CLAUDE_CODE: Json = {  # its requests of 2.1.332, with a tool that it has found
    "model": "m",
    "max_tokens": 32000,
    "tools": [
        {"name": "Read", "input_schema": SCHEMA},
        {"name": "ToolSearch", "input_schema": SCHEMA},
        {"name": "Fetch", "input_schema": SCHEMA, "defer_loading": True},
    ],
    "messages": [
        {"role": "user", "content": "say: well"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {}}]},
        {"role": "user", "content": [FOUND, {"type": "text", "text": "say: well"}]},
    ],
}
VENDORS = {
    "openai": ("openai", "gpt-4.1"),
    "mistral": ("mistral", "mistral-large-latest"),
    "google": ("google", "gemini-2.5-flash"),
    "bedrock": ("bedrock_converse", "us.anthropic.claude-haiku-4-5-20251001-v1:0"),
}


@pytest.mark.parametrize("other", VENDORS)
async def test_tools_that_are_loaded_when_found_keep_nobody_out(tmp_path: Path, other: str) -> None:
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(name)) for name in ("anthropic", other)}
        models = {"anthropic": ("anthropic", "claude-haiku-4-5"), **VENDORS}
        providers = {
            name: {"preset": models[name][0], "base_url": vendor.base_url, "api_key": vendor.key}
            for name, vendor in vendors.items()
        }
        deployments = [f"{name}/{models[name][1]}" for name in vendors]
        settings: Json = {"deployments": deployments, "race": {"mode": "race", "width": 2}}
        running = await stack.enter_async_context(
            serving(tmp_path, {"unused": None}, providers=providers, models={"m": settings})
        )
        for _ in range(3):
            async with running.post(CLAUDE_CODE, path="/v1/messages") as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-holeshot-launched"] == "2"
                dropped = response.headers.get("x-holeshot-dropped")
                winner = response.headers["x-holeshot-provider"]
                assert dropped == (None if winner == "anthropic" else "tools[2].defer_loading")
                assert (await response.json())["content"][0]["text"] == "well"
        for vendor in vendors.values():
            assert vendor.refusals == [], vendor.said


CALLED_WITHOUT_THOUGHTS: Json = {  # a program's next step, after another model than Claude has called the tool
    "model": "m",
    "max_tokens": 9000,
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "tools": [{"name": "Read", "input_schema": SCHEMA}],
    "messages": [
        {"role": "user", "content": "say: well"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]},
    ],
}


async def test_claude_is_asked_not_to_think_on_where_another_has_called_a_tool_without_thoughts(tmp_path: Path) -> None:
    async with running_vendor("anthropic") as vendor:
        provider = {"preset": "anthropic", "base_url": vendor.base_url, "api_key": vendor.key}
        settings: Json = {"deployments": ["anthropic/claude-haiku-4-5"]}
        async with serving(
            tmp_path, {"unused": None}, providers={"anthropic": provider}, models={"m": settings}
        ) as running:
            async with running.post(CALLED_WITHOUT_THOUGHTS, path="/v1/messages") as response:
                assert response.status == 200, await response.text()
                assert response.headers["x-holeshot-dropped"] == "thinking"
            on = CALLED_WITHOUT_THOUGHTS["messages"][:1]
            async with running.post({**CALLED_WITHOUT_THOUGHTS, "messages": on}, path="/v1/messages") as response:
                assert response.status == 200, await response.text()
                assert "x-holeshot-dropped" not in response.headers
        assert vendor.refusals == [], vendor.said
        assert ["thinking" in each.body for each in vendor.seen] == [False, True]


IN_WORDS: Json = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
CALLED_BY_ANOTHER: Json = {  # likewise, in Responses: the thoughts of a model that gives them in words
    "model": "m",
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "tools": [{"type": "function", "name": "read", "parameters": SCHEMA}],
    "input": [
        {"role": "user", "content": "say: well"},
        {**IN_WORDS, "encrypted_content": "", "status": "completed"},
        {"type": "function_call", "call_id": "call_1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "x"},
    ],
}


@pytest.mark.parametrize(
    ("name", "model", "dropped"),
    [("openai", "gpt-5", "input[1]"), ("vllm", "Qwen/Qwen3.5-27B", None)],
    ids=["OpenAI", "vLLM"],
)
async def test_thoughts_in_words_are_sent_to_who_takes_them(
    tmp_path: Path, name: str, model: str, dropped: str | None
) -> None:
    async with running_vendor(name) as vendor:
        provider = {"preset": name, "base_url": vendor.base_url, "api_key": vendor.key, "apis": ["responses"]}
        settings: Json = {"deployments": [f"{name}/{model}"]}
        async with (
            serving(tmp_path, {"unused": None}, providers={name: provider}, models={"m": settings}) as running,
            running.post(CALLED_BY_ANOTHER, path="/v1/responses") as response,
        ):
            assert response.status == 200, await response.text()
            assert response.headers.get("x-holeshot-dropped") == dropped
        assert vendor.refusals == [], vendor.said
        [asked] = vendor.seen
        assert ("reasoning_text" in str(asked.body)) is (dropped is None)


SCHEMA_ASKED: Json = {
    "model": "m",
    "messages": [{"role": "user", "content": 'say: {"path": "a"}'}],
    "response_format": {"type": "json_schema", "json_schema": {"name": "found", "schema": SCHEMA}},
}


async def test_a_vendor_without_schemas_is_asked_for_one_only_where_nobody_else_is(tmp_path: Path) -> None:
    async with running_vendor("deepseek") as deepseek, running_vendor("openai") as openai:
        providers = {
            "deepseek": {"preset": "deepseek", "base_url": deepseek.base_url, "api_key": deepseek.key},
            "openai": {"preset": "openai", "base_url": openai.base_url, "api_key": openai.key},
        }
        here, there, race = "deepseek/deepseek-v4-flash", "openai/gpt-4.1", {"mode": "race", "width": 2, "budget": 1.0}
        models: Json = {
            "m": {"deployments": [here, there], "race": race},
            "alone": {"deployments": [here]},
            "told": {"deployments": [{"deployment": here, "capabilities": {"json_schema": True}}, there], "race": race},
            "replaced": {"deployments": [here], "fallbacks": ["spare"]},
            "spare": {"deployments": [there]},
            "lost": {"deployments": [here], "fallbacks": ["alone"]},
        }
        async with serving(tmp_path, {"unused": None}, providers=providers, models=models) as running:
            for _ in range(3):
                async with running.post(SCHEMA_ASKED) as response:
                    assert (response.status, response.headers["x-holeshot-provider"]) == (200, "openai")
            assert (deepseek.seen, openai.refusals) == ([], [])
            async with running.post({**SCHEMA_ASKED, "response_format": {"type": "text"}}) as response:
                assert (response.status, response.headers["x-holeshot-launched"]) == (200, "2")
            async with running.post({**SCHEMA_ASKED, "model": "alone"}) as response:
                assert response.status == 400
                assert "This response_format type is unavailable now" in await response.text()
            assert len(deepseek.refusals) == 1
            async with running.post({**SCHEMA_ASKED, "model": "told"}) as response:
                assert (response.status, response.headers["x-holeshot-provider"]) == (200, "openai")
            assert len(deepseek.refusals) == 2
            # A fallback is asked in its place, the model's or the request's own; for all else it is asked itself.
            for model, more in (("replaced", {}), ("alone", {"models": ["alone", "spare"]})):
                async with running.post({**SCHEMA_ASKED, "model": model, **more}) as response:
                    assert (response.status, response.headers["x-holeshot-fallback"]) == (200, "spare")
            asked = len(deepseek.seen)
            async with running.post(
                {**SCHEMA_ASKED, "model": "replaced", "response_format": {"type": "text"}}
            ) as response:
                assert (response.status, response.headers["x-holeshot-provider"]) == (200, "deepseek")
            assert (len(deepseek.seen), len(deepseek.refusals)) == (asked + 1, 2)
            async with running.post({**SCHEMA_ASKED, "model": "lost"}) as response:
                assert response.status == 400
                assert "This response_format type is unavailable now" in await response.text()
            assert len(deepseek.refusals) == 3


@pytest.mark.parametrize(("vendor", "model"), [("groq", "openai/gpt-oss-120b"), ("mistral", "mistral-medium-latest")])
async def test_other_vendors_ways_to_say_how_to_think_are_left_out_before_they_are_refused(
    tmp_path: Path, vendor: str, model: str
) -> None:
    async with running_vendor(vendor) as served:
        providers = {vendor: {"preset": vendor, "base_url": served.base_url, "api_key": served.key}}
        models: Json = {
            "m": {"deployments": [f"{vendor}/{model}"]},
            "two": {"deployments": [f"{vendor}/{model}", "alpha/m"], "race": {"mode": "single"}},
        }
        async with serving(tmp_path, {"alpha": None}, providers=providers, models=models) as running:
            for said in ({"thinking": {"type": "enabled"}}, {"enable_thinking": True}):
                body: Json = {"model": "m", "messages": [{"role": "user", "content": "say: well"}], **said}
                async with running.post(body) as response:
                    assert response.status == 200, await response.text()
                    assert response.headers["x-holeshot-dropped"] == next(iter(said))
                async with running.post({**body, "model": "two"}) as response:
                    assert response.headers["x-holeshot-provider"] == "alpha"  # which takes it
        assert served.refusals == [], served.said
