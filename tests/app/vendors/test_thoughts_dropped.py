"""What a vendor tells of thoughts that it did not show its model is in the attempt's row, and told to every client."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_edited_histories import at_time, begun, with_second_result_shortened
from tests.app.vendors.test_signed_loops import PATHS, answered, gone_on

Json = dict[str, Any]

CLAUDE, BOUND_TO_ACCOUNT, GPT = "claude-opus-5-5", "claude-sonnet-5-5", "gpt-6.2-astra"
OTHER, WHOLE = "other", "whole"  # another account, told to be the same; and answers that no provider streams
TOLD = "select thoughts_dropped from attempts order by started_at desc limit 1"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[RunningGateway]:
    """A gateway before the stand-ins of Anthropic, twice, and OpenAI, each model alone."""
    async with AsyncExitStack() as stack:
        vendors = {
            "anthropic": await stack.enter_async_context(running_vendor("anthropic")),
            "openai": await stack.enter_async_context(running_vendor("openai")),
            OTHER: await stack.enter_async_context(running_vendor("anthropic", key="sk-ant-api03-other")),
        }
        providers: Json = {
            name: {"preset": name, "base_url": vendor.base_url, "api_key": vendor.key}
            for name, vendor in vendors.items()
        }
        providers[OTHER] |= {"preset": "anthropic", "account": "one"}
        providers["anthropic"] |= {"account": "one"}
        models: Json = {name: {"deployments": [f"anthropic/{name}"]} for name in (CLAUDE, BOUND_TO_ACCOUNT)}
        models[GPT] = {"deployments": [f"openai/{GPT}"]}
        models[OTHER] = {"deployments": [f"{OTHER}/{BOUND_TO_ACCOUNT}"]}
        for name, deployment in ((CLAUDE, f"anthropic/{CLAUDE}"), (GPT, f"openai/{GPT}")):
            whole = {"deployment": deployment, "as": f"{name}-whole", "upstream_stream": False}
            models[f"{name}-{WHOLE}"] = {"deployments": [whole]}
        yield await stack.enter_async_context(serving(tmp_path, {"unused": None}, providers=providers, models=models))
        assert {name: vendor.said for name, vendor in vendors.items() if vendor.refusals} == {}


async def told(running: RunningGateway, api: str, model: str, body: Json, *, stream: bool) -> tuple[Json, str]:
    """Return what the row of a call has, and what its client is told."""
    path = PATHS[api].format(model=model)
    path = path if stream else path.replace(":streamGenerateContent?alt=sse", ":generateContent")
    sent = body if api == "gemini" else {**body, "model": model, "stream": stream}
    async with running.post(sent, path=path) as response:
        assert response.status == 200, await response.text()
        await response.read()
        dropped = response.headers.get("x-holeshot-dropped", "")
    [row] = await running.rows(TOLD)
    return json.loads(row["thoughts_dropped"] or "null"), dropped


async def turns(running: RunningGateway, api: str, model: str, number: int, *, stream: bool) -> Json:
    """Return the request after so many turns."""
    body = begun(api)
    for _ in range(number):
        body = gone_on(api, body, await answered(running, api, model, body, stream=stream))
    return body


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("model", [CLAUDE, f"{CLAUDE}-{WHOLE}"])
async def test_what_claude_is_not_shown_is_in_the_row(
    running: RunningGateway, model: str, api: str, stream: bool
) -> None:
    body = await turns(running, api, model, 2, stream=stream)
    checks, dropped = await told(running, api, model, body, stream=stream)
    assert (checks, "messages[" in dropped) == (None, False)
    checks, dropped = await told(running, api, model, at_time(api, body, "It is noon."), stream=stream)
    assert checks == {"prefix": 2}
    assert {"messages[1].content[0]", "messages[3].content[0]"} <= set(dropped.split(", "))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("model", [GPT, f"{GPT}-{WHOLE}"])
async def test_what_gpt_is_not_shown_is_in_the_row(running: RunningGateway, model: str, api: str, stream: bool) -> None:
    body = await turns(running, api, model, 3, stream=stream)
    checks, dropped = await told(running, api, model, body, stream=stream)
    assert (checks, "input[" in dropped) == (None, False)
    edited = with_second_result_shortened(body)
    checks, dropped = await told(running, api, model, edited, stream=stream)
    assert checks == {"prefix": 1}
    assert "input[" in dropped


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("api", PATHS)
async def test_another_account_is_told_from_an_edit(running: RunningGateway, api: str, stream: bool) -> None:
    body = await turns(running, api, BOUND_TO_ACCOUNT, 2, stream=stream)
    checks, dropped = await told(running, api, OTHER, body, stream=stream)
    assert checks == {"account": 2}
    assert {"messages[1].content[0]", "messages[3].content[0]"} <= set(dropped.split(", "))
