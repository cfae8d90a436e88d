"""Google's own SDK for Python: its chats, with functions that it calls by itself, whole and streamed; and by hand."""

from importlib import import_module
from typing import Any

from tests.clients.case import Suite, Target
from tests.clients.conversation import ABOUT, SCHEMA, Lost, Turn, Turns, forecast
from tests.clients.samples import PNG

# It is installed in an environment of its own, and mypy sees other packages below this name.
genai: Any = import_module("google.genai")
types: Any = import_module("google.genai.types")
suite = Suite("google-genai", "google-genai")


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return forecast(city)


def sdk(target: Target) -> Any:
    """Return the client, with nothing changed but address and key."""
    return genai.Client(api_key=target.key, http_options=types.HttpOptions(base_url=target.url))


def message(turn: Turn) -> list[Any]:
    """Return what the user says."""
    return [turn.text, *([types.Part.from_bytes(data=PNG, mime_type="image/png")] if turn.picture else [])]


def by_itself(**more: Any) -> Any:
    """Return the settings of a chat that calls functions by itself."""
    return types.GenerateContentConfig(tools=[weather], system_instruction="Be brief.", **more)


@suite.conversation("gemini")
def chat_whole(target: Target, turns: Turns) -> None:
    with sdk(target) as client:
        chat = client.chats.create(model=target.gemini, config=by_itself())
        for turn in turns:
            turn.ends_with(chat.send_message(message(turn)).text)


@suite.conversation("gemini")
def chat_streamed(target: Target, turns: Turns) -> None:
    with sdk(target) as client:
        chat = client.chats.create(model=target.gemini, config=by_itself())
        for turn in turns:
            words = "".join(chunk.text or "" for chunk in chat.send_message_stream(message(turn)))
            turn.ends_with(words)


@suite.conversation("gemini")
def chat_with_thoughts(target: Target, turns: Turns) -> None:
    thinking = types.ThinkingConfig(include_thoughts=True)
    with sdk(target) as client:
        chat = client.chats.create(model=target.gemini, config=by_itself(thinking_config=thinking))
        for turn in turns:
            turn.ends_with(chat.send_message(message(turn)).text)


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
            said.append(types.UserContent(message(turn)))
            while True:
                answer = client.models.generate_content(model=target.gemini, contents=said, config=config)
                said.append(answer.candidates[0].content)
                if not answer.function_calls:
                    break
                said.append(types.UserContent([result_of(call) for call in answer.function_calls]))
            turn.ends_with(answer.text)


def result_of(call: Any) -> Any:
    """Return what a called function says."""
    return types.Part.from_function_response(name=call.name, response={"result": weather(**call.args)})


if __name__ == "__main__":
    suite.main()
