"""Lists of models as vendors send them, read into one record."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from providers import ListedModel
from providers.models import read_pages
from providers.models.listings import MOST_PAGES, next_page, read_listing
from providers.refusals import ErrorKind, UpstreamError


def only(row: Any, **around: Any) -> ListedModel:
    (listed,) = read_listing(json.dumps({"object": "list", "data": [row], **around}).encode())
    return listed


def test_openai_tells_the_name_the_age_and_the_owner() -> None:
    listed = only({"id": "gpt-4-0613", "object": "model", "created": 1686588896, "owned_by": "openai"})
    assert listed == ListedModel(id="gpt-4-0613", created_s=1686588896, owner="openai")


def test_together_sends_a_bare_array_with_prices_per_million() -> None:
    (listed,) = read_listing(
        b'[{"id":"meta-llama/Llama-3.3-70B-Instruct-Turbo","object":"model","created":0,"type":"chat","running":false,'
        b'"display_name":"Meta Llama 3.3 70B Instruct Turbo","organization":"Meta","context_length":131072,'
        b'"config":{"stop":[]},"pricing":{"hourly":0,"input":0.88,"output":0.9,"base":0,"finetune":0}}]'
    )
    assert (listed.kind, listed.context_tokens, listed.owner) == ("chat", 131072, "Meta")
    assert (listed.input_usd, listed.output_usd) == (0.88e-6, 0.9e-6)
    assert listed.created_s is None  # it says 0 where it does not know
    assert listed.name == "Meta Llama 3.3 70B Instruct Turbo"


@pytest.mark.parametrize(
    ("word", "kind"), [("language", "chat"), ("code", "chat"), ("embedding", "embedding"), ("rerank", "rerank"),
                       ("image", "image"), ("moderation", "moderation"), ("transcribe", "audio"), ("video", "video")]
)  # fmt: skip
def test_together_tells_the_kind(word: str, kind: str) -> None:
    assert only({"id": "x", "type": word}).kind == kind


def test_openrouter_tells_nearly_everything() -> None:
    listed = only({
        "id": "qwen/qwen3-vl-32b-instruct",
        "name": "Qwen: Qwen3 VL 32B Instruct",
        "created": 1760000000,
        "context_length": 262144,
        "architecture": {
            "modality": "text+image->text",
            "input_modalities": ["text", "image"],
            "output_modalities": ["text"],
        },
        "pricing": {"prompt": "0.000000104", "completion": "0.000000416", "request": "0"},
        "top_provider": {"context_length": 131072, "max_completion_tokens": 32768, "is_moderated": False},
        "supported_parameters": ["max_tokens", "tools", "structured_outputs"],
    })  # fmt: skip
    assert (listed.context_tokens, listed.max_output_tokens) == (131072, 32768)
    assert (listed.input_usd, listed.output_usd) == (1.04e-7, 4.16e-7)
    assert (listed.vision, listed.input_modalities, listed.kind) == (True, ("text", "image"), "chat")
    assert (listed.tools, listed.json_schema, listed.reasoning) == (True, True, False)


def test_openrouter_s_router_has_no_price() -> None:
    listed = only({"id": "openrouter/auto", "pricing": {"prompt": "-1", "completion": "-1"}})
    assert (listed.input_usd, listed.output_usd) == (None, None)


@pytest.mark.parametrize(
    ("quantizations", "told"),
    [(["fp8", "fp8"], "fp8"), (["fp8", "bf16"], None), (["fp8", None], None), (["unknown"], None)],
)
def test_openrouter_s_endpoints_tell_the_quantization_where_they_agree(
    quantizations: list[str | None], told: str | None
) -> None:
    endpoints = [{"provider_name": str(i), "quantization": each} for i, each in enumerate(quantizations)]
    body = json.dumps({"data": {"id": "meta-llama/llama-3.3-70b-instruct", "endpoints": endpoints}}).encode()
    assert [listed.quantization for listed in read_listing(body)] == [told]


def test_groq_calls_it_a_context_window() -> None:
    listed = only({
        "id": "openai/gpt-oss-120b", "object": "model", "created": 1754408224, "owned_by": "OpenAI", "active": True,
        "context_window": 131072, "public_apps": None, "max_completion_tokens": 65536,
    })  # fmt: skip
    assert (listed.context_tokens, listed.max_output_tokens) == (131072, 65536)


def test_mistral_tells_capabilities() -> None:
    capabilities = {"completion_chat": True, "completion_fim": False, "function_calling": True, "vision": False}
    listed = only({
        "id": "mistral-medium-2505", "created": 1754042468, "owned_by": "mistralai", "capabilities": capabilities,
        "name": "mistral-medium-2505", "max_context_length": 131072, "aliases": ["mistral-medium"], "type": "base",
    })  # fmt: skip
    assert (listed.kind, listed.tools, listed.vision, listed.context_tokens) == ("chat", True, False, 131072)


def test_vllm_tells_its_own_limit_and_whose_adapter_a_model_is() -> None:
    listed = only({
        "id": "sql-lora", "object": "model", "created": 1, "owned_by": "vllm", "root": "/lora/sql",
        "parent": "Qwen/Qwen3-8B", "max_model_len": 40960, "permission": [],
    })  # fmt: skip
    assert (listed.context_tokens, listed.parent) == (40960, "Qwen/Qwen3-8B")


def test_llama_cpp_tells_of_its_file() -> None:
    meta = {"vocab_type": 2, "n_vocab": 151936, "n_ctx_train": 262144, "n_params": 35, "size": 2, "ftype": "Q4_K_M"}
    listed = only({"id": "qwen", "owned_by": "llamacpp", "meta": meta}, models=[{"name": "qwen"}])
    assert (listed.context_tokens, listed.quantization) == (262144, "q4_k_m")
    assert only({"id": "qwen", "meta": {**meta, "n_ctx": 8192}}).context_tokens == 8192  # what it was started with
    assert only({"id": "qwen", "meta": None}).context_tokens is None


def test_deepinfra_tells_it_in_metadata_or_not_at_all() -> None:
    metadata = {
        "description": "…", "context_length": 131072, "max_tokens": 16384,
        "pricing": {"input_tokens": 0.23, "output_tokens": 0.4, "cache_read_tokens": 0.1},
        "tags": ["vision", "reasoning"],
    }  # fmt: skip
    listed = only({"id": "m", "owned_by": "deepinfra", "root": "m", "parent": None, "metadata": metadata})
    assert (listed.context_tokens, listed.max_output_tokens, listed.reasoning) == (131072, 16384, True)
    assert (listed.input_usd, listed.output_usd, listed.tools, listed.vision) == (0.23e-6, 0.4e-6, None, True)
    assert only({"id": "m", "metadata": None}).context_tokens is None


def test_fireworks_tells_what_it_supports() -> None:
    listed = only({
        "id": "accounts/fireworks/models/kimi-k2p5", "object": "model", "owned_by": "fireworks",
        "kind": "HF_BASE_MODEL", "context_length": 262144,
        "supports_chat": True, "supports_image_input": True, "supports_tools": True,
    })  # fmt: skip
    assert (listed.kind, listed.vision, listed.tools, listed.context_tokens) == ("chat", True, True, 262144)


def test_novita_prices_are_ten_thousandths_of_a_dollar_per_million() -> None:
    listed = only({
        "id": "deepseek/deepseek-prover-v2-671b", "input_token_price_per_m": 7000, "output_token_price_per_m": 25000,
        "title": "Prover", "context_size": 160000, "max_output_tokens": 8000, "features": ["function-calling"],
        "model_type": "chat",
    })  # fmt: skip
    assert (listed.input_usd, listed.output_usd) == (0.7e-6, 2.5e-6)
    assert (listed.context_tokens, listed.max_output_tokens, listed.tools, listed.json_schema) == (
        160000,
        8000,
        True,
        None,
    )


def test_anthropic_tells_dates_limits_and_capabilities() -> None:
    yes, no = {"supported": True}, {"supported": False}
    listed = only({
        "id": "claude-sonnet-4-5-20250929", "type": "model", "display_name": "Claude Sonnet 4.5",
        "created_at": "2025-09-29T00:00:00Z", "max_input_tokens": 200000, "max_tokens": 64000,
        "capabilities": {"image_input": yes, "pdf_input": yes, "structured_outputs": yes, "thinking": no},
    })  # fmt: skip
    assert (listed.created_s, listed.name) == (1759104000, "Claude Sonnet 4.5")
    assert (listed.context_tokens, listed.max_output_tokens) == (200000, 64000)
    assert (listed.vision, listed.json_schema, listed.reasoning, listed.tools) == (True, True, False, None)


def test_gemini_s_names_lose_their_folder() -> None:
    assert only({"id": "models/gemini-2.5-flash", "object": "model", "owned_by": "google"}).id == "gemini-2.5-flash"


def test_what_is_of_another_type_is_not_told_and_a_row_without_a_name_is_left_out() -> None:
    body = {
        "data": [
            {"id": "x", "created": "yesterday", "context_length": "long", "pricing": [], "capabilities": 7},
            {"id": None}, {"id": ""}, {"id": "two\nlines"}, 3, {},
        ]
    }  # fmt: skip
    assert read_listing(json.dumps(body).encode()) == [ListedModel(id="x")]


@pytest.mark.parametrize("body", [b"{}", b'{"data":7}', b'"models"', b"<html>", b""])
def test_what_is_no_list_is_an_invalid_response(body: bytes) -> None:
    with pytest.raises(UpstreamError) as caught:
        read_listing(body)
    assert caught.value.kind is ErrorKind.INVALID_RESPONSE


def test_the_next_page_is_asked_for_as_each_vendor_wants_it() -> None:
    assert next_page(b'{"data":[],"has_more":true,"first_id":"a","last_id":"b"}') == {"after_id": "b"}
    assert next_page(b'{"data":[],"has_more":false,"last_id":"b"}') is None
    following = b'{"data":[],"links":{"next":"/api/v1/models?offset=500&limit=500"}}'
    assert next_page(following) == {"offset": "500", "limit": "500"}
    assert next_page(b'{"models":[],"nextPageToken":"Ch9nZW"}') == {"pageToken": "Ch9nZW"}
    assert next_page(b'{"models":[],"nextPageToken":""}') is None
    assert next_page(b'{"data":[]}') is None
    assert next_page(b"[]") is None


def test_all_pages_are_read_with_the_headers_of_the_last() -> None:
    asked: list[Mapping[str, str]] = []
    pages = {None: ("a", True), "a": ("b", True), "b": ("c", False)}

    async def read_page(query: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        asked.append(query)
        name, more = pages[query.get("after_id")]
        body = {"data": [{"id": name}], "has_more": more, "last_id": name}
        return json.dumps(body).encode(), {"page": name}

    listing = asyncio.run(read_pages(read_page))
    assert [model.id for model in listing.models] == ["a", "b", "c"]
    assert (asked, listing.headers) == ([{}, {"after_id": "a"}, {"after_id": "b"}], {"page": "c"})


def test_a_list_that_does_not_move_on_or_never_ends_is_left() -> None:
    calls = 0

    async def still(_: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        nonlocal calls
        calls += 1
        return b'{"data":[{"id":"a"}],"has_more":true,"last_id":"a"}', {}

    async def endless(query: Mapping[str, str]) -> tuple[bytes, Mapping[str, str]]:
        name = f"{query.get('after_id', '')}a"
        return json.dumps({"data": [{"id": name}], "has_more": True, "last_id": name}).encode(), {}

    assert len(asyncio.run(read_pages(still)).models) == 1
    assert calls == 2
    assert len(asyncio.run(read_pages(endless)).models) == MOST_PAGES


def test_no_word_of_a_list_can_write_to_the_terminal() -> None:
    red = "\x1b[31mred"
    row = {"id": "a", "quantization": red, "owned_by": red, "input_modalities": ["text", red], "name": red}
    (listed,) = read_listing(json.dumps({"data": [row, {"id": red}]}).encode())
    assert (listed.quantization, listed.owner, listed.name, listed.input_modalities) == (None, None, None, ("text",))
