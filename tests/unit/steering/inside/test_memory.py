"""What is remembered beyond the board's ten minutes."""

from math import inf

import pytest

from gateway.core.prompt_classes import MeasuredApi
from gateway.steering import SLOT_S, SLOTS_KEPT, event
from gateway.steering.constants import MEMORY_HALF_LIVES_S, MODELS_REMEMBERED
from gateway.steering.counts import cut, lasting, read_evidence
from gateway.steering.snapshots import Memory
from tests.unit.steering.virtual_replica import MODEL, SHORT, VirtualReplica

ANSWERS = MeasuredApi.ANSWERS

FIELD = event("a", ANSWERS, 0.3)
HOURS, MINUTES = range(2)


def test_slots_are_folded_once_before_the_board_drops_them() -> None:
    memory, slots = Memory(), {slot: {FIELD: 1.0} for slot in range(100, 100 + SLOTS_KEPT)}
    since = memory.fold("m", slots, 100 + SLOTS_KEPT - 1)
    assert 105 < since < 100 + SLOTS_KEPT - 1  # the newest may not be complete
    assert memory.fold("m", slots, 100 + SLOTS_KEPT) == since + 1
    assert memory.fold("m", slots, 100 + SLOTS_KEPT) == since + 1
    assert memory.counts("m", HOURS, since)[FIELD] == pytest.approx(since + 1 - 100, rel=0.02)


def test_on_each_scale_it_fades_by_its_half_life() -> None:
    memory = Memory()
    memory.learn("m", {FIELD: 8.0}, 0)
    for scale, half_life_s in enumerate(MEMORY_HALF_LIVES_S):
        assert memory.counts("m", scale, int(half_life_s / SLOT_S))[FIELD] == pytest.approx(4.0)
    assert memory.counts("other", HOURS, 0) == {}


def test_older_sums_may_come_after_newer_ones() -> None:
    one, other = Memory(), Memory()
    for memory, order in ((one, (0, 120)), (other, (120, 0))):
        for slot in order:
            memory.learn("m", {FIELD: 8.0}, slot)
    assert one.counts("m", MINUTES, 240) == pytest.approx(other.counts("m", MINUTES, 240))


def test_no_more_models_are_remembered_than_there_is_room_for() -> None:
    memory = Memory()
    for number in range(MODELS_REMEMBERED + 5):
        memory.fold(str(number), {}, 100)
    assert len(memory._models) == MODELS_REMEMBERED


def test_only_what_the_policy_needs_is_remembered() -> None:
    needed = {FIELD: 1.0, cut("a", ANSWERS, 0.3): 1.0, "a|n": 3.0, "a|1|ended": 2.0, "a|1|failed": 1.0}
    assert lasting({**needed, "a|0|e17": 9.0, "req": 1.0}) == needed


def test_fields_that_cannot_be_are_passed_over() -> None:
    wrong = {
        "a|0|x3": 1.0,
        "a|p3": 1.0,
        "a|0|p3333": 1.0,
        "a|1234|p3": 1.0,
        "a|0|ended": 1.0,
        "a|99|failed": 1.0,
        "a|ended": 1.0,
        "|p3": 1.0,
        "a|0|p3": -1.0,
    }
    assert read_evidence(wrong) == {}


def test_a_model_that_is_called_every_five_minutes_keeps_to_its_best() -> None:
    replica = VirtualReplica(("a", "b", "c"))
    for _ in range(60):
        replica.now_s += 60.0
        for name, ttft_s in (("a", 0.6), ("b", 0.2), ("c", 0.4)):
            replica.win(name, ttft_s)
        replica.plan()
    chosen = []
    for _ in range(24):
        replica.now_s += 300.0
        plan = replica.plan(budget=0.1)
        chosen.append(plan.launches[0].deployment)
        replica.win(plan.launches[0].deployment, {"a": 0.6, "b": 0.2, "c": 0.4}[plan.launches[0].deployment])
    assert chosen.count("b") >= 23


def test_the_end_of_an_answer_of_three_minutes_is_remembered_with_its_start() -> None:
    memory, began = Memory(), {FIELD: 1.0}
    for slot in range(100, 106):
        memory.fold("m", {100: began}, slot)
    ended = began | {"a|tok": 500.0}
    for slot in range(106, 100 + SLOTS_KEPT):
        memory.fold("m", {100: ended}, slot)
    assert memory.counts("m", HOURS, 120)["a|tok"] == pytest.approx(500.0, rel=0.05)


def test_a_clock_that_is_set_back_breaks_nothing() -> None:
    memory = Memory()
    memory.fold("m", {90_000: {FIELD: 4.0}}, 90_100)
    for now_slot in (89_000, 10):
        assert memory.counts("m", MINUTES, now_slot)[FIELD] <= 4.0
        memory.fold("m", {now_slot - 15: {FIELD: 1.0}}, now_slot)
    assert memory.counts("m", MINUTES, 10)[FIELD] <= 8.0


def test_the_ledgers_models_are_bounded_too() -> None:
    memory = Memory()
    for number in range(MODELS_REMEMBERED + 50):
        memory.learn(str(number), {FIELD: 1.0}, 100)
    assert len(memory._models) <= MODELS_REMEMBERED


def test_what_is_known_of_prompt_sizes_outlives_a_quiet_hour() -> None:
    replica = VirtualReplica(("a", "b"))
    for size in range(28):
        for _ in range(40):
            replica.steering._snapshots.sizing("llama", ANSWERS, "a").seen(size, 0.2 * 1.4**size)
    replica.warm_up(a=0.3)
    replica.now_s += 60.0
    replica.plan()
    knee_tokens = replica.steering._snapshots.sizing("llama", ANSWERS, "a").knee_tokens
    assert knee_tokens < 4000
    for _ in range(120):
        replica.now_s += 30.0
        replica.steering.refresh(most_s=inf)
        replica.steering._forget()
    assert replica.steering._snapshots.sizing("llama", ANSWERS, "a").knee_tokens == knee_tokens


def test_new_standings_are_made_in_many_small_steps_and_used_when_all_are_done() -> None:
    names = tuple(f"d{number}" for number in range(40))
    replicas = [VirtualReplica(names, seed=1) for _ in range(2)]
    for replica in replicas:
        for number, name in enumerate(names):
            for _ in range(5):
                replica.win(name, 0.3 + 0.01 * number)
        replica.plan()
        replica.now_s += 31.0  # a new slot: the longer scales are made again too
        replica.warm_up(d7=0.1)
        replica.steering._snapshots.refreshing()
    in_steps, at_once = replicas
    before, steps = in_steps.steering._snapshots.of(MODEL, SHORT), 0
    while in_steps.steering._snapshots.of(MODEL, SHORT) is before:
        in_steps.steering.refresh(most_s=0.0)  # one step
        steps += 1
    assert steps > len(names)
    at_once.steering.refresh(most_s=inf)
    assert in_steps.steering._snapshots.of(MODEL, SHORT) == at_once.steering._snapshots.of(MODEL, SHORT)


def test_what_is_outdated_while_it_is_made_is_made_again() -> None:
    replica = VirtualReplica(("a", "b"))
    replica.warm_up(a=0.3, b=0.4)
    replica.plan()
    replica.now_s += 1.0
    replica.warm_up(a=0.3)
    replica.steering.refresh(most_s=0.0)
    replica.steering._snapshots.remember(MODEL, {FIELD: 1.0}, 0)
    replica.steering.refresh(most_s=inf)
    before = replica.steering._snapshots.of(MODEL, SHORT)
    replica.steering.refresh(most_s=inf)
    assert replica.steering._snapshots.of(MODEL, SHORT) is not before
