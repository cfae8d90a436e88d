"""An answer ends with its API's last event, whether or not its connection ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import permutations
from types import MappingProxyType

import msgspec
import pytest

from providers import TranslatedExchange, UpstreamError, events
from providers.dialects import DIALECTS, Chunk, translations

_LAST = {
    "chat": b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n',
    "messages": b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{}}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}\n\n'
    b'data: {"type":"content_block_stop","index":0}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}\n\n'
    b'data: {"type":"message_stop"}\n\n',
    "responses": b'data: {"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}\n\n'
    b'data: {"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"a"}\n\n'
    b'data: {"type":"response.completed","response":{"id":"r","status":"completed","output":[],'
    b'"usage":{"input_tokens":1,"output_tokens":1}}}\n\n',
    # The end that some proxies send in every API; Google sends none.
    "gemini": b'data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"a"}]}}]}\n\n'
    b'data: {"candidates":[{"index":0,"finishReason":"STOP"}],'
    b'"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1}}\n\ndata: [DONE]\n\n',
}


class Open:
    """An exchange with one read, whose connection stays open after it."""

    status = 200
    headers: Mapping[str, str] = MappingProxyType({})
    connect_ms: float | None = None
    secrets: Sequence[str] = ()
    ended = False
    finishing = False
    usage_so_far = None

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes:
        data, self._data = self._data, b""
        if not data:
            await asyncio.Event().wait()
        return data

    def conclude(self) -> bytes:
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        del listener

    def abort(self) -> None:
        pass


class Unchanged:
    """A repair that changes nothing."""

    finishing = False
    usage_so_far = None

    def feed(self, block: bytes) -> bytes:
        return block

    def end(self) -> bytes:
        return b""


@pytest.mark.parametrize("source", _LAST)
@pytest.mark.parametrize("target", _LAST)
def test_an_answer_does_not_wait_for_the_end_of_its_connection(source: str, target: str) -> None:
    given, asked = DIALECTS[source], DIALECTS[target]

    async def read() -> list[Chunk]:
        exchange = TranslatedExchange(Open(_LAST[source]), translations(given, asked, {}, ()))
        async with asyncio.timeout(10):
            chunks: list[Chunk] = []
            while not (chunks and chunks[-1].done) and (block := await exchange.read()):
                chunks += [asked.answers.read_event(event.data, ()) for event in events(block)]
        return chunks

    chunks = asyncio.run(read())
    assert any(chunk.finished for chunk in chunks)
    assert any(chunk.usage for chunk in chunks)


_WRONG = [b"data: {no\n\n", b"event: error\ndata: overloaded\n\n", b'data: [{"error":{"code":503}}]\n\n']


@pytest.mark.parametrize("wrong", _WRONG)
@pytest.mark.parametrize(("source", "target"), [*permutations(_LAST, 2)])
async def test_what_comes_before_an_error_in_one_read_is_translated_too(source: str, target: str, wrong: bytes) -> None:
    given, asked = DIALECTS[source], DIALECTS[target]
    text, _, _ = _LAST[source].partition(b'"a"')
    begun = _LAST[source][: _LAST[source].index(b"\n\n", len(text)) + 2]
    repaired = TranslatedExchange(Open(begun + wrong), [Unchanged()])  # which finds errors, too
    exchange = TranslatedExchange(repaired, translations(given, asked, {}, ()))
    with pytest.raises(UpstreamError) as caught:
        await exchange.read()
    chunks = [asked.answers.read_event(event.data, ()) for event in events(caught.value.before)]
    assert sum(chunk.text_chars for chunk in chunks if chunk.meaningful) == 1
    assert not any(chunk.finished or chunk.done for chunk in chunks)


_USED = {
    "chat": b'data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"prompt_tokens":9,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n',
    "messages": b'data: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":5,"output_tokens":1,'
    b'"cache_read_input_tokens":4,"cache_creation":{"ephemeral_1h_input_tokens":3},"service_tier":"priority"}}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}\n\n',
    "gemini": b'data: {"candidates":[{"index":0,"content":{"role":"model","parts":[{"text":"a"}]}}],'
    b'"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2,"cachedContentTokenCount":4}}\n\n',
}


@pytest.mark.parametrize(
    ("source", "target"), [(source, target) for source in _USED for target in _LAST if source != target]
)
async def test_usage_before_the_end_is_known_as_it_is_to_clients_of_the_same_api(source: str, target: str) -> None:
    given = DIALECTS[source]
    exchange = TranslatedExchange(Open(_USED[source]), translations(given, DIALECTS[target], {}, ()))
    assert exchange.usage_so_far is None
    await exchange.read()
    native = given.answers.read_event(events(_USED[source])[0].data, ()).usage
    assert native is not None
    assert exchange.usage_so_far == native


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_many_events_of_one_read_are_translated_in_several_turns_and_all_of_them(line_end: bytes) -> None:
    pieces = "".join(f"{n} " for n in range(700))
    event = b'data: {"choices":[{"index":0,"delta":{"content":"%d "}}]}\n\n'
    data = b"".join(event % n for n in range(700)) + b"data: [DONE]\n\n"
    exchange = TranslatedExchange(
        Open(data.replace(b"\n", line_end)), translations(DIALECTS["chat"], DIALECTS["messages"], {}, ())
    )
    blocks = [block async for block in _blocks(exchange)]
    said = [msgspec.json.decode(event.data) for block in blocks for event in events(block)]
    assert "".join(each["delta"].get("text", "") for each in said if "delta" in each) == pieces
    assert len(blocks) > 3


async def _blocks(exchange: TranslatedExchange) -> AsyncIterator[bytes]:
    while block := await exchange.read():
        yield block
