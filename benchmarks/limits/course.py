"""The course of the measurement: each situation for a part of a minute of the clock, and the clients who call."""

import asyncio
import re
import time
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness import replicas
from benchmarks.harness.client_connection import Connections, NothingReceived, Received, Refused
from benchmarks.harness.machine import Company
from benchmarks.harness.replicas import Replicas
from benchmarks.limits.provider import Seen
from benchmarks.limits.trials import (
    OF_MODEL,
    PLAIN_MODEL,
    PROMPT_TOKENS,
    USD_PER_MTOK,
    Job,
    Situation,
    Trial,
    Use,
    by_limit,
)
from tests.support.measured.gateways import PATH, hashed, provider
from tests.support.measured.load import rendered

WEIGHTS = (4, 3, 2, 1)  # of the calls that each replica gets: a balancer is never quite fair
KILLED = 0  # the replica that is killed, see ``Replicas``: the busiest
WARM_UP_KEY = "hs-warm-up"
CALL_LIMIT_S = 15.0
_USAGE = re.compile(rb'"prompt_tokens": *(\d+), *"completion_tokens": *(\d+)')
_CHARS_PER_TOKEN = 4
_END = b"data: [DONE]"
PAUSE_S = 3.0  # after a phase: the last calls end, and a killed replica starts again
WARM_UP_S = 3.0
LATER_S = 0.2  # a phase begins so much after its period: no clock says that it is still the minute before


def installation(tried: Sequence[Trial], folder: Path) -> AbstractContextManager[Replicas]:
    """Run everything for these trials."""
    own = replicas.child("provider", folder, "benchmarks.limits.provider")
    return replicas.installed(folder, _settings(tried, own.port), [own], len(WEIGHTS))


def _settings(tried: Sequence[Trial], provider_port: int) -> dict[str, Any]:
    """Return what all gateways have in common: a client for each trial, and a model for those of models."""
    model = {
        "deployments": [{"deployment": "one/limits-model", "price_per_mtok": USD_PER_MTOK}],
        "race": {"mode": "single"},
    }
    limited = {trial.model: {**model, "usd_per_day": trial.amount} for trial in tried if trial.limit == OF_MODEL}
    clients = {trial.client: {"key_sha256": hashed(trial.key), **trial.client_limits} for trial in tried}
    return {
        "connections": {"max_per_address": 4096},  # all calls come from one address
        "overload": {"max_in_flight": 1_000_000, "loop_delay_ms": 0},  # only limits refuse
        "clients": {**clients, "warm-up": {"key_sha256": hashed(WARM_UP_KEY)}},
        "providers": {"one": provider(f"http://127.0.0.1:{provider_port}/v1", "sk-limits")},
        "models": {PLAIN_MODEL: model, **limited},
    }


def seen_by_provider(installed: Replicas) -> list[Seen]:
    """Return the calls that the provider has seen since the last time."""
    return msgspec.convert(installed.providers["provider"].ask("/_seen"), list[Seen])


class Made(msgspec.Struct, frozen=True):
    """A call that was made, in seconds of the machine's monotonic clock."""

    job: Job
    replica: int
    sent_s: float
    ended_s: float
    status: int | None = None  # None: no answer
    first_s: float | None = None  # when the first token came
    use: Use | None = None  # of a whole answer, as it says

    @property
    def is_refused(self) -> bool:
        return self.status == 429


class Phase(msgspec.Struct, frozen=True):
    """One situation, over: monotonic seconds."""

    began_s: float
    length_s: float
    fault_s: float
    made: Sequence[Made]
    seen: Mapping[int, Seen]  # by the call's number
    others_cores: float | None = None  # that other programs of this machine had before the fault

    @property
    def ended_s(self) -> float:
        """When the last call was due."""
        return self.began_s + self.length_s


class Clients:
    """Everybody who calls. ``access``: the model and the key by the limit that a call is to meet."""

    def __init__(self, ports: Sequence[int], weights: Sequence[int], access: Mapping[str, tuple[str, str]]) -> None:
        self._ports = ports
        self._weights = weights
        self._access = access
        self._connections = Connections()
        self._away: set[int] = set()  # replicas where nobody listens

    async def make(self, jobs: Sequence[Job], began_s: float) -> list[Made]:
        """Make all the calls, each at its time after ``began_s``, and return them when the last one has ended."""
        tasks = []
        for job in jobs:
            wait_s = began_s + job.due_s - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            tasks.append(asyncio.create_task(self._call(job)))
        return list(await asyncio.gather(*tasks))

    def close(self) -> None:
        self._connections.close()

    async def _call(self, job: Job) -> Made:
        model, key = self._access[job.limit]
        while True:
            replica, began_s = self._chosen(job.draw), time.monotonic()
            try:
                received = await self._connections.ask(self._ports[replica], _request(job, model, key), CALL_LIMIT_S)
            except Refused:
                self._away.add(replica)
            except NothingReceived:
                return Made(job, replica, began_s, time.monotonic())
            else:
                return _read(received, job, replica)

    def _chosen(self, draw: float) -> int:
        """Return a replica that is there, by weight."""
        here = [number for number in range(len(self._ports)) if number not in self._away]
        if not here:
            raise RuntimeError("no replica listens")
        sums = list(accumulate(self._weights[number] for number in here))
        return here[bisect(sums, draw * sums[-1])]


def _read(received: Received, job: Job, replica: int) -> Made:
    ended_s, data = time.monotonic(), received.data
    usage = _USAGE.search(data)
    use = Use(int(usage[1]), int(usage[2])) if usage is not None and _END in data else None
    return Made(job, replica, received.sent_at, ended_s, int(data[9:12]), received.first_token_at, use)


def _request(job: Job, model: str, key: str) -> bytes:
    """Return the call as HTTP/1.1, of such a size that a gateway expects about ``PROMPT_TOKENS``."""

    body = {
        "model": model,
        "user": f"limits-{job.number}-{job.answer_tokens}",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": ""}],
    }
    prompt = "x" * max(1, _CHARS_PER_TOKEN * PROMPT_TOKENS - len(msgspec.json.encode(body)))
    messages = [{"role": "user", "content": prompt}]
    return rendered(PATH, body | {"messages": messages}, {"authorization": f"Bearer {key}"})


async def warm_up(installed: Replicas, jobs: Sequence[Job]) -> None:
    """Make the calls of the first seconds for a client without limits: lengths are learnt, connections opened."""
    some = [job for job in jobs if job.due_s < WARM_UP_S]
    access = {job.limit: (PLAIN_MODEL, WARM_UP_KEY) for job in some}
    await _calls(installed, access, some, time.monotonic())


async def run(
    installed: Replicas, situation: Situation, tried: Sequence[Trial], jobs: Sequence[Job], period_s: float
) -> Phase:
    """Make the calls of one situation, from the next beginning of a period of the clock: no minute ends meanwhile."""
    length_s = period_s - PAUSE_S
    now_s = time.time()
    began_s = time.monotonic() + (-now_s) % period_s + LATER_S
    access = {limit: (trial.model, trial.key) for limit, trial in by_limit(tried).items()}
    company, others_cores = Company(), 0.0

    def fail() -> None:
        nonlocal others_cores
        others_cores = company.cores()
        installed.begin(situation.fault)

    async with asyncio.TaskGroup() as group:
        calls = group.create_task(_calls(installed, access, jobs, began_s))
        group.create_task(_at(began_s + situation.begin * length_s, fail))
        group.create_task(_at(began_s + situation.end * length_s, lambda: installed.end(situation.fault)))
    for gateway in installed.gateways:  # the killed one has been started again
        await asyncio.to_thread(gateway.ready)
    seen = await asyncio.to_thread(seen_by_provider, installed)
    return Phase(
        began_s=began_s,
        length_s=length_s,
        fault_s=began_s + situation.begin * length_s,
        made=calls.result(),
        seen={each.number: each for each in seen},
        others_cores=others_cores,
    )


async def _calls(
    installed: Replicas, access: Mapping[str, tuple[str, str]], jobs: Sequence[Job], began_s: float
) -> list[Made]:
    clients = Clients([gateway.port for gateway in installed.gateways], WEIGHTS, access)
    try:
        return await clients.make(jobs, began_s)
    finally:
        clients.close()


async def _at(at_s: float, do: Callable[[], None]) -> None:
    await asyncio.sleep(at_s - time.monotonic())
    do()
