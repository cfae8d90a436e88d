"""The comparison with the truth misses no column, and can fail."""

from datetime import UTC, datetime

import pytest

from benchmarks.truth.columns import RULES
from benchmarks.truth.facts import Ledger
from benchmarks.truth.faults import TABLES, bend, bendable, plant
from benchmarks.truth.fleet import PROMPT_TOKENS, Draw, Fleet, Persona, Seen
from benchmarks.truth.rules import Figure, between, equal, mean, near, same, within

STOPS = Persona("stops", 0.05, cached_usd=1e-7)
BILLS = Persona("bills", 0.05, bills_on=True)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class One:
    """A row with its truth."""

    def __init__(self, found: object, due: object) -> None:
        self.row = {"x": found}
        self.due = due


def due(one: One) -> object:
    return one.due


def test_every_column_of_both_tables_is_compared() -> None:
    for name, table in TABLES.items():
        assert set(RULES[name]) == set(table.columns.keys())


def test_what_is_too_far_off_does_not_hold() -> None:
    assert within("x", 100, 104, 0.05).holds
    assert not within("x", 100, 106, 0.05).holds
    assert not within("x", 100, None, 0.05).holds
    assert equal("x", 7, 7.0).holds
    assert not equal("x", 7, 8).holds
    assert [figure.holds for figure in between("x", 5, 4, 6)] == [True, True]
    assert [figure.holds for figure in between("x", 5, 6, 4)] == [False, False]


@pytest.mark.parametrize(
    ("found", "due_", "holds"),
    [("a", "a", True), ("b", "a", False), (None, "a", False), ({"k": 1.0}, {"k": 2.0}, False)],
)
def test_values_must_be_the_same(found: object, due_: object, *, holds: bool) -> None:
    [figure] = same(due)("x", [One(found, due_)])
    assert figure.holds is holds


def test_a_rule_that_finds_no_row_does_not_hold() -> None:
    assert not any(figure.holds for figure in same(due)("x", []))
    assert not all(figure.holds for figure in near(due)("x", []))


@pytest.mark.parametrize(("found", "holds"), [(104.0, True), (120.0, False), (None, False)])
def test_measurements_must_be_near(found: float | None, *, holds: bool) -> None:
    rows = [One(100.0, 100.0), One(found, 100.0), One(found, 100.0)]
    assert all(figure.holds for figure in near(due)("x", rows)) is holds


def test_means_must_be_near() -> None:
    for found, holds in ((2, True), (3, False)):
        [figure] = mean(due, 0.5, only=lambda _: True)("x", [One(found, 2), One(found, 2)])
        assert figure.holds is holds


def test_a_bent_column_is_a_fifth_larger() -> None:
    ledger = Ledger([{"cost_usd": 10.0, "id": "a"}], [], {})
    assert bend(ledger, "calls.cost_usd").calls == [{"cost_usd": pytest.approx(12.0), "id": "a"}]
    assert bend(ledger, "calls.id").calls == [{"cost_usd": 10.0, "id": "a~"}]


def test_a_fault_that_no_figure_minds_is_told() -> None:
    row = dict.fromkeys((name.partition(".")[2] for name in bendable()), 1.0)
    views = {name.partition(".")[0]: [row] for name in bendable()}
    ledger = Ledger([row], [row], views)

    def compared(of: Ledger, _: str | None = None) -> list[Figure]:
        return [equal("cost", 1, of.calls[0]["cost_usd"])]

    found = {fault.name: fault.is_noticed for fault in plant(ledger, compared)}
    assert found["calls.cost_usd bent"]
    assert found["calls.cost_usd missing"]
    assert not found["attempts.cost_usd bent"]


def test_a_draw_is_the_calls_and_the_providers_own() -> None:
    fleet = Fleet({"stops": STOPS, "bills": BILLS}, seed=1, shared=1.0)
    assert fleet.drawn(7, "stops") == fleet.drawn(7, "stops")
    assert fleet.drawn(7, "stops").ttft_s == pytest.approx(fleet.drawn(7, "bills").ttft_s)  # all difficulty is shared
    assert fleet.drawn(7, "stops").ttft_s != fleet.drawn(8, "stops").ttft_s


def test_a_bill_is_for_what_was_made_or_for_all_of_it() -> None:
    def seen(name: str, cached: int) -> Seen:
        draw = Draw(0.05, tokens=50, cached=cached, written=0)
        return Seen("1", 1, name, "key", draw, 0.0, NOW, 0, is_first=True, sent=8)

    prompt = (PROMPT_TOKENS - 20) * 1e-6 + 20 * 1e-7
    assert seen("stops", 20).cost_usd(STOPS) == pytest.approx(prompt + 8 * 3e-6)
    assert seen("bills", 0).cost_usd(BILLS) == pytest.approx(PROMPT_TOKENS * 1e-6 + 50 * 3e-6)
