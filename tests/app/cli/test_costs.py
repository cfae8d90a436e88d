"""holeshot costs, on a real SQLite file."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from gateway.core.attempts import AttemptRecord, Unit
from gateway.core.calls import TENANT
from gateway.ledger import Ledger
from tests.support.ledgers import lay, migrated
from tests.unit.ledger.records import call, lost, new_id, won

Holeshot = Callable[..., Result]
CONFIG = "database_url: sqlite:///ledger.db\nmodels: { chat: { deployments: [anthropic/claude-opus-5] } }\n"
DAY = datetime(2025, 8, 1, 12, 0, tzinfo=UTC)
A_DAY = timedelta(days=1)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def store(folder: Path, *attempts: AttemptRecord, since: datetime | None = DAY - A_DAY) -> None:
    """Store a call of each; and one from before, as the first day of a ledger is not compared."""
    if since is not None:
        attempts = (at_anthropic(1.0, 1.0, 1.0, started_at=since), *attempts)

    async def stored() -> None:
        lay(migrated(), folder / "ledger.db")
        ledger = Ledger(f"sqlite:///{folder}/ledger.db", folder / "spool", "w1")
        for each in attempts:
            ledger.call_finished(call(each, started_at=each.started_at))
        await ledger.flush()
        await ledger.close()

    asyncio.run(stored())


def at_anthropic(low: float, known: float, high: float | None, **facts: Any) -> AttemptRecord:
    given: dict[str, Any] = {
        "provider": "anthropic",
        "deployment": "anthropic/claude-opus-5",
        "model_version": "claude-opus-5",
        "started_at": DAY,
        "cost_low_usd": low,
        "cost_usd": known,
        "cost_high_usd": high,
    }
    return won(new_id(), **(given | facts))


def report(folder: Path, *results: dict[str, object], **page: object) -> str:
    bucket = {"starting_at": "2025-08-01T00:00:00Z", "ending_at": "2025-08-02T00:00:00Z", "results": results}
    path = folder / "report.json"
    path.write_text(json.dumps({"data": [bucket], "has_more": False, "next_page": None} | page))
    return str(path)


def billed(cents: str, model: str | None = "claude-opus-5", **facts: object) -> dict[str, object]:
    return {
        "amount": cents,
        "currency": "USD",
        "cost_type": "tokens",
        "model": model,
        "service_tier": "standard",
    } | facts


def found(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return {row["what"]: row for row in json.loads(result.stdout)["rows"]}


def test_a_bill_within_the_bounds_is_within(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0), at_anthropic(0.1, 0.2, 0.4, model_version="claude-opus-5-20260401"))
    path = report(tmp_path, billed("80"), billed("43.78912"))
    result = holeshot("costs", "--invoice", path, "--config", str(config))
    assert result.exit_code == 0, result.output
    for words in ("2025-08-01", "claude-opus-5", "1.100000", "1.400000", "1.237891", "within", "all days"):
        assert words in result.output
    row = found(holeshot("costs", "--invoice", path, "--json", "--config", str(config)))["claude-opus-5"]
    assert (row["verdict"], row["attempts"], row["by_usd"]) == ("within", 2, None)
    assert (row["low_usd"], row["known_usd"], row["high_usd"]) == pytest.approx((1.1, 1.2, 1.4))


def test_a_bill_outside_is_told_by_how_much(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    cheap = {"deployment": "anthropic/claude-haiku-5", "model_version": "claude-haiku-5"}
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0), at_anthropic(1.0, 1.0, 1.0, **cheap))
    path = report(tmp_path, billed("150"), billed("60", "claude-haiku-5"), billed("7", "claude-unknown-1"))
    rows = found(holeshot("costs", "--invoice", path, "--json", "--config", str(config)))
    assert (rows["claude-opus-5"]["verdict"], rows["claude-opus-5"]["by_usd"]) == ("above", pytest.approx(0.5))
    assert (rows["claude-haiku-5"]["verdict"], rows["claude-haiku-5"]["by_usd"]) == ("below", pytest.approx(0.4))
    assert (rows["claude-unknown-1"]["verdict"], rows["claude-unknown-1"]["attempts"]) == ("above", 0)
    said = holeshot("costs", "--invoice", path, "--config", str(config)).output
    assert "above by $0.500000" in said
    assert "outside over all days: claude-haiku-5, claude-opus-5, claude-unknown-1" in said


def test_a_cut_attempt_counts_at_the_model_that_its_deployment_answers_with(
    holeshot: Holeshot, config: Path, tmp_path: Path
) -> None:
    named = {"deployment": "opus@fast", "model_version": "claude-opus-5-20260401"}
    cut = at_anthropic(0.1, 0.2, 0.3, deployment="opus@fast", model_version=None)
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0, **named), cut)
    row = found(holeshot("costs", "--invoice", report(tmp_path, billed("120")), "--json", "--config", str(config)))
    assert list(row) == ["claude-opus-5"]
    assert row["claude-opus-5"]["attempts"] == 2


def test_an_unknown_upper_bound_is_no_bound(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0), at_anthropic(0.5, 0.5, None))
    path = report(tmp_path, billed("900"))
    row = found(holeshot("costs", "--invoice", path, "--json", "--config", str(config)))["claude-opus-5"]
    assert (row["verdict"], row["high_usd"]) == ("open", None)
    path = report(tmp_path, billed("100"))
    row = found(holeshot("costs", "--invoice", path, "--json", "--config", str(config)))["claude-opus-5"]
    assert (row["verdict"], row["by_usd"]) == ("below", pytest.approx(0.5))


def test_what_the_export_does_not_contain_is_no_difference(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    searched = {"units": {"web_search": Unit(2, 0.01)}, "units_cost_usd": 0.02}
    store(
        tmp_path,
        at_anthropic(1.02, 1.02, 1.02, **searched),
        at_anthropic(5.0, 5.0, 5.0, tier_asked="auto", tier_served="priority"),
    )
    path = report(
        tmp_path,
        billed("100"),
        billed("2", None, cost_type="web_search", description="Web Search Usage"),
        billed("4", None, cost_type="code_execution", description="Code Execution Usage"),
        billed("300", service_tier="batch"),
    )
    result = holeshot("costs", "--invoice", path, "--json", "--config", str(config))
    rows = found(result)
    assert {what: row["verdict"] for what, row in rows.items()} == {
        "claude-opus-5": "within",
        "web_search": "within",
        "Code Execution Usage": "not comparable",
        "claude-opus-5 (batch)": "not comparable",
        "claude-opus-5 (priority)": "not comparable",
    }
    assert rows["claude-opus-5 (priority)"]["bill_usd"] is None
    assert rows["claude-opus-5 (priority)"]["known_usd"] == 5.0
    told = json.loads(result.stdout)
    assert (told["unit"], told["zone"], told["lacks"]) == ("US cents", "UTC", ["Priority Tier"])
    assert told["totals"][-1]["what"] == "all models"
    assert told["totals"][-1]["bill_usd"] == pytest.approx(1.02)


def test_an_undivided_bill_is_compared_by_day(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0), at_anthropic(1.0, 1.0, 1.0, deployment="anthropic/other"))
    path = report(tmp_path, {"amount": "200", "currency": "USD"})
    result = holeshot("costs", "--invoice", path, "--json", "--config", str(config))
    assert found(result)["all models"]["verdict"] == "within"
    assert any("not divided by model" in note for note in json.loads(result.stdout)["notes"])


def test_a_day_before_the_ledger_begins_is_not_compared(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0, started_at=datetime(2025, 8, 3, tzinfo=UTC)), since=None)
    result = holeshot("costs", "--invoice", report(tmp_path, billed("100")), "--json", "--config", str(config))
    row = found(result)["claude-opus-5"]
    assert (row["verdict"], row["reason"]) == ("not comparable", "the ledger begins on 2025-08-03")
    assert any("--provider names others: anthropic" in note for note in json.loads(result.stdout)["notes"])


def test_the_day_on_which_the_ledger_begins_is_not_compared(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0), since=None)
    path = report(tmp_path, billed("300"))
    row = found(holeshot("costs", "--invoice", path, "--json", "--config", str(config)))["claude-opus-5"]
    assert (row["verdict"], row["reason"]) == ("not comparable", "the ledger begins on 2025-08-01")


def test_keys_that_clients_bring_are_not_on_the_bill(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    searched = {"units": {"web_search": Unit(2, 0.01)}, "units_cost_usd": 0.02}
    store(
        tmp_path,
        at_anthropic(1.0, 1.0, 1.0),
        at_anthropic(1.0, 1.0, 1.0, key_name="second"),
        at_anthropic(5.0, 5.0, 5.0, key_name=TENANT, **searched),
    )
    path = report(tmp_path, billed("200"))
    rows = found(holeshot("costs", "--invoice", path, "--json", "--config", str(config)))
    assert list(rows) == ["claude-opus-5"]
    assert (rows["claude-opus-5"]["verdict"], rows["claude-opus-5"]["attempts"]) == ("within", 2)


def test_only_the_named_providers_count(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(
        tmp_path,
        at_anthropic(1.0, 1.0, 1.0),
        at_anthropic(1.0, 1.0, 1.0, provider="anthropic-eu", deployment="anthropic-eu/claude-opus-5"),
    )
    path = report(tmp_path, billed("200"))
    assert found(holeshot("costs", "--invoice", path, "--json", "-c", str(config)))["claude-opus-5"]["by_usd"] == 1.0
    both = ("--provider", "anthropic", "--provider", "anthropic-eu")
    rows = found(holeshot("costs", "--invoice", path, "--json", "-c", str(config), *both))
    assert rows["claude-opus-5"]["verdict"] == "within"


def test_a_month_leaves_out_other_days(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0))
    path = report(tmp_path, billed("100"))
    assert found(holeshot("costs", "--invoice", path, "--month", "2025-08", "--json", "-c", str(config)))
    other = holeshot("costs", "--invoice", path, "--month", "2025-09", "-c", str(config))
    assert (other.exit_code, "has nothing of 2025-09" in other.output) == (2, True)
    wrong = holeshot("costs", "--invoice", path, "--month", "August", "-c", str(config))
    assert (wrong.exit_code, "write it as 2026-10" in wrong.output) == (2, True)


def test_missing_pages_are_told(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(tmp_path, lost(new_id(), provider="anthropic", deployment="anthropic/claude-opus-5", started_at=DAY))
    path = report(tmp_path, billed("100"), has_more=True, next_page="page_2")
    result = holeshot("costs", "--invoice", path, "-c", str(config))
    assert "more pages follow" in result.output
    assert "no upper bound" in result.output  # an attempt without a price


def test_a_page_that_is_missing_in_the_middle_is_told(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    store(tmp_path, at_anthropic(1.0, 1.0, 1.0), at_anthropic(9.0, 9.0, 9.0, started_at=DAY + 2 * A_DAY))
    path = tmp_path / "merged.json"
    buckets = [
        {"starting_at": f"2025-08-0{day}T00:00:00Z", "ending_at": f"2025-08-0{day + 1}T00:00:00Z", "results": results}
        for day, results in ((1, [billed("100")]), (5, []))
    ]
    path.write_text(json.dumps({"data": buckets}))
    result = holeshot("costs", "--invoice", str(path), "--json", "-c", str(config))
    assert [row["day"] for row in found(result).values()] == ["2025-08-01"]
    told = json.loads(result.stdout)
    assert (told["is_whole"], told["totals"][-1]["verdict"]) == (False, "within")
    [note] = [note for note in told["notes"] if "missing" in note]
    assert "missing between the first day and the last: 3 days, from 2025-08-02 to 2025-08-04" in note


def test_a_wrong_file_is_one_sentence(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    path = tmp_path / "usage.csv"
    path.write_text("date,model,usd\n2025-08-01,x,1\n")
    result = holeshot("costs", "--invoice", str(path), "--config", str(config))
    assert result.exit_code == 1
    assert f"{path}, line 1: JSON is malformed" in result.output


def test_without_a_bill_the_costs_of_the_last_days_are_shown_by_day_and_deployment(
    tmp_path: Path, config: Path, holeshot: Holeshot
) -> None:
    now = datetime.now(UTC)
    store(
        tmp_path,
        at_anthropic(1.0, 2.0, 3.0, started_at=now - A_DAY),
        at_anthropic(1.0, 1.0, 1.0, started_at=now - A_DAY, model_version="another version"),
        at_anthropic(4.0, 4.0, None, started_at=now - A_DAY, provider="groq", deployment="groq/m"),
        at_anthropic(9.0, 9.0, 9.0, started_at=now - A_DAY, key_name=TENANT),  # on its client's bill
        at_anthropic(9.0, 9.0, 9.0, started_at=now - 8 * A_DAY),
    )
    told = json.loads(holeshot("costs", "--json", "--config", str(config)).stdout)
    day = (now - A_DAY).date().isoformat()
    groq = {
        "day": day, "deployment": "groq/m", "attempts": 1, "low_usd": 4.0, "known_usd": 4.0, "high_usd": None,
    }  # fmt: skip
    claude = {
        "day": day, "deployment": "anthropic/claude-opus-5", "attempts": 2,
        "low_usd": 2.0, "known_usd": 3.0, "high_usd": 4.0,
    }  # fmt: skip
    assert told["rows"] == [groq, claude]
    assert told["total"] == {"attempts": 3, "low_usd": 6.0, "known_usd": 7.0, "high_usd": None}
    one = json.loads(holeshot("costs", "--provider", "groq", "--json", "--config", str(config)).stdout)
    assert one["rows"] == [groq]
    shown = holeshot("costs", "--config", str(config)).stdout
    assert [word in shown for word in ("groq/m", "all days")] == [True, True]
    assert "A cancelled attempt may be billed as" in shown  # the sum has no upper bound
    assert "may be billed as" not in holeshot("costs", "--provider", "anthropic", "--config", str(config)).stdout


def test_without_a_bill_a_month_can_be_named(tmp_path: Path, config: Path, holeshot: Holeshot) -> None:
    store(tmp_path, at_anthropic(1.0, 2.0, 3.0), since=None)
    told = json.loads(holeshot("costs", "--month", "2025-08", "--json", "--config", str(config)).stdout)
    assert (told["from"], told["to"], told["total"]["known_usd"]) == ("2025-08-01", "2025-08-31", 2.0)
    assert "the ledger has no attempts from" in holeshot("costs", "--config", str(config)).stdout
    assert holeshot("costs", "--month", "august", "--config", str(config)).exit_code == 2
