"""Many processes' limits and standings in one driver process: the gateway's own classes, without a gateway around them.

    PYTHONPATH=checkout python benchmarks/limits/clients.py '{"url": "redis://…", …}'

A script of its own, as it drives the classes of another checkout too. A client second takes ``stretch`` seconds, so
that what a thousand processes do fits into two cores: Redis' and the clients' times are stretched alike.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import msgspec
import structlog

from gateway.core.prompt_classes import MeasuredApi
from gateway.limits import limits as limits_module
from gateway.limits import shared_leases
from gateway.limits.limits import Limits, Payer, Use, level_of_key
from gateway.limits.refusals import LimitReached
from gateway.limits.shared_leases import USUAL, SharedLeases
from gateway.steering import constants, redis_board
from gateway.steering.budget import Spending
from gateway.steering.counts import event
from gateway.steering.outages import Strikes
from gateway.steering.redis_board import RedisBoard
from gateway.topology.nodes import connect
from tests.unit.limits.test_limits import attempt, record

BEGAN_S = 1_800_000_000.0  # a full minute
MODELS, DEPLOYMENTS = 3, 5
CALLS_S = 3.0  # of each process: a call a second of each model
CALL_S = 2.0
HELD, MOST_USED = 300.0, 600.0  # tokens of a call; what it uses is drawn evenly below the second
USD_A_CALL = 0.001
PATIENT_S = 30.0
SAMPLES_S = 0.25  # between two looks at how old reports are, in client seconds


class Told(msgspec.Struct):
    """What a driver is told. ``tpm``: the limit of tokens that is used up meanwhile."""

    url: str
    first: int
    processes: int
    stretch: float
    warmup_s: float
    measured_s: float
    starts_at: float
    tpm: float


class Found(msgspec.Struct):
    """What a driver returns: ages in client seconds; of the limit that is used up the tokens used, and the bound."""

    limits_ages_s: list[float]
    standings_ages_s: list[float]
    tokens: float
    bound: float
    admitted: int
    refused: int
    missed: int  # exchanges of standings that Redis did not answer in time
    own_cpu_s: float


def amounts(tpm: float) -> dict[str, float]:
    """Return a client's five limits: only ``tpm`` is ever used up."""
    return {"rpm": 1e9, "tpm": tpm, "max_parallel": 1e6, "usd_per_day": 1e6, "usd_per_month": 1e7}


class Process:
    """One process: its leases, its board, and its calls."""

    def __init__(self, driver: "Driver", number: int) -> None:
        told = driver.told
        self._driver, self._random = driver, Random(number)
        self._name = f"process{number}"
        scaled = {name: value * told.stretch for name, value in msgspec.structs.asdict(USUAL).items()}
        self.leases = SharedLeases(
            connect(told.url, PATIENT_S),
            clock=time.monotonic,
            unix_clock=driver.unix_s,
            new_id=lambda: self._name,
            processes=told.processes,
            times=msgspec.convert({**scaled, "timeout_s": PATIENT_S}, type(USUAL)),
        )
        self.limits = Limits(self.leases, clock=time.monotonic, unix_clock=driver.unix_s)
        self.spending = Spending(driver.unix_s)
        self.board = RedisBoard(
            connect(told.url, PATIENT_S),
            unix_clock=driver.unix_s,
            spending=self.spending,
            strikes=Strikes(driver.unix_s),
            new_id=lambda: self._name,
        )
        self.synced_s = time.monotonic()
        self.bound = 0.0  # of the limit that is used up: what calls running at the last admission use beyond the mean
        self._running: dict[str, float] = {}  # calls of that limit: the tokens that they will use

    async def live(self) -> None:
        """Call until the end, and exchange standings as often as the board itself would."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sync())
            for number in range(int(CALLS_S)):
                tasks.create_task(self._call_again(number))

    async def close(self) -> None:
        """Give leases back; what is left of the board is of no interest."""
        await self.leases.close()

    def ages_s(self) -> Iterator[float]:
        """Yield how long ago each limit in use was reported, in client seconds."""
        now_s = time.monotonic()
        for account in self.limits._accounts.values():  # noqa: SLF001 - there is no other way to see this
            for quota in account.quotas(self._driver.unix_s()):
                if quota.reported is not None and quota.reported.used < quota.used:
                    yield (now_s - quota.reported.at_s) / self._driver.told.stretch

    async def _sync(self) -> None:
        driver, stretch = self._driver, self._driver.told.stretch
        await driver.rest(self._random.random())
        while not driver.is_over:
            due_s = time.monotonic() + getattr(self.board, "round_s", constants.FLUSH_S) * stretch
            self.synced_s = time.monotonic()
            driver.found.missed += not await self.board.sync()
            await driver.rest((due_s - time.monotonic()) / stretch)

    async def _call_again(self, number: int) -> None:
        driver, random, turn = self._driver, self._random, 0
        await driver.rest(random.random())
        async with asyncio.TaskGroup() as calls:
            while not driver.is_over:
                turn += 1
                calls.create_task(self._call(f"{self._name}-{number}-{turn}", number % MODELS, (number + turn) % 2))
                await driver.rest(random.expovariate(MODELS / CALLS_S))

    async def _call(self, call_id: str, model: int, client: int) -> None:
        driver, random, name = self._driver, self._random, f"model{model}"
        deployment = f"provider{random.randrange(DEPLOYMENTS)}/model"
        uses = random.random() * MOST_USED
        payer = Payer(name, name)
        try:
            await self.limits.hold(
                call_id, [level_of_key(f"client{client}", driver.limits[client])], payer, Use(10.0, HELD, USD_A_CALL)
            )
        except LimitReached:
            driver.found.refused += 1
            return
        driver.found.admitted += 1
        if client:
            self._running[call_id] = uses
            self.bound = sum(max(0.0, each - HELD) for each in self._running.values())
        if self.spending.may_spend(name, USD_A_CALL, 1e6) and random.random() < 0.2:
            self.spending.charge(name, USD_A_CALL)
        await driver.rest(CALL_S)
        ttft_s = random.lognormvariate(-1.0, 0.5)
        counted = {event(deployment, MeasuredApi.ANSWERS, ttft_s): 1.0, "req": 1.0, f"{deployment}|n": 1.0}
        self.board.add(name, counted, driver.unix_s())
        used = record(call_id, attempt(USD_A_CALL, model=name), tokens=(0, int(uses)))
        self.limits.call_finished(used)
        if client:
            del self._running[call_id]
            driver.found.tokens += int(uses)


class Driver:
    """The processes of this driver, and their time."""

    def __init__(self, told: Told) -> None:
        self.told = told
        self.limits = (amounts(1e12), amounts(told.tpm))
        self.found = Found([], [], 0.0, 0.0, 0, 0, 0, 0.0)
        self._over = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether no call may begin."""
        return self._over.is_set()

    async def rest(self, seconds: float) -> None:
        """Wait for so many client seconds, or until the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds) * self.told.stretch):
                await self._over.wait()

    def unix_s(self) -> float:
        """Return the processes' Unix time."""
        return BEGAN_S + max(0.0, time.time() - self.told.starts_at) / self.told.stretch

    async def run(self) -> Found:
        """Run all processes for their time."""
        told, found = self.told, self.found
        processes = [Process(self, told.first + number) for number in range(told.processes)]
        for process in processes:
            await process.leases.start()
        async with asyncio.TaskGroup() as tasks:
            await asyncio.sleep(max(0.0, told.starts_at - time.time()))
            for process in processes:
                tasks.create_task(process.live())
            await asyncio.sleep(told.warmup_s * told.stretch)
            began_s, ends_s = time.process_time(), time.monotonic() + told.measured_s * told.stretch
            while time.monotonic() < ends_s:
                await asyncio.sleep(SAMPLES_S * told.stretch)
                now_s = time.monotonic()
                for process in processes:
                    found.limits_ages_s += process.ages_s()
                    found.standings_ages_s.append((now_s - process.synced_s) / told.stretch)
            found.own_cpu_s = time.process_time() - began_s
            self._over.set()
        found.bound = sum(process.bound for process in processes)
        await asyncio.gather(*(process.close() for process in processes))
        return found


def main() -> None:
    """Run from the command line."""
    told = msgspec.json.decode(sys.argv[1], type=Told)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))  # its output is read
    limits_module.PATIENCE_S *= told.stretch
    shared_leases.EXHAUSTED_S *= told.stretch
    redis_board.USD_SUMMED_S *= told.stretch
    redis_board.REDIS_TIMEOUT_S = PATIENT_S  # type: ignore[attr-defined] # of all who share a core here
    sys.stdout.write(msgspec.json.encode(asyncio.run(Driver(told).run())).decode())


if __name__ == "__main__":
    main()
