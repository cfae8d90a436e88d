"""What a policy is to the simulator: it plans calls, lets attempts start, and hears what became of them."""

from collections.abc import Sequence

from benchmarks.steering.traffic import Request
from gateway.core.attempts import AttemptRecord, AttemptStart
from gateway.core.calls import CallRecord
from gateway.steering import Launch, Plan

MODEL = "model"


class Policy:
    """One replica's way to choose, called as the gateway calls its own ``Steering``. By default it learns nothing."""

    def plan(self, request: Request, names: Sequence[str]) -> Plan:
        """Choose who runs a call, when."""
        raise NotImplementedError

    def permit(self, launch: Launch) -> bool:  # noqa: ARG002 - for those who have a budget
        """Return whether an extra attempt may start now."""
        return True

    def turn_s(self, free_in_s: float) -> float:
        """Return in how many seconds a call asks again that waits for who is limited."""
        return free_in_s

    def attempt_started(self, start: AttemptStart) -> None:
        """Hear of each launch."""

    def first_token(self, request: Request, start: AttemptStart, ttft_s: float) -> None:
        """Hear of an attempt's first token."""

    def attempt_ended(self, request: Request, attempt: AttemptRecord) -> None:
        """Hear of an attempt's end."""

    def call_finished(self, record: CallRecord) -> None:
        """Hear of the call's end."""
