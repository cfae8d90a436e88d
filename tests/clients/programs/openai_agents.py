"""OpenAI's Agents SDK: responses as by default, chained by their ids, over a WebSocket; and chat."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found, unused-ignore, untyped-decorator"

import asyncio
from contextlib import AbstractContextManager
from typing import Any

import openai
from agents import (
    Agent,
    AgentsException,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
)

from tests.clients.case import Suite, Target
from tests.clients.conversation import CUT_AFTER_S, Lost, Turn, Turns, forecast, left_by
from tests.clients.samples import PNG_URL

suite = Suite("openai-agents")


def agent(target: Target, **options: Any) -> Any:
    """Return an agent with one tool; its model has the default settings."""
    tool = function_tool(forecast, name_override="weather")
    return Agent(
        **{"name": "Guide", "instructions": "Be brief.", "model": target.responses, "tools": [tool], **options}
    )


def settings(target: Target, **options: Any) -> Any:
    """Return how its runs reach the target; no traces are sent."""
    client = openai.AsyncOpenAI(base_url=target.openai, api_key=target.key)
    provider = OpenAIProvider(openai_client=client, **options)
    return RunConfig(model_provider=provider, tracing_disabled=True)


def held(turns: Turns, said: list[Any]) -> AbstractContextManager[None]:
    """Have a turn in the block, which may be lost."""
    errors = (openai.OpenAIError, AgentsException, Lost)
    return turns.held(said, errors, lambda why: getattr(why, "code", "") == "context_length_exceeded")


def last_of(chain: list[Any]) -> Any:
    """Return what an answer goes on with."""
    return chain[-1] if chain else None


def message(turn: Turn) -> list[Any]:
    """Return what the user says."""
    if not turn.picture:
        return [{"role": "user", "content": turn.text}]
    picture = {"type": "input_image", "image_url": PNG_URL, "detail": "auto"}
    return [{"role": "user", "content": [{"type": "input_text", "text": turn.text}, picture]}]


async def leave(running: Any) -> None:
    """Wait for a run for a moment, and cancel it."""
    with left_by(TimeoutError):
        await asyncio.wait_for(running, CUT_AFTER_S)


async def leave_words(result: Any) -> None:
    """Read a stream up to its first words, and cancel its run."""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            result.cancel()
            return


@suite.conversation("responses")
async def responses(target: Target, turns: Turns) -> None:
    one, config = agent(target), settings(target)
    said: list[Any] = []
    for turn in turns:
        if turn.cut:
            await leave(Runner.run(one, [*said, {"role": "user", "content": turn.cut}], run_config=config))
        with held(turns, said):
            result = await Runner.run(one, [*said, *message(turn)], run_config=config)
            said[:] = result.to_input_list()
            turn.ends_with(result.final_output)


@suite.conversation("responses")
async def responses_streamed(target: Target, turns: Turns) -> None:
    one, config = agent(target), settings(target)
    said: list[Any] = []
    for turn in turns:
        if turn.cut:
            told = [*said, {"role": "user", "content": turn.cut}]
            await leave_words(Runner.run_streamed(one, told, run_config=config))
        with held(turns, said):
            result = Runner.run_streamed(one, [*said, *message(turn)], run_config=config)
            async for _ in result.stream_events():
                pass
            said[:] = result.to_input_list()
            turn.ends_with(result.final_output)


@suite.conversation("responses")
async def responses_in_a_session(target: Target, turns: Turns) -> None:
    one, config = agent(target), settings(target)
    sessions: list[Any] = []  # in its memory
    for turn in turns:
        with held(turns, sessions):
            if not sessions:
                sessions.append(SQLiteSession(f"from turn {turn.number} on"))
            result = await Runner.run(one, message(turn), run_config=config, session=sessions[-1])
            turn.ends_with(result.final_output)


@suite.conversation("responses")
async def responses_chained(target: Target, turns: Turns) -> None:
    one, config = agent(target), settings(target)
    chain: list[Any] = []
    for turn in turns:
        if turn.cut:
            await leave(Runner.run(one, turn.cut, run_config=config, previous_response_id=last_of(chain)))
        with held(turns, chain):
            result = await Runner.run(
                one,
                message(turn),
                run_config=config,
                previous_response_id=last_of(chain),
                auto_previous_response_id=True,
            )
            chain.append(result.last_response_id)
            turn.ends_with(result.final_output)


@suite.conversation("chat")
async def chat(target: Target, turns: Turns) -> None:
    client = openai.AsyncOpenAI(base_url=target.openai, api_key=target.key)
    one = agent(target, model=OpenAIChatCompletionsModel(model=target.chat, openai_client=client))
    config = RunConfig(tracing_disabled=True)
    said: list[Any] = []
    for turn in turns:
        if turn.cut:
            told = [*said, {"role": "user", "content": turn.cut}]
            await leave_words(Runner.run_streamed(one, told, run_config=config))
        with held(turns, said):
            result = await Runner.run(one, [*said, *message(turn)], run_config=config)
            said[:] = result.to_input_list()
            turn.ends_with(result.final_output)


if __name__ == "__main__":
    suite.main()
