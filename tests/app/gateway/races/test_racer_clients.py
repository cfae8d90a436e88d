"""Clients of SDKs on a ``Racer``, and what the frameworks' adapters hand over: the engine answers them in this process.

The real frameworks are run by ``make test WHAT=clients``; here their base classes are what the adapters rely on.
"""

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import openai
import pydantic
import pytest
from openai import AsyncOpenAI

from holeshot import Racer
from holeshot.clients import openai_client
from providers.simulator import Delta, Drop, Gate, Hang, RoleOnly, Status
from tests.support.moved_time import let_pass
from tests.support.raced import Raced, two_providers

SAID: Any = [{"role": "user", "content": "Why?"}]
LATE_S = 100.0  # less than any time limit of the attempts, and more than a busy machine takes to ask both providers


@pytest.fixture
async def raced(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Raced]:
    for name in [name for name in os.environ if name.startswith("HOLESHOT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # of which the client must take no notice
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")  # the engine's own requests do not go there
    async with two_providers() as found:
        yield found


@pytest.fixture
async def racer(raced: Raced) -> AsyncIterator[Racer]:
    async with Racer(**raced.arguments) as racer:
        yield racer


async def streamed(client: AsyncOpenAI) -> str:
    """Return the text of a streamed answer, as frameworks read it."""
    text = ""
    stream = await client.chat.completions.create(
        model="chat", messages=SAID, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    return text


async def test_openais_client_gets_answers_events_models_and_the_gateways_headers(racer: Racer) -> None:
    client = openai_client(racer)
    whole = await client.chat.completions.with_raw_response.create(model="chat", messages=SAID)
    assert whole.parse().choices[0].message.content == "Hello!"
    assert (whole.headers["x-holeshot-deployment"], whole.headers["x-holeshot-launched"]) == ("fast/m", "2")
    assert await streamed(client) == "Hello!"
    response = await client.responses.create(model="chat", input="Why?")
    assert response.output_text == "Hello!"
    assert [model.id async for model in client.models.list()] == ["chat"]
    alone = {"x-holeshot-race": '{"mode": "single"}'}
    single = await client.chat.completions.with_raw_response.create(model="chat", messages=SAID, extra_headers=alone)
    assert (whole.headers["x-holeshot-mode"], single.headers["x-holeshot-mode"]) == ("race", "single")


async def test_openais_client_raises_its_own_errors(raced: Raced, racer: Racer) -> None:
    client = openai_client(racer)
    with pytest.raises(openai.NotFoundError, match="chta"):
        await client.chat.completions.create(model="chta", messages=SAID)
    with pytest.raises(openai.NotFoundError, match="a Racer has no /v1/embeddings"):
        await client.embeddings.create(model="chat", input="Why?")
    with pytest.raises(openai.BadRequestError, match="messages"):
        await client.chat.completions.create(model="chat", messages=[])
    broken = asyncio.Event()
    raced.fast.script = [Gate(raced.slow.requested), RoleOnly(), Delta("Hel"), Gate(broken), Drop()]
    stream = await client.chat.completions.create(model="chat", messages=SAID, stream=True)
    broken.set()
    with pytest.raises(openai.APIError, match="server error"):
        [chunk async for chunk in stream]
    raced.fast.script = raced.slow.script = [Status(500)]
    asked = raced.fast.counts.requests
    with pytest.raises(openai.InternalServerError, match="every deployment of 'chat' failed"):
        await streamed(client)
    assert raced.fast.counts.requests == asked + 1  # the client does not ask again


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("how", ["cancelled", "closed", "late"])
async def test_whoever_stops_a_client_cuts_all_attempts(raced: Raced, racer: Racer, how: str, *, begun: bool) -> None:
    raced.fast.script = [Gate(raced.slow.requested), RoleOnly(), *([Delta("Hel")] if begun else []), Hang()]
    client, reading = openai_client(racer, timeout=LATE_S if how == "late" else None), asyncio.Event()

    async def read() -> None:
        stream = await client.chat.completions.create(model="chat", messages=SAID, stream=True)
        async with stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content:
                    reading.set()
                    if how == "closed":
                        break

    task = asyncio.create_task(read())
    await raced.fast.reach(requests=1)
    await raced.slow.reach(requests=1)
    if begun:
        await reading.wait()
    if how == "late":
        let_pass(LATE_S)
        with pytest.raises((openai.APITimeoutError, httpx.ReadTimeout)):
            await task
    elif how == "cancelled" or not begun:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await raced.fast.reach(disconnects=1)
    await raced.slow.reach(disconnects=1)


def test_importing_holeshot_asks_for_no_framework_and_no_sdk() -> None:
    """None of them need be installed here: what is asked for counts, not what is found."""
    frameworks = ("pipecat", "livekit", "pydantic_ai", "langchain_core", "langchain_openai", "openai", "anthropic")
    program = f"""
import sys
asked = set()
class Finder:
    def find_spec(name, path=None, target=None):
        asked.add(name.partition(".")[0])
sys.meta_path.insert(0, Finder)
import holeshot
holeshot.Racer, holeshot.race
print("gateway" in asked, asked & {set(frameworks)!r})
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "True set()"


# The parts of frameworks that the adapters are made of, with the arguments that these are called with.


class _PipecatsService:
    """``OpenAILLMService`` of pipecat-ai 1.14: it makes its client by ``create_client``, with these names."""

    @dataclass
    class Settings:
        model: str | None = None

    def __init__(self, *, settings: Settings | None = None, base_url: str | None = None, **options: Any) -> None:
        self.model = settings.model if settings is not None else None
        names = ("api_key", "organization", "project", "default_headers")
        self._client = self.create_client(base_url=base_url, **dict.fromkeys(names), **options)

    def create_client(self, api_key: str | None = None, **_: Any) -> AsyncOpenAI:
        raise NotImplementedError


class _LivekitsLlm:
    """``LLM`` of livekit-plugins-openai 1.8."""

    def __init__(self, *, model: str = "gpt-4.1", client: AsyncOpenAI | None = None, temperature: float = 1) -> None:
        self.model, self._client, self.temperature = model, client, temperature


class _PydanticsProvider:
    """``OpenAICompatibleProvider`` of pydantic-ai-slim 2.68."""

    def __init__(self, name: str, *, openai_client: AsyncOpenAI) -> None:
        self.name, self.client = name, openai_client


class _PydanticsModel:
    """``OpenAIChatModel`` of pydantic-ai-slim 2.68."""

    def __init__(self, model_name: str, *, provider: _PydanticsProvider, settings: object = None) -> None:
        self.model, self._client, self.settings = model_name, provider.client, settings


class _LangchainsModel(pydantic.BaseModel):
    """``BaseChatOpenAI`` of langchain-openai 1.7: without clients, it makes some that ask OpenAI."""

    client: Any
    async_client: Any
    root_client: Any
    root_async_client: Any
    model: str
    stream_usage: bool | None = None

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> str:
        return await streamed(self.root_async_client)

    async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> AsyncIterator[Any]:
        stream = await self.async_client.create(model=self.model, messages=messages, stream=True)
        async with stream:
            async for chunk in stream:
                yield SimpleNamespace(text=chunk.choices[0].delta.content or "")


# Each adapter, with the modules that it imports from its framework, how it is made, and where its client is.
FRAMEWORKS: dict[str, tuple[dict[str, dict[str, Any]], Callable[[Any, Racer], Any], str]] = {
    "pipecat": (
        {"pipecat.services.openai.llm": {"OpenAILLMService": _PipecatsService}},
        lambda module, racer: module.RacedLLMService(racer, model="chat"),
        "_client",
    ),
    "livekit": (
        {"livekit.plugins": {"openai": SimpleNamespace(LLM=_LivekitsLlm)}},
        lambda module, racer: module.RacedLLM(racer, model="chat", temperature=0),
        "_client",
    ),
    "pydantic_ai": (
        {
            "pydantic_ai.models.openai": {"OpenAIChatModel": _PydanticsModel},
            "pydantic_ai.providers.openai_compatible": {"OpenAICompatibleProvider": _PydanticsProvider},
        },
        lambda module, racer: module.RacedModel(racer, "chat", settings={}),
        "_client",
    ),
    "langchain": (
        {"langchain_openai.chat_models.base": {"BaseChatOpenAI": _LangchainsModel}},
        lambda module, racer: module.ChatRaced(racer=racer, model="chat"),
        "root_async_client",
    ),
}


@pytest.fixture
def adapted(monkeypatch: pytest.MonkeyPatch, racer: Racer) -> Callable[[str], Any]:
    def make(name: str) -> Any:
        modules, made, _ = FRAMEWORKS[name]
        for path, names in modules.items():
            module = ModuleType(path)
            vars(module).update(names)
            monkeypatch.setitem(sys.modules, path, module)
        monkeypatch.delitem(sys.modules, f"holeshot.{name}", raising=False)
        return made(importlib.import_module(f"holeshot.{name}"), racer)

    return make


@pytest.mark.parametrize("name", FRAMEWORKS)
async def test_an_adapter_gives_its_framework_a_client_that_races(adapted: Callable[[str], Any], name: str) -> None:
    model = adapted(name)
    assert (model.model, await streamed(getattr(model, FRAMEWORKS[name][2]))) == ("chat", "Hello!")


async def test_a_chain_may_be_run_in_another_thread(adapted: Callable[[str], Any]) -> None:
    model = adapted("langchain")
    assert await asyncio.to_thread(model._generate, SAID) == "Hello!"
    assert [chunk.text for chunk in await asyncio.to_thread(lambda: list(model._stream(SAID)))][-4:-1] == [
        "Hel",
        "lo",
        "!",
    ]
    with pytest.raises(RuntimeError, match="ainvoke"):
        model._generate(SAID)
    for name in ("timeout", "request_timeout"):
        hasty = type(model)(racer=model.racer, model="chat", **{name: 0.5})
        assert hasty.root_async_client.timeout == 0.5
    assert model.root_async_client.timeout == openai.DEFAULT_TIMEOUT
