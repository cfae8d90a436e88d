"""Thoughts that are bound to models and to an organization: who else is asked gets them as its vendor's row says.

GPT-6.2 "drops reasoning items after … certain model changes (including downgrades), or changes to the end user or
organization" (developers.openai.com/api/docs/guides/latest-model/gpt-6.2-astra.md, read on 2026-11-29). Which models of
a vendor read each other's is its own to know: it drops what they do not, and tells.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_edited_histories import begun
from tests.app.vendors.test_signed_loops import PATHS, answered, gone_on

Json = dict[str, Any]
Gateway = tuple[RunningGateway, dict[str, Served]]
MODELS = {
    "astra": "openai/gpt-6.2-astra",
    "sol": "openai/gpt-6.2-sol",
    "opus": "anthropic/claude-opus-5-5",
    "sonnet": "anthropic/claude-sonnet-5-5",
    "haiku": "anthropic/claude-haiku-5-5",
    "fable": "anthropic/claude-fable-5-2",
    "elsewhere": "other/gpt-6.2-astra",
}
# The next turn goes to another model; whether that reads what the first has thought.
TURNS = {
    ("astra", "sol"): False,
    ("sol", "astra"): True,
    ("opus", "sonnet"): False,
    ("opus", "fable"): True,
    ("haiku", "sonnet"): True,
    ("sonnet", "haiku"): False,
}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway before Anthropic and two organizations of OpenAI."""
    async with AsyncExitStack() as stack:
        vendors = {
            "openai": await stack.enter_async_context(running_vendor("openai")),
            "other": await stack.enter_async_context(running_vendor("openai", account="another")),
            "anthropic": await stack.enter_async_context(running_vendor("anthropic")),
        }
        providers: Json = {
            name: {"preset": "openai" if name == "other" else name, "base_url": vendor.base_url, "api_key": vendor.key}
            for name, vendor in vendors.items()
        }
        models: Json = {name: {"deployments": [deployment]} for name, deployment in MODELS.items()}
        models["both"] = {
            "deployments": [MODELS["elsewhere"], MODELS["astra"]],
            "race": {"mode": "race", "width": 2},
        }
        running = await stack.enter_async_context(
            serving(tmp_path, {"unused": None}, providers=providers, models=models)
        )
        yield running, vendors


async def told(running: RunningGateway, api: str, model: str, body: Json) -> str:
    """Return what a client is told that was left out of its turns."""
    path = PATHS[api].format(model=model).replace(":streamGenerateContent?alt=sse", ":generateContent")
    async with running.post(body if api == "gemini" else {**body, "model": model}, path=path) as response:
        assert response.status == 200, await response.read()
        dropped = str(response.headers.get("x-holeshot-dropped", ""))
    return ", ".join(each for each in dropped.split(", ") if each.startswith(("messages", "input", "contents")))


def not_shown(vendor: Served) -> list[Any]:
    """Return the thoughts that it was sent, and showed no model."""
    found: Any = vendor.vendor
    return list(found.dropped)


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize(("one", "other"), TURNS, ids=[f"{one} to {other}" for one, other in TURNS])
async def test_another_model_is_shown_what_it_reads_and_the_client_is_told_of_the_rest(
    gateway: Gateway, api: str, one: str, other: str
) -> None:
    running, vendors = gateway
    vendor = vendors[MODELS[one].partition("/")[0]]
    body = gone_on(api, begun(api), await answered(running, api, one, begun(api), stream=True))
    assert bool(await told(running, api, other, body)) is not TURNS[one, other]
    assert (bool(not_shown(vendor)), vendor.said) == (not TURNS[one, other], "")


@pytest.mark.parametrize("api", PATHS)
async def test_another_organization_is_sent_none_and_the_client_told(gateway: Gateway, api: str) -> None:
    running, vendors = gateway
    body = gone_on(api, begun(api), await answered(running, api, "astra", begun(api), stream=True))
    assert await told(running, api, "elsewhere", body)
    other = vendors["other"]
    assert (not_shown(other), other.said) == ([], "")
    assert "encrypted_content" not in str(other.seen[-1].body["input"])


@pytest.mark.parametrize("api", PATHS)
async def test_another_organization_is_not_raced_in_the_next_turn(gateway: Gateway, api: str) -> None:
    running, vendors = gateway
    body = begun(api)
    for _ in range(3):
        body = gone_on(api, body, await answered(running, api, "both", body, stream=True))
    raced = {name: len(vendors[name].seen) for name in ("openai", "other")}
    assert sorted(raced.values()) == [1, 3]
    for name in raced:
        assert not_shown(vendors[name]) == []
