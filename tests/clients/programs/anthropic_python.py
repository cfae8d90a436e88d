"""Anthropic's own SDK for Python, with and without thinking: whole, streamed, and by its runner of tools."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import anthropic

from tests.clients.case import Suite, Target
from tests.clients.conversation import ABOUT, CUT_AFTER_S, SCHEMA, Lost, Turn, Turns, forecast, left_by
from tests.clients.samples import PNG_BASE64

suite = Suite("anthropic-python", "anthropic")

TOOLS: Any = [{"name": "weather", "description": ABOUT, "input_schema": SCHEMA}]
THINKING: Any = {"type": "enabled", "budget_tokens": 10000}
MOST = 16000  # as in Anthropic's guide to thinking


def sdk(target: Target) -> Any:
    """Return the client, with nothing changed but address and key."""
    return anthropic.Anthropic(base_url=target.url, api_key=target.key)


def held(turns: Turns, said: list[Any]) -> AbstractContextManager[None]:
    """Have a turn in the block, which may be lost."""
    return turns.held(said, (anthropic.AnthropicError, Lost), lambda why: "prompt is too long" in str(why))


def message(turn: Turn) -> Any:
    """Return what the user says."""
    if not turn.picture:
        return {"role": "user", "content": turn.text}
    source = {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}
    return {"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": turn.text}]}


@suite.conversation("messages")
def messages(target: Target, turns: Turns) -> None:
    talk(target, turns)


@suite.conversation("messages")
def messages_streamed(target: Target, turns: Turns) -> None:
    talk_streamed(target, turns)


@suite.conversation("messages")
def messages_with_thinking(target: Target, turns: Turns) -> None:
    talk(target, turns, thinking=THINKING)


@suite.conversation("messages")
def messages_with_thinking_streamed(target: Target, turns: Turns) -> None:
    talk_streamed(target, turns, thinking=THINKING)


@suite.conversation("messages")
def runner_of_tools(target: Target, turns: Turns) -> None:
    run(target, turns)


@suite.conversation("messages")
def runner_of_tools_streamed(target: Target, turns: Turns) -> None:
    run(target, turns, stream=True)


def run(target: Target, turns: Turns, **fields: Any) -> None:
    """Have the conversation by the runner of tools."""
    client = sdk(target)
    weather = anthropic.beta_tool(name="weather")(forecast)
    said: list[Any] = []
    fields = {"model": target.messages, "max_tokens": MOST, "tools": [weather], **fields}
    for turn in turns:
        with held(turns, said):
            said.append(message(turn))
            runner = client.beta.messages.tool_runner(messages=said, **fields)
            answer: Any = None
            for given in runner:
                answer = given.get_final_message() if fields.get("stream") else given
                said.append({"role": "assistant", "content": answer.content})
                if (results := runner.generate_tool_call_response()) is not None:
                    said.append(results)
            turn.ends_with(text_of(answer))


def talk(target: Target, turns: Turns, **fields: Any) -> None:
    """Have the conversation with whole answers."""
    client = sdk(target)
    said: list[Any] = []
    fields = {"model": target.messages, "max_tokens": MOST, "tools": TOOLS, "system": "Be brief.", **fields}
    for turn in turns:
        if turn.cut:
            told = [*said, {"role": "user", "content": turn.cut}]
            with left_by(anthropic.APITimeoutError):
                client.with_options(timeout=CUT_AFTER_S, max_retries=0).messages.create(messages=told, **fields)
        with held(turns, said):
            said.append(message(turn))
            while True:
                answer = client.messages.create(messages=said, **fields)
                said.append({"role": "assistant", "content": answer.content})
                if answer.stop_reason != "tool_use":
                    break
                said.append({"role": "user", "content": results_of(answer.content)})
            turn.ends_with(text_of(answer))


def talk_streamed(target: Target, turns: Turns, **fields: Any) -> None:
    """Have the conversation with streams."""
    client = sdk(target)
    said: list[Any] = []
    fields = {"model": target.messages, "max_tokens": MOST, "tools": TOOLS, "system": "Be brief.", **fields}
    for turn in turns:
        if turn.cut:
            with client.messages.stream(messages=[*said, {"role": "user", "content": turn.cut}], **fields) as stream:
                if not any(stream.text_stream):
                    raise Lost("the answer that was to be left had no words")
        with held(turns, said):
            said.append(message(turn))
            while True:
                with client.messages.stream(messages=said, **fields) as stream:
                    answer = stream.get_final_message()
                said.append({"role": "assistant", "content": answer.content})
                if answer.stop_reason != "tool_use":
                    break
                said.append({"role": "user", "content": results_of(answer.content)})
            turn.ends_with(text_of(answer))


def results_of(content: Iterable[Any]) -> list[Any]:
    """Return what the tools say that are called in an answer."""
    return [
        {"type": "tool_result", "tool_use_id": block.id, "content": forecast(**block.input)}
        for block in content
        if block.type == "tool_use"
    ]


def text_of(answer: Any) -> str:
    """Return the words of an answer."""
    return "".join(block.text for block in answer.content if block.type == "text")


if __name__ == "__main__":
    suite.main()
