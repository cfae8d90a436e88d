"""While the gateway's own event loop is late, providers are not blamed for it."""

from math import inf

import pytest

from gateway.core.attempts import AttemptStart, Outcome, Role
from gateway.steering import STRIKES
from gateway.steering.constants import OWN_TURNS
from gateway.steering.own_delay import OwnDelay
from providers import ErrorKind
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica

USUAL_S = 0.3


class LateLoop:
    """An event loop whose delays are said by the test."""

    def __init__(self) -> None:
        self.total_s = self.longest_s = 0.0
        self.due_s = inf

    def peak_s(self) -> float:
        return self.longest_s

    def is_late(self, *delays_s: float) -> None:
        self.total_s += sum(delays_s)
        self.longest_s = max((self.longest_s, *delays_s))


def replica() -> tuple[VirtualReplica, LateLoop]:
    """Return a replica that remembers its deployments, and its loop."""
    loop = LateLoop()
    made = VirtualReplica(lateness=loop)
    for _ in range(90):
        made.now_s += 1.0
        made.warm_up(1, a=USUAL_S, b=USUAL_S, c=USUAL_S)
    return made, loop


def answered(replica: VirtualReplica, loop: LateLoop, after_s: float, *delays_s: float) -> None:
    """Have ``a`` send a first token that is seen after ``after_s``, while the loop had these delays."""
    start = replica.launch("a")
    loop.is_late(*delays_s)
    replica.now_s += after_s
    replica.steering.first_token(MODEL, SHORT, start, after_s)
    replica._end(start, Outcome.WON, ttft_ms=after_s * 1000)


def begun(replica: VirtualReplica, loop: LateLoop, after_s: float, *delays_s: float) -> AttemptStart:
    start = replica.launch("a")
    loop.is_late(*delays_s)
    replica.now_s += after_s
    return start


def test_a_first_token_that_only_we_were_late_to_read_is_no_strike() -> None:
    late, loop = replica()
    for _ in range(3 * STRIKES):
        answered(late, loop, USUAL_S + 1.0, 0.5, 0.5)
    assert late.state("a") == "ok"


def test_a_first_token_that_is_late_by_more_than_we_were_is_one() -> None:
    late, loop = replica()
    for _ in range(STRIKES):
        answered(late, loop, USUAL_S + 2.0, 0.02, 0.02)
    assert late.state("a") == "open"


def test_a_loop_that_is_a_little_late_all_the_time_excuses_only_a_few_turns_of_it() -> None:
    late, loop = replica()
    for _ in range(STRIKES):
        answered(late, loop, USUAL_S + 5.0, *([0.05] * 100))  # five seconds in all
    assert late.state("a") == "open"


def test_a_delay_before_the_launch_excuses_nothing() -> None:
    late, loop = replica()
    loop.is_late(60.0)
    for _ in range(STRIKES):
        answered(late, loop, USUAL_S + 2.0)
    assert late.state("a") == "open"


def test_a_primary_that_lost_while_we_were_late_did_not_hang() -> None:
    for own_s, state in ((2.0, "ok"), (0.0, "open")):
        late, loop = replica()
        for _ in range(STRIKES):
            start = begun(late, loop, USUAL_S + 2.0, own_s)
            late._end(start, Outcome.LOST, censored_at_ms=(USUAL_S + 2.0) * 1000)
        assert late.state("a") == state


def test_losers_that_were_cut_late_because_we_were_late_are_not_silent() -> None:
    for own_s, state in ((0.5, "ok"), (0.0, "open")):
        late, loop = replica()
        for _ in range(10):
            start = late.launch("a", Role.RACE)
            loop.is_late(own_s)
            late._end(start, Outcome.LOST, censored_at_ms=550.0)
        assert late.state("a") == state


@pytest.mark.parametrize("kind", [ErrorKind.CONNECT_TIMEOUT, ErrorKind.TTFT_TIMEOUT])
def test_a_timeout_that_was_mostly_our_own_delay_is_no_strike(kind: ErrorKind) -> None:
    for own_s, state in ((4.0, "ok"), (0.5, "open")):
        late, loop = replica()
        for _ in range(STRIKES):
            start = begun(late, loop, 5.0, own_s / OWN_TURNS)
            loop.is_late(*[own_s / OWN_TURNS] * int(OWN_TURNS - 1))
            late._end(start, Outcome.TIMEOUT, error_kind=kind)
        assert late.state("a") == state


def test_an_error_is_a_strike_however_late_we_are() -> None:
    late, loop = replica()
    for _ in range(STRIKES):
        start = begun(late, loop, 5.0, 5.0)
        late._end(start, Outcome.FAILED, error_kind=ErrorKind.SERVER_ERROR)
    assert late.state("a") == "open"


def test_a_probe_of_a_broken_deployment_is_judged_without_our_delay() -> None:
    late, loop = replica()
    for _ in range(STRIKES):
        late.fail("a")
    late.now_s += 6.0
    answered(late, loop, USUAL_S + 3.0, 1.0, 1.0, 1.0)
    assert late.state("a") == "ok"


def test_a_probe_that_lost_while_we_were_late_has_not_failed() -> None:
    for own_s, state in ((2.0, "half-open"), (0.0, "open")):
        late, loop = replica()
        for _ in range(STRIKES):
            late.fail("a")
        late.now_s += 6.0
        start = late.launch("a", Role.PROBE)
        loop.is_late(own_s)
        late.now_s += 1.0
        late._end(start, Outcome.LOST, censored_at_ms=2000.0)
        assert late.state("a") == state


def test_an_age_is_never_below_zero() -> None:
    loop = LateLoop()
    late, _ = replica()
    own = OwnDelay(loop)
    late.launch("a")
    launched = next(iter(late.steering._learning._launched.values()))
    loop.is_late(9.0)
    assert own.without_own_delay(1.0, launched, late.now_s) == 0.0
    assert own.without_own_delay(1.0, None, late.now_s) == 1.0


def test_a_delay_that_is_not_over_counts_too() -> None:
    late, loop = replica()
    for _ in range(3 * STRIKES):
        start = late.launch("a")
        late.now_s += USUAL_S + 1.0
        loop.due_s, loop.longest_s = late.now_s - 1.0, 1.0
        late.steering.first_token(MODEL, SHORT, start, USUAL_S + 1.0)
        late._end(start, Outcome.WON, ttft_ms=(USUAL_S + 1.0) * 1000)
        loop.due_s = inf
    assert late.state("a") == "ok"
