"""holeshot replay, on a real SQLite file."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
import yaml
from typer.testing import Result

from gateway.cli.replay import _show
from gateway.cli.replaying import ReplayedModel, ReplayRequest, replay_ledger
from gateway.settings import RaceSettings
from tests.support.ledgers import lay, migrated
from tests.support.replayed import WORLDS, Drawing, ledger, store

Holeshot = Callable[..., Result]
LEDGER = {"HOLESHOT_DATABASE_URL": "sqlite:///ledger.db"}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of two models: of one all are audited, of the other none."""
    folder = tmp_path_factory.mktemp("replay")
    lay(migrated(), folder / "ledger.db")
    url = f"sqlite:///{folder}/ledger.db"

    async def fill() -> None:
        for model, count, audit_share in (("llama", 800, 1.0), ("qwen", 300, 0.0)):
            rows = ledger(Drawing(WORLDS[0], 2).calls(count), audit_share, Random(1))
            await store(url, folder / f"spool-{model}", rows, model=model, until=datetime.now(UTC))

    asyncio.run(fill())
    return folder / "ledger.db"


@pytest.fixture
def environ(filled: Path) -> dict[str, str]:
    return {"HOLESHOT_DATABASE_URL": f"sqlite:///{filled}", "COLUMNS": "200"}


def test_it_shows_each_setting_and_recommends_one(holeshot: Holeshot, environ: dict[str, str]) -> None:
    result = holeshot("replay", "--model", "llama", "--budget", "0.1,0.3", **environ)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "llama: 800 calls of the last 7d"
    for setting in ("single", "budget 0.1", "budget 0.3", "race of 2", "race of 3"):
        assert any(line.lstrip().startswith(setting) for line in lines)
    assert any(line.startswith("Recommended: ") for line in lines)


def test_json_has_the_figures_with_their_intervals(holeshot: Holeshot, environ: dict[str, str]) -> None:
    result = holeshot("replay", "--json", **environ)
    assert result.exit_code == 0, result.output
    llama, qwen = json.loads(result.stdout)["models"]
    for setting in llama["settings"]:
        for figure in (*setting["ttft"].values(), *setting["total"].values()):
            assert figure["low"] <= figure["value"] <= figure["high"]
        assert setting["cost_low_usd"] <= setting["cost_high_usd"]
        RaceSettings.model_validate(setting["race"])
    assert [setting["setting"] for setting in llama["settings"]][:2] == ["single", "budget 0.05"]
    assert (qwen["settings"], qwen["is_enough"]) == ([], False)
    assert "audited losers" in qwen["recommended"]["why"]


def test_without_audits_each_deployment_that_lacks_them_has_a_row(holeshot: Holeshot, environ: dict[str, str]) -> None:
    result = holeshot("replay", "--model", "qwen", **environ | {"COLUMNS": "80"})

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 150  # the sentence is one line where it is not a terminal
    rows = [line.split() for line in lines if "/model" in line]
    assert rows
    assert all(row[1:4] == ["0", "500", "unknown:"] for row in rows)


def test_yaml_is_a_part_of_a_configuration(holeshot: Holeshot, environ: dict[str, str]) -> None:
    result = holeshot("replay", "--model", "llama", "--yaml", **environ)
    assert result.exit_code == 0, result.output
    written = yaml.safe_load(result.stdout)
    RaceSettings.model_validate(written["models"]["llama"]["race"])


def test_yaml_of_several_models_is_one_section(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    request = ReplayRequest(environ["HOLESHOT_DATABASE_URL"], "7d", 7 * 86_400.0, "llama")
    _, [found] = replay_ledger(request)

    _show([found, ReplayedModel("another", found.calls, found.replayed)], request, as_json=False, as_yaml=True)

    written = capsys.readouterr().out
    assert written.splitlines().count("models:") == 1
    assert list(yaml.safe_load(written)["models"]) == ["llama", "another"]


def test_without_a_provider_its_deployments_are_gone(holeshot: Holeshot, environ: dict[str, str]) -> None:
    result = holeshot("replay", "--model", "llama", "--without", "provider0", "--json", **environ)
    assert result.exit_code == 0, result.output
    [llama] = json.loads(result.stdout)["models"]
    assert sorted(llama["deployments"]) == ["provider1/model", "provider2/model"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--model", "lama"), 1, "no calls of model 'lama' in the last 7d; did you mean 'llama'?"),
        (("--model", "llama", "--without", "provider9"), 1, "ran at provider 'provider9'; did you mean"),
        (("--budget", "0"), 2, "--budget 0 is impossible: it must be above 0 and at most 7"),
        (("--budget", "nan"), 2, "--budget nan is impossible"),
        (("--budget", "0.1,much"), 2, "--budget 'much' is not a number"),
        (("--window", "fortnight"), 2, "--window 'fortnight' is not a duration"),
        (("--window", "0d"), 2, "--window '0d' is not a duration"),
        (("--json", "--yaml"), 2, "one of --json and --yaml"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    holeshot: Holeshot, environ: dict[str, str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = holeshot("replay", *arguments, **environ)
    assert result.exit_code == code
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


def test_an_empty_ledger_and_none_are_one_sentence(holeshot: Holeshot) -> None:
    assert "run: holeshot migrate" in holeshot("replay", **LEDGER).stderr
    lay(migrated(), Path("ledger.db"))
    result = holeshot("replay", "--window", "1h", **LEDGER)
    assert (result.exit_code, result.stderr.strip()) == (
        1,
        "holeshot: the ledger has no calls of the last 1h that could be raced",
    )


def test_a_database_that_is_away_is_one_sentence(holeshot: Holeshot) -> None:
    result = holeshot("replay", HOLESHOT_DATABASE_URL="postgresql://nobody@127.0.0.1:9/none")
    assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
