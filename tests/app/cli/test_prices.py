"""holeshot models --prices: a newer table of prices, brought when an operator asks, over a real socket."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from providers import DatasheetTable

Holeshot = Callable[..., Result]
ASK = ("models", "--prices", "--config", "gateway.yaml")
NEWEST = {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 3e-6, "output_cost_per_token": 12e-6}


@pytest.fixture
def rows(site: Any) -> dict[str, Any]:
    """Return the rows that the site at ``prices.url`` sends: those of the release, which a test may change."""
    Path("gateway.yaml").write_text(
        f"prices: {{ file: prices.json, url: '{site.url}/table' }}\n"
        "providers: { openai: { api_key: k } }\n"
        "models: { m: { deployments: [openai/gpt-6.99-sol] } }\n"
    )
    given: dict[str, Any] = {"sample_spec": {"litellm_provider": "one of", "input_cost_per_token": 0}}
    given |= DatasheetTable.shipped().rows()
    site.answers["/table"] = given
    return given


@pytest.fixture
def asking(holeshot: Holeshot, rows: dict[str, Any]) -> Holeshot:
    """Runs the command line in a folder whose configuration has ``prices``."""
    assert rows
    return holeshot


def test_a_newer_table_is_written_and_what_differs_is_shown(asking: Holeshot, rows: dict[str, Any]) -> None:
    rows["gpt-6.99-sol"] = NEWEST
    rows["gpt-6-sol"] = {**rows["gpt-6-sol"], "input_cost_per_token": 1.5e-6}
    before = json.loads(asking("models", "--json", "--config", "gateway.yaml").stdout)["models"][0]

    told = asking(*ASK)

    assert told.exit_code == 0, told.output
    assert "gpt-6-sol" in told.output
    assert "1 is new" in told.output
    after = json.loads(asking("models", "--json", "--config", "gateway.yaml").stdout)["models"][0]
    assert (before["input_usd_per_mtok"], after["input_usd_per_mtok"], after["output_usd_per_mtok"]) == (None, 3, 12)
    assert [path.name for path in Path().iterdir() if "prices" in path.name] == ["prices.json"]
    again = json.loads(asking(*ASK, "--json").stdout)
    assert (again["changes"], again["new"], again["written"]) == ([], [], "prices.json")


@pytest.mark.parametrize("usd", [0, 1e-7])
def test_no_price_falls_to_0_or_below_a_tenth_without_a_yes(
    asking: Holeshot, site: Any, rows: dict[str, Any], usd: float
) -> None:
    site.answers["/table"] = {"gpt-6-sol": {**rows["gpt-6-sol"], "input_cost_per_token": usd}}

    told = asking(*ASK)

    assert told.exit_code == 1
    assert "--yes" in told.stderr
    assert "gpt-6-sol" in told.output
    assert not Path("prices.json").exists()
    assert asking(*ASK, "--yes").exit_code == 0
    assert DatasheetTable.shipped("prices.json").rows()["gpt-6-sol"]["input_cost_per_token"] == usd


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ([1], "no table of models"),
        ({"error": {"message": "not here"}}, "has no price"),
        ({}, "has no price"),
        (None, "status 404"),
    ],
)
def test_what_is_no_table_changes_nothing(asking: Holeshot, site: Any, table: Any, said: str) -> None:
    site.answers["/table"] = table
    Path("prices.json").write_text('{"x": {}}')

    told = asking(*ASK)

    assert told.exit_code == 1
    assert said in told.stderr
    assert "nothing was changed" in told.stderr
    assert Path("prices.json").read_text() == '{"x": {}}'


def test_a_table_of_a_few_models_leaves_the_others_as_they_were(asking: Holeshot, site: Any) -> None:
    site.answers["/table"] = {"gpt-6.99-sol": NEWEST}
    told = asking(*ASK)
    assert told.exit_code == 0, told.output
    assert DatasheetTable.shipped("prices.json").rows() == DatasheetTable.shipped().rows() | {"gpt-6.99-sol": NEWEST}


def test_no_price_of_the_file_is_lost_without_a_yes(asking: Holeshot, site: Any, rows: dict[str, Any]) -> None:
    assert rows
    Path("prices.json").write_text(json.dumps({"gpt-6.99-sol": NEWEST}))
    site.answers["/table"] = {"gpt-6-sol": NEWEST}
    told = asking(*ASK)
    assert (told.exit_code, json.loads(Path("prices.json").read_text())) == (1, {"gpt-6.99-sol": NEWEST})
    assert "lacks 1 model of prices.json, such as gpt-6.99-sol: nothing was written" in told.stderr
    assert asking(*ASK, "--yes").exit_code == 0
    assert "gpt-6.99-sol" not in DatasheetTable.shipped("prices.json").rows()


def test_a_negative_price_changes_nothing(asking: Holeshot, rows: dict[str, Any]) -> None:
    rows["gpt-6-sol"] = {**rows["gpt-6-sol"], "input_cost_per_token": -1e-6}
    assert "a price that is none, gpt-6-sol: input_cost_per_token" in asking(*ASK, "--yes").stderr
    assert not Path("prices.json").exists()


def test_without_a_network_it_says_where_it_asked(asking: Holeshot) -> None:
    Path("gateway.yaml").write_text("prices: { file: prices.json, url: 'http://127.0.0.1:1/table' }\n")
    told = asking(*ASK)
    assert told.exit_code == 1
    assert "no table of prices from 127.0.0.1:1" in told.stderr


def test_it_needs_a_file_and_is_never_asked_for_by_other_verbs(asking: Holeshot, site: Any) -> None:
    asking("check", "--config", "gateway.yaml")
    asking("models", "--config", "gateway.yaml")
    assert site.asked == []
    Path("gateway.yaml").write_text("providers: { openai: { api_key: k } }\n")
    told = asking(*ASK)
    assert (told.exit_code, "set prices.file" in told.stderr) == (2, True)


def test_a_file_that_a_person_wrote_wins_over_the_release(asking: Holeshot) -> None:
    row = {"litellm_provider": "openai", "input_cost_per_token": 7e-6, "output_cost_per_token": 8e-6}
    Path("prices.json").write_text(json.dumps({"gpt-6.99-sol": row}))
    [line] = json.loads(asking("check", "--json", "--config", "gateway.yaml").stdout)["deployments"]
    assert (line["input_usd"], line["output_usd"]) == (7, 8)


def test_a_file_that_is_no_table_is_a_problem_of_the_configuration(asking: Holeshot) -> None:
    Path("prices.json").write_text("[1]")
    told = asking("check", "--config", "gateway.yaml")
    assert told.exit_code != 0
    assert "prices.file: is no table of prices" in told.output
