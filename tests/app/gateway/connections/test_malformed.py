"""Requests that are no HTTP get an answer in JSON, and neither it nor the log has a word of theirs."""

import asyncio
import json
from typing import Any

import pytest
from structlog.typing import EventDict

from providers.simulator import Gate, answer
from tests.app.gateway.access.test_admission import KEYS, clients, key_of
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.app.gateway.watching.test_refusals import counted, refusals

KEY = "hs-" + "aB3_" * 10
HEAD = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {KEY}\r\n".encode()
MALFORMED = {
    "a line break in a header": HEAD.replace(b"Bearer ", b"Bearer\nhs-") + b"\r\n",
    "a control character in a header": HEAD.replace(b"Bearer ", b"Bearer \x01") + b"\r\n",
    "a header without a colon": HEAD + b"Bearer " + KEY.encode() + b"\r\n\r\n",
    "a space before the colon": HEAD + b"x-key : " + KEY.encode() + b"\r\n\r\n",
    "a length that is none": HEAD + b"content-length: " + KEY.encode() + b"\r\n\r\n",
    "two lengths": HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
    "a length and chunks": HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    "a path that is none": HEAD.replace(b"/v1/chat", b"http://[" + KEY.encode()) + b"\r\n",
    "another protocol": HEAD.replace(b"HTTP/1.1", KEY.encode()) + b"\r\n",
    "another version": HEAD.replace(b"HTTP/1.1", b"HTTP/9.9") + b"\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + KEY.encode() + bytes(200),
}


async def said(running: RunningGateway, request: bytes, pieces: int = 1) -> tuple[bytes, bytes]:
    """Return head and body of what is answered to ``request`` until the gateway hangs up; it is sent in ``pieces``."""
    port = int(running.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size = -(-len(request) // pieces)
    for start in range(0, len(request), size):
        writer.write(request[start : start + size])
        await asyncio.sleep(0)
    answered = await reader.read()
    writer.close()
    head, _, body = answered.partition(b"\r\n\r\n")
    return head, body


def quoted(*places: Any) -> bool:
    return KEY in repr(places) or KEYS["plain"] in repr(places)


@pytest.mark.parametrize("request_", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_request_is_refused_in_json_and_not_quoted(
    serve: Serve, logged: list[EventDict], caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    async with serve(config=clients(plain={})) as running:
        head, body = await said(running, request_)
        error = json.loads(body)["error"]
        assert head.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
        assert (error["type"], error["code"]) == ("invalid_request_error", "malformed_request")
        assert b"content-type: application/json" in head.lower()
        assert b"x-content-type-options: nosniff" in head.lower()
        assert b"server: holeshot\r\n" in head.lower() + b"\r\n"
        assert await counted(running) == {'{reason="malformed_request",status="400"}': 1.0}
    [entry] = refusals(logged)
    assert (entry["reason"], entry["peer"], entry["count"]) == ("malformed_request", "127.0.0.1", 1)
    assert not quoted(head, body, logged, caplog.text)
    assert caplog.records == []


@pytest.mark.parametrize("pieces", [1, 20])
@pytest.mark.parametrize(
    ("limit_kb", "bytes_", "is_taken"),
    [(8, 9_000, False), (32, 30_000, True), (32, 33_000, False), (64, 60_000, True), (64, 66_000, False)],
)
async def test_a_header_may_be_as_long_as_the_setting_says(
    serve: Serve, logged: list[EventDict], pieces: int, limit_kb: int, bytes_: int, *, is_taken: bool
) -> None:
    config = clients(plain={}) | {"connections": {"headers_max_kb": limit_kb}}
    request = b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncookie: " + b"k" * bytes_ + b"\r\n\r\n"
    async with serve(config=config) as running:
        head, body = await said(running, request, pieces)
        assert head.split()[1] == (b"200" if is_taken else b"431")
        if not is_taken:
            error = json.loads(body)["error"]
            assert error["code"] == "headers_too_large"
            assert f"longer than {limit_kb} KB (connections.headers_max_kb)" in error["message"]
            assert await counted(running) == {'{reason="headers_too_large",status="431"}': 1.0}
    assert "kkkk" not in repr((head, body, logged))


async def test_a_path_may_have_8_kb_whatever_the_setting_says(serve: Serve) -> None:
    config = clients(plain={}) | {"connections": {"headers_max_kb": 256}}
    async with serve(config=config) as running:
        head, body = await said(running, b"GET /v1/" + b"x" * 8_200 + b" HTTP/1.1\r\nhost: x\r\n\r\n")
        assert head.split()[1] == b"431"
        assert "or the path than 8 KB" in json.loads(body)["error"]["message"]


async def test_a_flood_of_malformed_requests_has_a_line_a_second(
    serve: Serve, logged: list[EventDict], caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(config=clients(plain={})) as running:
        await asyncio.gather(*(said(running, MALFORMED["a header without a colon"]) for _ in range(200)))
        assert await counted(running) == {'{reason="malformed_request",status="400"}': 200.0}
    assert sum(entry["count"] for entry in refusals(logged)) == 200
    assert len(refusals(logged)) < 20
    assert caplog.records == []


@pytest.mark.parametrize("admitted", [True, False])
async def test_a_body_that_breaks_off_in_nonsense_is_not_quoted(
    serve: Serve, logged: list[EventDict], caplog: pytest.LogCaptureFixture, *, admitted: bool
) -> None:
    key = key_of("plain")["authorization"] if admitted else "Bearer nobody"
    request = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {key}\r\n"
        f"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{{\r\n{KEY}\r\n{KEY}\r\n"
    ).encode()
    async with serve(config=clients(plain={})) as running:
        head, body = await said(running, request)
        assert json.loads(body)["error"]["type"] in {"invalid_request_error", "authentication_error"}
    assert not quoted(head, body, logged, caplog.text)
    assert caplog.records == []


GARBAGE = {"a line": b"\x00garbage\r\n\r\n", "no line": b"}garbage", "TLS": MALFORMED["TLS"]}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("busy", [False, True], ids=["at rest", "while a call runs"])
async def test_valid_requests_before_garbage_in_one_segment_are_answered_first(
    serve: Serve, garbage: bytes, *, busy: bool
) -> None:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    call = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    call += b"content-length: %d\r\n\r\n" % len(body) + body
    get = b"GET /health/live HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    release = asyncio.Event()
    async with serve(alpha=[*([Gate(release)] if busy else []), *answer("Hello")]) as running:
        port = int(running.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        before = 0
        if busy:
            writer.write(call)
            await running["alpha"].requested.wait()
            before = 1
        writer.write(get + call + get + garbage)
        release.set()
        answered = await reader.read()
        writer.close()
        assert answered.count(b"HTTP/1.1 200 OK\r\n") == 3 + before
        assert answered.count(b"Hello") == 1 + before
        assert answered.count(b" 400 Bad Request\r\n") == 1
        assert b"malformed_request" in answered.rpartition(b" 400 Bad Request\r\n")[2]
