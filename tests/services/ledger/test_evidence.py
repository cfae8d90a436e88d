"""What is told to a provider about its month, on both databases."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.cli.reported import UnknownProviderError, as_html, as_markdown, evidence
from gateway.core.records import OutageRecord
from gateway.ledger.writer import Ledger
from tests.unit.ledger.records import call, failed, lost, new_id, won

OCTOBER, NOVEMBER = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
BEGAN = OCTOBER + timedelta(days=4, hours=3, minutes=40)
CLIENT = "tests"


async def month(url: str, folder: Path) -> None:
    """A call each hour, of which one a day fails, and in ten minutes of the 5th nine of ten; another's; a later one."""
    ledger = Ledger(url, folder / "spool", "evidence")
    for hour in range(31 * 24):
        at, call_id = OCTOBER + timedelta(hours=hour), new_id()
        if hour % 24 == 7:
            one = failed(call_id, started_at=at, model="llama", error_kind="timeout", status_code=None)
            ledger.call_finished(call(one, started_at=at))
            continue
        won_at = won(
            call_id, started_at=at, model="llama", ttft_ms=200.0 + hour % 24, provider_request_id=f"req-{hour}"
        )
        other = lost(call_id, started_at=at, provider="cerebras", deployment="cerebras/llama")
        ledger.call_finished(call(won_at, other, started_at=at))
    for number in range(100):
        at, call_id = BEGAN + timedelta(seconds=6 * number), new_id()
        fine = won(call_id, started_at=at, model="llama", ttft_ms=900.0, provider_request_id=f"fine-{number}")
        bad = failed(
            call_id,
            started_at=at,
            model="llama",
            provider_request_id=f"bad-{number}",
            error_message="<b>busy</b> | now",
        )
        ledger.call_finished(call(fine if number % 10 == 0 else bad, started_at=at))
    later = new_id()
    ledger.call_finished(call(won(later, started_at=NOVEMBER, provider_request_id="next month"), started_at=NOVEMBER))
    await ledger.flush()
    await ledger.close()


async def test_a_month_has_its_figures_and_the_times_of_failure_with_the_providers_ids(
    ledger_url: str, tmp_path: Path
) -> None:
    await month(ledger_url, tmp_path)
    found = await evidence(ledger_url, "groq", OCTOBER, NOVEMBER)
    assert (found.attempts, found.first) == (31 * 24 + 100, OCTOBER)
    [figures] = found.figures
    assert (figures.model, figures.row.deployment, figures.row.n) == ("llama", "groq/llama", 31 * 24 + 100)
    assert figures.row.error_rate == pytest.approx((31 + 90) / (31 * 24 + 100), abs=1e-4)
    assert figures.row.ttft_p50_ms == pytest.approx(211, rel=0.06)
    assert {(each.error, each.status, each.n) for each in found.refused} == {
        ("server_error", 503, 90),
        ("timeout", None, 31),
    }
    [window] = found.windows
    assert (window.began, window.ended) == (BEGAN, BEGAN + timedelta(minutes=10))
    assert (window.attempts, window.errors) == (100, 90)
    assert {each.request_id for each in window.samples} <= {f"bad-{number}" for number in range(100)}
    assert found.slowest[0].ttft_ms == 900.0
    assert found.slowest[0].request_id is not None
    assert "next month" not in str(found)


async def test_the_page_says_it_and_has_neither_clients_nor_markup_from_outside(
    ledger_url: str, tmp_path: Path
) -> None:
    await month(ledger_url, tmp_path)
    found = await evidence(ledger_url, "groq", OCTOBER, NOVEMBER)
    for page in (as_markdown(found), as_html(found)):
        assert "groq: 2026-10-01 to 2026-10-31 (UTC)" in page
        assert "2026-10-05 03:40 to 03:50" in page
        assert "90 of 100" in page
        assert "bad-" in page
        assert "<b>busy" not in page
        assert CLIENT not in page
    assert "http" not in as_html(found)


async def test_where_there_is_nothing_it_says_of_whom_there_is(ledger_url: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownProviderError, match="no attempts yet"):
        await evidence(ledger_url, "groq", OCTOBER, NOVEMBER)
    await month(ledger_url, tmp_path)
    with pytest.raises(UnknownProviderError, match="has no attempts of 'grok'; it has of: cerebras, groq"):
        await evidence(ledger_url, "grok", OCTOBER, NOVEMBER)
    with pytest.raises(UnknownProviderError, match="no attempts of 'groq' from 2026-01-01 to 2026-01-31"):
        await evidence(ledger_url, "groq", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))


async def test_requests_and_failures_are_counted_one_by_one(ledger_url: str, tmp_path: Path) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "evidence")
    kinds = ["stalled"] * 2 + ["bad_request"] * 3 + ["rate_limited"] * 4 + [None] * 91
    for number, kind in enumerate(kinds):
        at, call_id = OCTOBER + timedelta(seconds=100 * number), new_id()
        if kind is None:
            one = won(call_id, started_at=at, model="llama")
        else:
            begun = 300.0 if kind == "stalled" else None
            one = failed(call_id, started_at=at, model="llama", error_kind=kind, ttft_ms=begun)
        ledger.call_finished(call(one, started_at=at))
    await ledger.flush()
    await ledger.close()
    found = await evidence(ledger_url, "groq", OCTOBER, NOVEMBER)
    assert [(each.requests, each.errors) for each in found.figures] == [(100, 2)]
    assert "Of 93 that ended with a first token or an error, 2 failed" in as_markdown(found)


@pytest.mark.parametrize(
    ("began_at", "ended_at", "shown"),
    [
        (OCTOBER - timedelta(days=1), OCTOBER + timedelta(days=1), True),
        (OCTOBER - timedelta(days=1), NOVEMBER + timedelta(days=1), True),
        (OCTOBER, None, True),
        (OCTOBER - timedelta(days=2), OCTOBER - timedelta(days=1), False),
        (OCTOBER - timedelta(days=2), None, False),  # nobody knows when
        (NOVEMBER, NOVEMBER + timedelta(days=1), False),
    ],
)
async def test_an_outage_is_of_each_month_in_which_it_lasted(
    ledger_url: str, tmp_path: Path, began_at: datetime, ended_at: datetime | None, shown: bool
) -> None:
    ledger = Ledger(ledger_url, tmp_path / "spool", "evidence")
    ledger.call_finished(call(won(new_id(), started_at=OCTOBER, model="llama"), started_at=OCTOBER))
    outage = OutageRecord(
        id=new_id(),
        deployment="groq/llama",
        model="llama",
        began_at=began_at,
        ended_at=ended_at,
        reason="silent",
        replica="r",
    )
    ledger.outage(outage)
    await ledger.flush()
    await ledger.close()
    found = await evidence(ledger_url, "groq", OCTOBER, NOVEMBER)
    assert [each.began for each in found.outages] == ([began_at] if shown else [])
