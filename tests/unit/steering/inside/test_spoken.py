"""First clauses are a class of their own: what a chat's first tokens take says nothing of a voice's first clauses."""

from gateway.core.calls import Mode
from gateway.core.prompt_classes import PromptClass, spoken_class
from gateway.steering import event_field, slot_of
from gateway.steering.estimates import Estimate
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica

SPOKEN = spoken_class(SHORT)


def estimate(replica: VirtualReplica, prompt_class: PromptClass) -> Estimate:
    primary = replica.plan(mode=Mode.SINGLE, prompt_class=prompt_class).primary
    assert primary is not None
    return primary


def answers(replica: VirtualReplica, prompt_class: PromptClass, time_s: float, n: int) -> None:
    for _ in range(n):
        replica.win("a", time_s, prompt_class=prompt_class)
    replica.now_s += 31.0


def test_first_clauses_and_first_tokens_of_one_model_are_not_in_one_figure() -> None:
    alone, replica = VirtualReplica(("a",)), VirtualReplica(("a",))
    answers(alone, SHORT, 0.3, 20)
    answers(replica, SHORT, 0.3, 20)
    answers(replica, SPOKEN, 0.4, 20)  # as alike as efforts that are one population
    replica.now_s = alone.now_s = 100.0
    assert estimate(replica, SHORT).quantile_s(0.9) == estimate(alone, SHORT).quantile_s(0.9)
    assert estimate(replica, SPOKEN).quantile_s(0.5) > 0.36 > estimate(replica, SHORT).quantile_s(0.5)


def test_until_ten_of_a_kind_are_known_all_are_its_figure() -> None:
    replica = VirtualReplica(("a",))
    answers(replica, SPOKEN, 1.0, 20)
    for prompt_class in (SPOKEN, SHORT):
        assert estimate(replica, prompt_class).is_known
        assert estimate(replica, prompt_class).quantile_s(0.5) > 0.9
    answers(replica, SHORT, 0.3, 12)
    assert estimate(replica, SHORT).quantile_s(0.5) < 0.4
    assert estimate(replica, SPOKEN).quantile_s(0.5) > 0.9


def test_what_the_ledger_knows_of_the_last_minutes_is_told_apart_again() -> None:
    replica = VirtualReplica(("a",))
    tokens, both = event_field("a", SHORT, 0.3), event_field("a", SHORT, 1.0)
    spoken = event_field("a", SHORT, 1.0, kind="se")
    replica.steering.recall({MODEL: {slot_of(1_800_000_000.0): {tokens: 20.0, both: 20.0, spoken: 20.0, "a|n": 40.0}}})
    assert estimate(replica, SHORT).quantile_s(0.5) < 0.4
    assert estimate(replica, SPOKEN).quantile_s(0.5) > 0.9
