"""Prices and capabilities from litellm's table."""

import json
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from providers import UNKNOWN, UNLISTED, Capabilities, Datasheet, DatasheetTable, Price, load_catalog
from providers.models.datasheets import OLD_DAYS, dearest_of, thinks

ROWS: dict[str, dict[str, Any]] = {
    "sample_spec": {
        "litellm_provider": "one of the providers",
        "input_cost_per_token": 0.0,
        "max_input_tokens": "max input tokens, if the provider specifies it",
    },
    "groq/llama": {"litellm_provider": "groq", "input_cost_per_token": 6e-7, "output_cost_per_token": 8e-7},
    "gpt": {
        "litellm_provider": "openai",
        "input_cost_per_token": 2e-6,
        "output_cost_per_token": 8e-6,
        "cache_read_input_token_cost": 5e-7,
        "cache_creation_input_token_cost": 2.5e-6,
        "output_cost_per_reasoning_token": 1e-5,
        "supports_function_calling": True,
        "supports_response_schema": False,
        "supports_pdf_input": True,
        "supports_reasoning": True,
        "supports_vision": True,
        "supported_modalities": ["text", "image"],
        "max_input_tokens": 128000,
        "max_output_tokens": 16384,
        "max_tokens": 16384,
    },
    "command": {"litellm_provider": "cohere_chat", "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6},
    "openai/embed": {"litellm_provider": "openai", "input_cost_per_token": 1e-8},
    "openai/image": {"litellm_provider": "openai", "output_cost_per_image": 0.04, "max_input_tokens": 0},
    "openai/odd-price": {"litellm_provider": "openai", "input_cost_per_token": "ask us", "supports_vision": True},
    "openai/odd-flag": {"litellm_provider": "openai", "input_cost_per_token": 1e-6, "supports_vision": "sometimes"},
    "openai/odd-seller": {"litellm_provider": 7, "input_cost_per_token": 1e-6},
    "nobody's": {"litellm_provider": 7, "input_cost_per_token": 1e-6},
    "zai/glm": {"litellm_provider": "zai", "input_cost_per_token": 1e-6, "cache_creation_input_token_cost": 0},
}


@pytest.fixture
def table(tmp_path: Path) -> DatasheetTable:
    path = tmp_path / "models.json"
    source = {"name": "litellm", "version": "1", "date": "2026-01-01", "url": "", "license": "MIT"}
    path.write_text(json.dumps({"source": source, "models": ROWS}))
    return DatasheetTable(path)


def found(table: DatasheetTable, prefix: str, model: str) -> Datasheet:
    return table.look_up([(prefix, model)])[prefix, model]


def test_a_datasheet_is_found_under_prefix_and_model(table: DatasheetTable) -> None:
    assert found(table, "groq", "llama") == Datasheet(Price(6e-7, 8e-7), UNKNOWN)


def test_a_datasheet_is_found_under_the_bare_model_of_the_same_vendor(table: DatasheetTable) -> None:
    assert found(table, "openai", "gpt").price == Price(2e-6, 8e-6, 5e-7, 2.5e-6, 1e-5)
    assert found(table, "cohere", "command").price == Price(1e-6, 2e-6)


@pytest.mark.parametrize(("prefix", "model"), [("novita", "gpt"), ("openai", "nobody's"), ("openai", "unheard-of")])
def test_another_vendor_s_row_for_a_model_of_the_same_name_is_not_taken(
    table: DatasheetTable, prefix: str, model: str
) -> None:
    assert found(table, prefix, model) == UNLISTED


def test_an_embedding_s_output_costs_nothing(table: DatasheetTable) -> None:
    assert found(table, "openai", "embed").price == Price(1e-8, 0.0)


def test_a_cache_that_is_written_for_nothing_extra_costs_what_input_does(table: DatasheetTable) -> None:
    assert found(table, "zai", "glm").price == Price(1e-6, 0.0, cache_write_usd=None)


def test_what_a_row_says_a_model_can_do_is_what_it_can_do(table: DatasheetTable) -> None:
    assert found(table, "openai", "gpt").capabilities == Capabilities(
        tools=True,
        json_schema=False,
        vision=True,
        audio=False,  # no flag, but not among its modalities
        documents=True,
        reasoning=True,
        context_tokens=128000,
        max_output_tokens=16384,
    )


def test_what_a_row_leaves_out_is_unknown_not_a_no(table: DatasheetTable) -> None:
    assert found(table, "groq", "llama").capabilities == UNKNOWN


def test_a_limit_of_nothing_is_none(table: DatasheetTable) -> None:
    assert found(table, "openai", "image").capabilities.context_tokens is None


def test_half_a_row_of_other_types_leaves_the_other_half_known(table: DatasheetTable) -> None:
    assert found(table, "openai", "odd-price") == Datasheet(None, Capabilities(vision=True))
    assert found(table, "openai", "odd-flag") == Datasheet(Price(1e-6, 0.0), UNKNOWN)


def test_without_a_table_nothing_is_known() -> None:
    assert found(DatasheetTable(None), "groq", "llama") == UNLISTED


def test_the_shipped_table_knows_what_the_catalog_s_vendors_sell() -> None:
    catalog = load_catalog()
    sold = [
        ("openai", "gpt-4o"),
        ("groq", "openai/gpt-oss-120b"),
        ("cerebras", "llama-3.3-70b"),
        ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        ("anthropic", "claude-sonnet-4-5"),
    ]
    wanted = [(catalog[vendor].litellm_prefix or "", model) for vendor, model in sold]
    for key, sheet in DatasheetTable.shipped().look_up(wanted).items():
        price, can = sheet.price, sheet.capabilities
        assert price is not None, key
        assert 0 < price.input_usd <= price.output_usd < 1e-3, key
        assert can.tools, key
        assert can.context_tokens is not None, key
        assert can.context_tokens >= 100_000, key


def test_in_the_shipped_table_anthropic_s_cache_is_dearer_to_write_and_cheaper_to_read() -> None:
    price = found(DatasheetTable.shipped(), "anthropic", "claude-sonnet-4-5").price
    assert price is not None
    assert price.cached_input_usd is not None
    assert price.cache_write_usd is not None
    assert price.cached_input_usd < price.input_usd < price.cache_write_usd


@pytest.mark.parametrize(
    ("prefix", "model"), [("openai", "gpt-4o"), ("gemini", "gemini-2.5-pro"), ("anthropic", "claude-sonnet-4-5")]
)
def test_the_shipped_table_knows_who_takes_pictures_and_documents(prefix: str, model: str) -> None:
    can = found(DatasheetTable.shipped(), prefix, model).capabilities
    assert (can.vision, can.documents) == (True, True)


def test_looking_up_datasheets_imports_no_litellm() -> None:
    program = (
        "import sys; from providers.models.datasheets import DatasheetTable;"
        "assert DatasheetTable.shipped().look_up([('openai', 'gpt-4o')])['openai', 'gpt-4o'].price;"
        "assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[5])


def test_the_table_is_of_the_version_that_the_lock_pins_and_as_old_as_its_release() -> None:
    source = DatasheetTable.shipped().source()
    lock = Path(__file__).parents[5] / "tools" / "requirements" / "litellm.lock"
    pinned = re.search(r"^litellm==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    assert source is not None
    assert pinned is not None
    assert source.version == pinned[1]
    assert date.fromisoformat(source.released) <= date.fromisoformat(source.date)


def test_a_table_is_said_to_be_old_by_the_release_of_its_version() -> None:
    source = DatasheetTable.shipped().source()
    assert source is not None
    released = date.fromisoformat(source.released)
    assert source.is_old(released + timedelta(OLD_DAYS)) is None
    said = source.is_old(released + timedelta(OLD_DAYS + 1))
    assert said is not None
    assert f"litellm {source.version}, released 91 days ago" in said


def test_a_model_that_is_not_listed_has_the_dearest_prices_of_its_vendor() -> None:
    sheet = found(DatasheetTable.shipped(), "openai", "newer-than-the-table")
    assert sheet.price is None
    assert sheet.listed is not None
    assert sheet.listed.unknown == ("input", "output")
    assert sheet.listed.uncounted(("audio_input",)) == ()
    assert found(DatasheetTable.shipped(), "nobody", "x") == UNLISTED


@pytest.mark.parametrize(
    ("prefix", "model", "kin"),
    [
        ("openai", "gpt-6.9-astra", "gpt astra"),  # its line
        ("openai", "gpt-6.9-nebula", "gpt 6"),  # a line that nobody has: its version
        ("openai", "gpt-9", "gpt 6"),  # the newest version before its own
        ("openai", "o9-pro", "gpt o-pro"),
        ("anthropic", "claude-fable-5-9", "claude fable"),
        ("anthropic", "claude-opus-9-1-20270101", "claude opus"),
        ("bedrock", "us.anthropic.claude-opus-5-9-v1:0", "claude opus"),
        ("gemini", "gemini-9-neon", "gemini 4"),
        # Names that nobody has seen.
        ("openai", "gpt-6.3-luna", "gpt luna"),
        ("openai", "gpt-7", "gpt 6"),
        ("openai", "o5-mini", "gpt o-mini"),  # a line that has a numbering and sizes of its own
        ("openai", "o5", "gpt o"),
        ("openai", "gpt-audio-3", "gpt audio"),
        ("anthropic", "claude-opus-5-7", "claude opus"),
        ("anthropic", "claude-haiku-5-6", "claude haiku"),
        ("gemini", "gemini-4.2-argon", "gemini 4"),
        ("gemini", "gemini-5-flash", "gemini flash"),
        ("deepseek", "deepseek-v5", "deepseek 4"),
        ("moonshot", "kimi-k3.7", "kimi 3"),
        ("dashscope", "qwen4-max", "qwen 3"),
        # Of families without rows, which their names tell.
        ("xai", "grok-9-fast", "grok"),
        ("mistral", "devstral-9", "devstral"),
        ("mistral", "mistral-large-9", "mistral large"),
    ],
)
def test_a_model_that_is_not_listed_has_the_dearest_prices_of_its_own_line(prefix: str, model: str, kin: str) -> None:
    listed, vendors = (found(DatasheetTable.shipped(), prefix, name).listed for name in (model, "no-such-family"))
    assert listed is not None
    assert vendors is not None
    assert (listed.dearest_of, vendors.dearest_of) == (kin, "")
    own, all_of_vendor = dict(listed.dearest), dict(vendors.dearest)
    assert all(0 < own[unit] <= all_of_vendor[unit] for unit in ("input", "output"))
    assert own.keys() == all_of_vendor.keys()  # of what its line has no price of, that of the vendor counts


def test_a_listed_model_of_its_line_is_never_dearer() -> None:
    sold = [("openai", "gpt-6-astra"), ("anthropic", "claude-fable-5"), ("anthropic", "claude-opus-5-5")]
    for prefix, name in sold:
        price, newer = (
            found(DatasheetTable.shipped(), prefix, name).price,
            found(
                DatasheetTable.shipped(),
                prefix,
                name.rpartition("-")[0] + "-99" if prefix == "anthropic" else "gpt-6.99-astra",
            ).listed,
        )
        assert price is not None
        assert newer is not None
        assert price.input_usd <= dict(newer.dearest)["input"] <= 2 * price.input_usd
        assert price.output_usd <= dict(newer.dearest)["output"] <= 2 * price.output_usd


def test_one_small_model_says_nothing_of_what_a_large_one_of_its_name_costs(tmp_path: Path) -> None:
    row = {"litellm_provider": "groq", "mode": "chat"}
    models = {
        "groq/llama-guard-1b": row | {"input_cost_per_token": 4e-8, "output_cost_per_token": 4e-8},
        "groq/other-400b": row | {"input_cost_per_token": 8e-7, "output_cost_per_token": 4e-6},
    }
    path = tmp_path / "models.json"
    source = {"name": "litellm", "version": "1", "date": "2026-01-01", "url": "", "license": "MIT"}
    path.write_text(json.dumps({"source": source, "models": models, "dearest": dearest_of(models)}))
    listed = found(DatasheetTable(path), "groq", "llama-9-400b").listed
    assert listed is not None
    assert (listed.dearest_of, dict(listed.dearest)["output"]) == ("", 4e-6)


# Fine-tuned models: OpenAI's ft:BASE:ORGANISATION:NAME:ID, Azure's BASE.ft-ID.


@pytest.mark.parametrize(
    "name",
    [
        "ft:gpt-4.1-mini-2025-04-14:acme::abc123",
        "ft:gpt-4.1-mini-2025-04-14:acme:support:def456",
        "ft:gpt-4.1-mini-2025-04-14:acme::abc123:ckpt-step-80",
        "openai/ft:gpt-4.1-mini-2025-04-14:acme::abc123",
    ],
)
def test_a_fine_tuned_model_has_the_figures_of_its_base_as_fine_tuned(name: str) -> None:
    shipped = DatasheetTable.shipped()
    tuned, plain = found(shipped, "openai", "ft:gpt-4.1-mini-2025-04-14"), found(shipped, "openai", "gpt-4.1-mini")
    assert found(shipped, "openai", name) == tuned
    assert tuned.price is not None
    assert tuned.price != plain.price
    assert tuned.capabilities.max_output_tokens == 32_768


@pytest.mark.parametrize(
    ("prefix", "name", "base"),
    [
        ("openai", "ft:gpt-4o:acme::abc123", "gpt-4o"),
        ("mistral", "ft:mistral-large-latest:1a2b3c:20261101:7f8e", "mistral-large-latest"),
        ("azure", "gpt-4o-2024-08-06.ft-0a1b2c3d4e5f", "gpt-4o-2024-08-06"),
    ],
)
def test_where_only_the_base_is_listed_its_abilities_are_known_and_no_price(prefix: str, name: str, base: str) -> None:
    shipped = DatasheetTable.shipped()
    tuned, plain = found(shipped, prefix, name), found(shipped, prefix, base)
    assert plain.price is not None
    assert (tuned.price, tuned.capabilities) == (None, plain.capabilities)
    assert tuned.listed == found(shipped, prefix, "a-model-that-nobody-has").listed


def test_a_fine_tuned_model_of_an_unknown_base_or_another_vendor_is_unlisted() -> None:
    shipped = DatasheetTable.shipped()
    for prefix, name in (("openai", "ft:gpt-99:acme::x"), ("groq", "ft:gpt-4.1-mini-2025-04-14:acme::x")):
        assert found(shipped, prefix, name) == found(shipped, prefix, "a-model-that-nobody-has")


# Which models think: the table marks those that do.


@pytest.mark.parametrize(
    ("prefix", "model"),
    [
        *(("openai", name) for name in ("gpt-4o", "gpt-4.1-mini", "gpt-3.5-turbo", "ft:gpt-4o-2024-08-06:a::b")),
        ("azure", "gpt-4o"),
        ("mistral", "mistral-large-latest"),
        ("mistral", "codestral-latest"),
        ("xai", "grok-4.20-non-reasoning"),
        ("together_ai", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        ("bedrock", "us.amazon.nova-pro-v1:0"),
    ],
)
def test_an_unmarked_model_of_a_family_that_does_not_think_is_known_to_be_plain(prefix: str, model: str) -> None:
    assert found(DatasheetTable.shipped(), prefix, model).capabilities.reasoning is False


@pytest.mark.parametrize(
    ("prefix", "model"),
    [
        ("deepinfra", "Qwen/Qwen3-32B"),  # thinks, but its row does not say so
        ("deepinfra", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"),
        ("azure", "eu/o3"),
        ("groq", "a-model-that-nobody-has"),
    ],
)
def test_a_model_that_may_think_unmarked_is_not_held_to_be_plain(prefix: str, model: str) -> None:
    assert found(DatasheetTable.shipped(), prefix, model).capabilities.reasoning is None


def test_no_model_that_a_vendor_marks_as_thinking_is_held_to_be_plain_at_another() -> None:
    rows: dict[str, dict[str, Any]] = json.loads(Path("providers/models/models.json").read_text())["models"]

    def own(name: str) -> str:
        return re.sub(r"[^a-z0-9]+", "-", name.rpartition("/")[2].lower())

    marked = {own(name) for name, row in rows.items() if row.get("supports_reasoning")}
    unmarked = {name: row for name, row in rows.items() if row.get("supports_reasoning") is None}
    plain = {name for name, row in unmarked.items() if thinks(name, row.get("mode"), None) is False}
    assert len(plain) > 500
    assert {name for name in plain if own(name) in marked and "non-reasoning" not in name} == set()
