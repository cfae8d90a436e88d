"""Entries of a LiteLLM configuration: the deployments and providers they become."""

from tests.unit.settings.litellm_import import AZURE_GROUP, FALLBACKS, ONE_BY_ONE, Import, deployments, remarks


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
    for word in ("max_retries", "tags", "brand_new_field", "base_model", "model_info.id", "keepalive_s of the whole"):
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


def test_parameters_of_some_deployments_only_go_with_their_requests(imported: Import) -> None:
    settings, converted = imported(ONE_BY_ONE)

    assert settings.models["w"].defaults == {}
    assert settings.models["w"].deployments[0].extra_body == {"temperature": 0.1}
    assert remarks(converted, "temperature: differs between the model's deployments")
