"""LangChain, with ``holeshot.langchain``: its own model directly, and raced in this process by the same cases."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

from holeshot.langchain import ChatRaced
from tests.clients.case import Feature, Suite, Target, equal, expect, raised_by
from tests.clients.racing import racing
from tests.clients.samples import PNG_URL

suite = Suite("langchain-raced", "langchain-openai")


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"rain in {city}"


WEATHER = StructuredTool.from_function(weather)


@asynccontextmanager
async def model_of(target: Target, model: str | None = None) -> AsyncIterator[Any]:
    """Yield the framework's model, or the raced one."""
    async with racing(target) as racer:
        name = model or target.chat
        if racer is not None:
            yield ChatRaced(racer=racer, model=name)
        else:
            yield ChatOpenAI(model=name, base_url=target.openai, api_key=target.key, max_retries=0, stream_usage=True)


@suite.case(Feature.ANSWERS)
async def it_answers_with_its_usage(target: Target) -> None:
    asked = [SystemMessage("Be brief."), HumanMessage("say: hello you")]
    async with model_of(target) as model:
        for message in (await model.ainvoke(asked), await asyncio.to_thread(model.invoke, asked)):
            equal((message.text, message.usage_metadata["output_tokens"]), ("hello you", 2))


@suite.case(Feature.STREAMING)
async def it_streams(target: Target) -> None:
    async with model_of(target) as model:
        chunks = [chunk async for chunk in model.astream("say: one two three")]
        others = await asyncio.to_thread(lambda: list(model.stream("say: one two three")))
    for found in (chunks, others):
        equal("".join(chunk.text for chunk in found), "one two three")
        expect(sum(bool(chunk.text) for chunk in found) >= 3, found)
        expect(sum(chunk.usage_metadata["output_tokens"] for chunk in found if chunk.usage_metadata) >= 3, found)


@suite.case(Feature.TOOLS)
async def it_calls_a_tool_and_hears_its_result(target: Target) -> None:
    async with model_of(target) as model:
        bound = model.bind_tools([WEATHER])
        conversation: list[Any] = [HumanMessage('call: weather {"city": "Oslo"}')]
        first = await bound.ainvoke(conversation)
        (call,) = first.tool_calls
        equal((call["name"], call["args"]), ("weather", {"city": "Oslo"}))
        conversation += [first, ToolMessage(WEATHER.invoke(call["args"]), tool_call_id=call["id"])]
        equal((await bound.ainvoke(conversation)).text, "The tool said: rain in Oslo")


@suite.case(Feature.STRUCTURED)
async def it_gives_structured_answers(target: Target) -> None:
    async with model_of(target) as model:
        for method in ("function_calling", "json_schema"):
            found = await model.with_structured_output(Person, method=method).ainvoke(
                'data: {"name": "Ada", "age": 36}'
            )
            equal((method, found), (method, Person(name="Ada", age=36)))


@suite.case(Feature.MEDIA)
async def it_sees_a_picture(target: Target) -> None:
    picture = {"type": "image_url", "image_url": {"url": PNG_URL}}
    async with model_of(target) as model:
        message = await model.ainvoke([HumanMessage([{"type": "text", "text": "What is it?"}, picture])])
    equal(message.text, "I was shown a PNG of 3x2.")


@suite.case(Feature.TASK)
async def an_interruption_ends_an_answer(target: Target) -> None:
    async with asyncio.timeout(60), model_of(target) as model:
        running = asyncio.create_task(model.ainvoke("slow: 300"))
        await asyncio.sleep(0.3)
        running.cancel()  # what it leaves behind at the upstream is counted there
        await raised_by(asyncio.CancelledError, running)


@suite.case(Feature.ERRORS)
async def an_error_is_its_own(target: Target) -> None:
    async with model_of(target, target.troubled_model("chat")) as model:
        error = await raised_by(openai.BadRequestError, model.ainvoke("fail: 400"))
    equal(error.status_code, 400)


if __name__ == "__main__":
    suite.main()
