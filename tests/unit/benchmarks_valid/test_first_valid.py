"""The benchmark of win_on valid: it knows a wrong answer, and its draws need it."""

from random import Random

import pytest

from benchmarks.valid.__main__ import BROKEN_ELSEWHERE, drawn, is_right, one_race, rows
from gateway.core.attempts import WinOn

NAMES = ("quick", "steady", "spare")


@pytest.mark.parametrize("win_on", [WinOn.ANY, WinOn.VALID])
def test_only_broken_draws_are_wrong_and_only_where_the_first_token_wins(win_on: WinOn) -> None:
    dice = Random(1)
    results = []
    for broken in [0.0, 1.0] * 5:
        shares = {"quick": broken, "steady": 0.0, "spare": 0.0}
        draws = {name: [drawn(dice, name, shares[name])] for name in NAMES}
        record, events = one_race(draws, win_on)
        assert events is not None
        winner = next(each for each in record.attempts if each.id == record.winner_attempt_id)
        results.append((winner.deployment == "quick" and broken == 1.0, not is_right(events)))
    assert all(is_broken == is_wrong for is_broken, is_wrong in results)
    assert any(is_wrong for _, is_wrong in results) is (win_on is WinOn.ANY)


def test_the_table_has_no_wrong_answer_of_a_race_for_a_valid_one() -> None:
    assert BROKEN_ELSEWHERE > 0
    table = [row.strip("|").split("|") for row in rows(40, 7, [0.5])][2:]
    wrong = {policy.strip(): int(number) for _, policy, number, *_ in table}
    assert wrong["win_on: valid"] == 0
    assert wrong["win_on: any"] > 5
