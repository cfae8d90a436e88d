"""Anthropic's own SDK for Python."""

# It is installed in an environment of its own, which mypy does not see.
# mypy: disable-error-code="import-not-found"

import asyncio
import json
from typing import Any

import anthropic
import pydantic

from tests.clients.case import Feature, Suite, Target, equal, expect, raised, unique
from tests.clients.samples import PNG_BASE64

suite = Suite("anthropic-python", "anthropic")

WEATHER: Any = {
    "name": "weather",
    "description": "The weather in a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TWO_CALLS = 'call: weather {"city": "Oslo"}\ncall: weather {"city": "São Paulo"}'
EVENTS = {
    *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
    *("message_delta", "message_stop"),
}


class Person(pydantic.BaseModel):
    """What is asked for as a structured answer."""

    name: str
    age: int


def sdk(target: Target, **options: Any) -> Any:
    """Return the client, without retries unless ``options`` say otherwise."""
    return anthropic.Anthropic(**{"base_url": target.url, "api_key": target.key, "max_retries": 0, **options})


def ask(target: Target, content: Any, **fields: Any) -> Any:
    """Ask for a message."""
    return sdk(target).messages.create(
        **{
            "model": target.messages,
            "max_tokens": 100,
            "messages": [{"role": "user", "content": content}],
            **fields,
        }
    )


def text_of(message: Any) -> str:
    """Return all text of a message."""
    return "".join(block.text for block in message.content if block.type == "text")


@suite.case(Feature.ANSWERS)
def messages_answer(target: Target) -> None:
    message = ask(target, "say: hello you")
    equal(
        (text_of(message), message.stop_reason, message.role, message.type),
        ("hello you", "end_turn", "assistant", "message"),
    )
    equal((message.usage.input_tokens, message.usage.output_tokens), (3, 2))


@suite.case(Feature.ANSWERS)
async def messages_answer_asynchronously(target: Target) -> None:
    async with anthropic.AsyncAnthropic(base_url=target.url, api_key=target.key, max_retries=0) as client:
        answers = await asyncio.gather(
            *(
                client.messages.create(
                    model=target.messages,
                    max_tokens=100,
                    messages=[{"role": "user", "content": f"say: number {number}"}],
                )
                for number in range(8)
            )
        )
    equal([text_of(answer) for answer in answers], [f"number {number}" for number in range(8)])


@suite.case(Feature.ANSWERS)
def messages_hear_the_system_prompt(target: Target) -> None:
    equal(json.loads(text_of(ask(target, "echo: system", system="Be brief."))), "Be brief.")
    blocks = [
        {"type": "text", "text": "Be"},
        {"type": "text", "text": "brief.", "cache_control": {"type": "ephemeral"}},
    ]
    equal(json.loads(text_of(ask(target, "echo: system", system=blocks))).split(), ["Be", "brief."])


@suite.case(Feature.ANSWERS)
def messages_give_the_raw_response(target: Target) -> None:
    raw = sdk(target).messages.with_raw_response.create(
        model=target.messages, max_tokens=90, messages=[{"role": "user", "content": "say: raw"}]
    )
    equal(raw.http_response.status_code, 200)
    equal(text_of(raw.parse()), "raw")
    if target.gateway:
        equal(raw.headers["x-holeshot-launched"], "2")


@suite.case(Feature.ANSWERS)
def messages_take_a_bearer_token(target: Target) -> None:
    client = anthropic.Anthropic(base_url=target.url, auth_token=target.key, max_retries=0)
    message = client.messages.create(
        model=target.messages, max_tokens=90, messages=[{"role": "user", "content": "say: let in"}]
    )
    equal(text_of(message), "let in")


@suite.case(Feature.STREAMING)
def messages_stream_typed_events(target: Target) -> None:
    events = list(ask(target, "say: one two three", stream=True))
    kinds = [event.type for event in events]
    expect(set(kinds) >= EVENTS, kinds)
    equal((kinds[0], kinds[-1]), ("message_start", "message_stop"))
    deltas = [event.delta.text for event in events if event.type == "content_block_delta"]
    equal("".join(deltas), "one two three")
    (ended,) = [event for event in events if event.type == "message_delta"]
    equal((ended.delta.stop_reason, ended.usage.output_tokens), ("end_turn", 3))


@suite.case(Feature.STREAMING)
def messages_stream_through_the_helper(target: Target) -> None:
    with sdk(target).messages.stream(
        model=target.messages, max_tokens=100, messages=[{"role": "user", "content": "say: one two three"}]
    ) as stream:
        words = list(stream.text_stream)
        final = stream.get_final_message()
    equal("".join(words), "one two three")
    expect(len(words) >= 3, words)
    equal((text_of(final), final.stop_reason, final.usage.output_tokens), ("one two three", "end_turn", 3))


@suite.case(Feature.STREAMING)
async def messages_stream_asynchronously(target: Target) -> None:
    async with (
        anthropic.AsyncAnthropic(base_url=target.url, api_key=target.key, max_retries=0) as client,
        client.messages.stream(
            model=target.messages, max_tokens=100, messages=[{"role": "user", "content": "say: one two"}]
        ) as stream,
    ):
        words = [word async for word in stream.text_stream]
    equal("".join(words), "one two")


@suite.case(Feature.TOOLS)
def messages_call_a_tool_and_hear_its_result(target: Target) -> None:
    first = ask(target, 'call: weather {"city": "Oslo"}', tools=[WEATHER])
    (call,) = [block for block in first.content if block.type == "tool_use"]
    equal((first.stop_reason, call.name, call.input), ("tool_use", "weather", {"city": "Oslo"}))
    conversation = [
        {"role": "user", "content": 'call: weather {"city": "Oslo"}'},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]},
    ]
    equal(text_of(ask(target, "", messages=conversation, tools=[WEATHER])), "The tool said: rain")


@suite.case(Feature.TOOLS)
def messages_call_tools_in_parallel(target: Target) -> None:
    calls = [block for block in ask(target, TWO_CALLS, tools=[WEATHER]).content if block.type == "tool_use"]
    equal([call.input["city"] for call in calls], ["Oslo", "São Paulo"])
    equal(len({call.id for call in calls}), 2)


@suite.case(Feature.TOOLS)
def messages_call_one_tool_when_told_so(target: Target) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    message = ask(target, TWO_CALLS, tools=[WEATHER], tool_choice=choice)
    equal([block.input for block in message.content if block.type == "tool_use"], [{"city": "Oslo"}])


@suite.case(Feature.TOOLS)
def messages_stream_the_arguments_of_tools(target: Target) -> None:
    with sdk(target).messages.stream(
        model=target.messages,
        max_tokens=100,
        tools=[WEATHER],
        messages=[{"role": "user", "content": TWO_CALLS}],
    ) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    expect(len([piece for piece in pieces if piece]) > 2, pieces)
    equal([block.input["city"] for block in final.content if block.type == "tool_use"], ["Oslo", "São Paulo"])
    equal(final.stop_reason, "tool_use")


@suite.case(Feature.TOOLS)
def messages_obey_the_choice_of_a_tool(target: Target) -> None:
    for choice in ({"type": "tool", "name": "weather"}, {"type": "any"}):
        message = ask(target, 'data: {"city": "Rome"}', tools=[WEATHER], tool_choice=choice)
        equal([block.input for block in message.content if block.type == "tool_use"], [{"city": "Rome"}])
    none = ask(target, 'say: no\ncall: weather {"city": "Rome"}', tools=[WEATHER], tool_choice={"type": "none"})
    equal([block.type for block in none.content], ["text"])


@suite.case(Feature.STRUCTURED)
def messages_parse_a_structured_answer(target: Target) -> None:
    message = sdk(target).messages.parse(
        model=target.messages,
        max_tokens=100,
        messages=[{"role": "user", "content": 'data: {"name": "Ada", "age": 36}'}],
        output_format=Person,
    )
    equal(message.parsed_output, Person(name="Ada", age=36))


@suite.case(Feature.MEDIA)
def messages_see_a_picture(target: Target) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG_BASE64}
    content = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": source}]
    equal(text_of(ask(target, content)), "I was shown a PNG of 3x2.")


@suite.case(Feature.MEDIA)
def messages_are_told_where_a_picture_is(target: Target) -> None:
    url = "https://example.com/cat.png"
    content = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": {"type": "url", "url": url}}]
    equal(text_of(ask(target, content)), f"I was shown something at {url}.")


@suite.case(Feature.REASONING, unsaid="thinking")
def messages_think(target: Target) -> None:
    message = ask(
        target,
        "think: hm well\nsay: yes",
        max_tokens=2000,
        thinking={"type": "enabled", "budget_tokens": 1024},
    )
    equal([block.type for block in message.content], ["thinking", "text"])
    equal((message.content[0].thinking.strip(), message.content[1].text), ("hm well", "yes"))


@suite.case(Feature.REASONING, unsaid="thinking")
def messages_stream_their_thoughts(target: Target) -> None:
    with sdk(target).messages.stream(
        model=target.messages,
        max_tokens=2000,
        thinking={"type": "enabled", "budget_tokens": 1024},
        messages=[{"role": "user", "content": "think: hm well\nsay: yes sir"}],
    ) as stream:
        thoughts = [event.thinking for event in stream if event.type == "thinking"]
        final = stream.get_final_message()
    equal("".join(thoughts).strip(), "hm well")
    equal(text_of(final), "yes sir")


@suite.case(Feature.REASONING, unsaid="thinking")
def messages_think_as_much_as_they_see_fit(target: Target) -> None:
    message = ask(
        target,
        "think: hm well\nsay: yes",
        max_tokens=2000,
        thinking={"type": "adaptive"},
        output_config={"effort": "low"},
    )
    equal([block.type for block in message.content], ["thinking", "text"])


@suite.case(Feature.REASONING, unsaid="thinking")
def messages_take_their_thoughts_back(target: Target) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    asked = 'think: hm\ncall: weather {"city": "Oslo"}'
    first = ask(target, asked, max_tokens=2000, thinking=thinking, tools=[WEATHER])
    (call,) = [block for block in first.content if block.type == "tool_use"]
    conversation = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]},
    ]
    second = ask(target, "", messages=conversation, max_tokens=2000, thinking=thinking, tools=[WEATHER])
    equal(text_of(second), "The tool said: rain")


@suite.case(Feature.FIELDS, unsaid="stop")
def messages_stop_where_they_are_told(target: Target) -> None:
    message = ask(target, "say: one two three", stop_sequences=["two"])
    equal(text_of(message).strip(), "one")
    if not target.translates:  # other dialects do not tell which sequence it was, nor that it was one
        equal((message.stop_reason, message.stop_sequence), ("stop_sequence", "two"))


@suite.case(Feature.FIELDS)
def messages_end_at_the_most_tokens(target: Target) -> None:
    message = ask(target, f"say: {'word ' * 30}", max_tokens=20)
    equal((len(text_of(message).split()), message.stop_reason), (20, "max_tokens"))


@suite.case(Feature.FIELDS)
def messages_take_a_temperature(target: Target) -> None:
    body = json.loads(text_of(ask(target, "echo: body", extra_body={"temperature": 0.5})))
    equal(body["temperature"], 0.5)


@suite.case(Feature.FIELDS, unsaid="top_k")
def messages_take_top_k(target: Target) -> None:
    equal(json.loads(text_of(ask(target, "echo: body", extra_body={"top_k": 40})))["top_k"], 40)


@suite.case(Feature.FIELDS)
def messages_pass_cache_markers_and_metadata_on(target: Target) -> None:
    marker = {"type": "ephemeral"}
    content = [
        {"type": "text", "text": "A long prefix.", "cache_control": marker},
        {"type": "text", "text": "echo: body"},
    ]
    body = json.loads(text_of(ask(target, content, metadata={"user_id": "u-1"})))
    expect("u-1" in json.dumps(body), body)
    if not target.translates:
        equal(body["metadata"], {"user_id": "u-1"})
        equal(body["messages"][0]["content"][0]["cache_control"], marker)


@suite.case(Feature.FIELDS, unsaid="x_of_the_future")
def messages_pass_unknown_fields_on(target: Target) -> None:
    extra = {"x_of_the_future": {"b": 1, "a": [None]}}
    equal(json.loads(text_of(ask(target, "echo: body", extra_body=extra)))["x_of_the_future"], extra["x_of_the_future"])


@suite.case(Feature.ERRORS)
def a_wrong_key_is_an_authentication_error(target: Target) -> None:
    error = raised(
        anthropic.AuthenticationError,
        lambda: sdk(target, api_key=target.wrong_key).messages.create(
            model=target.messages, max_tokens=90, messages=[{"role": "user", "content": "say: hi"}]
        ),
    )
    equal((error.status_code, error.body["type"], error.body["error"]["type"]), (401, "error", "authentication_error"))


@suite.case(Feature.ERRORS)
def a_key_without_rights_is_a_permission_error(target: Target) -> None:
    error = raised(
        anthropic.PermissionDeniedError,
        lambda: sdk(target, api_key=target.forbidden_key).messages.create(
            model=target.messages, max_tokens=90, messages=[{"role": "user", "content": "say: hi"}]
        ),
    )
    equal((error.status_code, error.body["error"]["type"]), (403, "permission_error"))


@suite.case(Feature.ERRORS)
def an_unknown_model_is_not_found(target: Target) -> None:
    error = raised(anthropic.NotFoundError, lambda: ask(target, "say: hi", model="missing-model"))
    equal(error.body["error"]["type"], "not_found_error")


@suite.case(Feature.ERRORS)
def what_the_provider_refuses_is_refused_alike(target: Target) -> None:
    model = target.troubled_model("messages")
    error = raised(anthropic.BadRequestError, lambda: ask(target, "fail: 400", model=model))
    equal(error.body["error"]["type"], "invalid_request_error")
    expect("failed with 400, as asked for" in error.body["error"]["message"], error.body)


@suite.case(Feature.ERRORS)
def a_malformed_request_is_a_bad_request(target: Target) -> None:
    for fields in ({"messages": "not a list"}, {"messages": [{"role": "user"}]}):
        error = raised(anthropic.BadRequestError, lambda: ask(target, "", **fields))  # noqa: B023 - called at once
        equal((error.body["type"], error.body["error"]["type"]), ("error", "invalid_request_error"))


@suite.case(Feature.ERRORS)
def too_many_requests_are_a_rate_limit_error(target: Target) -> None:
    model = target.troubled_model("messages")
    error = raised(anthropic.RateLimitError, lambda: ask(target, "fail: 429", model=model))
    equal(error.body["error"]["type"], "rate_limit_error")
    expect(float(error.response.headers["retry-after"]) > 0, error.response.headers)


@suite.case(Feature.ERRORS)
def a_failing_provider_is_a_server_error(target: Target) -> None:
    for status in (500, 529):
        model = target.troubled_model("messages")
        error = raised(
            anthropic.APIStatusError,  # version 1 has a class of its own for 529, and for 503
            lambda: ask(target, f"fail: {status}", model=model),  # noqa: B023 - called at once
        )
        expect(error.status_code >= 500, error)
        equal(error.body["type"], "error")


@suite.case(Feature.ERRORS)
def a_stream_that_breaks_raises(target: Target) -> None:
    model = target.troubled_model("messages")

    def read() -> list[str]:
        return [event.type for event in ask(target, f"cut: now\nsay: {'word ' * 40}", model=model, stream=True)]

    error = raised(Exception, read)
    expect(not isinstance(error, (AttributeError, IndexError, TypeError)), repr(error))


@suite.case(Feature.RETRIES)
def a_failure_is_retried(target: Target) -> None:
    key, model = unique("again"), target.troubled_model("messages")
    message = sdk(target, max_retries=2).messages.create(
        model=model,
        max_tokens=90,
        messages=[{"role": "user", "content": f"say: at last\nfail: 500 times 1 {key}"}],
    )
    equal(text_of(message), "at last")


@suite.case(Feature.RETRIES)
def a_slow_answer_times_out(target: Target) -> None:
    model = target.troubled_model("messages")
    raised(
        anthropic.APITimeoutError,
        lambda: sdk(target, timeout=0.5).messages.create(
            model=model, max_tokens=90, messages=[{"role": "user", "content": "slow: 50"}]
        ),
    )


@suite.case(Feature.ANSWERS)
def tokens_are_counted(target: Target) -> None:
    counted = sdk(target).messages.count_tokens(
        model=target.messages, messages=[{"role": "user", "content": "one two three"}]
    )
    if target.translates:  # nobody behind it can count them: an estimate will do
        expect(counted.input_tokens > 0, counted)
    else:
        equal(counted.input_tokens, 6)


@suite.case(Feature.OTHERS)
def models_are_listed(target: Target) -> None:
    expect(target.messages in {model.id for model in sdk(target).models.list()}, "it is missing")


VALID = {"x-holeshot-race": '{"mode": "race", "win_on": "valid"}'}


def spoilers(target: Target) -> tuple[str, ...]:
    """Return whose answers are to be spoilt: behind a gateway each upstream's in turn; alone, nobody's."""
    return ("a", "b") if target.gateway else ("nobody",)


@suite.case(Feature.TOOLS)
def the_first_valid_tool_use_wins(target: Target) -> None:
    for name in spoilers(target):
        said = [{"role": "user", "content": f'call: weather {{"city": "Oslo"}}\nspoil: {name}'}]
        fields: Any = {"model": target.troubled_model("messages"), "max_tokens": 100, "messages": said}
        fields |= {"tools": [WEATHER], "extra_headers": VALID}
        whole = sdk(target).messages.create(**fields)
        equal([block.input for block in whole.content if block.type == "tool_use"], [{"city": "Oslo"}])
        with sdk(target).messages.stream(**fields) as stream:
            final = stream.get_final_message()
        equal([block.input for block in final.content if block.type == "tool_use"], [{"city": "Oslo"}])


@suite.case(Feature.STRUCTURED)
def the_first_valid_structured_answer_wins(target: Target) -> None:
    for name in spoilers(target):
        said = [{"role": "user", "content": f'data: {{"name": "Ada", "age": 36}}\nspoil: {name}'}]
        fields: Any = {"model": target.troubled_model("messages"), "max_tokens": 100, "messages": said}
        fields |= {"output_format": Person, "extra_headers": VALID}
        equal(sdk(target).messages.parse(**fields).parsed_output, Person(name="Ada", age=36))
        with sdk(target).messages.stream(**fields) as stream:
            equal(stream.get_final_message().parsed_output, Person(name="Ada", age=36))


if __name__ == "__main__":
    suite.main()
