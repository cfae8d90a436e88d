"""holeshot leaderboard, asking a gateway over a real socket, or the ledger."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from gateway.calls import CallRecord
from gateway.ledger.database import migrate
from gateway.ledger.writer import Ledger
from tests.unit.ledger.records import call, new_id, won

Holeshot = Callable[..., Result]

ROW = {
    "deployment": "groq/x",
    "n": 12,
    "events": 9,
    "censored": 3,
    "ttft_p50_ms": 212.4,
    "error_rate": 0.0833,
    "new": 1,
}
MODELS = {"models": [{"model": "m", "deployments": [ROW, {"deployment": "slow/x", "ttft_p50_ms": None}]}]}


def test_each_model_is_a_table_of_what_the_gateway_sent(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS

    result = holeshot("leaderboard", "--url", site.url)

    assert result.exit_code == 0
    for words in ("m", "groq/x", "212", "8.3%", "slow/x", "–"):  # noqa: RUF001 - the dash the tables print
        assert words in result.output
    assert "errors" in result.output
    assert "won" not in result.output  # nobody sent it


def test_json_is_what_the_gateway_sent(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS

    assert json.loads(holeshot("leaderboard", "m", "--json", HOLESHOT_URL=f"{site.url}/leaderboard").stdout) == MODELS


def test_an_unknown_model_is_answered_with_those_there_are(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS

    result = holeshot("leaderboard", "n", "--url", site.url)

    assert result.exit_code == 1
    assert result.stderr == "holeshot: no model 'n' on the leaderboard; there are: m\n"


def test_a_key_is_sent_and_a_missing_one_is_explained(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = MODELS
    site.key = "hs-secret"

    assert "--key or HOLESHOT_KEY" in holeshot("leaderboard", "--url", site.url).stderr
    assert holeshot("leaderboard", "--url", site.url, HOLESHOT_KEY="hs-secret").exit_code == 0


def test_no_gateway_is_one_line_that_says_what_to_do(holeshot: Holeshot, site: Any) -> None:
    site.close_url = site.url.rsplit(":", 1)[0] + ":1"

    result = holeshot("leaderboard", "--url", site.close_url)

    assert result.exit_code == 1
    assert "start one with `holeshot serve`" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_empty_leaderboard_says_so(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = {"models": []}

    assert "fills with calls" in holeshot("leaderboard", "--url", site.url).output


def test_something_else_on_the_port_is_not_taken_for_a_gateway(holeshot: Holeshot, site: Any) -> None:
    site.answers["/leaderboard"] = ["surprise"]

    assert "does not answer as a gateway does" in holeshot("leaderboard", "--url", site.url).stderr


def test_since_answers_from_the_ledger_without_a_gateway(holeshot: Holeshot, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    now = datetime.now(UTC)
    asyncio.run(migrate(url))
    asyncio.run(
        _store(url, tmp_path, [_call(now - timedelta(minutes=30), ttft_ms) for ttft_ms in (100.0, 200.0, 900.0)])
    )

    told = json.loads(holeshot("leaderboard", "--since", "1h", "--json", HOLESHOT_DATABASE_URL=url).stdout)

    (board,) = told["models"]
    assert (board["model"], board["window_s"]) == ("llama", 3600)
    (row,) = board["deployments"]
    assert (row["rank"], row["n"], row["state"]) == (1, 3, None)
    assert row["ttft_p50_ms"] == pytest.approx(200, rel=0.05)
    table = holeshot("leaderboard", "llama", "--since", "1h", HOLESHOT_DATABASE_URL=url).stdout
    assert "over 60 min" in table
    assert "state" not in table
    assert holeshot("leaderboard", "llama", "--since", "10m", HOLESHOT_DATABASE_URL=url).exit_code == 1


def test_a_length_of_time_that_is_none_is_refused(holeshot: Holeshot) -> None:
    result = holeshot("leaderboard", "--since", "yesterday")

    assert result.exit_code == 2
    assert "write 90s, 10m, 1h or 2d" in result.stderr


def _call(at: datetime, ttft_ms: float) -> CallRecord:
    return call(won(new_id(), started_at=at, ttft_ms=ttft_ms), started_at=at)


async def _store(url: str, folder: Path, records: list[CallRecord]) -> None:
    ledger = Ledger(url, folder / "spool", "w1")
    for record in records:
        ledger.call_finished(record)
    await ledger.flush()
    await ledger.close()
