"""What a call is to be good at: who is chosen for it, and who only when nobody else is left."""

from collections import Counter
from typing import Any

import pytest

from gateway.core.attempts import Outcome, Role, TokensSource
from gateway.core.calls import Mode, Objective
from gateway.core.prompt_classes import answer_class
from gateway.steering import Plan
from gateway.steering.counts import read_evidence
from gateway.steering.estimates import standings
from gateway.steering.samples import of_end
from providers import Price
from tests.unit.steering.virtual_replica import VirtualReplica

COMPLETION, COST = Objective.COMPLETION, Objective.COST
USD = {name: Price(usd / 1e6, 3 * usd / 1e6) for name, usd in {"a": 3.0, "b": 1.0, "c": 0.3}.items()}


def primary(plan: Plan) -> str:
    return plan.launches[0].deployment


def primaries(replica: VirtualReplica, count: int = 50, **how: object) -> set[str]:
    return {primary(replica.plan(**how)) for _ in range(count)}  # type: ignore[arg-type] # passed on by name


def speeds(replica: VirtualReplica, ttft_s: float = 0.3, wins: int = 30, **tok_s: float) -> None:
    """Give each named deployment a decode speed, and let standings see it."""
    for deployment, speed_tps in tok_s.items():
        for _ in range(wins):
            replica.win(deployment, ttft_s, speed_tps=speed_tps)
    replica.now_s += 1.0


def test_completion_prefers_who_ends_first_not_who_begins_first() -> None:
    replica = VirtualReplica(("a", "b"))
    speeds(replica, 0.2, a=40.0)
    speeds(replica, 0.6, b=400.0)
    assert primaries(replica) == {"a"}
    assert primaries(replica, objective=COMPLETION) == {"b"}


def test_completion_counts_no_more_tokens_than_the_request_allows() -> None:
    replica = VirtualReplica(("a", "b"))
    speeds(replica, 0.2, a=40.0)
    speeds(replica, 0.6, b=400.0)
    assert primaries(replica, objective=COMPLETION, max_tokens=5) == {"a"}


def test_answers_are_expected_to_be_as_long_as_the_last_ones_were() -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(400):
        replica.finish(replica.win("a"), completion_tokens=50)
    replica.now_s += 1.0
    explanation = replica.plan(explain=True).explanation
    assert explanation is not None
    assert explanation.answer_tokens == pytest.approx((400 * 50 + 25_000) / 500, rel=0.01)


def test_under_completion_the_race_learns_how_long_each_decodes() -> None:
    replica = VirtualReplica(("a", "b"))
    speeds(replica, a=50.0, b=200.0)
    plan = replica.plan(objective=COMPLETION, max_tokens=100)
    assert plan.decode_s == {"a": pytest.approx(2.0, rel=0.05), "b": pytest.approx(0.5, rel=0.05)}
    assert replica.plan().decode_s == {}


def test_speed_is_learned_from_a_watched_loser_although_its_tokens_are_guessed() -> None:
    replica = VirtualReplica(("a", "b"))
    loser = replica._end(
        replica.launch("b", Role.EXPLORE), Outcome.SUPERSEDED, ttft_ms=300.0, last_token_ms=310.0 + 62.0,
        decode_tps=500.0, completion_tokens=32, tokens_source=TokensSource.ESTIMATED, audited=True,
    )  # fmt: skip
    known = read_evidence(of_end(loser, answer_class(0)))
    assert (known["b"].tok, known["b"].gtok) == (0.0, pytest.approx(36.0))
    assert standings(known).of("b").decode_tps > 300


def test_guessed_tokens_are_forgotten_as_soon_as_the_provider_counts() -> None:
    known = read_evidence({"b|tok": 100.0, "b|sec": 1.0, "b|gtok": 9000.0, "b|gsec": 1.0})
    assert standings(known).of("b").decode_tps == pytest.approx(100.0, rel=0.03)


def test_who_sends_whole_answers_at_once_needs_no_time_after_the_first_token() -> None:
    known = read_evidence({"b|tok": 100.0, "b|sec": 2.0, "b|ans": 10.0, "b|burst": 6.0, "c|ans": 1.0, "c|burst": 1.0})
    assert standings(known).of("b").decode_tps == 5000.0
    assert standings(known).of("c").decode_tps == pytest.approx(60.0)


def test_a_floor_on_speed_leaves_the_slower_for_when_nobody_else_is_there() -> None:
    replica = VirtualReplica(("a", "b"))
    speeds(replica, 0.2, a=20.0)
    speeds(replica, 0.8, b=60.0)
    plan = replica.plan(min_tok_s=30.0)
    assert primary(plan) == "b"
    assert [launch.role for launch in plan.launches if launch.deployment == "a"] == [Role.FAILOVER]  # not raced either
    assert primaries(replica, min_tok_s=100.0) == {"a"}  # nobody meets it


@pytest.mark.parametrize(("budget", "delayed"), [(1.0, False), (0.3, True)])
def test_where_a_first_clause_wins_a_profiles_floor_says_who_is_asked_first_and_keeps_nobody_out(
    budget: float, delayed: bool
) -> None:
    replica = VirtualReplica(("quick", "steady", "slow"))
    speeds(replica, 0.4, quick=240.0)
    speeds(replica, 0.3, slow=40.0)

    def beside(**how: Any) -> list[tuple[str, Role, bool]]:
        race = {"profile": "voice", "budget": budget, "mode": Mode.HEDGE if delayed else Mode.RACE, **how}
        made = replica.plan(objective=Objective.READING, holds=False, **race)
        assert made.launches[0].deployment == "quick"
        extra = (Role.RACE, Role.HEDGE)
        return [(each.deployment, each.role, each.delay_s > 0) for each in made.launches if each.role in extra]

    replica.deployments = ("quick", "slow")
    assert beside(spoken=True) == [("slow", Role.HEDGE if delayed else Role.RACE, delayed)]
    assert beside() == []  # of JSON the first token wins, which may be the slow one's
    assert beside(spoken=True, min_tok_s=100.0) == []  # said by the operator
    speeds(replica, 0.5, steady=120.0)
    replica.deployments = ("quick", "steady", "slow")
    assert [name for name, *_ in beside(spoken=True)] == ["steady"]


def test_who_was_never_timed_is_given_the_chance_to_meet_the_floor() -> None:
    replica = VirtualReplica(("a", "b"))
    speeds(replica, 0.2, a=20.0)
    assert primaries(replica, min_tok_s=100.0) == {"b"}


def test_cost_asks_the_cheapest_that_keeps_its_promises() -> None:
    replica = VirtualReplica()
    speeds(replica, 0.3, a=200.0)
    speeds(replica, 0.5, b=100.0)
    speeds(replica, 3.0, c=100.0)
    assert primaries(replica, objective=COST, prices=USD) == {"c"}
    assert primaries(replica, objective=COST, prices=USD, ttft_ms=1000.0) == {"b"}
    assert primaries(replica, objective=COST, prices=USD, ttft_ms=1000.0, min_tok_s=150.0) == {"a"}
    assert primaries(replica, objective=COST, prices=USD, ttft_ms=100.0) == {"a"}  # nobody meets it: the least late


def test_a_tighter_goal_never_gives_worse_service() -> None:
    replica = VirtualReplica(("cheap", "quick"))
    prices = {"cheap": Price(1e-6, 1e-6), "quick": Price(9e-6, 9e-6)}
    for ttft_s in (0.6, 0.7, 0.8, 0.9):
        replica.warm_up(cheap=2 * ttft_s, quick=ttft_s, wins=10)
    for ttft_ms in (1000.0, 500.0, 100.0):
        assert primaries(replica, objective=COST, prices=prices, ttft_ms=ttft_ms) == {"quick"}
    assert primaries(replica, objective=COST, prices=prices, ttft_ms=5000.0) == {"cheap"}


def test_of_those_about_as_late_any_may_be_asked() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.8, b=0.8)
    assert primaries(replica, objective=COST, prices={"a": USD["a"], "b": USD["b"]}, ttft_ms=100.0) == {"a", "b"}


def test_cost_counts_the_prompt_and_the_answer_expected() -> None:
    replica = VirtualReplica(("a", "b"))
    prices = {"a": Price(1e-6, 10e-6), "b": Price(4e-6, 1e-6)}
    assert primaries(replica, objective=COST, prices=prices, prompt_tokens=100, max_tokens=1000) == {"b"}
    assert primaries(replica, objective=COST, prices=prices, prompt_tokens=9000, max_tokens=10) == {"a"}


def test_an_unknown_price_counts_as_the_dearest_known_and_none_at_all_leaves_it_to_speed() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    replica.warm_up(a=0.2, b=0.5, c=0.9)
    assert primaries(replica, objective=COST, prices={"b": USD["a"], "c": USD["b"]}) == {"c"}
    assert primaries(replica, objective=COST, prices={"b": USD["a"]}) == {"a"}  # as dear as b, and faster
    assert primaries(replica, objective=COST) == {"a"}


def test_under_cost_a_second_starts_at_the_last_moment_it_can_keep_the_deadline() -> None:
    replica = VirtualReplica()
    speeds(replica, 0.3, a=100.0)
    speeds(replica, 0.5, b=100.0)
    speeds(replica, 0.8, c=100.0)
    for _ in range(20):
        plan = replica.plan(objective=COST, prices=USD, ttft_ms=2000.0)
        hedges = [launch for launch in plan.launches if launch.role is Role.HEDGE]
        assert [(launch.deployment, launch.role) for launch in plan.launches if launch.role is Role.RACE] == []
        assert [launch.deployment for launch in hedges] == ["b"]
        assert 1.3 < hedges[0].delay_s < 1.55  # b needs half a second, nine times in ten
    plan = replica.plan(objective=COST, prices=USD)
    assert {launch.role for launch in plan.launches} <= {Role.PRIMARY, Role.FAILOVER, Role.EXPLORE}


@pytest.mark.parametrize("objective", [Objective.FIRST_TOKEN, Objective.READING, COMPLETION])
def test_with_a_deadline_a_second_starts_when_the_headroom_runs_out(objective: Objective) -> None:
    replica = VirtualReplica()
    speeds(replica, 0.3, a=100.0)
    speeds(replica, 0.5, b=100.0)
    speeds(replica, 0.8, c=100.0)
    for _ in range(20):
        plan = replica.plan(objective=objective, ttft_ms=2000.0)
        beside = [launch for launch in plan.launches if launch.role in {Role.HEDGE, Role.RACE}]
        assert [launch.role for launch in beside] == [Role.HEDGE]
        takes_s = {"a": 0.3, "b": 0.5, "c": 0.8}[beside[0].deployment]
        assert beside[0].delay_s == pytest.approx(2.0 - takes_s, abs=0.1)  # the histogram's buckets are 9 % wide


def test_a_budget_too_small_for_hedges_at_the_last_instant_is_kept_for_who_waits_longer() -> None:
    replica = VirtualReplica(("a", "b"))
    for _ in range(6):
        for ttft_s in (0.2, 0.25, 0.3, 0.35, 0.4):
            replica.warm_up(a=ttft_s, b=ttft_s + 0.3, wins=2)

    def delay_s(budget: float) -> float:
        plan = replica.plan(ttft_ms=1000.0, budget=budget)
        [hedge] = [each for each in plan.launches if each.role is Role.HEDGE]
        return hedge.delay_s

    assert delay_s(1.0) == pytest.approx(0.3, abs=0.07)  # the last instant: half of its first tokens are still to come
    assert 0.35 < delay_s(0.1) < 0.5  # a tenth is


def test_mode_hedge_keeps_the_deadline_too_unless_its_delay_is_given() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.5)
    [hedge] = [each for each in replica.plan(mode=Mode.HEDGE, ttft_ms=2000.0).launches if each.role is Role.HEDGE]
    assert 1.3 < hedge.delay_s < 1.55
    [asked] = [
        each
        for each in replica.plan(mode=Mode.HEDGE, ttft_ms=2000.0, hedge_delay_s=0.2).launches
        if each.role is Role.HEDGE
    ]
    assert asked.delay_s == 0.2


def test_a_race_that_is_asked_for_starts_at_once_whatever_the_deadline() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.5)
    plan = replica.plan(mode=Mode.RACE, ttft_ms=2000.0)
    assert [launch.delay_s for launch in plan.launches if launch.role is not Role.FAILOVER] == [0.0, 0.0]


def test_it_also_starts_who_is_late_for_the_deadline_but_nobody_who_writes_too_slowly() -> None:
    replica = VirtualReplica(("soon", "late"))
    speeds(replica, 0.3, soon=40.0)
    speeds(replica, 1.5, late=10.0)
    raced = replica.plan(mode=Mode.RACE, ttft_ms=1000.0)
    assert [(each.deployment, each.delay_s) for each in raced.launches[:2]] == [("soon", 0.0), ("late", 0.0)]
    assert (raced.width_asked, raced.narrowed) == (2, None)
    alone = replica.plan(mode=Mode.RACE, ttft_ms=1000.0, min_tok_s=20.0)  # its first token might win
    assert {each.role for each in alone.launches[1:]} <= {Role.FAILOVER, Role.EXPLORE}


def test_the_primary_is_chosen_among_those_that_keep_the_deadline() -> None:
    replica = VirtualReplica(("soon", "late"))
    speeds(replica, 0.3, soon=40.0)
    speeds(replica, 1.5, late=900.0)
    assert primaries(replica, objective=COMPLETION) == {"late"}
    assert primaries(replica, objective=COMPLETION, ttft_ms=1000.0) == {"soon"}
    assert primaries(replica, objective=COMPLETION, ttft_ms=4000.0) == {"late"}


def test_of_those_that_miss_a_deadline_who_is_in_time_in_most_calls_goes_before_who_is_always_a_little_late() -> None:
    """One call in nine of the quick ones takes seconds, so that their mean lateness is the greater."""
    replica = VirtualReplica(("steady", "quick", "brisk"))
    for number in range(240):
        replica.win("steady", 0.55, speed_tps=90.0)
        for name, usual_s in (("quick", 0.35), ("brisk", 0.4)):
            replica.win(name, usual_s if number % 8 else 4.0, speed_tps=120.0)
    replica.now_s += 1.0
    for how in ({}, {"min_tok_s": 100.0}, {"objective": Objective.READING, "min_tok_s": 100.0}):
        plans = [replica.plan(mode=Mode.RACE, ttft_ms=500.0, **how) for _ in range(50)]
        raced = [
            [each.deployment for each in plan.launches if each.role in {Role.PRIMARY, Role.RACE}] for plan in plans
        ]
        assert {"steady"}.isdisjoint(name for names in raced for name in names)
    # Where all miss it in each call, the least late does.
    assert primaries(replica, ttft_ms=100.0) == {"steady"}


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.HEDGE, Mode.RACE])
@pytest.mark.parametrize("more", [{}, {"value_usd_per_s": 1.0, "prices": USD}], ids=["budget", "value"])
def test_a_deadline_that_only_one_keeps_takes_no_attempt_away(mode: Mode, more: dict[str, Any]) -> None:
    """The others may still be first, and always are where that one hangs."""
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.6)

    def others(plan: Plan) -> list[tuple[str, float, Role]]:
        assert plan.narrowed is None
        return [(each.deployment, each.delay_s, each.role) for each in plan.launches]

    goal = others(replica.plan(mode=mode, ttft_ms=500.0, **more))
    assert goal == others(replica.plan(mode=mode, **more))
    assert [role for _, _, role in goal[:2]] == [Role.PRIMARY, Role.HEDGE if mode is Mode.HEDGE else Role.RACE]


def test_where_nobody_keeps_the_deadline_the_least_late_is_raced_as_usual() -> None:
    replica = VirtualReplica(("a", "b"))
    speeds(replica, 0.4, a=30.0)
    speeds(replica, 0.9, b=900.0)
    plan = replica.plan(objective=COMPLETION, ttft_ms=50.0)
    assert primary(plan) == "a"
    assert Role.RACE in {launch.role for launch in plan.launches}
    assert primaries(replica, objective=COMPLETION, ttft_ms=50.0) == {"a"}


def test_one_calls_deadline_is_not_the_next_ones() -> None:
    replica = VirtualReplica(("soon", "late"))
    speeds(replica, 0.3, soon=40.0)
    speeds(replica, 1.5, late=900.0)
    for _ in range(3):
        assert primary(replica.plan(objective=COMPLETION)) == "late"
        assert primary(replica.plan(objective=COMPLETION, ttft_ms=1000.0)) == "soon"


def test_it_is_explained_who_would_miss_the_deadline() -> None:
    replica = VirtualReplica(("soon", "late"))
    replica.warm_up(soon=0.3, late=1.5)
    explanation = replica.plan(ttft_ms=1000.0, explain=True).explanation
    assert explanation is not None
    assert [(each.deployment, each.passed_over) for each in explanation.deployments] == [
        ("soon", None),
        ("late", "too often later than ttft_ms 1000"),
    ]


def test_under_cost_nobody_dearer_is_explored() -> None:
    replica = VirtualReplica()
    replica.warm_up(a=0.3, b=0.5, c=0.8)
    explored = Counter(
        launch.deployment
        for _ in range(2000)
        for launch in replica.plan(objective=COST, prices=USD, ttft_ms=700.0).launches
        if launch.role is Role.EXPLORE
    )
    assert set(explored) == {"c"}  # cheaper than b, which is chosen, and maybe fast enough by now


def test_a_full_deployment_is_passed_over_while_another_is_free() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.2, b=2.0)
    for _ in range(3):
        replica.launch("a")
    assert primaries(replica, limits={"a": 4}) == {"a"}
    plans = [replica.plan(limits={"a": 3}) for _ in range(50)]
    assert {primary(plan) for plan in plans} == {"b"}
    assert {launch.role for plan in plans for launch in plan.launches if launch.deployment == "a"} == {Role.FAILOVER}
    replica.launch("b")
    assert primaries(replica, limits={"a": 3, "b": 1}) == {"a"}  # all are full


def test_a_deployment_alone_does_not_race_itself_beyond_what_it_may_have_in_flight() -> None:
    replica = VirtualReplica(("a",))
    replica.warm_up(a=0.3)
    assert len(replica.plan(mode=Mode.RACE, limits={"a": 2}).launches) == 2
    replica.launch("a")
    replica.launch("a")
    assert len(replica.plan(mode=Mode.RACE, limits={"a": 2}).launches) == 1


def test_little_headroom_lowers_the_weight_before_the_429_comes_and_refills_in_a_minute() -> None:
    replica = VirtualReplica(("a", "b"), seed=7)
    replica.warm_up(a=0.5, b=0.5)

    def share() -> float:
        return sum(primary(replica.plan()) == "a" for _ in range(1000)) / 1000

    def told(headroom: float) -> None:
        replica._end(replica.launch("a"), Outcome.CLIENT_GONE, headroom=headroom)

    fair = share()
    told(0.5)
    assert share() == pytest.approx(fair, abs=0.07)
    told(0.02)
    assert share() < 0.2
    replica.now_s += 12.0
    assert share() == pytest.approx(fair, abs=0.07)


def test_an_explored_deployment_and_its_primary_are_audited_others_are_not() -> None:
    replica = VirtualReplica()
    replica.warm_up(a=0.3, b=0.5, c=0.8)
    for _ in range(500):
        plan = replica.plan(audit_share=0.0)
        explores = any(launch.role is Role.EXPLORE for launch in plan.launches)
        audited = {launch.role for launch in plan.launches if launch.audited}
        assert audited == ({Role.PRIMARY, Role.EXPLORE} if explores else set())


def test_a_random_share_of_races_is_audited_whoever_starts_at_once() -> None:
    replica = VirtualReplica()
    replica.warm_up(a=0.3, b=0.5, c=0.8)
    plans = [plan for plan in (replica.plan(audit_share=0.2) for _ in range(2000)) if not plan.explores]
    audited = [plan for plan in plans if plan.launches[0].audited]
    assert len(audited) / len(plans) == pytest.approx(0.2, abs=0.03)
    for plan in audited:
        assert [launch.audited for launch in plan.launches] == [launch.delay_s == 0 for launch in plan.launches]
    assert not any(launch.audited for plan in plans if plan not in audited for launch in plan.launches)


def test_nobody_is_audited_who_cannot_lose() -> None:
    replica = VirtualReplica(deployments=("a",))
    assert not any(replica.plan(mode=Mode.SINGLE, audit_share=1.0).launches[0].audited for _ in range(50))


def test_what_attempts_may_cost_is_told_where_dollars_are_limited() -> None:
    replica = VirtualReplica(("a", "b"))
    plan = replica.plan(prices={"a": Price(1e-6, 2e-6)}, usd_per_day=5.0, prompt_tokens=1000, max_tokens=100)
    assert plan.cost_usd == {"a": pytest.approx(0.0012), "b": pytest.approx(0.0012)}
    assert replica.plan(usd_per_day=5.0).cost_usd == {}
    assert replica.plan(prices={"a": Price(1e-6, 2e-6)}).cost_usd == {}
