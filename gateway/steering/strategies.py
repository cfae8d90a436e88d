"""The modes as a table of strategies: how many attempts each launches besides the primary, and when.

``auto`` decides by the call's expected gain, within the budget; the others have fixed rules. The planner selects the
deployments.
"""

from collections.abc import Callable, Mapping, Sequence
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
    raced: int  # further attempts to start with the call: what ``asks`` says within the limited budget
    long_prompt: bool  # never raced, only hedged: each attempt pays for its prompt
    cost_first: bool  # under ``cost``

    def late(self) -> Start:
        """Return the start of a hedge that the budget pays for."""


class Strategy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one mode."""

    starts: Callable[[Planned], Sequence[Start]]  # of each further attempt
    # The number of further attempts that settings ask for at the start of a call, for its draw in (0, 1).
    asks: Callable[[RaceSettings, float], int] = lambda _, __: 0
    decides: bool = False  # omits attempts without an expected gain; races at a cold start; explores new deployments
    hedges: bool = False  # one further attempt, if the primary is late; settings say how late, and it may be withheld
    in_turn: bool = False  # one deployment after the other: the next attempt is no extra one
    races_itself: bool = False  # a model's only deployment gets two attempts, which also helps against a slow tail
    # Whether the further attempt is for calls that may miss ``ttft_ms``; by the settings, and whether cost comes first.
    waits_for_the_deadline: Callable[[RaceSettings, bool], bool] = lambda _, __: False
    fills_with: Callable[[RaceSettings], int] = lambda _: 0  # other deployments; with fewer there is no slot to explore
    raced_share: Callable[[RaceSettings], float] = lambda _: 0.0  # of calls that are raced from the start


def _hedged(plan: Planned) -> Sequence[Start]:
    delay_s = plan.race.hedge_delay_s
    if delay_s is None:
        return [plan.late()]
    asked_delay = (delay_s, Why.ASKED_DELAY)
    return [max(asked_delay, plan.late()) if plan.long_prompt else asked_delay]


def _raced(plan: Planned) -> Sequence[Start]:
    return [plan.late()] if plan.long_prompt else [(0.0, Why.WIDTH)] * (plan.race.width - len(plan.launches))


def _within_the_budget(plan: Planned) -> Sequence[Start]:
    return [plan.late()] if plan.long_prompt or not plan.raced else [(0.0, Why.BUDGET)] * plan.raced


def _bought(race: RaceSettings, drawn: float) -> int:
    """Return how many attempts the budget buys a call at its start: above one attempt per call races become wider.

    For example, a budget of 1.5 buys one further attempt, and in half of the calls two.
    """
    if race.budget <= 1.0:
        return int(drawn < raced_share(race.budget))
    whole = int(race.budget)
    return whole + (drawn < race.budget - whole)


STRATEGIES: Mapping[Mode, Strategy] = {
    Mode.SINGLE: Strategy(starts=lambda _: (), in_turn=True),
    Mode.HEDGE: Strategy(
        starts=_hedged,
        hedges=True,
        races_itself=True,
        waits_for_the_deadline=lambda race, _: race.hedge_delay_s is None and race.ttft_ms is not None,
    ),
    Mode.RACE: Strategy(
        starts=_raced,
        asks=lambda race, _: race.width - 1,
        races_itself=True,
        fills_with=lambda race: race.width,
        raced_share=lambda _: 1.0,
    ),
    Mode.AUTO: Strategy(
        starts=_within_the_budget,
        asks=_bought,
        decides=True,
        waits_for_the_deadline=lambda race, cost_first: cost_first or race.ttft_ms is not None,
        raced_share=lambda race: round(raced_share(race.budget), 1),  # in steps, so that lineups can be kept
    ),
}
