"""Speech, and pictures in parts: answers that stream as bytes or events."""

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from providers.simulator import Drop, Hang
from tests.app.gateway.connections.test_client_disconnects import socket_with
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.relayed.samples import HANGS, PICTURE_USAGE, Open, Script, form, in_order, plays, says
from tests.app.gateway.running_gateway import MODEL


async def test_speech_is_heard_as_it_is_spoken(opened: Open) -> None:
    heard = asyncio.Event()
    async with opened(alpha=[plays(b"ID3 first ", heard, b"second")]) as (running, upstreams):
        create = running.sdk.audio.speech.with_streaming_response.create
        async with create(model=MODEL, voice="alloy", input="hello") as response:
            pieces = response.iter_bytes()
            first = await anext(pieces)
            heard.set()
            rest = b"".join([piece async for piece in pieces])
        assert (first, rest) == (b"ID3 first ", b"second")
        assert response.headers["content-type"] == "audio/mpeg"
        assert upstreams["alpha"].received[0].body == {"model": "m", "voice": "alloy", "input": "hello"}
        call = await running.call()
        [attempt] = await running.rows("select * from attempts")
    assert (call["endpoint"], call["status_code"], call["cost_usd"]) == ("audio.speech", 200, None)
    assert (attempt["outcome"], attempt["prompt_tokens"]) == ("won", None)


async def test_a_sound_of_known_length_keeps_it(opened: Open) -> None:
    sound = bytes(range(256)) * 4000
    async with opened(alpha=[says(sound, kind="audio/wav")]) as (running, _):
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
            assert await response.read() == sound
        assert response.headers["content-length"] == str(len(sound))
        assert response.content_type == "audio/wav"


async def test_events_of_known_length_may_become_longer(opened: Open) -> None:
    event = b'data: {"type":"speech.audio.done","usage":{"input_tokens":14,"output_tokens":101,"total_tokens":115}}'
    async with opened(alpha=[says(event, kind="text/event-stream")]) as (running, _):
        body = {"model": MODEL, "input": "x", "voice": "alloy", "stream_format": "sse"}
        async with running.post(body, path="/v1/audio/speech") as response:
            assert await response.read() == event + b"\n\n"


async def test_speech_in_events_reports_its_tokens(opened: Open) -> None:
    events = [
        b'data: {"type":"speech.audio.delta","audio":"AAA="}\n\n',
        b'data: {"type":"speech.audio.done","usage":{"input_tokens":14,"output_tokens":101,"total_tokens":115}}\n\n',
    ]
    async with opened(alpha=[plays(*events, kind="text/event-stream")]) as (running, _):
        body = {"model": MODEL, "input": "x", "voice": "alloy", "stream_format": "sse"}
        async with running.post(body, path="/v1/audio/speech") as response:
            assert await response.read() == b"".join(events)
        call = await running.call()
    assert (call["streamed"], call["prompt_tokens"], call["completion_tokens"]) == (1, 14, 101)


async def test_speech_is_paid_for_by_its_characters(opened: Open) -> None:
    price = {"input": 15.0, "output": 0.0}
    models = {MODEL: {"deployments": [{"deployment": "alpha/m", "price_per_mtok": price}]}}
    config = {"models": models, **client(usd_per_day=0.05)}
    body = {"model": MODEL, "input": "é" * 1_000, "voice": "alloy"}
    async with opened(alpha=[says(b"ID3", kind="audio/mpeg")] * 4, config=config, key=KEY) as (running, _):
        found = []
        for _ in range(4):
            async with running.post(body, path="/v1/audio/speech", headers=keyed()) as response:
                await response.read()
                found.append(response.status)
        rows = await running.rows("select cost_usd from calls")
    assert found == [200, 200, 200, 429]
    assert [row["cost_usd"] for row in rows] == [pytest.approx(0.015)] * 3


@pytest.mark.parametrize(
    ("limits", "status"),
    [
        ({"usd_per_day": 1.0}, 400),
        ({"usd_per_day": 1.0, "unpriced": "refuse"}, 400),
        ({"usd_per_day": 1.0, "unpriced": "count_known"}, 200),
        ({"rpm": 100}, 200),
    ],
)
async def test_speech_without_a_known_price_is_refused_where_dollars_are_limited(
    opened: Open, limits: dict[str, Any], status: int
) -> None:
    body = {"model": MODEL, "input": "x", "voice": "alloy"}
    config = client(**limits)
    async with (
        opened(alpha=[says(b"ID3", kind="audio/mpeg")], config=config, key=KEY) as (running, _),
        running.post(body, path="/v1/audio/speech", headers=keyed()) as response,
    ):
        said = await response.read()
        assert response.status == status
        assert (b"price_per_mtok" in said) == (status != 200)


async def test_pictures_come_in_parts(opened: Open) -> None:
    events = [
        b'data: {"type":"image_generation.partial_image","b64_json":"AA","partial_image_index":0}\n\n',
        b'data: {"type":"image_generation.completed","b64_json":"AAA","usage":%b}\n\n'
        % msgspec.json.encode(PICTURE_USAGE),
    ]
    async with opened(alpha=[plays(*events, kind="text/event-stream")]) as (running, _):
        stream = await running.sdk.images.generate(model=MODEL, prompt="a cat", stream=True, partial_images=1)
        kinds = [event.type async for event in stream]
        assert kinds == ["image_generation.partial_image", "image_generation.completed"]
        call = await running.call()
    assert (call["endpoint"], call["streamed"], call["completion_tokens"]) == ("images.generations", 1, 10)


@pytest.mark.parametrize(
    "failure",
    [
        says(b""),
        says(b"", kind="audio/mpeg"),
        says({"error": {"message": "quota", "code": 429}}),
        says(b'{"error": {"message": "quota"}}', kind="text/plain"),
        plays(b'event: error\ndata: {"type":"error","error":{"message":"no"}}\n\n', kind="text/event-stream"),
        plays(b": nothing\n\n", kind="text/event-stream"),
        plays(b": nothing\n\n" * 100_000, kind="text/event-stream", then=Hang()),
        says(b"<html>", kind="text/html"),
    ],
)
async def test_sound_that_turns_out_to_be_none_is_asked_of_the_next(opened: Open, failure: Script) -> None:
    async with opened(alpha=[failure], beta=[says(b"sound", kind="audio/mpeg")]) as (running, _):
        body = {"model": MODEL, "input": "x", **in_order("alpha", "beta")}
        async with running.post(body, path="/v1/audio/speech") as response:
            assert (response.status, await response.read()) == (200, b"sound")
        assert await running.outcomes() == {"alpha": "failed", "beta": "won"}


async def test_sound_that_breaks_off_breaks_the_clients_connection(opened: Open) -> None:
    async with opened(alpha=[plays(b"half", then=Drop())], beta=[says(b"whole", kind="audio/mpeg")]) as (
        running,
        upstreams,
    ):
        body = {"model": MODEL, "input": "x", **in_order("alpha", "beta")}
        with pytest.raises(aiohttp.ClientError):
            async with running.post(body, path="/v1/audio/speech") as response:
                await response.read()
        call = await running.call()
        assert await running.outcomes() == {"alpha": "failed"}
        assert upstreams["beta"].received == []
    assert (call["status_code"], call["error_kind"]) == (200, "disconnected")


async def test_sound_that_stalls_breaks_the_clients_connection(opened: Open) -> None:
    config = {"models": {MODEL: {"timeouts": {"stall_timeout_s": 0.1}}}}
    async with opened(alpha=[plays(b"half", then=Hang())], config=config) as (running, upstreams):
        with pytest.raises(aiohttp.ClientError):
            async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
                await response.read()
        await upstreams["alpha"].disconnected.wait()
        assert (await running.call())["error_kind"] == "stall_timeout"
        assert await running.outcomes() == {"alpha": "stalled"}


BEGINS = b'data: {"type":"speech.audio.delta","audio":"AAA="}\n\n'
HALVES = [
    b'data: {"type":"speech.audio.delta","aud',
    b'data: {"type":"speech.audio.delta","aud\n',
    b"event: speech.audio.done\n",
    b"event: speech.audio.done",
    b"data: ",
    b"da",
    b"data: [DON",
]


async def hear(response: aiohttp.ClientResponse, heard: bytearray) -> None:
    while data := await response.content.readany():
        heard += data


@pytest.mark.parametrize("half", HALVES)
async def test_events_that_end_within_one_break_the_clients_connection(opened: Open, half: bytes) -> None:
    async with opened(alpha=[plays(BEGINS, half, kind="text/event-stream")]) as (running, _):
        body = {"model": MODEL, "input": "x", "voice": "alloy", "stream_format": "sse"}
        heard = bytearray()
        async with running.post(body, path="/v1/audio/speech") as response:
            with pytest.raises(aiohttp.ClientError):
                await hear(response, heard)
        call = await running.call()
        assert await running.outcomes() == {"alpha": "failed"}
    assert heard == BEGINS
    assert (call["status_code"], call["error_kind"]) == (200, "disconnected")


@pytest.mark.parametrize("half", HALVES)
async def test_events_that_end_within_the_first_are_asked_of_the_next(opened: Open, half: bytes) -> None:
    alpha, beta = says(half, kind="text/event-stream"), says(b"sound", kind="audio/mpeg")
    async with opened(alpha=[alpha], beta=[beta]) as (running, _):
        body = {"model": MODEL, "input": "x", **in_order("alpha", "beta")}
        async with running.post(body, path="/v1/audio/speech") as response:
            assert (response.status, await response.read()) == (200, b"sound")
        assert await running.outcomes() == {"alpha": "failed", "beta": "won"}


@pytest.mark.parametrize(
    "last",
    [
        b'data: {"type":"speech.audio.done"}',
        b'data: {"type":"speech.audio.done"}\n',
        b'event: speech.audio.done\r\ndata: {"type":\r\ndata: "speech.audio.done"}\r\n',
        b"data: [DONE]",
        b"data: plain text\n",
        b": bye",
        b"id: 7\nretry: 3",
        b"\n",
    ],
)
async def test_events_whose_last_lacks_only_its_blank_line_are_whole(opened: Open, last: bytes) -> None:
    async with opened(alpha=[plays(BEGINS, last, kind="text/event-stream")]) as (running, _):
        body = {"model": MODEL, "input": "x", "voice": "alloy", "stream_format": "sse"}
        async with running.post(body, path="/v1/audio/speech") as response:
            assert (await response.read()).rstrip() == (BEGINS + last).rstrip()
        assert await running.outcomes() == {"alpha": "won"}


async def test_an_error_told_in_the_middle_is_passed_on_and_recorded(opened: Open) -> None:
    events = [
        b'data: {"type":"transcript.text.delta","delta":"Hel"}\n\n',
        b'data: {"type":"error","error":{"message":"out of memory","code":"server_error"}}\n\n',
    ]
    heard = asyncio.Event()
    async with opened(alpha=[plays(events[0], heard, events[1], kind="text/event-stream")]) as (running, _):
        async with running.http.post(running.url + "/v1/audio/transcriptions", data=form(stream="true")) as response:
            assert await response.content.readany() == events[0]
            heard.set()
            assert await response.read() == events[1]
        call = await running.call()
        assert (call["streamed"], call["status_code"], call["error_kind"]) == (1, 200, "server_error")
        assert await running.outcomes() == {"alpha": "failed"}


async def test_an_error_that_is_declared_as_events_is_one(opened: Open) -> None:
    refusal = {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}
    async with opened(alpha=[says(refusal, kind="text/event-stream")]) as (running, _):
        body = {"model": MODEL, "input": "x", "stream_format": "sse"}
        async with running.post(body, path="/v1/audio/speech") as response:
            assert (response.status, b"slow down" in await response.read()) == (429, True)
        [attempt] = await running.rows("select * from attempts")
    assert attempt["error_kind"] == "rate_limited"


async def test_a_key_whose_rate_limit_is_told_in_the_middle_rests(opened: Open) -> None:
    refusal = b'data: {"type":"error","error":{"message":"slow down","code":"rate_limit_exceeded"}}\n\n'
    refuses = plays(b"data: {}\n\n", refusal, kind="text/event-stream")
    keys = {"providers": {"alpha": {"api_key": None, "api_keys": ["key-one", "key-two"]}}}
    async with opened(alpha=[refuses, says(b"sound"), says(b"sound")], config=keys) as (running, upstreams):
        for _ in range(3):
            async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
                await response.read()
        first, *others = [each.headers["authorization"] for each in upstreams["alpha"].received]
    assert first not in others


@pytest.mark.parametrize("script", [HANGS, plays(b"half", then=Hang())], ids=["before", "in the middle"])
async def test_hanging_up_stops_the_speaker(opened: Open, script: Script) -> None:
    async with opened(alpha=[script]) as (running, upstreams):
        async with socket_with(running, {"model": MODEL, "input": "x"}, "/v1/audio/speech") as (reader, writer):
            await upstreams["alpha"].requested.wait()
            if script is not HANGS:
                await reader.readuntil(b"half")
            writer.close()
            await upstreams["alpha"].disconnected.wait()
        call = await running.call()
        assert (call["status_code"], call["error_kind"]) == (499, "client_disconnected")
        assert await running.outcomes() == {"alpha": "client_gone"}
