"""Google's own SDK for Python."""

import asyncio
import json
import re
from functools import partial
from importlib import import_module
from typing import Any

import pydantic

from tests.clients.case import Feature, Suite, Target, equal, expect, raised, unique
from tests.clients.samples import PNG, WAV

# It is installed in an environment of its own, and mypy sees other packages below this name.
genai: Any = import_module("google.genai")
errors: Any = import_module("google.genai.errors")
types: Any = import_module("google.genai.types")
suite = Suite("google-genai", "google-genai")

WEATHER = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="weather",
            description="The weather in a city.",
            parameters=types.Schema(
                type=types.Type.OBJECT, properties={"city": types.Schema(type=types.Type.STRING)}, required=["city"]
            ),
        )
    ]
)
TWO_CALLS = 'call: weather {"city": "Oslo"}\ncall: weather {"city": "São Paulo"}'
BY_HAND = types.AutomaticFunctionCallingConfig(disable=True)
THINKING = types.ThinkingConfig(include_thoughts=True, thinking_budget=2048)


class Person(pydantic.BaseModel):
    """What is asked for as a structured answer."""

    name: str
    age: int


def sdk(target: Target, *, key: str | None = None) -> Any:
    """Return the client."""
    return genai.Client(api_key=key or target.key, http_options=types.HttpOptions(base_url=target.url))


def ask(target: Target, contents: Any, model: str | None = None, **config: Any) -> Any:
    """Ask for a whole answer."""
    wanted = types.GenerateContentConfig(automatic_function_calling=BY_HAND, **config)
    with sdk(target) as client:
        return client.models.generate_content(model=model or target.gemini, contents=contents, config=wanted)


def streamed(target: Target, contents: Any, **config: Any) -> list[Any]:
    """Ask for a stream; return what comes."""
    wanted = types.GenerateContentConfig(automatic_function_calling=BY_HAND, **config)
    with sdk(target) as client:
        return [*client.models.generate_content_stream(model=target.gemini, contents=contents, config=wanted)]


def reason_of(answer: Any) -> str:
    """Return why an answer ended."""
    return str(answer.candidates[0].finish_reason.value)


@suite.case(Feature.ANSWERS)
def content_is_generated(target: Target) -> None:
    answer = ask(target, "say: hello you")
    equal((answer.text, reason_of(answer)), ("hello you", "STOP"))
    usage = answer.usage_metadata
    equal((usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count), (3, 2, 5))


@suite.case(Feature.ANSWERS)
async def content_is_generated_asynchronously(target: Target) -> None:
    client = sdk(target)
    answers = await asyncio.gather(
        *(
            client.aio.models.generate_content(model=target.gemini, contents=f"say: number {number}")
            for number in range(8)
        )
    )
    equal([answer.text for answer in answers], [f"number {number}" for number in range(8)])
    await client.aio.aclose()


@suite.case(Feature.ANSWERS)
def content_follows_the_system_instruction(target: Target) -> None:
    equal(json.loads(ask(target, "echo: system", system_instruction="Be brief.").text), "Be brief.")


@suite.case(Feature.ANSWERS)
def a_chat_remembers_what_was_said(target: Target) -> None:
    client = sdk(target)
    chat = client.chats.create(model=target.gemini)
    chat.send_message("say: one")
    equal(chat.send_message("say: two").text, "two")
    equal([turn.role for turn in chat.get_history()], ["user", "model", "user", "model"])


@suite.case(Feature.STREAMING)
def content_is_streamed(target: Target) -> None:
    pieces = streamed(target, "say: one two three")
    equal("".join(piece.text or "" for piece in pieces), "one two three")
    expect(len(pieces) >= 3, pieces)
    equal((reason_of(pieces[-1]), pieces[-1].usage_metadata.candidates_token_count), ("STOP", 3))


@suite.case(Feature.STREAMING)
async def content_is_streamed_asynchronously(target: Target) -> None:
    client = sdk(target)
    stream = await client.aio.models.generate_content_stream(model=target.gemini, contents="say: one two")
    equal("".join([piece.text or "" async for piece in stream]), "one two")
    await client.aio.aclose()


@suite.case(Feature.TOOLS)
def a_function_is_called_and_its_answer_heard(target: Target) -> None:
    first = ask(target, 'call: weather {"city": "Oslo"}', tools=[WEATHER])
    (call,) = first.function_calls
    equal((call.name, call.args), ("weather", {"city": "Oslo"}))
    result = types.Part.from_function_response(name="weather", response={"result": "rain"})
    contents = [
        types.Content(role="user", parts=[types.Part(text='call: weather {"city": "Oslo"}')]),
        first.candidates[0].content,
        types.Content(role="user", parts=[result]),
    ]
    equal(ask(target, contents, tools=[WEATHER]).text, "The tool said: rain")


@suite.case(Feature.TOOLS)
def functions_of_python_are_called_by_the_sdk(target: Target) -> None:
    def weather(city: str) -> str:
        """Tell the weather in a city."""
        return f"rain in {city}"

    config = types.GenerateContentConfig(tools=[weather])
    client = sdk(target)
    answer = client.models.generate_content(
        model=target.gemini, contents='call: weather {"city": "Oslo"}', config=config
    )
    equal(answer.text, "The tool said: rain in Oslo")


@suite.case(Feature.TOOLS)
def functions_are_called_in_parallel(target: Target) -> None:
    calls = ask(target, TWO_CALLS, tools=[WEATHER]).function_calls
    equal([call.args["city"] for call in calls], ["Oslo", "São Paulo"])


@suite.case(Feature.TOOLS)
def functions_are_called_in_a_stream(target: Target) -> None:
    calls = [call for piece in streamed(target, TWO_CALLS, tools=[WEATHER]) for call in piece.function_calls or ()]
    equal([call.args["city"] for call in calls], ["Oslo", "São Paulo"])


@suite.case(Feature.TOOLS)
def the_choice_of_a_function_is_obeyed(target: Target) -> None:
    def chosen(**fields: Any) -> Any:
        return types.ToolConfig(function_calling_config=types.FunctionCallingConfig(**fields))

    for choice in (chosen(mode="ANY", allowed_function_names=["weather"]), chosen(mode="ANY")):
        answer = ask(target, 'data: {"city": "Rome"}', tools=[WEATHER], tool_config=choice)
        equal([call.args for call in answer.function_calls], [{"city": "Rome"}])
    none = ask(target, 'say: no\ncall: weather {"city": "Rome"}', tools=[WEATHER], tool_config=chosen(mode="NONE"))
    equal((none.text, none.function_calls), ("no", None))


@suite.case(Feature.TOOLS)
def signatures_come_back_as_they_were(target: Target) -> None:
    if target.translates:
        return
    thinks = types.ThinkingConfig(include_thoughts=True)
    (candidate,) = ask(target, 'call: weather {"city": "Oslo"}', tools=[WEATHER], thinking_config=thinks).candidates
    *_, call = candidate.content.parts
    expect(re.fullmatch(rb"[0-9a-f]{12}\.[0-9a-f]{32}", call.thought_signature or b""), call)


@suite.case(Feature.STRUCTURED)
def a_structured_answer_is_parsed(target: Target) -> None:
    answer = ask(
        target, 'data: {"name": "Ada", "age": 36}', response_mime_type="application/json", response_schema=Person
    )
    equal(answer.parsed, Person(name="Ada", age=36))


@suite.case(Feature.STRUCTURED)
def an_answer_follows_a_json_schema(target: Target) -> None:
    schema = Person.model_json_schema()
    answer = ask(
        target, 'data: {"name": "Ada", "age": 36}', response_mime_type="application/json", response_json_schema=schema
    )
    equal(json.loads(answer.text), {"name": "Ada", "age": 36})


@suite.case(Feature.MEDIA)
def a_picture_is_seen(target: Target) -> None:
    contents = ["What is it?", types.Part.from_bytes(data=PNG, mime_type="image/png")]
    equal(ask(target, contents).text, "I was shown a PNG of 3x2.")


@suite.case(Feature.MEDIA, unsaid="audio")
def a_sound_is_heard(target: Target) -> None:
    contents = ["What is it?", types.Part.from_bytes(data=WAV, mime_type="audio/wav")]
    expect(ask(target, contents).text.startswith("I was shown audio/wav"))


@suite.case(Feature.REASONING)
def thoughts_are_shown(target: Target) -> None:
    answer = ask(target, "think: hm well\nsay: yes", thinking_config=THINKING)
    parts = answer.candidates[0].content.parts
    equal("".join(part.text for part in parts if part.thought).strip(), "hm well")
    equal("".join(part.text for part in parts if part.text and not part.thought), "yes")


@suite.case(Feature.REASONING)
def thoughts_are_streamed(target: Target) -> None:
    pieces = streamed(target, "think: hm well\nsay: yes sir", thinking_config=THINKING)
    parts = [part for piece in pieces for part in piece.candidates[0].content.parts]
    equal("".join(part.text for part in parts if part.text and part.thought).strip(), "hm well")
    equal("".join(part.text for part in parts if part.text and not part.thought), "yes sir")


@suite.case(Feature.FIELDS)
def an_answer_ends_at_the_most_tokens(target: Target) -> None:
    answer = ask(target, f"say: {'word ' * 30}", max_output_tokens=20)
    equal((len(answer.text.split()), reason_of(answer)), (20, "MAX_TOKENS"))


@suite.case(Feature.FIELDS, unsaid="stop")
def an_answer_stops_where_it_is_told(target: Target) -> None:
    equal(ask(target, "say: one two three", stop_sequences=["two"]).text.strip(), "one")


@suite.case(Feature.FIELDS)
def a_temperature_is_passed_on(target: Target) -> None:
    body = json.loads(ask(target, "echo: body", temperature=0.5).text)
    equal((body.get("generationConfig") or body)["temperature"], 0.5)


@suite.case(Feature.FIELDS, unsaid="topK")
def top_k_is_passed_on(target: Target) -> None:
    equal(json.loads(ask(target, "echo: body", top_k=40).text)["generationConfig"]["topK"], 40)


@suite.case(Feature.FIELDS, unsaid="xOfTheFuture")
def unknown_fields_are_passed_on(target: Target) -> None:
    extra = {"xOfTheFuture": {"b": 1, "a": [None]}}
    options = types.HttpOptions(extra_body=extra)
    body = json.loads(ask(target, "echo: body", http_options=options).text)
    equal(body["xOfTheFuture"], extra["xOfTheFuture"])


@suite.case(Feature.ERRORS)
def a_wrong_key_is_a_client_error(target: Target) -> None:
    client = sdk(target, key=target.wrong_key)
    error = raised(
        errors.ClientError,
        lambda: client.models.generate_content(model=target.gemini, contents="say: hi"),
    )
    equal((error.code, error.status), (401, "UNAUTHENTICATED") if target.gateway else (400, "INVALID_ARGUMENT"))


@suite.case(Feature.ERRORS)
def a_key_without_rights_is_denied(target: Target) -> None:
    client = sdk(target, key=target.forbidden_key)
    error = raised(
        errors.ClientError,
        lambda: client.models.generate_content(model=target.gemini, contents="say: hi"),
    )
    equal((error.code, error.status), (403, "PERMISSION_DENIED"))


@suite.case(Feature.ERRORS)
def an_unknown_model_is_not_found(target: Target) -> None:
    error = raised(errors.ClientError, lambda: ask(target, "say: hi", model="missing-model"))
    equal((error.code, error.status), (404, "NOT_FOUND"))


@suite.case(Feature.ERRORS)
def what_the_provider_refuses_is_refused_alike(target: Target) -> None:
    model = target.troubled_model("gemini")
    for status, word in ((400, "INVALID_ARGUMENT"), (429, "RESOURCE_EXHAUSTED")):
        error = raised(errors.ClientError, partial(ask, target, f"fail: {status}", model))
        equal((error.code, error.status), (status, word))


@suite.case(Feature.ERRORS)
def what_the_provider_cannot_do_is_a_server_error(target: Target) -> None:
    model = target.troubled_model("gemini")
    expect(raised(errors.ServerError, lambda: ask(target, "fail: 500", model=model)).code >= 500)


@suite.case(Feature.RETRIES)
def a_failure_is_retried(target: Target) -> None:
    key, model = unique("again"), target.troubled_model("gemini")
    retries = types.HttpRetryOptions(attempts=3, initial_delay=0.1, http_status_codes=[500, 502])
    options = types.HttpOptions(retry_options=retries)
    answer = ask(target, f"say: at last\nfail: 500 times 1 {key}", model=model, http_options=options)
    equal(answer.text, "at last")


@suite.case(Feature.OTHERS)
def tokens_are_counted(target: Target) -> None:
    client = sdk(target)
    counted = client.models.count_tokens(model=target.gemini, contents="say: one two three")
    equal(counted.total_tokens, 8)


@suite.case(Feature.OTHERS)
def models_are_listed(target: Target) -> None:
    client = sdk(target)
    expect(f"models/{target.gemini}" in [model.name for model in client.models.list()])
    equal(client.models.get(model=target.gemini).name, f"models/{target.gemini}")


def decisions_are_made(target: Target) -> None:
    questions = {"angry": {"type": "noul", "instructions": "Say yes if the writer is angry."}}
    with sdk(target) as client:
        answer = client.decisions.create(model=target.gemini, input="The parcel never came.", questions=questions)
    equal((answer.answers["angry"].type, answer.answers["angry"].noul), ("noul", 0.9))


if int(genai.__version__.partition(".")[0]) >= 3:  # before, there are none
    suite.case(Feature.OTHERS)(decisions_are_made)


if __name__ == "__main__":
    suite.main()
