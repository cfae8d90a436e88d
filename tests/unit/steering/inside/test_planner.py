"""Who is launched, and when: the rules of choosing, one by one."""

from collections import Counter
from collections.abc import Mapping
from random import Random
from types import MappingProxyType

import msgspec
import pytest

from gateway.core.attempts import Role
from gateway.core.calls import Mode, Objective
from gateway.settings import RaceSettings
from gateway.steering import NO_DEMANDS, Condition, Demands, HealthState, Plan, Terms
from gateway.steering.candidates import Candidate, line_up
from gateway.steering.counts import bucket
from gateway.steering.estimates import Estimate
from gateway.steering.planner import Means, plan
from gateway.steering.survival import dense, kaplan_meier

HEALTHY = Condition(HealthState.OK, 0.0, probe_due=False, in_flight=0, price_s=0.0)
ASKED = Terms(Objective.FIRST_TOKEN, 1)
OBJECTIVES = (Objective.FIRST_TOKEN, Objective.READING, Objective.COMPLETION, Objective.COST)
NEVER, ALWAYS = 0.999, 0.0  # draws that take no chance, or every one


class Draws(Random):
    """Random numbers told in advance; the last is repeated."""

    def __init__(self, *numbers: float) -> None:
        super().__init__(0)
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0) if len(self.numbers) > 1 else self.numbers[0]


def candidate(name: str, score_s: float, *, events: float = 100.0, **condition: object) -> Candidate:
    """A deployment that answers in ``score_s`` and is well unless said otherwise."""
    curve = kaplan_meier(dense({bucket(score_s): 1.0}), dense({}))
    estimate = Estimate(
        events=events,
        curve=curve,
        q95_s=curve.quantile_s(0.95),
        beyond_s=curve.expected_beyond_s(),
        score_s=score_s,
        mean=curve.mean(),
    )
    facts = {name: getattr(HEALTHY, name) for name in HEALTHY.__struct_fields__} | condition
    return Candidate(name, estimate, Condition(**facts), score_s)


def planned(
    *candidates: Candidate,
    mode: Mode = Mode.AUTO,
    budget: float = 1.0,
    tokens: float = 20.0,
    prompt_tokens: int = 100,
    draws: tuple[float, ...] = (NEVER,),
    objective: Objective = Objective.FIRST_TOKEN,
    ttft_s: Mapping[str, float] = MappingProxyType({}),
    demands: Demands = NO_DEMANDS,
    spoken: bool = False,
    unasked: bool = False,
    **race: float,
) -> Plan:
    """Plan a call; by default no draw explores, and none races but when the budget makes it certain.

    The deployments always take the same time, so a race saves nothing; by default that is no reason against it.
    """
    settings = RaceSettings.model_validate({"mode": mode, "budget": budget, "worth_ms": 0, **race})
    terms = Terms(objective, prompt_tokens, ttft_s=ttft_s, spoken=spoken, speaks_unasked=unasked, demands=demands)
    return plan(line_up(candidates), settings, terms, Means(tokens), random=Draws(*draws), now_s=0.0)


def launched(made: Plan) -> list[tuple[str, float, Role]]:
    """Who starts, when and as what."""
    return [(launch.deployment, launch.delay_s, launch.role) for launch in made.launches]


def started(made: Plan) -> list[tuple[str, Role]]:
    """Who starts at once."""
    return [(launch.deployment, launch.role) for launch in made.launches if launch.delay_s == 0]


A, B, C, D, E = (candidate(name, score_s) for name, score_s in zip("abcde", (0.3, 0.6, 0.9, 1.2, 1.5), strict=True))


def test_the_default_budget_races_the_best_two() -> None:
    made = planned(C, A, B)
    assert started(made) == [("a", Role.PRIMARY), ("b", Role.RACE)]


def test_an_economy_budget_hedges_at_the_quantile_that_it_pays_for() -> None:
    made = planned(A, B, budget=0.1)
    hedge = made.launches[1]
    assert (hedge.deployment, hedge.role) == ("b", Role.HEDGE)
    assert hedge.delay_s == A.estimate.curve.quantile_s(0.9)
    assert planned(A, B, budget=0.02).launches[1].delay_s == A.estimate.curve.quantile_s(0.98)


def test_between_economy_and_race_two_a_share_of_calls_is_raced() -> None:
    random = Random(5)
    race = RaceSettings(budget=0.55, worth_ms=0)
    roles = Counter(plan(line_up((A, B)), race, ASKED, Means(0.0), random=random).launches[1].role for _ in range(2000))
    assert roles[Role.RACE] == pytest.approx(1000, abs=80)
    assert roles[Role.HEDGE] == pytest.approx(960, abs=80)


def test_a_budget_above_one_widens_the_race() -> None:
    assert started(planned(A, B, C, D, budget=2.0)) == [("a", Role.PRIMARY), ("b", Role.RACE), ("c", Role.RACE)]
    assert len(started(planned(A, B, C, D, budget=2.5, draws=(NEVER,)))) == 3
    assert len(started(planned(A, B, C, D, budget=2.5, draws=(NEVER, 0.4)))) == 4


def test_a_hedge_is_never_sooner_than_fifty_milliseconds_and_as_late_as_first_tokens_are() -> None:
    assert planned(candidate("a", 0.011), candidate("b", 0.02), budget=0.1).launches[1].delay_s == 0.05
    slow = candidate("a", 25.0)
    late = planned(slow, candidate("b", 40.0), candidate("c", 50.0), budget=0.1)
    hedges = [launch.delay_s for launch in late.launches if launch.role is Role.HEDGE]
    assert hedges == [pytest.approx(slow.estimate.quantile_s(0.9))]


def test_traffic_is_spread_over_the_near_best_and_no_further() -> None:
    random = Random(1)
    near = (candidate("a", 0.30), candidate("b", 0.32), candidate("c", 0.44), candidate("d", 0.46))
    race = RaceSettings(mode=Mode.SINGLE)
    lineup = line_up(near)
    chosen = Counter(plan(lineup, race, ASKED, Means(0.0), random=random).launches[0].deployment for _ in range(3000))
    weights = {"a": 1.0, "b": (0.30 / 0.32) ** 12, "c": (0.30 / 0.44) ** 12}
    total = sum(weights.values())
    for name, weight in weights.items():
        assert chosen[name] == pytest.approx(3000 * weight / total, abs=100)
    assert chosen["d"] == 0


def test_of_two_draws_the_one_with_less_in_flight_is_taken() -> None:
    busy, idle = candidate("a", 0.3, in_flight=5), candidate("b", 0.3, in_flight=1)
    assert planned(busy, idle, draws=(0.1, 0.9)).launches[0].deployment == "b"
    assert planned(busy, idle, draws=(0.9, 0.1)).launches[0].deployment == "b"
    assert planned(busy, idle, draws=(0.1, 0.1)).launches[0].deployment == "a"


def test_on_ties_the_first_draw_is_taken() -> None:
    assert planned(candidate("a", 0.3), candidate("b", 0.3), draws=(0.9, 0.1)).launches[0].deployment == "b"


def test_one_call_in_fifty_tries_who_was_not_asked_for_longest_on_the_spare_slot() -> None:
    fresh, quiet = candidate("b", 0.6, launched_at_s=-1.0), candidate("q", 0.9, launched_at_s=-60.0)
    made = planned(A, fresh, quiet, draws=(0.019, 0.5, 0.5, NEVER))
    assert started(made) == [("a", Role.PRIMARY), ("q", Role.EXPLORE), ("b", Role.RACE)]
    assert made.reasons == ("explore",)
    assert ("q", Role.EXPLORE) not in started(planned(A, fresh, quiet, draws=(0.021,)))


def test_a_deployment_is_spared_for_its_slow_decoding_only_once_that_is_known() -> None:
    """A fast decoder that was never watched looks as slow as most: unexplored, it could never show what it is."""

    def explored(*, speed_known: bool) -> bool:
        estimate = msgspec.structs.replace(B.estimate, speed_known=speed_known)
        slow = msgspec.structs.replace(B, estimate=estimate, score_s=10.6, after_s=10.0, raced_after_s=10.0)
        early = candidate("a", 0.9)
        return planned(early, slow, draws=(0.019, 0.5), objective=Objective.COMPLETION).explores

    assert explored(speed_known=False)
    assert not explored(speed_known=True)


def test_a_primary_that_is_new_gets_company_at_once_while_the_budget_is_half_full() -> None:
    new = candidate("a", 0.3, events=2.9)
    known = candidate("a", 0.3, events=3)
    assert started(planned(new, B, budget=0.1, tokens=10.0)) == [("a", Role.PRIMARY), ("b", Role.RACE)]
    assert started(planned(new, B, budget=0.1, tokens=9.9)) == [("a", Role.PRIMARY)]
    assert started(planned(known, B, budget=0.1, tokens=20.0)) == [("a", Role.PRIMARY)]


def test_a_half_open_deployment_is_probed_in_the_second_slot_and_nobody_waits_for_it() -> None:
    broken = candidate("x", 0.1, state=HealthState.HALF_OPEN, probe_due=True)
    made = planned(A, B, broken, budget=0.1)
    assert started(made) == [("a", Role.PRIMARY), ("x", Role.PROBE)]
    assert made.launches[2].role is Role.HEDGE
    tried = candidate("x", 0.1, state=HealthState.HALF_OPEN)
    assert started(planned(A, B, tried, budget=0.1)) == [("a", Role.PRIMARY)]


def test_two_of_the_others_stand_by_for_a_primary_that_hangs() -> None:
    made = planned(A, B, C, D, E)
    late_s = 2 * A.estimate.q95_s
    assert 0.6 < late_s < 0.7
    assert launched(made)[2:] == [("c", late_s, Role.FAILOVER), ("d", 2 * late_s, Role.FAILOVER)]
    assert made.rest == ("e",)
    assert made.rescue_s == late_s


@pytest.mark.parametrize("median_s", [6.0, 20.0, 60.0])
def test_rescue_comes_at_twice_the_primarys_q95_and_the_next_at_twice_that_however_slow_it_is(median_s: float) -> None:
    slow = [candidate(name, median_s * factor) for name, factor in zip("abcd", (1.0, 1.6, 1.7, 1.8), strict=True)]
    made = planned(*slow)
    late_s = 2 * slow[0].estimate.q95_s
    assert late_s > 2 * median_s
    assert [launch.delay_s for launch in made.launches[2:]] == [late_s, 2 * late_s]


def test_a_rescue_comes_while_it_may_still_answer_before_the_time_out_and_a_quick_model_s_is_as_ever() -> None:
    def within(ttft_timeout_s: float, *, seconds: float) -> Plan:
        return planned(*(candidate(name, seconds) for name in "abcd"), ttft_s=dict.fromkeys("abcd", ttft_timeout_s))

    in_time = within(120.0, seconds=60.0)
    assert [launch.delay_s for launch in in_time.launches if launch.role is Role.FAILOVER] == pytest.approx([90, 180])
    assert in_time.rescue_s == 90.0
    assert within(120.0, seconds=0.3) == planned(*(candidate(name, 0.3) for name in "abcd"))
    assert within(0.05, seconds=60.0).rescue_s == 0.6  # no sooner than ever


def test_failover_goes_by_score_and_to_the_tripped_last() -> None:
    tripped = candidate("x", 0.1, state=HealthState.OPEN)
    cooling = candidate("y", 0.1, state=HealthState.COOLING, cooling_s=3.0)
    out = candidate("z", 0.1, state=HealthState.OUT)
    made = planned(tripped, cooling, out, C, B, A, mode=Mode.SINGLE, budget=0.0)
    assert [launch.deployment for launch in made.launches] == ["a"]
    assert made.rest == ("b", "c", "x")


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.SINGLE])
def test_a_call_that_hangs_and_has_nobody_else_asks_the_best_broken_one(mode: Mode) -> None:
    worse, best = (candidate(name, time_s, state=HealthState.OPEN) for name, time_s in (("x", 0.3), ("y", 0.2)))
    made = planned(worse, best, A, mode=mode)
    assert launched(made) == [("a", 0.0, Role.PRIMARY), ("y", 2 * A.estimate.q95_s, Role.FAILOVER)]
    assert made.rest == ("x",)
    probed = candidate("y", 0.2, state=HealthState.HALF_OPEN, probe_due=True)
    assert launched(planned(worse, probed, A, mode=mode)) == [("a", 0.0, Role.PRIMARY), ("y", 0.0, Role.PROBE)]


def test_with_every_breaker_open_somebody_is_asked_all_the_same() -> None:
    made = planned(
        candidate("a", 0.3, state=HealthState.OPEN),
        candidate("b", 0.9, state=HealthState.HALF_OPEN, probe_due=True),
        budget=0.1,
    )
    assert launched(made)[0] == ("a", 0.0, Role.PRIMARY)
    assert [launch.role for launch in made.launches] == [Role.PRIMARY, Role.HEDGE]


def test_when_all_cool_down_nobody_is_asked_and_the_least_wait_is_told() -> None:
    made = planned(
        candidate("a", 0.3, state=HealthState.COOLING, cooling_s=8.0),
        candidate("b", 0.3, state=HealthState.COOLING, cooling_s=2.5),
    )
    assert (made.launches, made.rest) == ((), ())
    assert made.retry_after_s == 2.5


def test_with_one_out_and_the_others_cooling_the_wait_is_told_too() -> None:
    made = planned(
        candidate("a", 0.3, state=HealthState.OUT), candidate("b", 0.3, state=HealthState.COOLING, cooling_s=2.5)
    )
    assert (made.launches, made.retry_after_s) == ((), 2.5)


def test_with_all_out_one_is_asked_so_that_the_client_learns_why() -> None:
    made = planned(candidate("a", 0.3, state=HealthState.OUT), candidate("b", 0.9, state=HealthState.OUT), budget=0)
    assert made.launches[0].deployment == "a"


def test_single_is_one_at_a_time_unless_it_hangs_and_the_budget_allows_a_rescue_and_another_one() -> None:
    broken = candidate("x", 0.1, state=HealthState.HALF_OPEN)
    made = planned(A, B, C, broken, mode=Mode.SINGLE, draws=(ALWAYS,))
    assert launched(made) == [
        ("a", 0.0, Role.PRIMARY),
        ("b", 2 * A.estimate.q95_s, Role.FAILOVER),
        ("c", 4 * A.estimate.q95_s, Role.FAILOVER),
    ]
    assert made.rest == ("x",)
    assert made.rescue_s == 2 * A.estimate.q95_s
    made = planned(A, B, C, broken, mode=Mode.SINGLE, budget=0.0, draws=(ALWAYS,))
    assert launched(made) == [("a", 0.0, Role.PRIMARY)]
    assert made.rest == ("b", "c", "x")
    assert made.rescue_s is None


def test_single_probes_a_broken_deployment_beside_its_call_and_a_budget_of_nothing_does_not() -> None:
    probe = candidate("x", 0.1, state=HealthState.HALF_OPEN, probe_due=True)
    made = planned(A, B, probe, mode=Mode.SINGLE)
    assert started(made) == [("a", Role.PRIMARY), ("x", Role.PROBE)]
    assert launched(made)[2] == ("b", 2 * A.estimate.q95_s, Role.FAILOVER)  # at its usual time
    assert (made.width_asked, made.narrowed) == (1, None)
    assert started(planned(A, B, probe, mode=Mode.SINGLE, budget=0.0)) == [("a", Role.PRIMARY)]


def test_race_starts_as_many_as_its_width_at_once() -> None:
    made = planned(A, B, C, D, mode=Mode.RACE, width=3)
    assert started(made) == [("a", Role.PRIMARY), ("b", Role.RACE), ("c", Role.RACE)]
    assert launched(made)[3] == ("d", 2 * A.estimate.q95_s, Role.FAILOVER)


def test_in_a_race_of_given_width_exploring_takes_a_racers_place() -> None:
    fresh, quiet = candidate("b", 0.6, launched_at_s=-1.0), candidate("q", 2.0, launched_at_s=-60.0)
    assert started(planned(A, fresh, quiet, mode=Mode.RACE, draws=(ALWAYS,))) == [
        ("a", Role.PRIMARY),
        ("q", Role.EXPLORE),
    ]
    assert started(planned(A, quiet, mode=Mode.RACE, draws=(ALWAYS,)))[1] == ("q", Role.RACE)


def test_hedge_starts_the_second_after_its_delay_or_the_policys_quantile() -> None:
    assert launched(planned(A, B, mode=Mode.HEDGE, hedge_delay_s=0.7))[1] == ("b", 0.7, Role.HEDGE)
    assert launched(planned(A, B, mode=Mode.HEDGE, hedge_delay_s=0.0))[1] == ("b", 0.0, Role.HEDGE)
    assert planned(A, B, mode=Mode.HEDGE).launches[1].delay_s == A.estimate.curve.quantile_s(0.9)


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.RACE, Mode.HEDGE])
def test_a_long_prompt_is_hedged_not_raced(mode: Mode) -> None:
    new = candidate("a", 0.3, events=0)
    made = planned(new, B, C, mode=mode, prompt_tokens=16_001, draws=(ALWAYS,), hedge_delay_s=0.0)
    assert started(made) == [("a", Role.PRIMARY)]
    assert launched(made)[1] == ("b", A.estimate.curve.quantile_s(0.9), Role.HEDGE)
    assert "long prompt: hedged" in made.reasons


def test_a_budget_of_nothing_starts_nothing_extra_but_still_rescues() -> None:
    probe = candidate("x", 0.1, state=HealthState.HALF_OPEN, probe_due=True)
    made = planned(A, B, C, D, probe, budget=0, draws=(ALWAYS,))
    assert [(launch.deployment, launch.role) for launch in made.launches] == [
        ("a", Role.PRIMARY),
        ("b", Role.FAILOVER),
        ("c", Role.FAILOVER),
    ]
    assert made.rest == ("d", "x")


def test_a_model_with_one_deployment_races_itself_only_when_asked_to() -> None:
    assert started(planned(A)) == [("a", Role.PRIMARY)]
    assert started(planned(A, mode=Mode.RACE)) == [("a", Role.PRIMARY), ("a", Role.RACE)]
    assert launched(planned(A, mode=Mode.HEDGE, hedge_delay_s=0.4))[1] == ("a", 0.4, Role.HEDGE)


def test_a_deployment_is_launched_once_whatever_the_plan() -> None:
    random = Random(11)
    for _ in range(500):
        everyone = []
        for name in "abcdef":
            state = random.choice(list(HealthState))
            due = state in {HealthState.HALF_OPEN, HealthState.OUT} and random.random() < 0.5
            seen = random.choice([0, 50])
            everyone.append(candidate(name, random.uniform(0.1, 2), events=seen, state=state, probe_due=due))
        race = RaceSettings(
            mode=random.choice(list(Mode)), budget=random.choice([0, 0.1, 1, 3]), width=random.randint(1, 5)
        )
        made = plan(
            line_up(everyone),
            race,
            Terms(random.choice(OBJECTIVES), random.choice([10, 50_000])),
            Means(20),
            random=random,
        )
        names = [launch.deployment for launch in made.launches] + list(made.rest)
        assert len(names) == len(set(names))
        assert [launch.delay_s for launch in made.launches] == sorted(launch.delay_s for launch in made.launches)
        assert bool(made.launches) != (made.retry_after_s is not None)
        if made.launches:
            assert made.launches[0].role is Role.PRIMARY


@pytest.mark.parametrize(
    ("other_s", "supposed", "first"),
    [
        (1.0, [], "drawn"),
        (1.0, ["drawn"], "other"),
        (1.0, ["other"], "drawn"),
        (1.2, ["drawn"], "other"),
        (1.3, ["drawn"], "drawn"),
        (1.0, ["drawn", "other"], "drawn"),
    ],
)
def test_of_equals_the_one_that_has_refused_nobody_this_is_asked_first(
    other_s: float, supposed: list[str], first: str
) -> None:
    lineup = line_up([candidate("other", other_s), candidate("drawn", 1.0)])
    settings = RaceSettings.model_validate({"mode": Mode.SINGLE})
    terms = Terms(Objective.FIRST_TOKEN, 1, supposed=supposed)
    draw = NEVER if other_s == 1.0 else ALWAYS
    made = plan(lineup, settings, terms, Means(0.0), random=Draws(draw), now_s=0.0)
    assert [each.deployment for each in made.launches if each.delay_s == 0.0] == [first]
    assert {*(each.deployment for each in made.launches), *made.rest} == {"drawn", "other"}  # it keeps nobody out


def test_where_somebody_listens_two_that_are_both_late_are_joined_soon_by_another_draw_of_the_best() -> None:
    def rescues(*candidates: Candidate, spoken: bool, mode: Mode = Mode.RACE) -> list[tuple[str, float]]:
        made = planned(*candidates, mode=mode, spoken=spoken)
        return [(each.deployment, each.delay_s) for each in made.launches if each.role is Role.FAILOVER]

    # Each is due sooner by a few of its tokens, and as said where somebody has begun to speak.
    token_s = 1 / B.estimate.decode_tps
    sooner_s, soon_s = 8 * token_s, 1.25 * B.estimate.quantile_s(0.75)
    assert rescues(B, C, spoken=True) == [
        ("b", pytest.approx(soon_s - sooner_s)),
        ("c", pytest.approx(2 * soon_s - sooner_s)),
    ]
    assert rescues(B, C, D, spoken=True) == [("d", pytest.approx(soon_s - sooner_s))]
    assert rescues(B, C, spoken=False) == []
    last = planned(B, C, D, mode=Mode.RACE, spoken=True).launches[-1]
    assert last.speaking is not None
    assert (last.speaking.at_s, last.speaking.after_s) == pytest.approx((soon_s, 15 * token_s))
    # Beside a hedge it waits for that, which comes as late as the budget pays for in each call.
    hedged = planned(B, C, mode=Mode.HEDGE, budget=0.3, spoken=True)
    hedge_s, usual_s = B.estimate.quantile_s(1 - 0.3 * 1.1) - sooner_s, soon_s / 1.25 - sooner_s
    delays = [hedge_s + number * usual_s for number in range(3)]
    delays[2] += sooner_s  # the last one is a usual clause after the one before, of which it is not known if it speaks
    assert [each.delay_s for each in hedged.launches[1:4]] == pytest.approx(delays)
    # What the operator has set is neither sooner for it, nor is another one beside that.
    delay_s = hedge_s + sooner_s - 0.001
    for most in (1000, 99):  # tokens of a prompt that may be raced
        asked = planned(B, C, mode=Mode.HEDGE, budget=0.3, spoken=True, hedge_delay_s=delay_s, max_prompt_tokens=most)
        assert [each.delay_s for each in asked.launches[1:3]] == pytest.approx([delay_s, delay_s + usual_s])
    # Alone it is asked again by nobody, and another as late as ever: its own lateness is not rare.
    alone = rescues(B, C, spoken=True, mode=Mode.SINGLE)
    assert alone == rescues(B, C, spoken=False, mode=Mode.SINGLE) != []
    # What a request asks for by itself the budget pays: refused, or without one, it comes when the call hangs.
    own = planned(B, C, D, mode=Mode.RACE, spoken=True, unasked=True)
    assert [(each.deployment, each.delay_s, each.role) for each in own.launches[2:]] == [
        ("d", pytest.approx(soon_s - sooner_s), Role.HEDGE)
    ]
    assert own.rescue_s == B.estimate.hangs_s > soon_s
    spent = planned(B, C, D, mode=Mode.RACE, spoken=True, unasked=True, budget=0.0)
    assert [each.role for each in spent.launches] == [Role.PRIMARY, *[Role.FAILOVER] * 2]
    assert spent.rescue_s == B.estimate.hangs_s
