"""Explanations: every number behind a plan, and a reason for each launch."""

import re
from enum import IntEnum
from typing import cast

import msgspec
import pytest

from gateway.core.attempts import AnswerKind, Role
from gateway.core.calls import Mode, Objective
from gateway.core.prompt_classes import answer_class
from gateway.settings import RaceSettings
from gateway.steering import Explanation, Plan, Terms
from gateway.steering.candidates import Tier
from gateway.steering.explainer import passed_over
from gateway.steering.plans import Prospect
from providers import ErrorKind, Price
from tests.unit.steering.inside.test_planner import candidate
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica


def explained(plan: Plan) -> Explanation:
    assert plan.explanation is not None
    return plan.explanation


def prospect(explanation: Explanation, deployment: str) -> Prospect:
    return next(each for each in explanation.deployments if each.deployment == deployment)


def test_a_plan_is_explained_on_request_only_and_is_the_same_plan() -> None:
    one, two = VirtualReplica(seed=5), VirtualReplica(seed=5)
    for replica in (one, two):
        replica.warm_up(a=0.3, b=0.31, c=0.9)
    for _ in range(30):
        plain, told = one.plan(), two.plan(explain=True)
        assert plain.explanation is None
        assert msgspec.structs.replace(told, explanation=None) == plain


def test_an_explanation_has_the_numbers_of_every_deployment_best_first() -> None:
    replica = VirtualReplica()
    replica.warm_up(a=0.3, b=0.9)
    replica.launch("a")
    prices = {"a": Price(1e-6, 4e-6)}
    told = explained(replica.plan(explain=True, prices=prices, limits={"a": 4}, prompt_tokens=1000, max_tokens=100))
    assert [each.deployment for each in told.deployments] == ["a", "c", "b"]
    a, c = prospect(told, "a"), prospect(told, "c")
    assert (a.state, a.in_flight, a.max_in_flight, a.headroom, a.crowding, a.scarcity_s) == ("ok", 1, 4, 1.0, 1.0, 0.0)
    assert a.events == pytest.approx(30)
    assert a.ttft_p50_s == pytest.approx(0.3, rel=0.1)
    assert a.score_s == pytest.approx(a.ttft_mean_s / (1 - a.error_rate), rel=0.01)
    assert a.decode_tps == pytest.approx(50, rel=0.05)
    assert a.decode_s == pytest.approx(2.0, rel=0.05)
    assert (a.input_usd_per_mtok, a.output_usd_per_mtok) == (1.0, 4.0)
    assert a.cost_usd == pytest.approx(0.0014)
    assert (c.events, c.cost_usd, c.passed_over) == (0.0, None, None)
    assert (told.budget, told.budget_tokens, told.answer_tokens) == (1.0, 20.0, 100.0)


def test_the_draw_is_explained_by_its_probabilities() -> None:
    replica = VirtualReplica(("a", "b", "c"), seed=3)
    replica.warm_up(a=0.30, b=0.32, c=2.0)
    replica.launch("a")
    told = explained(replica.plan(explain=True))
    chances = {each.deployment: each.draw for each in told.deployments}
    assert sum(chances.values()) == pytest.approx(1.0)
    assert [prospect(told, name).near for name in "abc"] == [True, True, False]
    drawn = sum(replica.plan().launches[0].deployment == "b" for _ in range(3000)) / 3000
    assert drawn == pytest.approx(chances["b"], abs=0.03)


def test_each_launch_names_the_rule_behind_it() -> None:
    replica = VirtualReplica()
    replica.warm_up(a=0.3, b=0.6, c=0.9)
    raced = explained(replica.plan(explain=True))
    assert [(start.deployment, start.role, start.extra) for start in raced.launches] == [
        ("a", Role.PRIMARY, False),
        ("b", Role.RACE, True),
        ("c", Role.FAILOVER, True),
    ]
    assert raced.launches[0].why == "chosen for its score"
    assert raced.launches[1].why == "raced: its budget of extra attempts is 1 a call, 20.0 saved up"
    assert raced.launches[2].why.startswith("rescue: 95% of the primary's first tokens come within 0.5")
    assert raced.launches[2].why.endswith("it counts as hanging after 2 times that")
    hedged = explained(replica.plan(explain=True, budget=0.1)).launches[1]
    assert hedged.why == "hedge: 90% of the primary's first tokens come sooner; 20.0 extra attempts saved up"
    asked = explained(replica.plan(explain=True, mode=Mode.HEDGE, hedge_delay_s=0.7)).launches[1]
    assert (asked.why, asked.delay_s) == ("hedge: hedge_delay_s as set", 0.7)
    wide = explained(replica.plan(explain=True, mode=Mode.RACE, width=3)).launches
    assert wide[2].why == "mode race, width 3; 20.0 extra attempts saved up"
    launches = explained(replica.plan(explain=True, objective=Objective.COST, ttft_ms=2000.0)).launches
    thrifty = next(start for start in launches if start.role is Role.HEDGE)
    assert thrifty.why.startswith("hedge: the latest start that can meet ttft_ms 2000 if it takes 0.5")


@pytest.mark.parametrize(
    ("usual_s", "starts_s", "words"),
    [
        (0.02, 0.6, "after 2 times that, but 0.6 s at least"),
        (0.6, None, "after 2 times that"),
        (18.0, None, "after 2 times that"),
    ],
)
def test_a_rescue_is_told_with_the_figures_of_which_its_start_is_made(
    usual_s: float, starts_s: float | None, words: str
) -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(100, a=usual_s, b=usual_s * 1.5)
    plan = explained(replica.plan(explain=True, mode=Mode.SINGLE))
    rescue = next(start for start in plan.launches if "rescue" in start.why)
    within = re.search(r"first tokens come within (\d+\.\d\d) s", rescue.why)
    assert within is not None
    assert rescue.why.endswith(words)
    assert rescue.delay_s == pytest.approx(2 * float(within[1]) if starts_s is None else starts_s, rel=0.02)


def test_where_some_hang_the_start_of_a_rescue_is_told_as_it_is() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.5, b=9.0)
    for _ in range(12):
        replica.lose("a", 1.3)
        replica.warm_up(12, a=0.5)
    plan = explained(replica.plan(explain=True, mode=Mode.SINGLE))
    rescue = next(start for start in plan.launches if "rescue" in start.why)
    assert rescue.delay_s == 7.3
    assert rescue.why.endswith("it counts as hanging after 7.30 s")


def test_rescues_of_late_are_told() -> None:
    replica = VirtualReplica()
    assert not any("rescues" in note for note in explained(replica.plan(explain=True)).notes)
    replica.charge_extra(Role.FAILOVER, 1.0)
    told = "1 rescues in the last 200 calls; the budget pays for those beyond 50"
    assert told in explained(replica.plan(explain=True)).notes


def test_the_second_rescue_is_told_apart_from_the_first() -> None:
    replica = VirtualReplica(("a", "b", "c", "d"))
    replica.warm_up(a=0.3, b=0.6, c=0.9, d=1.2)
    launches = explained(replica.plan(explain=True)).launches
    first, second = (each for each in launches if each.why.startswith("rescue"))
    assert second.delay_s > first.delay_s
    assert second.why == f"{first.why}; the second rescue at twice that"


@pytest.mark.parametrize("unasked", [False, True])
def test_where_somebody_listens_each_start_is_told_as_it_is(unasked: bool) -> None:
    replica = VirtualReplica(("a", "b", "c", "d"))
    replica.warm_up(a=0.6, b=0.9, c=1.2, d=1.5)
    terms = Terms(Objective.FIRST_TOKEN, 100, spoken=True, speaks_unasked=unasked)
    race = RaceSettings.model_validate({"mode": Mode.HEDGE, "budget": 0.5})
    told = explained(replica.steering.plan(MODEL, replica.deployments, race, terms, SHORT, explain=True))
    _, hedge, *rescues = told.launches
    assert hedge.why.startswith("hedge: 45% of the primary's first tokens come sooner")
    assert " s if one has begun to speak" in hedge.why
    assert rescues[0].why.startswith(
        "rescue: somebody listens, and all may be late: 75% of the primary's first clauses"
    )
    assert not any("twice that" in each.why for each in rescues)
    late = [each for each in rescues if "it counts as hanging" in each.why]
    assert len(late) == unasked
    assert all(each.role is Role.FAILOVER for each in late)


def test_deployments_that_share_calls_are_told_with_their_share() -> None:
    replica = VirtualReplica(("a", "b", "c"), seed=3)
    replica.warm_up(a=0.30, b=0.31, c=2.0)
    told = explained(replica.plan(explain=True, mode=Mode.SINGLE))
    share = prospect(told, told.launches[0].deployment).draw
    assert 0 < share < 1
    assert told.launches[0].why == (
        f"chosen for {share:.0%} of such calls; 2 deployments are about equally good and share them"
    )


def test_cold_starts_exploring_and_probes_are_called_so() -> None:
    replica = VirtualReplica(("a", "b"), seed=1)
    assert explained(replica.plan(explain=True)).launches[1].why.startswith("cold start: the primary has 0.0 of the")
    replica.warm_up(a=0.3, b=0.6)
    whys = {start.role: start.why for _ in range(300) for start in explained(replica.plan(explain=True)).launches}
    assert whys[Role.EXPLORE] == (
        "explore: it was not asked for the longest time, and had 30.0 first tokens lately; 2% of the calls ask such"
        " a one"
    )
    for _ in range(4):
        replica.fail("b")
    replica.now_s += 5.0
    told = explained(replica.plan(explain=True))
    assert [start.why for start in told.launches if start.role is Role.PROBE] == [
        "probe: it was broken and may have recovered"
    ]
    assert told.notes == ("probe",)


def test_waiting_for_a_valid_answer_is_noted_where_there_is_something_to_check() -> None:
    replica = VirtualReplica()
    replica.warm_up(a=0.3, b=0.3)
    told = explained(replica.plan(explain=True, win_on="valid", answer_kind=AnswerKind.TOOLS, worth_ms=0))
    assert "each extra one costs a whole answer" in told.notes[-1]
    assert not explained(replica.plan(explain=True, win_on="valid", worth_ms=0)).notes
    assert not explained(replica.plan(explain=True, answer_kind=AnswerKind.TOOLS, worth_ms=0)).notes


def test_whoever_is_passed_over_is_told_why() -> None:
    replica = VirtualReplica(("a", "b", "c", "d"))
    replica.warm_up(a=0.3, b=0.3, c=0.3, d=0.3)
    replica.launch("b")
    replica.fail("c", ErrorKind.RATE_LIMITED, retry_after_s=9.0)
    told = explained(replica.plan(explain=True, limits={"b": 1}, min_tok_s=40.0))
    assert [prospect(told, name).passed_over for name in "abc"] == [
        None,
        "max_in_flight requests are in flight",
        "cooling",
    ]
    slow = explained(replica.plan(explain=True, min_tok_s=400.0))
    assert prospect(slow, "a").passed_over == "decodes below min_tok_s 400"
    late = explained(replica.plan(explain=True, objective=Objective.COST, ttft_ms=100.0))
    assert prospect(late, "a").passed_over == "too often later than ttft_ms 100"


class Tomorrow(IntEnum):
    """A tier that the explainer does not know yet."""

    ELSEWHERE = 7


def test_each_tier_behind_the_first_has_words_and_one_that_has_none_yet_is_named() -> None:
    alike = candidate("a", 0.3)
    terms = Terms(Objective.FIRST_TOKEN, 1, flawed={"a": "cut short"}, second={"a": "adapted"})

    def words(tier: Tier) -> str | None:
        return passed_over(msgspec.structs.replace(alike, tier=tier), RaceSettings(ttft_ms=100), terms, probes=False)

    assert [words(tier) for tier in Tier] == [
        None,
        "too often later than ttft_ms 100",
        "cut short",
        "adapted",
        "max_in_flight requests are in flight",
    ]
    assert words(cast("Tier", Tomorrow.ELSEWHERE)) == "elsewhere"


def test_of_a_broken_deployment_it_is_told_when_it_is_asked_again() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(a=0.1, b=0.3, c=0.3)
    for _ in range(4):
        replica.fail("a")
    replica.fail("b", ErrorKind.PROVIDER_AUTH, status_code=401)
    replica.now_s += 1.0

    def told(name: str, budget: float) -> str | None:
        return prospect(explained(replica.plan(explain=True, mode=Mode.SINGLE, budget=budget)), name).passed_over

    assert told("a", 1.0) == "open: the next probe is due in 4 s"
    assert told("b", 1.0) == "out: the next probe is due in 59 s"
    assert told("a", 0.0) == "open: with a budget of 0 no call probes it, and one uses it again on trial in 64 s"
    assert told("b", 0.0) == "out: with a budget of 0 no call probes it"
    replica.now_s += 4.0
    assert told("a", 1.0) == "half-open: a probe is due"
    replica.now_s += 100.0
    trial = explained(replica.plan(explain=True, mode=Mode.SINGLE, budget=0.0)).launches[0]
    assert (trial.deployment, trial.why.partition(":")[0]) == ("a", "trial")


def test_when_nobody_may_be_asked_the_wait_is_explained() -> None:
    replica = VirtualReplica(("a",))
    replica.fail("a", ErrorKind.RATE_LIMITED, retry_after_s=9.0)
    told = explained(replica.plan(explain=True))
    assert (told.launches, told.retry_after_s, told.notes) == ((), 9.0, ("all are cooling down",))
    assert prospect(told, "a").draw == 0.0


def test_with_every_breaker_open_the_draw_is_among_the_broken() -> None:
    replica = VirtualReplica(("a", "b"))
    for name in "aaaabbbb":
        replica.fail(name)
    told = explained(replica.plan(explain=True))
    assert sum(each.draw for each in told.deployments) == pytest.approx(1.0)
    assert told.launches[0].why.startswith("chosen for 50% of such calls")


def test_who_may_not_run_for_this_call_is_told_with_the_reason_and_never_planned() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(a=0.1, b=0.3, c=0.3)
    reason = "takes no images"
    for _ in range(100):
        plan = replica.plan(excluded={"a": reason}, explain=True)
        told = explained(plan)
        assert told.excluded == {"a": reason}
        assert "a" not in {*(launch.deployment for launch in plan.launches), *plan.rest}
        assert "a" not in {each.deployment for each in told.deployments}


def test_when_everybody_is_excluded_nobody_runs_and_the_reasons_are_told() -> None:
    replica = VirtualReplica(("a",))
    plan = replica.plan(excluded={"a": "too long"}, explain=True)
    assert (plan.launches, plan.rest, plan.retry_after_s) == ((), (), None)
    assert explained(plan).excluded == {"a": "too long"}


def test_an_explanation_is_json() -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(40):
        replica.lose("a", 0.1)  # never seen to answer: its quantiles are not reached
    replica.now_s += 1.0
    told = msgspec.json.decode(msgspec.json.encode(explained(replica.plan(explain=True))))
    assert told["objective"] == "first_token"
    assert {"deployment", "delay_s", "role", "audited", "extra", "why"} == set(told["launches"][0])


def test_the_next_call_can_be_explained_without_counting_it() -> None:
    replica = VirtualReplica(("a", "b"))
    while replica.charge_extra(Role.RACE, 0.1):
        pass
    for _ in range(100):
        plan = replica.steering.explain(
            MODEL, ("a", "b"), RaceSettings(budget=0.1), Terms(Objective.FIRST_TOKEN, 10), answer_class(0)
        )
        assert explained(plan).budget_tokens < 1
    assert not replica.charge_extra(Role.RACE, 0.1)
