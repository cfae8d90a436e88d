"""Configurations of LiteLLM proxies as people have them, and what becomes of each."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import ConfigurationError, Settings, load
from gateway.settings.litellm_config import Converted, convert
from gateway.settings.model import Cause
from providers.catalog import load_catalog
from providers.datasheets import DatasheetTable

Import = Callable[..., tuple[Settings, Converted]]


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Converts a text, and loads what comes of it with every variable set that it names."""

    def convert_and_load(text: str, environ: Mapping[str, str] | None = None) -> tuple[Settings, Converted]:
        source = tmp_path / "config.yaml"
        source.write_text(text, encoding="utf-8")
        converted = convert(source, environ or {}, load_catalog(), DatasheetTable.shipped())
        written = tmp_path / "gateway.yaml"
        written.write_text(converted.text, encoding="utf-8")
        return load(written, {name: _value(name) for name in converted.variables}), converted

    return convert_and_load


def _value(name: str) -> str:
    if name.endswith("_SHA256"):
        return "0" * 64
    if name == "SOON":
        return "7"
    return "https://endpoint.test" if name.endswith(("_BASE", "_URL")) else f"value-of-{name}"


def remarks(converted: Converted, words: str) -> list[str]:
    return [str(note).partition("config.yaml:")[2] for note in converted.notes if words in str(note)]


def deployments(settings: Settings, model: str) -> list[str]:
    return [each.deployment for each in settings.models[model].deployments]


AZURE_GROUP = """
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-eu
      api_base: https://my-eu.openai.azure.com/
      api_key: os.environ/AZURE_API_KEY_EU
      rpm: 6
  - model_name: gpt-4o
    litellm_params:
      model: azure/gpt-4o-ca
      api_base: https://my-ca.openai.azure.com/openai/deployments/x
      api_key: os.environ/AZURE_API_KEY_CA
      api_version: "2023-07-01-preview"
      rpm: 60
router_settings:
  routing_strategy: simple-shuffle
  num_retries: 2
  timeout: 30
"""


def test_a_router_group_is_one_model_with_several_deployments(imported: Import) -> None:
    settings, converted = imported(AZURE_GROUP)

    assert deployments(settings, "gpt-4o") == ["azure/gpt-4o-eu", "azure-2/gpt-4o-ca"]
    assert settings.providers["azure"].base_url == "https://my-eu.openai.azure.com"
    assert (settings.providers["azure-2"].preset, settings.providers["azure-2"].base_url) == (
        "azure",
        "https://my-ca.openai.azure.com",
    )
    assert settings.providers["azure-2"].keys[0].get_secret_value() == "value-of-AZURE_API_KEY_CA"
    assert "api_key: ${AZURE_API_KEY_EU}" in converted.text
    assert (settings.timeouts.ttft_timeout_s, settings.timeouts.stall_timeout_s) == (30, 30)
    assert settings.timeouts.total_timeout_s is None


def test_azures_version_goes_with_every_request_of_its_provider(imported: Import) -> None:
    settings, converted = imported(AZURE_GROUP)

    assert settings.providers["azure"].query == {}  # the catalog's
    assert settings.providers["azure-2"].query == {"api-version": "2023-07-01-preview"}
    assert not remarks(converted, "api_version")


def test_deployments_of_different_versions_are_providers_of_their_own(imported: Import) -> None:
    settings, converted = imported("""
model_list:
  - { model_name: a, litellm_params: { model: azure/x, api_base: "https://r.test", api_version: 2025-01-01 } }
  - { model_name: b, litellm_params: { model: azure/x, api_base: "https://r.test", api_version: os.environ/VERSION } }
  - { model_name: c, litellm_params: { model: azure/x, api_base: "https://r.test", api_version: preview } }
  - { model_name: d, litellm_params: { model: groq/x, api_version: v2 } }
""")

    assert {model: settings.providers[deployments(settings, model)[0].partition("/")[0]].query for model in "abc"} == {
        "a": {"api-version": "2025-01-01"},  # YAML takes it for a date
        "b": {"api-version": "value-of-VERSION"},
        "c": {},
    }
    assert remarks(converted, "Azure's v1 API is a provider without a preset")
    assert remarks(converted, "only Azure has versions")


def test_the_shuffles_rates_become_weights(imported: Import) -> None:
    settings, converted = imported(AZURE_GROUP)

    assert [each.weight for each in settings.models["gpt-4o"].deployments] == [0.1, 1.0]
    assert remarks(converted, "became weights")


def test_every_remark_has_its_place_and_stands_at_the_end_of_the_file_too(imported: Import) -> None:
    _, converted = imported(AZURE_GROUP)

    (rpm,) = remarks(converted, "limits are read")
    assert rpm.startswith("8: model_list[0].litellm_params.rpm: no counterpart: limits are read from the providers'")
    assert rpm.endswith("(also in line 15)")
    assert remarks(converted, "num_retries")[0].startswith("18: router_settings.num_retries:")
    comments = converted.text[converted.text.index("# To be done by hand") :]
    assert all(line.startswith("#") for line in comments.splitlines())
    assert "# config.yaml:18: router_settings.num_retries: no counterpart" in comments


KEYS_IN_THE_CLEAR = """
model_list:
  - { model_name: llama, litellm_params: { model: groq/llama-3.3-70b-versatile, api_key: gsk-first } }
  - { model_name: llama, litellm_params: { model: groq/llama-3.3-70b-versatile, api_key: gsk-second } }
  - { model_name: other, litellm_params: { model: groq/qwen, api_key: os.environ/GROQ_API_KEY } }
  - model_name: cloud
    litellm_params:
      model: bedrock/anthropic.claude-3-sonnet
      aws_region_name: eu-west-1
      aws_access_key_id: AKIAhush
      aws_secret_access_key: tophush
  - model_name: vertex
    litellm_params:
      model: vertex_ai/gemini-pro
      vertex_project: mine
      vertex_credentials: { type: service_account, private_key: PEMhush }
  - model_name: proxied
    litellm_params:
      model: openai/x
      api_base: https://user:pwhush@llm.corp.test/v1
      api_key: sk-corphush
      extra_body: { api_token: bodyhush, top_k: 4, anything: sk-inthebodyhush }
      extra_headers: { Authorization: Bearer headerhush, x-team: search, x-odd: Bearer oddhush }
router_settings: { redis_host: cache, redis_port: 6380, redis_password: redishush, redis_ssl: true }
general_settings: { master_key: sk-masterhush, database_url: "postgresql://u:dbhush@db/litellm" }
environment_variables: { SLACK_WEBHOOK_URL: https://hooks.test/envhush }
"""


def test_no_secret_is_ever_written_down(imported: Import) -> None:
    _, converted = imported(KEYS_IN_THE_CLEAR)

    for text in (converted.text, *(note.message for note in converted.notes)):
        assert "gsk-" not in text
        assert "hush" not in text


def test_a_remark_on_an_included_file_names_that_file(imported: Import, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("model_list: !secret x\n")
    _, converted = imported("include: [more.yaml]\nmodel_list: []\n")

    assert "# more.yaml:1: model_list cannot be understood" in converted.text


def test_a_secret_in_the_clear_moves_to_a_variable_that_nothing_else_has(imported: Import) -> None:
    settings, converted = imported(KEYS_IN_THE_CLEAR)

    assert remarks(converted, "put it into the variable GROQ_API_KEY_2,")  # GROQ_API_KEY is that of the third
    keys = {name: [key.get_secret_value() for key in each.keys] for name, each in settings.providers.items()}
    assert keys["groq"] == ["value-of-GROQ_API_KEY_2"]
    assert keys["groq-2"] == ["value-of-GROQ_API_KEY_3"]
    assert keys["groq-3"] == ["value-of-GROQ_API_KEY"]
    cloud = settings.models["cloud"].deployments[0]
    assert cloud.region == "eu-west-1"
    assert cloud.extra_body["aws_secret_access_key"] == "value-of-AWS_SECRET_ACCESS_KEY"
    proxied = settings.models["proxied"].deployments[0]
    assert proxied.extra_headers["Authorization"].get_secret_value() == "value-of-AUTHORIZATION"
    assert proxied.extra_headers["x-team"].get_secret_value() == "search"
    assert proxied.extra_body == {"api_token": "value-of-API_TOKEN", "top_k": 4, "anything": "value-of-ANYTHING"}
    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == "rediss://:value-of-REDIS_PASSWORD@cache:6380"


def test_keys_that_serve_the_very_same_are_one_provider(imported: Import) -> None:
    settings, _ = imported("""
model_list:
  - { model_name: a, litellm_params: { model: groq/x, api_key: os.environ/KEY_1, rpm: 30 } }
  - { model_name: a, litellm_params: { model: groq/x, api_key: os.environ/KEY_2, rpm: 30 } }
  - { model_name: b, litellm_params: { model: groq/y, api_key: os.environ/KEY_2 } }
  - { model_name: b, litellm_params: { model: groq/y, api_key: os.environ/KEY_1 } }
""")

    assert [key.get_secret_value() for key in settings.providers["groq"].keys] == ["value-of-KEY_1", "value-of-KEY_2"]
    assert deployments(settings, "a") == ["groq/x"]


def test_keys_that_serve_different_models_are_providers_of_their_own(imported: Import) -> None:
    settings, _ = imported("""
model_list:
  - { model_name: a, litellm_params: { model: groq/x, api_key: os.environ/KEY_1 } }
  - { model_name: b, litellm_params: { model: groq/y, api_key: os.environ/KEY_2 } }
""")

    assert list(settings.providers) == ["groq", "groq-2"]
    assert settings.providers["groq-2"].preset == "groq"
    assert deployments(settings, "b") == ["groq-2/y"]


FALLBACKS = """
model_list:
  - { model_name: big, litellm_params: { model: gpt-4o, api_key: os.environ/OPENAI_API_KEY } }
  - { model_name: long, litellm_params: { model: gemini/gemini-2.5-pro, api_key: os.environ/GEMINI_API_KEY } }
  - { model_name: mild, litellm_params: { model: claude-sonnet-4-5, api_key: os.environ/ANTHROPIC_API_KEY } }
  - { model_name: last, litellm_params: { model: mistral/mistral-small-latest } }
litellm_settings:
  drop_params: true
  fallbacks: [{ "big": ["long"] }]
  context_window_fallbacks: [{ "big": ["long"] }, { "gone": ["big"] }]
  content_policy_fallbacks: [{ "big": [{ "model": "mild", "temperature": 0 }] }]
  default_fallbacks: ["last", "nowhere"]
router_settings:
  model_group_alias: { "gpt-4": "big", "hidden": { "model": "long", "hidden": true }, "lost": "gone" }
"""


def test_fallbacks_keep_their_causes(imported: Import) -> None:
    settings, converted = imported(FALLBACKS)

    big = [(each.model, set(each.causes)) for each in settings.models["big"].fallbacks]
    assert big == [("long", {Cause.FAILED, Cause.CONTEXT}), ("mild", {Cause.CONTENT_FILTER})]
    assert [(each.model, set(each.causes)) for each in settings.models["long"].fallbacks] == [("last", set(Cause))]
    assert settings.models["last"].fallbacks == ()
    assert remarks(converted, "there is no such model")
    assert remarks(converted, "default_fallbacks[1]: falls back to a model that is not in the file")
    assert remarks(converted, "the changes are left out")


def test_another_name_of_a_group_is_a_model_like_it(imported: Import) -> None:
    settings, converted = imported(FALLBACKS)

    assert settings.models["gpt-4"] == settings.models["big"]
    assert deployments(settings, "hidden") == ["gemini/gemini-2.5-pro"]
    assert "lost" not in settings.models
    assert remarks(converted, "model_group_alias.lost: another name of an unknown model")


def test_vendors_are_found_without_their_names_and_under_second_ones(imported: Import) -> None:
    settings, _ = imported(FALLBACKS)

    assert deployments(settings, "big") == ["openai/gpt-4o"]
    assert deployments(settings, "mild") == ["anthropic/claude-sonnet-4-5"]
    assert settings.providers["mistral"].keys[0].get_secret_value() == "value-of-MISTRAL_API_KEY"
    assert all(each.drop_params for each in settings.models["last"].deployments)


SERVERS = """
model_list:
  - model_name: a
    litellm_params: { model: openai/facebook/opt-125m, api_base: "http://0.0.0.0:4000/v1", api_key: none }
  - model_name: b
    litellm_params: { model: hosted_vllm/llama, api_base: "https://vllm.corp.test/v1/", api_key: os.environ/VLLM_KEY }
  - model_name: c
    litellm_params: { model: ollama_chat/llama3, api_base: "http://gpu:11434" }
  - model_name: d
    litellm_params: { model: openai/llama, api_base: "https://api.groq.com/openai/v1", api_key: os.environ/GROQ }
  - model_name: e
    litellm_params: { model: openai/x, api_base: os.environ/MY_API_BASE, api_key: os.environ/MY_KEY }
  - model_name: f
    litellm_params: { model: voyage/voyage-3, api_key: os.environ/VOYAGE_API_KEY }
    model_info: { mode: embedding }
  - { model_name: g, litellm_params: { model: mistralai/mistral-7b } }
  - { model_name: h, litellm_params: { model: openai_like/x } }
  - { model_name: i, litellm_params: { model: x, custom_llm_provider: together_ai } }
"""


def test_servers_of_ones_own_are_told_from_vendors(imported: Import) -> None:
    settings, converted = imported(SERVERS)
    providers = settings.providers

    assert deployments(settings, "a") == ["server/facebook/opt-125m"]
    assert (providers["server"].base_url, providers["server"].keys) == ("http://0.0.0.0:4000/v1", ())
    assert providers["vllm"].base_url == "https://vllm.corp.test/v1"
    assert providers["ollama"].base_url == "http://gpu:11434/v1"
    assert deployments(settings, "d") == ["groq/llama"]
    assert providers["groq"].base_url is None
    assert providers["server-2"].base_url == "https://endpoint.test"
    assert deployments(settings, "i") == ["together/x"]
    assert settings.models["f"].deployments[0].apis == ("embeddings",)
    assert {"g", "h"}.isdisjoint(settings.models)
    assert remarks(converted, "model_list[6].litellm_params.model: names an unknown vendor")
    assert remarks(converted, "model_list[7].litellm_params: has no api_base, so it was left out")
    assert remarks(converted, "a placeholder, left out")


ONE_BY_ONE = """
model_list:
  - model_name: m
    litellm_params:
      model: openai/gpt-4o
      api_key: os.environ/OPENAI_API_KEY
      organization: org-1
      order: 1
      temperature: 0.2
      max_tokens: 400
      seed: 7
      stream_timeout: 10
      timeout: 60
      max_parallel_requests: 8
      input_cost_per_token: 0.00000015
      output_cost_per_token: 0.0000006
      cache_read_input_token_cost: 0.000000075
      drop_params: true
      keepalive_seconds: 15
      max_retries: 4
      tags: [paid]
      brand_new_field: 3
    model_info: { supports_vision: true, max_input_tokens: 128000, max_output_tokens: 16000, base_model: x, id: "1" }
  - model_name: m
    litellm_params:
      model: anthropic/claude-haiku
      api_key: os.environ/ANTHROPIC_API_KEY
      order: 2
      temperature: 0.2
  - model_name: w
    litellm_params: { model: groq/a, api_key: os.environ/GROQ, weight: 9, temperature: 0.1 }
  - model_name: w
    litellm_params: { model: cerebras/a, api_key: os.environ/CEREBRAS, weight: 1 }
  - model_name: w
    litellm_params: { model: openai/a, api_key: os.environ/OPENAI_API_KEY, organization: org-1 }
"""


def test_what_a_deployment_says_is_taken_over(imported: Import) -> None:
    settings, converted = imported(ONE_BY_ONE)
    model = settings.models["m"]
    own = model.deployments[0]

    assert settings.providers["openai"].organization == "org-1"
    assert model.defaults == {"temperature": 0.2, "max_tokens": 400, "seed": 7, "brand_new_field": 3}
    assert (model.timeouts.ttft_timeout_s, model.timeouts.stall_timeout_s, model.keepalive_s) == (10, 10, 15)
    assert own.price_per_mtok is not None
    assert (own.price_per_mtok.input, own.price_per_mtok.output, own.price_per_mtok.cached_input) == (0.15, 0.6, 0.075)
    assert (own.max_in_flight, own.drop_params) == (8, True)
    assert (own.capabilities.vision, own.capabilities.context_tokens) == (True, 128_000)
    for word in ("max_retries", "tags", "brand_new_field", "base_model", "model_info.id"):
        assert remarks(converted, word), word


def test_clocks_that_differ_stay_with_their_deployments(imported: Import) -> None:
    settings, _ = imported("""
model_list:
  - { model_name: a, litellm_params: { model: groq/x, api_key: os.environ/K, timeout: 20 } }
  - { model_name: a, litellm_params: { model: cerebras/x, api_key: os.environ/L, stream_timeout: os.environ/SOON } }
  - { model_name: a, litellm_params: { model: mistral/x, api_key: os.environ/M } }
  - { model_name: b, litellm_params: { model: groq/x, api_key: os.environ/K, timeout: 20 } }
  - { model_name: b, litellm_params: { model: cerebras/x, api_key: os.environ/L, timeout: 20 } }
""")

    own = [each.timeouts for each in settings.models["a"].deployments]
    assert [(each.ttft_timeout_s, each.stall_timeout_s) for each in own] == [(20, 20), (7, 7), (None, None)]
    assert settings.models["a"].timeouts.model_fields_set == set()
    assert settings.models["b"].timeouts.ttft_timeout_s == 20
    assert not any(each.timeouts.model_fields_set for each in settings.models["b"].deployments)


def test_what_is_asked_through_litellm_but_is_no_chat_is_left_out(imported: Import) -> None:
    settings, converted = imported("""
model_list:
  - { model_name: a, litellm_params: { model: bedrock/amazon.rerank }, model_info: { mode: rerank } }
  - { model_name: b, litellm_params: { model: bedrock/titan-embed }, model_info: { mode: embedding } }
  - { model_name: c, litellm_params: { model: jina_ai/rerank, api_key: os.environ/J }, model_info: { mode: rerank } }
""")

    assert list(settings.models) == ["b", "c"]
    assert remarks(converted, "model_list[0]: no counterpart: this vendor supports chat and embeddings only")


def test_a_blocked_deployment_is_disabled(imported: Import) -> None:
    settings, _ = imported("""
model_list:
  - { model_name: a, litellm_params: { model: groq/x, api_key: os.environ/K } }
  - { model_name: a, blocked: true, litellm_params: { model: cerebras/x, api_key: os.environ/L } }
""")

    assert [each.enabled for each in settings.models["a"].deployments] == [True, False]


def test_a_later_order_is_a_model_that_is_asked_when_all_before_it_failed(imported: Import) -> None:
    settings, converted = imported(ONE_BY_ONE)

    assert deployments(settings, "m") == ["openai/gpt-4o"]
    assert deployments(settings, "m-order-2") == ["anthropic/claude-haiku"]
    assert [(each.model, each.causes) for each in settings.models["m"].fallbacks] == [("m-order-2", (Cause.FAILED,))]
    assert remarks(converted, "became fallbacks: m-order-2")


def test_weights_are_kept_and_without_one_a_deployment_is_asked_last(imported: Import) -> None:
    settings, _ = imported(ONE_BY_ONE)

    assert [(each.deployment, each.weight) for each in settings.models["w"].deployments] == [
        ("groq/a", 9),
        ("cerebras/a", 1),
    ]
    assert [each.model for each in settings.models["w"].fallbacks] == ["w-order-2"]


def test_parameters_of_some_deployments_only_go_with_their_requests(imported: Import) -> None:
    settings, converted = imported(ONE_BY_ONE)

    assert settings.models["w"].defaults == {}
    assert settings.models["w"].deployments[0].extra_body == {"temperature": 0.1}
    assert remarks(converted, "temperature: differs between the model's deployments")


WILDCARDS = """
model_list:
  - { model_name: "openai/*", litellm_params: { model: "openai/*", api_key: os.environ/OPENAI_API_KEY } }
  - { model_name: "together_ai/*", litellm_params: { model: "together_ai/*", api_key: os.environ/TOGETHERAI_API_KEY } }
  - { model_name: "*", litellm_params: { model: "groq/*", api_key: os.environ/GROQ_API_KEY } }
  - { model_name: gpt, litellm_params: { model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY } }
general_settings: { master_key: os.environ/LITELLM_MASTER_KEY }
"""


def test_wildcards_are_providers_under_the_names_that_clients_say(imported: Import) -> None:
    settings, converted = imported(WILDCARDS)

    assert list(settings.providers) == ["openai", "together_ai", "groq"]
    assert settings.providers["together_ai"].preset == "together"
    assert list(settings.models) == ["gpt"]
    assert settings.clients["litellm-master"].adhoc
    assert remarks(converted, "any model, together_ai/MODEL")
    assert remarks(converted, "model_list[2].model_name: patterns have no counterpart")


def test_the_master_key_is_a_client_known_by_its_digest(imported: Import, tmp_path: Path) -> None:
    unset, converted = imported(WILDCARDS)
    known, _ = imported(WILDCARDS, {"LITELLM_MASTER_KEY": "sk-1234"})
    clear, _ = imported("general_settings: { master_key: sk-1234 }\n")

    digest = hashlib.sha256(b"sk-1234").hexdigest()
    assert known.clients["litellm-master"].key_sha256 == clear.clients["litellm-master"].key_sha256 == digest
    assert "LITELLM_MASTER_KEY_SHA256" in converted.variables
    assert unset.clients["litellm-master"].admin
    assert unset.host == "0.0.0.0"


def test_without_a_master_key_nobody_else_can_call(imported: Import) -> None:
    settings, _ = imported(AZURE_GROUP)

    assert settings.host == "127.0.0.1"
    assert settings.clients == {}


def test_routing_by_cost_is_an_objective_where_a_price_is_known(imported: Import) -> None:
    settings, _ = imported("""
model_list:
  - { model_name: known, litellm_params: { model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY } }
  - { model_name: unknown, litellm_params: { model: hosted_vllm/x, api_base: "http://gpu:8000/v1" } }
router_settings: { routing_strategy: cost-based-routing }
""")

    assert settings.models["known"].race.objective == "cost"
    assert settings.models["known"].race.budget == 0
    assert settings.models["unknown"].race.objective == "auto"


EVERYTHING_ELSE = """
model_list: []
litellm_settings:
  success_callback: [langfuse]
  cache: true
  cache_params: { type: redis, host: cache }
  set_verbose: true
  json_logs: true
  num_retries: 3
  request_timeout: 600
  telemetry: false
  invented_here: 1
general_settings:
  store_model_in_db: true
  database_url: os.environ/DATABASE_URL
  max_request_size_mb: 20
  alerting: [slack]
guardrails: [{ guardrail_name: pii }]
environment_variables: { LANGFUSE_HOST: x, REDIS_HOST: cache }
router_settings: { redis_host: os.environ/REDIS_HOST, redis_port: os.environ/REDIS_PORT, cooldown_time: 5 }
"""


def test_nothing_that_is_said_is_passed_over_in_silence(imported: Import) -> None:
    settings, converted = imported(EVERYTHING_ELSE)

    assert (settings.log_level, settings.log_format, settings.max_body_mb) == ("debug", "json", 20)
    assert settings.timeouts.ttft_timeout_s == 600
    for place in (
        "litellm_settings.success_callback",
        "litellm_settings.cache",
        "litellm_settings.cache_params",
        "litellm_settings.num_retries",
        "litellm_settings.invented_here",
        "general_settings.store_model_in_db",
        "general_settings.database_url",
        "general_settings.alerting",
        "guardrails",
        "environment_variables.LANGFUSE_HOST",
        "environment_variables.REDIS_HOST",
        "router_settings.cooldown_time",
    ):
        assert remarks(converted, f": {place}: "), place
    assert not remarks(converted, "telemetry")  # false asks for nothing


def test_litellms_own_database_is_not_taken_for_the_ledger(imported: Import) -> None:
    settings, converted = imported(EVERYTHING_ELSE)

    assert settings.database_url.get_secret_value() == "sqlite:///var/holeshot.db"
    assert "database_url: ${LEDGER_DATABASE_URL:-sqlite:///var/holeshot.db}" in converted.text


def test_included_files_and_named_credentials_are_read(imported: Import, tmp_path: Path) -> None:
    (tmp_path / "models.yaml").write_text(
        yaml.safe_dump(
            {"model_list": [{"model_name": "b", "litellm_params": {"model": "groq/x", "api_key": "os.environ/K"}}]}
        )
    )
    settings, converted = imported("""
include: [models.yaml, missing.yaml]
credential_list:
  - credential_name: mine
    credential_values: { api_key: os.environ/AZURE_KEY, api_base: os.environ/AZURE_BASE }
model_list:
  - { model_name: a, litellm_params: { model: azure/gpt, litellm_credential_name: mine } }
""")

    assert list(settings.models) == ["a", "b"]
    assert settings.providers["azure"].base_url == "https://endpoint.test"
    assert remarks(converted, "could not be included")


@pytest.mark.parametrize(
    "text",
    [
        "model_list: 3\n",
        "model_list: [3, { model_name: x }, { model_name: y, litellm_params: 4 }]\n",
        "model_list: [{ model_name: y, litellm_params: { model: groq/x, timeout: soon, weight: much } }]\n",
        "router_settings: [1]\ngeneral_settings: x\n",
        "litellm_settings: { fallbacks: { a: b }, drop_params: x }\n",
        "environment_variables: [1]\n",
        "credential_list: [1]\n",
        "",
    ],
)
def test_what_litellm_itself_would_refuse_is_a_remark_or_nothing(imported: Import, text: str) -> None:
    settings, _ = imported(text)

    assert settings.port == 4000


@pytest.mark.parametrize("text", ["model_list: [\n", "- a\n", "\tx"])
def test_what_is_no_configuration_at_all_is_refused(imported: Import, text: str) -> None:
    with pytest.raises(ConfigurationError):
        imported(text)


EXAMPLES = Path(str(DatasheetTable.shipped()._path)).parent / "proxy"


@pytest.mark.parametrize(
    "example",
    sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("example_config_yaml/*.yaml")]),
    ids=lambda path: path.name,
)
def test_the_examples_that_litellm_ships_load(example: Path, imported: Import) -> None:
    settings, converted = imported(example.read_text(encoding="utf-8"))

    assert tuple(settings.models) == converted.models
    said: Any = yaml.safe_load(example.read_text(encoding="utf-8")) or {}
    assert bool(converted.models or settings.providers or converted.notes) == bool(said.get("model_list"))


def test_what_includes_a_device_or_a_folder_is_imported_without_it(imported: Import) -> None:
    _, converted = imported("include: [/dev/zero, .]\nmodel_list: []\n")

    assert remarks(converted, "is not a file")


@pytest.mark.parametrize(
    ("entry", "rest", "words"),
    [
        ("{ model: openai/x, rpm: 1" + "0" * 400 + " }", "", "rpm: must be a number here"),
        ("{ model: openai/x, order: .inf }", "", "order: must be a number here"),
        ("{ model: openai/x, custom_llm_provider: [x] }", "", "names an unknown vendor"),
        (
            "{ model: openai/x }",
            "litellm_settings: { default_fallbacks: [[m], {model: {}}] }",
            "a model that is not in the file",
        ),
    ],
)
def test_what_makes_no_sense_is_remarked_on_not_a_crash(imported: Import, entry: str, rest: str, words: str) -> None:
    _, converted = imported(f"model_list: [{{ model_name: m, litellm_params: {entry} }}]\n{rest}\n")

    assert remarks(converted, words)


def test_an_address_that_is_none_is_a_problem_of_the_file_that_is_written(imported: Import) -> None:
    with pytest.raises(ConfigurationError, match="base_url: is not a URL"):
        imported("model_list: [{ model_name: m, litellm_params: { model: openai/x, api_base: 'http://[::1' } }]\n")


def test_entries_that_become_one_deployment_may_have_as_much_in_flight_as_all_of_them(imported: Import) -> None:
    params = "model: groq/x, api_key: os.environ/{}, max_parallel_requests: 5"
    entries = [f"  - {{ model_name: m, litellm_params: {{ {params.format(key)} }} }}\n" for key in ("A", "B", "C")]
    settings, _ = imported("model_list:\n" + "".join(entries))
    (deployment,) = settings.models["m"].deployments
    assert (len(settings.providers["groq"].keys), deployment.max_in_flight) == (3, 15)
