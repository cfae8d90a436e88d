"""holeshot slo, on a real SQLite file."""

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.core.calls import CallRecord
from gateway.ledger import Ledger
from tests.app.cli.conftest import Site
from tests.support.ledgers import lay, migrated
from tests.unit.ledger.records import call, failed, new_id, won

Holeshot = Callable[..., Result]

CONFIG = """\
database_url: sqlite:///ledger.db
models: { llama: { deployments: [groq/x] } }
slo:
  fast: { model: llama, objective: 0.9, ttft_ms: 500 }
  up: { objective: 0.999 }
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def stored(folder: Path, records: Sequence[CallRecord]) -> None:
    async def store() -> None:
        lay(migrated(), folder / "ledger.db")
        ledger = Ledger(f"sqlite:///{folder}/ledger.db", folder / "spool", "w1")
        for record in records:
            ledger.call_finished(record)
        await ledger.flush()
        await ledger.close()

    asyncio.run(store())


def some_calls() -> list[CallRecord]:
    at = datetime.now(UTC) - timedelta(hours=2)
    calls = [call(won(new_id(), started_at=at), started_at=at) for _ in range(97)]
    calls += [call(won(new_id(), started_at=at, ttft_ms=900.0), started_at=at) for _ in range(2)]
    return [*calls, call(failed(new_id(), started_at=at), started_at=at)]


def test_each_target_is_a_line_and_a_verdict(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    stored(tmp_path, some_calls())
    result = holeshot("slo", "--config", str(config))
    assert result.exit_code == 0
    for words in ("model llama", "first token under 500 ms", "all calls", "answered", "97.00%", "70%"):
        assert words in result.output
    lines = result.output.splitlines()
    kept, missed = lines[-2:]
    assert kept.startswith(
        "fast: Kept: 97.0 % of 100 calls were good, 90 % are wanted over 28 days; 70 % of the error budget"
    )
    assert missed.startswith("up: Missed: 99.0 % of 100 calls were good, 99.9 % are wanted over 28 days; 1 was bad")


def test_it_explains_what_opens_an_alert_and_when_without_a_ledger(holeshot: Holeshot, config: Path) -> None:
    targets = "slo: { up: { objective: 0.99 }, rough: { objective: 0.5 } }\nalerts: { burn_least_bad: 7 }\n"
    config.write_text(CONFIG.partition("slo:")[0] + targets, encoding="utf-8")
    result = holeshot("slo", "up", "--explain", "--config", str(config))
    assert result.exit_code == 0
    assert "86.4%" in result.output  # of the calls of five minutes
    assert "4.3 min" in result.output  # when all of them are bad
    assert "7 bad calls" in " ".join(result.output.split())
    result = holeshot("slo", "rough", "--explain", "--config", str(config))
    assert "more than all" in " ".join(result.output.split())


def test_an_explanation_is_not_printed_where_json_is_expected(holeshot: Holeshot, config: Path) -> None:
    result = holeshot("slo", "--explain", "--json", "--config", str(config))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--explain has no JSON" in result.stderr


def test_its_json_can_be_asked_again_in_sql(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    stored(tmp_path, some_calls())
    result = holeshot("slo", "fast", "--json", "--config", str(config))
    [target] = json.loads(result.output)["targets"]
    assert (target["calls"], target["bad"], target["late"], target["failed"]) == (100, 3, 2, 1)
    assert target["budget_left"] == pytest.approx(0.7)
    again = holeshot("sql", target["sql"], "--json", "--config", str(config))
    [row] = json.loads(again.output)
    assert (row["calls"], row["bad"]) == (100, 3)
    listed = json.loads(holeshot("sql", target["misses_sql"], "--json", "--config", str(config)).output)
    assert sorted(each["status_code"] for each in listed) == [200, 200, 502]
    assert {each["window_s"]: each["bad"] for each in target["burns"]} == {3600: 0, 21_600: 3, 259_200: 3}


def test_an_empty_ledger_has_nothing_to_say(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    stored(tmp_path, [])
    result = holeshot("slo", "--config", str(config), "--strict")
    assert result.exit_code == 0
    assert "fast: No calls in 28 days: nothing can be said." in result.output


def test_strict_exits_with_one_if_a_target_is_missed(holeshot: Holeshot, config: Path, tmp_path: Path) -> None:
    stored(tmp_path, some_calls())
    assert holeshot("slo", "fast", "--strict", "--config", str(config)).exit_code == 0
    assert holeshot("slo", "--strict", "--config", str(config)).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fats"], "there is no target 'fats'; did you mean 'fast'?"),
        ([], "there is no ledger at ledger.db; run: holeshot migrate -c {config}"),
    ],
)
def test_what_cannot_be_answered_is_one_sentence(
    holeshot: Holeshot, config: Path, arguments: list[str], words: str
) -> None:
    result = holeshot("slo", *arguments, "--config", str(config))
    assert (result.exit_code, result.stderr) == (1, f"holeshot: {words.format(config=config)}\n")


def test_a_database_that_is_away_is_one_sentence(holeshot: Holeshot, config: Path) -> None:
    away = "postgresql://nobody@127.0.0.1:1/none"
    result = holeshot("slo", "--config", str(config), HOLESHOT_DATABASE_URL=away)
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "127.0.0.1" in result.stderr


def test_without_targets_it_says_how_to_have_some(holeshot: Holeshot, tmp_path: Path) -> None:
    path = tmp_path / "plain.yaml"
    path.write_text("database_url: sqlite:///ledger.db\n", encoding="utf-8")
    result = holeshot("slo", "--config", str(path))
    assert result.exit_code == 1
    assert "add a section `slo:`" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("{ model: lama }", "5: slo.t.model: there is no model 'lama'; did you mean 'llama'?"),
        ("{ client: anna }", "5: slo.t.client: there is no client 'anna'; known: bert"),
        ("{}\n  t: { objective: 0.9 }", "6: slo.t is set twice, first in line 5"),
        ("{ objective: 99 }", "5: slo.t.objective: is a share, not per cent: write 0.99"),
    ],
)
def test_a_wrong_target_is_named_with_its_line(holeshot: Holeshot, tmp_path: Path, said: str, words: str) -> None:
    path = tmp_path / "wrong.yaml"
    clients = f"clients: {{ bert: {{ key_sha256: '{'0' * 64}' }} }}\n"
    models = "models: { llama: { deployments: [groq/x] } }\n"
    path.write_text(f"database_url: sqlite:///ledger.db\n{models}{clients}slo:\n  t: {said}\n", encoding="utf-8")
    result = holeshot("slo", "--config", str(path))
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_a_gateway_tells_its_targets_as_the_ledger_does(
    holeshot: Holeshot, site: Site, config: Path, tmp_path: Path
) -> None:
    stored(tmp_path, some_calls())
    read = holeshot("slo", "--config", str(config))
    site.answers["/api/slo"] = json.loads(holeshot("slo", "--json", "--config", str(config)).stdout)
    told = holeshot("slo", "--url", site.url)
    assert (told.exit_code, told.stdout) == (0, read.stdout)
    assert holeshot("slo", "up", "--strict", "--url", site.url).exit_code == 1
    unknown = holeshot("slo", "upp", "--url", site.url)
    assert (unknown.exit_code, "'up'" in unknown.stderr) == (1, True)
    for answer, words in (({"targets": [{"name": "old"}]}, "another version"), ({"targets": []}, "has no target")):
        site.answers["/api/slo"] = answer
        assert words in holeshot("slo", "--url", site.url).stderr


def test_a_configuration_that_is_named_beats_the_variable_and_a_url_beats_both(
    holeshot: Holeshot, site: Site, config: Path, tmp_path: Path
) -> None:
    stored(tmp_path, some_calls())
    named, elsewhere = ("--config", str(config)), {"HOLESHOT_URL": site.url}
    read = holeshot("slo", *named)
    assert holeshot("slo", *named, **elsewhere).stdout == read.stdout
    for verb in ("alerts", "slowdowns"):
        assert holeshot(verb, *named, **elsewhere).exit_code == 0
    config.write_text(f"{CONFIG}port: 1\n", encoding="utf-8")
    for arguments in (("leaderboard",), ("explain", "llama")):
        told = holeshot(*arguments, *named, **elsewhere)
        assert (told.exit_code, "no gateway at http://127.0.0.1:1 (" in told.stderr) == (1, True)
    assert site.asked == []
    assert holeshot("slo", *named, "--url", site.url, HOLESHOT_URL="http://127.0.0.1:1").exit_code == 1
    assert holeshot("slo", HOLESHOT_CONFIG=str(config), **elsewhere).exit_code == 1  # both are variables
    assert site.asked == ["/api/slo"] * 2
