"""The comparison with the truth can fail: each kind of figure does when it is bent."""

import sqlite3
from pathlib import Path

import pytest

from benchmarks.truth.figures import Ledger, between, same, within
from benchmarks.truth.fleet import PROMPT_TOKENS, Draw, Fleet, Persona

STOPS = Persona("stops", 0.05, cached_usd=1e-7)
BILLS = Persona("bills", 0.05, bills_on=True)


def test_what_is_too_far_off_does_not_hold() -> None:
    assert within("x", 100, 104, 0.05).holds
    assert not within("x", 100, 106, 0.05).holds
    assert same("x", 7, 7.0).holds
    assert not same("x", 7, 8).holds
    assert [figure.holds for figure in between("x", 5, 4, 6)] == [True, True]
    assert [figure.holds for figure in between("x", 5, 6, 4)] == [False, False]


@pytest.mark.parametrize(("bend", "expected"), [(None, 10.0), ("cost_usd", 12.0), ("other", 10.0)])
def test_a_bent_column_is_read_a_fifth_larger(tmp_path: Path, bend: str | None, expected: float) -> None:
    path = tmp_path / "ledger.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table calls as select 10.0 as cost_usd, 'x' as other")
    assert Ledger(path, bend).rows("select * from calls") == [{"cost_usd": pytest.approx(expected), "other": "x"}]


def test_a_draw_is_the_calls_and_the_providers_own() -> None:
    fleet = Fleet({"stops": STOPS, "bills": BILLS}, seed=1, shared=1.0)
    assert fleet.drawn(7, "stops") == fleet.drawn(7, "stops")
    assert fleet.drawn(7, "stops").ttft_s == pytest.approx(fleet.drawn(7, "bills").ttft_s)  # all difficulty is shared
    assert fleet.drawn(7, "stops").ttft_s != fleet.drawn(8, "stops").ttft_s


def test_a_bill_is_for_what_was_made_or_for_all_of_it() -> None:
    cut = Draw(0.05, tokens=50, cached=20, sent=8)
    prompt = (PROMPT_TOKENS - 20) * 1e-6 + 20 * 1e-7
    assert cut.cost_usd(STOPS) == pytest.approx(prompt + 8 * 3e-6)
    assert Draw(0.05, tokens=50, cached=0, sent=8).cost_usd(BILLS) == pytest.approx(PROMPT_TOKENS * 1e-6 + 50 * 3e-6)
