from datetime import UTC, datetime
from math import inf

import pytest
from pydantic import SecretStr, ValidationError

from gateway.ledger import Retention
from gateway.settings import ClickHouseSettings, LedgerSettings


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


@pytest.mark.parametrize("table", ["calls", "attempts", "rollups", "refusals", "outages", "probes"])
@pytest.mark.parametrize("days", [36_526, 500_000, 1_000_000, inf])  # SQLite deleted all, or no row was shipped at all
def test_days_before_there_were_calls_are_no_time_to_keep_rows_for(table: str, days: float) -> None:
    with pytest.raises(ValidationError, match=r"less than or equal to 36525|finite number"):
        LedgerSettings.model_validate({f"keep_{table}_days": days})


def test_the_longest_time_has_a_first_instant() -> None:
    kept = Retention.of(LedgerSettings(keep_calls_days=36_525)).cutoffs(datetime(2026, 1, 1, tzinfo=UTC))
    assert f"{kept['calls']:%Y-%m-%d}" == "1926-01-01"


@pytest.mark.parametrize("days", [10_001, 36_500, inf])
def test_clickhouse_keeps_rows_no_longer_than_its_clock_runs(days: float) -> None:
    url = SecretStr("http://clickhouse/ledger")
    assert ClickHouseSettings(url=url, keep_days=10_000).keep_days == 10_000
    with pytest.raises(ValidationError, match=r"less than or equal to 10000|finite number"):
        ClickHouseSettings(url=url, keep_days=days)
