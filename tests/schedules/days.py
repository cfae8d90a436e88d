"""Eighteen ordinary bad days: one of three deployments misbehaves, and calls should be raced and answered as ever.

    python -m tests.schedules.days [--race '{"mode": "race", "width": 2}'] [--day "429 once"]

A whole gateway in virtual time, with its defaults: 50 calls at 2 calls a second, whose first tokens take 0.3 s in the
median at each deployment, on all days the same for the same call.
"""

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from math import log
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, cast

import msgspec
import structlog

from gateway.app import Gateway
from gateway.core.attempts import AttemptRecord
from gateway.core.calls import CallRecord
from gateway.server.listener import serving
from gateway.settings import load
from providers import Request
from tests.schedules.clients import Seen, SimulatedClient
from tests.schedules.loop import ShuffledLoop
from tests.schedules.providers import DONE, Simulated
from tests.schedules.scenario import MODEL, Ask, Client
from tests.schedules.simulation import FOLDER, MemoryStore, catalog, virtual_runtime
from tests.support.behaviour import NEVER_S, Behaviour

NAMES = ("ada", "bee", "cid")
BAD = "ada"
N_CALLS = 50
CALLS_PER_S = 2.0
TTFT_S, SIGMA = 0.3, 0.3  # the median and the standard deviation of the logarithm
OK = 200
REFUSES_S = 0.05
RETRY_AFTER_S = 10.0
AT = 2  # the request that is refused once

Fault = Callable[[int, float], dict[str, Any]]  # the number of the request, from 1, and its second -> what is different
RACES: Mapping[str, dict[str, Any]] = {"race": {"mode": "race", "width": 2}, "auto": {}}


def _refuses(status: int, when: Callable[[int, float], bool] = lambda _, __: True, **more: Any) -> Fault:
    return lambda number, second: {"status": status, "opens_s": REFUSES_S, **more} if when(number, second) else {}


def _always(**behaviour: Any) -> Fault:
    return lambda _, __: behaviour


def _tenth(number: int, _: float) -> bool:
    return number % 10 == 0


GOOD: Fault = _always()
DAYS: Mapping[str, Fault] = {
    "401": _refuses(401),
    "402": _refuses(402),
    "403": _refuses(403),
    "404": _refuses(404),
    "429 once": _refuses(429, lambda number, _: number == AT),
    "429 each tenth, with retry-after": _refuses(429, _tenth, retry_after_s=RETRY_AFTER_S),
    "429 always": _refuses(429),
    "500 each tenth": _refuses(500, _tenth),
    "500 always": _refuses(500),
    "503 for 5 s": _refuses(503, lambda _, second: 5.0 <= second < 10.0),
    "hangs each tenth": lambda number, second: {"opens_s": NEVER_S} if _tenth(number, second) else {},
    "hangs always": _always(opens_s=NEVER_S),
    "3 s slow": _always(first_s=3.0),
    "HTML": _always(lie="html"),
    "cut": _always(breaks_at=3),
    "empty": _always(lie="empty"),
    "400 each fifth": _refuses(400, lambda number, _: number % 5 == 0),
    "400 each tenth": _refuses(400, _tenth),
}


class Provider(Simulated):
    """One whose first token takes as long as is drawn for the call, unless its day is bad."""

    def __init__(self, name: str, fault: Fault, seed: int, loop: ShuffledLoop, texts: dict[str, list[str]]) -> None:
        super().__init__(name, (), loop, texts)
        self._fault = fault
        self._seed = seed
        self._began_s = loop.time()

    def behaviour(self, request: Request) -> Behaviour:
        """Return what is drawn for this call, with the fault of the day."""
        call = request.headers["x-request-id"]
        first_s = Random(f"{self._seed} {self.name} {call}").lognormvariate(log(TTFT_S), SIGMA)
        usual = Behaviour(first_s=first_s, prose=True)
        return msgspec.structs.replace(usual, **self._fault(len(self.asked) + 1, self.loop.time() - self._began_s))


class Told(msgspec.Struct, frozen=True):
    """One call: what its client saw, its row, and the rows of its attempts."""

    seen: Seen
    call: CallRecord
    attempts: tuple[AttemptRecord, ...]

    @property
    def starts(self) -> int:
        """How many attempts started with the call."""
        first_ms = min((each.launch_offset_ms for each in self.attempts), default=0.0)
        return sum(each.launch_offset_ms == first_ms for each in self.attempts)

    @property
    def has_failed(self) -> bool:
        """Whether its client has no whole answer."""
        return self.seen.status != OK or not self.seen.body.endswith(DONE)

    @property
    def narrowed(self) -> str | None:
        """The reason for fewer attempts that its answer gives."""
        return self.seen.headers.get("x-holeshot-narrowed")


class Day(msgspec.Struct, frozen=True):
    """What became of a day's calls."""

    calls: tuple[Told, ...]

    @property
    def raced(self) -> int:
        """How many started with two attempts or more."""
        return sum(each.starts > 1 for each in self.calls)

    @property
    def failed(self) -> list[Told]:
        """Those that failed."""
        return [each for each in self.calls if each.has_failed]

    @property
    def alone(self) -> Counter[str | None]:
        """The calls that started with one attempt, by the reason that is told; None: none."""
        return Counter(each.narrowed for each in self.calls if each.starts == 1)

    @property
    def ttft_p50_ms(self) -> float:
        """The median of the times to the first token."""
        return median(each.call.ttft_ms for each in self.calls if each.call.ttft_ms is not None)


def run(fault: Fault, race: Mapping[str, Any], *, seed: int = 1, n_calls: int = N_CALLS, **model: Any) -> Day:
    """Run a day; ``model``: more of the model's settings."""
    loop = ShuffledLoop(Random(seed), 0.0)
    asyncio.set_event_loop(loop)
    try:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder, structlog.testing.capture_logs():
            return loop.run_until_complete(_day(Path(folder), fault, {"race": race, **model}, seed, n_calls))
    finally:
        loop.close()
        asyncio.set_event_loop(None)


async def _day(folder: Path, fault: Fault, model: dict[str, Any], seed: int, n_calls: int) -> Day:
    loop = cast("ShuffledLoop", asyncio.get_running_loop())
    texts: dict[str, list[str]] = {}
    providers = {name: Provider(name, fault if name == BAD else GOOD, seed, loop, texts) for name in NAMES}
    store = MemoryStore([])
    deployments = [{"deployment": f"{name}/{MODEL}", "continues": "prefix"} for name in NAMES]
    data = {
        "database_url": "sqlite:////nowhere/holeshot.db",
        "spool_dir": str(folder / "spool"),
        "replica": "simulated",
        "log_level": "error",
        "providers": {name: {"base_url": f"http://{name}.test/v1", "api_key": "k"} for name in NAMES},
        "models": {MODEL: {"deployments": deployments, **model}},
    }
    runtime = virtual_runtime(loop, Random(seed), lambda name, *_: providers[name].open(), store)
    gateway = Gateway(load(None, {}, data, catalog=catalog()), runtime)
    plans = [Client(at_s=number / CALLS_PER_S, asks=(Ask(),)) for number in range(n_calls)]
    clients = [SimulatedClient(number, plan, loop) for number, plan in enumerate(plans)]
    await gateway.start()
    try:
        async with serving(gateway, 1.0) as connections:
            await asyncio.gather(
                *(each.run(lambda client, host: connections.take(cast("Any", client), host)) for each in clients)
            )
    finally:
        await gateway.close()
    seen = [each for client in clients for each in client.seen]
    attempts: dict[str, list[AttemptRecord]] = {}
    for attempt in store.attempts.values():  # audited ones came after their calls
        attempts.setdefault(attempt.call_id, []).append(attempt)
    calls = [(each, store.calls[each.headers["x-holeshot-call-id"]]) for each in seen]
    return Day(tuple(Told(each, call, tuple(attempts[call.id])) for each, call in calls))


def line(name: str, day: Day, good: Day) -> str:
    """Return a day as a line of the table."""
    told = ", ".join(f"{n} {reason or 'untold'}" for reason, n in day.alone.most_common())
    ratio = day.ttft_p50_ms / good.ttft_p50_ms
    return f"{name:<34}{day.raced:>6}{len(day.failed):>8}{day.ttft_p50_ms:>9.0f}{ratio:>7.2f}  {told}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.schedules.days", description=__doc__)
    parser.add_argument("--race", type=msgspec.json.decode, help="the model's `race`, as JSON (default: both)")
    parser.add_argument("--day", choices=DAYS, help="one day alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=N_CALLS)
    options = parser.parse_args()
    races = RACES if options.race is None else {msgspec.json.encode(options.race).decode(): options.race}
    days = DAYS if options.day is None else {options.day: DAYS[options.day]}
    for mode, race in races.items():
        good = run(GOOD, race, seed=options.seed, n_calls=options.calls)
        title = f"{mode:<34}{'raced':>6}{'failed':>8}{'p50 ms':>9}{'x good':>7}  alone"
        sys.stdout.write(f"{title}\n{line('good', good, good)}\n")
        for name, fault in days.items():
            day = run(fault, race, seed=options.seed, n_calls=options.calls)
            sys.stdout.write(f"{line(name, day, good)}\n")
        sys.stdout.write("\n")


if __name__ == "__main__":
    main()
