"""Forms with a file: transcripts, translations, edited pictures."""

import asyncio
import gzip
import io
from typing import Any

import msgspec
import pytest

from tests.app.gateway.relayed.samples import PICTURES, SOUND, Open, form, plays, says
from tests.app.gateway.running_gateway import MODEL

TRANSCRIPT = {"text": "Hello.", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 4, "total_tokens": 18}}


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
            assert received.path == f"/v1/audio/{endpoint}"
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


async def test_a_character_that_is_cut_in_two_events_of_a_transcript_arrives_whole(opened: Open) -> None:
    texts = (rb"So \ud83d\ude00 \ud83d", rb"\ude00! \ud83d", b"a", rb"\u00e9 \ud800 ", rb"and \ud83d", rb"\ude00.")
    events = [b'data: {"type":"transcript.text.delta","delta":"%b"}\n\n' % text for text in texts]
    async with opened(alpha=[plays(*events, kind="text/event-stream")]) as (running, _):
        file = ("a.wav", io.BytesIO(SOUND), "audio/wav")
        stream = await running.sdk.audio.transcriptions.create(model=MODEL, file=file, stream=True)
        said = [event.delta async for event in stream if event.type == "transcript.text.delta"]
    assert "".join(said) == "So \U0001f600 \U0001f600! \ufffda\u00e9 \ufffd and \U0001f600."


async def test_pictures_are_edited_and_varied_by_the_openai_sdk(opened: Open) -> None:
    async with opened(alpha=[says(PICTURES)]) as (running, upstreams):
        files = [("a.png", b"\x89PNG a", "image/png"), ("b.png", b"\x89PNG b", "image/png")]
        edited = await running.sdk.images.edit(model=MODEL, image=files, prompt="a hat")
        varied = await running.sdk.images.create_variation(model=MODEL, image=files[0])
        assert edited.data == varied.data
        assert [each.path for each in upstreams["alpha"].received] == ["/v1/images/edits", "/v1/images/variations"]
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


async def bytes_of(payload: Any) -> bytes:
    """Return what a payload of aiohttp's writes."""
    written = bytearray()

    class Writer:
        async def write(self, data: bytes) -> None:
            written.extend(data)

    await payload.write(Writer())
    return bytes(written)
