"""holeshot models: what is configured, and what the providers sell, asked over real sockets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Holeshot = Callable[..., Result]
CONFIG = ("--config", "gateway.yaml")


@pytest.fixture
def market(holeshot: Holeshot, site: Any) -> Holeshot:
    """Runs the command line beside three providers that sell some of the same models; the third refuses its key."""
    site.answers["/a/v1/models"] = {
        "data": [
            {"id": "llama-3.3-70b-versatile", "context_window": 131072},
            {"id": "openai/gpt-oss-120b", "context_window": 131072},
            {"id": "whisper-large-v3"},
            {"id": "mistral-small-latest"},
        ]
    }
    site.answers["/b/v1/models"] = [
        {
            "id": "meta-llama/Llama-3.3-70B-Instruct-Turbo",
            "type": "chat",
            "context_length": 131072,
            "pricing": {"input": 0.88, "output": 0.88},
        },
        {"id": "Qwen/Qwen3-32B-FP8", "type": "chat"},
        {"id": "openai/whisper-large-v3", "type": "audio"},
        {"id": "mistral-small-latest", "type": "chat"},
    ]
    Path("gateway.yaml").write_text(
        "providers:\n"
        f"  a: {{ base_url: '{site.url}/a/v1', api_key: k }}\n"
        f"  b: {{ base_url: '{site.url}/b/v1', api_key: k }}\n"
        "  gone: { base_url: 'http://127.0.0.1:1/v1' }\n"
        "models:\n"
        "  llama: { deployments: [a/llama-3.3-70b-versatile,"
        " { deployment: b/meta-llama/Llama-3.3-70B-Instruct-Turbo, quantization: fp8,"
        " price_per_mtok: { input: 0.88, output: 0.9 }, capabilities: { context_tokens: 131072 } }] }\n"
    )
    return holeshot


def sold(result: Result) -> dict[str, list[str]]:
    models = json.loads(result.stdout)["models"]
    return {model["model"]: [offer["deployment"] for offer in model["offers"]] for model in models}


def test_the_configured_models_are_shown_with_prices_and_contexts(market: Holeshot) -> None:
    rows = json.loads(market("models", *CONFIG, "--json").stdout)["models"]

    assert [row["deployment"] for row in rows] == [
        "a/llama-3.3-70b-versatile",
        "b/meta-llama/Llama-3.3-70B-Instruct-Turbo",
    ]
    first, second = rows
    assert (first["quantization"], first["input_usd_per_mtok"], first["context_tokens"]) == (None, None, None)
    assert (second["quantization"], second["input_usd_per_mtok"], second["context_tokens"]) == ("fp8", 0.88, 131072)
    table = market("models", *CONFIG).output
    assert table.count("llama ") == 1  # a model is named once, whatever deployments it has
    assert "131,072" in table


def test_models_that_several_sell_are_put_together(market: Holeshot) -> None:
    models = sold(market("models", *CONFIG, "--live", "--json"))

    assert models["llama-3.3-70b-instruct"] == [
        "a/llama-3.3-70b-versatile",
        "b/meta-llama/Llama-3.3-70B-Instruct-Turbo",
    ]
    assert models["gpt-oss-120b"] == ["a/openai/gpt-oss-120b"]


def test_the_table_has_what_can_be_raced_and_says_what_it_leaves_out(market: Holeshot) -> None:
    output = market("models", *CONFIG, "--live").output

    for words in ("llama-3.3-70b-instruct", "(versatile)", "(turbo)", "131,072", "0.88"):
        assert words in output
    assert "whisper" not in output
    assert "gpt-oss" not in output
    assert "note: gone: " in output
    assert "--all shows them" in output


def test_all_shows_what_does_not_chat_apart(market: Holeshot) -> None:
    output = market("models", *CONFIG, "--live", "--all").output

    assert "(audio)" in output
    assert "gpt-oss-120b" in output
    assert "fp8" in output


def test_a_name_that_may_mean_anything_is_put_together_with_nothing(market: Holeshot) -> None:
    models = json.loads(market("models", *CONFIG, "--live", "--json").stdout)["models"]

    assert [model["providers"] for model in models if "mistral-small" in model["model"]] == [["a"], ["b"]]


def test_match_narrows_it_by_the_model_s_name_or_a_deployment_s(market: Holeshot) -> None:
    assert list(sold(market("models", *CONFIG, "--live", "--json", "--match", "LLAMA"))) == ["llama-3.3-70b-instruct"]
    assert list(sold(market("models", *CONFIG, "--live", "--json", "--match", "qwen/"))) == ["qwen-3-32b"]
    assert "no configured model has 'gpt' in its name" in market("models", *CONFIG, "--match", "gpt").stderr
    assert len(json.loads(market("models", *CONFIG, "--match", "turbo", "--json").stdout)["models"]) == 1


def test_a_list_in_pages_is_read_to_its_end(holeshot: Holeshot, site: Any) -> None:
    site.answers["/v1/models"] = {"data": [{"id": "claude-opus-4-5"}], "has_more": True, "last_id": "claude-opus-4-5"}
    site.answers["/v1/models?after_id=claude-opus-4-5"] = {"data": [{"id": "claude-haiku-4-5"}], "has_more": False}
    Path("gateway.yaml").write_text(
        f"providers: {{ mine: {{ kind: anthropic, base_url: '{site.url}/v1', api_key: k }} }}\n"
    )

    assert set(sold(holeshot("models", *CONFIG, "--live", "--json"))) == {"claude-opus-4.5", "claude-haiku-4.5"}


def test_nobody_to_ask_says_what_to_do(holeshot: Holeshot) -> None:
    result = holeshot("models", "--live")

    assert result.exit_code == 1
    assert result.stderr == "holeshot: no provider to ask: set a key such as GROQ_API_KEY, or configure a provider\n"


def test_no_answer_at_all_is_a_failure(holeshot: Holeshot) -> None:
    Path("gateway.yaml").write_text("providers: { gone: { base_url: 'http://127.0.0.1:1/v1' } }\n")

    result = holeshot("models", *CONFIG, "--live")

    assert result.exit_code == 1
    assert "note: gone: " in result.output


def test_without_a_provider_the_simulated_models_are_shown(holeshot: Holeshot) -> None:
    result = holeshot("models")

    assert result.stderr == (
        "no provider is configured: these are the simulated ones that `holeshot serve` starts;"
        " `holeshot init --live` writes a configuration from your keys\n"
    )
    assert "demo-chat" in result.stdout
    assert "sim-swift/demo-chat" in result.stdout
    assert json.loads(holeshot("models", "--json").stdout)["models"][0]["model"] == "demo-chat"


def test_providers_without_a_model_say_what_to_do(holeshot: Holeshot) -> None:
    Path("gateway.yaml").write_text("providers: { mine: { base_url: 'http://127.0.0.1:1/v1' } }\n")

    assert "holeshot init --live" in holeshot("models", *CONFIG).output


def test_all_without_live_makes_no_sense(holeshot: Holeshot) -> None:
    assert holeshot("models", "--all").exit_code == 2
