"""A provider's key shows up nowhere: not in an answer, a log line, a row, a metric or a repr, whoever echoes it."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.typing import EventDict

from providers.simulator import Delta, ErrorEvent, Gate, Headers, Raw, RoleOnly, Status, Step, error
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, single

KEY = "upstream-alpha-secret"  # what the configuration gives alpha; of no shape that gives it away
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])

ECHOES: dict[str, Sequence[Step]] = {
    "in a 401's body": [Status(401, error(f"Incorrect API key provided: {KEY}."))],
    "in a 400's body, in every field": [
        Status(400, {"error": {"message": f"bad {KEY}", "type": KEY, "param": KEY, "code": KEY, KEY: [KEY]}})
    ],
    "in a web page": [Status(502, f"<html><title>{KEY}</title></html>".encode(), {"content-type": "text/html"})],
    "in a redirect": [Status(307, b"", {"location": f"http://127.0.0.1:1/?key={KEY}"})],
    "in a response header": [
        Status(500, None, {"x-ratelimit-key": KEY, "x-request-id": KEY, "retry-after": KEY, "www-authenticate": KEY})
    ],
    "in a first error event": [ErrorEvent(f"no such key {KEY}")],
    "in an error event after a token": [RoleOnly(), Delta("half"), ErrorEvent(f"key {KEY} was revoked", None)],
    "in JSON instead of a stream": [Raw(b'{"error": {"message": "' + KEY.encode() + b'"}}')],
    "in nonsense": [Raw(b"data: " + KEY.encode() + b"\n\n")],
}


async def search(running: RunningGateway, answered: list[str], logged: list[EventDict]) -> None:
    """Look for the key everywhere."""
    rows = await running.rows("select * from attempts") + await running.rows("select * from calls")
    places: dict[str, Any] = {"answers": answered, "log": logged, "rows": rows}
    for path in ("/metrics", "/leaderboard", "/health/ready", "/v1/models"):
        async with running.get(path) as response:
            places[path] = await response.text()
    context = running.gateway.context
    places["reprs"] = [context.settings, context.fleet, context.fleet.upstreams, running.gateway, vars(context)]
    places["dump"] = context.settings.model_dump()
    for place, content in places.items():
        assert KEY not in repr(content), place
    assert holding(running.folder, KEY) == {"gateway.yaml"}


def holding(folder: Path, word: str) -> set[str]:
    """Return the names of the files that hold ``word``."""
    return {path.name for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()}


@BOTH
@pytest.mark.parametrize("script", ECHOES.values(), ids=ECHOES)
async def test_a_key_that_its_provider_echoes_goes_no_further(
    serve: Serve, logged: list[EventDict], script: Sequence[Step], stream: bool
) -> None:
    async with serve(alpha=script) as running:
        async with running.chat(stream=stream) as response:
            answered = [await response.text(), str(response.headers)]
        assert running["alpha"].received[0].headers["authorization"] == f"Bearer {KEY}"
        await search(running, answered, logged)


async def test_a_key_in_a_header_of_a_good_answer_goes_no_further(serve: Serve, logged: list[EventDict]) -> None:
    headers = {"x-request-id": KEY, "x-ratelimit-limit-requests": KEY, "x-auth": KEY}
    async with (
        serve(alpha=[Headers(headers), RoleOnly(), Delta("Hi")]) as running,
        running.chat(stream=True) as response,
    ):
        await search(running, [await response.text(), str(response.headers)], logged)


async def test_a_key_cut_in_two_by_the_network_goes_no_further(serve: Serve, logged: list[EventDict]) -> None:
    rest = asyncio.Event()
    whole = b'data: {"error":{"message":"no key ' + KEY.encode() + b' here"}}\n\n'
    at = whole.index(b"alpha")
    script = [RoleOnly(), Delta("half"), Raw(whole[:at]), Gate(rest), Raw(whole[at:])]
    async with serve(alpha=script, config=single()) as running, running.chat(stream=True) as response:
        answered = (await response.content.readuntil(b"half")).decode()
        rest.set()
        await search(running, [answered + await response.text()], logged)


async def test_embeddings_hide_it_too(serve: Serve, logged: list[EventDict]) -> None:
    async with (
        serve(alpha=[Status(401, error(f"Incorrect API key provided: {KEY}."))]) as running,
        running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings") as response,
    ):
        await search(running, [await response.text(), str(response.headers)], logged)


async def test_a_clients_own_key_is_in_no_log_and_no_row(serve: Serve, logged: list[EventDict], tmp_path: Path) -> None:
    async with serve() as running:
        key = "hs-the-clients-secret"
        sent = {"authorization": f"Bearer {key}", "cookie": key, "x-request-id": key, "x-holeshot-tags": f"user={key}"}
        async with running.chat(sent) as _:
            pass
        assert (await running.call())["tags"] == '{"user":"***"}'
        rows = await running.rows("select * from calls") + await running.rows("select * from attempts")
    assert "hs-the-clients-secret" not in repr([logged, rows])
    assert holding(tmp_path, "hs-the-clients-secret") == set()


@BOTH
@pytest.mark.parametrize("script", ECHOES.values(), ids=ECHOES)
async def test_a_deployments_own_header_that_its_provider_echoes_goes_no_further(
    serve: Serve, logged: list[EventDict], script: Sequence[Step], stream: bool
) -> None:
    deployment = {"deployment": "alpha/m", "extra_headers": {"x-team-key": KEY}}
    config = {"providers": {"alpha": {"api_key": "another-one"}}, "models": {MODEL: {"deployments": [deployment]}}}
    async with serve(alpha=script, config=config) as running:
        async with running.chat(stream=stream) as response:
            answered = [repr(response.headers), (await response.read()).decode()]
        await search(running, [*answered, repr(running.gateway.context.fleet.models)], logged)


LONG_KEY = "sk-proj-aB3xZ9kQ7-Lm_4TuVw8eR5yH1nJ6cD2"
FORMS = {
    "base64": b64encode(LONG_KEY.encode()).decode(),
    "hex": LONG_KEY.encode().hex(),
    "percent-encoded": "".join(f"%{ord(each):02x}" for each in LONG_KEY),
    "HTML entities": "".join(f"&#{ord(each)};" for each in LONG_KEY),
    "upper case": LONG_KEY.upper(),
    "all but its last four": LONG_KEY[:-4],
}


@BOTH
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_an_encoded_key_goes_no_further(
    serve: Serve, logged: list[EventDict], form: str, *, stream: bool
) -> None:
    said = f"key {form} is wrong"
    scripts: dict[str, Sequence[Step]] = {
        "error": [Status(401, error(said), {"x-request-id": form, "x-ratelimit-limit-requests": form})],
        "page": [Status(502, said.encode(), {"content-type": "text/html"})],
        "event": [RoleOnly(), Delta("half"), ErrorEvent(said)],
        "comment": [Raw(f": {said}\nid: {form}\n\n".encode()), RoleOnly(), Delta("Hi")],
        "headers": [Headers({"x-request-id": form, "x-ratelimit-limit-requests": form}), RoleOnly(), Delta("Hi")],
    }
    config = {"providers": {"alpha": {"api_key": LONG_KEY}}}
    for script in scripts.values():
        async with serve(alpha=script, config=config) as running:
            async with running.chat(stream=stream) as response:
                answered = await response.text() + str(response.headers)
            rows = await running.rows("select * from attempts") + await running.rows("select * from calls")
            assert form not in answered
            assert form not in repr([rows, logged])


@BOTH
async def test_a_key_beside_the_text_of_an_answer_is_masked_and_the_text_is_not(serve: Serve, *, stream: bool) -> None:
    chunk = {"id": KEY, "model": "m", "system_fingerprint": f"fp {KEY}"}
    delta = {**chunk, "choices": [{"index": 0, "delta": {"content": f"Hi {KEY}"}, "finish_reason": None}]}
    end = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": KEY}]}
    sent = "".join(f"data: {json.dumps(each)}\n\n" for each in (*[delta] * 5, end)) + "data: [DONE]\n\n"
    async with serve(alpha=[Raw(sent.encode(), token=True)]) as running:
        async with running.chat(stream=stream) as response:
            answered = await response.text()
            assert response.status == 200
        assert answered.count(KEY) == 5
        assert answered.count(f"Hi {KEY}") == 5
        assert "fp ***" in answered
        assert KEY not in repr(await running.rows("select * from attempts"))


async def test_a_key_beside_the_vectors_of_embeddings_is_masked(serve: Serve) -> None:
    answer = {"object": "list", "model": KEY, "data": [{"index": 0, "embedding": [0.5]}], "id": KEY}
    async with (
        serve(alpha=[Status(200, answer)]) as running,
        running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings") as response,
    ):
        answered = await response.text()
    assert response.status == 200, answered
    assert KEY not in answered
    assert "***" in answered
