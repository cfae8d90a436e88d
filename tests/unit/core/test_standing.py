"""Budgets, burn rates, and the verdict in words."""

import msgspec
import pytest

from gateway.core.targets import (
    Burn,
    Counts,
    Definition,
    Standing,
    Target,
    budget_left,
    burn_rate,
    condition,
    duration,
    share,
    shown,
    subject,
    verdict,
)

FAST = Definition(model="llama", ttft_ms=500.0, tok_s=45.0)


def standing(counts: Counts, *, objective: float = 0.99, six_hours: tuple[int, int] = (0, 0)) -> Standing:
    calls, bad = six_hours
    burn = Burn("fast", 6 * 3600, calls, bad, burn_rate(calls, bad, objective), "select 6")
    return Standing(Target("fast", FAST, objective), counts, (burn,), "select 1", "select 2")


def test_a_burn_of_one_is_what_may_be_bad() -> None:
    assert burn_rate(1000, 10, 0.99) == pytest.approx(1.0)
    assert burn_rate(1000, 144, 0.99) == pytest.approx(14.4)
    assert burn_rate(1000, 0, 0.99) == 0.0
    assert burn_rate(0, 0, 0.99) is None


def test_the_budget_is_what_may_be_bad_without_what_was() -> None:
    assert budget_left(1000, 4, 0.99) == pytest.approx(0.6)
    assert budget_left(1000, 30, 0.99) == pytest.approx(-2.0)
    assert budget_left(0, 0, 0.99) is None


def test_a_kept_target_says_what_is_left_and_what_most_bad_calls_have_in_common() -> None:
    words = verdict(standing(Counts(10_000, 40, failed=5, late=30, slow=8)))
    assert words == (
        "Kept: 99.6 % of 10,000 calls were good, 99 % are wanted over 28 days; 60 % of the error budget is left "
        "(30 of 40 bad calls began too late)."
    )


def test_a_missed_target_says_by_how_much() -> None:
    words = verdict(standing(Counts(10_000, 230, failed=230)))
    assert words.startswith("Missed: 97.7 % of 10,000 calls were good, 99 % are wanted over 28 days; 230 were bad, ")
    assert "2.3 times as many as may be (230 of 230 bad calls failed)" in words


def test_a_budget_that_is_spent_too_fast_says_how_long_it_lasts() -> None:
    words = verdict(standing(Counts(10_000, 50, late=50), six_hours=(1000, 70)))
    assert words.endswith("In the last 6 hours it was spent 7.0 times as fast as may be: it lasts 2.0 days more.")
    assert "In the last" not in verdict(standing(Counts(10_000, 50, late=50), six_hours=(1000, 9)))
    assert "In the last" not in verdict(standing(Counts(10_000, 1, late=1), six_hours=(5, 1)))  # one call is no rate


def test_without_calls_nothing_is_said() -> None:
    none = standing(Counts())
    assert verdict(none) == "No calls in 28 days: nothing can be said."
    assert (none.good_share, none.budget_left) == (None, None)


@pytest.mark.parametrize(
    ("calls", "bad", "objective", "written"),
    [
        (1_000_000, 1, 0.99, "99.9999 %"),  # never 100 % with a bad one among them
        (100_000, 101, 0.999, "99.899 %"),  # never on the other side of the objective
        (100_000, 100, 0.999, "99.9 %"),
        (3, 0, 0.99, "100.0 %"),
        (400, 3, 0.999, "99.3 %"),  # as the page writes 99.25
        (2_000, 59, 0.999, "97.0 %"),  # 97.05 is a little less in binary
    ],
)
def test_a_share_is_not_rounded_to_what_it_is_not(calls: int, bad: int, objective: float, written: str) -> None:
    assert f" {written} of {calls:,} calls" in verdict(standing(Counts(calls, bad), objective=objective))


def test_a_target_in_words() -> None:
    target = Target("t", Definition(client="anna", profile="voice", gap_ms=800.0), 0.995)
    assert (subject(target), condition(target)) == ("client anna, profile voice", "no gap over 800 ms")
    assert subject(Target("t", Definition(), 0.9)) == "all calls"
    assert condition(Target("t", Definition(), 0.9)) == "answered"
    assert condition(Target("t", FAST, 0.9)) == "first token under 500 ms and at least 45 tok/s"
    assert [share(each) for each in (0.99, 0.995, 0.9999, 0.5)] == ["99 %", "99.5 %", "99.99 %", "50 %"]
    assert [duration(each) for each in (300, 3600, 21_600, 259_200, 90)] == ["5m", "1h", "6h", "3d", "90s"]


def test_counts_are_kept_by_what_would_change_them_alone() -> None:
    same = Target("other", Definition(model="llama", ttft_ms=500.0, tok_s=45.0), 0.5, days=7)
    assert same.definition.key == FAST.key
    others = [
        Definition(model="qwen", ttft_ms=500.0, tok_s=45.0),
        Definition(client="llama", ttft_ms=500.0, tok_s=45.0),
        Definition(model="llama", ttft_ms=45.0, tok_s=500.0),
        Definition(model="llama", ttft_ms=500.0, gap_ms=45.0),
        Definition(),
    ]
    assert len({FAST.key, *(each.key for each in others)}) == 6


def test_its_json_has_the_sql_of_each_figure() -> None:
    told = msgspec.to_builtins(shown(standing(Counts(1000, 4, late=4), six_hours=(10, 1))))
    assert (told["name"], told["model"], told["client"], told["calls"], told["bad"]) == (
        "fast",
        "llama",
        None,
        1000,
        4,
    )
    assert told["budget_left"] == pytest.approx(0.6)
    assert told["burns"] == [
        {"window_s": 21_600, "calls": 10, "bad": 1, "burn_rate": pytest.approx(10.0), "sql": "select 6"}
    ]
    assert (told["sql"], told["misses_sql"]) == ("select 1", "select 2")
