"""The modes as a table of strategies: how many attempts each launches besides the primary, and when.

``auto`` decides by the call's expected gain, within the budget; the others have fixed rules. The planner selects the
deployments.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol

import msgspec

from gateway.core.calls import Mode
from gateway.settings import RaceSettings
from gateway.steering.budget import raced_share
from gateway.steering.plans import Launch, Why

Start = tuple[float, Why]  # of a further attempt: its delay after the plan in seconds, and the reason


class Planned(Protocol):
    """The part of a plan that strategies read."""

    race: RaceSettings
    launches: list[Launch]
    long_prompt: bool  # never raced, only hedged: each attempt pays for its prompt
    cost_first: bool  # under ``cost``
    random: Random

    def late(self) -> Start:
        """Return the start of a hedge that the budget pays for."""


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one mode."""

    starts: Callable[[Planned], Sequence[Start]]  # of each further attempt
    decides: bool = False  # omits attempts without an expected gain; races at a cold start; explores new deployments
    in_turn: bool = False  # one deployment after the other, so that the next one is not an extra attempt
    races_itself: bool = False  # a model's only deployment gets two attempts, which also helps against a slow tail
    waits_for_the_deadline: Callable[[Planned], bool] = lambda _: False  # for calls that may miss ``ttft_ms``
    fills_with: Callable[[RaceSettings], int] = lambda _: 0  # other deployments; with fewer there is no slot to explore
    raced_share: Callable[[RaceSettings], float] = lambda _: 0.0  # of calls that are raced from the start


def _hedged(plan: Planned) -> Sequence[Start]:
    delay_s = plan.race.hedge_delay_s
    if delay_s is None:
        return [plan.late()]
    asked = (delay_s, Why.ASKED_DELAY)
    return [max(asked, plan.late()) if plan.long_prompt else asked]


def _raced(plan: Planned) -> Sequence[Start]:
    return [plan.late()] if plan.long_prompt else [(0.0, Why.WIDTH)] * (plan.race.width - len(plan.launches))


def _within_the_budget(plan: Planned) -> Sequence[Start]:
    if plan.long_prompt:
        return [plan.late()]
    # Above one attempt per call races become wider.
    budget, random, raced = plan.race.budget, plan.random, (0.0, Why.BUDGET)
    starts = [raced if random.random() < raced_share(budget) else plan.late()]
    beyond = budget - 1.0
    while beyond > 0:
        if beyond >= 1 or random.random() < beyond:
            starts.append(raced)
        beyond -= 1.0
    return starts


STRATEGIES: Mapping[Mode, Strategy] = {
    Mode.SINGLE: Strategy(starts=lambda _: (), in_turn=True),
    Mode.HEDGE: Strategy(
        starts=_hedged,
        races_itself=True,
        waits_for_the_deadline=lambda plan: plan.race.hedge_delay_s is None and plan.race.ttft_ms is not None,
    ),
    Mode.RACE: Strategy(
        starts=_raced, races_itself=True, fills_with=lambda race: race.width, raced_share=lambda _: 1.0
    ),
    Mode.AUTO: Strategy(
        starts=_within_the_budget,
        decides=True,
        waits_for_the_deadline=lambda plan: plan.cost_first or plan.race.ttft_ms is not None,
        raced_share=lambda race: round(raced_share(race.budget), 1),  # in steps, so that lineups can be kept
    ),
}
