"""The vendors as rows of data."""

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from providers import DatasheetTable, apis_of, load_catalog
from providers.vendors import Vendor, paths_at
from providers.vendors.demands import at_top
from strict_vendors import made

PROMISED = [
    "openai",
    "azure",
    "openrouter",
    "groq",
    "cerebras",
    "sambanova",
    "together",
    "fireworks",
    "deepinfra",
    "mistral",
    "deepseek",
    "xai",
    "gemini",
    "perplexity",
    "anthropic",
    "jina",
    "voyage",
    "nvidia_nim",
    "hyperbolic",
    "nebius",
    "novita",
    "vllm",
    "ollama",
    "lm_studio",
    "llama_cpp",
]


@pytest.fixture(scope="module")
def catalog() -> Mapping[str, Vendor]:
    return load_catalog()


def test_every_promised_vendor_is_there(catalog: Mapping[str, Vendor]) -> None:
    assert set(PROMISED) <= set(catalog)
    assert len([vendor for vendor in catalog.values() if vendor.kind == "openai_compatible"]) >= 24


def test_a_row_carries_the_name_it_stands_under(catalog: Mapping[str, Vendor]) -> None:
    assert all(vendor.name == name for name, vendor in catalog.items())


def test_an_openai_compatible_vendor_has_an_address_unless_each_customer_has_one(catalog: Mapping[str, Vendor]) -> None:
    nameless = {v.name for v in catalog.values() if v.kind == "openai_compatible" and v.base_url is None}
    assert nameless == {"azure", "bedrock_openai", "cloudflare", "databricks", "snowflake", "vertex_openai"}


def test_every_vendor_has_a_page_that_shows_what_its_row_says(catalog: Mapping[str, Vendor]) -> None:
    assert [vendor.name for vendor in catalog.values() if not (vendor.docs_url or "").startswith("https://")] == []


def test_keys_travel_over_tls_and_addresses_end_without_a_slash(catalog: Mapping[str, Vendor]) -> None:
    for vendor in catalog.values():
        if vendor.base_url is None:
            continue
        url = urlsplit(vendor.base_url)
        assert url.scheme == "https" or url.hostname == "127.0.0.1", vendor.name
        assert not vendor.base_url.endswith("/"), vendor.name


def test_a_vendor_that_requires_a_key_says_where_it_is_usually_found(catalog: Mapping[str, Vendor]) -> None:
    assert all(vendor.key_env for vendor in catalog.values() if vendor.key_required)


def test_one_variable_belongs_to_one_vendor(catalog: Mapping[str, Vendor]) -> None:
    # Other APIs of bedrock's.
    of_one_vendor = {"bedrock_converse", "bedrock_invoke", "bedrock_mantle", "bedrock_openai"}
    rows = [vendor for vendor in catalog.values() if vendor.name not in of_one_vendor]
    variables = [variable for vendor in rows for variable in vendor.key_env]
    assert len(variables) == len(set(variables))


def test_servers_of_one_s_own_need_no_key(catalog: Mapping[str, Vendor]) -> None:
    for name in ("vllm", "sglang", "ollama", "lm_studio", "llama_cpp"):
        assert not catalog[name].key_required


def test_azure_names_the_deployment_in_its_path_and_takes_its_own_key_header(catalog: Mapping[str, Vendor]) -> None:
    azure = catalog["azure"]
    assert azure.chat_path.format(model="gpt-4o-eu") == "openai/deployments/gpt-4o-eu/chat/completions"
    assert azure.auth == "api-key"
    assert "api-version" in azure.query


def test_azure_s_list_of_models_lies_elsewhere(catalog: Mapping[str, Vendor]) -> None:
    assert catalog["azure"].models_path == "openai/models"
    assert {vendor.models_path for vendor in catalog.values() if vendor.name != "azure"} == {"models"}


def test_anthropic_speaks_its_own_api_and_is_told_the_version(catalog: Mapping[str, Vendor]) -> None:
    anthropic = catalog["anthropic"]
    assert (anthropic.kind, anthropic.auth, anthropic.base_url) == (
        "anthropic",
        "x-api-key",
        "https://api.anthropic.com/v1",
    )
    assert anthropic.headers == {"anthropic-version": "2023-06-01"}
    assert apis_of(anthropic, None) == ("messages",)


def test_every_vendor_speaks_at_least_one_api_and_names_each_once(catalog: Mapping[str, Vendor]) -> None:
    for vendor in catalog.values():
        apis = apis_of(vendor, None)
        assert apis, vendor.name
        assert len(apis) == len(set(apis)), vendor.name


def test_whoever_speaks_an_api_of_openai_s_that_is_raced_speaks_chat(catalog: Mapping[str, Vendor]) -> None:
    for vendor in catalog.values():
        if {"completions", "responses"} & set(apis_of(vendor, None)):
            assert "chat" in apis_of(vendor, None), vendor.name


@pytest.mark.parametrize("name", ["deepseek", "moonshot", "zai", "minimax", "dashscope", "novita", "xiaomi"])
def test_who_has_the_messages_api_under_another_address_has_it_at_its_own_hosts_alone(
    catalog: Mapping[str, Vendor], name: str
) -> None:
    vendor = catalog[name]
    assert apis_of(vendor, None)[0] == "chat"
    assert "messages" in apis_of(vendor, None)
    assert paths_at(vendor, None, None)["messages"].endswith("/anthropic/v1/messages")
    for host in vendor.hosts:
        url = f"https://{'x' if host.startswith('.') else ''}{host}/v1"
        assert "messages" in apis_of(vendor, None, url)
        assert paths_at(vendor, None, url) == vendor.paths
    for url in ("https://proxy.example.com/v1", "http://127.0.0.1:8000/v1"):
        assert "messages" not in apis_of(vendor, None, url)
        assert paths_at(vendor, None, url) == {}
    assert paths_at(vendor, "anthropic", None) == {}


def test_who_embeds_and_ranks_is_not_asked_to_chat(catalog: Mapping[str, Vendor]) -> None:
    assert apis_of(catalog["jina"], None) == ("embeddings", "rerank")
    assert apis_of(catalog["voyage"], None) == ("embeddings",)


def test_mistral_takes_max_tokens_and_no_stream_options(catalog: Mapping[str, Vendor]) -> None:
    quirks = catalog["mistral"].quirks
    assert quirks.rename["max_completion_tokens"] == "max_tokens"
    assert quirks.usage_option == "none"


def test_cerebras_is_not_sent_penalties(catalog: Mapping[str, Vendor]) -> None:
    assert {"frequency_penalty", "presence_penalty"} <= catalog["cerebras"].quirks.drop


@pytest.mark.parametrize("vendor", ["groq", "cerebras", "mistral", "gemini", "nvidia_nim"])
def test_who_refuses_fields_that_it_does_not_know_is_not_sent_the_newer_ones_of_openai(
    catalog: Mapping[str, Vendor], vendor: str
) -> None:
    dropped = catalog[vendor].quirks.drop
    assert {"prompt_cache_retention", "safety_identifier", "verbosity"} <= dropped
    assert {"moderation", "prompt_cache_options"} <= dropped
    assert ("prompt_cache_key" in dropped) is (vendor not in {"cerebras", "mistral"})


@pytest.mark.parametrize("vendor", ["openai", "azure", "groq", "mistral", "gemini"])
def test_who_is_not_sent_the_preferences_of_others_is_sent_all_that_it_takes(
    catalog: Mapping[str, Vendor], vendor: str
) -> None:
    quirks, stand_in = catalog[vendor].quirks, cast("Any", made(vendor))
    taken = {*stand_in.chat.fields} & at_top()
    assert quirks.preferences is not None
    assert taken == quirks.preferences
    assert quirks.drop >= at_top() - taken


def test_deepseek_is_not_sent_the_developer_role(catalog: Mapping[str, Vendor]) -> None:
    assert catalog["deepseek"].quirks.system_role


def test_gemini_s_tool_calls_get_the_index_it_leaves_out(catalog: Mapping[str, Vendor]) -> None:
    assert catalog["gemini"].quirks.repairs == {"tool_index"}


def test_where_hanging_up_stops_the_bill_is_known_and_elsewhere_it_is_not_guessed(
    catalog: Mapping[str, Vendor],
) -> None:
    stops = {"openai", "azure", "anthropic", "fireworks", "together", "deepinfra", "xai", "deepseek", "cohere"}
    stops |= {"hyperbolic", "friendli"}
    bills = {
        "groq",
        "gemini",
        "google",
        "vertex_ai",
        "mistral",
        "sambanova",
        "perplexity",
        "minimax",
        "nebius",
        "featherless",
    }
    bills |= {"dashscope", "bedrock", "bedrock_converse", "bedrock_openai", "vertex_openai", "replicate", "novita"}
    bills |= {"bedrock_invoke", "bedrock_mantle", "vertex"}
    for vendor in catalog.values():
        known = False if vendor.name in stops else True if vendor.name in bills else None
        assert vendor.bills_after_disconnect is known, vendor.name


def test_a_cloud_s_openai_api_takes_its_own_credentials_and_the_prices_of_its_other_rows(
    catalog: Mapping[str, Vendor],
) -> None:
    bedrock, vertex = catalog["bedrock_openai"], catalog["vertex_openai"]
    assert (bedrock.auth, bedrock.key_env) == ("bearer", catalog["bedrock"].key_env)
    assert (vertex.auth, vertex.key_required) == ("google", False)
    table = DatasheetTable.shipped()
    models = (("bedrock", "openai.gpt-oss-120b-1:0"), ("vertex_ai", "google/gemini-2.5-flash"))
    assert all(sheet.price is not None for sheet in table.look_up(models).values())
    assert table.look_up([("groq", "google/gemini-2.5-flash")])["groq", "google/gemini-2.5-flash"].price is None
