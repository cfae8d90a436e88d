"""A key in what is no answer of a stream (a comment, a field, an error) goes no further, in any dialect."""

import asyncio
import json
from typing import Any

import pytest
from structlog.typing import EventDict

from providers.simulator import Raw
from tests.app.gateway.apis.test_dialects import COMPLETION_BYTES, MESSAGE_BYTES, RESPONSE_BYTES
from tests.app.gateway.keys.test_secrets import BOTH, KEY, search
from tests.app.gateway.relayed.samples import plays
from tests.app.gateway.running_gateway import MODEL, Serve, single

OURS = "hs-" + "Zz09_-" * 7 + "A"  # as `holeshot keys new` makes them
CHAT_BYTES = (
    b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}\n\n'
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"lo"}}]}\n\n'
    b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)
STREAMS = {"chat": CHAT_BYTES, "messages": MESSAGE_BYTES, "responses": RESPONSE_BYTES, "completions": COMPLETION_BYTES}
ERRORS = {
    "chat": b'data: {"error":{"message":"%s","type":"x","code":"%s"}}\n\n',
    "messages": b'event: error\ndata: {"type":"error","error":{"type":"%s","message":"%s"}}\n\n',
    "responses": b'event: error\ndata: {"type":"error","code":"%s","message":"%s"}\n\n',
    "completions": b'data: {"error":{"message":"%s","type":"%s"}}\n\n',
}
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}),
    "messages": (
        "/v1/messages",
        {"model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]},
    ),
    "responses": ("/v1/responses", {"model": MODEL, "input": "Hi"}),
    "completions": ("/v1/completions", {"model": MODEL, "prompt": "Hi"}),
}
PAIRS = [
    (asked, spoken)
    for asked in STREAMS
    for spoken in STREAMS
    if asked == spoken or "completions" not in {asked, spoken}
]
EVERY_PAIR = pytest.mark.parametrize(("asked", "spoken"), PAIRS, ids=[f"{a} from {b}" for a, b in PAIRS])


_FORMS = (
    b": KEY\n\n",
    b":KEY\r\n: Bearer KEY\r\n\r\n",
    b"event: KEY\n\n",
    b"id: KEY\nretry: KEY\nKEY: KEY\nKEY\n\n",
)
_FORMS_OF_DATA = (
    b'event: late_error\ndata: {"reason": "KEY"}\n\n',
    b'event: upstream_error\r\ndata: {"reason":\r\ndata: ["ESCAPED"]}\r\n\r\n',
    b'data: {"detail": "bad KEY"}\n\n',
    b'data: {"errors": [{"msg": "KEY"}]}\n\n',
)


def echoed(key: str, *, in_data: bool = True) -> bytes:
    """Return events that say ``key`` and are neither the answer's nor its end; ``in_data``: there as well."""
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in key)
    return b"".join(
        form.replace(b"KEY", key.encode()).replace(b"ESCAPED", escaped.encode())
        for form in _FORMS + (_FORMS_OF_DATA if in_data else ())
    )


def config(spoken: str) -> dict[str, Any]:
    return {**single(), "providers": {"alpha": {"apis": [spoken]}}}


@BOTH
@EVERY_PAIR
async def test_a_key_beside_the_answer_is_masked_and_the_answer_is_not_touched(
    serve: Serve, logged: list[EventDict], asked: str, spoken: str, *, stream: bool
) -> None:
    first, *rest = STREAMS[spoken].split(b"\n\n")
    trouble = echoed(KEY, in_data=stream) + echoed(OURS, in_data=stream)
    sent = trouble + first + b"\n\n" + trouble + b"\n\n".join(rest)
    path, body = PATHS[asked]
    async with serve(alpha=[Raw(sent, token=True)], config=config(spoken)) as running:
        async with running.post({**body, "stream": stream}, path=path) as response:
            answered = await response.read()
            assert response.status == 200, answered
        assert OURS.encode() not in answered
        await search(running, [answered.decode()], logged)
        if stream and asked == spoken:
            assert all(each in answered for each in STREAMS[spoken].split(b"\n\n"))
            assert b": ***\n\n" in answered


@BOTH
@EVERY_PAIR
@pytest.mark.parametrize("begun", [True, False])
async def test_a_key_in_an_error_is_masked_wherever_it_comes_from(
    serve: Serve, logged: list[EventDict], asked: str, spoken: str, *, stream: bool, begun: bool
) -> None:
    first = STREAMS[spoken].partition(b"lo")[0].rpartition(b"\n\n")[0] + b"\n\n" if begun else b""
    key = f"{KEY} {OURS}".encode()
    error = ERRORS[spoken] % (key, key)
    path, body = PATHS[asked]
    async with serve(alpha=[Raw(first + error, token=begun)], config=config(spoken)) as running:
        async with running.post({**body, "stream": stream}, path=path) as response:
            answered = await response.text()
        assert OURS not in answered
        assert "***" in answered
        await search(running, [answered], logged)
        rows = await running.rows("select * from attempts")
        assert OURS not in repr([rows, logged])


@EVERY_PAIR
async def test_a_key_in_an_event_that_only_its_name_calls_an_error_is_masked(
    serve: Serve, logged: list[EventDict], asked: str, spoken: str
) -> None:
    first = STREAMS[spoken].partition(b"lo")[0].rpartition(b"\n\n")[0] + b"\n\n"
    error = b'event: error\ndata: {"reason": "%s"}\n\n' % f"{KEY} {OURS}".encode()
    path, body = PATHS[asked]
    async with serve(alpha=[Raw(first + error, token=True)], config=config(spoken)) as running:
        async with running.post({**body, "stream": True}, path=path) as response:
            answered = await response.text()
        assert OURS not in answered
        assert "***" in answered
        await search(running, [answered], logged)


async def test_what_looks_like_a_key_in_the_models_own_words_stays(serve: Serve) -> None:
    words = ("sk-0123456789abcdef ", OURS, " Bearer abc ", KEY)
    deltas = [{"choices": [{"index": 0, "delta": {"content": word}}], "message": OURS} for word in words]
    sent = b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in deltas) + CHAT_BYTES
    async with (
        serve(alpha=[Raw(sent, token=True)], config=single()) as running,
        running.chat(stream=True) as response,
    ):
        assert await response.read() == sent


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("fails", [True, False])
async def test_a_relayed_stream_is_masked_too(
    serve: Serve, logged: list[EventDict], *, at_once: bool, fails: bool
) -> None:
    words = b'data: {"type":"transcript.text.delta","delta":"sk-0123456789abcdef"}\n\n'
    error = b'event: error\ndata: {"type":"error","error":{"message":"%s"}}\n\n' % f"{KEY} {OURS}".encode()
    begun = asyncio.Event()
    sent, last = echoed(KEY) + words, echoed(OURS) + b": " + KEY.encode()
    if not fails:
        sent += last
    elif at_once:
        sent += error + last
    else:  # an error ends the stream: what comes after the read that it is in goes no further
        sent += echoed(OURS) + error
    pieces = [sent] if at_once else [sent[at : at + 7] for at in range(0, len(sent), 7)]
    script = plays(words, begun, *pieces, kind="text/event-stream")
    settings = {"providers": {"alpha": {"apis": ["audio"]}}}
    async with serve(alpha=script, config=settings) as running:
        body = {"model": MODEL, "input": "x", "voice": "alloy", "stream_format": "sse"}
        async with running.post(body, path="/v1/audio/speech") as response:
            assert await response.content.readuntil(b"\n\n") == words
            begun.set()
            answered = await response.read()
        assert answered.count(words) == 1
        assert OURS.encode() not in answered
        assert answered.endswith(b'"*** ***"}}\n\n' if fails and not at_once else b": ***\n\n")
        await search(running, [answered.decode()], logged)
        [attempt] = await running.rows("select * from attempts")
        ended = ("failed", "*** ***") if fails else ("won", None)
        assert (attempt["outcome"], attempt["error_message"]) == ended


async def test_an_enormous_comment_is_not_looked_through_but_emptied(serve: Serve) -> None:
    enormous = b": " + b"x" * 1_000_000 + b"\n\n"
    async with (
        serve(alpha=[Raw(enormous + CHAT_BYTES, token=True)], config=single()) as running,
        running.chat(stream=True) as response,
    ):
        assert await response.read() == b":\n\n" + CHAT_BYTES
