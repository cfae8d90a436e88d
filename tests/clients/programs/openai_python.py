"""OpenAI's own SDK for Python, as its guide to functions has it: chat and responses, whole, streamed and chained."""

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import openai

from tests.clients.case import Suite, Target
from tests.clients.conversation import ABOUT, CUT_AFTER_S, SCHEMA, Lost, Turn, Turns, forecast, left_by
from tests.clients.samples import PNG_URL

suite = Suite("openai-python", "openai")

CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "weather", "description": ABOUT, "parameters": SCHEMA}}]
TOO_LONG = "context_length_exceeded"
TOOLS: Any = [{"type": "function", "name": "weather", "description": ABOUT, "parameters": SCHEMA}]


def sdk(target: Target) -> Any:
    """Return the client, with nothing changed but address and key."""
    return openai.OpenAI(base_url=target.openai, api_key=target.key)


def hasty(client: Any) -> Any:
    """Return a client that waits a moment, and asks once."""
    return client.with_options(timeout=CUT_AFTER_S, max_retries=0)


def held(turns: Turns, said: list[Any]) -> AbstractContextManager[None]:
    """Have a turn in the block, which may be lost."""
    return turns.held(said, (openai.OpenAIError, Lost), lambda why: getattr(why, "code", "") == TOO_LONG)


def last_of(chain: list[Any]) -> Any:
    """Return what an answer goes on with."""
    return chain[-1] if chain else openai.omit


def chat_message(turn: Turn) -> Any:
    """Return what the user says in chat completions."""
    if not turn.picture:
        return {"role": "user", "content": turn.text}
    picture = {"type": "image_url", "image_url": {"url": PNG_URL}}
    return {"role": "user", "content": [{"type": "text", "text": turn.text}, picture]}


def message(turn: Turn) -> Any:
    """Return what the user says in responses."""
    if not turn.picture:
        return {"role": "user", "content": turn.text}
    picture = {"type": "input_image", "image_url": PNG_URL}
    return {"role": "user", "content": [{"type": "input_text", "text": turn.text}, picture]}


@suite.conversation("chat")
def chat(target: Target, turns: Turns) -> None:
    client = sdk(target)
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    for turn in turns:
        if turn.cut:
            told = [*messages, {"role": "user", "content": turn.cut}]
            with left_by(openai.APITimeoutError):
                hasty(client).chat.completions.create(model=target.chat, messages=told, tools=CHAT_TOOLS)
        with held(turns, messages):
            messages.append(chat_message(turn))
            while True:
                answer = client.chat.completions.create(model=target.chat, messages=messages, tools=CHAT_TOOLS)
                said = answer.choices[0].message
                messages.append(said)
                if not said.tool_calls:
                    break
                for call in said.tool_calls:
                    result = forecast(**json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            turn.ends_with(said.content)


@suite.conversation("chat")
def chat_streamed(target: Target, turns: Turns) -> None:
    client = sdk(target)
    messages: list[Any] = [{"role": "system", "content": "Be brief."}]
    for turn in turns:
        if turn.cut:
            told = [*messages, {"role": "user", "content": turn.cut}]
            with client.chat.completions.create(
                model=target.chat, messages=told, tools=CHAT_TOOLS, stream=True
            ) as stream:
                leave_after_words(chunk.choices and chunk.choices[0].delta.content for chunk in stream)
        with held(turns, messages):
            messages.append(chat_message(turn))
            while True:
                words, calls = "", {}
                for chunk in client.chat.completions.create(
                    model=target.chat, messages=messages, tools=CHAT_TOOLS, stream=True
                ):
                    for choice in chunk.choices:
                        words += choice.delta.content or ""
                        for piece in choice.delta.tool_calls or ():
                            if piece.index not in calls:
                                calls[piece.index] = piece
                            else:
                                calls[piece.index].function.arguments += piece.function.arguments or ""
                if not calls:
                    break
                named = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.function.name, "arguments": call.function.arguments},
                    }
                    for call in calls.values()
                ]
                messages.append({"role": "assistant", "content": words or None, "tool_calls": named})
                for call in calls.values():
                    result = forecast(**json.loads(call.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            messages.append({"role": "assistant", "content": words})
            turn.ends_with(words)


@suite.conversation("responses")
def responses(target: Target, turns: Turns) -> None:
    client = sdk(target)
    said: list[Any] = []
    for turn in turns:
        if turn.cut:
            told = [*said, {"role": "user", "content": turn.cut}]
            with left_by(openai.APITimeoutError):
                hasty(client).responses.create(model=target.responses, input=told, tools=TOOLS)
        with held(turns, said):
            said.append(message(turn))
            while True:
                response = client.responses.create(model=target.responses, input=said, tools=TOOLS)
                said += response.output
                results = results_of(response.output)
                if not results:
                    break
                said += results
            turn.ends_with(response.output_text)


@suite.conversation("responses")
def responses_streamed(target: Target, turns: Turns) -> None:
    client = sdk(target)
    said: list[Any] = []
    for turn in turns:
        if turn.cut:
            told = [*said, {"role": "user", "content": turn.cut}]
            with client.responses.create(model=target.responses, input=told, tools=TOOLS, stream=True) as stream:
                leave_after_words(event.type == "response.output_text.delta" for event in stream)
        with held(turns, said):
            said.append(message(turn))
            while True:
                response = completed(
                    client.responses.create(model=target.responses, input=said, tools=TOOLS, stream=True)
                )
                said += response.output
                results = results_of(response.output)
                if not results:
                    break
                said += results
            turn.ends_with(response.output_text)


@suite.conversation("responses")
def responses_chained(target: Target, turns: Turns) -> None:
    client = sdk(target)
    chain: list[Any] = []  # ids of answers
    for turn in turns:
        if turn.cut:
            with left_by(openai.APITimeoutError):
                hasty(client).responses.create(
                    model=target.responses, input=turn.cut, tools=TOOLS, previous_response_id=last_of(chain)
                )
        with held(turns, chain):
            new: Any = [message(turn)]
            response: Any = None
            while new:
                response = client.responses.create(
                    model=target.responses, input=new, tools=TOOLS, previous_response_id=last_of(chain)
                )
                chain.append(response.id)
                new = results_of(response.output)
            turn.ends_with(response.output_text)


@suite.conversation("responses")
def responses_chained_and_streamed(target: Target, turns: Turns) -> None:
    client = sdk(target)
    chain: list[Any] = []  # ids of answers
    for turn in turns:
        if turn.cut:
            with client.responses.create(
                model=target.responses, input=turn.cut, tools=TOOLS, previous_response_id=last_of(chain), stream=True
            ) as stream:
                leave_after_words(event.type == "response.output_text.delta" for event in stream)
        with held(turns, chain):
            new: Any = [message(turn)]
            response: Any = None
            while new:
                response = completed(
                    client.responses.create(
                        model=target.responses, input=new, tools=TOOLS, previous_response_id=last_of(chain), stream=True
                    )
                )
                chain.append(response.id)
                new = results_of(response.output)
            turn.ends_with(response.output_text)


def results_of(output: Iterable[Any]) -> list[Any]:
    """Return what the tools say that are called in an answer."""
    return [
        {
            "type": "function_call_output",
            "call_id": item.call_id,
            "output": forecast(**json.loads(item.arguments)),
        }
        for item in output
        if item.type == "function_call"
    ]


def completed(events: Iterable[Any]) -> Any:
    """Return the response at the end of a stream."""
    last = None
    for event in events:
        last = event
    if last is None or last.type not in {"response.completed", "response.incomplete"}:
        raise Lost(f"the stream ends with {last}")
    return last.response


def leave_after_words(events: Iterable[Any]) -> None:
    """Read a stream up to its first words."""
    if not any(events):
        raise Lost("the answer that was to be left had no words")


if __name__ == "__main__":
    suite.main()
