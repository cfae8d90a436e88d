"""Groups of a LiteLLM router: the models they become, with fallbacks, weights and other names."""

from gateway.settings import Cause
from tests.unit.settings.litellm_import import (
    AZURE_GROUP,
    FALLBACKS,
    ONE_BY_ONE,
    WILDCARDS,
    Import,
    deployments,
    remarks,
)


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


def test_the_shuffles_rates_become_weights(imported: Import) -> None:
    settings, converted = imported(AZURE_GROUP)

    assert [each.weight for each in settings.models["gpt-4o"].deployments] == [0.1, 1.0]
    assert remarks(converted, "became weights")


def test_a_model_that_hangs_is_answered_for_by_its_fallback_and_one_without_any_is_named(imported: Import) -> None:
    settings, converted = imported(FALLBACKS)

    assert {model.fallback_after for model in settings.models.values()} == {"auto"}
    assert {each.fallback_after for model in settings.models.values() for each in model.fallbacks} == {None}
    assert remarks(converted, "one deployment and no fallback for failures: last; nobody else answers while it hangs")
    assert not remarks(imported(AZURE_GROUP)[1], "one deployment and no fallback")


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


def test_wildcards_are_providers_under_the_names_that_clients_say(imported: Import) -> None:
    settings, converted = imported(WILDCARDS)

    assert list(settings.providers) == ["openai", "together_ai", "groq"]
    assert settings.providers["together_ai"].preset == "together"
    assert list(settings.models) == ["gpt"]
    assert settings.clients["litellm-master"].adhoc
    assert remarks(converted, "any model, together_ai/MODEL")
    assert remarks(converted, "model_list[2].model_name: a star stands at the end of a name, behind how it begins")


def test_names_that_begin_so_are_models_with_a_star(imported: Import) -> None:
    settings, converted = imported("""
model_list:
  - { model_name: "claude-*", litellm_params: { model: "anthropic/claude-*", api_key: os.environ/ANTHROPIC_API_KEY } }
  - { model_name: "claude-*", litellm_params: { model: "openrouter/anthropic/claude-*", api_key: os.environ/O } }
  - { model_name: "small-*", litellm_params: { model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY } }
  - { model_name: "small-*", litellm_params: { model: openai/gpt-5, api_key: os.environ/OPENAI_API_KEY, order: 2 } }
""")
    assert deployments(settings, "claude-*") == ["anthropic/claude-*", "openrouter/anthropic/claude-*"]
    assert deployments(settings, "small-*") == ["openai/gpt-4o"]
    assert list(settings.models) == ["claude-*", "small-*"]
    assert remarks(converted, "a pattern has one `order`")
    assert not remarks(converted, "adhoc")


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


def test_entries_that_become_one_deployment_may_have_as_much_in_flight_as_all_of_them(imported: Import) -> None:
    params = "model: groq/x, api_key: os.environ/{}, max_parallel_requests: 5"
    entries = [f"  - {{ model_name: m, litellm_params: {{ {params.format(key)} }} }}\n" for key in ("A", "B", "C")]
    settings, _ = imported("model_list:\n" + "".join(entries))
    (deployment,) = settings.models["m"].deployments
    assert (len(settings.providers["groq"].keys), deployment.max_in_flight) == (3, 15)
