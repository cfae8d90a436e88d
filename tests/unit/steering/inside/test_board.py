"""The board in memory: slots, weights, forgetting."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.steering import MemoryBoard, slot_of
from gateway.steering.board import Slots
from gateway.steering.counts import add_weighted

NOW_S = 1_800_000_000.0


def test_a_slot_is_half_a_minute_of_unix_time() -> None:
    assert slot_of(59.9) == 1
    assert slot_of(60.0) == 2


def test_the_open_slot_counts_in_full_and_older_ones_halve_every_two_minutes() -> None:
    board = MemoryBoard()
    board.add("m", {"a|n": 8.0}, NOW_S)
    assert board.counts("m", NOW_S + 29, half_life_s=120) == {"a|n": 8.0}
    assert board.counts("m", NOW_S + 30, half_life_s=120)["a|n"] == pytest.approx(8 * 0.5**0.25)
    assert board.counts("m", NOW_S + 120, half_life_s=120) == {"a|n": 4.0}
    assert board.counts("m", NOW_S + 120, half_life_s=inf) == {"a|n": 8.0}


def test_after_ten_minutes_a_slot_is_forgotten_and_then_its_model() -> None:
    board = MemoryBoard()
    board.add("m", {"a|n": 1.0}, NOW_S)
    assert board.counts("m", NOW_S + 599, half_life_s=inf) == {"a|n": 1.0}
    assert board.counts("m", NOW_S + 600, half_life_s=inf) == {}
    board.add("other", {"a|n": 1.0}, NOW_S + 600)
    assert [*board._models] == ["other"]


def test_the_version_changes_with_each_count_and_with_nothing_else() -> None:
    board = MemoryBoard()
    board.add("m", {"a|n": 1.0}, NOW_S)
    before = board.version("m", NOW_S)
    board.add("other", {"a|n": 1.0}, NOW_S)
    assert board.version("m", NOW_S) == before
    board.add("m", {"a|n": 1.0}, NOW_S)
    assert board.version("m", NOW_S) != before


def test_after_the_clock_was_set_back_by_an_hour_samples_grow_old_as_always() -> None:
    board = MemoryBoard()
    board.add("m", {"a|n": 8.0}, NOW_S + 3600)
    board.version("m", NOW_S)
    assert board.counts("m", NOW_S, half_life_s=120) == {"a|n": 8.0}
    board.version("m", NOW_S + 120)
    assert board.counts("m", NOW_S + 120, half_life_s=120) == {"a|n": 4.0}
    board.version("m", NOW_S + 600)
    assert board.slots("m", NOW_S + 600) == {}


samples = st.lists(
    st.tuples(st.integers(0, 25), st.sampled_from(["a|n", "a|0|e3", "b|1|c9"]), st.integers(1, 5)), max_size=40
)


@given(samples, samples)
def test_merging_boards_is_adding_their_counts(
    one: list[tuple[int, str, int]], other: list[tuple[int, str, int]]
) -> None:
    def told(*parts: list[tuple[int, str, int]]) -> dict[str, float]:
        slots, total = Slots(), dict[str, float]()
        for part in parts:
            for slot, field, amount in part:
                slots.add(slot, {field: float(amount)})
        slots.sum_into(total, 25, 120.0)
        return total

    apart: dict[str, float] = told(one)
    for field, amount in told(other).items():
        apart[field] = apart.get(field, 0.0) + amount
    assert told(one, other) == pytest.approx(apart)


changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "replace", "drop", "sum"]),
        st.integers(0, 25),
        st.dictionaries(st.sampled_from(["a|n", "a|0|e3", "b|1|c9"]), st.integers(1, 5).map(float)),
    ),
    max_size=30,
)


@given(changes)
def test_the_sum_kept_up_to_date_is_the_sum_of_all_slots(
    changes: list[tuple[str, int, dict[str, float]]],
) -> None:
    slots = Slots()
    for kind, slot, counts in changes:
        if kind == "add":
            slots.add(slot, counts)
        elif kind == "replace":
            slots.replace(slot, counts)
        elif kind == "drop":
            slots.drop(slot)
        else:
            slots.sum_into({}, 20 + slot % 2, 120.0)
    kept, again = dict[str, float](), dict[str, float]()
    slots.sum_into(kept, 21, 120.0)
    for slot, counts in slots.items():
        if slot > 1:
            add_weighted(again, counts, 0.5 ** (30 * max(0, 21 - slot) / 120))
    assert {field: amount for field, amount in kept.items() if amount > 1e-9} == pytest.approx(
        {field: amount for field, amount in again.items() if amount}
    )


def test_what_an_attempt_of_minutes_ago_adds_does_not_turn_the_clock_back() -> None:
    board = MemoryBoard()
    board.add("m", {"a|n": 1.0}, NOW_S)
    board.add("m", {"a|n": 2.0}, NOW_S - 300)
    board.add("m", {"a|n": 4.0}, NOW_S - 900)  # longer ago than the board remembers
    assert board.counts("m", NOW_S, half_life_s=inf) == {"a|n": 3.0}
    assert board.slots("m", NOW_S) == {slot_of(NOW_S): {"a|n": 1.0}, slot_of(NOW_S) - 10: {"a|n": 2.0}}
