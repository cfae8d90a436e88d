"""Answers translated between Responses and chat completions: there and back, broken, and in OpenAI's own SDK."""

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from providers.dialects import arguments_object
from providers.dialects.responses.echo import LONGEST_ECHO_BYTES
from providers.dialects.responses.fields import failure
from providers.dialects.responses.stream_from_chat import FromChat
from providers.dialects.responses.stream_to_chat import ToChat
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.dialects.inside.responses_streams import (
    CALLS,
    TEXT,
    TOOLS,
    call,
    chunk,
    deltas,
    from_chat,
    sse,
    to_chat,
    used,
    whole,
)
from tests.unit.providers.dialects.inside.test_responses_events import sdk


@pytest.mark.parametrize("place", ["chunk", "choice"])
def test_an_error_in_the_stream_is_raised_as_one(place: str) -> None:
    failed = {"error": {"message": "slow down", "code": 429}}
    with pytest.raises(UpstreamError, match="slow down") as caught:
        from_chat(*TEXT[:2], failed if place == "chunk" else {"choices": [failed]}, *TEXT[2:])
    assert caught.value.kind is ErrorKind.RATE_LIMITED


@pytest.mark.parametrize("make", [lambda: FromChat({}), ToChat], ids=["FromChat", "ToChat"])
@pytest.mark.parametrize("data", [b"[]", b"{", b"5", b'{"a": \xff}'])
def test_events_that_are_no_json_objects_are_an_invalid_response(make: Callable[..., Any], data: bytes) -> None:
    with pytest.raises(UpstreamError, match="not a JSON object") as caught:
        make().feed(b"data: " + data + b"\n\n")
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


def test_the_sdk_accumulates_a_translated_stream() -> None:
    client = sdk(whole({"model": "m", "tools": TOOLS}, chunk(reasoning="hm"), *CALLS))
    with client.responses.stream(model="m", input="hi") as stream:
        snapshots = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    assert snapshots == ['{"city":', '{"city":"Bern"}', "{}"]
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert final.output_text == "Looking."


def test_the_sdk_parses_structured_output_out_of_a_translated_stream() -> None:
    class City(BaseModel):
        name: str

    client = sdk(whole({"model": "m"}, chunk(content='{"name":'), chunk(content='"Bern"}'), chunk("stop"), used()))
    with client.responses.stream(model="m", input="hi", text_format=City) as stream:
        assert stream.get_final_response().output_parsed == City(name="Bern")


def test_the_sdk_raises_on_an_error_in_a_translated_stream() -> None:
    client = sdk(whole({"model": "m"}, chunk(content="x")) + failure("stream_error", "broke"))
    with pytest.raises(openai.APIError, match="broke"):
        list(client.responses.create(model="m", input="hi", stream=True))


def test_the_sdk_accumulates_chat_that_was_told_by_responses() -> None:
    translation = ToChat()
    client = sdk(translation.feed(sse(*from_chat(chunk(reasoning="hm"), *CALLS))) + translation.end())
    with client.chat.completions.stream(model="m", messages=[], stream_options={"include_usage": True}) as stream:
        final = stream.get_final_completion()
    choice = final.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Looking.", "tool_calls")
    assert [one.function.arguments for one in choice.message.tool_calls or ()] == ['{"city":"Bern"}', "{}"]
    assert final.usage is not None
    assert final.usage.model_dump(exclude_none=True)["prompt_tokens_details"]["cached_tokens"] == 4


words = st.text(min_size=1, max_size=8)


answers = st.lists(
    st.one_of(
        st.builds(lambda text: ("content", text), words),
        st.builds(lambda text: ("reasoning_content", text), words),
        st.builds(lambda text: ("refusal", text), words),
        st.builds(lambda index, text: (index, text), st.integers(0, 2), words),
    ),
    max_size=12,
)


def streamed(pieces: list[tuple[Any, str]], finish_reason: str) -> Iterator[dict[str, Any]]:
    named = set()
    for kind, text in pieces:
        if isinstance(kind, str):
            yield chunk(**{kind: text})
        elif kind in named:
            yield call(kind, text)
        else:
            named.add(kind)
            yield call(kind, text, id=f"call_{kind}", name="f")
    yield chunk(finish_reason)
    yield used()


def gathered(chunks: list[Any]) -> dict[str, Any]:
    """Return what a chat stream says in all, calls by their id."""
    said: dict[str, Any] = {}
    ids: dict[int, str] = {}
    for delta in deltas(chunks):
        for name in ("content", "reasoning_content", "refusal"):
            said[name] = said.get(name, "") + (delta.get(name) or "")
        for one in delta.get("tool_calls", ()):
            key = ids.setdefault(one["index"], one.get("id"))
            said[key] = said.get(key, "") + one["function"]["arguments"]
    for key in ids.values():  # blank, null and twice-encoded ones mean an object
        meant = arguments_object(said[key])
        said[key] = said[key] if meant is None else bytes(meant)
    ends = [one["choices"][0]["finish_reason"] for one in chunks if one != b"[DONE]" and one["choices"]]
    usages = [one["usage"] for one in chunks if one != b"[DONE]" and one.get("usage")]
    said["end"] = [end for end in ends if end], [(one["prompt_tokens"], one["completion_tokens"]) for one in usages]
    return said


@given(pieces=answers, is_cut=st.booleans())
def test_chat_told_by_way_of_responses_says_the_same(pieces: list[tuple[Any, str]], is_cut: bool) -> None:
    has_calls = any(isinstance(kind, int) for kind, _ in pieces)
    chunks = list(streamed(pieces, "length" if is_cut else "tool_calls" if has_calls else "stop"))
    assert gathered(to_chat(*from_chat(*chunks))) == gathered([chunk(role="assistant", content=""), *chunks])


@pytest.mark.parametrize("make", [FromChat, ToChat])
@given(data=st.data())
def test_it_does_not_matter_how_events_are_put_into_blocks(make: Callable[..., Any], data: st.DataObject) -> None:
    def translation() -> Any:
        return FromChat({}, new_id=lambda: "x", wall_clock=lambda: 0) if make is FromChat else ToChat()

    source = list(streamed(data.draw(answers), "stop"))
    told = source if make is FromChat else from_chat(*source)
    once, pieces = translation(), translation()
    cut = data.draw(st.integers(0, len(told)))
    in_two = pieces.feed(sse(*told[:cut])) + pieces.feed(sse(*told[cut:])) + pieces.end()
    assert in_two == once.feed(sse(*told)) + once.end()


def test_a_very_long_field_of_the_request_is_not_repeated_in_every_event() -> None:
    asked = {"model": "m", "input": "hi", "instructions": "x" * (LONGEST_ECHO_BYTES + 1)}
    told = from_chat(chunk(content="Hello"), chunk("stop"), asked=asked)
    assert [event["response"]["instructions"] for event in told if "response" in event] == [None] * 3
    told = from_chat(chunk(content="Hello"), chunk("stop"), asked={**asked, "instructions": "x" * 10_000})
    assert {event["response"]["instructions"] for event in told if "response" in event} == {"x" * 10_000}
