"""LiveKit Agents, with ``holeshot.livekit``: its own plugin directly, and raced in this process by the same cases."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from livekit.agents import AgentSession, APIConnectOptions, APIStatusError, function_tool, llm
from livekit.agents.voice import Agent
from livekit.plugins import openai

from holeshot.livekit import RacedLLM
from tests.clients.case import Feature, Suite, Target, equal, expect, raised_by
from tests.clients.racing import racing

suite = Suite("livekit-raced", "livekit-agents")


async def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"rain in {city}"


WEATHER = function_tool(weather)


@asynccontextmanager
async def model_of(target: Target, model: str | None = None) -> AsyncIterator[Any]:
    """Yield the plugin's LLM, or the raced one."""
    async with racing(target) as racer:
        if racer is not None:
            found = RacedLLM(racer, model or target.chat)
        else:
            found = openai.LLM(model=model or target.chat, api_key=target.key, base_url=target.openai)
        yield found
        await found.aclose()


def said(words: str) -> Any:
    """Return a conversation in which a user says something."""
    context = llm.ChatContext.empty()
    context.add_message(role="user", content=words)
    return context


@suite.case(Feature.STREAMING)
async def it_streams_and_measures_what_it_is_to_say(target: Target) -> None:
    measured: list[Any] = []
    async with model_of(target) as model:
        model.on("metrics_collected", measured.append)
        model.prewarm()
        async with model.chat(chat_ctx=said("say: one two three")) as stream:
            chunks = [chunk async for chunk in stream]
    texts = [chunk.delta.content for chunk in chunks if chunk.delta and chunk.delta.content]
    equal("".join(texts), "one two three")
    expect(len(texts) >= 3, texts)
    (metrics,) = measured
    expect(metrics.ttft > 0 and metrics.completion_tokens >= 3, metrics)


@suite.case(Feature.TOOLS)
async def it_calls_tools(target: Target) -> None:
    text = 'call: weather {"city": "Oslo"}\ncall: weather {"city": "Rome"}'
    async with model_of(target) as model, model.chat(chat_ctx=said(text), tools=[WEATHER]) as stream:
        chunks = [chunk async for chunk in stream]
    calls = [call for chunk in chunks if chunk.delta for call in chunk.delta.tool_calls]
    equal([(call.name, call.arguments.replace(" ", "")) for call in calls], [
        ("weather", '{"city":"Oslo"}'),
        ("weather", '{"city":"Rome"}'),
    ])  # fmt: skip


@suite.case(Feature.TASK)
async def an_agent_in_a_session_uses_tools(target: Target) -> None:
    async with model_of(target) as model, AgentSession(llm=model) as session:
        await session.start(Agent(instructions="Be brief.", tools=[WEATHER]))
        result = await session.run(user_input='call: weather {"city": "Oslo"}')
        spoken = [event.item.text_content for event in result.events if event.type == "message"]
    equal(spoken[-1], "The tool said: rain in Oslo")


@suite.case(Feature.TASK)
async def an_interruption_ends_an_answer(target: Target) -> None:
    async with asyncio.timeout(60), model_of(target) as model:
        stream = model.chat(chat_ctx=said("slow: 300"))
        await asyncio.sleep(0.3)
        await stream.aclose()  # what it leaves behind at the upstream is counted there


@suite.case(Feature.ERRORS)
async def an_error_is_its_own(target: Target) -> None:
    async with model_of(target, target.troubled_model("chat")) as model:
        stream = model.chat(chat_ctx=said("fail: 400"), conn_options=APIConnectOptions(max_retry=0))
        error = await raised_by(APIStatusError, stream.collect())
    equal(error.status_code, 400)


if __name__ == "__main__":
    suite.main()
