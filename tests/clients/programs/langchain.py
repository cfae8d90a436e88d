"""LangChain: ChatOpenAI in chat and responses, whole, streamed and chained, and ChatAnthropic."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import importlib.metadata
from typing import Any

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

from tests.clients.case import Suite, Target
from tests.clients.conversation import ABOUT, CUT_AFTER_S, Turn, Turns, forecast, left_by
from tests.clients.samples import PNG_BASE64

suite = Suite("langchain", version=lambda: importlib.metadata.version("langchain-openai"))
WEATHER = StructuredTool.from_function(forecast, name="weather", description=ABOUT)


def of_openai(target: Target, **options: Any) -> Any:
    """Return OpenAI's model, with nothing changed but address and key."""
    return ChatOpenAI(**{"model": target.chat, "base_url": target.openai, "api_key": target.key, **options})


def of_anthropic(target: Target, **options: Any) -> Any:
    """Return Anthropic's model, likewise."""
    return ChatAnthropic(**{"model": target.messages, "base_url": target.url, "api_key": target.key, **options})


def message(turn: Turn) -> Any:
    """Return what the user says, in LangChain's own form of it."""
    if not turn.picture:
        return HumanMessage(turn.text)
    picture = {"type": "image", "base64": PNG_BASE64, "mime_type": "image/png"}
    return HumanMessage([{"type": "text", "text": turn.text}, picture])


def talk(model: Any, hasty: Any, turns: Turns) -> None:
    """Have the conversation with whole answers; ``hasty`` leaves early."""
    said: list[Any] = [SystemMessage("Be brief.")]
    bound = model.bind_tools([WEATHER])
    for turn in turns:
        if turn.cut:
            with left_by((openai.APITimeoutError, anthropic.APITimeoutError)):
                hasty.bind_tools([WEATHER]).invoke([*said, HumanMessage(turn.cut)])
        said.append(message(turn))
        while True:
            answer = bound.invoke(said)
            said.append(answer)
            if not answer.tool_calls:
                break
            said += [WEATHER.invoke(call) for call in answer.tool_calls]
        turn.ends_with(answer.text)


def talk_streamed(model: Any, turns: Turns) -> None:
    """Have the conversation with streams."""
    said: list[Any] = [SystemMessage("Be brief.")]
    bound = model.bind_tools([WEATHER])
    for turn in turns:
        if turn.cut:
            stream = bound.stream([*said, HumanMessage(turn.cut)])
            any(chunk.text for chunk in stream)
            stream.close()
        said.append(message(turn))
        while True:
            answer = None
            for chunk in bound.stream(said):
                answer = chunk if answer is None else answer + chunk
            assert answer is not None
            said.append(answer)
            if not answer.tool_calls:
                break
            said += [WEATHER.invoke(call) for call in answer.tool_calls]
        turn.ends_with(answer.text)


HASTY: Any = {"timeout": CUT_AFTER_S, "max_retries": 0}


@suite.conversation("chat")
def chat(target: Target, turns: Turns) -> None:
    talk(of_openai(target, use_responses_api=False), of_openai(target, use_responses_api=False, **HASTY), turns)


@suite.conversation("chat")
def chat_streamed(target: Target, turns: Turns) -> None:
    talk_streamed(of_openai(target, use_responses_api=False), turns)


@suite.conversation("responses")
def responses(target: Target, turns: Turns) -> None:
    talk(of_openai(target, use_responses_api=True), of_openai(target, use_responses_api=True, **HASTY), turns)


@suite.conversation("responses")
def responses_streamed(target: Target, turns: Turns) -> None:
    talk_streamed(of_openai(target, use_responses_api=True), turns)


@suite.conversation("responses")
def responses_chained(target: Target, turns: Turns) -> None:
    options: Any = {"use_responses_api": True, "use_previous_response_id": True}
    talk(of_openai(target, **options), of_openai(target, **options, **HASTY), turns)


@suite.conversation("messages", "langchain-anthropic")
def messages(target: Target, turns: Turns) -> None:
    talk(of_anthropic(target), of_anthropic(target, **HASTY), turns)


@suite.conversation("messages", "langchain-anthropic")
def messages_with_thinking(target: Target, turns: Turns) -> None:
    thinking: Any = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 5000}
    talk(of_anthropic(target, **thinking), of_anthropic(target, **thinking, **HASTY), turns)


if __name__ == "__main__":
    suite.main()
