import pytest

from gateway.ledger.retention import Retention
from gateway.settings import LedgerSettings


@pytest.mark.parametrize(("calls", "attempts"), [(None, None), (90.0, 30.0), (None, 7.0)])
def test_each_table_is_kept_for_as_long_as_the_settings_say(calls: float | None, attempts: float | None) -> None:
    settings = LedgerSettings(
        keep_calls_days=calls, keep_attempts_days=attempts, keep_rollups_days=800, keep_refusals_days=7
    )
    assert Retention.of(settings) == Retention(
        calls_days=calls, attempts_days=attempts, rollups_days=800, refusals_days=7
    )


def test_refusals_which_strangers_can_make_are_not_kept_for_ever() -> None:
    kept = Retention.of(LedgerSettings())
    assert kept == Retention(refusals_days=30)
    assert kept.keeps_all
