"""The clairvoyant: it knows what every deployment would draw for this call, and asks the best one only.

It knows the present, not the future: with queues and rate limits it is greedy, and others may be better off in the end.
"""

from collections.abc import Sequence

from benchmarks.steering.fleet import Answer, Fleet
from benchmarks.steering.policy import Policy
from benchmarks.steering.timeline import Timeline
from benchmarks.steering.traffic import Request
from gateway.core.attempts import Role
from gateway.core.calls import Mode, Objective
from gateway.steering import Launch, Plan

TARGET_TOK_S = 50.0  # what the objective cost has to meet, beside the world's goal of TTFT


class Oracle(Policy):
    """Plans with the fleet's own draws."""

    def __init__(self, fleet: Fleet, timeline: Timeline, objective: Objective) -> None:
        self._fleet = fleet
        self._timeline = timeline
        self._objective = objective

    def plan(self, request: Request, names: Sequence[str]) -> Plan:
        """Order all by what they would draw now."""
        order = sorted(names, key=lambda name: self._rank(name, self._fleet.peek(name, request, self._timeline.now_s)))
        return Plan((Launch(order[0], 0.0, Role.PRIMARY),), tuple(order[1:]), Mode.SINGLE)

    def _rank(self, name: str, answer: Answer) -> tuple[bool, bool, float]:
        if answer.ttft_s is None:
            return (True, True, answer.end_s)
        if self._objective is Objective.COMPLETION:
            return (False, False, answer.end_s)
        if self._objective is Objective.COST:
            meets = answer.ttft_s <= self._fleet.world.ttft_goal_s and (answer.tok_s or 0.0) >= TARGET_TOK_S
            provider = self._fleet.world.providers[self._fleet.number[name]]
            return (False, not meets, provider.usd_per_mtok if meets else answer.ttft_s)
        return (False, False, answer.ttft_s)
