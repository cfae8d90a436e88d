"""Who answers worse than its peers is a last resort, hardly ever by chance, and comes back when it is well again."""

from math import exp, sqrt
from random import Random

import pytest

from gateway.core.attempts import AnswerKind, Flaw, Role
from gateway.core.calls import Mode
from gateway.steering.constants import EXPLORE_FLAWED_SHARE
from gateway.steering.quality import Quality
from tests.unit.steering.virtual_replica import MODEL, VirtualReplica

TOOLS = AnswerKind.TOOLS


def flaw(random: Random, rate: float) -> Flaw | None:
    return Flaw.BAD_TOOL_CALL if random.random() < rate else None


def feed(quality: Quality, random: Random, answers: int, **rates: float) -> list[tuple[str, int, bool]]:
    """Give each deployment so many answers in turn; return who changed after how many, and whether it was demoted."""
    changes = []
    for number in range(answers):
        for name, rate in rates.items():
            if (change := quality.judged(MODEL, TOOLS, name, flaw(random, rate))) is not None:
                changes.append((name, number, change.is_demoted))
    return changes


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.2, 0.6, 1.0])
def test_where_all_fail_alike_nobody_is_demoted(rate: float) -> None:
    assert feed(Quality(), Random(7), 25_000, a=rate, b=rate, c=rate, d=rate) == []


@pytest.mark.parametrize("rate", [0.002, 0.02, 0.1, 0.3])
def test_false_demotions_are_no_more_than_one_in_e_to_the_alarm_answers(rate: float) -> None:
    alarm, answers = 5.0, 25_000
    changes = feed(Quality(alarm), Random(11), answers, a=rate, b=rate, c=rate, d=rate)
    assert sum(is_demoted for *_, is_demoted in changes) <= 4 * answers / exp(alarm)


@pytest.mark.parametrize(("rate", "within"), [(0.3, 120), (0.15, 500), (1.0, 40)])
def test_who_fails_more_often_than_its_peers_is_demoted_soon_and_nobody_else(rate: float, within: int) -> None:
    quality, random = Quality(), Random(3)
    feed(quality, random, 300, a=0.01, b=0.01, c=0.01)
    changes = feed(quality, random, within, a=rate, b=0.01, c=0.01)
    assert [(name, is_demoted) for name, _, is_demoted in changes][:1] == [("a", True)]
    assert {name for name, *_ in changes} == {"a"}
    demoted = quality.demoted(MODEL, TOOLS)
    assert demoted is not None
    assert demoted["a"].startswith("answers fail more often than its peers': ")
    assert "answers with tools, mostly bad_tool_call; peers " in demoted["a"]


def test_it_comes_back_when_its_answers_are_as_good_again() -> None:
    quality, random = Quality(), Random(3)
    feed(quality, random, 300, a=0.01, b=0.01)
    feed(quality, random, 200, a=0.4, b=0.01)
    assert quality.demoted(MODEL, TOOLS) is not None
    assert feed(quality, random, 300, a=0.4) == []
    assert [(name, is_demoted) for name, _, is_demoted in feed(quality, random, 150, a=0.01)] == [("a", False)]
    assert quality.demoted(MODEL, TOOLS) is None


def test_nobody_is_accused_by_peers_of_whom_little_is_known() -> None:
    assert feed(Quality(), Random(3), 1000, a=0.5) == []
    quality = Quality()
    feed(quality, Random(4), 8, b=0.0)
    assert feed(quality, Random(3), 1000, a=0.3) == []


def test_kinds_of_answers_and_models_are_tested_apart() -> None:
    quality, random = Quality(), Random(3)
    feed(quality, random, 300, a=0.4, b=0.01)
    assert quality.demoted(MODEL, AnswerKind.PLAIN) is None
    assert quality.demoted("another", TOOLS) is None
    quality.keep({"another"}, {"a", "b"})
    assert quality.demoted(MODEL, TOOLS) is None


def test_a_deployment_that_is_gone_is_neither_demoted_nor_a_peer() -> None:
    quality, random = Quality(), Random(3)
    feed(quality, random, 300, a=0.4, b=0.01, c=0.01)
    quality.keep({MODEL}, {"a", "b"})
    assert list(quality.demoted(MODEL, TOOLS) or ()) == ["a"]
    quality.keep({MODEL}, {"b"})
    assert quality.demoted(MODEL, TOOLS) is None
    assert feed(quality, random, 1000, b=0.5) == []  # nobody is left whom it could be held against


def by_clients(quality: Quality, random: Random, answers: int, clients: dict[str, float], **rates: float) -> None:
    """Give answers of clients, as many as the weight says, all at ``rates`` of flaws at the deployments."""
    names, weights = [*clients], [*clients.values()]
    for _ in range(answers):
        for name, rate in rates.items():
            (client,) = random.choices(names, weights)
            quality.judged(MODEL, TOOLS, name, flaw(random, rate), client)


MANY = {"x": 1.0, "y": 1.0, "z": 1.0, "w": 1.0}


@pytest.mark.parametrize("culprits", [["evil"], ["evil", "worse"]])
def test_two_clients_alone_demote_nobody(culprits: list[str]) -> None:
    quality, random = Quality(), Random(3)
    by_clients(quality, random, 300, MANY, a=0.01, b=0.01)
    for _ in range(60):
        for culprit in culprits:
            assert quality.judged(MODEL, TOOLS, "a", Flaw.SCHEMA_MISS, culprit) is None
    assert quality.demoted(MODEL, TOOLS) is None


def test_three_clients_that_see_flaws_are_enough() -> None:
    quality, random = Quality(), Random(3)
    by_clients(quality, random, 300, MANY, a=0.01, b=0.01)
    changes = [quality.judged(MODEL, TOOLS, "a", Flaw.SCHEMA_MISS, client) for client in "xyz" * 5]
    assert any(change is not None and change.is_demoted for change in changes)


@pytest.mark.parametrize(
    "clients",
    [{"only": 1.0}, {"first": 0.8, "second": 0.2}, {"first": 0.85, "second": 0.09, "third": 0.06}, MANY],
)
def test_who_is_worse_is_found_out_however_the_calls_are_spread_over_clients(clients: dict[str, float]) -> None:
    quality, random = Quality(), Random(3)
    by_clients(quality, random, 300, clients, a=0.01, b=0.01)
    by_clients(quality, random, 600, clients, a=0.3, b=0.01)
    assert list(quality.demoted(MODEL, TOOLS) or ()) == ["a"]


def test_a_client_that_was_alone_counts_less_once_there_are_others() -> None:
    quality, random = Quality(), Random(3)
    by_clients(quality, random, 200, {"evil": 1.0}, a=0.0, b=0.0)
    for _ in range(12):  # just below the alarm
        assert quality.judged(MODEL, TOOLS, "a", Flaw.SCHEMA_MISS, "evil") is None
    by_clients(quality, random, 300, MANY, b=0.01)
    assert [quality.judged(MODEL, TOOLS, "a", Flaw.SCHEMA_MISS, "evil") for _ in range(30)] == [None] * 30


def test_requests_that_choose_their_deployments_prove_nothing() -> None:
    replica = VirtualReplica()
    for _ in range(200):
        for name in "ab":
            replica.win(name, judged_as=TOOLS)
    for _ in range(50):
        replica.win("a", judged_as=TOOLS, flaw=Flaw.SCHEMA_MISS, is_restricted=True)
    assert "a" in {replica.plan(answer_kind=TOOLS).launches[0].deployment for _ in range(50)}
    for _ in range(50):
        replica.win("a", judged_as=TOOLS, flaw=Flaw.SCHEMA_MISS)
    last = [
        [*(each.deployment for each in plan.launches), *plan.rest][-1] for plan in [replica.plan(answer_kind=TOOLS)]
    ]
    assert last == ["a"]


def demoted_replica(deployments: tuple[str, ...] = ("a", "b", "c")) -> VirtualReplica:
    """``a`` is by far the fastest, and its tool calls do not parse."""
    replica = VirtualReplica(deployments)
    replica.warm_up(a=0.1, b=0.3, c=0.35)
    for number in range(200):
        for name in "bc":
            replica.win(name, 0.3, judged_as=TOOLS)
        replica.win("a", 0.1, judged_as=TOOLS, flaw=None if number % 2 else Flaw.BAD_TOOL_CALL)
    replica.now_s += 1.0
    return replica


def test_a_demoted_deployment_answers_one_call_in_a_hundred_with_a_healthy_one_standing_by() -> None:
    replica = demoted_replica()
    plans = [replica.plan(answer_kind=TOOLS, budget=0.5) for _ in range(5000)]
    tried = [plan for plan in plans if plan.launches[0].deployment == "a"]
    assert len(tried) / len(plans) == pytest.approx(
        EXPLORE_FLAWED_SHARE, abs=4 * sqrt(EXPLORE_FLAWED_SHARE / len(plans))
    )
    for plan in tried:
        assert plan.launches[1].deployment != "a"
        assert plan.launches[1].role is Role.HEDGE
        assert plan.launches[1].delay_s > 0
    for plan in plans:
        if plan not in tried:
            beside = [each for each in plan.launches if each.deployment == "a"]
            assert all(each.role is Role.FAILOVER for each in beside)
            assert [*(each.deployment for each in plan.launches), *plan.rest][-1] == "a"


@pytest.mark.parametrize("mode", [Mode.SINGLE, Mode.RACE, Mode.HEDGE, Mode.AUTO])
def test_every_mode_tries_it_now_and_then(mode: Mode) -> None:
    replica = demoted_replica()
    tried = sum(replica.plan(answer_kind=TOOLS, mode=mode).launches[0].deployment == "a" for _ in range(2000))
    assert 8 <= tried <= 40


def test_calls_of_another_kind_go_on_to_be_answered_by_it() -> None:
    assert {demoted_replica().plan().launches[0].deployment for _ in range(5)} == {"a"}


def test_a_demoted_deployment_still_answers_where_nobody_else_can() -> None:
    replica = demoted_replica()
    replica.deployments = ("a",)
    assert replica.plan(answer_kind=TOOLS).launches[0].deployment == "a"
    replica.deployments = ("a", "b", "c")
    for _ in range(5):
        replica.fail("b")
        replica.fail("c")
    assert replica.plan(answer_kind=TOOLS).launches[0].deployment == "a"


def test_the_reason_is_explained() -> None:
    replica = demoted_replica()
    for _ in range(300):  # until it is tried
        plan = replica.plan(answer_kind=TOOLS, explain=True)
        assert plan.explanation is not None
        prospects = {each.deployment: each for each in plan.explanation.deployments}
        assert (prospects["a"].passed_over or "").startswith("answers fail more often than its peers'")
        assert prospects["a"].draw == EXPLORE_FLAWED_SHARE
        assert sum(each.draw for each in prospects.values()) == pytest.approx(1.0, abs=1e-3)
        if plan.launches[0].deployment == "a":
            assert (
                "sees if it has recovered" in plan.explanation.launches[0].why
                or "1%" in plan.explanation.launches[0].why
            )
            return
    pytest.fail("it was never tried")
