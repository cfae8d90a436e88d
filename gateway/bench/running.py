"""Runs a bench: round by round, deployment by deployment, as many requests at a time as its level says."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from gateway.bench.journal import Journal, Past
from gateway.bench.measuring import Measured, Moments, asked_of, measure
from gateway.bench.plan import Contender, Plan, Turn, turns, warm_up
from gateway.bench.purse import Purse
from gateway.bench.sample import Key, Sample
from gateway.fleet.deployment import Deployment
from providers.errors import ErrorKind

_LONGEST_WAIT_S = 60.0  # after a rate limit
_HOPELESS = frozenset(
    {
        ErrorKind.PROVIDER_AUTH,
        ErrorKind.NOT_FOUND,
        ErrorKind.NO_SUCH_API,
        ErrorKind.CONNECT_ERROR,
        ErrorKind.DISCONNECTED,
    }
)


class BenchError(Exception):
    """The bench cannot go on; the message says why."""


class Watcher(Protocol):
    """Is told of what happens."""

    def turn(self, turn: Turn) -> None:
        """Tell whose turn it is."""

    def measured(self, measured: Measured, spent_usd: float) -> None:
        """Tell of a finished request."""

    def waits(self, deployment: str, seconds: float) -> None:
        """Tell of a wait for a rate limit."""


class Bench:
    """A bench that runs. ``stopped_at_cap`` is set when the next round could not be paid."""

    def __init__(
        self,
        plan: Plan,
        deployments: Mapping[str, Deployment],
        journal: Journal,
        past: Past,
        purse: Purse,
        *,
        watcher: Watcher,
        moments: Moments,
    ) -> None:
        """``past``: what the journal knows already; it is extended with new samples."""
        self.stopped_at_cap = False
        self._plan = plan
        self._deployments = deployments
        self._journal = journal
        self._past = past
        self._purse = purse
        self._watcher = watcher
        self._moments = moments
        self._sitting = past.sittings
        self._done = {sample.key for sample in past.samples}
        self._in_flight = dict.fromkeys(deployments, 0)
        for sent in past.sent:
            purse.sent(sent.key, sent.sitting, sent.most_usd)
        for sample in past.samples:
            purse.done(sample)

    async def run(self) -> Sequence[Sample]:
        """Run what is left of the plan; return all samples, those of earlier starts too.

        Raises:
            BenchError: a deployment cannot be asked at all.
            JournalError: the journal cannot be written.

        """
        rounds = [round_ for round_ in range(self._plan.rounds) if self._left(turns(self._plan, round_))]
        if rounds:
            self._journal.sitting(self._sitting)
            await self._warm_up(rounds[0])
        for round_ in rounds:
            if self.stopped_at_cap:
                break
            left = self._left(turns(self._plan, round_))
            if not self._purse.pays(key for turn in left for key in turn.keys):
                self.stopped_at_cap = True
                break
            for turn in left:
                await self._take(turn)
        return self._past.samples

    async def _warm_up(self, first: int) -> None:
        """Warm up, and fail if one deployment could not be asked at all."""
        warming = list(warm_up(self._plan))
        needed = [key for turn in [*warming, *self._left(turns(self._plan, first))] for key in turn.keys]
        if not self._purse.pays(needed):
            self.stopped_at_cap = True
            return
        for turn in warming:
            measured = await self._take(turn)
            errors = [each for each in measured if each.sample.error_kind is not None]
            if len(errors) == len(measured) and errors[-1].sample.error_kind in _HOPELESS:
                raise BenchError(f"{turn.contender.name} cannot be asked: {errors[-1].message}")

    async def _take(self, turn: Turn) -> list[Measured]:
        """Send the requests of a turn, ``concurrency`` at a time: the next one when one has ended."""
        self._watcher.turn(turn)
        waiting, results = list(reversed(turn.keys)), list[Measured]()

        async def work() -> None:
            while waiting:
                measured = await self._ask(turn.contender, waiting.pop())
                results.append(measured)
                if measured.retry_after_s is not None and waiting:
                    wait_s = min(measured.retry_after_s, _LONGEST_WAIT_S)
                    self._watcher.waits(turn.contender.name, wait_s)
                    await asyncio.sleep(wait_s)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(turn.concurrency, len(turn.keys))):
                    group.create_task(work())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return results

    async def _ask(self, contender: Contender, key: Key) -> Measured:
        most_usd = self._purse.most_usd(key)
        self._purse.sent(key, self._sitting, most_usd)
        self._journal.sent(key, self._sitting, most_usd)
        asked = asked_of(self._plan, contender, key, self._sitting)
        self._in_flight[contender.name] += 1
        try:
            measured = await measure(
                asked,
                self._deployments[contender.name],
                key,
                sitting=self._sitting,
                in_flight=self._in_flight[contender.name],
                moments=self._moments,
            )
        finally:
            self._in_flight[contender.name] -= 1
        self._journal.done(measured.sample)
        self._purse.done(measured.sample)
        self._past.samples.append(measured.sample)
        self._watcher.measured(measured, self._purse.committed_usd)
        return measured

    def _left(self, all_turns: Iterable[Turn]) -> list[Turn]:
        """Return the turns of a round without the requests that were answered before."""
        left = []
        for turn in all_turns:
            keys = tuple(key for key in turn.keys if key not in self._done)
            if keys:
                left.append(Turn(turn.contender, turn.concurrency, keys))
        return left
