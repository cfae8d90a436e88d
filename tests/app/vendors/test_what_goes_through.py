"""What two APIs can both say of a request is taken by the strict vendors: the rows of ``pairs.py``, over sockets.

A vendor whose API has no place for it, or whose model does not take it, is not asked, and the client is told so.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Served, running_vendor
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.vendors.test_any_conversation import VENDORS, asked, preset
from tests.unit.providers.dialects.pairs import CONFIG, THINGS, Json

SAID: Mapping[str, Json] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4096},
    "responses": {"input": "Hi"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}
# Whose APIs these are; others have parts of OpenAI's, and a model's own refusals teach.
OWN: Mapping[str, tuple[str, ...]] = {
    "gpt-4o": ("chat", "responses"),
    "gpt-5": ("chat", "responses"),
    "claude": ("messages",),
    "gemini-2": ("gemini",),
    "gemini-3": ("gemini",),
    "bedrock": (),
}
TOLD = "unsupported_by_deployments", "can answer this request", "answers with at most"  # the gateway's own words


def nested(body: Json) -> Json:
    """Return a body of Google's API with the fields of its configuration in that."""
    inner = {name.removeprefix(CONFIG): value for name, value in body.items() if name.startswith(CONFIG)}
    outer = {name: value for name, value in body.items() if not name.startswith(CONFIG)}
    return {**outer, "generationConfig": inner} if inner else outer


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[tuple[RunningGateway, dict[str, Served]]]:
    """A gateway before them, each a model of its own."""
    async with AsyncExitStack() as stack:
        vendors = {name: await stack.enter_async_context(running_vendor(VENDORS[name][0])) for name in OWN}
        providers: dict[str, Any] = {
            name: {"base_url": vendor.base_url, "api_key": vendor.key, **preset(name)}
            for name, vendor in vendors.items()
        }
        models = {name: {"deployments": [f"{name}/{VENDORS[name][2]}"]} for name in vendors}
        yield (
            await stack.enter_async_context(serving(tmp_path, {"alpha": None}, providers=providers, models=models)),
            vendors,
        )


@pytest.mark.parametrize("api", SAID)
async def test_it_is_taken_by_the_strict_vendors_or_told(
    gateway: tuple[RunningGateway, dict[str, Served]], api: str
) -> None:
    running, vendors = gateway
    wrong: list[str] = []

    async def ask(name: str) -> None:
        for title, thing in THINGS.items():
            if api not in thing.asked or api in OWN[name]:
                continue
            body = {**SAID[api], **thing.asked[api]}
            path, sent = asked(api, name, nested(body) if api == "gemini" else body)
            refused = len(vendors[name].refusals)
            async with running.post(sent, path=path) as response:
                text = await response.text()
            is_told = response.status == 400 and any(words in text for words in TOLD)
            if (response.status != 200 or len(vendors[name].refusals) > refused) and not is_told:
                wrong.append(f"{name}: {title}: {response.status} {text[:300]}\n{vendors[name].said[-300:]}")

    async with asyncio.TaskGroup() as group:
        for name in vendors:
            group.create_task(ask(name))
    assert not wrong, "\n".join(wrong)
