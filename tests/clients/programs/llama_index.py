"""LlamaIndex: its agent with functions, which streams, and its models by hand, in chat and in responses."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike

from tests.clients.case import Suite, Target
from tests.clients.conversation import ABOUT, Turn, Turns, Unable, forecast
from tests.clients.samples import PNG

suite = Suite("llama-index", "llama-index-llms-openai")
WEATHER = FunctionTool.from_defaults(forecast, name="weather", description=ABOUT)
# It knows the sizes of OpenAI's models alone, and asks its users to name those of others.
OTHERS: Any = {"context_window": 200_000}


def message(turn: Turn) -> Any:
    """Return what the user says."""
    if not turn.picture:
        return ChatMessage(role="user", content=turn.text)
    return ChatMessage(role="user", blocks=[TextBlock(text=turn.text), ImageBlock(image=PNG)])


def of_openai(kind: Any, target: Target, **options: Any) -> Any:
    """Return a model, with nothing changed but address and key."""
    return kind(model=target.chat, api_base=target.openai, api_key=target.key, **options)


def check_name(target: Target) -> None:
    """Check that its class for OpenAI alone takes the name of the model.

    Raises:
        Unable: it does not, and its users are told to take its class for others.

    """
    try:
        _ = of_openai(OpenAI, target).metadata
    except ValueError as error:
        raise Unable(str(error)[:60]) from error


async def talk(model: Any, turns: Turns) -> None:
    """Have the conversation with whole answers, by hand."""
    said: list[Any] = [ChatMessage(role="system", content="Be brief.")]
    for turn in turns:
        if turn.cut:
            stream = await model.astream_chat_with_tools([WEATHER], chat_history=[*said, message_of(turn.cut)])
            async for chunk in stream:
                if chunk.delta:
                    break
            await stream.aclose()
        said.append(message(turn))
        while True:
            answer = await model.achat_with_tools([WEATHER], chat_history=said, allow_parallel_tool_calls=True)
            said.append(answer.message)
            calls = model.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
            if not calls:
                break
            for call in calls:
                result = str(WEATHER(**call.tool_kwargs))
                told: Any = {"tool_call_id": call.tool_id}
                said.append(ChatMessage(role="tool", content=result, additional_kwargs=told))
        turn.ends_with(answer.message.content)


async def talk_as_agent(model: Any, turns: Turns) -> None:
    """Have the conversation with an agent, which keeps its history itself."""
    agent = FunctionAgent(tools=[WEATHER], llm=model, system_prompt="Be brief.")
    memory = ChatMemoryBuffer.from_defaults(token_limit=100_000)
    for turn in turns:
        result = await agent.run(message(turn), memory=memory)
        turn.ends_with(result.response.content)


def message_of(text: str) -> Any:
    """Return what the user says, of words alone."""
    return ChatMessage(role="user", content=text)


@suite.conversation("chat")
async def chat(target: Target, turns: Turns) -> None:
    check_name(target)
    await talk(of_openai(OpenAI, target), turns)


@suite.conversation("chat")
async def chat_of_others(target: Target, turns: Turns) -> None:
    await talk(of_openai(OpenAILike, target, is_chat_model=True, is_function_calling_model=True, **OTHERS), turns)


@suite.conversation("chat")
async def agent_in_chat(target: Target, turns: Turns) -> None:
    model = of_openai(OpenAILike, target, is_chat_model=True, is_function_calling_model=True, **OTHERS)
    await talk_as_agent(model, turns)


@suite.conversation("responses")
async def responses(target: Target, turns: Turns) -> None:
    await talk(of_openai(OpenAIResponses, target, **OTHERS), turns)


@suite.conversation("responses")
async def agent_in_responses(target: Target, turns: Turns) -> None:
    await talk_as_agent(of_openai(OpenAIResponses, target, **OTHERS), turns)


if __name__ == "__main__":
    suite.main()
