"""Steering: plans calls from what earlier ones taught, and learns from each attempt as it ends.

It is the one object the other rooms know here: the race asks it for a plan and for permits, and it hears of everything
through the ``Recorder`` protocol. Nothing in it waits; the clocks and the randomness are handed in, so a simulator can
drive it through a day in seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random

import structlog

from gateway.calls import AttemptRecord, AttemptStart, CallRecord, CallStart, Outcome, Role, TokensSource
from gateway.settings.model import RaceSettings
from gateway.steering import planner
from gateway.steering.board import Board, slot_of
from gateway.steering.budget import Budget
from gateway.steering.health import Health
from gateway.steering.leaderboard import Leaderboard, busiest_class, rank, row
from gateway.steering.planner import Candidate, Plan
from gateway.steering.snapshots import Snapshots
from gateway.steering.tally import (
    OUTPUT_TOKENS,
    REQUESTS,
    Counts,
    Tally,
    censored_field,
    event_field,
    read_tallies,
)
from providers.errors import ErrorKind

_log = structlog.get_logger(__name__)

_OPERATORS = frozenset({ErrorKind.PROVIDER_AUTH, ErrorKind.NOT_FOUND})
_CUT = frozenset({Outcome.LOST, Outcome.SUPERSEDED, Outcome.CLIENT_GONE})
_BROKEN = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.STALLED})


class Steering:
    """The policy at work in one replica, for all models."""

    def __init__(
        self, board: Board, *, clock: Callable[[], float], unix_clock: Callable[[], float], random: Random
    ) -> None:
        self._board = board
        self._clock = clock  # monotonic seconds
        self._unix_clock = unix_clock  # seconds since 1970, for slots that replicas agree on
        self._random = random
        self._snapshots = Snapshots(board, clock, unix_clock)
        self._health: dict[str, Health] = {}  # by deployment: a cool-down holds for every model it serves
        self._budgets: dict[str, Budget] = {}
        self._configured: dict[str, tuple[str, ...]] = {}  # deployments by model
        self._planned: dict[str, tuple[str, ...]] = {}  # by model as last planned: clients may name their own
        self._slot = 0

    def plan(
        self, model: str, deployments: Sequence[str], race: RaceSettings, *, prompt_class: int, prompt_tokens: int
    ) -> Plan:
        """Choose who runs a call, when. Counts the call towards the model's budget."""
        now_s = self._clock()
        names = self._planned.get(model)
        if names != tuple(deployments):
            names = self._planned[model] = tuple(dict.fromkeys(deployments))
        budget = self._budget(model)
        budget.accrue(race.budget)
        standings = self._snapshots.of(model, prompt_class)
        candidates = []
        for name in names:
            estimate = standings.of(name)
            condition = self._health_of(name).condition(now_s)
            candidates.append(Candidate(name, estimate, condition, estimate.score_s + condition.price_s))
        plan = planner.plan(candidates, race, prompt_tokens=prompt_tokens, tokens=budget.tokens, random=self._random)
        for launch in plan.launches:
            if launch.role is Role.EXPLORE:
                self._health[launch.deployment].probed(now_s)
        self._forget()
        return plan

    def permit(self, model: str, role: Role, ratio: float) -> bool:
        """Return whether an attempt may start now, and charge it if it is extra.

        Asked at the instant the attempt would start. ``ratio`` is the call's ``race.budget``.
        """
        return self._budget(model).draw(role, ratio)

    def call_started(self, start: CallStart) -> None:
        """Nothing to learn yet."""

    def attempt_started(self, model: str, start: AttemptStart) -> None:  # noqa: ARG002 - the Recorder's signature
        """Count it in flight."""
        self._health_of(start.deployment).in_flight += 1

    def first_token(self, model: str, prompt_class: int, deployment: str, ttft_s: float) -> None:
        """Count an event, and believe that the deployment is well."""
        self._count(model, {event_field(deployment, prompt_class, ttft_s): 1.0})
        q95_s = self._q95_s(model, prompt_class, deployment)
        if self._health_of(deployment).delivered(ttft_s, q95_s, self._clock()):
            _log.info("steering.recovered", model=model, deployment=deployment)

    def attempt_ended(self, model: str, prompt_class: int, attempt: AttemptRecord) -> None:
        """Count what became of it: an event's attempt, a censored age, or an error."""
        health = self._health_of(attempt.deployment)
        health.in_flight = max(0, health.in_flight - 1)
        if attempt.outcome in _BROKEN:
            self._broken(model, attempt, health)
        elif attempt.outcome in _CUT and attempt.censored_at_ms is not None:
            age_s = attempt.censored_at_ms / 1000
            self._count(model, {censored_field(attempt.deployment, prompt_class, age_s): 1.0})
            health.cut(age_s, self._q95_s(model, prompt_class, attempt.deployment), self._clock())
        elif attempt.outcome is Outcome.WON or attempt.outcome in _CUT:
            counts = {f"{attempt.deployment}|n": 1.0, **_speed(attempt)}
            if attempt.outcome is Outcome.WON:
                counts[f"{attempt.deployment}|won"] = 1.0
            self._count(model, counts)

    def call_finished(self, record: CallRecord) -> None:
        """Learn how long answers are, and whether the primary hung.

        A primary overtaken at an age that is normal for it has done nothing wrong; only one that was due gets a strike.
        """
        if record.status_code < 400 and record.completion_tokens is not None:  # noqa: PLR2004 - HTTP's first error
            self._count(record.model, {REQUESTS: 1.0, OUTPUT_TOKENS: float(record.completion_tokens)})
        for attempt in record.attempts:
            if (
                attempt.role is not Role.PRIMARY
                or attempt.outcome is not Outcome.LOST
                or attempt.censored_at_ms is None
            ):
                continue
            if attempt.censored_at_ms / 1000 >= self._q95_s(record.model, record.prompt_class, attempt.deployment):
                self._strike(record.model, attempt.deployment, "hangs")

    def leaderboard(self, model: str) -> Leaderboard:
        """Return what is published of one model, up to this instant."""
        now_s = self._clock()
        tallies = read_tallies(self._board.counts(model, self._unix_clock(), half_life_s=inf))
        prompt_class = busiest_class(tallies)
        standings = self._snapshots.fresh(model, prompt_class)
        won = sum(tally.won for tally in tallies.values())
        rows = []
        for name in self._configured.get(model) or self._planned.get(model) or tuple(tallies):
            health = self._health.get(name) or Health()
            condition = health.condition(now_s)
            score_s = standings.of(name).score_s + condition.price_s
            rows.append(row(name, tallies.get(name, Tally()), won, score_s, condition))
        return Leaderboard(model, prompt_class, rank(rows))

    def leaderboards(self) -> tuple[Leaderboard, ...]:
        """Return what is published of every model known, by name."""
        return tuple(
            self.leaderboard(model) for model in sorted({*self._configured, *self._planned, *self._board.models()})
        )

    def reset(self, models: Mapping[str, Sequence[str]]) -> None:
        """Take a configuration, the deployments of each model: at the start and when it is reloaded.

        What was learned is kept; deployments that were out are given another chance.
        """
        self._configured = {model: tuple(names) for model, names in models.items()}
        for health in self._health.values():
            health.reload()
        for model in models:
            self._board.version(model, self._unix_clock())

    def _broken(self, model: str, attempt: AttemptRecord, health: Health) -> None:
        name, kind, now_s = attempt.deployment, attempt.error_kind, self._clock()
        if kind == ErrorKind.BAD_REQUEST:
            return  # the client's own fault counts against nobody
        if kind == ErrorKind.RATE_LIMITED:
            health.rate_limited(attempt.retry_after_s, now_s)
            return
        self._count(model, {f"{name}|n": 1.0, f"{name}|err": 1.0})
        if kind in _OPERATORS:
            if health.refuse(now_s):
                _log.warning("steering.out", model=model, deployment=name, kind=kind, hint=_HINTS[ErrorKind(kind)])
            return
        if attempt.retry_after_s is not None:
            health.cool(attempt.retry_after_s, now_s)  # a 503 that says when to come back
        if attempt.ttft_ms is None:
            self._strike(model, name, kind)

    def _strike(self, model: str, deployment: str, cause: str | None) -> None:
        if self._health_of(deployment).strike(self._clock()):
            _log.warning("steering.opened", model=model, deployment=deployment, cause=cause)

    def _count(self, model: str, counts: Counts) -> None:
        self._board.add(model, counts, self._unix_clock())

    def _q95_s(self, model: str, prompt_class: int, deployment: str) -> float:
        return self._snapshots.of(model, prompt_class).of(deployment).q95_s

    def _health_of(self, deployment: str) -> Health:
        health = self._health.get(deployment)
        if health is None:
            health = self._health[deployment] = Health()
        return health

    def _budget(self, model: str) -> Budget:
        budget = self._budgets.get(model)
        if budget is None:
            budget = self._budgets[model] = Budget()
        return budget

    def _forget(self) -> None:
        """Once per slot, let go of models nobody calls any more: clients may name their own."""
        slot = slot_of(self._unix_clock())
        if slot == self._slot:
            return
        self._slot = slot
        models = self._snapshots.forget()
        self._planned = {model: names for model, names in self._planned.items() if model in models}
        self._budgets = {model: budget for model, budget in self._budgets.items() if model in models}
        used = {name for names in (*self._configured.values(), *self._planned.values()) for name in names}
        self._health = {name: health for name, health in self._health.items() if name in used or health.in_flight}


def _speed(attempt: AttemptRecord) -> Counts:
    """Return decode tokens and seconds, if known and the provider's own count."""
    if attempt.decode_tps is None or attempt.tokens_source is not TokensSource.REPORTED:
        return {}
    if attempt.last_token_ms is None or attempt.ttft_ms is None:
        return {}
    seconds = (attempt.last_token_ms - attempt.ttft_ms) / 1000
    return {f"{attempt.deployment}|tok": attempt.decode_tps * seconds, f"{attempt.deployment}|sec": seconds}


_HINTS = {
    ErrorKind.PROVIDER_AUTH: "the provider refuses the key: set a valid one and reload",
    ErrorKind.NOT_FOUND: "the provider does not know this model: correct its name and reload",
}
