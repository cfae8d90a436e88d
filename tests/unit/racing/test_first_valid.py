"""With ``win_on: valid`` no broken tool call wins while another deployment has a valid one."""

from random import Random

import pytest

from gateway.core.attempts import WinOn
from tests.unit.racing.broken_calls import drawn, is_right, one_race

NAMES = ("quick", "steady", "spare")


@pytest.mark.parametrize("win_on", [WinOn.ANY, WinOn.VALID])
def test_only_broken_draws_are_wrong_and_only_where_the_first_token_wins(win_on: WinOn) -> None:
    dice = Random(1)
    results = []
    for broken in [0.0, 1.0] * 20:
        shares = {"quick": broken, "steady": 0.0, "spare": 0.0}
        draws = {name: drawn(dice, name, shares[name]) for name in NAMES}
        record, events = one_race(draws, win_on)
        assert events is not None
        winner = next(each for each in record.attempts if each.id == record.winner_attempt_id)
        results.append((winner.deployment == "quick" and broken == 1.0, not is_right(events)))
    assert all(is_broken == is_wrong for is_broken, is_wrong in results)
    assert any(is_wrong for _, is_wrong in results) is (win_on is WinOn.ANY)
