"""OpenAI's own SDK for Python: chat completions, completions, responses, and what else it has a method for."""

import asyncio
import base64
import importlib.util
import io
import json
from typing import Any

import openai
import pydantic

from tests.clients.case import Feature, Suite, Target, equal, expect, raised, raised_by, unique
from tests.clients.samples import PNG_URL, WAV, floats

MAJOR = int(openai.VERSION.partition(".")[0])
suite = Suite(f"openai-python {MAJOR}", "openai")

HAS_WEBSOCKETS = importlib.util.find_spec("websockets") is not None  # it comes with openai[realtime]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
WEATHER_OF_RESPONSES: Any = {"type": "function", "strict": False, **WEATHER["function"]}
TWO_CALLS = 'call: weather {"city": "Oslo"}\ncall: weather {"city": "São Paulo"}'


SUMMARISES = "translated twice"  # behind chat is Responses there: thoughts are told where their summary is asked for


class Person(pydantic.BaseModel):
    """What is asked for as a structured answer."""

    name: str
    age: int


ADA = Person(name="Ada Lovelace", age=36)


def sdk(target: Target, **options: Any) -> Any:
    """Return the client, without retries unless ``options`` say otherwise."""
    return openai.OpenAI(**{"base_url": target.openai, "api_key": target.key, "max_retries": 0, **options})


def async_sdk(target: Target, **options: Any) -> Any:
    """Return the asynchronous client."""
    return openai.AsyncOpenAI(**{"base_url": target.openai, "api_key": target.key, "max_retries": 0, **options})


def user(text: str) -> list[dict[str, str]]:
    """Return what one user says as a conversation."""
    return [{"role": "user", "content": text}]


def ask(target: Target, text: str, **fields: Any) -> Any:
    """Ask for a chat completion."""
    return sdk(target).chat.completions.create(model=target.chat, messages=user(text), **fields)


@suite.case(Feature.ANSWERS)
def chat_answers(target: Target) -> None:
    answer = ask(target, "say: hello you")
    equal(answer.choices[0].message.content, "hello you")
    equal(answer.choices[0].finish_reason, "stop")
    equal(answer.object, "chat.completion")
    equal(answer.usage.prompt_tokens, 3)
    equal(answer.usage.completion_tokens, 2)
    equal(answer.usage.total_tokens, 5)


@suite.case(Feature.ANSWERS)
async def chat_answers_asynchronously(target: Target) -> None:
    async with async_sdk(target) as client:
        answers = await asyncio.gather(
            *(
                client.chat.completions.create(model=target.chat, messages=user(f"say: number {number}"))
                for number in range(8)
            )
        )
    equal([answer.choices[0].message.content for answer in answers], [f"number {number}" for number in range(8)])


@suite.case(Feature.ANSWERS)
def chat_remembers_a_conversation(target: Target) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        *user("say: one"),
        {"role": "assistant", "content": "one"},
        *user("echo: system"),
    ]
    answer = sdk(target).chat.completions.create(model=target.chat, messages=messages)
    equal(json.loads(answer.choices[0].message.content), "Be brief.")


@suite.case(Feature.ANSWERS)
def chat_gives_the_raw_response(target: Target) -> None:
    raw = sdk(target).chat.completions.with_raw_response.create(model=target.chat, messages=user("say: raw"))
    equal(raw.status_code, 200)
    equal(raw.headers["content-type"].partition(";")[0], "application/json")
    equal(json.loads(raw.text if isinstance(raw.text, str) else raw.text())["choices"][0]["message"]["content"], "raw")
    equal(raw.parse().choices[0].message.content, "raw")
    if target.gateway:
        equal(raw.headers["x-holeshot-launched"], "2")


@suite.case(Feature.ANSWERS, unsaid="raw prompt")
def completions_answer(target: Target) -> None:
    answer = sdk(target).completions.create(model=target.models["completions"], prompt="say: once upon")
    equal(answer.choices[0].text, "once upon")
    equal(answer.choices[0].finish_reason, "stop")
    equal(answer.usage.completion_tokens, 2)


@suite.case(Feature.ANSWERS)
def responses_answer(target: Target) -> None:
    answer = sdk(target).responses.create(model=target.responses, input="say: hello you", instructions="Be brief.")
    equal(answer.output_text, "hello you")
    equal(answer.status, "completed")
    equal(answer.usage.input_tokens, 3)
    equal(answer.usage.output_tokens, 2)


@suite.case(Feature.ANSWERS)
async def responses_answer_asynchronously(target: Target) -> None:
    async with async_sdk(target) as client:
        items = [{"role": "developer", "content": "Be brief."}, *user("echo: system")]
        answer = await client.responses.create(model=target.responses, input=items)
    equal(json.loads(answer.output_text), "Be brief.")


@suite.case(Feature.ANSWERS)
def responses_answer_over_a_websocket(target: Target) -> None:
    if not (HAS_WEBSOCKETS and target.gateway):
        return  # the upstream speaks HTTP only, as the gateway asks it
    with sdk(target).responses.connect() as connection:
        connection.response.create(model=target.responses, input="say: nothing", generate=False)
        warm = _finished(connection)
        equal(warm.output, [])
        connection.response.create(model=target.responses, input="say: hello you", previous_response_id=warm.id)
        answer = _finished(connection)
        equal(answer.output_text, "hello you")
        connection.response.create(model=target.responses, input="say: lost", previous_response_id="resp_lost")
        equal(next(iter(connection)).error.code, "previous_response_not_found")
        connection.response.create(model=target.responses, input="say: one", stream_id="one")
        connection.response.create(model=target.responses, input="say: two", stream_id="two")
        ends = [_end(connection) for _ in range(2)]
        equal({event.stream_id: event.response.output_text for event in ends}, {"one": "one", "two": "two"})


@suite.case(Feature.TOOLS)
def a_loop_of_ten_tools_goes_on_over_a_websocket(target: Target) -> None:
    if not (HAS_WEBSOCKETS and target.gateway):
        return
    with sdk(target).responses.connect() as connection:
        create = connection.response.create
        create(model=target.responses, generate=False, input=[], store=False)
        last = _finished(connection)
        for number in range(1, 6):
            said = 'call: weather {"city": "Oslo"}'
            create(
                model=target.responses,
                tools=[WEATHER_OF_RESPONSES],
                store=False,
                input=user(said),
                previous_response_id=last.id,
            )
            last = _finished(connection)
            calls = [item for item in last.output if item.type == "function_call"]
            equal(
                [json.loads(call.arguments) for call in calls], [{"city": "Oslo"}] * number
            )  # one for each time asked
            results = [
                {"type": "function_call_output", "call_id": call.call_id, "output": f"{number} degrees"}
                for call in calls
            ]
            create(
                model=target.responses,
                tools=[WEATHER_OF_RESPONSES],
                store=False,
                input=results,
                previous_response_id=last.id,
            )
            last = _finished(connection)
            equal(last.output_text, f"The tool said: {', '.join([f'{number} degrees'] * number)}")


def _end(connection: Any) -> Any:
    """Return the last event of a response."""
    return next(event for event in connection if event.type in {"response.completed", "error"})


def _finished(connection: Any) -> Any:
    event = _end(connection)
    expect(event.type == "response.completed", str(event))
    return event.response


@suite.case(Feature.ANSWERS)
def a_long_prompt_arrives_whole(target: Target) -> None:
    words = "lorem ipsum " * 100_000
    answer = ask(target, f"{words}\nsay: read it")
    equal(answer.choices[0].message.content, "read it")
    equal(answer.usage.prompt_tokens, 200_003)


@suite.case(Feature.STREAMING)
def chat_streams(target: Target) -> None:
    chunks = list(ask(target, "say: one two three four", stream=True))
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), "one two three four")
    expect(sum(bool(chunk.choices and chunk.choices[0].delta.content) for chunk in chunks) >= 4, "words in one piece")
    equal([choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason], ["stop"])
    equal([chunk for chunk in chunks if chunk.usage], [])
    equal(len({chunk.id for chunk in chunks}), 1)


@suite.case(Feature.STREAMING)
def chat_streams_with_usage(target: Target) -> None:
    chunks = list(ask(target, "say: one two", stream=True, stream_options={"include_usage": True}))
    last = chunks[-1]
    equal(last.choices, [])
    equal((last.usage.prompt_tokens, last.usage.completion_tokens), (3, 2))
    equal([chunk.usage for chunk in chunks[:-1]], [None] * (len(chunks) - 1))


@suite.case(Feature.STREAMING)
async def chat_streams_asynchronously(target: Target) -> None:
    async with async_sdk(target) as client:
        stream = await client.chat.completions.create(
            model=target.chat, messages=user("say: one two three"), stream=True
        )
        words = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    equal("".join(words), "one two three")


@suite.case(Feature.STREAMING)
def chat_streams_through_the_helper(target: Target) -> None:
    with sdk(target).chat.completions.stream(model=target.chat, messages=user("say: one two three")) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    expect("content.delta" in kinds and "content.done" in kinds, kinds)
    equal(final.choices[0].message.content, "one two three")


@suite.case(Feature.STREAMING)
def chat_gives_the_lines_of_a_streaming_response(target: Target) -> None:
    with sdk(target).chat.completions.with_streaming_response.create(
        model=target.chat, messages=user("say: one two"), stream=True
    ) as response:
        equal(response.headers["content-type"].partition(";")[0], "text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    equal(lines[-1], "data: [DONE]")
    expect(all(line.startswith("data: ") for line in lines), lines)


@suite.case(Feature.STREAMING)
def a_stream_that_is_closed_early_leaves_nothing_behind(target: Target) -> None:
    stream = ask(target, "say: " + "word " * 5000, stream=True)
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            break
    stream.close()
    equal(ask(target, "say: still here").choices[0].message.content, "still here")


@suite.case(Feature.STREAMING, unsaid="raw prompt")
def completions_stream(target: Target) -> None:
    chunks = list(
        sdk(target).completions.create(model=target.models["completions"], prompt="say: once upon a", stream=True)
    )
    equal("".join(chunk.choices[0].text for chunk in chunks if chunk.choices), "once upon a")
    equal([choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason], ["stop"])


@suite.case(Feature.STREAMING)
def responses_stream_typed_events(target: Target) -> None:
    events = list(sdk(target).responses.create(model=target.responses, input="say: one two three", stream=True))
    kinds = [event.type for event in events]
    equal(kinds[0], "response.created")
    equal(kinds[-1], "response.completed")
    for kind in (
        *("response.output_item.added", "response.content_part.added", "response.output_text.done"),
        *("response.content_part.done", "response.output_item.done"),
    ):
        equal((kind, kinds.count(kind)), (kind, 1))
    equal("".join(event.delta for event in events if event.type == "response.output_text.delta"), "one two three")
    equal([event.sequence_number for event in events], list(range(len(events))))
    equal(events[-1].response.output_text, "one two three")
    equal(events[-1].response.usage.output_tokens, 3)
    equal(events[0].response.id, events[-1].response.id)


@suite.case(Feature.STREAMING)
async def responses_stream_through_the_helper(target: Target) -> None:
    async with (
        async_sdk(target) as client,
        client.responses.stream(model=target.responses, input="say: one two three") as stream,
    ):
        words = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    equal("".join(words), "one two three")
    equal(final.output_text, "one two three")


@suite.case(Feature.TOOLS)
def chat_calls_a_tool_and_hears_its_result(target: Target) -> None:
    conversation: list[Any] = user('call: weather {"city": "Oslo"}')
    first = sdk(target).chat.completions.create(model=target.chat, messages=conversation, tools=[WEATHER])
    equal(first.choices[0].finish_reason, "tool_calls")
    (call,) = first.choices[0].message.tool_calls
    equal((call.function.name, json.loads(call.function.arguments)), ("weather", {"city": "Oslo"}))
    conversation += [first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    second = sdk(target).chat.completions.create(model=target.chat, messages=conversation, tools=[WEATHER])
    equal(second.choices[0].message.content, "The tool said: rain")


@suite.case(Feature.TOOLS)
def chat_calls_tools_in_parallel(target: Target) -> None:
    calls = ask(target, TWO_CALLS, tools=[WEATHER]).choices[0].message.tool_calls
    equal([json.loads(call.function.arguments)["city"] for call in calls], ["Oslo", "São Paulo"])
    equal(len({call.id for call in calls}), 2)


@suite.case(Feature.TOOLS)
def chat_calls_one_tool_when_told_so(target: Target) -> None:
    calls = ask(target, TWO_CALLS, tools=[WEATHER], parallel_tool_calls=False).choices[0].message.tool_calls
    equal([json.loads(call.function.arguments)["city"] for call in calls], ["Oslo"])


@suite.case(Feature.TOOLS)
def chat_streams_the_arguments_of_tools(target: Target) -> None:
    arguments: dict[int, str] = {}
    names: dict[int, str] = {}
    pieces = 0
    for chunk in ask(target, TWO_CALLS, tools=[WEATHER], stream=True):
        for call in (chunk.choices[0].delta.tool_calls or ()) if chunk.choices else ():
            pieces += bool(call.function.arguments)
            names[call.index] = names.get(call.index, "") + (call.function.name or "")
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    equal([json.loads(arguments[index])["city"] for index in (0, 1)], ["Oslo", "São Paulo"])
    equal(names, {0: "weather", 1: "weather"})
    expect(pieces > 2, "arguments in one piece")


@suite.case(Feature.TOOLS)
def chat_obeys_the_choice_of_a_tool(target: Target) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    (call,) = ask(target, 'data: {"city": "Rome"}', tools=[WEATHER], tool_choice=choice).choices[0].message.tool_calls
    equal(json.loads(call.function.arguments), {"city": "Rome"})
    required = ask(target, 'data: {"city": "Rome"}', tools=[WEATHER], tool_choice="required")
    equal(len(required.choices[0].message.tool_calls), 1)
    none = ask(target, 'say: no\ncall: weather {"city": "Rome"}', tools=[WEATHER], tool_choice="none")
    equal((none.choices[0].message.content, none.choices[0].message.tool_calls), ("no", None))


@suite.case(Feature.TOOLS)
def responses_call_a_tool_and_hear_its_result(target: Target) -> None:
    conversation: list[Any] = user('call: weather {"city": "Oslo"}')
    first = sdk(target).responses.create(model=target.responses, input=conversation, tools=[WEATHER_OF_RESPONSES])
    (call,) = [item for item in first.output if item.type == "function_call"]
    equal((call.name, json.loads(call.arguments)), ("weather", {"city": "Oslo"}))
    conversation += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}]
    second = sdk(target).responses.create(model=target.responses, input=conversation, tools=[WEATHER_OF_RESPONSES])
    equal(second.output_text, "The tool said: rain")


@suite.case(Feature.TOOLS)
def responses_stream_the_arguments_of_tools(target: Target) -> None:
    events = list(
        sdk(target).responses.create(model=target.responses, input=TWO_CALLS, tools=[WEATHER_OF_RESPONSES], stream=True)
    )
    done = [event for event in events if event.type == "response.function_call_arguments.done"]
    equal([json.loads(event.arguments)["city"] for event in done], ["Oslo", "São Paulo"])
    for event in done:
        deltas = [
            other.delta
            for other in events
            if other.type == "response.function_call_arguments.delta" and other.item_id == event.item_id
        ]
        equal("".join(deltas), event.arguments)
    final = events[-1].response.output
    equal([item.type for item in final], ["function_call", "function_call"])


@suite.case(Feature.STRUCTURED)
def chat_parses_a_structured_answer(target: Target) -> None:
    answer = sdk(target).chat.completions.parse(
        model=target.chat, messages=user(f"data: {ADA.model_dump_json()}"), response_format=Person
    )
    equal(answer.choices[0].message.parsed, ADA)


@suite.case(Feature.STRUCTURED, unsaid="response_format")
def chat_answers_any_json_object(target: Target) -> None:
    answer = ask(target, 'In JSON.\ndata: {"a": [1]}', response_format={"type": "json_object"})
    equal(json.loads(answer.choices[0].message.content), {"a": [1]})


@suite.case(Feature.STRUCTURED)
def responses_parse_a_structured_answer(target: Target) -> None:
    answer = sdk(target).responses.parse(
        model=target.responses, input=f"data: {ADA.model_dump_json()}", text_format=Person
    )
    equal(answer.output_parsed, ADA)


@suite.case(Feature.STRUCTURED)
def responses_stream_a_structured_answer(target: Target) -> None:
    with sdk(target).responses.stream(
        model=target.responses, input=f"data: {ADA.model_dump_json()}", text_format=Person
    ) as stream:
        stream.until_done()
        equal(stream.get_final_response().output_parsed, ADA)


@suite.case(Feature.MEDIA)
def chat_sees_a_picture(target: Target) -> None:
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": PNG_URL}}]
    answer = sdk(target).chat.completions.create(model=target.chat, messages=[{"role": "user", "content": parts}])
    equal(answer.choices[0].message.content, "I was shown a PNG of 3x2.")


@suite.case(Feature.MEDIA)
def chat_is_told_where_a_picture_is(target: Target) -> None:
    url = "https://example.com/cat.png"
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    answer = sdk(target).chat.completions.create(model=target.chat, messages=[{"role": "user", "content": parts}])
    equal(answer.choices[0].message.content, f"I was shown something at {url}.")


@suite.case(Feature.MEDIA, unsaid=("input_audio", "content[1]"))
def chat_hears_sound(target: Target) -> None:
    sound = {"data": base64.b64encode(WAV).decode(), "format": "wav"}
    parts = [{"type": "text", "text": "What is it?"}, {"type": "input_audio", "input_audio": sound}]
    answer = sdk(target).chat.completions.create(model=target.chat, messages=[{"role": "user", "content": parts}])
    equal(answer.choices[0].message.content, f"I was shown audio/wav of {len(WAV)} bytes.")


@suite.case(Feature.MEDIA)
def responses_see_a_picture(target: Target) -> None:
    parts = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": PNG_URL}]
    answer = sdk(target).responses.create(model=target.responses, input=[{"role": "user", "content": parts}])
    equal(answer.output_text, "I was shown a PNG of 3x2.")


@suite.case(Feature.REASONING)
def chat_thinks_before_it_answers(target: Target) -> None:
    answer = ask(target, "think: hm well\nsay: yes", reasoning_effort="low")
    equal(answer.choices[0].message.content, "yes")
    if target.name != SUMMARISES:
        equal(answer.choices[0].message.reasoning_content.strip(), "hm well")


@suite.case(Feature.REASONING)
def chat_streams_its_thoughts(target: Target) -> None:
    chunks = list(ask(target, "think: hm well\nsay: yes sir", reasoning_effort="low", stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    thoughts = "" if target.name == SUMMARISES else "hm well"
    equal("".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas).strip(), thoughts)
    equal("".join(delta.content or "" for delta in deltas), "yes sir")


@suite.case(Feature.REASONING)
def responses_summarise_their_thoughts(target: Target) -> None:
    answer = sdk(target).responses.create(
        model=target.responses, input="think: hm well\nsay: yes", reasoning={"effort": "low", "summary": "auto"}
    )
    (item,) = [item for item in answer.output if item.type == "reasoning"]
    thoughts = [part.text for part in item.summary] or [part.text for part in item.content]
    equal("".join(thoughts).strip(), "hm well")
    equal(answer.output_text, "yes")


@suite.case(Feature.FIELDS, unsaid="stop")
def chat_stops_where_it_is_told(target: Target) -> None:
    answer = ask(target, "say: one two three", stop=["two", "three"])
    equal((answer.choices[0].message.content.strip(), answer.choices[0].finish_reason), ("one", "stop"))


@suite.case(Feature.FIELDS)
def chat_ends_at_the_most_tokens(target: Target) -> None:
    for field in ("max_completion_tokens", "max_tokens"):
        answer = ask(target, f"say: {'word ' * 30}", **{field: 20})
        equal((len(answer.choices[0].message.content.split()), answer.choices[0].finish_reason), (20, "length"))
        equal(answer.usage.completion_tokens, 20)


@suite.case(Feature.FIELDS)
def responses_end_at_the_most_tokens(target: Target) -> None:
    answer = sdk(target).responses.create(model=target.responses, input=f"say: {'word ' * 30}", max_output_tokens=20)
    equal((len(answer.output_text.split()), answer.status), (20, "incomplete"))
    equal(answer.incomplete_details.reason, "max_output_tokens")


@suite.case(Feature.FIELDS, unsaid="n")
def chat_gives_several_choices(target: Target) -> None:
    answer = ask(target, "say: twice", n=2)
    equal([(choice.index, choice.message.content) for choice in answer.choices], [(0, "twice"), (1, "twice")])


@suite.case(Feature.FIELDS, unsaid="n")
def chat_streams_several_choices(target: Target) -> None:
    texts = {0: "", 1: ""}
    for chunk in ask(target, "say: one two", n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    equal(texts, {0: "one two", 1: "one two"})


@suite.case(Feature.FIELDS, unsaid="logprobs")
def chat_tells_log_probabilities(target: Target) -> None:
    content = ask(target, "say: one two", logprobs=True, top_logprobs=2).choices[0].logprobs.content
    equal([entry.token for entry in content], ["one ", "two"])
    equal([len(entry.top_logprobs) for entry in content], [2, 2])


@suite.case(Feature.FIELDS, unsaid="logprobs")
def chat_streams_log_probabilities(target: Target) -> None:
    tokens = [
        entry.token
        for chunk in ask(target, "say: one two", logprobs=True, stream=True)
        if chunk.choices and chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    equal(tokens, ["one ", "two"])


@suite.case(Feature.FIELDS, unsaid="seed")
def chat_takes_a_seed(target: Target) -> None:
    body = json.loads(ask(target, "echo: body", seed=7).choices[0].message.content)
    equal(body["seed"], 7)


@suite.case(Feature.FIELDS)
def chat_takes_temperature_and_top_p(target: Target) -> None:
    body = json.loads(ask(target, "echo: body", temperature=0.5, top_p=0.25).choices[0].message.content)
    equal((body["temperature"], body["top_p"]), (0.5, 0.25))


@suite.case(Feature.FIELDS, unsaid="metadata")
def chat_passes_user_and_metadata_on(target: Target) -> None:
    stored: Any = {} if target.translates else {"store": True}  # OpenAI takes metadata of what is stored alone
    answer = ask(target, "echo: body", user="u-1", metadata={"run": "7"}, **stored)
    body = json.loads(answer.choices[0].message.content)
    if target.translates:  # as far as the other dialect has a place for it
        expect("u-1" in json.dumps(body), body)
    else:
        equal((body["user"], body["metadata"]), ("u-1", {"run": "7"}))


@suite.case(Feature.FIELDS, unsaid="x_of_the_future")
def chat_passes_unknown_fields_on(target: Target) -> None:
    extra = {"x_of_the_future": {"b": 1, "a": [None, 1.50]}, "top_k": 40}
    body = json.loads(ask(target, "echo: body", extra_body=extra).choices[0].message.content)
    equal({name: body[name] for name in extra}, extra)


@suite.case(Feature.FIELDS)
def chat_passes_cache_markers_on(target: Target) -> None:
    marker = {"type": "ephemeral"}
    parts = [
        {"type": "text", "text": "A long prefix.", "cache_control": marker},
        {"type": "text", "text": "echo: body"},
    ]
    answer = sdk(target).chat.completions.create(model=target.chat, messages=[{"role": "user", "content": parts}])
    expect("echo: body" in answer.choices[0].message.content, answer)
    if not target.translates:
        equal(json.loads(answer.choices[0].message.content)["messages"][0]["content"][0]["cache_control"], marker)


@suite.case(Feature.FIELDS)
def chat_keeps_unknown_fields_of_the_answer(target: Target) -> None:
    answer = ask(target, "say: hello")
    if not target.translates:
        equal(answer.model_extra["x_future"], {"a_field": ["nobody", "knows"]})
        expect(answer.system_fingerprint in {"fp_a", "fp_b"}, answer.system_fingerprint)
    expect(answer.id, answer)


@suite.case(Feature.FIELDS, unsaid="x_of_the_future")
def responses_pass_unknown_fields_on(target: Target) -> None:
    extra = {"x_of_the_future": {"b": 1, "a": [None]}}
    answer = sdk(target).responses.create(model=target.responses, input="echo: body", extra_body=extra)
    equal(json.loads(answer.output_text)["x_of_the_future"], extra["x_of_the_future"])


@suite.case(Feature.FIELDS, unsaid="store")
def responses_continue_a_stored_one(target: Target) -> None:
    client, words = sdk(target), unique("words")
    first = client.responses.create(model=target.responses, input=f"say: {words}", store=True)
    # Behind a gateway that keeps the items, another API is asked with all of them.
    asked = "echo: body" if target.translates else "Say so again."
    second = client.responses.create(model=target.responses, input=asked, previous_response_id=first.id, store=True)
    expect(words in second.output_text, second.output_text)


@suite.case(Feature.FIELDS)
def responses_do_not_know_an_unknown_previous_one(target: Target) -> None:
    create = sdk(target).responses.create
    error = raised(
        openai.BadRequestError,
        lambda: create(model=target.responses, input="say: hi", previous_response_id="resp_of_nobody"),
    )
    expect("resp_of_nobody" in str(error), error)


@suite.case(Feature.ERRORS)
def a_wrong_key_is_an_authentication_error(target: Target) -> None:
    client = sdk(target, api_key=target.wrong_key)
    for call in (
        lambda: client.chat.completions.create(model=target.chat, messages=user("say: hi")),
        lambda: client.responses.create(model=target.responses, input="say: hi"),
        client.models.list,
    ):
        equal(raised(openai.AuthenticationError, call).status_code, 401)


@suite.case(Feature.ERRORS)
def a_key_without_rights_is_a_permission_error(target: Target) -> None:
    client = sdk(target, api_key=target.forbidden_key)
    error = raised(
        openai.PermissionDeniedError,
        lambda: client.chat.completions.create(model=target.chat, messages=user("say: hi")),
    )
    equal(error.status_code, 403)


@suite.case(Feature.ERRORS)
def an_unknown_model_is_not_found(target: Target) -> None:
    client = sdk(target)
    for call in (
        lambda: client.chat.completions.create(model="missing-model", messages=user("say: hi")),
        lambda: client.responses.create(model="missing-model", input="say: hi"),
        lambda: client.completions.create(model="missing-model", prompt="say: hi"),
        lambda: client.embeddings.create(model="missing-model", input="hi"),
        lambda: client.models.retrieve("missing-model"),
    ):
        error = raised(openai.NotFoundError, call)
        equal((error.code, error.type), ("model_not_found", "invalid_request_error"))


@suite.case(Feature.ERRORS)
def what_the_provider_refuses_is_refused_alike(target: Target) -> None:
    for status, kind in ((400, openai.BadRequestError), (422, openai.UnprocessableEntityError)):
        client, model = sdk(target), target.troubled_model("chat")
        error = raised(
            kind,
            lambda: client.chat.completions.create(model=model, messages=user(f"fail: {status}")),  # noqa: B023 - called at once
        )
        equal(error.status_code, status)
        expect(f"failed with {status}, as asked for" in str(error), error)
    client, model = sdk(target), target.troubled_model("responses")
    error = raised(openai.BadRequestError, lambda: client.responses.create(model=model, input="fail: 400"))
    expect("failed with 400, as asked for" in str(error), error)


@suite.case(Feature.ERRORS)
def a_malformed_request_is_a_bad_request(target: Target) -> None:
    client = sdk(target)
    for call in (
        lambda: client.chat.completions.create(model=target.chat, messages="not a list"),
        lambda: client.post("/chat/completions", body={"model": target.chat}, cast_to=object),
        lambda: client.post("/responses", body={"model": target.responses}, cast_to=object),
    ):
        expect(raised(openai.BadRequestError, call).body["message"], "no message")


@suite.case(Feature.ERRORS)
def too_many_requests_are_a_rate_limit_error(target: Target) -> None:
    client, model = sdk(target), target.troubled_model("chat")
    error = raised(
        openai.RateLimitError, lambda: client.chat.completions.create(model=model, messages=user("fail: 429"))
    )
    equal(error.status_code, 429)
    expect(float(error.response.headers["retry-after"]) > 0, error.response.headers)


@suite.case(Feature.ERRORS)
def a_failing_provider_is_a_server_error(target: Target) -> None:
    client = sdk(target)
    chat, responses = target.troubled_model("chat"), target.troubled_model("responses")
    for call in (
        lambda: client.chat.completions.create(model=chat, messages=user("fail: 500")),
        lambda: client.responses.create(model=responses, input="fail: 503"),
    ):
        error = raised(openai.InternalServerError, call)
        expect(error.status_code >= 500, error)


@suite.case(Feature.ERRORS)
async def a_failing_provider_is_a_server_error_asynchronously(target: Target) -> None:
    async with async_sdk(target) as client:
        model = target.troubled_model("chat")
        await raised_by(
            openai.InternalServerError,
            client.chat.completions.create(model=model, messages=user("fail: 500"), stream=True),
        )


@suite.case(Feature.ERRORS)
def a_stream_that_breaks_raises(target: Target) -> None:
    model = target.troubled_model("chat")
    text = f"cut: now\nsay: {'word ' * 40}"
    stream = sdk(target).chat.completions.create(model=model, messages=user(text), stream=True)
    words: list[str] = []

    def read() -> None:
        words.extend(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    error = raised(Exception, read)
    expect(not isinstance(error, (AttributeError, IndexError, TypeError)), repr(error))


@suite.case(Feature.ERRORS)
def a_stream_of_responses_that_breaks_is_not_whole(target: Target) -> None:
    model = target.troubled_model("responses")
    text = f"cut: now\nsay: {'word ' * 40}"
    kinds: list[str] = []

    def read() -> None:
        for event in sdk(target).responses.create(model=model, input=text, stream=True):
            kinds.append(event.type)
            if event.type in {"error", "response.failed"}:
                raise ConnectionError(event)

    raised(Exception, read)
    expect("response.completed" not in kinds, kinds)


@suite.case(Feature.ERRORS)
def nobody_listening_is_a_connection_error(target: Target) -> None:
    client = sdk(target, base_url="http://127.0.0.1:9/v1")
    raised(
        openai.APIConnectionError,
        lambda: client.chat.completions.create(model=target.chat, messages=user("say: hi")),
    )


@suite.case(Feature.RETRIES)
def a_failure_is_retried(target: Target) -> None:
    client, key = sdk(target, max_retries=2), unique("again")
    model = target.troubled_model("chat")
    answer = client.chat.completions.create(model=model, messages=user(f"say: at last\nfail: 500 times 1 {key}"))
    equal(answer.choices[0].message.content, "at last")


@suite.case(Feature.RETRIES)
def a_rate_limit_is_waited_for(target: Target) -> None:
    client, key = sdk(target, max_retries=2), unique("again")
    model = target.troubled_model("chat")
    answer = client.chat.completions.create(model=model, messages=user(f"say: at last\nfail: 429 times 1 {key}"))
    equal(answer.choices[0].message.content, "at last")


@suite.case(Feature.RETRIES)
def a_slow_answer_times_out(target: Target) -> None:
    client, model = sdk(target, timeout=0.5), target.troubled_model("chat")
    raised(openai.APITimeoutError, lambda: client.chat.completions.create(model=model, messages=user("slow: 300")))
    raised(
        openai.APITimeoutError,
        lambda: list(client.chat.completions.create(model=model, messages=user("slow: 50"), stream=True)),
    )


@suite.case(Feature.RETRIES)
async def a_cancelled_call_ends_at_once(target: Target) -> None:
    async with async_sdk(target) as client:
        model = target.troubled_model("chat")
        call = client.chat.completions.create(model=model, messages=user("slow: 50"))
        await raised_by(TimeoutError, asyncio.wait_for(call, 0.5))


@suite.case(Feature.OTHERS)
def embeddings_come_in_base64_and_as_numbers(target: Target) -> None:
    client, model = sdk(target), target.models["embeddings"]
    usual = client.embeddings.create(model=model, input=["one", "two"])  # base64 on the wire
    plain = client.embeddings.create(model=model, input=["one", "two"], encoding_format="float")
    encoded = client.embeddings.create(model=model, input="one", encoding_format="base64")
    equal([item.embedding for item in usual.data], [item.embedding for item in plain.data])
    equal(floats(encoded.data[0].embedding), plain.data[0].embedding)
    equal(len(client.embeddings.create(model=model, input="one", dimensions=3).data[0].embedding), 3)
    equal(plain.usage.total_tokens, 2)


@suite.case(Feature.OTHERS)
def moderations_judge(target: Target) -> None:
    answer = sdk(target).moderations.create(model=target.models["moderations"], input=["peace", "violence"])
    equal([result.flagged for result in answer.results], [False, True])


@suite.case(Feature.OTHERS)
def speech_comes_as_bytes(target: Target) -> None:
    create = sdk(target).audio.speech
    answer = create.create(model=target.models["speech"], voice="alloy", input="hello you")
    expect(answer.content.endswith(b"hello you") and answer.content.startswith(b"ID3"), answer.content[:20])
    with create.with_streaming_response.create(model=target.models["speech"], voice="alloy", input="hello") as stream:
        expect(b"".join(stream.iter_bytes()).endswith(b"hello"), "the end is missing")


@suite.case(Feature.OTHERS)
def sound_is_transcribed(target: Target) -> None:
    model = target.models["transcriptions"]
    answer = sdk(target).audio.transcriptions.create(model=model, file=("hello.wav", io.BytesIO(WAV), "audio/wav"))
    equal(answer.text, f"{len(WAV)} bytes of hello.wav for {model}")


@suite.case(Feature.OTHERS)
def speech_comes_as_events(target: Target) -> None:
    asked: Any = {"model": target.models["speech"], "voice": "alloy", "input": "hello you", "stream_format": "sse"}
    with sdk(target).audio.speech.with_streaming_response.create(**asked) as stream:
        equal(stream.headers["content-type"].partition(";")[0], "text/event-stream")
        lines = [line.removeprefix("data: ") for line in stream.iter_lines() if line]
    events = [json.loads(line) for line in lines]
    sound = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    expect(sound.startswith(b"ID3") and sound.endswith(b"hello you"), sound[:20])
    equal((events[-1]["type"], events[-1]["usage"]["total_tokens"]), ("speech.audio.done", 12))


@suite.case(Feature.OTHERS)
def a_transcript_comes_word_by_word(target: Target) -> None:
    model, file = target.models["transcriptions"], ("hello.wav", io.BytesIO(WAV), "audio/wav")
    events = list(sdk(target).audio.transcriptions.create(model=model, file=file, stream=True))
    said = f"{len(WAV)} bytes of hello.wav for {model}"
    equal("".join(event.delta for event in events if event.type == "transcript.text.delta"), said)
    equal((events[-1].type, events[-1].text), ("transcript.text.done", said))


def decisions_are_made(target: Target) -> None:
    questions: Any = [
        {"type": "predicate", "name": "angry", "instructions": "Say yes if the writer is angry."},
        {"type": "choice", "instructions": "Who handles it?", "choices": [{"value": "post"}, {"value": True}]},
    ]
    raw = sdk(target).decisions.with_raw_response.create(
        model=target.models["decisions"], input="The parcel never came.", questions=questions
    )
    answer = raw.parse()
    equal([each.type for each in answer.answers], ["predicate", "choice"])
    equal((answer.answers[0].name, answer.answers[0].probability), ("angry", 0.9))
    equal((answer.answers[1].choice, answer.usage.input_tokens), ("post", 4))
    if target.gateway:
        equal(raw.headers["x-holeshot-launched"], "2")


if MAJOR >= 3:  # before, there are none
    suite.case(Feature.OTHERS)(decisions_are_made)


@suite.case(Feature.OTHERS)
def the_tokens_of_an_input_are_counted(target: Target) -> None:
    counted = sdk(target).responses.input_tokens.count(model=target.responses, input="say: hello you")
    equal((counted.input_tokens, counted.object), (14, "response.input_tokens"))


@suite.case(Feature.OTHERS)
def a_long_conversation_is_compacted(target: Target) -> None:
    said = [*user("say: one"), {"role": "assistant", "content": "one"}, *user("say: two")]
    compacted = sdk(target).responses.compact(model=target.responses, input=said)
    equal(compacted.object, "response.compaction")
    equal([item.type for item in compacted.output], ["message", "message", "compaction"])
    expect(compacted.output[2].encrypted_content, compacted.output)
    expect(compacted.usage.input_tokens > 0, compacted.usage)


@suite.case(Feature.OTHERS)
def a_conversation_is_kept(target: Target) -> None:
    client = sdk(target)
    keeper: Any = {"extra_body": {"model": f"responses-a/{target.responses}"}} if target.gateway else {}
    made = client.conversations.create(items=user("say: Be brief."), metadata={"topic": "cats"}, **keeper)
    equal((client.conversations.retrieve(made.id).metadata, made.object), ({"topic": "cats"}, "conversation"))
    equal(client.conversations.update(made.id, metadata={"topic": "dogs"}).metadata, {"topic": "dogs"})
    answer = client.responses.create(model=target.responses, input="Say so.", conversation=made.id, store=True)
    equal(answer.output_text, "Be brief.")
    items = client.conversations.items
    [added] = items.create(made.id, items=[{"type": "message", "role": "user", "content": "And kind."}]).data
    equal(items.retrieve(added.id, conversation_id=made.id).content[0].text, "And kind.")
    said = ["say: Be brief.", "Say so.", "Be brief.", "And kind."]
    equal([item.content[0].text for item in items.list(made.id)], said)
    items.delete(added.id, conversation_id=made.id)
    equal([item.content[0].text for item in items.list(made.id)], said[:3])
    expect(client.conversations.delete(made.id).deleted)
    raised(openai.NotFoundError, lambda: client.conversations.retrieve(made.id))


@suite.case(Feature.OTHERS)
def images_are_drawn(target: Target) -> None:
    answer = sdk(target).images.generate(model=target.models["images"], prompt="a cat", n=2)
    equal([base64.b64decode(item.b64_json)[:4] for item in answer.data], [b"\x89PNG"] * 2)


@suite.case(Feature.OTHERS)
def models_are_listed(target: Target) -> None:
    client = sdk(target)
    expect({target.chat, target.responses} <= {model.id for model in client.models.list()}, "some are missing")
    equal(client.models.retrieve(target.chat).id, target.chat)


VALID = {"x-holeshot-race": '{"mode": "race", "win_on": "valid"}'}


def spoilers(target: Target) -> tuple[str, ...]:
    """Return whose answers are to be spoilt: behind a gateway each upstream's in turn; alone, nobody's."""
    return ("a", "b") if target.gateway else ("nobody",)


@suite.case(Feature.TOOLS)
def the_first_valid_tool_call_wins(target: Target) -> None:
    for name in spoilers(target):
        said = user(f'call: weather {{"city": "Oslo"}}\nspoil: {name}')
        fields: Any = {"model": target.troubled_model("chat"), "messages": said, "tools": [WEATHER]}
        whole = sdk(target).chat.completions.create(**fields, extra_headers=VALID)
        [call] = whole.choices[0].message.tool_calls
        equal(json.loads(call.function.arguments), {"city": "Oslo"})
        with sdk(target).chat.completions.stream(**fields, extra_headers=VALID) as stream:
            final = stream.get_final_completion()
        [call] = final.choices[0].message.tool_calls
        equal(json.loads(call.function.arguments), {"city": "Oslo"})


@suite.case(Feature.STRUCTURED)
def the_first_valid_json_wins(target: Target) -> None:
    for name in spoilers(target):
        said = user(f"data: {ADA.model_dump_json()}\nspoil: {name}")
        fields: Any = {"model": target.troubled_model("chat"), "messages": said, "response_format": Person}
        whole = sdk(target).chat.completions.parse(**fields, extra_headers=VALID)
        equal(whole.choices[0].message.parsed, ADA)
        with sdk(target).chat.completions.stream(**fields, extra_headers=VALID) as stream:
            equal(stream.get_final_completion().choices[0].message.parsed, ADA)


@suite.case(Feature.STRUCTURED)
def the_first_valid_response_wins(target: Target) -> None:
    for name in spoilers(target):
        said = f"data: {ADA.model_dump_json()}\nspoil: {name}"
        fields: Any = {"model": target.troubled_model("responses"), "input": said, "store": False}
        fields |= {"text_format": Person, "extra_headers": VALID}
        equal(sdk(target).responses.parse(**fields).output_parsed, ADA)
        with sdk(target).responses.stream(**fields) as stream:
            equal(stream.get_final_response().output_parsed, ADA)


if __name__ == "__main__":
    suite.main()
