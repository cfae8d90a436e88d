"""The gateway's own policy, as it ships: ``Steering`` over a board, with its clocks and its dice handed in."""

from collections.abc import Mapping, Sequence
from enum import Enum
from math import inf
from random import Random

from msgspec.structs import replace

from benchmarks.steering.policy import MODEL, Policy
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request
from benchmarks.steering.worlds import TIMEOUT_S, World
from gateway.core.attempts import AttemptRecord, AttemptStart
from gateway.core.calls import CallRecord, Objective
from gateway.settings import RaceSettings
from gateway.steering import Demands, Launch, Plan, Steering, Strikes, Terms
from gateway.steering.board import Board
from providers import Price

UNIX_S = 1_767_225_600.0  # when the simulated time begins


class Lengths(Enum):
    """What is known of how long an answer will be."""

    BY_MODEL = "by model"  # the mean of all answers
    BY_KIND = "by kind"  # as it ships
    TOLD = "told"  # the very length: nobody can know it, so this is the reference


class GatewayPolicy(Policy):
    """One replica's steering."""

    def __init__(
        self,
        board: Board,
        timeline: Timeline,
        random: Random,
        *,
        race: RaceSettings,
        objective: Objective,
        world: World,
        lengths: Lengths = Lengths.BY_KIND,
        holds: bool = False,
        strikes: Strikes | None = None,
    ) -> None:
        """Steer by ``board``."""
        self._steering = Steering(
            board,
            clock=lambda: timeline.now_s,
            unix_clock=lambda: UNIX_S + timeline.now_s,
            random=random,
            strikes=strikes,
        )
        self._race = race
        self._objective = objective
        self._lengths = lengths
        self._holds = holds
        self._prices: Mapping[str, Price] = {
            each.name: Price(input_usd=each.usd_per_mtok / 1e6, output_usd=3 * each.usd_per_mtok / 1e6)
            for each in world.providers
        }

    def plan(self, request: Request, names: Sequence[str], *, beside: str | None = None) -> Plan:
        """Plan as the API would ask for it; ``beside``: the late model that this one runs beside."""
        terms = replace(self._terms(request), ttft_s=dict.fromkeys(names, TIMEOUT_S), demands=Demands(beside=beside))
        return self._steering.plan(MODEL, names, self._race, terms, request.prompt_class)

    def _terms(self, request: Request) -> Terms:
        terms = Terms(self._objective, request.prompt_tokens, prices=self._prices, holds=self._holds)
        if self._lengths is Lengths.BY_MODEL or request.kind is None:
            return terms
        if self._lengths is Lengths.TOLD:
            return replace(terms, answer_tokens=float(request.answer_tokens))
        return replace(terms, max_tokens=request.kind.max_tokens, kind=request.kind)

    def refresh(self) -> None:
        """Do what the gateway does in the background."""
        self._steering.refresh(most_s=inf)  # by whose clock it would be late is nothing to the simulation

    def permit(self, launch: Launch) -> bool:
        return self._steering.draw_extra(MODEL, launch, self._race, cost_usd=None) is None

    def turn_s(self, free_in_s: float) -> float:
        return self._steering.turn_s(MODEL, free_in_s)

    def runs_on(self, plan: Plan, attempts: Sequence[str]) -> bool:
        """Return whether a primary that another model has overtaken runs on."""
        return self._steering.runs_on(MODEL, plan, attempts)

    def is_broken(self, deployment: str) -> bool:
        """Return whether a deployment is out, broken or cooling down."""
        return bool(self._steering.not_asked((deployment,), ()))

    def attempt_started(self, start: AttemptStart) -> None:
        self._steering.attempt_started(MODEL, start)

    def first_token(self, request: Request, start: AttemptStart, ttft_s: float) -> None:
        self._steering.first_token(MODEL, request.prompt_class, start, ttft_s)

    def attempt_ended(self, request: Request, attempt: AttemptRecord) -> None:
        self._steering.attempt_ended(MODEL, request.prompt_class, attempt)

    def call_finished(self, record: CallRecord) -> None:
        self._steering.call_finished(record)
