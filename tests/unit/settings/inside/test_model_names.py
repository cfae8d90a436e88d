"""What vendors' names for models say, held against real ones."""

import itertools
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.settings import TRAINED_ONLY, parsed_name
from gateway.settings.model_names import ModelName

TABLE = tomllib.loads(Path(__file__).with_name("names_vendors_use.toml").read_text(encoding="utf-8"))
SAME: Mapping[str, list[str]] = TABLE["same"]
APART: Mapping[str, list[str]] = TABLE["apart"]


def read(entry: str) -> ModelName:
    vendor, _, name = entry.partition("|")
    return parsed_name(name, trained=vendor in TRAINED_ONLY)


def test_the_table_has_at_least_two_hundred_names() -> None:
    names = {entry for entries in (*SAME.values(), *APART.values()) for entry in entries}
    assert len(names) >= 200


@pytest.mark.parametrize("model", SAME)
def test_all_names_of_one_model_are_understood_as_one(model: str) -> None:
    understood_as = {entry: read(entry) for entry in SAME[model]}
    assert len({name.model for name in understood_as.values()}) == 1, understood_as
    assert all(name.certain for name in understood_as.values()), understood_as


def test_names_of_different_models_are_understood_as_different() -> None:
    holders = {read(entries[0]).model: model for model, entries in SAME.items()}
    assert len(holders) == len(SAME)


@pytest.mark.parametrize("group", APART)
def test_models_that_only_look_alike_are_told_apart(group: str) -> None:
    for one, other in itertools.combinations(APART[group], 2):
        first, second = read(one), read(other)
        assert first.model != second.model or not (first.certain and second.certain), (one, other, first)


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "fp8"),
        ("moonshotai/Kimi-K2.5-fp4", "fp4"),
        ("accounts/fireworks/models/nemotron-3-ultra-nvfp4", "nvfp4"),
        ("accounts/fireworks/models/qwen3-coder-480b-instruct-bf16", "bf16"),
        ("@hf/thebloke/codellama-7b-instruct-awq", "awq"),
        ("@cf/meta/llama-2-7b-chat-int8", "int8"),
        ("llama3.3:70b-instruct-q4_K_M", "q4_k_m"),
        ("llama3.1:8b-instruct-q8_0", "q8_0"),
        ("bartowski/Qwen2.5-7B-Instruct-GGUF", None),
        ("mlx-community/Qwen3-8B-4bit", "int4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "w4a16"),
        ("llama-3.3-70b-versatile", None),
    ],
)
def test_quantization_is_read_from_the_name(name: str, quantization: str | None) -> None:
    assert parsed_name(name).quantization == quantization


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("text-embedding-3-small", "embedding"),
        ("BAAI/bge-m3", "embedding"),
        ("intfloat/e5-mistral-7b-instruct", "embedding"),
        ("gemini-embedding-001", "embedding"),
        ("accounts/fireworks/models/qwen3-reranker-8b", "rerank"),
        ("Salesforce/Llama-Rank-V1", "rerank"),
        ("whisper-large-v3-turbo", "audio"),
        ("gpt-4o-mini-tts", "audio"),
        ("gpt-4o-audio-preview", "audio"),
        ("canopylabs/orpheus-v1-english", "audio"),
        ("black-forest-labs/FLUX.1-schnell", "image"),
        ("dall-e-3", "image"),
        ("stabilityai/stable-diffusion-xl-base-1.0", "image"),
        ("gemini-2.5-flash-image", "image"),
        ("veo-3.0-generate-preview", "video"),
        ("meta-llama/Llama-Guard-4-12B", "moderation"),
        ("openai/gpt-oss-safeguard-20b", "moderation"),
        ("omni-moderation-latest", "moderation"),
        ("deepseek/deepseek-ocr", "ocr"),
        ("mistral-nemo-base-2407", "base"),
        ("meta-llama/Llama-3.2-11B-Vision-Instruct", "chat"),
        ("deepseek-ai/DeepSeek-R1", "chat"),
    ],
)
def test_what_does_not_chat_is_told_apart(name: str, kind: str) -> None:
    assert parsed_name(name).kind == kind


@pytest.mark.parametrize(
    "name", ["auto", "openrouter/auto", "mistral-small-latest", "llama-3.1-8b", "mistral-7b", "qwen-max"]
)
def test_a_name_that_says_too_little_is_not_taken_for_another(name: str) -> None:
    assert not parsed_name(name).certain


def test_a_vendor_s_word_for_how_it_serves_is_kept() -> None:
    assert parsed_name("meta-llama/Llama-3.3-70B-Instruct-Turbo").serving == "turbo"
    assert parsed_name("gpt-4-turbo").serving is None
