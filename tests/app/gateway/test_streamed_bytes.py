"""The winner's bytes reach the client as they came."""

import asyncio

import pytest

from providers.simulator.script import Done, Finish, Gate, Raw, RoleOnly, Step, Usage, answer
from providers.simulator.wire import DONE, Answering, event, usage
from tests.app.gateway.running_gateway import Serve

ODD = (
    b'data: {"zz":1,  "choices" : [{"delta":{"content":"h\\u00e9","vendor_field":[1, 2]},"index":0}],"id":"x"}\r\n\r\n'
    b": a comment\n\n"
    b'event: vendor\nid: 7\ndata: {\ndata:  "choices": [], "note": "\xe2\x80\xa8"}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop","logprobs":null}],"x_extra":{"a":1e3}}\n\n'
)


async def test_unknown_fields_their_order_comments_and_line_ends_survive(serve: Serve) -> None:
    async with serve(alpha=[Raw(ODD, token=True), Done()]) as running, running.chat(stream=True) as response:
        assert await response.read() == ODD + DONE


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
    script = [step for step in answer("twelve chars") if not isinstance(step, Usage)]
    async with serve(alpha=script) as running:
        async with running.chat() as response:
            await response.read()
        [attempt] = await running.rows("select completion_tokens, tokens_source from attempts")
    assert attempt == {"completion_tokens": 3, "tokens_source": "estimated"}
