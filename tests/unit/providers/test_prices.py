"""Prices from litellm's table, and what a call costs at them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from providers.catalog import load_catalog
from providers.prices import Price, PriceTable, cost_usd


@pytest.fixture
def table(tmp_path: Path) -> PriceTable:
    path = tmp_path / "prices.json"
    rows = {
        "sample_spec": {"litellm_provider": "one of the providers", "input_cost_per_token": 0.0},
        "groq/llama": {"litellm_provider": "groq", "input_cost_per_token": 6e-7, "output_cost_per_token": 8e-7},
        "gpt": {
            "litellm_provider": "openai",
            "input_cost_per_token": 2e-6,
            "output_cost_per_token": 8e-6,
            "cache_read_input_token_cost": 5e-7,
        },
        "command": {"litellm_provider": "cohere_chat", "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6},
        "openai/embed": {"litellm_provider": "openai", "input_cost_per_token": 1e-8},
        "openai/image": {"litellm_provider": "openai", "output_cost_per_image": 0.04},
        "openai/odd": {"litellm_provider": "openai", "input_cost_per_token": "ask us"},
    }
    path.write_text(json.dumps(rows))
    return PriceTable(path)


def test_a_price_is_found_under_prefix_and_model(table: PriceTable) -> None:
    assert table.look_up([("groq", "llama")]) == {("groq", "llama"): Price(6e-7, 8e-7, None)}


def test_a_price_is_found_under_the_bare_model_of_the_same_vendor(table: PriceTable) -> None:
    found = table.look_up([("openai", "gpt"), ("cohere", "command")])
    assert found[("openai", "gpt")] == Price(2e-6, 8e-6, 5e-7)
    assert found[("cohere", "command")] == Price(1e-6, 2e-6, None)


def test_another_vendor_s_price_for_a_model_of_the_same_name_is_not_taken(table: PriceTable) -> None:
    assert table.look_up([("novita", "gpt")]) == {("novita", "gpt"): None}


@pytest.mark.parametrize("model", ["unheard-of", "image", "odd"])
def test_a_model_without_a_price_per_token_has_none(table: PriceTable, model: str) -> None:
    assert table.look_up([("openai", model)]) == {("openai", model): None}


def test_an_embedding_s_output_costs_nothing(table: PriceTable) -> None:
    assert table.look_up([("openai", "embed")]) == {("openai", "embed"): Price(1e-8, 0.0, None)}


def test_without_a_table_every_price_is_unknown() -> None:
    assert PriceTable(None).look_up([("groq", "llama")]) == {("groq", "llama"): None}


def test_cached_tokens_cost_their_own_price() -> None:
    assert cost_usd(Price(2e-6, 8e-6, 5e-7), 1000, 100, 400) == pytest.approx(600 * 2e-6 + 400 * 5e-7 + 100 * 8e-6)


def test_cached_tokens_cost_as_others_where_no_discount_is_known() -> None:
    assert cost_usd(Price(2e-6, 8e-6), 1000, 0, 400) == pytest.approx(1000 * 2e-6)


def test_an_unknown_price_or_count_makes_the_cost_unknown_not_zero() -> None:
    assert cost_usd(None, 10, 10) is None
    assert cost_usd(Price(1e-6, 1e-6), None, 10) is None
    assert cost_usd(Price(1e-6, 1e-6), 10, None) is None


def test_the_installed_table_knows_what_the_catalog_s_vendors_sell() -> None:
    catalog = load_catalog()
    sold = [
        ("openai", "gpt-4o"),
        ("groq", "openai/gpt-oss-120b"),
        ("cerebras", "llama-3.3-70b"),
        ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        ("anthropic", "claude-sonnet-4-5"),
    ]
    wanted = [(catalog[vendor].litellm_prefix or "", model) for vendor, model in sold]
    for key, price in PriceTable.installed().look_up(wanted).items():
        assert price is not None, key
        assert 0 < price.input_usd <= price.output_usd < 1e-3, key


def test_looking_up_prices_imports_no_litellm() -> None:
    program = (
        "import sys; from providers.prices import PriceTable;"
        "assert PriceTable.installed().look_up([('openai', 'gpt-4o')])[('openai', 'gpt-4o')];"
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])
