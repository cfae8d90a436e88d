"""What deployments cost and can do: the configuration's word over the table's."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Datasheets, DeploymentSettings, Settings
from providers import UNKNOWN, UNLISTED, Capabilities, Datasheet, DatasheetTable, Price, Vendor

VENDOR = Vendor(name="acme", title="Acme", litellm_prefix="acme_ai")
ROW = {
    "litellm_provider": "acme_ai",
    "input_cost_per_token": 1e-6,
    "output_cost_per_token": 2e-6,
    "cache_read_input_token_cost": 1e-7,
    "supports_function_calling": True,
    "supports_vision": True,
    "max_input_tokens": 1000,
}

DEAREST = {"input": 2e-6, "web_search": 0.01}


@pytest.fixture
def table(tmp_path: Path) -> DatasheetTable:
    path = tmp_path / "models.json"
    source = {"name": "litellm", "version": "1", "date": "2026-01-01", "url": "", "license": "MIT"}
    path.write_text(json.dumps({"source": source, "models": {"acme_ai/big": ROW}, "dearest": {"acme_ai": DEAREST}}))
    return DatasheetTable(path)


def sheet(table: DatasheetTable, vendor: Vendor | None = VENDOR, **said: Any) -> Datasheet:
    item = DeploymentSettings.model_validate({"deployment": "acme/big", **said})
    return Datasheets(Settings(), {"acme": VENDOR}, table).of(vendor, item)


def test_what_is_not_configured_is_as_listed(table: DatasheetTable) -> None:
    assert sheet(table) == Datasheet(
        Price(1e-6, 2e-6, 1e-7, dearest=tuple(DEAREST.items())),
        Capabilities(tools=True, vision=True, context_tokens=1000),
    )


def test_a_name_as_gemini_lists_it_is_the_same_model(table: DatasheetTable) -> None:
    assert sheet(table, deployment="acme/models/big") == sheet(table)


def test_capabilities_are_overridden_one_by_one(table: DatasheetTable) -> None:
    said = {"vision": False, "audio": True, "context_tokens": 500}
    assert sheet(table, capabilities=said).capabilities == Capabilities(
        tools=True, vision=False, audio=True, context_tokens=500
    )


@pytest.mark.parametrize(
    ("base_url", "extra_body", "times"),
    [
        ("https://api.openai.com/v1", {}, 1.0),
        ("https://eu.api.openai.com/v1", {}, 1.1),
        ("https://us.api.openai.com/v1", {}, 1.2),
        ("https://jp.api.openai.com/v1", {}, 1.0),  # the table has no surcharge for it
        ("https://api.anthropic.com", {"inference_geo": "us"}, 1.2),
        ("https://api.anthropic.com", {"inference_geo": "global"}, 1.0),
        ("https://europe-west4-aiplatform.googleapis.com/v1/projects/p", {}, 1.3),
        ("https://aiplatform.googleapis.com/v1/projects/p", {}, 1.0),
    ],
)
def test_tokens_cost_more_in_the_region_that_the_configuration_names(
    tmp_path: Path, base_url: str, extra_body: dict[str, str], times: float
) -> None:
    row = ROW | {
        "regional_processing_uplift_multiplier_eu": 1.1,
        "provider_specific_entry": {"us": 1.2},
        "regional_endpoint_uplift_multiplier": 1.3,
        "input_cost_per_token_priority": 2e-6,
        "search_context_cost_per_query": {"search_context_size_medium": 0.01},
    }
    path = tmp_path / "models.json"
    source = {"name": "litellm", "version": "1", "date": "2026-01-01", "url": "", "license": "MIT"}
    path.write_text(json.dumps({"source": source, "models": {"acme_ai/big": row}}))
    settings = Settings.model_validate({"providers": {"acme": {"base_url": base_url}}})
    item = DeploymentSettings.model_validate({"deployment": "acme/big", "extra_body": extra_body})
    price = Datasheets(settings, {"acme": VENDOR}, DatasheetTable(path)).of(VENDOR, item).price
    assert price is not None
    priority = price.at("priority", 10)
    assert priority is not None
    found = (price.input_usd, price.output_usd, price.cached_input_usd, priority.input_usd, price.usd("web_search"))
    assert found == pytest.approx((1e-6 * times, 2e-6 * times, 1e-7 * times, 2e-6 * times, 0.01))


def test_a_configured_price_is_whole_and_takes_no_discount_from_the_list(table: DatasheetTable) -> None:
    configured = sheet(table, price_per_mtok={"input": 3, "output": 6})
    dearest = tuple(DEAREST.items())  # for what limits count of units without a price
    assert configured.price == Price(3e-6, 6e-6, dearest=dearest, as_text=True, is_configured=True)
    assert configured.capabilities.tools is True


def test_a_configured_price_may_change_with_the_tier_and_the_size_of_the_prompt(table: DatasheetTable) -> None:
    said = {
        "input": 1,
        "output": 10,
        "cache_write_1h": 2,
        "web_search": 0.01,
        "above_tokens": {200000: {"input": 2}},
        "tiers": {"priority": {"input": 3, "output": 30, "above_tokens": {200000: {"input": 6}}}},
    }
    price = sheet(table, price_per_mtok=said).price
    assert price is not None

    def at(tier: str, prompt_tokens: int) -> tuple[float, float] | None:
        found = price.at(tier, prompt_tokens)
        return None if found is None else (round(found.input_usd * 1e6, 6), round(found.output_usd * 1e6, 6))

    assert [at("", 1), at("", 200_001), at("priority", 1), at("priority", 200_001), at("flex", 1)] == [
        (1, 10), (2, 10), (3, 30), (6, 30), None,
    ]  # fmt: skip
    assert price.usd("web_search") == 0.01
    assert price.usd("cache_write_1h") == pytest.approx(2e-6)


def test_each_kind_of_token_may_have_a_price_of_its_own(table: DatasheetTable) -> None:
    said = {"input": 3, "output": 6, "cached_input": 0.5, "cache_write": 4, "reasoning": 8}
    price = sheet(table, price_per_mtok=said).price
    assert price is not None
    assert [price.cached_input_usd, price.cache_write_usd, price.reasoning_usd] == pytest.approx([5e-7, 4e-6, 8e-6])


def test_a_server_of_one_s_own_is_what_the_configuration_says(table: DatasheetTable) -> None:
    assert sheet(table, vendor=None) == UNLISTED
    assert sheet(table, vendor=None, capabilities={"tools": False}) == Datasheet(None, Capabilities(tools=False))


def test_a_model_that_is_not_configured_is_looked_up_when_it_is_asked_for(table: DatasheetTable) -> None:
    settings = Settings.model_validate({"models": {"m": {"deployments": ["acme/small"]}}})
    datasheets = Datasheets(settings, {"acme": VENDOR}, table)
    assert datasheets.of(VENDOR, settings.models["m"].deployments[0]).capabilities == UNKNOWN
    assert datasheets.of(VENDOR, DeploymentSettings(deployment="acme/big")) == sheet(table)
