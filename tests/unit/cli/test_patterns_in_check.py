"""What ``check`` says of names that end in a star."""

from gateway.cli.summary import deployment_lines, warnings
from gateway.settings import Settings
from providers import DatasheetTable, load_catalog


def test_a_pattern_is_no_deployment_without_a_price() -> None:
    settings = Settings.model_validate(
        {
            "providers": {"anthropic": {"api_key": "x"}},
            "models": {"claude-*": {"deployments": ["anthropic/claude-*"], "usd_per_day": 9, "race": {"budget": 0.1}}},
        }
    )
    catalog = load_catalog()
    lines = deployment_lines(settings, catalog, DatasheetTable.shipped(None))

    assert [line.deployment for line in lines] == ["anthropic/claude-*"]
    assert not [note for note in warnings(settings, lines, catalog) if "price" in note]
