"""Boards of several replicas on one real Redis. Each sync is driven by hand; time stands still unless moved."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from math import inf
from random import Random
from typing import Self

import pytest
from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from structlog.testing import capture_logs

from gateway.settings.model import RaceSettings
from gateway.steering.redis_board import RedisBoard, connect
from gateway.steering.steering import Steering
from tests.services.servers import free_port, redis_server

START_S = 1_800_000_000.0
MODEL = "meta/llama {70b}"

NewBoard = Callable[[], RedisBoard]


class Clock:
    """Unix time that moves when told to."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with connect(redis_url) as client:
        yield client


@pytest.fixture
async def replica(redis_url: str, clock: Clock) -> AsyncIterator[NewBoard]:
    async with AsyncExitStack() as stack:

        def make() -> RedisBoard:
            board = RedisBoard(connect(redis_url), unix_clock=clock)
            stack.push_async_callback(board.close)
            return board

        yield make


def sums(board: RedisBoard, now_s: float = START_S) -> dict[str, float]:
    return board.counts(MODEL, now_s, half_life_s=inf)


async def test_two_replicas_agree_after_one_flush(replica: NewBoard) -> None:
    one, other = replica(), replica()
    one.add(MODEL, {"a|n": 1.0, "a|0|e17": 1.0}, START_S)
    other.add(MODEL, {"a|n": 2.0, "a|sec": 0.25}, START_S)
    assert await one.sync()
    assert await other.sync()
    assert await one.sync()
    assert sums(one) == sums(other) == {"a|n": 3.0, "a|0|e17": 1.0, "a|sec": 0.25}


async def test_a_replica_sees_its_own_samples_at_once_and_once_only(replica: NewBoard) -> None:
    board = replica()
    board.add(MODEL, {"a|n": 1.0}, START_S)
    assert sums(board) == {"a|n": 1.0}
    await board.sync()
    assert sums(board) == {"a|n": 1.0}
    board.add(MODEL, {"a|n": 1.0}, START_S)
    assert sums(board) == {"a|n": 2.0}
    await board.sync()
    await board.sync()
    assert sums(board) == {"a|n": 2.0}


async def test_a_replica_that_joins_late_knows_all_slots_after_its_first_sync(replica: NewBoard, clock: Clock) -> None:
    old = replica()
    for _ in range(10):
        old.add(MODEL, {"a|n": 1.0}, clock.now_s)
        await old.sync()
        clock.now_s += 30.0
    late = replica()
    late.version(MODEL, clock.now_s)
    await late.sync()
    assert sums(late, clock.now_s) == {"a|n": 10.0}


async def test_what_is_flushed_late_into_an_old_slot_is_read_within_half_a_minute(
    replica: NewBoard, clock: Clock
) -> None:
    steady, late = replica(), replica()
    steady.version(MODEL, clock.now_s)
    await steady.sync()
    late.add(MODEL, {"a|n": 1.0}, clock.now_s - 120.0)
    await late.sync()
    clock.now_s += 1.0
    await steady.sync()
    assert sums(steady) == {}
    clock.now_s += 29.0
    await steady.sync()
    assert sums(steady) == {"a|n": 1.0}


async def test_a_flush_repeated_after_a_lost_confirmation_counts_once(
    redis_url: str, clock: Clock, replica: NewBoard
) -> None:
    """Between the board and Redis, a link that loses the answer to the first batch, after Redis has applied it."""
    async with Link(redis_url) as link:
        board = RedisBoard(connect(link.url), unix_clock=clock)
        board.add(MODEL, {"a|n": 5.0}, START_S)
        link.lose_answers = True
        with capture_logs() as logs:
            assert not await board.sync()
            board.add(MODEL, {"a|n": 1.0}, START_S)
            assert sums(board) == {"a|n": 6.0}
            link.lose_answers = False
            assert await board.sync()
        assert [log["event"] for log in logs] == ["steering.redis_away", "steering.redis_back"]
        assert sums(board) == {"a|n": 6.0}
        fresh = replica()
        fresh.version(MODEL, START_S)
        await fresh.sync()
        assert sums(fresh) == {"a|n": 6.0}
        await board.close()


async def test_redis_killed_and_started_again_loses_nothing_that_was_not_flushed(clock: Clock) -> None:
    async with AsyncExitStack() as stack:
        with redis_server() as url:
            link = await stack.enter_async_context(Link(url))
            one, other, late = (RedisBoard(connect(link.url), unix_clock=clock) for _ in range(3))
            one.add(MODEL, {"a|n": 1.0}, START_S)
            assert await one.sync()
            one.add(MODEL, {"a|n": 2.0}, START_S)
            other.add(MODEL, {"a|n": 4.0}, START_S)
        with capture_logs():
            assert not await one.sync()
            assert not await other.sync()
            clock.now_s += 40.0
            one.add(MODEL, {"a|n": 8.0}, clock.now_s)
            assert not await one.sync()
            assert sums(one, clock.now_s) == {"a|n": 11.0}
            with redis_server() as url:  # with nothing kept on disk
                link.aim(url)
                for board in (one, other):
                    assert await board.sync()
                late.version(MODEL, clock.now_s)
                assert await late.sync()
                assert sums(late, clock.now_s) == {"a|n": 14.0}
                for board in (one, other, late):
                    await board.close()


async def test_without_redis_a_replica_steers_on_its_own_memory(clock: Clock) -> None:
    board = RedisBoard(connect(f"redis://127.0.0.1:{free_port()}/0"), unix_clock=clock)
    with capture_logs() as logs:
        await board.start()
        steering = Steering(board, clock=clock, unix_clock=clock, random=Random(1))
        for _ in range(50):
            steering.first_token(MODEL, 0, "a", 2.0)
            steering.first_token(MODEL, 0, "b", 0.2)
        clock.now_s += 1.0
        plan = steering.plan(MODEL, ("a", "b"), RaceSettings(), prompt_class=0, prompt_tokens=1)
        await board.close()
    assert plan.launches[0].deployment == "b"
    assert [log["event"] for log in logs] == ["steering.redis_away"]


async def test_one_replicas_samples_steer_the_other(replica: NewBoard, clock: Clock) -> None:
    teacher, pupil = replica(), replica()
    learning = Steering(teacher, clock=clock, unix_clock=clock, random=Random(1))
    acting = Steering(pupil, clock=clock, unix_clock=clock, random=Random(2))
    acting.reset({MODEL: ("a", "b")})
    for _ in range(50):
        learning.first_token(MODEL, 0, "a", 2.0)
        learning.first_token(MODEL, 0, "b", 0.2)
    await teacher.sync()
    await pupil.sync()
    plan = acting.plan(MODEL, ("a", "b"), RaceSettings(), prompt_class=0, prompt_tokens=1)
    assert plan.launches[0].deployment == "b"
    assert [row.events for row in acting.leaderboards()[0].deployments] == [50, 50]


async def test_what_is_pending_at_the_end_is_flushed(redis: Redis, redis_url: str, clock: Clock) -> None:
    board = RedisBoard(connect(redis_url), unix_clock=clock)
    await board.start()
    board.add(MODEL, {"a|n": 3.0}, START_S)
    await board.close()
    assert await redis.hgetall("holeshot:{meta/llama %7B70b%7D}:60000000") == {b"a|n": b"3"}


async def test_all_keys_of_a_model_share_one_hash_tag_and_expire(redis: Redis, replica: NewBoard, clock: Clock) -> None:
    board = replica()
    board.add("llama", {"a|n": 1.0}, START_S)
    board.add("llama", {"a|n": 1.0}, START_S - 30)
    await board.sync()
    keys = [key.decode() async for key in redis.scan_iter()]
    assert len(keys) == 3
    for key in keys:
        assert key.startswith("holeshot:{llama}:")
        assert 0 < await redis.ttl(key) <= 900


async def test_models_nobody_calls_are_read_no_longer_and_forgotten(replica: NewBoard, clock: Clock) -> None:
    board = replica()
    board.add(MODEL, {"a|n": 1.0}, START_S)
    await board.sync()
    clock.now_s += 601.0
    await board.sync()
    assert board.models() == ()


class Link:
    """A TCP relay to Redis: it can be aimed at another server, and swallow an answer and drop the connection."""

    def __init__(self, redis_url: str) -> None:
        self.lose_answers = False
        self.url = ""
        self._aim = parse_url(redis_url)
        self._relays: set[asyncio.Task[None]] = set()

    def aim(self, redis_url: str) -> None:
        """Relay connections made from now on to another server."""
        self._aim = parse_url(redis_url)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        writers = [writer]
        try:
            redis_reader, redis_writer = await asyncio.open_connection(
                self._aim.get("host", "localhost"), self._aim.get("port", 6379)
            )
            writers.append(redis_writer)
            asked = asyncio.create_task(self._pass(reader, redis_writer, lossy=False))
            answered = asyncio.create_task(self._pass(redis_reader, writer, lossy=True))
            try:
                await asyncio.wait({asked, answered}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                asked.cancel()
                answered.cancel()
                await asyncio.gather(asked, answered, return_exceptions=True)
        except OSError:
            pass  # the server is down, and so is the link
        finally:
            for each in writers:
                each.close()
            await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)
            self._relays.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, lossy: bool) -> None:
        while data := await reader.read(65536):
            # a script returns an integer; handshakes are answered with maps and strings
            if lossy and self.lose_answers and data.startswith(b":"):
                return
            writer.write(data)
