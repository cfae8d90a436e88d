"""Limits of several processes on one real Redis."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from random import Random
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from gateway.limits import (
    USUAL,
    LeaseTimes,
    LimitHeld,
    LimitReached,
    Limits,
    Payer,
    SharedLeases,
    Use,
    level_of_key,
    used_by_quota,
)
from gateway.limits.admission import PATIENCE_S as CALL_PATIENCE_S
from gateway.limits.lease_scripts import GREET, LEASE, PROCESSES_KEY, Grant
from gateway.limits.quota import Quota
from gateway.limits.shared_leases import ends_in
from gateway.topology import connect
from tests.patience import PATIENCE_S, eventually, until, until_for_good
from tests.services.deaf_redis import DeafNodes, ends
from tests.support.relay import Relay
from tests.unit.limits.inside.test_limits import attempt, record
from tests.unit.limits.inside.used import used
from tests.unit.racing.virtual_time import run, virtual_loop

MODEL = Payer("llama", "llama")
QUICK = LeaseTimes(lease_s=0.3, process_s=0.5, silent_s=0.4, restoring_s=0.2, round_s=0.05, repeat_s=0.1)
# The same where nobody dies: a machine that stands still for a moment makes nobody be taken for dead.
STEADY = msgspec.structs.replace(QUICK, process_s=60.0, silent_s=60.0)
CLOSE = msgspec.structs.replace(USUAL, round_s=0.05, repeat_s=0.05, lease_s=1.0)  # all hear at once what happened


async def admitted(process: "Process", limits: dict[str, float]) -> str:
    """Begin a call once its lease has come: on a busy machine that may take longer than a call waits."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(LimitReached):
                return await process.begin(limits)


class Process:
    """One gateway process and its calls."""

    def __init__(self, url: str, number: int, times: LeaseTimes, ahead_s: float = 0.0) -> None:
        def unix_clock() -> float:
            return time.time() + ahead_s

        self.nodes = connect(url, times.timeout_s)
        self.leases = SharedLeases(
            self.nodes, clock=time.monotonic, unix_clock=unix_clock, new_id=lambda: f"p{number}", times=times
        )
        self.limits = Limits(self.leases, clock=time.monotonic, unix_clock=unix_clock)
        self._numbers = count()
        self._name = number

    async def begin(self, limits: dict[str, float], **use: float) -> str:
        call_id = f"{self._name}-{next(self._numbers)}"
        await self.limits.hold(call_id, [level_of_key("team", limits)], MODEL, Use(**use))
        return call_id

    def end(self, call_id: str, usd: float = 0.0) -> None:
        self.limits.call_finished(record(call_id, attempt(usd), tokens=(0, 0)))

    async def kill(self) -> None:
        """End without a word, as a process does that is killed."""
        for shard in self.leases.shards.values():
            await shard.cancel()  # the task is its life
        await self.nodes.aclose()


NewProcess = Callable[..., Awaitable[Process]]


@pytest.fixture
async def process(redis_url: str) -> AsyncIterator[NewProcess]:
    numbers = count(1)
    async with AsyncExitStack() as stack:

        async def make(times: LeaseTimes = USUAL, url: str = redis_url, ahead_s: float = 0.0) -> Process:
            made = Process(url, next(numbers), times, ahead_s)
            await made.leases.start()
            stack.push_async_callback(made.leases.close)
            return made

        yield make


def reported(process: Process) -> float:
    """What Redis was last told that the process has spent."""
    (quota,) = process.limits._accounts["client:team"].quotas(time.time())
    return 0.0 if quota.reported is None else quota.reported.used


def quota_of(process: Process) -> Quota | None:
    """The only quota of the client, as soon as there is one."""
    account = process.limits._accounts.get("client:team")
    return next(iter(account.quotas(time.time())), None) if account is not None else None


def used_elsewhere(process: Process) -> float:
    """What the process was last told that others have used."""
    quota = quota_of(process)
    return quota.elsewhere.used if quota is not None else 0.0


def leased_elsewhere(process: Process) -> float:
    """What the process was last told that others have leased."""
    quota = quota_of(process)
    return quota.elsewhere.leased if quota is not None else 0.0


def left_here(process: Process) -> float:
    """How much the process may use without asking."""
    quota = quota_of(process)
    return quota.top - quota.used - quota.held if quota is not None else 0.0


async def started(process: Process, limits: dict[str, float], **use: float) -> str:
    """Begin a call as soon as there is room for it, and return its id."""

    async def begun() -> str | None:
        with suppress(LimitReached):
            return await process.begin(limits, **use)
        return None

    call = await eventually(begun)
    assert call is not None
    return call


@asynccontextmanager
async def relayed(url: str) -> AsyncIterator[tuple[Relay, str]]:
    """Run a relay in front of Redis; yield it and the URL through it."""
    address = urlsplit(url)
    relay = Relay(str(address.hostname), int(address.port or 0))
    await relay.listen()
    try:
        yield relay, f"redis://127.0.0.1:{relay.port}/0"
    finally:
        await relay.cut()


async def spend(process: Process, limits: dict[str, float], *, usd: float, cost: float) -> float:
    """Make calls until the limit is reached for good, in many looks in a row; return what they cost."""
    spent = 0.0

    async def is_refused() -> bool:
        nonlocal spent
        try:
            call = await process.begin(limits, usd=usd)
        except LimitReached:
            return True
        await asyncio.sleep(0)
        process.end(call, cost)
        spent += cost
        return False

    await until_for_good(is_refused, looks=30)
    return spent


@pytest.mark.parametrize("name", ["usd_per_day", "usd_total"])
async def test_all_processes_together_use_a_limit_up_and_do_not_pass_it(process: NewProcess, name: str) -> None:
    processes = [await process() for _ in range(4)]
    spent = await asyncio.gather(*(spend(each, {name: 10.0}, usd=0.01, cost=0.01) for each in processes))
    assert sum(spent) <= 10.0 + 1e-6
    assert sum(spent) >= 9.9


async def test_one_process_alone_may_use_all_of_it(process: NewProcess) -> None:
    one, _, _ = [await process() for _ in range(3)]
    assert await spend(one, {"usd_per_day": 5.0}, usd=0.05, cost=0.05) == pytest.approx(5.0)


async def test_calls_in_parallel_are_limited_over_all_processes(process: NewProcess) -> None:
    processes = [await process(CLOSE) for _ in range(3)]
    running: list[tuple[Process, str]] = []

    async def five_are_running() -> bool:
        for each in processes:
            with suppress(LimitReached):
                running.append((each, await each.begin({"max_parallel": 5.0})))
        return len(running) >= 5

    await eventually(five_are_running)
    assert len(running) == 5
    for each in processes:
        with pytest.raises(LimitReached):
            await each.begin({"max_parallel": 5.0})
    owner, call = running.pop()
    owner.end(call)
    await started(processes[0], {"max_parallel": 5.0})


async def test_a_killed_process_gives_back_what_it_held_but_not_what_it_spent(process: NewProcess) -> None:
    times = msgspec.structs.replace(QUICK, lease_s=2.0, process_s=2.0, silent_s=2.0)  # no pause of the test's
    dead, alive = await process(times), await process(times)
    limits = {"usd_per_day": 10.0}
    dead.end(await dead.begin(limits, usd=4.0), 4.0)
    await dead.begin(limits, usd=5.0)
    await until(lambda: reported(dead) == 4.0)
    with pytest.raises(LimitReached):
        await alive.begin(limits, usd=3.0)
    await dead.kill()
    await until(lambda: leased_elsewhere(alive) == 0.0)
    assert await spend(alive, limits, usd=0.5, cost=0.5) == pytest.approx(6.0)


async def test_after_a_flush_nothing_is_spent_twice(process: NewProcess, redis_url: str) -> None:
    dead = await process(QUICK)
    limits = {"usd_per_day": 10.0}
    dead.end(await dead.begin(limits, usd=2.0), 2.0)
    await until(lambda: reported(dead) == 2.0)
    await dead.kill()
    processes = [await process(QUICK) for _ in range(2)]
    for each in processes:
        each.end(await each.begin(limits, usd=1.0), 1.0)
    await until(
        lambda: all(each.leases.processes == 2 for each in processes)
    )  # by Redis' clock, the dead one is silent
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
    spent = await asyncio.gather(*(spend(each, limits, usd=0.1, cost=0.1) for each in processes))
    assert 4.0 + sum(spent) <= 10.0 + 1e-6
    assert 4.0 + sum(spent) >= 9.5


async def test_without_redis_each_process_has_its_share_of_what_was_left(redis_url: str, process: NewProcess) -> None:
    async with relayed(redis_url) as (relay, url):
        processes = [await process(STEADY, url) for _ in range(4)]
        limits = {"usd_per_day": 8.0}
        for each in processes:
            each.end(await each.begin(limits, usd=1.0), 1.0)
        await until(lambda: all(each.leases.processes == 4 and reported(each) == 1.0 for each in processes))
        await until(lambda: all(used_elsewhere(each) == 3.0 for each in processes))
        relay.hang()
        with capture_logs() as logs:
            spent = await asyncio.gather(*(spend(each, limits, usd=0.1, cost=0.1) for each in processes))
        assert 4.0 + sum(spent) <= 8.0 + 1e-6
        assert min(spent) >= 0.5
        assert "limits.redis_away" in [log["event"] for log in logs]
        relay.resume()
        await until(lambda: all(each.leases.connected for each in processes))
        more = await asyncio.gather(*(spend(each, limits, usd=0.1, cost=0.1) for each in processes))
        assert 4.0 + sum(spent) + sum(more) == pytest.approx(8.0, abs=0.15)


async def test_calls_that_come_while_a_lease_is_asked_for_find_nothing_exhausted(process: NewProcess) -> None:
    one = await process()
    limits = {"rpm": 100.0}
    first = asyncio.create_task(one.begin(limits))
    while not (quota := quota_of(one)) or not quota.waiting or one.leases.shards[""]._short:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    later = [asyncio.create_task(one.begin(limits)) for _ in range(3)]
    await first
    await one.begin(limits)
    await asyncio.gather(*later)


async def test_leases_of_calls_are_whole(process: NewProcess) -> None:
    """Parts of a call are of no use to who has them, and all parts together are calls that nobody may make."""
    one, other = await process(), await process()
    limits = {"max_parallel": 4.0}
    await other.begin(limits)
    for _ in range(2):
        await one.begin(limits)
    quota = quota_of(one)
    assert quota is not None
    assert quota.top == 2.0
    await started(other, limits)


async def test_what_a_smaller_lease_gives_back_is_for_others_when_its_holder_knows_of_it(redis_url: str) -> None:
    async with Redis.from_url(redis_url, decode_responses=True) as redis:

        async def lease(process: str, need: float, *, kept: float) -> float:
            told = ("5", "60", "300", "0", "1", "1", str(kept))
            reply = await redis.eval(LEASE, 1, "a quota", process, "0", str(need), "0", "4", *told)
            return Grant.of(reply).lease

        assert await lease("one", 3.0, kept=0.0) == 3.0
        assert await lease("one", 1.0, kept=3.0) == 1.0
        assert await lease("other", 3.0, kept=0.0) == 1.0  # until it has that reply, it may begin two calls more
        assert await lease("one", 1.0, kept=1.0) == 1.0
        assert await lease("other", 3.0, kept=1.0) == 3.0


def of_all(fields: Mapping[Any, Any], me: str) -> tuple[float, float]:
    """What others have used and leased, of every field; no lease has expired."""
    said = [value.split() for name, value in fields.items() if name not in {me, "base", "sums"}]
    return sum(float(each[0]) for each in said), sum(float(each[1]) for each in said)


async def test_the_sums_of_a_quota_are_those_of_all_its_processes(redis_url: str) -> None:
    random = Random(36)
    used = dict.fromkeys((f"p{number}" for number in range(8)), 0.0)
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        for turn in range(400):
            process = random.choice(list(used))
            used[process] += random.choice((0.0, 1.0, 0.37))
            told = ("900", "900", "300", "0", "1", "0", str(random.choice((0.0, 2.5))))
            need, more = str(random.choice((0.0, 1.0))), str(random.random())
            reply = Grant.of(await redis.eval(LEASE, 1, "q", process, str(used[process]), need, more, "1e6", *told))
            assert (reply.used, reply.leased) == pytest.approx(of_all(await redis.hgetall("q"), process))
            if turn % 100 == 50:  # an older gateway knows no sums
                await redis.hset("q", "older", f"{turn} 1 1e12 1e12")
                await redis.hdel("q", "sums")


async def test_a_lease_that_has_expired_is_for_others_within_a_fifth_of_its_time(redis_url: str) -> None:
    async with Redis.from_url(redis_url, decode_responses=True) as redis:

        async def lease(process: str, lease_s: float) -> float:
            told = (str(lease_s), "60", "300", "0", "1", "1", "0")
            return Grant.of(await redis.eval(LEASE, 1, "q", process, "0", "4", "0", "4", *told)).lease

        async def other_has_all() -> bool:
            return await lease("other", 0.1) == 4.0

        assert await lease("one", 0.1) == 4.0  # and then it dies
        await eventually(other_has_all)


@pytest.mark.parametrize("processes", [2, 200])
async def test_what_a_report_reads_does_not_grow_with_the_processes(redis_url: str, processes: int) -> None:
    told = ("900", "900", "300", "0", "1", "0", "0")
    async with Redis.from_url(redis_url, decode_responses=True) as redis:
        for number in range(processes):
            await redis.eval(LEASE, 1, "q", f"p{number}", "1", "1", "1", "1e6", *told)
            await redis.eval(GREET, 1, "processes", f"p{number}", "900", "2", "0", "0")
        await redis.config_resetstat()
        reply = Grant.of(await redis.eval(LEASE, 1, "q", "p0", "2", "1", "1", "1e6", *told))
        known, _ = await redis.eval(GREET, 1, "processes", "p0", "900", "2", "1", "0")
        assert "cmdstat_hgetall" not in await redis.info("commandstats")
    assert (reply.used, known) == (processes - 1, processes)


async def test_a_total_outlives_the_processes_that_have_used_it_and_stays_for_a_year(
    redis_url: str, process: NewProcess
) -> None:
    one = await process(STEADY)
    assert await spend(one, {"usd_total": 1.0}, usd=0.01, cost=0.01) > 0.9
    await one.leases.close()
    other = await process(STEADY)
    with pytest.raises(LimitReached) as refused:
        await other.begin({"usd_total": 1.0}, usd=0.11, most_usd=0.11)
    assert "retry-after" not in refused.value.headers
    async with Redis.from_url(redis_url) as redis:
        (key,) = await redis.keys("holeshot:limit:*usd_total:total*")
        assert await redis.ttl(key) > 365 * 86_400


async def test_the_more_processes_share_the_longer_each_waits_between_two_reports(
    redis_url: str, process: NewProcess
) -> None:
    one = await process()
    (shard,) = one.leases.shards.values()
    assert shard.round_s <= 0.5
    async with Redis.from_url(redis_url) as redis:
        await redis.hset(PROCESSES_KEY, mapping={f"other{number}": f"{time.time() + 900:.3f}" for number in range(999)})
    await until(lambda: one.leases.processes >= 1000)  # Redis counts again within a second
    assert 1.8 <= shard.round_s <= 2.0
    assert shard.restoring_s > shard.round_s + one.leases.times.timeout_s  # all have reported again by then


async def test_a_redis_that_has_lost_its_scripts_is_told_them_again(redis_url: str, process: NewProcess) -> None:
    one, limits = await process(CLOSE), {"rpm": 4.0}
    one.end(await admitted(one, limits))
    async with Redis.from_url(redis_url) as redis:
        await redis.script_flush()
    other = await process(CLOSE)
    for _ in range(3):
        one.end(await admitted(one, limits))
    assert one.leases.connected

    async def use_up() -> None:
        while True:
            other.end(await other.begin(limits))

    with pytest.raises(LimitReached):
        await asyncio.wait_for(use_up(), PATIENCE_S)


async def test_while_redis_is_slow_nothing_is_used_that_others_may_lease(redis_url: str, process: NewProcess) -> None:
    limits = {"max_parallel": 4.0}
    async with relayed(redis_url) as (relay, url):
        patient = msgspec.structs.replace(CLOSE, timeout_s=PATIENCE_S)
        fast, slow = await process(CLOSE), await process(patient, url)
        for _ in range(3):
            await fast.begin(limits)
        slow.end(await slow.begin(limits))
        await until(lambda: leased_elsewhere(slow) == 3.0 and left_here(slow) < 1.0)
        relay.hang()
        waiting = asyncio.create_task(slow.begin(limits))
        await started(fast, limits)
        assert slow.leases.connected
        relay.resume()
        with pytest.raises(LimitReached):
            await waiting


async def test_what_others_were_granted_of_a_new_window_is_not_used_by_who_has_not_heard_of_it(
    redis_url: str, process: NewProcess
) -> None:
    limits = {"usd_per_day": 4.0}
    async with relayed(redis_url) as (relay, url):
        patient = msgspec.structs.replace(CLOSE, timeout_s=PATIENCE_S, first_s=PATIENCE_S)
        fast, slow = await process(CLOSE), await process(patient, url)
        await until(lambda: fast.leases.processes == slow.leases.processes == 2)
        relay.hang()
        waiting = asyncio.create_task(slow.begin(limits, usd=1.0))
        for _ in range(4):
            await started(fast, limits, usd=1.0)
        # Until then others wait, of whose windows more is known.
        assert not (await asyncio.wait({waiting}, timeout=CALL_PATIENCE_S))[0]
        relay.resume()
        with pytest.raises(LimitReached):
            await waiting


async def test_of_a_new_window_a_share_is_used_once_redis_has_been_slow_for_long(
    redis_url: str, process: NewProcess
) -> None:
    limits = {"usd_per_day": 4.0}
    async with relayed(redis_url) as (relay, url):
        patient = msgspec.structs.replace(CLOSE, timeout_s=PATIENCE_S)
        slow = await process(patient, url)
        await until(lambda: slow.leases.processes == 1)
        relay.hang()
        async with asyncio.timeout(PATIENCE_S / 2):
            await slow.begin(limits, usd=1.0)
        assert slow.leases.connected
        relay.resume()


def test_an_answer_is_read_after_the_loop_stood_still_however_long() -> None:
    async def main() -> bool:
        loop = virtual_loop()
        round_ends = loop.create_future()

        def arrive(turns: int) -> None:
            if turns:
                loop.call_soon(arrive, turns - 1)
            else:
                round_ends.set_result(None)

        def stand_still() -> None:
            loop.now += 3 * CALL_PATIENCE_S
            arrive(turns=4)  # a reply is read, parsed and handed on in so many

        loop.call_soon(stand_still)
        return await ends_in(round_ends, CALL_PATIENCE_S, loop.time)

    assert run(main())


def test_a_call_does_not_wait_for_ever_though_the_loop_stands_still_again_and_again() -> None:
    async def main() -> bool:
        loop = virtual_loop()
        is_over = False

        def stand_still() -> None:
            loop.now += CALL_PATIENCE_S
            if not is_over:
                loop.call_soon(stand_still)

        loop.call_soon(stand_still)
        ended = await ends_in(loop.create_future(), CALL_PATIENCE_S, loop.time)
        is_over = True
        await asyncio.sleep(0)
        return ended

    assert not run(main())


async def test_what_was_used_without_redis_is_counted_before_anything_is_leased(
    redis_url: str, process: NewProcess
) -> None:
    limits = {"usd_per_day": 8.0}
    times = msgspec.structs.replace(STEADY, lease_s=0.5, restoring_s=1.0)
    async with relayed(redis_url) as (relay, url), relayed(redis_url) as (other_relay, other_url):
        one, other = await process(times, url), await process(times, other_url)
        both = (one, other)
        for each in both:
            each.end(await each.begin(limits, usd=1.0), 1.0)
        await until(lambda: all(each.leases.processes == 2 and used_elsewhere(each) == 1.0 for each in both))
        await until(lambda: all(leased_elsewhere(each) < 1e-6 for each in both))
        relay.hang()
        other_relay.hang()
        await until(lambda: not any(each.leases.connected for each in both))
        spent = await asyncio.gather(*(spend(each, limits, usd=0.1, cost=0.1) for each in both))
        assert 2.0 + sum(spent) == pytest.approx(8.0, abs=0.25)
        relay.resume()
        await until(lambda: one.leases.connected)
        with pytest.raises(LimitReached):
            await one.begin(limits, usd=0.1)
        other_relay.resume()
        more = await asyncio.gather(*(spend(each, limits, usd=0.1, cost=0.1) for each in both))
        assert 2.0 + sum(spent) + sum(more) == pytest.approx(8.0, abs=0.25)
        assert 2.0 + sum(spent) + sum(more) <= 8.0 + 1e-6


async def test_a_process_that_had_no_share_without_redis_may_lease_again_afterwards(
    redis_url: str, process: NewProcess
) -> None:
    limits = {"max_parallel": 2.0}
    async with relayed(redis_url) as (relay, url):
        busy, idle = await process(STEADY, url), await process(STEADY, url)
        running = [await admitted(busy, limits) for _ in range(2)]
        with pytest.raises(LimitReached):
            await idle.begin(limits)
        relay.hang()
        await until(lambda: not idle.leases.connected)
        with pytest.raises(LimitReached):
            await idle.begin(limits)
        relay.resume()
        for call in running:
            busy.end(call)
        await started(idle, limits)


@pytest.mark.parametrize(
    "limits", [{"max_parallel": 4.0}, {"usd_per_day": 4.0}], ids=["running calls", "what was spent"]
)
async def test_after_a_flush_others_are_not_forgotten_before_they_have_reported(
    redis_url: str, process: NewProcess, limits: dict[str, float]
) -> None:
    silent = await process(msgspec.structs.replace(USUAL, round_s=1.0))
    quick = await process(CLOSE)
    quick.end(await quick.begin(limits))
    for _ in range(4):
        call = await started(silent, limits, usd=1.0)
        if "usd_per_day" in limits:
            silent.end(call, 1.0)
    await until(lambda: leased_elsewhere(quick) + used_elsewhere(quick) >= 4.0)
    (shard,) = quick.leases.shards.values()
    has_noticed = False
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()

    async def all_have_reported() -> bool:
        nonlocal has_noticed
        has_noticed = has_noticed or shard.link.is_restoring
        with pytest.raises(LimitReached):
            await quick.begin(limits, usd=0.1)
        return has_noticed and not shard.link.is_restoring

    await eventually(all_have_reported)


async def test_leases_end_though_their_client_loses_the_cancellation() -> None:
    nodes = DeafNodes(deaf=1)
    leases = SharedLeases(nodes, clock=time.monotonic, unix_clock=time.time, new_id=lambda: "p1")
    await leases.start()
    await nodes.asked.wait()
    assert await ends(leases.close())


async def test_while_redis_hangs_calls_in_parallel_wait_until_that_is_known() -> None:
    nodes = DeafNodes(deaf=1)
    leases = SharedLeases(nodes, clock=time.monotonic, unix_clock=time.time, new_id=lambda: "p1")
    limits = Limits(leases, clock=time.monotonic, unix_clock=time.time)
    await leases.start()
    await nodes.asked.wait()
    async with asyncio.TaskGroup() as calls:
        for number in range(3):
            levels = [level_of_key("team", {"max_parallel": 3, "rpm": 60})]
            calls.create_task(limits.hold(f"call-{number}", levels, MODEL, Use()))
    with pytest.raises(LimitReached):
        await limits.hold("call-3", [level_of_key("team", {"max_parallel": 3})], MODEL, Use())
    assert await ends(leases.close())


async def test_garbage_in_redis_is_overwritten(process: NewProcess, redis_url: str) -> None:
    one = await process(QUICK)
    async with Redis.from_url(redis_url) as redis:
        await redis.set("holeshot:limits:processes", "x")
        await one.begin({"usd_per_day": 1.0}, usd=0.5)
        for key in await redis.keys("holeshot:limit:*"):
            await redis.delete(key)
            await redis.set(key, "not a hash")
    assert await spend(one, {"usd_per_day": 1.0}, usd=0.1, cost=0.1) == pytest.approx(0.5)


def of_the_ledger(usd: float) -> Mapping[str, float]:
    return used_by_quota(used(time.time(), usd, usd, client="team"), time.time())


@pytest.mark.parametrize("is_late", [False, True])
async def test_without_redis_what_was_spent_before_the_start_counts(process: NewProcess, *, is_late: bool) -> None:
    limits, one = {"usd_per_day": 10.0}, await process(QUICK, "redis://127.0.0.1:1/0")
    await until(lambda: not one.leases.connected)
    if not is_late:
        one.leases.recollect(of_the_ledger(8.0))
    one.end(await started(one, limits, usd=1.0), 1.0)
    one.leases.recollect(of_the_ledger(8.0))
    assert await spend(one, limits, usd=0.25, cost=0.25) == pytest.approx(1.0)


async def test_what_the_ledger_says_late_counts_where_redis_knows_of_less(process: NewProcess) -> None:
    limits, processes = {"usd_per_day": 10.0}, [await process(STEADY) for _ in range(2)]
    for each in processes:
        each.end(await started(each, limits, usd=1.0), 1.0)
    await until(lambda: all(used_elsewhere(each) == 1.0 and leased_elsewhere(each) < 1e-6 for each in processes))
    for each in processes:
        each.leases.recollect(of_the_ledger(8.0))  # 7 more than its neighbour has spent, and told to Redis once
    await until(lambda: all(used_elsewhere(each) == 8.0 for each in processes))
    spent = [await spend(each, limits, usd=0.1, cost=0.1) for each in processes]
    assert sum(spent) == pytest.approx(1.0)


async def test_what_the_ledger_says_is_not_counted_again_where_redis_knows_it(process: NewProcess) -> None:
    limits, before = {"usd_per_day": 10.0}, await process()
    before.end(await started(before, limits, usd=4.0), 4.0)
    await before.leases.close()
    one = await process()
    one.leases.recollect(of_the_ledger(4.0))
    assert await spend(one, limits, usd=0.5, cost=0.5) == pytest.approx(6.0)


@pytest.mark.wall(reason="calls take a time, in which Redis is told of what was spent")
@pytest.mark.parametrize("most_usd", [0.01, 0.3, 1.0, 7.0])
async def test_however_long_the_answers_three_replicas_exceed_a_limit_in_dollars_by_one_call(
    process: NewProcess, most_usd: float
) -> None:
    limits, processes = {"usd_per_day": 1.0}, [await process(STEADY) for _ in range(3)]
    for _ in range(60):  # teach that answers are short
        for each in processes:
            with suppress(LimitReached):
                each.end(await each.begin(limits, usd=0.0001, most_usd=most_usd), 0.0001)

    async def attack(one: Process) -> float:
        spent, refused = 0.0, 0
        while refused < 30:
            calls = [one.begin(limits, usd=0.0001, most_usd=most_usd) for _ in range(40)]
            begun = [each for each in await asyncio.gather(*calls, return_exceptions=True) if isinstance(each, str)]
            await asyncio.sleep(0.02)
            for call in begun:
                one.end(call, most_usd)
            spent, refused = spent + most_usd * len(begun), 0 if begun else refused + 1
        return spent

    async with asyncio.timeout(PATIENCE_S):
        spent = await asyncio.gather(*map(attack, processes))
    assert 0.9 <= sum(spent) <= 1.0 + most_usd


@pytest.mark.wall(reason="calls take a time, in which Redis is told of what was spent")
@pytest.mark.parametrize("most_usd", [0.02, 0.3, 7.0])
async def test_three_replicas_let_a_client_with_short_answers_spend_all_of_its_dollars(
    process: NewProcess, most_usd: float
) -> None:
    limits, processes = {"usd_per_day": 1.0}, [await process(STEADY) for _ in range(3)]

    async def begun(one: Process) -> str | None:
        with suppress(LimitHeld):  # it may be tried again
            return await one.begin(limits, usd=0.01, most_usd=most_usd)
        return None

    first_refused = 100
    async with asyncio.timeout(PATIENCE_S):
        for number in range(100):
            one = processes[number % 3]
            while (call := await begun(one)) is None:
                first_refused = min(number, first_refused)
                await asyncio.sleep(0.02)
            one.end(call, 0.01)
            await asyncio.sleep(0.02)  # a call's time, in which what was spent is told
    assert first_refused >= 95


async def test_processes_whose_clocks_differ_share_the_same_minutes_and_days(process: NewProcess) -> None:
    day_s = 86_400.0
    processes = [await process(ahead_s=ahead_s) for ahead_s in (0.0, 30.0, -2 * day_s, 3 * day_s)]
    await until(lambda: not any(each.leases.wants_clock for each in processes))
    assert all(abs(each.leases.unix_clock() - time.time()) < 1.0 for each in processes)
    calls = 0
    for each in [*processes, *processes]:
        with suppress(LimitReached):
            await each.begin({"usd_per_day": 3.0}, usd=1.0)
            calls += 1
    assert 1 <= calls <= 3


@pytest.mark.wall(reason="calls take a time, in which Redis is told of what was spent")
@pytest.mark.parametrize("most_usd", [0.02, 1.92])
async def test_forty_usual_calls_at_once_at_three_replicas_go_one_after_another_and_all_of_them_are_answered(
    process: NewProcess, most_usd: float
) -> None:
    limits, processes = {"usd_per_day": 0.5}, [await process(STEADY) for _ in range(3)]
    running = most_running = 0

    async def call(one: Process, number: int) -> None:
        nonlocal running, most_running
        use = Use(usd=0.01, most_usd=most_usd)
        await one.limits.hold(f"waits {number}", [level_of_key("team", limits)], MODEL, use, line_s=PATIENCE_S)
        running += 1
        most_running = max(most_running, running)
        await asyncio.sleep(0.01)
        running -= 1
        one.end(f"waits {number}", 0.0115)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(call(processes[number % 3], number) for number in range(40)))
    assert most_running <= 1 + 0.5 / most_usd
