"""``max_in_flight_fleet``: the slots at a deployment that several processes lease from one real Redis."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import count
from random import Random

import msgspec
import pytest
from redis.asyncio import Redis

from gateway.limits import LeasedSlots, LeaseTimes, OwnShare, SharedLeases
from gateway.limits.lease_scripts import LEASE, Grant
from gateway.racing import Seats
from gateway.racing.seats import Line, Seat
from gateway.topology import connect
from tests.patience import PATIENCE_S, until
from tests.services.limits.test_shared_leases import relayed

NAME = "ollama/llama"
# Nobody is taken for dead because the machine stands still for a moment, and no lease expires then.
STEADY = LeaseTimes(lease_s=60.0, process_s=60.0, silent_s=60.0, restoring_s=0.2, round_s=0.05, timeout_s=PATIENCE_S)
BRIEF = msgspec.structs.replace(STEADY, lease_s=1.0)  # what a dead process held is soon for others


class Site:
    """The provider's server: how many attempts of all processes it has at the same time."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.most = 0
        self.served: Counter[int] = Counter()


class Turn:
    """A call that waits for a slot."""

    is_timed = True

    def __init__(self, line: Line) -> None:
        self._line = line
        self.seat: asyncio.Future[Seat] = asyncio.get_running_loop().create_future()

    def called(self, name: str) -> None:
        assert name == self._line.name
        self.leave()
        self.seat.set_result(Seat(self._line))

    def leave(self) -> None:
        self._line.waiting.pop(self, None)


class Process:
    """One gateway process, as far as slots are concerned."""

    def __init__(self, url: str, number: int, times: LeaseTimes, site: Site) -> None:
        self.number = number
        self.site = site
        self.nodes = connect(url, times.timeout_s)
        self.leases = SharedLeases(
            self.nodes, clock=time.monotonic, unix_clock=time.time, new_id=lambda: f"p{number}", times=times
        )
        self.elsewhere = 0.0
        self.seats = Seats(leases=self.leases, clock=time.monotonic, on_elsewhere=self._told)

    def _told(self, name: str, attempts: float) -> None:
        assert name == NAME
        self.elsewhere = attempts

    def limit(self, most: int | None) -> None:
        self.seats.limit({}, 600.0, of_fleet={} if most is None else {NAME: most})

    @property
    def line(self) -> Line:
        return self.seats.lines[NAME]

    @property
    def slots(self) -> LeasedSlots:
        assert self.line.slots is not None
        return self.line.slots

    async def begin(self) -> Seat:
        """Launch an attempt once there is a slot for it."""
        if self.line.has_room:
            seat = Seat(self.line)
        else:
            turn = Turn(self.line)
            self.line.join(turn)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    seat = await turn.seat
            finally:
                turn.leave()
        self.site.in_flight += 1
        self.site.most = max(self.site.most, self.site.in_flight)
        self.site.served[self.number] += 1
        return seat

    def end(self, seat: Seat) -> None:
        self.site.in_flight -= 1
        seat.give_back()

    async def kill(self) -> None:
        """End without a word, as a process does that is killed: its connections break."""
        for shard in self.leases.shards.values():
            await shard.cancel()
        await self.nodes.aclose()
        self.site.in_flight -= self.line.taken


NewProcess = Callable[..., Awaitable[Process]]


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
async def process(redis_url: str, site: Site) -> AsyncIterator[NewProcess]:
    numbers = count(1)
    async with AsyncExitStack() as stack:

        async def make(limit: int, times: LeaseTimes = STEADY, url: str = redis_url) -> Process:
            made = Process(url, next(numbers), times, site)
            made.limit(limit)
            await made.leases.start()
            stack.push_async_callback(made.leases.close)
            return made

        yield make


async def churn(process: Process, random: Random, calls: int) -> None:
    """Make calls, some of them at once, of which each takes some turns of the loop or lasts for a round."""

    async def turns(*numbers: int) -> None:
        for _ in range(random.choice(numbers)):
            await asyncio.sleep(0)

    async def call() -> None:
        seat = await process.begin()
        if random.random() < 0.25:  # it lasts for a round of leases
            await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=1.2 * STEADY.round_s)
        else:
            await turns(1, 10, 100)
        process.end(seat)

    for _ in range(calls):
        await asyncio.gather(*(call() for _ in range(random.randint(1, 4))))
        await turns(1, 1, 200)


@pytest.mark.parametrize("limit", [2, 7])
async def test_there_are_never_more_than_the_limit_under_random_churn(
    process: NewProcess, site: Site, limit: int
) -> None:
    random = Random(limit)
    processes = [await process(limit) for _ in range(4)]
    await asyncio.gather(*(churn(each, random, calls=8) for each in processes))
    assert site.most <= limit
    assert site.in_flight == 0
    assert all(site.served[each.number] >= 8 for each in processes)


async def test_one_process_gets_all_slots_while_the_others_have_nothing_to_do(process: NewProcess, site: Site) -> None:
    busy, *_ = [await process(5) for _ in range(5)]
    await until(lambda: busy.slots.most > 0)
    await asyncio.gather(*(busy.begin() for _ in range(5)))
    assert site.most == 5


async def test_with_fewer_slots_than_processes_each_is_served_in_turn(process: NewProcess, site: Site) -> None:
    """Each always has more calls than slots, so who has a slot could keep it for its own calls."""
    processes = [await process(2) for _ in range(5)]
    over = asyncio.get_running_loop().create_future()

    async def call(process: Process) -> None:
        while not over.done():
            seat = await process.begin()
            await asyncio.wait({over}, timeout=0.01)  # what a call takes
            process.end(seat)

    calls = [asyncio.create_task(call(each)) for each in processes for _ in range(3)]
    await until(lambda: all(site.served[each.number] >= 2 for each in processes))
    turns = [each.slots.turn_until_s for each in processes]
    await until(lambda: all(each.slots.turn_until_s > last for each, last in zip(processes, turns, strict=True)))
    over.set_result(None)
    await asyncio.gather(*calls)
    assert site.most <= 2


async def test_who_lacks_slots_is_served_in_the_order_in_which_they_began_to(redis_url: str) -> None:
    async with Redis.from_url(redis_url, decode_responses=True) as redis:

        async def ask(process: str, *, running: float, need: float) -> Grant:
            told = (process, "0", str(need), "9", "2", "60", "60", "300", "0", "1", "1", str(running), str(running))
            return Grant.of(await redis.eval(LEASE, 2, "{q}", "{q}:turns", *told))

        assert (await ask("a", running=0, need=2)).lease == 2
        for each in ("b", "c", "d"):
            assert (await ask(each, running=0, need=1)).lease == 0
        assert (await ask("a", running=2, need=3)).is_wanted
        assert (await ask("a", running=1, need=3)).lease == 1  # it gives one back, and gets it not before the others
        assert [(await ask(each, running=0, need=1)).lease for each in ("d", "c", "b")] == [0, 0, 1]
        assert (await ask("a", running=0, need=3)).lease == 0
        assert [(await ask(each, running=0, need=1)).lease for each in ("d", "c")] == [0, 1]
        assert (await ask("b", running=0, need=0)).lease == 0
        assert [(await ask(each, running=0, need=1)).lease for each in ("a", "d")] == [0, 1]
        last = await ask("b", running=0, need=0)
        assert (last.leased, last.running, last.is_wanted) == (2, 0, True)


async def test_the_slots_of_a_killed_process_are_for_others_when_its_leases_have_expired(
    process: NewProcess, site: Site
) -> None:
    dead, alive = await process(3, BRIEF), await process(3, BRIEF)
    for _ in range(3):
        await dead.begin()
    await until(lambda: alive.elsewhere == 3.0)
    await dead.kill()
    await asyncio.gather(*(alive.begin() for _ in range(3)))
    assert site.most == 3
    await until(lambda: alive.elsewhere == 0.0)


async def test_a_process_that_ends_gives_its_slots_back(process: NewProcess) -> None:
    one, other = await process(2), await process(2)
    seats = [await one.begin() for _ in range(2)]
    for seat in seats:
        one.end(seat)
    await one.leases.close()
    await asyncio.gather(*(other.begin() for _ in range(2)))  # their leases would not have expired yet


async def test_what_others_have_in_flight_is_known(process: NewProcess) -> None:
    processes = [await process(9) for _ in range(3)]
    seats = [(each, await each.begin()) for each in processes for _ in range(each.number)]
    await until(lambda: [each.elsewhere for each in processes] == [5.0, 4.0, 3.0])
    for each, seat in seats:
        each.end(seat)
    await until(lambda: [each.elsewhere for each in processes] == [0.0, 0.0, 0.0])


async def test_without_redis_each_goes_on_with_what_it_has_and_a_share_of_the_rest(
    process: NewProcess, site: Site, redis_url: str
) -> None:
    quick = msgspec.structs.replace(STEADY, timeout_s=0.3)
    async with relayed(redis_url) as (relay, url):
        processes = [await process(8, quick, url) for _ in range(2)]
        await until(lambda: all(each.leases.processes == 2 and each.slots.most > 0 for each in processes))
        relay.hang()
        await until(lambda: not any(each.leases.connected for each in processes))
        running: list[tuple[Process, Seat]] = []
        for each in processes:
            assert each.line.has_room
            while each.line.has_room:
                running.append((each, await each.begin()))
        assert site.most <= 8
        relay.resume()
        await until(lambda: all(each.leases.connected for each in processes))
        for each, seat in running:
            each.end(seat)
        await asyncio.gather(*(processes[0].begin() for _ in range(8)))
        assert site.most <= 8


async def test_a_redis_that_is_away_at_the_start_leaves_each_its_share(
    process: NewProcess, site: Site, redis_url: str
) -> None:
    async with relayed(redis_url) as (relay, url):
        relay.hang()
        quick = msgspec.structs.replace(STEADY, timeout_s=0.3)
        one = await process(3, quick, url)
        await asyncio.gather(*(one.begin() for _ in range(3)))
        assert site.most == 3
        relay.resume()
        await until(lambda: one.leases.connected)
        other = await process(3, quick, url)
        await until(lambda: other.elsewhere == 3.0)
        assert not other.line.has_room


async def test_after_a_flush_nothing_is_leased_that_others_still_use(
    process: NewProcess, site: Site, redis_url: str
) -> None:
    times = msgspec.structs.replace(STEADY, restoring_s=3.0)  # by then the first has reported, however busy the machine
    processes = [await process(4, times) for _ in range(3)]
    seats = [await processes[0].begin() for _ in range(4)]
    async with Redis.from_url(redis_url) as redis:
        await redis.flushall()
    waiting = [asyncio.create_task(each.begin()) for each in processes[1:]]
    await until(lambda: processes[1].elsewhere == processes[2].elsewhere == 4.0)
    assert site.most == 4
    for seat in seats:
        processes[0].end(seat)
    await asyncio.gather(*waiting)
    assert site.most == 4


async def test_a_reload_changes_how_many_there_are(process: NewProcess, site: Site) -> None:
    async def call(process: Process) -> None:
        process.end(await process.begin())

    one, other = both = await process(2), await process(2)
    seats = [await one.begin() for _ in range(2)]
    begun = [asyncio.create_task(other.begin()) for _ in range(2)]
    await until(lambda: len(other.line.waiting) == 2 and other.elsewhere == 2.0)
    for each in both:
        each.limit(4)
    seats_there = await asyncio.gather(*begun)
    assert site.most == 4
    for each in both:
        each.limit(3)
    site.most = 0
    calls = [asyncio.create_task(call(each)) for each in both for _ in range(2)]
    await until(lambda: all(each.slots.valid_until_s > 0 for each in both))  # both have said what they have
    other.end(seats_there[0])
    await until(lambda: one.elsewhere == 1.0)
    assert site.most == 0  # there still were three
    one.end(seats[0])
    await asyncio.gather(*calls)
    assert site.most == 3
    one.end(seats[1])
    other.end(seats_there[1])
    one.limit(None)
    assert one.line.has_room
    assert one.seats.leased == {}


async def test_a_full_deployment_elsewhere_takes_its_idle_slots_back_when_calls_are_turned_away(
    process: NewProcess,
) -> None:
    """A call that went to another deployment waits nowhere, but it tells that it found no slot."""
    one, other = await process(1), await process(1)
    await until(lambda: one.slots.most + other.slots.most == 1)
    without = one if one.slots.most == 0 else other

    def planned() -> bool:
        return without.seats.now({NAME: 1})[NAME] == 1

    await until(planned)


async def test_without_other_processes_all_slots_are_its_own() -> None:
    seats = Seats(leases=OwnShare(1, clock=time.monotonic, unix_clock=time.time), clock=time.monotonic)
    seats.limit({NAME: 5}, 600.0, of_fleet={NAME: 3})
    line = seats.lines[NAME]
    taken = [Seat(line) for _ in range(3) if line.has_room]
    assert (len(taken), line.has_room, seats.now({NAME: 3})) == (3, False, {NAME: 3})
    seats.limit({NAME: 5}, 600.0, of_fleet={NAME: 4})
    assert line.has_room
