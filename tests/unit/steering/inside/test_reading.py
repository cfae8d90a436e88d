"""Who answers a reader best: text is to be there when it is wanted."""

from collections.abc import Mapping

import pytest

from gateway.core.attempts import Role
from gateway.core.calls import CallKind, Mode, Objective
from gateway.steering import Plan
from gateway.steering.constants import WHOLE_SHARE
from gateway.steering.planner import NOT_HEDGED
from gateway.steering.plans import Why
from tests.unit.steering.virtual_replica import VirtualReplica

READING, COMPLETION = Objective.READING, Objective.COMPLETION


def speeds(replica: VirtualReplica, **speeds: tuple[float, float]) -> None:
    """Give each named deployment a time to first token and a decode speed, and let standings see them."""
    for deployment, (ttft_s, speed_tps) in speeds.items():
        for _ in range(200):
            replica.win(deployment, ttft_s, speed_tps=speed_tps)
    replica.now_s += 1.0


def two(quick: tuple[float, float], fast: tuple[float, float]) -> VirtualReplica:
    replica = VirtualReplica(("quick", "fast"))
    speeds(replica, quick=quick, fast=fast)
    return replica


def primary(replica: VirtualReplica, **how: object) -> str:
    found = {replica.plan(budget=0.0, **how).launches[0].deployment for _ in range(50)}  # type: ignore[arg-type]
    assert len(found) == 1
    return found.pop()


def gain_s(plan: Plan, over: str = "quick", by: str = "fast") -> float:
    """How long the race may hold ``over`` back for ``by``."""
    return plan.decode_s[over] - plan.decode_s[by]


def test_a_little_later_and_eight_times_as_fast_is_better_for_a_reader_too() -> None:
    replica = two(quick=(0.06, 33.0), fast=(0.16, 250.0))
    assert primary(replica, objective=READING, max_tokens=4000) == "fast"
    raced = replica.plan(objective=READING, max_tokens=4000)
    assert gain_s(raced) > 0.16 - 0.06  # raced from the start, it is waited for as well


def test_nor_does_the_quick_starter_lose_a_short_answer() -> None:
    replica = two(quick=(0.06, 33.0), fast=(0.16, 250.0))
    assert primary(replica, objective=READING, max_tokens=20) == "quick"
    assert gain_s(replica.plan(objective=READING, max_tokens=20)) < 0.16 - 0.06


@pytest.mark.parametrize(("reading_tok_s", "best"), [(30.0, "quick"), (100.0, "fast")])
def test_who_reads_faster_than_it_decodes_has_to_wait(reading_tok_s: float, best: str) -> None:
    replica = two(quick=(0.2, 45.0), fast=(0.9, 150.0))
    assert primary(replica, objective=READING, reading_tok_s=reading_tok_s, max_tokens=200) == best


def test_the_loss_is_the_first_token_the_waiting_while_one_reads_and_a_little_of_the_whole() -> None:
    replica = two(quick=(0.2, 20.0), fast=(0.5, 100.0))
    plan = replica.plan(objective=READING, max_tokens=120, explain=True)
    quick, fast = plan.decode_s["quick"], plan.decode_s["fast"]
    assert quick == pytest.approx(120 / 20 - 120 / 30 + WHOLE_SHARE * 120 / 20, rel=0.03)
    assert fast == pytest.approx(WHOLE_SHARE * 120 / 100, rel=0.03)
    assert plan.explanation is not None
    assert plan.explanation.reading_tok_s == 30.0
    for each in plan.explanation.deployments:
        ttft_s = each.ttft_mean_s / (1 - each.error_rate)
        assert each.after_s == pytest.approx(plan.decode_s[each.deployment], abs=0.001)
        assert each.score_s == pytest.approx(ttft_s + each.after_s, rel=0.01)


def test_whoever_reads_infinitely_fast_waits_for_the_whole() -> None:
    replica = two(quick=(0.2, 20.0), fast=(0.5, 100.0))
    whole = replica.plan(objective=COMPLETION, max_tokens=120).decode_s
    read = replica.plan(objective=READING, max_tokens=120, reading_tok_s=1e9).decode_s
    assert read == {name: pytest.approx((1 + WHOLE_SHARE) * seconds, rel=1e-3) for name, seconds in whole.items()}


def test_only_the_first_token_counts_where_only_that_is_asked_for() -> None:
    replica = two(quick=(0.06, 33.0), fast=(0.16, 250.0))
    assert primary(replica, max_tokens=4000) == "quick"
    assert replica.plan(max_tokens=4000).decode_s == {}
    assert replica.plan(objective=Objective.COST, max_tokens=4000).decode_s == {}


def stalling(share: float) -> VirtualReplica:
    """A quick starter that is silent for 5.5 s in a ``share`` of its answers, and one that starts later."""
    replica = VirtualReplica(("quick", "steady"))
    for number in range(200):
        replica.win("quick", 0.1, stall_s=5.5 if number % 100 < 100 * share else 0.0)
        replica.win("steady", 0.4)
    replica.now_s += 1.0
    return replica


@pytest.mark.parametrize("objective", [Objective.FIRST_TOKEN, READING])
def test_who_stalls_after_the_first_token_is_not_quick(objective: Objective) -> None:
    assert primary(stalling(0.4), objective=objective) == "steady"
    assert primary(stalling(0.0), objective=objective) == "quick"


def test_a_race_is_not_won_by_who_is_expected_to_stall() -> None:
    plan = stalling(0.4).plan(explain=True)
    assert gain_s(plan, "quick", "steady") == pytest.approx(0.4 * 5.0, rel=0.05)
    assert plan.explanation is not None
    assert plan.explanation.deployments[-1].stall_s == pytest.approx(0.4 * 5.0, rel=0.05)


def test_one_stall_is_no_habit() -> None:
    replica = VirtualReplica(("quick", "steady"))
    replica.warm_up(quick=0.1, steady=0.4)
    replica.win("quick", 0.1, stall_s=5.5)
    replica.now_s += 1.0
    assert primary(replica) == "quick"


def test_a_stall_is_not_counted_twice() -> None:
    replica = stalling(0.4)
    plan = replica.plan(objective=READING, max_tokens=100, reading_tok_s=1e9)
    assert plan.decode_s["quick"] == pytest.approx((1 + WHOLE_SHARE) * 2.0, rel=0.05)  # 100 tokens at 50 tok/s
    assert replica.plan(objective=COMPLETION, max_tokens=100).decode_s["quick"] == pytest.approx(2.0, rel=0.05)


def test_readers_of_different_speed_and_of_answers_of_different_length_take_turns() -> None:
    replica = two(quick=(0.06, 33.0), fast=(0.16, 250.0))

    def waits(reading_tok_s: float, max_tokens: int) -> Mapping[str, float]:
        kind = CallKind(max_tokens=max_tokens)
        return replica.plan(objective=READING, reading_tok_s=reading_tok_s, max_tokens=max_tokens, kind=kind).decode_s

    first = [waits(tok_s, tokens) for tok_s in (30.0, 100.0) for tokens in (16, 128)]
    again = [waits(tok_s, tokens) for tok_s in (30.0, 100.0) for tokens in (16, 128)]
    assert first == again
    assert len({each["quick"] for each in first}) == 4


def three_of_which_one_writes_at(quick_tps: float) -> VirtualReplica:
    """One that is mostly the first to start, and two that start later and write fast."""
    replica = VirtualReplica(("quick", "fast", "other"))
    speeds(replica, quick=(0.2, quick_tps), fast=(0.3, 500.0), other=(0.31, 450.0))
    return replica


def raced(replica: VirtualReplica, **how: object) -> set[str]:
    """Return who started with its call beside ``fast``, in the calls that explore nothing."""
    plans = [replica.plan(objective=READING, audit_share=0.0, worth_ms=0, **how) for _ in range(200)]  # type: ignore[arg-type]
    beside_fast = [plan for plan in plans if plan.launches[0].deployment == "fast" and not plan.explores]
    assert beside_fast
    return {each.deployment for plan in beside_fast for each in plan.launches[1:] if each.delay_s == 0}


def test_a_slow_decoder_is_not_raced_beside_a_fast_one_as_its_token_would_be_streamed() -> None:
    assert raced(three_of_which_one_writes_at(31.0), max_tokens=900, holds=False) == {"other"}
    assert raced(three_of_which_one_writes_at(400.0), max_tokens=900, holds=False) == {"quick"}


def test_it_is_raced_where_answers_are_short() -> None:
    replica = VirtualReplica(("quick", "fast"))
    speeds(replica, quick=(0.2, 31.0), fast=(0.25, 500.0))
    starts = [replica.plan(objective=READING, max_tokens=5, holds=False, worth_ms=0).launches[1] for _ in range(50)]
    assert {start.why for start in starts} <= {Why.BUDGET, Why.EXPLORE}


def test_without_another_choice_a_slow_decoder_neither_races_nor_hedges() -> None:
    replica = two(quick=(0.2, 10.0), fast=(0.3, 500.0))
    plans = [replica.plan(objective=COMPLETION, max_tokens=900, holds=False, explain=True) for _ in range(50)]
    quiet = [plan for plan in plans if not plan.explores]
    assert quiet
    for plan in quiet:
        assert [launch.role for launch in plan.launches] == [Role.PRIMARY, Role.FAILOVER]
        assert plan.launches[0].deployment == "fast"
        assert plan.reasons == (NOT_HEDGED,)
    asked = replica.plan(objective=COMPLETION, max_tokens=900, holds=False, mode=Mode.RACE)
    assert [launch.delay_s for launch in asked.launches[:2]] == [0.0, 0.0]


def test_a_racer_that_gains_late_only_is_hedged_and_the_plan_says_why() -> None:
    replica = VirtualReplica(("tailed", "slow"))
    for number in range(300):
        replica.win("tailed", 8.0 if number % 20 == 0 else 0.3, speed_tps=500.0)
        replica.win("slow", 0.25, speed_tps=40.0)
    replica.now_s += 1.0
    plans = [replica.plan(objective=READING, max_tokens=900, holds=False, explain=True) for _ in range(50)]
    late = [plan.launches[1] for plan in plans if plan.launches[0].deployment == "tailed" and not plan.explores]
    assert late
    assert {(launch.role, launch.why) for launch in late} == {(Role.HEDGE, Why.SLOWER)}
    said = [start.why for plan in plans if plan.explanation is not None for start in plan.explanation.launches]
    assert any("would cost more than its first token gains" in why for why in said)


def test_who_would_cost_the_call_much_is_explored_more_rarely_if_its_token_may_win() -> None:
    def explored(*, holds: bool) -> int:
        replica = two(quick=(0.1, 10.0), fast=(0.3, 500.0))
        plans = [replica.plan(objective=COMPLETION, max_tokens=900, holds=holds) for _ in range(3000)]
        return sum(launch.deployment == "quick" for plan in plans for launch in plan.launches if plan.explores)

    assert explored(holds=True) > 30
    assert explored(holds=False) < 5


def test_a_plan_without_holds_holds_nothing() -> None:
    replica = two(quick=(0.06, 33.0), fast=(0.16, 250.0))
    assert replica.plan(objective=READING, max_tokens=4000).decode_s
    assert not replica.plan(objective=READING, max_tokens=4000, holds=False).decode_s
