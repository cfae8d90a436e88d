"""What a call demands of its plan, however quick its deployments are: an input of the planner.

A plan is never changed afterwards: the plan that is told is the plan that runs
(tests/app/gateway/relayed/test_told_plans.py).
"""

from collections.abc import Mapping

import msgspec


class Demands(msgspec.Struct, frozen=True, kw_only=True):
    """The order of deployments, which may run beside each other, and what is not allowed. Usual: ``NO_DEMANDS``."""

    order: tuple[str, ...] = ()  # these deployments are asked one after the other, then the rest
    may_fail_over: bool = True  # whether another deployment is asked after the first
    # The deployment that made the reasoning in the conversation: this one, or another of its provider, is asked first.
    maker: str | None = None
    # Deployments that refuse the maker's reasoning: if the maker is asked first, these come last, and are not raced.
    strangers: frozenset[str] = frozenset()
    # Where not all deployments answer alike (rankings, moderations): what each one is. Only equal ones run beside each
    # other.
    identity: Mapping[str, object] = {}
    once: bool = False  # a second request would change something at the provider: such calls are never raced
    rescued: bool = True  # False: no second attempt starts, however late the first is
    beside: str | None = None  # the late model beside which this one starts, with one attempt; its extra ones wait

    @property
    def in_turn(self) -> bool:
        """Whether deployments are asked one after the other, whatever the mode."""
        return bool(self.order) or not self.may_fail_over or self.once

    def rank(self, deployment: str) -> int:
        """Return the place of a deployment in the demanded order; those that are not in it come last."""
        return self.order.index(deployment) if deployment in self.order else len(self.order)

    def unlike(self, deployment: str, primary: str) -> bool:
        """Whether both answer differently, so that one may not run beside the other."""
        return bool(self.identity) and self.identity.get(deployment) != self.identity.get(primary)


NO_DEMANDS = Demands()
