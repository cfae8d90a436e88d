"""Live streams of several gateways over a real Redis: whoever serves a call, everybody who looks sees it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.live import Sharing, sharing
from gateway.live.events import Began, CallDone, First, Gap, Launched, Tokens, frame
from gateway.live.sharing import CHANNEL, VIEWERS_KEY
from providers.simulator import Delta, Gate, Hang, answer
from tests.app.gateway.running_gateway import RunningGateway, serving
from tests.app.gateway.watcher import Watcher, watching
from tests.patience import PATIENCE_S, eventually, until
from tests.support.relay import Relay


@pytest.fixture
async def relay(redis_url: str) -> AsyncIterator[Relay]:
    host, _, port = redis_url.removeprefix("redis://").removesuffix("/0").partition(":")
    relay = Relay(host, int(port))
    await relay.listen()
    yield relay
    await relay.cut()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done each second is done at once."""
    monkeypatch.setattr(sharing, "POLL_S", 0.05)
    monkeypatch.setattr(sharing, "FLUSH_S", 0.01)
    monkeypatch.setattr(sharing, "TIMEOUT_S", PATIENCE_S)


@asynccontextmanager
async def replicas(folder: Path, *urls: str, **scripts: Any) -> AsyncIterator[list[RunningGateway]]:
    """Serve a gateway at each URL of a Redis, each with a ledger of its own."""
    async with AsyncExitStack() as stack:
        found = []
        for number, url in enumerate(urls):
            home = folder / str(number)
            home.mkdir()
            served = serving(home, scripts or {"alpha": None}, redis_url=url, replica=f"r{number}")
            found.append(await stack.enter_async_context(served))
        yield found


def look(running: RunningGateway, **wanted: str) -> Any:
    return watching(running.http, running.url, None, **wanted)


def sharing_of(running: RunningGateway) -> Sharing:
    found = running.gateway.live_sharing
    assert found is not None
    return found


async def publishing(running: RunningGateway, *, is_on: bool = True) -> None:
    """Wait until a gateway publishes, or does not any more."""
    await until(lambda: sharing_of(running).publishes is is_on)


async def told(watcher: Watcher, scope: str) -> dict[str, Any]:
    """Wait until a viewer is told that it sees ``scope``; return the event."""
    await watcher.until(lambda each: [news["scope"] for news in each.of("scope")][-1:] == [scope])
    return watcher.of("scope")[-1]


async def heard(watcher: Watcher) -> None:
    """Wait until a viewer sees the calls of all: without that it would not be told that it does no more."""
    await watcher.until(
        lambda each: [news["scope"] for news in (*each.of("hello"), *each.of("scope"))][-1:] == ["installation"]
    )


async def test_a_replica_publishes_only_while_somebody_looks_elsewhere(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "VIEWER_EXPIRY_S", 2)  # it must be seen once, and then its end is waited for
    async with replicas(tmp_path, redis_url, redis_url) as [here, there]:
        assert not sharing_of(there).publishes
        async with look(here):
            await publishing(there)
            assert not sharing_of(here).publishes
        await publishing(there, is_on=False)
        assert there.gateway.live.own is None
        assert len(here.gateway.live.hub) == 0


async def test_the_calls_of_another_replica_are_seen_as_it_would_show_them(tmp_path: Path, redis_url: str) -> None:
    async with (
        replicas(tmp_path, redis_url, redis_url, alpha=None, beta=[Hang()]) as [here, there],
        look(here) as watcher,
        look(there) as local,
    ):
        await publishing(there)
        there["alpha"].script = [Gate(there["beta"].requested), *answer("Hello")]
        async with there.chat(stream=True) as response:
            await response.read()
        for each in (watcher, local):
            await each.seen("done")
            await each.seen("end", 2)
        assert [each["replica"] for each in watcher.of("call")] == ["r1"]
        for kind in ("call", "launch", "first", "end", "done"):
            assert watcher.of(kind) == local.of(kind)
        assert [*watcher.of("hello"), *watcher.of("scope")][-1]["scope"] == "installation"


async def test_what_runs_at_another_replica_when_somebody_begins_to_look_is_seen(
    tmp_path: Path, redis_url: str
) -> None:
    go_on = asyncio.Event()
    async with replicas(tmp_path, redis_url, redis_url, redis_url) as [here, there, third]:
        there["alpha"].script = [Delta("Hello, hello"), Gate(go_on), *answer("b")]
        async with there.chat(stream=True) as response:
            await response.content.readuntil(b"hello")
            async with look(here) as first:
                await first.seen("first")
                async with look(third) as later, look(here) as second:
                    await later.seen("first")  # it publishes already, and tells the new one all the same
                    [call] = second.of("hello")[0]["running"]
                    assert call["attempts"][0]["tokens"] == 3
                    assert len(first.of("call")) == 1
                    go_on.set()
                    await response.read()
                    for each in (first, second, later):
                        [done] = await each.seen("done")
                        assert (done["id"], done["status"]) == (call["id"], 200)


async def test_a_filter_holds_for_the_calls_of_other_replicas(tmp_path: Path, redis_url: str) -> None:
    async with (
        replicas(tmp_path, redis_url, redis_url) as [here, there],
        look(here) as everything,
        look(here, model="another") as nothing,
        look(here, deployment="alpha/m") as some,
    ):
        await publishing(there)
        async with there.chat() as response:
            assert response.status == 200
        await everything.seen("done")
        await some.seen("done")
        assert nothing.kinds == ["hello"]
        assert some.kinds == everything.kinds


@pytest.mark.parametrize("how", ["is gone", "hangs"])
async def test_a_stream_goes_on_without_redis_and_says_so_and_when_it_is_back(
    tmp_path: Path, redis_url: str, relay: Relay, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    relayed = f"redis://127.0.0.1:{relay.port}/0"
    go_on = asyncio.Event()
    # Long for a slow machine, but a round that has begun when Redis goes, or while it is away, must end in time.
    monkeypatch.setattr(sharing, "TIMEOUT_S", PATIENCE_S / 12)
    async with replicas(tmp_path, relayed, redis_url) as [here, there], look(here) as watcher:
        await publishing(there)
        await heard(watcher)
        monkeypatch.setattr(sharing, "TIMEOUT_S", 0.3)
        if how == "hangs":
            relay.hang()
        else:
            await relay.cut()
        assert "Redis" in (await told(watcher, "process"))["reason"]
        async with here.chat() as response:
            assert response.status == 200
        await watcher.seen("done")
        assert [each["replica"] for each in watcher.of("call")] == ["r0"]
        there["alpha"].script = [Delta("a"), Gate(go_on), *answer("b")]
        async with there.chat(stream=True) as response:
            await response.content.readuntil(b'"a"')
            monkeypatch.setattr(sharing, "TIMEOUT_S", PATIENCE_S / 12)
            if how == "hangs":
                relay.resume()
            else:
                await relay.listen()
            assert (await told(watcher, "installation"))["reason"] is None
            await watcher.until(lambda each: "r1" in {call["replica"] for call in each.of("call")})
            go_on.set()
            await response.read()
            await watcher.seen("done", 2)
        assert [each["status"] for each in watcher.of("done")] == [200, 200]


async def test_calls_of_a_replica_that_is_not_heard_of_any_more_are_given_up(
    tmp_path: Path, redis_url: str, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    relayed = f"redis://127.0.0.1:{relay.port}/0"
    async with (
        replicas(tmp_path, redis_url, relayed, alpha=[Delta("a"), Hang()]) as [here, there],
        look(here) as watcher,
    ):
        async with there.chat(stream=True) as response:
            await watcher.seen("launch")
            monkeypatch.setattr(sharing, "SILENT_S", 0.2)
            await relay.cut()
            [done] = await watcher.seen("done")
            assert (done["id"], done["status"]) == (response.headers["x-holeshot-call-id"], None)
        assert len(here.gateway.live.hub) == 0


async def test_what_others_publish_that_cannot_be_true_changes_nothing(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    channel = f"{CHANNEL}:0"
    async with replicas(tmp_path, redis_url, alpha=[Delta("a"), Hang()]) as [here], look(here) as watcher:
        await eventually(lambda: redis.zcard(VIEWERS_KEY))
        async with here.chat(stream=True):
            [own] = await watcher.seen("call")
            [launch] = await watcher.seen("launch")
            await watcher.seen("first")
            theirs = Began(**{**own, "id": "theirs", "worker": "x", "replica": "r9"})
            lies: list[Any] = [
                "", "\n", "x", "y" * 1000 + "\n", "x\ngarbage\n\n", "x\nevent: call\ndata: {}\n\n",
                "x\nevent: done\ndata: [1]\n\n", "x\nevent: hello\ndata: {}\n\n", b"\xff\xfe\n\xff",
                "x\n" + "z" * 3_000_000,
                b"x\n" + frame(CallDone(id=own["id"], status=200)),
                b"x\n" + frame(Gap(dropped=0)),
                b"x\n" + frame(First(call=own["id"], attempt=launch["attempt"], ttft_ms=1.0)),
                b"x\n" + frame(Tokens(v=((launch["attempt"], 999_999),))),
                b"x\n" + frame(Launched(**{**launch, "attempt": "another"})),
                b"y\n" + frame(theirs),
                b"x\nevent: call\ndata: %b\n\n" % msgspec.json.encode({**own, "id": "i" * 100, "worker": "x"}),
                b"x\nevent: call\ndata: %b\n\n" % msgspec.json.encode({**own, "id": "i", "worker": "x", "at_ms": -1}),
            ]  # fmt: skip
            for lie in lies:
                await redis.publish(channel, lie)
            await redis.publish(channel, b"x\n" + frame(theirs))
            [_, found] = await watcher.seen("call", 2)
            assert found["id"] == "theirs"
            assert len(watcher.of("launch")) == 1
            assert watcher.of("done") == []
            assert watcher.of("gap") == []
            assert all(number < 999_999 for each in watcher.of("tokens") for _, number in each["v"])
            assert sharing_of(here).foreign.ignored >= 9


async def test_a_flood_of_foreign_calls_is_bounded(
    tmp_path: Path, redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "MOST_CALLS", 10)
    monkeypatch.setattr(sharing, "MOST_PROCESSES", 3)
    async with replicas(tmp_path, redis_url) as [here], look(here) as watcher:
        await eventually(lambda: redis.zcard(VIEWERS_KEY))
        fields: dict[str, Any] = {"at_ms": 1, "client": None, "model": "m", "endpoint": "messages", "streamed": True}
        fields |= {"mode": "race", "objective": "reading", "replica": "r"}
        for number in range(30):
            worker = f"w{number % 5}"
            event = frame(Began(**{**fields, "id": f"c{number}", "worker": worker}))
            await redis.publish(f"{CHANNEL}:0", f"{worker}\n".encode() + event)
        foreign = sharing_of(here).foreign
        await until(lambda: foreign.ignored >= 20)
        assert len(await watcher.seen("call", 10)) == len(here.gateway.live.hub) == 10


async def test_a_slow_publisher_drops_the_oldest_and_tells_the_gap(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(tmp_path, redis_url, redis_url) as [here, there], look(here) as watcher:
        monkeypatch.setattr(sharing, "MOST_WAITING", 4)
        monkeypatch.setattr(sharing, "FLUSH_S", 0.5)
        await publishing(there)
        for _ in range(3):
            async with there.chat() as response:
                assert response.status == 200
        assert (await watcher.seen("gap"))[0]["dropped"] > 0
        await watcher.until(lambda seen: seen.of("gap")[-1]["running"] == [])  # at first some may still run
        await until(lambda: len(here.gateway.live.hub) == 0)


async def test_another_database_of_the_same_redis_is_another_installation(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    other = redis_url.removesuffix("/0") + "/1"
    async with replicas(tmp_path, redis_url, other) as [here, there], look(here) as watcher, look(there) as another:
        async with there.chat() as response:
            assert response.status == 200
        await another.seen("done")
        async with here.chat() as response:
            assert response.status == 200
        await watcher.seen("done")
        assert len(watcher.of("call")) == len(another.of("call")) == 1
