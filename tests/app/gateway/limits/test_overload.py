"""A gateway with room for two calls, over real sockets: who waits, who is refused, in which words, and who never is."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from providers.simulator import Drop, Gate, Hang, Pause, RoleOnly, Status, Step, answer
from tests.app.gateway.access.test_admission import clients, key_of
from tests.app.gateway.relayed.samples import form
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, chat_body, read
from tests.patience import until

CHAT = "/v1/chat/completions"
ASKED: Mapping[str, Any] = {
    CHAT: chat_body(),
    "/v1/completions": {"model": MODEL, "prompt": "Say hello."},
    "/v1/responses": {"model": MODEL, "input": "Say hello."},
    "/v1/messages": {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "Say hello."}]},
    "/v1/messages/count_tokens": {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}]},
    "/v1/embeddings": {"model": MODEL, "input": "hello"},
    "/v1/rerank": {"model": MODEL, "query": "hello", "documents": ["hello"]},
    "/v1/images/generations": {"model": MODEL, "prompt": "hello"},
}
CLOSING = {"connection": "close"}


class Reply(msgspec.Struct, frozen=True):
    """What a client was answered."""

    status: int
    headers: dict[str, str]
    body: Any


def limited(most: int = 2, *, queue: int = 8, queue_timeout_s: float = 60.0, **settings: Any) -> dict[str, Any]:
    # On a busy machine the loop's delay would lower the limit.
    overload = {"max_in_flight": most, "queue": queue, "queue_timeout_s": queue_timeout_s, "loop_delay_ms": 0}
    race = {"models": {MODEL: {"race": {"mode": "single"}}}}
    return {"overload": overload, **race, **settings}


def held(go: asyncio.Event) -> Sequence[Step]:
    return [Gate(go), *answer("Hello")]


async def ask(
    running: RunningGateway, path: str = CHAT, headers: Mapping[str, str] | None = None, **more: Any
) -> Reply:
    body = {**ASKED[path], **more}
    async with running.post(body, path=path, headers=headers or {}) as response:
        raw = await response.read()
        found = msgspec.json.decode(raw) if response.content_type == "application/json" else raw
        return Reply(response.status, {name.lower(): value for name, value in response.headers.items()}, found)


async def waiting(running: RunningGateway, number: int) -> None:
    """Return when so many calls wait."""
    await until(lambda: running.gateway.context.intake.waiting == number)


async def empty(running: RunningGateway) -> None:
    """Return when every seat was given back; the test fails by its time limit if one never is."""
    intake = running.gateway.context.intake
    await until(lambda: intake.in_flight == intake.waiting == 0)


def reload(running: RunningGateway, **settings: Any) -> None:
    """Have the gateway read its configuration again, with other settings."""
    running.gateway.reload(read({**running.config, **settings}, running.folder))


@asynccontextmanager
async def full(serve: Serve, go: asyncio.Event, config: dict[str, Any], **headers: str) -> AsyncIterator[Any]:
    """Serve a gateway whose seats are all taken until ``go``."""
    async with serve(alpha=held(go), config=config) as running:
        most = config["overload"]["max_in_flight"]
        calls = [asyncio.create_task(ask(running, headers=headers)) for _ in range(most)]
        await running["alpha"].reach(requests=most)
        yield running
        go.set()
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * most
        await empty(running)


@pytest.mark.parametrize(
    ("path", "more"),
    [(CHAT, {}), (CHAT, {"stream": True}), ("/v1/messages", {"stream": True}), ("/v1/embeddings", {})],
)
async def test_a_third_call_waits_and_has_the_seat_of_the_first_that_ends(
    serve: Serve, path: str, more: dict[str, Any]
) -> None:
    go = asyncio.Event()
    async with serve(alpha=held(go), config=limited()) as running:
        calls = [asyncio.create_task(ask(running, path, **more)) for _ in range(3)]
        await waiting(running, 1)
        await running["alpha"].reach(requests=2)
        assert running.gateway.context.intake.in_flight == 2
        go.set()
        assert [reply.status for reply in await asyncio.gather(*calls)] == [200] * 3
        assert running["alpha"].counts.most_in_flight == 2
        await empty(running)


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("headers", [{}, CLOSING])
async def test_when_the_queue_is_full_each_api_refuses_in_its_own_format(
    serve: Serve, path: str, headers: Mapping[str, str]
) -> None:
    async with full(serve, asyncio.Event(), limited(queue=0)) as running:
        reply = await ask(running, path, {"x-request-id": "mine", **headers})
        assert (reply.status, running["alpha"].counts.requests) == (503, 2)
        assert reply.headers["retry-after"] in {"1", "2", "3"}
        assert reply.headers["content-type"] == "application/json"
        assert reply.headers["x-request-id"] == "mine"
        assert reply.headers["server"] == "holeshot"
        assert "retry in" in reply.body["error"]["message"]
        if path.startswith("/v1/messages"):
            assert (reply.body["type"], reply.body["error"]["type"]) == ("error", "overloaded_error")
        else:
            assert reply.body["error"]["code"] == "overloaded"


async def test_who_waits_too_long_is_refused(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited(queue_timeout_s=0.05)) as running:
        reply = await ask(running)
        assert (reply.status, reply.body["error"]["code"]) == (503, "overloaded")
        assert running["alpha"].counts.requests == 2
        assert await running.rows("select * from calls") == []  # a refusal is not a call


async def test_higher_priority_is_served_first_and_refused_last(serve: Serve) -> None:
    go = asyncio.Event()
    config = limited(1, queue=1) | clients(admin={"priority": 5}, plain={}, guest={"priority": -5})
    async with serve(alpha=held(go), config=config) as running:
        calls = {"first": asyncio.create_task(ask(running, headers=key_of("guest")))}
        await running["alpha"].requested.wait()
        calls["displaced"] = asyncio.create_task(ask(running, headers=key_of("guest")))
        await waiting(running, 1)
        calls["displaced too"] = asyncio.create_task(ask(running, headers=key_of("plain")))
        assert (await calls["displaced"]).status == 503
        calls["served"] = asyncio.create_task(ask(running, headers=key_of("admin")))
        assert (await calls["displaced too"]).status == 503
        assert (await ask(running, headers=key_of("plain"))).status == 503
        go.set()
        assert [(await calls[name]).status for name in ("first", "served")] == [200, 200]
        rows = await running.rows("select client from calls order by id")
        assert [row["client"] for row in rows] == ["guest", "admin"]
        await empty(running)


async def test_a_client_that_hangs_up_while_it_waits_leaves_the_queue(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited()) as running:
        leaving = asyncio.create_task(ask(running))
        await waiting(running, 1)
        leaving.cancel()
        await waiting(running, 0)
        assert running["alpha"].counts.requests == 2


async def test_what_is_not_a_call_works_while_the_gateway_is_full(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited(queue=0)) as running:
        for path in ("/health/live", "/health/ready", "/metrics", "/leaderboard", "/v1/models", f"/v1/models/{MODEL}"):
            async with running.get(path) as response:
                assert response.status == 200


async def test_a_wrong_key_is_a_wrong_key_and_a_wrong_request_wrong_while_the_gateway_is_full(serve: Serve) -> None:
    key = key_of("plain")
    async with full(serve, asyncio.Event(), limited(queue=0) | clients(plain={}), **key) as running:
        assert (await ask(running, headers={"authorization": "Bearer hs-wrong"})).status == 401
        assert (await ask(running)).status == 401
        async with running.get(CHAT, headers=key) as response:
            assert response.status == 405
        async with running.post(b"{}", path=CHAT, headers={**key, "content-type": "text/plain"}) as response:
            assert response.status == 415
        assert (await ask(running, headers=key)).status == 503


async def test_a_form_is_refused_too(serve: Serve) -> None:
    async with (
        full(serve, asyncio.Event(), limited(queue=0)) as running,
        running.http.post(f"{running.url}/v1/audio/transcriptions", data=form()) as response,
    ):
        assert (response.status, (await response.json())["error"]["code"]) == (503, "overloaded")


async def test_every_way_to_end_gives_the_seat_back(serve: Serve) -> None:
    async with serve(alpha=None, config=limited(1)) as running:
        upstream = running["alpha"]
        for script, status in (([Status(500)], 502), ([Status(400)], 400), ([Drop()], 502), ([Hang()], 504)):
            upstream.script = script
            if status == 504:
                reload(running, timeouts={"ttft_timeout_s": 0.05})
            for stream in (False, True):
                assert (await ask(running, stream=stream)).status == status
                await empty(running)
        reload(running)
        upstream.script = answer("Hello")
        assert (await ask(running, model="nobody's")).status == 404
        async with running.post(b"{", path=CHAT) as response:
            assert response.status == 400
        assert (await ask(running, "/v1/embeddings", input=None)).status == 400
        assert (await ask(running, "/v1/messages/count_tokens")).status == 200  # estimated here
        assert (await ask(running, stream=True)).status == 200
        await empty(running)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_in_a_call_gives_its_seat_to_who_waits(serve: Serve, stream: bool) -> None:
    async with serve(alpha=[RoleOnly(), Hang()], config=limited(1)) as running:
        leaving = asyncio.create_task(ask(running, stream=stream))
        await running["alpha"].requested.wait()
        running["alpha"].script = answer("Hello")
        staying = asyncio.create_task(ask(running, stream=stream))
        await waiting(running, 1)
        leaving.cancel()
        assert (await staying).status == 200
        await empty(running)


async def test_a_reload_makes_room(serve: Serve) -> None:
    go = asyncio.Event()
    async with full(serve, go, limited(1)) as running:
        second = asyncio.create_task(ask(running))
        await waiting(running, 1)
        reload(running, overload={**running.config["overload"], "max_in_flight": 2})
        await running["alpha"].reach(requests=2)
        go.set()
        assert (await second).status == 200


async def test_streams_of_one_client_leave_room_for_the_calls_of_another(serve: Serve) -> None:
    config = limited(40) | clients(plain={}, guest={})
    async with serve(alpha=[RoleOnly(), Hang()], config=config) as running:
        streams = [asyncio.create_task(ask(running, headers=key_of("plain"), stream=True)) for _ in range(48)]
        await running["alpha"].reach(requests=35)
        await waiting(running, 8)
        running["alpha"].script = answer("Hello")
        assert [(await ask(running, headers=key_of("guest"))).status for _ in range(60)] == [200] * 60
        for each in streams:
            each.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await empty(running)


async def test_what_is_refused_is_counted_by_reason_and_so_is_what_is_in_flight(serve: Serve) -> None:
    async with full(serve, asyncio.Event(), limited(queue=1)) as running:
        waits = asyncio.create_task(ask(running))
        await waiting(running, 1)
        assert (await ask(running)).status == 503
        async with running.get("/metrics") as response:
            page = await response.text()
        assert 'holeshot_shed_calls_total{limit="max_in_flight",reason="queue_full"} 1.0' in page
        assert 'holeshot_refusals_total{reason="overloaded",status="503"} 1.0' in page
        waits.cancel()
        await waiting(running, 0)
        reload(running, overload={**running.config["overload"], "queue_timeout_s": 0.05})
        assert (await ask(running)).status == 503
        async with running.get("/metrics") as response:
            page = await response.text()
        assert 'holeshot_shed_calls_total{limit="max_in_flight",reason="queue_timeout"} 1.0' in page
        assert "holeshot_calls_in_flight 2.0" in page
        assert "holeshot_calls_queued 0.0" in page
        assert "holeshot_calls_limit 2.0" in page
        assert "holeshot_loop_delay_seconds " in page


@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
async def test_while_turns_are_long_tokens_come_in_batches_and_none_is_lost(serve: Serve, path: str) -> None:
    words = [f"w{number} " for number in range(100)]
    role, *tokens = answer(*words)
    script = [role, *(step for token in tokens for step in (token, Pause(0.004)))]
    config = {**limited(), "overload": {"loop_delay_ms": 0.001}}  # each turn is longer
    async with serve(alpha=script, config=config) as running:
        batches, provider = running.gateway.context.intake.batches, running["alpha"]
        async with running.post({**ASKED[path], "stream": True}, path=path) as response:
            said = await response.content.readuntil(b"w0 ")
            await until(lambda: batches._resting)
            said += await response.read()
        assert [word for word in words if word.encode() not in said] == []
        await empty(running)
        [row] = await running.rows("select outcome, completion_tokens from attempts")
        assert row == {"outcome": "won", "completion_tokens": len(words)}
        async with running.post({**ASKED[path], "stream": True}, path=path) as response:
            await response.content.readuntil(b"w0 ")
            await until(lambda: batches._resting)
        await provider.reach(disconnects=1)  # the client's hanging up, which no rest delays


async def test_the_wait_is_part_of_the_time_to_first_token_and_of_the_overhead(serve: Serve) -> None:
    go, passed_s = asyncio.Event(), 0.0
    async with full(serve, go, {**limited(1), "clock": lambda: time.monotonic() + passed_s}) as running:
        second = asyncio.create_task(ask(running))
        await waiting(running, 1)
        passed_s = 5.0
        go.set()
        await second
        [row] = await running.rows("select ttft_ms, overhead_ms from calls order by id desc limit 1")
        # Neither is the longer for sure: what the gateway takes from first token to first byte is overhead, too.
        assert min(row["ttft_ms"], row["overhead_ms"]) >= 5000.0
