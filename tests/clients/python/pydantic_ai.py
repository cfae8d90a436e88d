"""pydantic-ai, with its models for chat completions, responses and messages."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from typing import Any

import pydantic
from pydantic_ai import Agent, BinaryContent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.case import Feature, Suite, Target, equal, expect, raised
from tests.clients.samples import PNG

suite = Suite("pydantic-ai", "pydantic-ai-slim")


class Person(pydantic.BaseModel):
    """Somebody."""

    name: str
    age: int


ADA = 'data: {"name": "Ada", "age": 36}'


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"rain in {city}"


def openai(target: Target, key: str | None = None) -> Any:
    """Return the model that speaks chat completions."""
    provider = OpenAIProvider(base_url=target.openai, api_key=key or target.key)
    return OpenAIChatModel(target.chat, provider=provider)


def responses(target: Target, key: str | None = None) -> Any:
    """Return the model that speaks responses."""
    provider = OpenAIProvider(base_url=target.openai, api_key=key or target.key)
    return OpenAIResponsesModel(target.responses, provider=provider)


def anthropic(target: Target, key: str | None = None) -> Any:
    """Return the model that speaks messages."""
    provider = AnthropicProvider(base_url=target.url, api_key=key or target.key)
    return AnthropicModel(target.messages, provider=provider)


ALL = (openai, responses, anthropic)


@suite.case(Feature.ANSWERS)
def all_models_answer(target: Target) -> None:
    for model in ALL:
        result = Agent(model(target), instructions="Be brief.").run_sync("say: hello you")
        equal((model.__name__, result.output), (model.__name__, "hello you"))
        equal(result.usage.output_tokens, 2)


@suite.case(Feature.STREAMING)
async def all_models_stream(target: Target) -> None:
    for model in ALL:
        async with Agent(model(target)).run_stream("say: one two three") as result:
            pieces = [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
        equal((model.__name__, "".join(pieces)), (model.__name__, "one two three"))
        expect(len(pieces) >= 3, pieces)


@suite.case(Feature.TOOLS)
def all_models_use_tools(target: Target) -> None:
    for model in ALL:
        agent = Agent(model(target), tools=[weather])
        result = agent.run_sync('call: weather {"city": "Oslo"}\ncall: weather {"city": "Rome"}')
        equal((model.__name__, result.output), (model.__name__, "The tool said: rain in Oslo, rain in Rome"))


@suite.case(Feature.TOOLS)
async def all_models_use_tools_in_a_stream(target: Target) -> None:
    for model in ALL:
        agent = Agent(model(target), tools=[weather])
        async with agent.run_stream('call: weather {"city": "Oslo"}') as result:
            equal((model.__name__, await result.get_output()), (model.__name__, "The tool said: rain in Oslo"))


@suite.case(Feature.STRUCTURED)
def all_models_give_structured_answers(target: Target) -> None:
    for model in ALL:
        for kind in (ToolOutput, NativeOutput):
            result = Agent(model(target), output_type=kind(Person)).run_sync(ADA)
            equal((model.__name__, result.output), (model.__name__, Person(name="Ada", age=36)))


@suite.case(Feature.STRUCTURED)
async def all_models_stream_structured_answers(target: Target) -> None:
    for model in ALL:
        async with Agent(model(target), output_type=ToolOutput(Person)).run_stream(ADA) as result:
            seen = [item async for item in result.stream_output(debounce_by=None)]
        equal((model.__name__, seen[-1]), (model.__name__, Person(name="Ada", age=36)))


@suite.case(Feature.STRUCTURED)
def a_tool_comes_before_a_structured_answer(target: Target) -> None:
    for model in ALL:
        agent = Agent(model(target), tools=[weather], output_type=ToolOutput(Person))
        result = agent.run_sync(f'{ADA}\ncall: weather {{"city": "Oslo"}}')
        equal((model.__name__, result.output), (model.__name__, Person(name="Ada", age=36)))


@suite.case(Feature.MEDIA)
def all_models_see_a_picture(target: Target) -> None:
    for model in ALL:
        result = Agent(model(target)).run_sync(["What is it?", BinaryContent(PNG, media_type="image/png")])
        equal((model.__name__, result.output), (model.__name__, "I was shown a PNG of 3x2."))


@suite.case(Feature.ERRORS)
def errors_are_raised(target: Target) -> None:
    for model in ALL:
        error = raised(ModelHTTPError, lambda: Agent(model(target, target.wrong_key)).run_sync("say: hi"))  # noqa: B023 - called at once
        equal((model.__name__, error.status_code), (model.__name__, 401))


if __name__ == "__main__":
    suite.main()
