"""Probes of a whole gateway in virtual time: who is probed and when, over hours."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.api import GatewayPhase
from gateway.app import Gateway
from gateway.core.attempts import AttemptStart, Role
from gateway.core.prompt_classes import answer_class
from gateway.core.records import DailyFacts, Decide, NotProbed, Probe, ProbeEnd, ProbeOutcome, ProbesUnreachable
from gateway.settings import load
from tests.app.gateway.running_gateway import write
from tests.schedules.loop import ShuffledLoop
from tests.schedules.providers import Simulated
from tests.schedules.simulation import FOLDER, UNIX_S, MemoryStore, virtual_runtime
from tests.support.behaviour import Behaviour

NAMES = ("ada", "bee")
QUIET_S = 300.0
HOUR = 3600.0
A_WHILE_S = 900.0  # in which each is probed twice, at least
SLACK_S = 100.0  # between two looks there are up to 18 s, and a refused probe is asked for again after a minute


class MemoryBook:
    """The book of one process; ``away``: the database is."""

    def __init__(self) -> None:
        self.probes: dict[str, Probe] = {}
        self.ends: dict[str, ProbeEnd] = {}
        self.refused: Counter[NotProbed] = Counter()
        self.away = False
        self.closed = False

    async def reserve(self, probe: Probe, decide: Decide, *, since: datetime) -> NotProbed | None:
        await asyncio.sleep(0.001)
        if self.away:
            raise ProbesUnreachable("it is away")
        today = [each for each in self.probes.values() if each.started_at.date() == probe.started_at.date()]
        own = [each for each in self.probes.values() if each.deployment == probe.deployment]
        told = [self.ends[each.id].outcome for each in reversed(own) if each.id in self.ends]
        failures = next((at for at, one in enumerate(told) if one is not ProbeOutcome.FAILED), len(told))
        spent_usd = sum(self._usd(each) for each in today)
        facts = DailyFacts(
            spent_usd=spent_usd,
            probes=len(today),
            probed_at=own[-1].started_at if own else None,
            failures=failures,
        )
        reason = decide(facts)
        if reason is None:
            self.probes[probe.id] = probe
        else:
            self.refused[reason] += 1
        return reason

    async def settle(self, probe_id: str, end: ProbeEnd) -> None:
        await asyncio.sleep(0.001)
        self.ends[probe_id] = end

    async def aclose(self) -> None:
        self.closed = True

    @property
    def usd(self) -> float:
        return sum(map(self._usd, self.probes.values()))

    def at(self, name: str) -> list[float]:
        """Return when a provider's deployment was probed, in seconds since the start."""
        return [each.started_at.timestamp() - UNIX_S for each in self.probes.values() if each.deployment == f"{name}/m"]

    def _usd(self, probe: Probe) -> float:
        cost_usd = self.ends[probe.id].cost_usd if probe.id in self.ends else None
        return probe.reserved_usd if cost_usd is None else cost_usd


class Hours:
    """Some hours of a gateway without clients."""

    def __init__(self, gateway: Gateway, book: MemoryBook, providers: dict[str, Simulated], store: MemoryStore) -> None:
        self.gateway = gateway
        self.book = book
        self.providers = providers
        self.store = store

    def use(self, name: str) -> None:
        """Have an attempt of a call run and end there."""
        start = AttemptStart(
            f"{name}-call", 1, datetime.fromtimestamp(UNIX_S, UTC), Role.PRIMARY, name, f"{name}/m", 0.0
        )
        health = self.gateway.steering.health_of(f"{name}/m")
        self.gateway.steering.attempt_started("m", start)
        self.gateway.steering.first_token("m", answer_class(0), start, 0.1)
        health.ended()


def hours(
    act: Callable[[Hours], Awaitable[None]],
    *,
    behaviours: dict[str, Sequence[Behaviour]] | None = None,
    model: dict[str, Any] | None = None,
    price: dict[str, float] | None = None,
    **probes: Any,
) -> Hours:
    """Run a gateway that probes after five minutes, in virtual time, until ``act`` ends; then close it."""
    dice = Random(7)
    loop = ShuffledLoop(dice, 0.0)
    asyncio.set_event_loop(loop)
    try:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            living = _living(act, Path(folder), loop, dice, behaviours or {}, model or {}, price, probes)
            result = loop.run_until_complete(living)
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        assert not left
        assert not loop.pending_timers
        return result
    finally:
        loop.close()
        asyncio.set_event_loop(None)


async def _living(  # noqa: PLR0917 - called once, above
    act: Callable[[Hours], Awaitable[None]],
    folder: Path,
    loop: ShuffledLoop,
    dice: Random,
    behaviours: dict[str, Sequence[Behaviour]],
    model: dict[str, Any],
    price: dict[str, float] | None,
    probes: dict[str, Any],
) -> Hours:
    providers = {name: Simulated(name, behaviours.get(name, ()), loop) for name in NAMES}
    book, store = MemoryBook(), MemoryStore([])
    runtime = virtual_runtime(loop, dice, lambda name, *_: providers[name].open(), store, probe_book=book)
    price = price or {"input": 1.0, "output": 2.0}
    data = {
        "database_url": "sqlite:////nowhere/holeshot.db",
        "spool_dir": str(folder / "spool"),
        "replica": "simulated",
        "log_level": "error",
        "probes": {"enabled": True, "quiet_s": QUIET_S, "usd_per_day": 10.0, **probes},
        "providers": {name: {"base_url": f"http://{name}.test/v1", "api_key": "k"} for name in NAMES},
        "models": {
            "m": {"deployments": [{"deployment": f"{name}/m", "price_per_mtok": price} for name in NAMES]} | model
        },
    }
    gateway = Gateway(load(write(data, folder), {}), runtime)
    found = Hours(gateway, book, providers, store)
    await gateway.start()
    try:
        await act(found)
    finally:
        await gateway.close()
    return found


async def an_hour(_: Hours) -> None:
    await asyncio.sleep(HOUR)


async def a_while(_: Hours) -> None:
    await asyncio.sleep(A_WHILE_S)


def test_each_quiet_deployment_is_probed_each_quiet_s() -> None:
    found = hours(an_hour)
    for name in NAMES:
        at = found.book.at(name)
        assert at[0] < SLACK_S  # nothing is known of it
        pauses = [later - sooner for sooner, later in pairwise(at)]
        assert all(QUIET_S <= pause < QUIET_S + SLACK_S for pause in pauses), pauses
        assert len(at) >= HOUR / (QUIET_S + SLACK_S)
    assert {end.outcome for end in found.book.ends.values()} == {ProbeOutcome.ANSWERED}
    assert not found.store.calls
    assert {attempt.role for attempt in found.store.attempts.values()} == {Role.PROBE}
    assert found.store.attempts.keys().isdisjoint(found.book.probes)
    assert {each.call_id for each in found.store.attempts.values()} == set(found.book.probes)
    assert found.book.closed


def test_one_that_calls_use_is_never_probed() -> None:
    async def busy(running: Hours) -> None:
        for _ in range(15):
            running.use("ada")
            await asyncio.sleep(60)

    found = hours(busy)
    assert not found.book.at("ada")
    assert len(found.book.at("bee")) >= 2


def test_nothing_is_sent_while_it_is_off() -> None:
    found = hours(a_while, enabled=False)
    assert not found.book.probes
    assert not any(provider.asked for provider in found.providers.values())


@pytest.mark.parametrize(("own", "probed"), [(True, True), (False, False)])
def test_a_model_may_say_otherwise(own: bool, probed: bool) -> None:
    found = hours(a_while, enabled=not own, model={"probes": own})
    assert bool(found.book.probes) is probed


@pytest.mark.parametrize("refusal", ["provider_auth", "not_found"])
def test_one_that_refuses_the_key_gets_one_probe_and_no_more(refusal: str) -> None:
    found = hours(a_while, behaviours={"ada": [Behaviour(refusal=refusal)]})
    assert len(found.providers["ada"].asked) == 1
    assert len(found.book.at("bee")) >= 2


def test_an_outage_sees_ever_fewer_probes_and_then_none() -> None:
    """Failures double the pause: a fourth one in a row opens the breaker, and a call has to close it."""
    found = hours(lambda _: asyncio.sleep(HOUR), behaviours={"ada": [Behaviour(refusal="server_error")]}, quiet_s=60)
    at = found.book.at("ada")
    assert len(at) == 4
    pauses = [later - sooner for sooner, later in pairwise(at)]
    assert [60 * 2**failures <= pause < 60 * 2**failures + SLACK_S for failures, pause in enumerate(pauses, start=1)]
    assert not found.gateway.steering.leaderboard("m").deployments[0].deployment.startswith("ada")


def test_one_with_an_open_breaker_gets_none() -> None:
    async def broken(running: Hours) -> None:
        health = running.gateway.steering.health_of("ada/m")
        health.open_breaker(running.gateway.context.services.clock())
        await asyncio.sleep(A_WHILE_S)

    found = hours(broken)
    assert not found.providers["ada"].asked
    assert len(found.book.at("bee")) >= 2


def test_retry_after_is_heeded() -> None:
    limited = Behaviour(refusal="rate_limited", retry_after_s=60.0)
    found = hours(a_while, behaviours={"ada": [limited, Behaviour()]}, quiet_s=5)
    first, second, *_ = found.book.at("ada")
    assert second - first >= 60


def test_the_money_of_a_day_is_never_exceeded() -> None:
    found = hours(an_hour, usd_per_day=0.001, quiet_s=10)
    assert 0 < found.book.usd <= 0.001
    assert found.book.refused[NotProbed.MONEY]
    most = max(probe.reserved_usd for probe in found.book.probes.values())
    assert found.book.usd > 0.001 - most  # and it is used


def test_the_number_of_a_day_is_never_exceeded() -> None:
    found = hours(a_while, max_per_day=3, quiet_s=10)
    assert len(found.book.probes) == 3


def test_nothing_is_sent_that_cannot_be_counted() -> None:
    async def away(running: Hours) -> None:
        running.book.away = True
        await asyncio.sleep(A_WHILE_S)
        assert not any(provider.asked for provider in running.providers.values())
        running.book.away = False
        await asyncio.sleep(QUIET_S)

    assert hours(away).book.probes


def test_a_gateway_that_stops_or_has_too_much_to_do_probes_nothing() -> None:
    async def crowded(running: Hours) -> None:
        intake = running.gateway.context.intake
        while intake.enter():
            pass
        await asyncio.sleep(A_WHILE_S)
        while intake.in_flight:
            intake.leave()
        running.gateway.context.phase = GatewayPhase.LAME_DUCK
        await asyncio.sleep(A_WHILE_S)

    assert not hours(crowded).book.probes


def test_a_probe_takes_no_seat_from_a_call() -> None:
    async def full(running: Hours) -> None:
        line = running.gateway.context.services.seats.lines["ada/m"]
        line.taken = 1
        await asyncio.sleep(A_WHILE_S)
        line.taken = 0

    seats = {"deployments": [{"deployment": "ada/m", "max_in_flight": 1, "price_per_mtok": {"input": 1, "output": 1}}]}
    assert not hours(full, model=seats).book.probes


def test_one_that_runs_when_the_gateway_stops_is_cancelled_and_recorded() -> None:
    async def until_it_hangs(running: Hours) -> None:
        while not running.providers["ada"].under_way:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(1)

    found = hours(until_it_hangs, behaviours={"ada": [Behaviour(stalls_at=0)], "bee": [Behaviour(stalls_at=0)]})
    assert found.book.probes.keys() == found.book.ends.keys()
    assert {end.outcome for end in found.book.ends.values()} == {ProbeOutcome.CANCELLED}
    assert not found.providers["ada"].under_way


def test_an_answer_that_does_not_end_is_cut() -> None:
    found = hours(a_while, behaviours={"ada": [Behaviour(tokens=100_000, gap_s=0.001)]}, quiet_s=3000)
    [first, *_] = found.providers["ada"].asked
    assert first.deltas < 1000
    assert found.book.ends[next(iter(found.book.probes))].cost_usd is not None
