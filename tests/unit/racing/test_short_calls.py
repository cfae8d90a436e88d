"""Thousands of short calls in virtual time, planned, hedged and learnt from as the gateway does it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil, inf
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gateway.api.purse import Allowance, Purse
from gateway.api.relayed_plans import HEDGED_PART, hedged
from gateway.core.attempts import WinOn
from gateway.core.calls import CallRecord, Mode, Objective
from gateway.core.prompt_classes import MeasuredApi, PromptClass
from gateway.fleet import Deployment, Model
from gateway.racing import AttemptTasks, OpenCall, Race, RelayedRequest, Seats, Services
from gateway.settings import RaceSettings
from gateway.steering import MemoryBoard, Steering, Terms
from providers import Price, Request, UpstreamAnswer
from tests.support.calls import made_call
from tests.unit.racing.track import CLOCKS, RelayedSink, Timetable
from tests.unit.racing.virtual_time import in_virtual_time

MODEL, NAMES = "vectors", ("a", "b")
BODY_S, STRAGGLER_S, KNEE_TOKENS = 0.2, 17.0, 2000.0
A_SECOND = 20  # calls
WARM_UP = 1000
PRICE = Price(input_usd=1e-6, output_usd=0.0)
SIZES = [8, 20, 60, 200, 200, 500, 1000, 2000, 4000]  # tokens


class Embedder(Timetable):
    """Answers after a time that is drawn: with the size of the request, and now and then far too late."""

    def __init__(self, dice: Random, sigma: float, stragglers: float) -> None:
        super().__init__("embedder")
        self._dice, self._sigma, self._stragglers = dice, sigma, stragglers

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        tokens = int(bytes(request.fields["input"]))
        request.sendings.number += 1
        drawn_s = BODY_S * (1 + tokens / KNEE_TOKENS) * self._dice.lognormvariate(0.0, self._sigma)
        await asyncio.sleep(STRAGGLER_S if self._dice.random() < self._stragglers else drawn_s)
        body = b'{"data":[],"usage":{"prompt_tokens":%d,"total_tokens":%d}}' % (tokens, tokens)
        return UpstreamAnswer(200, {}, body, None, 1.0, None)


class Course:
    """One gateway's part in such calls; ``records`` are those after the first thousand, which teach it."""

    def __init__(self, *, sigma: float, sizes: Sequence[int], race: RaceSettings, stragglers: float, seed: int) -> None:
        dice = self._dice = Random(seed)
        self._sizes = sizes
        loop = asyncio.get_running_loop()
        upstreams = {name: Embedder(Random(f"{seed}{name}"), sigma, stragglers) for name in NAMES}
        self._model = hedged(
            Model(
                name=MODEL,
                deployments={
                    name: Deployment(
                        name=name,
                        provider=name,
                        model="e5",
                        upstream=each,
                        clocks=CLOCKS,
                        price=PRICE,
                        bills_after_disconnect=None,
                        extra_body={},
                        upstream_stream=True,
                    )
                    for name, each in upstreams.items()
                },
                race=race,
            )
        )
        self._steering = Steering(
            MemoryBoard(), clock=loop.time, unix_clock=lambda: 1e9 + loop.time(), random=dice, catch_up=lambda: None
        )
        self._ids = iter(range(10**9))
        self._services = Services(
            recorder=cast("Any", self._steering),
            tasks=AttemptTasks(),
            seats=Seats(),
            clock=loop.time,
            new_id=lambda: str(next(self._ids)),
            utc_now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        )
        self.records: list[CallRecord] = []

    async def run(self, calls: int) -> None:
        """Have so many calls come."""
        background = asyncio.create_task(self._refresh())
        async with asyncio.TaskGroup() as group:
            for number in range(-WARM_UP, calls):
                await asyncio.sleep(self._dice.expovariate(A_SECOND))
                group.create_task(self._call(self._dice.choice(self._sizes), is_kept=number >= 0))
        background.cancel()
        await asyncio.wait([background])

    async def _refresh(self) -> None:
        while True:
            self._steering.refresh(most_s=inf)
            await asyncio.sleep(0.1)

    async def _call(self, tokens: int, *, is_kept: bool) -> None:
        model, fields = self._model, {"input": msgspec.Raw(str(tokens).encode())}
        prompt_class = PromptClass(MeasuredApi.EMBEDDINGS, 0 if tokens <= 1000 else 1 if tokens <= 8000 else 2)
        terms = Terms(
            Objective.FIRST_TOKEN,
            tokens,
            None,
            model.prices,
            watches=False,
            size_tokens=tokens,
            hedged_part=HEDGED_PART,
        )
        plan = self._steering.plan(MODEL, NAMES, model.race, terms, prompt_class)
        call = made_call(
            id=self._services.new_id(),
            received_at=self._services.clock(),
            started_at=self._services.utc_now(),
            client=None,
            model=MODEL,
            endpoint="embeddings",
            mode=model.race.mode,
            objective=Objective.FIRST_TOKEN,
            win_on=WinOn.ANY,
            prompt_class=prompt_class,
            prompt_tokens=tokens,
            inline_bytes=4 * tokens,
            wants_usage=False,
            fields=fields,
            headers={},
            tags={},
            replica="test",
            region=None,
        )
        open_call = OpenCall(self._services, call)
        context, entry = SimpleNamespace(steering=self._steering, services=self._services), SimpleNamespace()
        entry.model, entry.plan, entry.call = model, plan, call
        allowance = Allowance(Purse(cast("Any", context), open_call, {}), cast("Any", entry))
        outlet, reading = RelayedSink(), RelayedRequest(path="embeddings")
        may_launch = allowance.pay
        record = await Race(open_call, model, plan, outlet, reading=reading, may_launch=may_launch).run()
        assert isinstance(record, CallRecord)
        if is_kept:
            self.records.append(record)

    def total_s(self, q: float) -> float:
        """Return a quantile of the calls' times, seconds."""
        return sorted(each.total_ms for each in self.records)[ceil(q * len(self.records)) - 1] / 1000

    @property
    def extras(self) -> float:
        """Extra attempts per call."""
        return sum(each.extras or 0 for each in self.records) / len(self.records)

    @property
    def extra_usd(self) -> float:
        """What extra attempts cost, as a share of all."""
        total = sum(each.cost_usd or 0.0 for each in self.records)
        return sum(each.duplicate_cost_usd or 0.0 for each in self.records) / total


AUTO = RaceSettings(mode=Mode.AUTO)


@pytest.mark.parametrize("sigma", [0.2, 0.4])
def test_one_call_in_a_hundred_that_hangs_is_not_felt_and_costs_few_extra_attempts(sigma: float) -> None:
    @in_virtual_time
    async def test() -> None:
        course = Course(sigma=sigma, sizes=[8], race=AUTO, stragglers=0.01, seed=4)
        await course.run(4000)

        body = sorted(BODY_S * dice.lognormvariate(0.0, sigma) for dice in [Random(7)] for _ in range(100_000))
        q91, q95 = body[91_000], body[int(0.95 / 0.99 * 100_000)]
        assert course.extras <= 0.06
        assert course.extra_usd <= 0.06
        assert course.total_s(0.999) <= 1.1 * (q95 + q91) + 0.02

    test()


def test_with_requests_of_all_sizes_as_few_are_hedged_and_no_more_is_paid() -> None:
    @in_virtual_time
    async def test() -> None:
        course = Course(sigma=0.3, sizes=SIZES, race=AUTO, stragglers=0.01, seed=5)
        await course.run(3000)
        assert course.extras <= 0.06
        assert course.extra_usd <= 0.06

    test()
