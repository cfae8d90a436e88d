"""The course of the measurement: each situation for a part of a minute of the clock, with a pause between them."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.harness.machine import Company
from benchmarks.limits.clients import Clients, Made
from benchmarks.limits.findings import Phase
from benchmarks.limits.installation import WARM_UP_KEY, WEIGHTS, Installation
from benchmarks.limits.trials import PLAIN_MODEL, Job, Situation, Trial, by_limit

PAUSE_S = 3.0  # after a phase: the last calls end, and a killed replica starts again
WARM_UP_S = 3.0
LATER_S = 0.2  # a phase begins so much after its period: no clock says that it is still the minute before


async def warm_up(installation: Installation, jobs: Sequence[Job]) -> None:
    """Make the calls of the first seconds for a client without limits: lengths are learnt, connections opened."""
    some = [job for job in jobs if job.due_s < WARM_UP_S]
    access = {job.limit: (PLAIN_MODEL, WARM_UP_KEY) for job in some}
    await _calls(installation, access, some, time.monotonic())


async def run(
    installation: Installation, situation: Situation, tried: Sequence[Trial], jobs: Sequence[Job], period_s: float
) -> Phase:
    """Make the calls of one situation, from the next beginning of a period of the clock: no minute ends meanwhile."""
    length_s = period_s - PAUSE_S
    now_s = time.time()
    began_s = time.monotonic() + (-now_s) % period_s + LATER_S
    access = {limit: (trial.model, trial.key) for limit, trial in by_limit(tried).items()}
    company: Company | None = None
    others_cores: float | None = None

    def begin() -> None:
        nonlocal company
        company = Company()

    def fail() -> None:
        nonlocal others_cores
        others_cores = None if company is None else company.cores()
        installation.begin(situation.fault)

    async with asyncio.TaskGroup() as group:
        group.create_task(_at(began_s, begin))
        calls = group.create_task(_calls(installation, access, jobs, began_s))
        group.create_task(_at(began_s + situation.begin * length_s, fail))
        group.create_task(_at(began_s + situation.end * length_s, lambda: installation.end(situation.fault)))
    await installation.restore(situation.fault)
    seen = await asyncio.to_thread(installation.seen)
    return Phase(
        began_s=began_s,
        length_s=length_s,
        fault_s=began_s + situation.begin * length_s,
        made=calls.result(),
        seen={each.number: each for each in seen},
        others_cores=others_cores,
    )


async def _calls(
    installation: Installation, access: Mapping[str, tuple[str, str]], jobs: Sequence[Job], began_s: float
) -> list[Made]:
    clients = Clients([gateway.port for gateway in installation.gateways], WEIGHTS, access)
    try:
        return await clients.make(jobs, began_s)
    finally:
        clients.close()


async def _at(at_s: float, do: Callable[[], None]) -> None:
    await asyncio.sleep(at_s - time.monotonic())
    do()
