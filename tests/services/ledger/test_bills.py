"""What ``holeshot costs`` reads of the ledger, the same on both databases."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from gateway.cli.costs import BookedCosts, from_ledger
from gateway.cli.invoices import ANTHROPIC, Invoice
from gateway.core.attempts import Unit
from gateway.core.calls import TENANT
from gateway.ledger import Ledger
from tests.unit.ledger.records import call, new_id, won

MIDNIGHT = datetime(2026, 3, 5, tzinfo=UTC)
BILL = Invoice(ANTHROPIC, frozenset({date(2026, 3, 4), date(2026, 3, 5)}), (), is_whole=True)


def paid(at: datetime, high_usd: float | None, **facts: Any) -> Any:
    known: dict[str, Any] = {"provider": "anthropic", "deployment": "anthropic/opus", "started_at": at}
    costs = {"cost_low_usd": 1.0, "cost_usd": 2.0, "cost_high_usd": high_usd}
    return call(won(new_id(), **(known | costs | facts)), started_at=at)


async def test_attempts_are_added_up_by_utc_s_day_and_searches_apart(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    second = timedelta(seconds=1)
    searched = {"units": {"web_search": Unit(3, 0.01), "cache_write_1h": Unit(7, 1e-6)}, "units_cost_usd": 0.03}
    for record in (
        paid(MIDNIGHT - second, 4.0, model_version="opus-5"),
        paid(MIDNIGHT, None, model_version="opus-5"),
        paid(MIDNIGHT, 4.0, model_version="opus-5", tier_served="priority", **searched),
        paid(MIDNIGHT, 4.0, provider="other"),
        paid(MIDNIGHT, 4.0, key_name=TENANT, **searched),
        paid(MIDNIGHT, 4.0, key_name="first", model_version="haiku-5"),
        paid(MIDNIGHT - timedelta(days=2), 4.0),
    ):
        ledger.call_finished(record)
    await ledger.flush()
    await ledger.close()
    found = await from_ledger(ledger_url, BILL, ["anthropic"], BILL.days)
    assert sorted((row.day.day, row.tier or "", row.version, row.booked) for row in found.rows) == [
        (4, "", "opus-5", BookedCosts(1, 1.0, 2.0, 4.0)),
        (5, "", "haiku-5", BookedCosts(1, 1.0, 2.0, 4.0)),
        (5, "", "opus-5", BookedCosts(1, 1.0, 2.0, None)),
        (5, "priority", "opus-5", BookedCosts(1, 1.0, 2.0, 4.0)),
    ]
    [unit] = found.units
    assert (unit.unit, unit.tier, unit.booked.attempts) == ("web_search", "priority", 1)
    assert abs(unit.booked.known_usd - 0.03) < 1e-9
    assert found.begins == date(2026, 3, 3)
    assert (await from_ledger(ledger_url, BILL, ["nowhere"], BILL.days)).providers == ["anthropic", "other"]


async def test_the_ledger_begins_with_the_attempts_that_it_still_has(ledger_url: str, tmp_path: Path) -> None:
    async def begins(*days: date) -> date | None:
        return (await from_ledger(ledger_url, BILL, ["anthropic"], frozenset(days))).begins

    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    kept = call(started_at=MIDNIGHT - timedelta(days=9))  # its attempts were deleted: they are kept shorter
    for record in (kept, paid(MIDNIGHT, 4.0), paid(MIDNIGHT + timedelta(days=2), 4.0)):
        ledger.call_finished(record)
    await ledger.flush()
    await ledger.close()
    assert await begins(date(2026, 3, 4)) == date(2026, 3, 5)
    assert await begins(date(2026, 3, 4), date(2026, 3, 7)) == date(2026, 3, 5)
    assert await begins(date(2026, 3, 6)) == date(2026, 3, 5)
    assert await begins(date(2026, 3, 8), date.max) in {date(2026, 3, 5), date(2026, 3, 7)}
    assert await begins(date(2026, 2, 1)) == date(2026, 2, 24)
