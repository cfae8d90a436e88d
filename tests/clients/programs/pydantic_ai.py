"""pydantic-ai: an agent whose history is all messages so far, in chat, responses and messages."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found, untyped-decorator"

import asyncio
from typing import Any

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.case import Suite, Target
from tests.clients.conversation import CUT_AFTER_S, Turn, Turns, forecast, left_by
from tests.clients.samples import PNG

suite = Suite("pydantic-ai", "pydantic-ai-slim")


def message(turn: Turn) -> Any:
    """Return what the user says."""
    return [turn.text, BinaryContent(data=PNG, media_type="image/png")] if turn.picture else turn.text


def agent_of(model: Any, **settings: Any) -> Any:
    """Return an agent with one tool."""
    agent = Agent(model, system_prompt="Be brief.", model_settings=settings or None)
    agent.tool_plain(name="weather")(forecast)
    return agent


async def talk(agent: Any, turns: Turns) -> None:
    """Have the conversation with whole answers."""
    history: list[Any] = []
    for turn in turns:
        if turn.cut:
            with left_by(TimeoutError):
                await asyncio.wait_for(agent.run(turn.cut, message_history=history), CUT_AFTER_S)
        result = await agent.run(message(turn), message_history=history)
        history = result.all_messages()
        turn.ends_with(result.output)


async def talk_streamed(agent: Any, turns: Turns) -> None:
    """Have the conversation with streams."""
    history: list[Any] = []
    for turn in turns:
        if turn.cut:
            async with agent.run_stream(turn.cut, message_history=history) as result:
                async for _ in result.stream_text(debounce_by=None):
                    break
        async with agent.run_stream(message(turn), message_history=history) as result:
            said = await result.get_output()
        history = result.all_messages()
        turn.ends_with(said)


def of_openai(target: Target) -> Any:
    """Return where OpenAI's models are reached."""
    return OpenAIProvider(base_url=target.openai, api_key=target.key)


def of_anthropic(target: Target) -> Any:
    """Return where Anthropic's models are reached."""
    return AnthropicProvider(base_url=target.url, api_key=target.key)


@suite.conversation("chat")
async def chat(target: Target, turns: Turns) -> None:
    await talk(agent_of(OpenAIChatModel(target.chat, provider=of_openai(target))), turns)


@suite.conversation("chat")
async def chat_streamed(target: Target, turns: Turns) -> None:
    await talk_streamed(agent_of(OpenAIChatModel(target.chat, provider=of_openai(target))), turns)


@suite.conversation("responses")
async def responses(target: Target, turns: Turns) -> None:
    await talk(agent_of(OpenAIResponsesModel(target.responses, provider=of_openai(target))), turns)


@suite.conversation("responses")
async def responses_streamed(target: Target, turns: Turns) -> None:
    await talk_streamed(agent_of(OpenAIResponsesModel(target.responses, provider=of_openai(target))), turns)


@suite.conversation("responses")
async def responses_chained(target: Target, turns: Turns) -> None:
    model = OpenAIResponsesModel(target.responses, provider=of_openai(target))
    await talk(agent_of(model, openai_previous_response_id="auto"), turns)


@suite.conversation("messages")
async def messages(target: Target, turns: Turns) -> None:
    await talk(agent_of(AnthropicModel(target.messages, provider=of_anthropic(target))), turns)


@suite.conversation("messages")
async def messages_with_thinking(target: Target, turns: Turns) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 2048}
    model = AnthropicModel(target.messages, provider=of_anthropic(target))
    await talk(agent_of(model, anthropic_thinking=thinking, max_tokens=8000), turns)


if __name__ == "__main__":
    suite.main()
