"""What the gateway itself says no to is counted, and told of in few lines: of the client's words only the model."""

import asyncio
from typing import Any

import msgspec
import pytest
from structlog.typing import EventDict

from gateway.admin import OPERATIONS
from providers.simulator import Status, error
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

Asked = tuple[str, dict[str, str], bytes]  # path, headers, body

WRONG = {"authorization": "Bearer hs-a-wrong-key-that-nobody-may-see"}


def refusals(logged: list[EventDict]) -> list[EventDict]:
    return [entry for entry in logged if entry["event"] == "request.refused"]


async def counted(running: RunningGateway) -> dict[str, float]:
    """Return the refusals that the metrics tell of, by reason and status."""
    body, _ = await running.gateway.metrics.render()
    lines = [line for line in body.decode().splitlines() if line.startswith("holeshot_refusals_total{")]
    series = [line.removeprefix("holeshot_refusals_total").split() for line in lines]
    return {labels: float(number) for labels, number in series}


async def test_a_flood_of_wrong_keys_is_counted_whole_and_told_of_at_once_and_in_sum(
    serve: Serve, logged: list[EventDict]
) -> None:
    async with serve(config=clients(plain={})) as running:
        running.gateway.context.wrong_keys.release()  # or their answers would take their time

        async def knock() -> None:
            async with running.chat(WRONG) as response:
                assert response.status == 401

        await knock()
        [first] = refusals(logged)
        assert first == {
            "event": "request.refused", "log_level": "warning", "status": 401, "reason": "invalid_api_key", "count": 1,
            "peer": "127.0.0.1", "method": "POST", "endpoint": "/v1/chat/completions",
        }  # fmt: skip
        await asyncio.gather(*(knock() for _ in range(299)))
        assert await counted(running) == {'{reason="invalid_api_key",status="401"}': 300.0}
    assert sum(entry["count"] for entry in refusals(logged)) == 300
    assert len(refusals(logged)) < 30  # one a second, and one as the gateway closes
    assert "nobody-may-see" not in repr(logged)


@pytest.mark.parametrize(
    ("proxies", "peer"),
    [(["127.0.0.1/32", "10.0.0.0/8"], "192.0.2.9"), (["10.0.0.0/8"], "127.0.0.1"), ([], "127.0.0.1")],
)
async def test_behind_a_trusted_proxy_it_is_told_whose_request_was_refused(
    serve: Serve, logged: list[EventDict], proxies: list[str], peer: str
) -> None:
    async with (
        serve(config={**clients(plain={}), "trusted_proxies": proxies}) as running,
        running.chat({**WRONG, "x-forwarded-for": "6.6.6.6, 192.0.2.9, 10.0.0.1"}) as response,
    ):
        assert response.status == 401
    assert [entry["peer"] for entry in refusals(logged)] == [peer]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("/v1/chat/completions", {"content-type": "text/plain"}, b"x"), ("unsupported_media_type", 415, "plain")),
        (("/v1/chat/completions", {}, b"no json"), ("invalid_request", 400, "plain")),
        (("/v1/chat/completions", {}, b'{"model": "no", "messages": [{}]}'), ("model_not_found", 404, "plain")),
        (("/v1/chat/completions", {}, b" " * 300_000), ("body_too_large", 413, "plain")),
        (("/v1/hs-a-key-in-the-wrong-place", {}, b"{}"), ("not_found", 404, "plain")),
        (("/v1/models", {}, b"{}"), ("method_not_allowed", 405, "plain")),
        (("/v1/messages", WRONG, b"{}"), ("invalid_api_key", 401, None)),
    ],
)
async def test_every_refusal_has_its_reason_and_names_the_client_if_it_is_known(
    serve: Serve, logged: list[EventDict], asked: Asked, said: tuple[str, int, str | None]
) -> None:
    path, headers, body = asked
    reason, status, client = said
    async with serve(config={**clients(plain={}), "max_body_mb": 0.25}) as running:
        async with running.post(body, path=path, headers={**key_of("plain"), **headers}) as response:
            assert response.status == status
        assert await counted(running) == {f'{{reason="{reason}",status="{status}"}}': 1.0}
    [entry] = refusals(logged)
    assert (entry["reason"], entry.get("client")) == (reason, client)
    assert "wrong-place" not in repr(entry)


async def test_an_admins_page_refused_to_others_is_a_refusal(serve: Serve, logged: list[EventDict]) -> None:
    async with serve(config=clients(plain={}, admin={"admin": True})) as running:
        async with running.get("/metrics", headers=key_of("plain")) as response:
            assert response.status == 403
        assert await counted(running) == {'{reason="forbidden",status="403"}': 1.0}
    assert [entry["endpoint"] for entry in refusals(logged)] == ["/metrics"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_failed_is_no_refusal(serve: Serve, logged: list[EventDict], stream: bool) -> None:
    async with serve(alpha=[Status(500, error("no"))]) as running:
        async with running.chat(stream=stream) as response:
            assert response.status == 502
        async with running.post({"model": MODEL, "input": "x"}, path="/v1/embeddings") as response:
            assert response.status >= 400
        assert len(await running.rows("select * from calls")) == 2
        assert await counted(running) == {}
    assert refusals(logged) == []


async def test_a_flood_of_crashes_has_one_traceback_a_second(
    serve: Serve, logged: list[EventDict], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as running:

        async def crash() -> Any:
            raise RuntimeError("a defect")

        gateway = running.gateway
        operations = msgspec.structs.replace(gateway.operations, render_metrics=crash)
        monkeypatch.setitem(gateway.application._state, OPERATIONS, operations)
        for _ in range(20):
            async with running.get("/metrics") as response:
                assert response.status == 500
                assert "a defect" not in await response.text()
    crashes = [entry for entry in logged if entry["event"] == "request.crashed"]
    logged.clear()  # they were meant
    assert sum(entry["count"] for entry in crashes) == 20
    assert "exc_info" in crashes[0]
    assert len(crashes) < 20


async def test_no_answer_tells_versions(serve: Serve) -> None:
    async with serve() as running:
        for path in ("/health/live", "/v1/models", "/nowhere", "/metrics"):
            async with running.get(path) as response:
                assert response.headers["server"] == "holeshot"
        for stream in (True, False):
            async with running.chat(stream=stream) as response:
                assert response.headers["server"] == "holeshot"
        async with running.post(b"{}", headers={"content-encoding": "nonsense"}) as response:
            assert response.headers["server"] == "holeshot"


async def test_a_key_in_a_path_is_not_repeated(serve: Serve) -> None:
    key = "hs-" + "aB3_" * 10
    async with serve() as running:
        for path, status in ((f"/v2/{key}", 404), (f"/v1/responses/{key}/cancel", 405)):
            async with running.get(path) as response:
                assert response.status == status
                assert key not in await response.text()
