"""Two replicas walk the local midnights of a year: each window has its dollars once, whoever spends them."""

import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from redis.asyncio import Redis

from gateway.app import Gateway
from providers.simulator import Done, UsageChunk, answer
from tests.app.gateway.races.test_objectives import KEY, client, keyed
from tests.app.gateway.running_gateway import MODEL, RunningGateway, read, serving
from tests.patience import eventually, until
from tests.services.limits.test_shared_leases import CLOSE
from tests.services.moved_stores import MovedRedis, move_postgres
from tests.support.moved_time import MovedTime

LIMIT = 3  # calls: each costs a dollar
PRICED = {MODEL: {"deployments": [{"deployment": "alpha/m", "price_per_mtok": {"input": 0, "output": 1e6}}]}}
ONE_TOKEN = [*answer("a")[:-2], UsageChunk(10, 1), Done()]


class Replicas:
    """Two gateways on one Redis and one Postgres, whose clocks are moved, and the dollars that were spent."""

    def __init__(self, folder: Path, postgres_url: str, redis: MovedRedis, moved: MovedTime, **settings: Any) -> None:
        self.moved = moved
        self._folder, self._postgres_url, self._redis = folder, postgres_url, redis
        self._settings = {**client(**settings), "models": PRICED}
        self._running: list[tuple[AsyncExitStack, RunningGateway]] = []
        self.spent: list[float] = []  # when each dollar was spent

    async def is_now(self, at: datetime) -> None:
        self.moved.is_now(at)
        await move_postgres(self._postgres_url, self.moved)

    async def start(self, place: int) -> None:
        stack = AsyncExitStack()
        running = await stack.enter_async_context(
            serving(
                self._folder / str(place),
                {"alpha": ONE_TOKEN},
                key=KEY,
                lease_times=CLOSE,
                database_url=self._postgres_url,
                redis_url=self._redis.url,
                **self.moved.runtime,
                **self._settings,
            )
        )
        self._running.insert(place, (stack, running))

    @property
    def gateways(self) -> list[Gateway]:
        return [running.gateway for _, running in self._running]

    async def restart(self, place: int) -> None:
        await self._running.pop(place)[0].aclose()
        await self.start(place)

    async def close(self) -> None:
        for stack, _ in self._running:
            await stack.aclose()

    def set(self, **fields: Any) -> None:
        """Change the client at both."""
        for _, running in self._running:
            running.config["clients"]["team"].update(fields)
            running.gateway.reload(read(running.config, running.folder))
        self._settings["clients"]["team"].update(fields)

    async def ask(self, place: int) -> tuple[int, str | None]:
        """Make a call at one of them; return its status, and when to ask again."""
        async with self._running[place][1].chat(keyed(), max_tokens=1) as response:
            await response.read()
            if response.status == 200:
                self.spent.append(self.moved.unix_s())
            return response.status, response.headers.get("retry-after")

    async def spend(self, times: int) -> None:
        """Make calls at one after the other, each until it is admitted: a lease may still be at the other."""
        for number in range(times):

            async def admitted(place: int = number % 2) -> bool:
                return (await self.ask(place))[0] == 200

            await eventually(admitted)

    async def are_refused_until(self, end: datetime | None) -> None:
        """Check that both refuse a call, and tell when the window ends."""
        for place in range(2):
            before_s = self.moved.unix_s()
            status, retry_after = await self.ask(place)
            after_s = self.moved.unix_s()
            assert status == 429
            if end is None:
                assert retry_after is None
            else:
                earliest, latest = (math.ceil(end.timestamp() - each_s) for each_s in (after_s, before_s))
                assert earliest - 1 <= int(str(retry_after)) <= latest + 1


@asynccontextmanager
async def replicas(
    folder: Path, postgres_url: str, redis_url: str, at: datetime, **settings: Any
) -> AsyncIterator[Replicas]:
    moved = MovedTime()
    redis = MovedRedis(redis_url, moved)
    await redis.listen()
    both = Replicas(folder, postgres_url, redis, moved, **settings)
    await both.is_now(at)
    try:
        for place in range(2):
            await both.start(place)
        yield both
    finally:
        await both.close()
        await redis.cut()


BERLIN = ZoneInfo("Europe/Berlin")
SECOND = timedelta(seconds=20)


def midnight(*day: int) -> datetime:
    return datetime(*day, tzinfo=BERLIN)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    "window",
    [
        ("usd_per_day", midnight(2027, 3, 28), midnight(2027, 3, 29)),  # of 23 hours
        ("usd_per_day", midnight(2027, 10, 31), midnight(2027, 11, 1)),  # of 25
        ("usd_per_week", midnight(2027, 3, 22), midnight(2027, 3, 29)),
        ("usd_per_month", midnight(2027, 10, 1), midnight(2027, 11, 1)),
        ("usd_per_hour", midnight(2027, 10, 31), midnight(2027, 10, 31) + timedelta(hours=1)),
        ("usd_total", midnight(2027, 10, 31), None),
    ],
)
async def test_a_window_of_a_zone_has_its_dollars_once_at_two_replicas_also_after_restarts(
    tmp_path: Path, postgres_url: str, redis_url: str, window: tuple[str, datetime, datetime | None]
) -> None:
    limit, begins, ends = window
    before = begins.astimezone(UTC) - SECOND
    settings = {limit: LIMIT, "limits_zone": "Europe/Berlin"}
    async with replicas(tmp_path, postgres_url, redis_url, before, **settings) as both:
        if ends is not None:
            await both.spend(LIMIT)
            await both.are_refused_until(begins)
        await both.is_now(begins.astimezone(UTC) + SECOND)
        await both.spend(LIMIT)
        await both.are_refused_until(ends)
        last = ends or begins + timedelta(days=300)
        await both.is_now(last.astimezone(UTC) - SECOND)
        await both.are_refused_until(ends)
        async with Redis.from_url(redis_url) as redis:
            await redis.flushdb()  # the ledger remembers
        for place in range(2):
            await both.restart(place)
        await both.are_refused_until(ends)
        await both.is_now(last.astimezone(UTC) + SECOND)
        if ends is None:
            await both.are_refused_until(None)
        else:
            await both.spend(LIMIT)
            assert (await both.ask(0))[0] == 429


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(
    ("limit", "given"),
    [
        ("usd_per_day", ("Europe/Berlin", "UTC", (12, 22.5), "2027-06-14", 24)),  # on two dates in Berlin
        ("usd_per_day", ("America/New_York", "Europe/Berlin", (-1.5, 12), "2027-06-14", 22)),  # … in New York
        ("usd_per_day", ("UTC", "Asia/Kathmandu", (-5, -4), "2027-06-14", 18.25)),
        ("usd_per_day", ("Asia/Kathmandu", "UTC", (2, 18.5), "2027-06-14", 24)),
        ("usd_per_hour", ("UTC", "Asia/Kolkata", (12.6, 13.1), "h503604.5", 13.5)),  # in two hours of UTC
        ("usd_per_hour", ("Asia/Kathmandu", "UTC", (12.1, 12.5), "h503604", 13)),  # … of Kathmandu
        ("usd_per_hour", ("UTC", "Europe/Berlin", (12.1, 12.5), "h503604", 13)),  # the same one of both
    ],
)
async def test_another_zone_counts_what_was_spent_in_its_window_in_whatever_ones_of_the_zone_before(
    tmp_path: Path,
    postgres_url: str,
    redis_url: str,
    limit: str,
    given: tuple[str, str, tuple[float, float], str, float],
    *,
    is_restarted: bool,
) -> None:
    (first, then, hours, name, ends), midnight = given, datetime(2027, 6, 14, tzinfo=UTC)
    instants = [midnight + timedelta(hours=each) for each in hours]
    settings = {limit: LIMIT, "limits_zone": first}
    async with replicas(tmp_path, postgres_url, redis_url, instants[0], **settings) as both:
        for at in instants:
            await both.is_now(at)
            await both.spend(1)
        both.set(limits_zone=then)
        if is_restarted:
            for place in range(2):
                await both.restart(place)
        leases = both.gateways[0].leases  # where it was spent; the other may have asked the ledger before
        await until(lambda: leases.recollected(f"client:team:{limit}:{name}") == len(instants))
        await both.spend(LIMIT - len(instants))  # and nothing twice
        await both.are_refused_until(midnight + timedelta(hours=ends))
