"""Short calls beside each other over real sockets: speech, transcripts, deadlines, and vectors that are compared."""

from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from providers.simulator import Hang
from tests.app.gateway.relayed.samples import HANGS, Open, Script, form, plays, says
from tests.app.gateway.running_gateway import MODEL, RunningGateway
from tests.patience import until

RACED: dict[str, Any] = {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "race", "width": 2}}
HEADER = (
    b"RIFF\xff\xff\xff\xffWAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\xc0\x5d\x00\x00"
    b"\x80\xbb\x00\x00\x02\x00\x10\x00data\xff\xff\xff\xff"
)
TRANSCRIPT = {"text": "Hello.", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 4, "total_tokens": 18}}
TOLD = [
    b'data: {"type":"transcript.text.delta","delta":"Hello."}\n\n',
    b'data: {"type":"transcript.text.done","text":"Hello."}\n\n',
]
SPOKEN = [b'data: {"type":"speech.audio.delta","audio":"AAA="}\n\n', b'data: {"type":"speech.audio.done"}\n\n']


@pytest.mark.parametrize(
    ("slow", "quick", "answer"),
    [
        (HANGS, says(b"sound", kind="audio/mpeg"), b"sound"),
        (plays(HEADER, kind="audio/wav", then=Hang()), says(HEADER + b"so", kind="audio/wav"), HEADER + b"so"),
        (
            plays(b'data: {"type":"speech.created"}\n\n', kind="text/event-stream", then=Hang()),
            plays(*SPOKEN, kind="text/event-stream"),
            b"".join(SPOKEN),
        ),
    ],
    ids=["silent", "a header only", "an event without sound"],
)
async def test_whoever_has_sound_first_speaks(opened: Open, slow: Script, quick: Script, answer: bytes) -> None:
    config = {"models": {MODEL: RACED}}
    async with opened(alpha=[slow], beta=[quick], config=config) as (running, _):
        async with running.post({"model": MODEL, "input": "x", "voice": "a"}, path="/v1/audio/speech") as response:
            assert (response.status, await response.read()) == (200, answer)
            assert response.headers["x-holeshot-launched"] == "2"
        assert await running.outcomes() == {"alpha": "lost", "beta": "won"}
        call = await running.call()
        assert (call["endpoint"], call["extras"], call["width_asked"]) == ("audio.speech", 1, 2)


async def test_sounds_of_another_format_are_not_raced_but_replace_one_that_fails(opened: Open) -> None:
    wav = {"deployment": "beta/m", "extra_body": {"response_format": "wav"}}
    config = {"models": {MODEL: {**RACED, "deployments": ["alpha/m", wav]}}}
    sound = says(b"sound", kind="audio/wav")
    for alphas, launched in ((sound, {"1"}), (says({"error": {"message": "broken"}}, status=500), {"1", "2"})):
        async with (
            opened(alpha=[alphas], beta=[sound], config=config) as (running, _),
            running.post({"model": MODEL, "input": "x", "voice": "a"}, path="/v1/audio/speech") as response,
        ):
            assert (response.status, await response.read()) == (200, b"sound")
            assert response.headers["x-holeshot-launched"] in launched


@pytest.mark.parametrize("endpoint", ["transcriptions", "translations"])
@pytest.mark.parametrize(
    ("quick", "answer"),
    [
        (says(TRANSCRIPT), msgspec.json.encode(TRANSCRIPT)),
        (plays(*TOLD, kind="text/event-stream"), b"".join(TOLD)),
    ],
    ids=["whole", "in events"],
)
async def test_small_files_are_heard_by_two(opened: Open, endpoint: str, quick: Script, answer: bytes) -> None:
    config = {"models": {MODEL: RACED}}
    async with opened(alpha=[HANGS], beta=[quick], config=config) as (running, _):
        async with running.http.post(f"{running.url}/v1/audio/{endpoint}", data=form()) as response:
            body = await response.read()
            assert (response.status, msgspec.json.decode(body) if body[:1] == b"{" else body) == (
                200,
                msgspec.json.decode(answer) if answer[:1] == b"{" else answer,
            )
        assert await running.outcomes() == {"alpha": "lost", "beta": "won"}


async def test_a_large_file_is_sent_to_one_only(opened: Open) -> None:
    config = {"models": {MODEL: RACED}}
    async with opened(alpha=[says(TRANSCRIPT)], beta=[says(TRANSCRIPT)], config=config) as (running, upstreams):
        data = form()
        data.add_field("prompt", "x" * 2**20)
        async with running.http.post(f"{running.url}/v1/audio/transcriptions", data=data) as response:
            assert response.status == 200
        assert sum(len(each.received) for each in upstreams.values()) == 1


async def test_a_short_call_may_have_a_deadline(opened: Open) -> None:
    async with opened() as (running, _):
        headers = {"x-holeshot-deadline-ms": "60000"}
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings", headers=headers) as response:
            assert (response.status, response.headers["x-holeshot-deadline-met"]) == (200, "true")
        call = await running.call()
        assert (call["deadline_ms"], call["deadline_met"]) == (60000.0, 1)


def embeds(*vectors: list[float]) -> Script:
    """Answer with these vectors."""
    data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
    return says({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 3, "total_tokens": 3}})


FIRST = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]


async def embedded_by(running: RunningGateway) -> str:
    """Embed once; return how many were asked."""
    async with running.post({"model": MODEL, "input": "one"}, path="/v1/embeddings") as response:
        assert response.status == 200
        return str(response.headers["x-holeshot-launched"])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ([[2.0, 0.0], [0.0, 2.0], [1.2, 1.6]], "length 2, not 1"),
        ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.6, 0.8, 0.0]], "3 dimensions, not 2"),
        ([[0.0, 1.0], [1.0, 0.0], [0.8, 0.6]], "cosine"),
    ],
)
async def test_a_deployment_that_makes_other_vectors_is_kept_out_and_calls_are_answered(
    opened: Open, other: list[list[float]], why: str
) -> None:
    config = {"models": {MODEL: RACED}}
    with capture_logs() as logs:
        async with opened(alpha=[embeds(*FIRST)], beta=[embeds(*other)], config=config) as (running, upstreams):
            assert await embedded_by(running) == "2"
            await until(lambda: any(each["event"] == "vectors.differ" for each in logs))
            assert await embedded_by(running) == "1"
            asked = len(upstreams["beta"].received)
            async with running.post({"model": MODEL, "input": "one"}, path="/v1/embeddings") as response:
                assert response.headers["x-holeshot-deployment"] == "alpha/m"
            assert len(upstreams["beta"].received) == asked
    [event] = [each for each in logs if each["event"] == "vectors.differ"]
    assert (event["deployment"], event["first"]) == ("beta/m", "alpha/m")
    assert why in event["reason"]


async def test_vectors_are_compared_while_a_key_is_replaced(opened: Open) -> None:
    config = {"models": {MODEL: RACED}, "providers": {"beta": {"api_key": "former"}}}
    # The call asks beta before its vectors are compared, and is not answered: it is not known which key is taken.
    scripts = [HANGS, embeds([0.0, 1.0], [1.0, 0.0], [0.8, 0.6])]
    with capture_logs() as logs:
        async with opened(alpha=[embeds(*FIRST)], beta=scripts, config=config) as (running, upstreams):
            upstreams["beta"].admits = {"new"}
            running.replace_key("beta", "new")
            assert await embedded_by(running) == "2"
            await until(lambda: any(each["event"] == "vectors.differ" for each in logs))
            keys = [each.key for each in upstreams["beta"].received]
            assert keys == ["new", "former", "new"]


async def test_deployments_that_make_the_same_vectors_are_compared_once_and_raced_on(opened: Open) -> None:
    config = {"models": {MODEL: RACED}}
    near = [[1.0, 0.001], [0.0, 1.0], [0.6, 0.8]]
    async with opened(alpha=[embeds(*FIRST)], beta=[embeds(*near)], config=config) as (running, upstreams):
        assert await embedded_by(running) == "2"
        probes = [each.received for each in upstreams.values()]
        await until(lambda: all(any("harbour" in str(one.body) for one in received) for received in probes))
        assert [await embedded_by(running) for _ in range(5)] == ["2"] * 5
        assert [sum("harbour" in str(one.body) for one in received) for received in probes] == [1, 1]


async def test_where_racing_is_left_to_the_gateway_nothing_is_compared(opened: Open) -> None:
    config = {"models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "auto"}}}}
    async with opened(alpha=[embeds(*FIRST)], beta=[embeds(*FIRST)], config=config) as (running, upstreams):
        await embedded_by(running)
        assert sum(len(each.received) for each in upstreams.values()) == 1


async def test_a_fallback_speaks_beside_a_model_that_hangs(opened: Open) -> None:
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["other"], "fallback_after": 0.2, "race": {"mode": "auto"}},
        "other": {"deployments": ["beta/n"]},
    }
    spoken = says(b"sound", kind="audio/mpeg")
    async with opened(alpha=[HANGS], beta=[spoken], config={"models": models}) as (running, upstreams):
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/audio/speech") as response:
            assert (response.status, await response.read()) == (200, b"sound")
            assert response.headers["x-holeshot-fallback"] == "other"
        assert upstreams["beta"].received[0].body["model"] == "n"
        call = await running.call()
        assert (call["model"], call["answered_model"]) == (MODEL, "other")
        assert (await running.outcomes())["alpha"] == "lost"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "one " * 50}),
        ("/v1/rerank", {"query": "one", "documents": ["two " * 50]}),
        ("/v1/audio/speech", {"input": "one " * 50, "voice": "a"}),
    ],
)
async def test_extra_attempts_of_short_calls_are_limited_in_dollars(
    opened: Open, path: str, body: dict[str, Any]
) -> None:
    priced = [{"deployment": f"{name}/m", "price_per_mtok": {"input": 100, "output": 0}} for name in ("alpha", "beta")]
    race = {"mode": "race", "width": 2, "usd_per_day": 1e-6}
    config = {"models": {MODEL: {"deployments": priced, "race": race}}}
    async with opened(alpha=[embeds(*FIRST)], beta=[embeds(*FIRST)], config=config) as (running, upstreams):
        async with running.post({"model": MODEL, **body}, path=path) as response:
            assert (response.status, response.headers["x-holeshot-launched"]) == (200, "1")
            assert response.headers["x-holeshot-narrowed"] == "usd_per_day"
        assert sum(len(each.received) for each in upstreams.values()) == 1
        call = await running.call()
        assert (call["narrowed"], call["width_asked"], call["extras"]) == ("usd_per_day", 2, 0)


async def test_what_a_fallback_speaks_beside_a_late_model_costs_what_its_text_does(opened: Open) -> None:
    dear = {"deployment": "beta/n", "price_per_mtok": {"input": 15.0, "output": 0.0}}
    models = {
        MODEL: {"deployments": ["alpha/m"], "fallbacks": ["other"], "fallback_after": 0.05},
        "other": {"deployments": [dear]},
    }
    body = {"model": MODEL, "input": "é" * 1_000, "voice": "a"}
    async with opened(alpha=[HANGS], beta=[says(b"ID3", kind="audio/mpeg")], config={"models": models}) as (running, _):
        async with running.post(body, path="/v1/audio/speech") as response:
            assert (response.status, await response.read()) == (200, b"ID3")
        call = await running.call()
    assert (call["answered_model"], call["cost_usd"]) == ("other", pytest.approx(0.015))
