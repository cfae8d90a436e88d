"""Google's own SDK for Python: its chats, with functions that it calls by itself, whole and streamed; and by hand."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import ABOUT, SCHEMA, Lost, Turn, Turns, forecast
from tests.clients.samples import PNG

# It is installed in an environment of its own, and mypy sees other packages below this name.
genai: Any = import_module("google.genai")
types: Any = import_module("google.genai.types")
httpx2: Any = import_module("httpx2")
errors: Any = import_module("google.genai.errors")
suite = Suite("google-genai", "google-genai")


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return forecast(city)


def sdk(target: Target) -> Any:
    """Return the client, with nothing changed but address and key."""
    return genai.Client(api_key=target.key, http_options=types.HttpOptions(base_url=target.url))


def held(turns: Turns, said: list[Any]) -> AbstractContextManager[None]:
    """Have a turn in the block, which may be lost."""
    kinds = (errors.APIError, OSError, httpx2.HTTPError, Lost)
    return turns.held(said, kinds, lambda why: "exceeds the maximum number of tokens" in str(why))


def words_of(answer: Any) -> str:
    """Return what is said.

    Raises:
        Lost: the prompt is blocked.

    """
    if answer.prompt_feedback is not None and answer.prompt_feedback.block_reason is not None:
        raise Lost(str(answer.prompt_feedback))
    return answer.text or ""


def message(turn: Turn) -> list[Any]:
    """Return what the user says."""
    return [turn.text, *([types.Part.from_bytes(data=PNG, mime_type="image/png")] if turn.picture else [])]


def by_itself(**more: Any) -> Any:
    """Return the settings of a chat that calls functions by itself."""
    return types.GenerateContentConfig(tools=[weather], system_instruction="Be brief.", **more)


@suite.conversation("gemini")
def chat_whole(target: Target, turns: Turns) -> None:
    talk(target, turns, lambda chat, said: words_of(chat.send_message(said)))


@suite.conversation("gemini")
def chat_streamed(target: Target, turns: Turns) -> None:
    talk(target, turns, lambda chat, said: "".join(map(words_of, chat.send_message_stream(said))))


@suite.conversation("gemini")
def chat_with_thoughts(target: Target, turns: Turns) -> None:
    thinking = types.ThinkingConfig(include_thoughts=True)
    talk(target, turns, lambda chat, said: words_of(chat.send_message(said)), thinking_config=thinking)


def talk(target: Target, turns: Turns, say: Callable[[Any, list[Any]], str], **more: Any) -> None:
    """Have the conversation with a chat; after one that is too long, with another."""
    chats: list[Any] = []
    with sdk(target) as client:
        for turn in turns:
            with held(turns, chats):
                if not chats:
                    chats.append(client.chats.create(model=target.gemini, config=by_itself(**more)))
                turn.ends_with(say(chats[-1], message(turn)))


@suite.conversation("gemini")
def contents_by_hand(target: Target, turns: Turns) -> None:
    declared = types.FunctionDeclaration(name="weather", description=ABOUT, parameters_json_schema=SCHEMA)
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[declared])])
    said: list[Any] = []
    with sdk(target) as client:
        for turn in turns:
            if turn.cut:
                told = [*said, types.UserContent(turn.cut)]
                stream = client.models.generate_content_stream(model=target.gemini, contents=told, config=config)
                if not any(chunk.text for chunk in stream):
                    raise Lost("the answer that was to be left had no words")
                stream.close()
            with held(turns, said):
                said.append(types.UserContent(message(turn)))
                while True:
                    answer = client.models.generate_content(model=target.gemini, contents=said, config=config)
                    words = words_of(answer)
                    said.append(answer.candidates[0].content)
                    if not answer.function_calls:
                        break
                    said.append(types.UserContent([result_of(call) for call in answer.function_calls]))
                turn.ends_with(words)


def result_of(call: Any) -> Any:
    """Return what a called function says."""
    return types.Part.from_function_response(name=call.name, response={"result": weather(**call.args)})


if __name__ == "__main__":
    suite.main()
