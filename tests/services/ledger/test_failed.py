"""Columns and views that say what failed, since when, and whether it is over, on both databases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.core.attempts import Outcome
from gateway.core.records import OutageRecord
from gateway.core.rules import BROKEN, has_failed
from gateway.ledger import Ledger
from tests.services.ledger.asking import asked
from tests.unit.ledger.records import attempt, call, failed, new_id, won

ENDED = (
    (200, None), (200, "stream_error"), (400, "invalid_request"), (424, "provider_misconfigured"),
    (429, "rate_limited"), (499, "client_disconnected"), (502, "all_providers_failed"),
)  # fmt: skip
HOUR = timedelta(hours=1)


async def test_calls_and_attempts_say_whether_they_failed(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for status, kind in ENDED:
        ledger.call_finished(call(status_code=status, error_kind=kind))
    for outcome in Outcome:
        ledger.call_finished(call(attempt(new_id(), outcome=outcome), status_code=200, error_kind=None))
    await ledger.flush()
    await ledger.close()
    found = await asked(ledger_url, "select distinct status_code, error_kind, failed from calls")
    assert len(found) == len(ENDED)
    for row in found:
        assert bool(row["failed"]) == has_failed(row["status_code"], row["error_kind"]), row
        assert row["failed"] is not None
    attempts = await asked(ledger_url, "select outcome, failed from attempts")
    assert {row["outcome"]: bool(row["failed"]) for row in attempts} == {str(each): each in BROKEN for each in Outcome}
    [row] = await asked(ledger_url, "select count(*) as n from attempts where failed")
    assert row["n"] == len(BROKEN)


async def test_a_speed_is_told_for_each_day_by_itself(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(minute=30, second=0, microsecond=0)
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for days, ttft_ms in ((1, 100.0), (2, 900.0)):
        at = now - timedelta(days=days)
        for _ in range(20):
            ledger.call_finished(call(won(new_id(), started_at=at, ttft_ms=ttft_ms, model="llama"), started_at=at))
    await ledger.flush()
    await ledger.close()
    found = await asked(ledger_url, "select * from speed_days order by window_start desc")
    assert [row["n"] for row in found] == [20, 20]
    assert [round(row["ttft_p95_ms"], -2) for row in found] == [100, 900]
    assert all(row["decode_tps_p05"] == row["decode_tps_p95"] for row in found)
    [both] = await asked(ledger_url, "select * from speed_by_hour")
    assert both["n"] == 40


async def test_an_error_has_its_first_time_and_its_last(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    times = [now - each * HOUR for each in (0.5, 5, 11)]
    for at in times:
        ledger.call_finished(call(failed(new_id(), started_at=at, model="llama"), started_at=at))
    await ledger.flush()
    await ledger.close()
    [row] = await asked(ledger_url, "select first_seen_at, last_seen_at from provider_errors_24h")
    assert [str(row[name])[:19] for name in row] == [f"{at:%Y-%m-%d %H:%M:%S}" for at in (times[-1], times[0])]
    [row] = await asked(ledger_url, "select first_seen_at from provider_errors")
    assert str(row["first_seen_at"])[:10] == f"{times[-1]:%Y-%m-%d}"  # its window of a day


async def test_an_outage_is_over_or_lasts_or_nobody_knows(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)

    def outage(name: str, hours: float, lasted_h: float | None = None, deployment: str = "a/x") -> OutageRecord:
        began_at = now - hours * HOUR
        return OutageRecord(
            id=new_id(), deployment=deployment, model="llama", began_at=began_at, reason="server_error", replica=name,
            ended_at=None if lasted_h is None else began_at + lasted_h * HOUR,
        )  # fmt: skip

    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    outages = (
        outage("over", 5, 0.1), outage("lasts", 2), outage("killed", 30), outage("again", 6), outage("again", 4, 1),
        outage("answers", 1, deployment="b/x"), outage("old", 31 * 24, 1),
        outage("clients_answers", 0.9, deployment="c/x"),
    )  # fmt: skip
    for each in outages:
        ledger.outage(each)
    for deployment, key in (("b/x", None), ("c/x", "tenant")):
        at = now - timedelta(minutes=1)
        answered = won(new_id(), deployment=deployment, started_at=at, token_ms=200.0, key_name=key)
        ledger.call_finished(call(answered, started_at=now))
    await ledger.flush()
    await ledger.close()
    rows = await asked(ledger_url, "select replica, state, lasted_s from outages_30d order by began_at desc")
    assert [(row["replica"], row["state"]) for row in rows] == [
        ("clients_answers", "out"), ("answers", "unknown"), ("lasts", "out"), ("again", "over"), ("over", "over"),
        ("again", "unknown"), ("killed", "unknown"),
    ]  # fmt: skip
    assert [round(row["lasted_s"]) for row in rows if row["lasted_s"] is not None] == [3600, 360]
