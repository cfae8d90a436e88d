"""The course of the benchmark: a steady load, a look at what everybody knows, then the same load with faults in it."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from benchmarks.fleet.provider import TOKENS
from benchmarks.fleet.world import FLEET, World
from benchmarks.harness import replicas
from benchmarks.harness.client_connection import TOKEN_MARK, Connections, NothingReceived, Received, Refused
from benchmarks.harness.machine import cpu_s
from benchmarks.harness.replicas import Replicas
from tests.support.measured.gateways import PATH, provider
from tests.support.measured.load import rendered
from tests.support.measured.servers import Child

REPLICAS = 4
POLICIES: Mapping[str, Mapping[str, object]] = {"budget-1.0": {"budget": 1.0}, "budget-0.1": {"budget": 0.1}}
AUDITED = "audited"  # raced by all six, and every attempt watched to its first token
CALL_LIMIT_S = 60.0
TRIES = 2  # as the SDKs do: once more, when nothing was received

_HEADER = re.compile(rb"^x-holeshot-([a-z-]+): *([^\r]+)\r$", re.IGNORECASE | re.MULTILINE)
_ATTEMPTS = """
SELECT calls.model, attempts.provider, calls.prompt_class, count(*) AS attempts
FROM attempts JOIN calls ON calls.id = attempts.call_id
GROUP BY 1, 2, 3
"""
_CALLS = "SELECT count(*), count(*) FILTER (WHERE error_kind = 'interrupted') FROM calls"
SINGLE, ROUND_ROBIN = "single", "round-robin"  # without a gateway: always the first provider; each in turn
STEADY_SHARE = 0.55  # of the calls come before the faults
BASELINE_EVERY = 4  # one in so many calls is also made to a single provider, and one in turn to each
AUDITED_EVERY = 8  # one in so many is also made with every attempt audited
PAUSE_S = 3.0  # everything under way ends, and the last counts reach Redis and come back
LETTERS_PER_TOKEN = 4


def installation(world: World, epoch_s: float, folder: Path) -> AbstractContextManager[Replicas]:
    """Run everything; the last of the gateways is for the model whose every attempt is audited."""
    asked = [str(epoch_s), world.climate, str(world.seed)]
    names = [persona.name for persona in FLEET]
    providers = [replicas.child(name, folder, "benchmarks.fleet.provider", name, *asked) for name in names]
    audited = {"mode": "race", "width": len(providers), "budget": len(providers), "audit_share": 1.0}
    deployments = [f"{name}/fleet-model" for name in names]
    settings = {
        "providers": {each.name: provider(f"http://127.0.0.1:{each.port}/v1", "sk-fleet") for each in providers},
        "models": {
            model: {"deployments": deployments, "race": dict(race)}
            for model, race in {**POLICIES, AUDITED: audited}.items()
        },
    }
    return replicas.installed(folder, settings, providers, REPLICAS + 1)


class Answer(msgspec.Struct):
    """What came of one call. Times are seconds since it was due."""

    status: int | None = None  # None: no answer at all
    whole: bool = False  # every token and the end
    ttft_s: float | None = None
    total_s: float | None = None
    tries: int = 1
    refused: int = 0  # of these: nobody listened
    launched: int | None = None  # attempts, as the gateway says
    overhead_ms: float | None = None  # likewise


class Clients:
    """Any number of clients, who keep their connections to any number of servers."""

    def __init__(self, random: Random) -> None:
        self._connections = Connections()
        self._random = random

    async def call(self, ports: Sequence[int], model: str, number: int, prompt: str, due_at: float) -> Answer:
        """Make a call to any of the servers on ``ports``; when that one is away, to another."""
        request = _request(model, number, prompt)
        answer = Answer()
        chosen = self._random.sample(ports, min(TRIES, len(ports)))
        for each in range(TRIES):
            answer.tries = each + 1
            try:
                received = await self._connections.ask(chosen[each % len(chosen)], request, CALL_LIMIT_S)
            except NothingReceived as failure:
                answer.refused += isinstance(failure, Refused)
                continue
            _read(received, answer, due_at)
            break
        return answer

    def close(self) -> None:
        self._connections.close()


def _read(received: Received, answer: Answer, due_at: float) -> None:
    answer.total_s = time.perf_counter() - due_at
    answer.ttft_s = None if received.first_token_at is None else received.first_token_at - due_at
    head, _, body = received.data.partition(b"\r\n\r\n")
    answer.status = int(head[9:12])
    answer.whole = answer.status == 200 and body.count(TOKEN_MARK) == TOKENS and b"data: [DONE]" in body
    fields = {name.lower(): value.decode() for name, value in _HEADER.findall(head + b"\r\n")}
    if b"launched" in fields:
        answer.launched = int(fields[b"launched"])
    if b"overhead-ms" in fields:
        answer.overhead_ms = float(fields[b"overhead-ms"])


def _request(model: str, number: int, prompt: str) -> bytes:
    messages = [{"role": "user", "content": prompt}]
    return rendered(PATH, {"model": model, "user": f"fleet-{number}", "stream": True, "messages": messages})


class Planned(msgspec.Struct, frozen=True):
    """A fault to come, from one share of the faulty load to another: of the replicas, or of a provider."""

    name: str
    begin: float
    end: float
    fault: str
    silences: str | None = None  # the provider that answers nobody meanwhile


PLAN = (  # with time to recover between them
    Planned("replica killed", 0.08, 0.20, "kill"),
    Planned("Redis flushed", 0.28, 0.28, "flush"),
    Planned("alpha hangs", 0.46, 0.62, "hang", "alpha"),
    Planned("charlie rate-limits", 0.74, 0.90, "limit", "charlie"),
)


class Fault(msgspec.Struct, frozen=True):
    """A fault that was, in seconds of the world's age."""

    name: str
    begin_s: float
    end_s: float
    silences: str | None


def silent(faults: tuple[Fault, ...], age_s: float) -> frozenset[str]:
    """Return the providers that answer nobody at that time."""
    return frozenset(fault.silences for fault in faults if fault.silences and fault.begin_s <= age_s < fault.end_s)


class Entry(msgspec.Struct, frozen=True):
    """So many attempts of one kind."""

    model: str
    provider: str
    prompt_class: int
    attempts: int


async def booked_calls(installation: Replicas) -> tuple[int, int]:
    """Return how many calls have rows, and how many of these were interrupted by the death of their gateway."""
    [(every, interrupted)] = await installation.fetched(_CALLS)
    return every, interrupted


class Observation(msgspec.Struct, frozen=True):
    """One call: how it was made, when it was due, and what came of it."""

    arm: str
    number: int
    due_s: float  # age of the world
    answer: Answer


class Look(msgspec.Struct, frozen=True):
    """What everybody knows between the two loads."""

    at_s: float  # age of the world
    leaderboards: Mapping[str, list[dict[str, Any]]]  # rows by model
    replicas_agree: bool  # on the rows of the policies
    entries: list[Entry]
    cpu_share: Mapping[str, float]  # of one core while the load was steady, by kind of process


class Course:
    """One run: ``await Course(...).run()``, then read what was seen."""

    def __init__(
        self,
        installation: Replicas,
        world: World,
        *,
        calls: int,
        rate_per_s: float,
        epoch_s: float,
        tick: Callable[[], None],
    ) -> None:
        self.observations: list[Observation] = []
        self.faults: tuple[Fault, ...] = ()
        self.look: Look | None = None
        self._installation = installation
        self._world = world
        self._steady_calls = round(calls * STEADY_SHARE)
        self._calls = calls
        self._rate_per_s = rate_per_s
        self._epoch_s = epoch_s
        self._tick = tick  # called once per call
        self._arrivals = Random(f"{world.seed}/arrivals")
        self._clients = Clients(Random(f"{world.seed}/replicas"))
        *self._replicas, self._auditor = installation.gateways
        self._every_port = [process.port for process in self._replicas]

    async def run(self) -> None:
        try:
            before = self._cpu_s()
            began_s = self._age_s()
            await self._load(range(self._steady_calls), aside=True)
            elapsed_s = self._age_s() - began_s
            cpu_share = {kind: (used - before[kind]) / elapsed_s for kind, used in self._cpu_s().items()}
            await asyncio.sleep(PAUSE_S)
            await asyncio.to_thread(self._installation.settle)
            entries = [Entry(*row) for row in await self._installation.fetched(_ATTEMPTS)]
            self.look = await asyncio.to_thread(self._look, cpu_share, entries)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fail())
                await self._load(range(self._steady_calls, self._calls), aside=False)
        finally:
            self._clients.close()

    async def _load(self, numbers: range, *, aside: bool) -> None:
        """Make the calls, a Poisson process, and wait for the last; ``aside``: the baselines and audited ones too."""
        due_at = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in numbers:
                due_at += self._arrivals.expovariate(self._rate_per_s)
                await asyncio.sleep(max(0.0, due_at - time.perf_counter()))
                for arm, ports in self._arms(number, aside=aside):
                    group.create_task(self._call(arm, ports, number, due_at))
                self._tick()

    def _arms(self, number: int, *, aside: bool) -> list[tuple[str, list[int]]]:
        """Return how a call is made: by one of the policies, and sometimes otherwise as well."""
        policies = list(POLICIES)
        arms = [(policies[number % len(policies)], self._every_port)]
        if not aside:
            return arms
        for rest, baseline in enumerate((SINGLE, ROUND_ROBIN)):
            provider = direct_provider(baseline, number)
            if number % BASELINE_EVERY == rest and provider is not None:
                arms.append((baseline, [self._installation.providers[provider].port]))
        if number % AUDITED_EVERY == AUDITED_EVERY // 2 - 1:
            arms.append((AUDITED, [self._auditor.port]))
        return arms

    async def _call(self, arm: str, ports: list[int], number: int, due_at: float) -> None:
        due_s = self._age_s() - (time.perf_counter() - due_at)
        prompt = "x" * (LETTERS_PER_TOKEN * self._world.prompt_tokens(number))
        answer = await self._clients.call(ports, arm, number, prompt, due_at)
        self.observations.append(Observation(arm, number, due_s, answer))

    async def _fail(self) -> None:
        """Begin and end each fault at its time."""
        began_s = self._age_s()
        duration_s = (self._calls - self._steady_calls) / self._rate_per_s
        for fault in PLAN:
            await asyncio.sleep(began_s + fault.begin * duration_s - self._age_s())
            begin_s = self._age_s()
            if fault.silences is None:
                self._installation.begin(fault.fault)
            else:
                self._misbehave(fault.silences, fault.fault)
            await asyncio.sleep(max(0.0, began_s + fault.end * duration_s - self._age_s()))
            if fault.silences is None:
                self._installation.end(fault.fault)
            else:
                self._misbehave(fault.silences, "none")
            self.faults += (Fault(fault.name, begin_s, self._age_s(), fault.silences),)

    def _misbehave(self, provider: str, fault: str) -> None:
        self._installation.providers[provider].ask(f"/_fault/{fault}", "POST")

    def _look(self, cpu_share: Mapping[str, float], entries: list[Entry]) -> Look:
        boards = {model: _rows(self._replicas[0], model) for model in POLICIES}
        return Look(
            at_s=self._age_s(),
            leaderboards={**boards, AUDITED: _rows(self._auditor, AUDITED)},
            replicas_agree=all(
                _published(_rows(gateway, model)) == _published(rows)
                for gateway in self._replicas[1:]
                for model, rows in boards.items()
            ),
            entries=entries,
            cpu_share=cpu_share,
        )

    def _cpu_s(self) -> dict[str, float]:
        groups: dict[str, list[Child]] = {
            "gateways": self._replicas,
            "auditor": [self._auditor],
            "providers": list(self._installation.providers.values()),
        }
        used = {kind: sum(cpu_s(process.pid) for process in group) for kind, group in groups.items()}
        return {**used, "clients": time.process_time()}

    def _age_s(self) -> float:
        return time.time() - self._epoch_s


def direct_provider(arm: str, number: int) -> str | None:
    """Return who is asked for a call when no gateway chooses; None when one does."""
    if arm == SINGLE:
        return FLEET[0].name
    return FLEET[number // BASELINE_EVERY % len(FLEET)].name if arm == ROUND_ROBIN else None


def _rows(gateway: Child, model: str) -> list[dict[str, Any]]:
    (board,) = gateway.ask(f"/leaderboard?model={model}")["models"]
    rows: list[dict[str, Any]] = board["deployments"]
    return rows


def _published(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {row["deployment"]: row["ttft_p50_ms"] for row in rows}
