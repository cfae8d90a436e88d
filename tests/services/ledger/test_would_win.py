"""The view ``would_win_24h``: who would have been first in the calls that did not ask it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.core.attempts import Outcome, Role
from gateway.ledger import Ledger
from tests.services.ledger.asking import asked
from tests.unit.ledger.records import attempt, call, lost, new_id, won

SHARES = "select * from would_win_24h order by deployment"


def answered(number: int, ttft_ms: float, *others: Any, **facts: Any) -> Any:
    """Return a call that alpha has answered; ``others``: the first token of a rival, or when it was cut, negative."""
    at = datetime.now(UTC) - timedelta(minutes=5 + number % 60)
    winner = won(new_id(), started_at=at, ttft_ms=ttft_ms, token_ms=ttft_ms, deployment="alpha/m", provider="alpha")
    rivals = [
        lost(winner.call_id, started_at=at, deployment=name, provider=name, role=Role.RACE, censored_at_ms=-ms)
        if ms < 0
        else attempt(
            winner.call_id,
            number=2,
            started_at=at,
            deployment=name,
            provider=name,
            role=Role.RACE,
            ttft_ms=ms,
            token_ms=ms,
            outcome=Outcome.SUPERSEDED,
        )
        for name, ms in others
    ]
    return call(winner, *rivals, started_at=at, ttft_ms=ttft_ms, model="m", **facts)


@pytest.fixture
async def shares(ledger_url: str, tmp_path: Path) -> Any:
    async def stored(*calls: Any) -> dict[str, dict[str, Any]]:
        ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
        for each in calls:
            ledger.call_finished(each)
        await ledger.flush()
        await ledger.close()
        return {row["deployment"]: row for row in await asked(ledger_url, SHARES)}

    return stored


async def test_who_was_not_asked_wins_by_as_much_as_its_own_first_tokens_say(shares: Any) -> None:
    alone = [answered(number, 100.0 if number % 2 else 300.0) for number in range(80)]
    raced = [answered(number, 150.0, ("beta/m", 200.0)) for number in range(40)]
    found = await shares(*alone, *raced)
    beta, alpha = found["beta/m"], found["alpha/m"]
    assert (beta["n"], beta["n_asked"], beta["n_won"], beta["n_not_asked"]) == (120, 40, 0, 80)
    assert beta["would_win_share"] == pytest.approx(0.5, abs=0.01)  # 200 ms is before 300, after 100
    assert (alpha["n_asked"], alpha["won_share"], alpha["n_not_asked"], alpha["would_win_share"]) == (120, 1.0, 0, None)


async def test_an_attempt_that_was_cut_is_slower_than_that_and_no_loss(shares: Any) -> None:
    alone = [answered(number, 100.0 if number % 2 else 300.0) for number in range(80)]
    cut = [answered(number, 50.0, ("beta/m", -50.0)) for number in range(40)]
    raced = [answered(number, 150.0, ("beta/m", 200.0)) for number in range(40)]
    beta = (await shares(*alone, *cut, *raced))["beta/m"]
    assert (beta["n_first_token"], beta["n_censored"], beta["is_biased"]) == (40, 40, True)
    assert beta["would_win_share"] == pytest.approx(0.5, abs=0.02)


async def test_too_few_first_tokens_say_nothing(shares: Any) -> None:
    alone = [answered(number, 300.0) for number in range(10)]
    beta = (await shares(*alone, *(answered(number, 150.0, ("beta/m", 200.0)) for number in range(29))))["beta/m"]
    assert (beta["n_not_asked"], beta["would_win_share"]) == (10, None)
