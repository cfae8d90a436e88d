import pytest

from gateway.ledger.retention import Retention
from gateway.settings.model import LedgerSettings


@pytest.mark.parametrize(("calls", "attempts"), [(None, None), (90.0, 30.0), (None, 7.0)])
def test_each_table_is_kept_for_as_long_as_the_settings_say(calls: float | None, attempts: float | None) -> None:
    settings = LedgerSettings(keep_calls_days=calls, keep_attempts_days=attempts, keep_rollups_days=800)
    assert Retention.of(settings) == Retention(calls_days=calls, attempts_days=attempts, rollups_days=800)
