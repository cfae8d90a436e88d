"""The winner's bytes reach the client as they came."""

import asyncio
import json
from typing import Any

import pytest

from providers.simulator import (
    DONE,
    Answering,
    Done,
    Finish,
    Gate,
    Raw,
    RoleOnly,
    Status,
    Step,
    UsageChunk,
    answer,
    event,
    usage,
)
from tests.app.gateway.running_gateway import Serve, chat_body

ODD = (
    b'data: {"zz":1,  "choices" : [{"delta":{"content":"h\\u00e9","vendor_field":[1, 2]},"index":0}],"id":"x"}\r\n\r\n'
    b": a comment\n\n"
    b'event: vendor\nid: 7\ndata: {\ndata:  "choices": [], "note": "\xe2\x80\xa8"}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","logprobs":null}],"x_extra":{"a":1e3}}\n\n'
)


async def test_unknown_fields_their_order_comments_and_line_ends_survive(serve: Serve) -> None:
    async with serve(alpha=[Raw(ODD, token=True), Done()]) as running, running.chat(stream=True) as response:
        assert await response.read() == ODD + DONE


async def test_a_stream_to_an_http_1_0_client_that_would_keep_its_connection_has_an_end(serve: Serve) -> None:
    body = json.dumps(chat_body(stream=True)).encode()
    head = "POST /v1/chat/completions HTTP/1.0\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    async with serve() as running:
        reader, writer = await asyncio.open_connection(*running.url.removeprefix("http://").split(":"))
        writer.write(f"{head}connection: keep-alive\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        writer.write(b"GET /health/live HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n")  # answered if the connection is kept
        assert (await reader.read()).endswith(DONE)
        writer.close()


async def test_an_event_that_arrives_in_pieces_leaves_in_whole(serve: Serve) -> None:
    cut = ODD.index(b"\xe2\x80\xa8") + 1  # in the middle of a character
    tail = asyncio.Event()
    async with (
        serve(alpha=[Raw(ODD[:cut], token=True), Gate(tail), Raw(ODD[cut:]), Done()]) as running,
        running.chat(stream=True) as response,
    ):
        first = await response.content.readany()
        tail.set()
        assert first == ODD[: ODD.index(b"event: vendor")]
        assert first + await response.read() == ODD + DONE


async def test_each_token_is_forwarded_without_waiting_for_the_next(serve: Serve) -> None:
    gates = [asyncio.Event() for _ in range(3)]
    script: list[Step] = [RoleOnly()]
    for number, gate in enumerate(gates):
        script += [*answer(f"<{number}>")[1:2], Gate(gate)]
    async with serve(alpha=[*script, Finish(), Done()]) as running, running.chat(stream=True) as response:
        for number, gate in enumerate(gates):
            while f"<{number}>".encode() not in await response.content.readline():
                pass
            gate.set()
        assert (await response.read()).endswith(DONE)


@pytest.mark.parametrize(
    ("options", "kept"),
    [(None, False), ({"include_usage": False}, False), ({"include_usage": True}, True)],
    ids=["not asked for", "declined", "asked for"],
)
async def test_the_usage_chunk_is_dropped_unless_the_client_asked_for_it(
    serve: Serve, options: dict[str, bool] | None, kept: bool
) -> None:
    async with serve(alpha=answer("a", "b")) as running:
        async with running.chat(stream=True, stream_options=options) as response:
            body = await response.read()
        assert running["alpha"].received[0].body["stream_options"] == {"include_usage": True}
        call = await running.call()
    usage_chunk = event(Answering("chatcmpl-1", "m", created=0).usage_chunk(usage(10, 2)))
    assert (usage_chunk in body) is kept
    assert call["completion_tokens"] == 2  # measured either way


async def test_usage_on_any_other_chunk_stays(serve: Serve) -> None:
    last = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":9}}\n\n'
    filters = b'data: {"choices":[],"usage":null,"prompt_filter_results":[]}\n\n'
    async with serve(alpha=[Raw(filters), *answer("a")[:2], Raw(last), Done()]) as running:
        async with running.chat(stream=True) as response:
            body = await response.read()
        assert (await running.call())["completion_tokens"] == 9
    assert last in body
    assert filters in body


async def test_an_event_of_megabytes_passes(serve: Serve) -> None:
    text = "x" * (3 * 2**20)
    async with serve(alpha=answer(text)) as running, running.chat() as response:
        assert (await response.json())["choices"][0]["message"]["content"] == text


async def test_what_was_sent_upstream_is_the_clients_body_with_little_changed(serve: Serve) -> None:
    async with serve() as running:
        body = (
            b'{"model":"llama","messages":[{"role":"user","content":"\\u00e9"}],'
            b'"temperature":0.10,"vendor":{"x":1},"race":"single"}'
        )
        async with running.post(body) as response:
            assert response.status == 200
        sent = running["alpha"].received[0].body
    assert sent == {
        "model": "m",
        "messages": [{"role": "user", "content": "é"}],
        "temperature": 0.1,
        "vendor": {"x": 1},
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_usage_without_any_token_count_is_estimated(serve: Serve) -> None:
    script = [step for step in answer("twelve chars") if not isinstance(step, UsageChunk)]
    async with serve(alpha=script) as running:
        async with running.chat() as response:
            await response.read()
        [attempt] = await running.rows("select completion_tokens, tokens_source from attempts")
    assert attempt == {"completion_tokens": 3, "tokens_source": "estimated"}


CUT = rb'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}' + b"\n\n"
PATHS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"input": "Hi"},
    "interactions": {"input": "Hi"},
}
PATHS["messages"] = {**PATHS["chat/completions"], "max_tokens": 100}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_character_that_is_cut_in_two_events_arrives_whole(serve: Serve, path: str, *, stream: bool) -> None:
    texts = (b"So ", rb"\ud83d\ude00 \ud83d", rb"\ude00! \ud800 ", rb"and \ud83d", rb"\ude00.")
    script = [RoleOnly(), *(Raw(CUT % text, token=True) for text in texts), Finish(), UsageChunk(3, 9), Done()]
    async with (
        serve(alpha=script) as running,
        running.post({"model": "llama", "stream": stream, **PATHS[path]}, path=f"/v1/{path}") as response,
    ):
        body = await response.read()
    assert response.status == 200, body
    events = body.split(b"\n\n") if stream else [body]
    said = [json.loads(event.partition(b"data: ")[2] if stream else event) for event in events if b"{" in event]
    text = "".join(each for one in said for each in texts_of(one, stream=stream))
    assert text == "So \U0001f600 \U0001f600! \ufffd and \U0001f600."


def texts_of(said: Any, *, stream: bool) -> list[str]:
    """Return the texts of an event or of a whole answer in any of the APIs; of a stream only what it adds."""
    if isinstance(said, list):
        return [text for each in said for text in texts_of(each, stream=stream)]
    if not isinstance(said, dict):
        return []
    if str(said.get("type")).startswith("response.") and said["type"] != "response.output_text.delta":
        return []
    names = ("content", "text", "delta")
    return [
        text
        for name, value in said.items()
        for text in ([value] if name in names and isinstance(value, str) else texts_of(value, stream=stream))
    ]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_half_a_character_in_an_answer_that_comes_whole_is_replaced(serve: Serve, *, stream: bool) -> None:
    choice = (
        b'{"index":0,"message":{"role":"assistant","content":"So \\ud800 and \\ud83d\\ude00"},"finish_reason":"stop"}'
    )
    whole = b'{"id":"x","object":"chat.completion","model":"m","choices":[%b]}' % choice
    async with serve(alpha=[Status(200, whole)]) as running, running.chat(stream=stream) as response:
        body = (await response.read()).decode()
    assert response.status == 200, body
    shown = body.replace("\\ufffd", "\ufffd").replace("\\ud83d\\ude00", "\U0001f600")
    assert "So \ufffd and \U0001f600" in shown
