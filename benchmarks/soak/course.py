"""A soak from its start to its end: the stores, the fleet, the gateway, and the load upon it."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import uvloop

from benchmarks.harness import replicas
from benchmarks.soak import provider
from benchmarks.soak.jobs import KINDS, Ending, Job, Made, allowed, drawn, make
from benchmarks.soak.provider import MEDIAN_S, NOWHERE
from benchmarks.soak.report import Report, Sample, attempts_of, compared, growth, look, narrowed, read
from gateway.ledger import create_engine
from tests.support.measured import gateways
from tests.support.measured.gateways import HEADERS, KEY, hashed
from tests.support.measured.servers import Child, Server
from tests.support.servers import free_port

STALL_S = 1.0  # between two events
TTFT_S = 3.0  # also the time in which a call may go from one provider to the next: long enough for one that stalled
HEDGE_S = 0.03  # among the usual times to the first token
SAMPLE_S = 1.0
REST_S = provider.KEPT_S + 2.0  # after which idle connections to providers are closed
STILL_LOOKS, LOOK_S = 6, 0.5  # alike, and the gateway is at rest
REST_LIMIT_S = 60.0
WARM_UP_EACH = 20  # calls of each kind, at a time: what is made once is made then
SHOWN_CHARS = 600  # of a line of the log
_ERRORS = frozenset({"error", "critical"})


class Order(msgspec.Struct, frozen=True):
    """What is to be done. ``share`` of the calls meet a fault; a reload comes each ``reload_s``, 0: never."""

    calls: int
    concurrency: int
    share: float
    seed: int
    reload_s: float


class Course:
    """One soak. Made with everything that runs."""

    def __init__(
        self, order: Order, gateway: Server, fleet: Child, spool: Path, reconfigure: Callable[[int], None]
    ) -> None:
        self.made: list[Made] = []
        self.samples: list[Sample] = []
        self.reloads = 0
        self.seconds = 0.0
        self._order = order
        self._gateway = gateway
        self._fleet = fleet
        self._spool = spool
        self._reconfigure = reconfigure
        self._began = 0.0
        self._is_begun = False  # every call of the load

    async def run(self, tick: Callable[[], None]) -> tuple[Sample, Sample]:
        """Run it; ``tick`` is called once per call. Return the gateway at rest before and after."""
        every = [Job(-1 - number, KINDS[number % len(KINDS)]) for number in range(self.warm_up_calls)]
        await self._load(iter(every), len(every), lambda: None)
        start = await self._at_rest(None)
        self._began = time.monotonic()
        order = self._order
        jobs = (drawn(order.seed, number, order.share) for number in range(order.calls))
        async with asyncio.TaskGroup() as group:
            aside = [group.create_task(self._sample()), group.create_task(self._reload())]
            await self._load(jobs, order.concurrency, tick)
            for task in aside:
                task.cancel()
        self.seconds = time.monotonic() - self._began
        return start, await self._at_rest(start)

    @property
    def warm_up_calls(self) -> int:
        """How many calls come first, and meet nothing."""
        return WARM_UP_EACH * len(KINDS)

    async def met(self) -> provider.Met:
        return msgspec.convert(await asyncio.to_thread(self._fleet.ask, "/met"), provider.Met)

    async def _load(self, jobs: Iterator[Job], concurrency: int, tick: Callable[[], None]) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, read_bufsize=2**20) as session:

            async def work() -> None:
                for job in jobs:
                    self.made.append(await make(session, self._gateway.port, job))
                    tick()
                self._is_begun = True  # nobody would see another reload

            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())

    async def _look(self) -> Sample:
        at_s = time.monotonic() - self._began if self._began else 0.0
        return await asyncio.to_thread(look, self._gateway, self._spool, at_s, len(self.made))

    async def _sample(self) -> None:
        while True:
            self.samples.append(await self._look())
            await asyncio.sleep(SAMPLE_S)

    async def _reload(self) -> None:
        if not self._order.reload_s:
            await asyncio.Event().wait()
        self._is_begun = False
        while True:
            await asyncio.sleep(self._order.reload_s)
            if self._is_begun:
                continue
            self._reconfigure(self.reloads + 1)
            os.kill(self._gateway.pid, signal.SIGHUP)
            self.reloads += 1

    async def _at_rest(self, before: Sample | None) -> Sample:
        """Return the gateway once it does not change any more; with ``before``, once it is as it was then."""
        await asyncio.sleep(REST_S)
        deadline = time.monotonic() + REST_LIMIT_S
        looks = [await self._look()]
        while time.monotonic() < deadline:
            await asyncio.sleep(LOOK_S)
            looks.append(await self._look())
            last = looks[-1]
            if before is None:
                alike = {(each.descriptors, each.tasks, each.pending) for each in looks[-STILL_LOOKS:]}
                if len(looks) >= STILL_LOOKS and len(alike) == 1 and not last.pending:
                    break
            elif last.descriptors <= before.descriptors and last.tasks <= before.tasks and not last.pending:
                break
        return looks[-1]


def soak(order: Order, folder: Path, tick: Callable[[], None]) -> Report:
    """Start everything in ``folder``, run the load, and say what came of it."""
    with ExitStack() as stack:
        stores = gateways.production(stack)
        fleet = replicas.child("fleet", folder, "benchmarks.soak.provider", str(order.seed))
        closed_port = free_port()

        def settings(generation: int) -> dict[str, Any]:
            return configuration(fleet.port, closed_port, generation)

        gateway = replicas.replica("gateway", folder, settings(0), stores)
        replicas.start(stack, [fleet, gateway])

        def reconfigure(generation: int) -> None:
            replicas.configured(folder, gateway.name, gateway.port, settings(generation), stores)

        server = Server(gateway.name, gateway.pid, gateway.port, HEADERS)
        course = Course(order, server, fleet, folder / "spool-gateway", reconfigure)
        log = folder / "gateway.log"
        try:
            return uvloop.run(_soaked(order, course, stores.database_url, log, tick))
        except* OSError as error:
            raise RuntimeError(
                f"{error.exceptions[0]}; the gateway said: {log.read_text(errors='replace')[-2000:]}"
            ) from error


async def _soaked(order: Order, course: Course, database_url: str, log: Path, tick: Callable[[], None]) -> Report:
    start, end = await course.run(tick)
    met = await course.met()
    engine = create_engine(database_url)
    try:
        rows, refused = await read(engine)
        reasons = await narrowed(engine)
        amiss = [one for one in course.made if one.ending not in allowed(one.job)]
        away = [one for one in course.made if one.ending is Ending.TURNED_AWAY and one.job.fault is None]
        attempts = await attempts_of(engine, [one.job.request_id for one in (*amiss, *away)])
    finally:
        await engine.dispose()
    endings = Counter(one.ending for one in course.made)
    return Report(
        seed=order.seed,
        calls=order.calls,
        warm_up_calls=course.warm_up_calls,
        seconds=course.seconds,
        reloads=course.reloads,
        reloads_seen=len(met.generations - {0}),
        faults={**met.faults, "refused": refused, "leaves": endings[Ending.LEFT]},
        endings={str(ending): number for ending, number in endings.items()},
        narrowed=reasons,
        amiss=[_told(one, attempts.get(one.job.request_id, ())) for one in amiss],
        turned_away=[_told(one, attempts.get(one.job.request_id, ())) for one in away],
        crashes=list(_crashes(log)),
        books=compared(rows, course.made, met.calls),
        start=start,
        end=end,
        rss_mb=growth(course.samples, lambda sample: sample.rss_mb),
        descriptors=growth(course.samples, lambda sample: sample.descriptors),
        tasks=growth(course.samples, lambda sample: sample.tasks),
        samples=course.samples,
    )


def configuration(fleet_port: int, closed_port: int, generation: int = 0) -> dict[str, Any]:
    """Return the gateway's settings.

    Each ``generation`` differs in what all providers are sent, so that a reload makes new upstreams of all of them.
    """
    names = [*MEDIAN_S, NOWHERE]
    ports = {name: closed_port if name == NOWHERE else fleet_port for name in names}
    races: dict[str, dict[str, Any]] = {
        "raced": {"mode": "race", "width": 2, "budget": 1.0},
        "hedged": {"mode": "hedge", "hedge_delay_s": HEDGE_S, "budget": 1.0},
        "single": {"mode": "single"},
        "relayed": {"mode": "single"},
    }
    return {
        "timeouts": {"connect_timeout_s": STALL_S, "ttft_timeout_s": TTFT_S, "stall_timeout_s": STALL_S},
        "clients": {"soak": {"key_sha256": hashed(KEY), "admin": True}},
        "providers": {
            name: gateways.provider(f"http://127.0.0.1:{port}/{name}/v1", f"sk-soak-{name}")
            | {"headers": {"x-generation": str(generation)}}
            for name, port in ports.items()
        },
        "models": {
            model: {"deployments": [f"{name}/m" for name in names], "race": race} for model, race in races.items()
        },
    }


def _told(one: Made, attempts: Sequence[str]) -> str:
    job = one.job
    how = f"{job.kind.model}{' stream' if job.kind.streamed else ''}"
    where = " everywhere" if job.is_everywhere else ""
    return (
        f"{job.request_id} ({how}, {job.fault or 'no fault'}{where}): {one.ending}, {one.status}, {one.seconds:.1f} s,"
        f" {one.said!r}; attempts: {', '.join(attempts)}"
    )


def _crashes(log: Path) -> Iterator[str]:
    for line in log.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            yield line[:SHOWN_CHARS]
            continue
        if entry.get("level") in _ERRORS:
            yield f"{entry.get('event')}: {str(entry.get('exception', line))[-SHOWN_CHARS:]}"  # where a traceback ends
