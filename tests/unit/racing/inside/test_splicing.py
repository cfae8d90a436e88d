"""Plain events are said in another dialect without being decoded: a client gets what it would get of a translation."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.racing import Measurement
from gateway.racing.reader import AnswerReader
from providers import TranslatedExchange, UpstreamError, Usage, events
from providers.dialects import CHAT, DIALECTS, GEMINI, MESSAGES, RESPONSES, Run, Splicer, translations

if TYPE_CHECKING:
    from gateway.racing import AttemptClocks

PAIRS = [
    (source.name, target.name)
    for source in (CHAT, MESSAGES, GEMINI)
    for target in (CHAT, MESSAGES, GEMINI, RESPONSES)
    if source is not target
]
STILL = cast("AttemptClocks", SimpleNamespace(event=lambda *_, **__: None, alive_at=0.0))
MADE_UP = re.compile(rb"[0-9a-f]{32}")  # an id


class Data:
    """An exchange that gives these data, or offers them first."""

    status, finishing, ended = 200, False, False
    connect_ms: float | None = None
    headers: Mapping[str, str] = {}
    secrets: Sequence[str] = ()
    usage_so_far: Usage | None = None

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces = [*pieces]
        self.listener: Callable[[bytes], bool] = lambda _: False

    async def read(self) -> bytes:
        """Return the next data that nobody took."""
        while self.pieces:
            data = self.pieces.pop(0)
            if not self.listener(data):
                return data
        return b""

    def conclude(self) -> bytes:
        """Return nothing."""
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        """Offer it the data that follow."""
        self.listener = listener

    def abort(self) -> None:
        """Do nothing."""


def written(text: str) -> bytes:
    return msgspec.json.encode(text)


def chunk(delta: bytes, finish: bytes = b"null", more: bytes = b"") -> bytes:
    choice = b'{"index":0,"delta":%b,"finish_reason":%b}' % (delta, finish)
    return b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]%b}\n\n' % (
        choice,
        more,
    )


def named(kind: str, fields: bytes) -> bytes:
    return b'event: %b\ndata: {"type":"%b",%b}\n\n' % (kind.encode(), kind.encode(), fields)


def candidate(parts: bytes, more: bytes = b"") -> bytes:
    content = b'{"content": {"parts": [%b],"role": "model"},"index": 0%b}' % (parts, more)
    return b'data: {"candidates": [%b],"modelVersion": "g","responseId": "r"}\r\n\r\n' % content


BEGIN = {
    "chat": chunk(b'{"role":"assistant","content":""}'),
    "messages": named(
        "message_start",
        b'"message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,'
        b'"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}',
    )
    + named("content_block_start", b'"index":0,"content_block":{"type":"text","text":""}'),
    "gemini": b"",
}
END = {
    "chat": chunk(b"{}", b'"stop"', b',"usage":{"prompt_tokens":5,"completion_tokens":9,"total_tokens":14}')
    + b"data: [DONE]\n\n",
    "messages": named("content_block_stop", b'"index":0')
    + named("message_delta", b'"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":9}')
    + named("message_stop", b'"x":1'),
    "gemini": candidate(b'{"text": ""}', b',"finishReason": "STOP"'),
}


def plain(source: str, raw: bytes) -> bytes:
    """Return the event of a text, in quotes as JSON writes it."""
    if source == "chat":
        return chunk(b'{"content":%b}' % raw)
    if source == "messages":
        return named("content_block_delta", b'"index":0,"delta":{"type":"text_delta","text":%b}' % raw)
    return candidate(b'{"text": %b}' % raw)


ODD: dict[str, list[bytes]] = {  # what may come between texts
    "chat": [
        b": still here\n\n",
        chunk(b'{"content":"","reasoning_content":"hm"}'),
        chunk(b'{"content":"a"}', b"null", b',"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}'),
        chunk(b'{"tool_calls":[{"index":0,"id":"t","function":{"name":"f","arguments":"{}"}}]}'),
        chunk(b'{"content":"of another form", "role":"assistant"}'),
        b'data: {"id":"c","choices":[]}\n\n',
    ],
    "messages": [
        b'event: ping\ndata: {"type": "ping"}\n\n',
        named("content_block_delta", b'"index":0,"delta":{"type":"text_delta","text":"a"}      '),
        named("content_block_stop", b'"index":0')
        + named("content_block_start", b'"index":1,"content_block":{"type":"text","text":"b"}'),
        named("content_block_start", b'"index":2,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}'),
    ],
    "gemini": [
        candidate(b'{"text": "hm","thought": true}'),
        candidate(b'{"text": "a"},{"text": "b"}'),
        candidate(b'{"functionCall": {"name": "f","args": {}}}'),
    ],
}

Pieces = list[bytes]


@st.composite
def answers(draw: st.DrawFn, source: str) -> Pieces:
    """Draw the data of an answer, as they may arrive."""
    texts = st.one_of(
        st.text(min_size=1, max_size=4).filter(lambda each: each.isprintable()).map(written),
        st.sampled_from(
            [b'" to"', b'"\\u00e9"', b'"\\ud83d\\ude00"', b'"\\n\\"\\\\"', b'"\\/"', b'"id"', '"é😀"'.encode()]
        ),
    ).map(lambda raw: plain(source, raw))
    some = st.one_of(
        texts, texts, texts, st.lists(texts, min_size=2, max_size=30).map(b"".join), st.sampled_from(ODD[source])
    )
    blocks = [BEGIN[source], *draw(st.lists(some, max_size=12)), END[source]]
    stream = b"".join(blocks)
    if draw(st.booleans()):
        cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        blocks = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    return [block for block in blocks if block]


def said(source: str, target: str, pieces: Pieces, *, spliced: bool, offered: bool = False) -> tuple[list[Any], Any]:
    """Return the events that a client in ``target`` gets, decoded, and the error with which they end."""
    steps = translations(DIALECTS[source], DIALECTS[target], {}, ())
    splicer = Splicer(DIALECTS[source], DIALECTS[target], steps) if spliced else None
    exchange = TranslatedExchange(Data(pieces), steps, splicer=splicer)
    came: list[bytes] = []

    def take(data: bytes) -> bool:
        came.append(data)
        return True

    async def read() -> UpstreamError | None:
        if offered:
            exchange.offer_to(take)
        try:
            while data := await exchange.read():
                came.append(data)
        except UpstreamError as error:
            came.append(error.before)
            return error
        return None

    error = asyncio.run(read())
    return [*decoded(b"".join(came))], None if error is None else (error.kind, error.message)


def decoded(stream: bytes) -> Iterator[Any]:
    for each in events(MADE_UP.sub(b"made up", stream)):
        if each.data in (b"", b"[DONE]"):
            yield each.data
            continue
        fields = msgspec.json.decode(each.data)
        fields.pop("created", None)
        if isinstance(fields.get("response"), dict):
            for time in ("created_at", "completed_at"):
                fields["response"].pop(time, None)
        yield each.raw.partition(b"data: ")[0], fields


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_client_gets_what_it_would_get_of_a_translation(source: str, target: str) -> None:
    @given(pieces=answers(source), offered=st.booleans())
    def check(pieces: Pieces, *, offered: bool) -> None:
        spliced = said(source, target, pieces, spliced=True, offered=offered)
        assert spliced == said(source, target, pieces, spliced=False)

    check()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_what_comes_between_texts_changes_what_they_become(source: str, target: str) -> None:
    texts = [plain(source, written(f" {number}")) for number in range(8)]
    for odd in ODD[source]:
        blocks = [BEGIN[source], *texts[:4], odd, *texts[4:], END[source]]
        for pieces in ([each for each in blocks if each], [b"".join(blocks)]):
            spliced = said(source, target, pieces, spliced=True)
            assert spliced == said(source, target, pieces, spliced=False), odd


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_events_with_a_key_are_read_each_so_that_it_is_masked(source: str, target: str) -> None:
    key, texts = "sk-secretsecret1234567", [plain(source, written(f" {number}")) for number in range(20)]
    fields = ((b'"model":"m"', b'"model":"%b"'), (b'"modelVersion": "g"', b'"modelVersion": "%b"'))
    pieces = [BEGIN[source], *texts, END[source]]
    for known, named_so in fields:
        pieces = [each.replace(known, named_so % key.encode()) for each in pieces]
    steps = translations(DIALECTS[source], DIALECTS[target], {}, (key,))
    data = Data([each for each in pieces if each])
    data.secrets = (key,)
    exchange = TranslatedExchange(data, steps, splicer=Splicer(DIALECTS[source], DIALECTS[target], steps))
    measurement = Measurement(0.0)
    reader = AnswerReader(measurement, STILL, answers=DIALECTS[target].answers, drop_usage=False)
    reader.mask((key,))

    async def read() -> bytes:
        came = b""
        while block := await exchange.read():
            came += reader.read(block, 1.0, exchange.run).forward
        return came

    came = asyncio.run(read())
    assert b" 19" in came
    assert key.encode() not in came


def test_a_character_that_is_cut_between_events_is_no_text() -> None:
    texts = [plain("chat", written(f" {number}")) for number in range(4)]
    cut = plain("chat", b'"a\xc3"') + plain("chat", b'"\xa9b"')
    pieces = [BEGIN["chat"], *texts, cut * 20, END["chat"]]
    assert said("chat", "messages", pieces, spliced=True) == said("chat", "messages", pieces, spliced=False)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_plain_events_are_not_translated(source: str, target: str) -> None:
    """After the first few: each alone, or many at once; what they say is known without reading what they became."""
    steps = translations(DIALECTS[source], DIALECTS[target], {}, ())
    fed: list[bytes] = []

    class Counted:
        finishing, usage_so_far = False, None

        def feed(self, block: bytes) -> bytes:
            fed.append(block)
            return block

        def end(self) -> bytes:
            return b""

    splicer = Splicer(DIALECTS[source], DIALECTS[target], steps)
    texts = [plain(source, b'" %d"' % number) for number in range(200)]
    exchange = TranslatedExchange(
        Data([*filter(None, [BEGIN[source]]), *texts[:100], b"".join(texts[100:]), END[source]]),
        [Counted(), *steps],
        splicer=splicer,
    )
    runs: list[Run] = []

    async def read() -> None:
        while await exchange.read():
            if exchange.run is not None:
                runs.append(exchange.run)

    asyncio.run(read())
    assert sum(each.count(b'" ') for each in fed if each.count(b"\n") <= 4) < 8
    assert [len(run.raw_texts) for run in runs][-1] == 100
    assert "".join(run.text() for run in runs).endswith(" 198 199")
    assert sum(map(len, fed)) < 12 * len(texts[0]) + len(BEGIN[source]) + len(END[source])
