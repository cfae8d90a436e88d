"""The states of what may be asked, against a model that looks at the whole history instead of keeping a state."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from providers import Availability, KeyReadiness, Waits
from tests.support.searched import examples

WAITS = Waits(cool_min_s=0.5, cool_max_s=60.0, try_every_s=30.0, refill_s=40.0)
RETRY_AFTER_S = st.one_of(st.none(), st.floats(-5.0, 500.0))


@dataclass
class History:
    """What happened, and when."""

    limits: list[tuple[float, float]] = field(default_factory=list)  # since when, for how long
    verdicts: list[tuple[float, bool]] = field(default_factory=list)  # when; whether it refused, or was well again
    tries: list[float] = field(default_factory=list)
    told: list[tuple[float, float]] = field(default_factory=list)  # when, how much

    @property
    def is_refused(self) -> bool:
        return bool(self.verdicts) and self.verdicts[-1][1]

    def is_cooling(self, now_s: float) -> bool:
        return any(now_s < since_s + wait_s for since_s, wait_s in self.limits)

    def is_due(self, now_s: float) -> bool:
        lately = [*self.tries, *(at_s for at_s, refuses in self.verdicts if refuses)]
        return self.is_refused and not self.is_cooling(now_s) and all(now_s - at_s >= 30.0 for at_s in lately)


class Automaton(RuleBasedStateMachine):
    """Whatever happens in whatever order, the state is what the history says."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0
        self.availability = Availability(WAITS)
        self.history = History()

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 1.0, 29.5, 30.0, 40.0, 60.0, 1000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(retry_after_s=RETRY_AFTER_S)
    def cool(self, retry_after_s: float | None) -> None:
        before_s = self.availability.cooling_s(self.now_s)
        self.availability.cool(retry_after_s, self.now_s)
        self.history.limits.append((self.now_s, min(60.0, max(0.5, retry_after_s or 0.0))))
        after_s = self.availability.cooling_s(self.now_s)
        assert before_s <= after_s <= 60.0
        assert after_s >= 0.5

    @rule()
    def refuse(self) -> None:
        assert self.availability.refuse(self.now_s) is not self.history.is_refused
        self.history.verdicts.append((self.now_s, True))

    @rule()
    def tried(self) -> None:
        self.availability.tried(self.now_s)
        self.history.tries.append(self.now_s)

    @rule()
    def answered(self) -> None:
        cooling_s = self.availability.cooling_s(self.now_s)
        assert self.availability.answered() is self.history.is_refused
        assert self.availability.cooling_s(self.now_s) == cooling_s
        self.history.verdicts.append((self.now_s, False))

    @rule()
    def mended(self) -> None:
        self.availability.mended()
        self.history.verdicts.append((self.now_s, False))

    @rule(headroom=st.floats(0.0, 1.0))
    def told(self, headroom: float) -> None:
        self.availability.told(headroom, self.now_s)
        self.history.told.append((self.now_s, headroom))

    @invariant()
    def is_in_the_state_that_the_history_says(self) -> None:
        if self.history.is_cooling(self.now_s):
            expected = KeyReadiness.COOLING
        else:
            expected = KeyReadiness.REFUSED if self.history.is_refused else KeyReadiness.READY
        assert self.availability.readiness(self.now_s) is expected
        assert (self.availability.cooling_s(self.now_s) > 0.0) is (expected is KeyReadiness.COOLING)
        assert self.availability.is_due(self.now_s) is self.history.is_due(self.now_s)

    @invariant()
    def has_the_headroom_that_was_told_last_and_what_came_back_since(self) -> None:
        assert self.availability.has_told is bool(self.history.told)
        at_s, told = self.history.told[-1] if self.history.told else (self.now_s, 1.0)
        assert self.availability.headroom(self.now_s) == min(1.0, told + (self.now_s - at_s) / 40.0)


Automaton.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=40, deadline=None)
TestAutomaton = Automaton.TestCase


def test_one_that_is_refused_is_tried_by_one_request_at_a_time() -> None:
    availability = Availability(WAITS)
    availability.refuse(1000.0)
    assert not availability.is_due(1029.9)
    assert availability.is_due(1030.0)
    availability.tried(1030.0)
    assert not availability.is_due(1059.9)
    assert availability.is_due(1060.0)


def test_a_limit_without_a_most_is_believed() -> None:
    availability = Availability(Waits(cool_min_s=0.5, cool_max_s=float("inf"), try_every_s=60.0, refill_s=60.0))
    availability.cool(86_400.0, 1000.0)
    assert availability.cooling_s(1000.0) == 86_400.0
