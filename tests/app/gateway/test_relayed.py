"""What is routed and failed over but not raced: embeddings, moderations, rankings, sound, pictures, counted tokens."""

import asyncio
import base64
import copy
import gzip
import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
import msgspec
import openai
import pytest
from aiohttp import web

from gateway.prompt_classes import decoded_class
from tests.app.gateway.fake_upstream import EMBEDDINGS, FakeUpstream, Script, hangs, no_such_path, plays, says
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, read
from tests.app.gateway.test_client_disconnects import socket_with
from tests.app.gateway.test_no_leaks import busy

Open = Callable[..., AbstractAsyncContextManager[tuple[RunningGateway, dict[str, FakeUpstream]]]]

MODERATION = {"id": "modr-1", "model": "m", "results": [{"flagged": True, "categories": {}, "category_scores": {}}]}
RANKING = {"id": "r", "results": [{"index": 1, "relevance_score": 0.9}], "meta": {"billed_units": {"search_units": 1}}}
PICTURE = base64.b64encode(b"\x89PNG picture").decode()
PICTURE_USAGE = {"input_tokens": 5, "output_tokens": 10, "total_tokens": 15}
PICTURES = {"created": 1, "data": [{"b64_json": PICTURE}], "usage": PICTURE_USAGE}
TRANSCRIPT = {"text": "Hello.", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 4, "total_tokens": 18}}
SOUND = b"RIFF\x00\x01--not-a-boundary\r\n\r\n" + bytes(range(256)) * 40
REFUSED = {"error": {"message": "no such voice", "type": "invalid_request_error", "param": "voice", "code": None}}
MESSAGE = {"model": MODEL, "messages": [{"role": "user", "content": "How many?"}]}

JSON_CALLS: list[tuple[str, str, dict[str, Any], Any]] = [
    ("/v1/embeddings", "embeddings", {"input": ["one"], "encoding_format": "base64", "dimensions": 2}, EMBEDDINGS),
    ("/v1/moderations", "moderations", {"input": "peace"}, MODERATION),
    ("/v1/rerank", "rerank", {"query": "horse", "documents": ["cow", "horse"], "top_n": 1}, RANKING),
    ("/v2/rerank", "rerank", {"query": "horse", "documents": ["cow", "horse"], "top_n": 1}, RANKING),
    ("/v1/images/generations", "images.generations", {"prompt": "a cat", "n": 1}, PICTURES),
    ("/v1/images/edits", "images.edits", {"prompt": "a hat", "images": [{"image_url": "https://x.test/y"}]}, PICTURES),
]


@pytest.fixture
def opened(serve: Serve) -> Open:
    """Serve a gateway before upstreams: ``async with opened(alpha=[says(…)]) as (running, upstreams)``."""

    @asynccontextmanager
    async def start(
        *, config: Mapping[str, Any] | None = None, key: str = "unused", **scripts: list[Script]
    ) -> AsyncIterator[tuple[RunningGateway, dict[str, FakeUpstream]]]:
        async with AsyncExitStack() as stack:
            upstreams = {
                name: await stack.enter_async_context(FakeUpstream(*script))
                for name, script in (scripts or {"alpha": []}).items()
            }
            settings = dict(config or {})
            own = settings.pop("providers", {})
            settings["providers"] = {
                name: {"base_url": each.base_url, **own.get(name, {})} for name, each in upstreams.items()
            }
            names = dict.fromkeys(upstreams)
            running = await stack.enter_async_context(serve(config=settings, key=key, **names))
            yield running, upstreams

    return start


def in_order(*names: str) -> dict[str, Any]:
    return {"provider": {"order": list(names)}}


def form(*, model: str | None = MODEL, **fields: str) -> aiohttp.FormData:
    data = aiohttp.FormData(quote_fields=False)
    for name, value in fields.items():
        data.add_field(name, value)
    data.add_field("file", SOUND, filename='a "quoted"; name=model.wav', content_type="audio/wav")
    if model is not None:
        data.add_field("model", model)
    return data


@pytest.mark.parametrize(("path", "endpoint", "body", "answer"), JSON_CALLS, ids=[call[0] for call in JSON_CALLS])
async def test_json_passes_untouched_and_is_recorded(
    opened: Open, path: str, endpoint: str, body: dict[str, Any], answer: Any
) -> None:
    odd = {**body, "a_field_of_the_future": {"x": [1, None]}}
    told = {"x-ratelimit-remaining-requests": "9", "x-request-id": "up-1"}
    async with opened(alpha=[says(answer, headers=told)]) as (running, upstreams):
        headers = {"x-request-id": "mine-1", "x-holeshot-tags": "team=red"}
        async with running.post({"model": MODEL, **odd}, path=path, headers=headers) as response:
            assert (response.status, await response.json()) == (200, answer)
        [received] = upstreams["alpha"].received
        assert received.fields == {**odd, "model": "m"}
        assert received.path == path.removeprefix("/v1/").removeprefix("/v2/")
        assert received.headers["x-request-id"] == "mine-1"
        call = await running.call()
        [attempt] = await running.rows("select * from attempts")
    assert response.headers["x-request-id"] == "mine-1"
    assert response.headers["x-holeshot-upstream-request-id"] == "up-1"
    assert response.headers["x-ratelimit-remaining-requests"] == "9"
    assert response.headers["x-holeshot-deployment"] == "alpha/m"
    assert response.headers["x-holeshot-launched"] == "1"
    assert (call["endpoint"], call["status_code"], call["error_kind"]) == (endpoint, 200, None)
    assert (call["request_id"], call["launched"], call["mode"]) == ("mine-1", 1, "single")
    assert (attempt["outcome"], attempt["role"]) == ("won", "primary")
    assert attempt["ttft_ms"] is not None
    assert (attempt["sends"], attempt["in_flight"], attempt["model_version"]) == (1, 0, answer.get("model"))
    if answer is PICTURES:
        assert (call["prompt_tokens"], call["completion_tokens"]) == (5, 10)
    if answer is RANKING:
        assert (call["prompt_tokens"], call["cost_usd"]) == (None, None)


@pytest.mark.parametrize(("path", "endpoint", "body", "answer"), JSON_CALLS, ids=[call[0] for call in JSON_CALLS])
@pytest.mark.parametrize(
    "failure",
    [
        says({"error": {"message": "broken", "type": "server_error"}}, status=503),
        says({"error": {"message": "broken", "type": "server_error"}}),
        says(b"<html><title>Bad gateway</title></html>", kind="text/html"),
        says(b""),
        no_such_path(),
        hangs,
    ],
    ids=["503", "error with 200", "web page", "empty", "no such path", "hangs"],
)
async def test_a_failure_is_replaced_by_the_next_deployment(  # noqa: PLR0917 - what pytest hands in, by name
    opened: Open, path: str, endpoint: str, body: dict[str, Any], answer: Any, failure: Script
) -> None:
    config = {"models": {MODEL: {"timeouts": {"ttft_timeout_s": 0.2}}}} if failure is hangs else {}
    async with opened(alpha=[failure], beta=[says(answer)], config=config) as (running, _):
        async with running.post({"model": MODEL, **body, **in_order("alpha", "beta")}, path=path) as response:
            assert (response.status, await response.json()) == (200, answer)
            assert response.headers["x-holeshot-launched"] == "2"
        expected = "timeout" if failure is hangs else "failed"
        assert await running.outcomes() == {"alpha": expected, "beta": "won"}
        assert (await running.call())["endpoint"] == endpoint


async def test_the_openai_sdk_embeds_in_base64_by_itself(opened: Open) -> None:
    async with opened() as (running, upstreams):
        answered = await running.sdk.embeddings.create(model=MODEL, input=["one"])
        assert answered.data[0].embedding == [1.0, 2.0]
        assert upstreams["alpha"].received[0].fields["encoding_format"] == "base64"
        call = await running.call()
        assert (call["prompt_tokens"], call["status_code"]) == (3, 200)


async def test_a_known_price_makes_a_cost(opened: Open) -> None:
    price = {"price_per_mtok": {"input": 100.0, "output": 0.0}}
    config = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", **price}]}}}
    async with opened(config=config) as (running, _):
        raw = await running.sdk.embeddings.with_raw_response.create(model=MODEL, input=["one"])
        assert float(raw.headers["x-holeshot-cost-usd"]) == pytest.approx(3 * 100e-6)
        assert (await running.call())["cost_usd"] == pytest.approx(3 * 100e-6)


async def test_pictures_have_no_cost_where_only_texts_price_is_known(opened: Open) -> None:
    price = {"price_per_mtok": {"input": 5.0, "output": 0.0}}
    config = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", **price}]}}}
    async with opened(alpha=[says(PICTURES)], config=config) as (running, _):
        drawn = await running.sdk.images.generate(model=MODEL, prompt="a cat")
        assert drawn.data is not None
        assert drawn.data[0].b64_json == PICTURE
        assert (await running.call())["cost_usd"] is None


async def test_a_moderation_without_a_model_asks_the_one_that_is_for_it(opened: Open) -> None:
    models = {MODEL: {"deployments": ["alpha/m"]}, "guard": {"deployments": ["alpha/omni-moderation-latest"]}}
    async with opened(alpha=[says(MODERATION)], config={"models": models}) as (running, upstreams):
        judged = await running.sdk.moderations.create(input="violence")
        assert judged.results[0].flagged
        assert upstreams["alpha"].received[0].fields == {"input": "violence", "model": "omni-moderation-latest"}
        assert (await running.call())["model"] == "guard"


async def test_without_a_model_and_with_several_it_is_to_be_named(opened: Open) -> None:
    models = {MODEL: {"deployments": ["alpha/m"]}, "other": {"deployments": ["alpha/n"]}}
    async with opened(config={"models": models}) as (running, upstreams):
        async with running.post({"input": "x"}, path="/v1/moderations") as response:
            error = (await response.json())["error"]
        assert (response.status, error["param"]) == (400, "model")
        assert "llama, other" in error["message"]
        assert upstreams["alpha"].received == []


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
        assert upstreams["alpha"].received[0].fields == {"model": "m", "voice": "alloy", "input": "hello"}
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
        plays(b": nothing\n\n" * 100_000, kind="text/event-stream", then="hang"),
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
    async with opened(alpha=[plays(b"half", then="break")], beta=[says(b"whole", kind="audio/mpeg")]) as (
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
    async with opened(alpha=[plays(b"half", then="hang")], config=config) as (running, upstreams):
        with pytest.raises(aiohttp.ClientError):
            async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
                await response.read()
        await upstreams["alpha"].left.wait()
        assert (await running.call())["error_kind"] == "stall_timeout"
        assert await running.outcomes() == {"alpha": "stalled"}


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
        assert (call["streamed"], call["status_code"], call["error_kind"]) == (1, 200, "stream_error")
        assert await running.outcomes() == {"alpha": "failed"}


@pytest.mark.parametrize("script", [hangs, plays(b"half", then="hang")], ids=["before", "in the middle"])
async def test_hanging_up_stops_the_speaker(opened: Open, script: Script) -> None:
    async with opened(alpha=[script]) as (running, upstreams):
        async with socket_with(running, {"model": MODEL, "input": "x"}, "/v1/audio/speech") as (reader, writer):
            await upstreams["alpha"].asked.wait()
            if script is not hangs:
                await reader.readuntil(b"half")
            writer.close()
            await upstreams["alpha"].left.wait()
        call = await running.call()
        assert (call["status_code"], call["error_kind"]) == (499, "client_disconnected")
        assert await running.outcomes() == {"alpha": "client_gone"}


@pytest.mark.parametrize("endpoint", ["transcriptions", "translations"])
async def test_a_file_reaches_each_deployment_as_it_was_sent_but_for_the_model(opened: Open, endpoint: str) -> None:
    async with opened(alpha=[says({}, status=500)], beta=[says(TRANSCRIPT)]) as (running, upstreams):
        data = form(prompt="Grüße", provider='{"order": ["alpha", "beta"]}', race="single")
        sent = data()
        body = await bytes_of(sent)
        headers = {"content-type": sent.content_type}
        path = f"{running.url}/v1/audio/{endpoint}"
        async with running.http.post(path, data=body, headers=headers) as response:
            assert (response.status, await response.json()) == (200, TRANSCRIPT), await response.text()
        delimiter = b"--" + sent.content_type.partition("boundary=")[2].encode()
        parts = [
            part for part in body.split(delimiter) if b'name="provider"' not in part and b'name="race"' not in part
        ]
        expected = delimiter.join(parts).replace(b"\r\n\r\n" + MODEL.encode() + b"\r\n", b"\r\n\r\nm\r\n")
        for upstream in upstreams.values():
            [received] = upstream.received
            assert received.headers["content-type"] == sent.content_type
            assert received.body == expected
            assert received.path == f"audio/{endpoint}"
        call = await running.call()
        assert (call["endpoint"], call["prompt_tokens"], call["completion_tokens"]) == (f"audio.{endpoint}", 14, 4)
        assert await running.outcomes() == {"alpha": "failed", "beta": "won"}


async def test_the_openai_sdk_uploads_what_is_to_be_transcribed(opened: Open) -> None:
    async with opened(alpha=[says(TRANSCRIPT)]) as (running, upstreams):
        heard = await running.sdk.audio.transcriptions.create(
            model=MODEL, file=("a.wav", io.BytesIO(SOUND), "audio/wav")
        )
        assert heard.text == "Hello."
        assert SOUND in upstreams["alpha"].received[0].body


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("text/plain; charset=utf-8", b"[Music] {Hello}\n"),
        ("text/plain", b"{not json"),
        ("text/plain", b""),
        ("text/vtt", b"WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n"),
        ("application/x-subrip", b"1\n00:00:00,000 --> 00:00:01,000\nHello\n"),
        ("application/json", b'"Hello."'),
        ("application/json", b"Hello."),
    ],
)
async def test_transcripts_of_every_format_pass(opened: Open, kind: str, said: bytes) -> None:
    async with opened(alpha=[says(said, kind=kind)]) as (running, _):
        data = form(response_format="text")
        async with running.http.post(running.url + "/v1/audio/transcriptions", data=data) as response:
            assert (response.status, await response.read()) == (200, said)
        assert response.headers["content-type"] == kind
        assert (await running.call())["status_code"] == 200


async def test_a_text_that_comes_compressed_all_the_same_is_unpacked(opened: Open) -> None:
    packed = says(gzip.compress(b"Hello." * 1000), kind="text/plain", headers={"content-encoding": "gzip"})
    async with opened(alpha=[packed]) as (running, _):
        async with running.http.post(running.url + "/v1/audio/transcriptions", data=form()) as response:
            assert await response.read() == b"Hello." * 1000
        assert "content-encoding" not in response.headers


async def test_a_transcript_streams_to_the_openai_sdk(opened: Open) -> None:
    events = [
        b'data: {"type":"transcript.text.delta","delta":"Hello."}\n\n',
        b'data: {"type":"transcript.text.done","text":"Hello.","usage":%b}\n\n'
        % msgspec.json.encode(TRANSCRIPT["usage"]),
    ]
    async with opened(alpha=[plays(*events, kind="text/event-stream")]) as (running, _):
        file = ("a.wav", io.BytesIO(SOUND), "audio/wav")
        stream = await running.sdk.audio.transcriptions.create(model=MODEL, file=file, stream=True)
        assert [event.type async for event in stream] == ["transcript.text.delta", "transcript.text.done"]
        call = await running.call()
    assert (call["streamed"], call["prompt_tokens"], call["completion_tokens"]) == (1, 14, 4)


async def test_pictures_are_edited_and_varied_by_the_openai_sdk(opened: Open) -> None:
    async with opened(alpha=[says(PICTURES)]) as (running, upstreams):
        files = [("a.png", b"\x89PNG a", "image/png"), ("b.png", b"\x89PNG b", "image/png")]
        edited = await running.sdk.images.edit(model=MODEL, image=files, prompt="a hat")
        varied = await running.sdk.images.create_variation(model=MODEL, image=files[0])
        assert edited.data == varied.data
        assert [each.path for each in upstreams["alpha"].received] == ["images/edits", "images/variations"]
        assert b"\x89PNG b" in upstreams["alpha"].received[0].body
        rows = await running.rows("select endpoint from calls order by started_at")
    assert [row["endpoint"] for row in rows] == ["images.edits", "images.variations"]


async def test_a_second_model_in_a_form_cannot_get_past_the_first(opened: Open) -> None:
    async with opened(alpha=[says(TRANSCRIPT)]) as (running, upstreams):
        data = form()
        data.add_field("model", "a-dearer-one")
        async with running.http.post(running.url + "/v1/audio/transcriptions", data=data) as response:
            assert response.status == 200
        assert b"a-dearer-one" not in upstreams["alpha"].received[0].body


async def test_no_part_hides_in_what_stands_around_the_form(opened: Open) -> None:
    hidden = b'--b\nContent-Disposition: form-data; name="model"\n\na-dearer-one\n--b--\n'
    parts = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % pair
        for pair in ((b"model", MODEL.encode()), (b"file", SOUND))
    )
    async with opened(alpha=[says(TRANSCRIPT)]) as (running, upstreams):
        path, kind = running.url + "/v1/audio/transcriptions", "multipart/form-data; boundary=b; odd=\u00fc"
        body = b"x\n" + hidden + b"\r\n" + parts + b"--b--\r\n" + hidden
        async with running.http.post(path, data=body, headers={"content-type": kind}) as response:
            assert response.status == 200, await response.text()
        [received] = upstreams["alpha"].received
        assert received.body == parts.replace(MODEL.encode(), b"m") + b"--b--\r\n"
        assert received.headers["content-type"] == "multipart/form-data; boundary=b"


async def test_who_hangs_up_in_the_middle_of_a_file_made_no_call(opened: Open) -> None:
    async with opened(alpha=[says(TRANSCRIPT)]) as (running, upstreams):
        host, _, port = running.url.removeprefix("http://").partition(":")
        for _ in range(3):
            _, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: {host}\r\ncontent-length: 1000000\r\n"
            writer.write(head.encode() + b"content-type: multipart/form-data; boundary=b\r\n\r\n--b\r\n" + SOUND)
            await writer.drain()
            writer.close()
        async with running.http.post(running.url + "/v1/audio/transcriptions", data=form()) as response:
            assert response.status == 200
        assert len(upstreams["alpha"].received) == 1
        await running.gateway.context.fleet.idle()
        assert await running.rows("select status_code from calls") == [{"status_code": 200}]


async def test_a_short_sound_of_no_type_is_not_called_json(opened: Open) -> None:
    async with (
        opened(alpha=[says(b"ID3 short", kind="")]) as (running, _),
        running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response,
    ):
        assert await response.read() == b"ID3 short"
        assert response.headers["content-type"] == "application/octet-stream"


async def test_a_deployments_own_fields_and_headers_go_into_forms_too(opened: Open) -> None:
    own = {"extra_body": {"temperature": 0.5, "language": "de"}, "extra_headers": {"x-own": "yes"}}
    config = {"models": {MODEL: {"deployments": [{"deployment": "alpha/m", **own}]}}}
    async with opened(alpha=[says(TRANSCRIPT)], config=config) as (running, upstreams):
        async with running.http.post(running.url + "/v1/audio/transcriptions", data=form(language="en")) as response:
            assert response.status == 200
        [received] = upstreams["alpha"].received
        assert received.headers["x-own"] == "yes"
        assert received.body.count(b'name="language"') == 1
        assert b'name="language"\r\n\r\nde\r\n' in received.body
        assert b'name="temperature"\r\n\r\n0.5\r\n' in received.body


MISSING = [
    ("/v1/embeddings", {"model": MODEL}, "input"),
    ("/v1/moderations", {"model": MODEL}, "input"),
    ("/v1/rerank", {"model": MODEL, "query": "x"}, "documents"),
    ("/v1/rerank", {"model": MODEL, "documents": ["x"]}, "query"),
    ("/v1/rerank", {"query": "x", "documents": ["x"]}, "model"),
    ("/v1/audio/speech", {"model": MODEL, "input": None}, "input"),
    ("/v1/audio/speech", {"input": "x"}, "model"),
    ("/v1/images/generations", {"model": MODEL}, "prompt"),
    ("/v1/images/edits", {"model": MODEL, "prompt": "x"}, "image"),
    ("/v1/embeddings", {"model": 7, "input": "x"}, "model"),
    ("/v1/images/generations", {"model": MODEL, "prompt": "x", "stream": "yes"}, "stream"),
    ("/v1/embeddings", {"model": MODEL, "input": "x", "race": {"wide": 3}}, "race"),
]


@pytest.mark.parametrize(("path", "body", "param"), MISSING, ids=str)
async def test_what_is_missing_is_named(opened: Open, path: str, body: dict[str, Any], param: str) -> None:
    async with opened() as (running, upstreams):
        async with running.post(body, path=path) as response:
            error = (await response.json())["error"]
        assert (response.status, error["param"], error["type"]) == (400, param, "invalid_request_error")
        assert upstreams["alpha"].received == []
        assert await running.rows("select * from calls") == []


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("multipart/form-data", b"--x\r\n\r\n", "boundary"),
        ("multipart/form-data; boundary=x", b"", "no part"),
        ("multipart/form-data; boundary=x", b"--y\r\n", "no part"),
        ("multipart/form-data; boundary=x", b"--x", "boundary"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data", "not a complete"),
        ("multipart/form-data; boundary=x", b"--x\r\nA: b\r\n\r\nc\r\n--x--\r\n", "no name"),
        ("multipart/form-data; boundary=x", b"--x--\r\n", "'model' is missing"),
    ],
)
async def test_a_form_that_is_none_is_refused(opened: Open, kind: str, body: bytes, words: str) -> None:
    async with opened() as (running, upstreams):
        path = running.url + "/v1/audio/transcriptions"
        async with running.http.post(path, data=body, headers={"content-type": kind}) as response:
            error = (await response.json())["error"]
        assert (response.status, error["type"]) == (400, "invalid_request_error")
        assert words in error["message"]
        assert upstreams["alpha"].received == []


async def test_a_form_without_a_file_or_with_preferences_in_pieces_is_refused(opened: Open) -> None:
    async with opened() as (running, upstreams):
        without = aiohttp.FormData({"model": MODEL, "x": "y"}, default_to_multipart=True)
        for data, param in (
            (without, "file"),
            (form(**{"provider[only]": "beta"}), "provider"),
            (form(race="x"), "race"),
        ):
            async with running.http.post(running.url + "/v1/audio/transcriptions", data=data) as response:
                assert (response.status, (await response.json())["error"]["param"]) == (400, param)
        assert upstreams["alpha"].received == []


async def test_each_api_takes_its_own_type_of_body_only(opened: Open) -> None:
    async with opened() as (running, upstreams):
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/transcriptions") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (415, "unsupported_media_type")
        async with running.http.post(running.url + "/v1/embeddings", data=form()) as response:
            assert response.status == 415
        assert upstreams["alpha"].received == []


async def test_a_file_over_the_limit_is_413(opened: Open) -> None:
    path = "/v1/audio/transcriptions"
    async with (
        opened(config={"max_body_mb": 0.005}) as (running, _),
        running.http.post(running.url + path, data=form()) as response,
    ):
        assert (response.status, (await response.json())["error"]["code"]) == (413, "body_too_large")


async def test_a_web_page_cannot_upload(opened: Open) -> None:
    async with opened() as (running, upstreams):
        headers = {"origin": "https://evil.example"}
        async with running.http.post(
            running.url + "/v1/audio/transcriptions", data=form(), headers=headers
        ) as response:
            assert response.status == 403
        assert upstreams["alpha"].received == []


async def test_a_model_nobody_knows_is_404(opened: Open) -> None:
    async with opened() as (running, _):
        with pytest.raises(openai.NotFoundError) as caught:
            await running.sdk.audio.speech.create(model="lama", voice="alloy", input="x")
        assert caught.value.code == "model_not_found"


async def test_a_model_without_the_api_says_why_for_each_deployment(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["chat"]}, "beta": {"apis": ["chat", "embeddings"]}}}
    async with opened(alpha=[], beta=[], config=config) as (running, upstreams):
        with pytest.raises(openai.BadRequestError) as caught:
            await running.sdk.images.generate(model=MODEL, prompt="a cat")
        assert caught.value.code == "unsupported_by_deployments"
        assert "alpha/m answers chat only" in str(caught.value)
        assert "beta/m answers chat, embeddings only" in str(caught.value)
        headers = {"x-holeshot-plan": "1"}
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings", headers=headers) as response:
            assert response.headers["x-holeshot-provider"] == "beta"
        plan = msgspec.json.decode(response.headers["x-holeshot-plan"])
        assert [launch["deployment"] for launch in plan["launches"]] == ["beta/m"]
        assert plan["excluded"] == {"alpha/m": "answers chat only"}
        assert upstreams["alpha"].received == []


async def test_what_the_provider_says_of_a_wrong_request_comes_back_in_its_words(opened: Open) -> None:
    async with opened(alpha=[says(REFUSED, status=400)]) as (running, _):
        with pytest.raises(openai.BadRequestError) as caught:
            await running.sdk.audio.speech.create(model=MODEL, voice="nobody", input="x")
        assert caught.value.param == "voice"
        call = await running.call()
        assert (call["status_code"], call["endpoint"]) == (400, "audio.speech")


async def test_another_model_takes_the_place_of_one_that_fails(opened: Open) -> None:
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["other"]},
        "other": {"deployments": ["beta/n"]},
    }
    async with opened(
        alpha=[says({}, status=500)], beta=[says(b"sound", kind="audio/mpeg")], config={"models": models}
    ) as (
        running,
        upstreams,
    ):
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
            assert (response.status, await response.read()) == (200, b"sound")
        assert response.headers["x-holeshot-fallback"] == "other"
        assert upstreams["beta"].received[0].fields["model"] == "n"
        call = await running.call()
        assert (call["model"], call["answered_model"], call["launched"]) == (MODEL, "other", 2)
        assert await running.outcomes() == {"alpha": "failed", "beta": "won"}


async def test_a_fallback_is_of_the_configuration_that_its_call_began_with(opened: Open) -> None:
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["other"]},
        "other": {"deployments": ["beta/n"]},
    }
    go = asyncio.Event()

    async def fails_later(_: web.Request, __: bytes) -> web.StreamResponse:
        await go.wait()
        return web.json_response({}, status=500)

    async with opened(
        alpha=[fails_later], beta=[says(b"old", kind="audio/mpeg")], gamma=[says(b"new")], config={"models": models}
    ) as (running, upstreams):
        speech = running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech")
        call = asyncio.create_task(answer_of(speech))
        await upstreams["alpha"].asked.wait()
        config = copy.deepcopy(running.config)
        config["models"]["other"]["deployments"] = ["gamma/n"]
        running.gateway.reload(read(config, running.folder))
        go.set()
        assert await call == b"old"


async def test_what_only_a_client_of_some_policy_may_see_stays_there(opened: Open) -> None:
    models = {MODEL: {"deployments": ["alpha/m", {"deployment": "beta/m", "zdr": True}]}}
    async with opened(alpha=[], beta=[], config={"models": models}) as (running, upstreams):
        for _ in range(5):
            body = {"model": MODEL, "input": "x", "provider": {"zdr": True}}
            async with running.post(body, path="/v1/embeddings") as response:
                assert response.headers["x-holeshot-provider"] == "beta"
        assert upstreams["alpha"].received == []
        assert "provider" not in upstreams["beta"].received[0].fields


async def test_how_soon_a_picture_comes_says_nothing_of_how_soon_an_answer_does(opened: Open) -> None:
    async with opened(alpha=[says(PICTURES)]) as (running, _):
        for _ in range(3):
            await running.sdk.images.generate(model=MODEL, prompt="a cat")
        [row] = await running.rows("select distinct prompt_class from calls")
        standings = [
            running.gateway.steering._snapshots.fresh(MODEL, each).of("alpha/m").events
            for each in map(decoded_class, (0, 1, 2, row["prompt_class"]))
        ]
    assert standings[:3] == [0, 0, 0]
    assert standings[3] > 0


async def test_whoever_counts_tokens_fast_is_not_taken_to_answer_fast(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["messages"]}}}
    async with opened(alpha=[says({"input_tokens": 42})], config=config) as (running, _):
        for _ in range(3):
            async with running.post(MESSAGE, path="/v1/messages/count_tokens") as response:
                assert await response.json() == {"input_tokens": 42}
        [row] = running.gateway.steering.leaderboard(MODEL).deployments
        assert (row.n, row.events, row.win_share) == (0, 0, None)


async def test_tokens_are_counted_by_whoever_speaks_messages(opened: Open) -> None:
    config: dict[str, Any] = {"providers": {"alpha": {"apis": ["chat"]}, "beta": {"apis": ["messages"]}}}
    deployments: list[Any] = ["alpha/m", {"deployment": "beta/m", "extra_body": {"temperature": 1}}]
    config["models"] = {MODEL: {"deployments": deployments}}
    async with opened(alpha=[], beta=[says({"input_tokens": 42})], config=config) as (running, upstreams):
        async with running.post(MESSAGE, path="/v1/messages/count_tokens", headers={"anthropic-beta": "x"}) as response:
            assert (response.status, await response.json()) == (200, {"input_tokens": 42})
        assert "x-holeshot-estimated" not in response.headers
        [received] = upstreams["beta"].received
        assert (received.path, received.fields) == ("messages/count_tokens", {**MESSAGE, "model": "m"})
        assert received.headers["anthropic-beta"] == "x"
        call = await running.call()
    assert (call["endpoint"], call["status_code"]) == ("messages.count_tokens", 200)
    assert (call["prompt_tokens"], call["cost_usd"]) == (None, None)


async def test_tokens_nobody_can_count_are_estimated(opened: Open) -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}}
    config = {"providers": {"alpha": {"apis": ["chat"]}}}
    async with opened(config=config) as (running, upstreams):
        body = {"model": MODEL, "messages": [{"role": "user", "content": [picture]}]}
        headers = {"x-request-id": "mine-2"}
        async with running.post(body, path="/v1/messages/count_tokens", headers=headers) as response:
            counted = (await response.json())["input_tokens"]
        assert (response.status, response.headers["x-holeshot-estimated"]) == (200, "true")
        assert response.headers["request-id"] == "mine-2"
        assert 1000 <= counted <= 1100
        assert upstreams["alpha"].received == []
        assert await running.rows("select * from calls") == []


async def test_tokens_are_estimated_where_a_speaker_of_messages_cannot_count(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["chat", "messages"]}}}
    async with opened(alpha=[no_such_path()], config=config) as (running, _):
        for _ in range(3):
            async with running.post(MESSAGE, path="/v1/messages/count_tokens") as response:
                assert (response.status, response.headers["x-holeshot-estimated"]) == (200, "true")
        rows = await running.rows("select status_code, error_kind, launched from calls")
        assert [tuple(row.values()) for row in rows] == [(200, None, 1)] * 3
        [board] = running.gateway.steering.leaderboard(MODEL).deployments
        assert (board.state, board.error_rate) == ("ok", None)


async def test_counting_fails_in_anthropics_words(opened: Open) -> None:
    config = {"providers": {"alpha": {"apis": ["messages"]}}}
    refusal = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    async with opened(alpha=[says(refusal, status=529)], config=config) as (running, _):
        for body, status, kind in (
            (MESSAGE, 502, "api_error"),
            ({"messages": [{}]}, 400, "invalid_request_error"),
            ({"model": MODEL}, 400, "invalid_request_error"),
            ({**MESSAGE, "model": "nobody"}, 404, "not_found_error"),
        ):
            async with running.post(body, path="/v1/messages/count_tokens") as response:
                said = await response.json()
            assert (response.status, said["type"], said["error"]["type"]) == (status, "error", kind)


async def bytes_of(payload: Any) -> bytes:
    """Return what a payload of aiohttp's writes."""
    written = bytearray()

    class Writer:
        async def write(self, data: bytes) -> None:
            written.extend(data)

    await payload.write(Writer())
    return bytes(written)


async def test_nothing_is_left_of_calls_that_were_relayed(opened: Open) -> None:
    never = asyncio.Event()
    sound = plays(b"a", b"b")
    scripts = [
        sound,
        plays(b"a", then="break"),
        says({}, status=503),
        plays(b"a", never),
        hangs,
        says(REFUSED, status=400),
    ]
    config = {"timeouts": {"ttft_timeout_s": 0.1, "stall_timeout_s": 0.1}}
    async with opened(alpha=[*scripts, sound], beta=[*reversed(scripts), sound], config=config) as (running, _):
        for _ in scripts:
            with suppress(aiohttp.ClientError):
                async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
                    await response.read()
        await running.gateway.context.fleet.idle()
        assert busy(running) == {"alpha": 0, "beta": 0}
        rows = await running.rows("select count(*) as n from calls")
        assert rows == [{"n": len(scripts)}]
        board = running.gateway.steering.leaderboard(MODEL).deployments
        assert {row.in_flight for row in board} == {0}


async def answer_of(request: Any) -> bytes:
    async with request as response:
        body: bytes = await response.read()
        return body
