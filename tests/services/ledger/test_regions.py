"""Regions compared, and how long prompts and answers were, on both databases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from gateway.alerts import ModelHour
from gateway.alerts.stated_models import hours_sql
from gateway.core.reports import Window
from gateway.ledger import Ledger, Reader
from gateway.ledger.reports import calls, incidents
from tests.unit.ledger.records import call, failed, lost, new_id, won


async def test_calls_are_told_by_the_region_of_the_replica_that_served_them(ledger_url: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for region, minutes, ttft_ms in (("eu", 5, 100.0), ("eu", 6, 300.0), ("us", 5, 500.0), (None, 120, 700.0)):
        at, name = now - timedelta(minutes=minutes), new_id()
        attempts = won(name, started_at=at, ttft_ms=ttft_ms), lost(name, started_at=at)
        ledger.call_finished(
            call(*attempts, started_at=at, region=region, ttft_ms=ttft_ms, total_ms=1000.0, launched=2, extras=1)
        )
    at = now - timedelta(minutes=4)
    broken = failed(new_id(), started_at=at)
    ledger.call_finished(
        call(
            broken,
            started_at=at,
            region="us",
            ttft_ms=None,
            status_code=502,
            error_kind="server_error",
            launched=1,
            extras=0,
        )
    )
    await ledger.flush()
    await ledger.close()
    reader = Reader(ledger_url)
    lately, day = [(await calls.by_region(reader, each)).rows for each in (Window.HOUR, Window.DAY)]
    assert [(row["region"], row["n"], row["n_failed"], row["n_ttft"]) for row in lately] == [
        ("eu", 2, 0, 2),
        ("us", 2, 1, 1),
    ]
    [eu, us] = lately
    assert (eu["ttft_p50_ms"], eu["ttft_p95_ms"], eu["extra_per_call"]) == (100.0, 300.0, 1.0)
    assert (us["ttft_p50_ms"], us["total_mean_ms"], us["extra_per_call"]) == (500.0, 1000.0, 0.5)
    assert {row["region"] for row in day} == {"eu", "us", None}
    await reader.aclose()


async def test_hours_tell_how_long_prompts_and_answers_were(ledger_url: str, tmp_path: Path) -> None:
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    ledger = Ledger(ledger_url, tmp_path / "spool", "w1")
    for hours, size_class, tokens in ((0.5, 0, 100), (0.6, 2, 9000), (24.5, 1, 2000), (8 * 24 + 0.5, 0, 1)):
        at = until - timedelta(hours=hours)
        answered = won(new_id(), started_at=at, size_class=size_class, model="llama")
        ledger.call_finished(call(answered, started_at=at, prompt_tokens=tokens, completion_tokens=7))
    at = until - timedelta(hours=0.4)
    refused = call(started_at=at, model="llama", status_code=400, error_kind="bad_request", total_ms=None)
    ledger.call_finished(refused)  # has no tokens, and is none of those that have
    counting = won(new_id(), started_at=at, model="llama", api="messages.count_tokens", size_class=2)
    ledger.call_finished(
        call(counting, started_at=at, endpoint="messages.count_tokens", prompt_tokens=None, completion_tokens=None)
    )
    await ledger.flush()
    await ledger.close()
    reader = Reader(ledger_url)
    for model in (None, "llama"):
        assert await incidents.lengths(reader, hours_sql(until, model)) == [
            ModelHour(
                model="llama", hour_at=until - timedelta(hours=25), answered=1, prompt_tokens=2000, completion_tokens=7,
                sized=1, over_4k=1, over_32k=0,
            ),
            ModelHour(
                model="llama", hour_at=until - timedelta(hours=1), answered=2, prompt_tokens=9100, completion_tokens=14,
                sized=2, over_4k=1, over_32k=1,
            ),
        ]  # fmt: skip
    assert await incidents.lengths(reader, hours_sql(until, "other")) == []
    await reader.aclose()
