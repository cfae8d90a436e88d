"""Pydantic AI, with ``holeshot.pydantic_ai``: its own model directly, and raced in this process by the same cases."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pydantic
from pydantic_ai import Agent, BinaryContent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from holeshot.pydantic_ai import RacedModel
from tests.clients.case import Feature, Suite, Target, equal, expect, raised_by
from tests.clients.racing import racing
from tests.clients.samples import PNG

suite = Suite("pydantic-ai-raced", "pydantic-ai-slim")


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int


ADA = 'data: {"name": "Ada", "age": 36}'


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"rain in {city}"


@asynccontextmanager
async def model_of(target: Target, model: str | None = None) -> AsyncIterator[Any]:
    """Yield the framework's model, or the raced one."""
    async with racing(target) as racer:
        if racer is not None:
            yield RacedModel(racer, model or target.chat)
        else:
            provider = OpenAIProvider(base_url=target.openai, api_key=target.key)
            yield OpenAIChatModel(model or target.chat, provider=provider)


@suite.case(Feature.ANSWERS)
async def it_answers_with_its_usage(target: Target) -> None:
    async with model_of(target) as model:
        result = await Agent(model, instructions="Be brief.").run("say: hello you")
    equal((result.output, result.usage.output_tokens), ("hello you", 2))


@suite.case(Feature.STREAMING)
async def it_streams(target: Target) -> None:
    async with model_of(target) as model, Agent(model).run_stream("say: one two three") as result:
        pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    equal("".join(pieces), "one two three")
    expect(len(pieces) >= 3, pieces)


@suite.case(Feature.TOOLS)
async def it_uses_tools(target: Target) -> None:
    async with model_of(target) as model:
        agent = Agent(model, tools=[weather])
        result = await agent.run('call: weather {"city": "Oslo"}\ncall: weather {"city": "Rome"}')
        equal(result.output, "The tool said: rain in Oslo, rain in Rome")
        async with agent.run_stream('call: weather {"city": "Oslo"}') as streamed:
            equal(await streamed.get_output(), "The tool said: rain in Oslo")


@suite.case(Feature.STRUCTURED)
async def it_gives_structured_answers(target: Target) -> None:
    async with model_of(target) as model:
        for kind in (ToolOutput, NativeOutput):
            equal((await Agent(model, output_type=kind(Person)).run(ADA)).output, Person(name="Ada", age=36))


@suite.case(Feature.MEDIA)
async def it_sees_a_picture(target: Target) -> None:
    async with model_of(target) as model:
        result = await Agent(model).run(["What is it?", BinaryContent(PNG, media_type="image/png")])
    equal(result.output, "I was shown a PNG of 3x2.")


@suite.case(Feature.TASK)
async def an_interruption_ends_an_answer(target: Target) -> None:
    async with asyncio.timeout(60), model_of(target) as model:
        running = asyncio.create_task(Agent(model).run("slow: 300"))
        await asyncio.sleep(0.3)
        running.cancel()  # what it leaves behind at the upstream is counted there
        await raised_by(asyncio.CancelledError, running)


@suite.case(Feature.ERRORS)
async def an_error_is_its_own(target: Target) -> None:
    async with model_of(target, target.troubled_model("chat")) as model:
        error = await raised_by(ModelHTTPError, Agent(model).run("fail: 400"))
    equal(error.status_code, 400)


if __name__ == "__main__":
    suite.main()
