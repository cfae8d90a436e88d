"""What tests of importing a LiteLLM configuration have in common."""

from collections.abc import Callable

from gateway.cli.import_litellm.conversion import ConvertedConfiguration
from gateway.settings import Settings

Import = Callable[..., tuple[Settings, ConvertedConfiguration]]


def remarks(converted: ConvertedConfiguration, words: str) -> list[str]:
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


WILDCARDS = """
model_list:
  - { model_name: "openai/*", litellm_params: { model: "openai/*", api_key: os.environ/OPENAI_API_KEY } }
  - { model_name: "together_ai/*", litellm_params: { model: "together_ai/*", api_key: os.environ/TOGETHERAI_API_KEY } }
  - { model_name: "*", litellm_params: { model: "groq/*", api_key: os.environ/GROQ_API_KEY } }
  - { model_name: gpt, litellm_params: { model: openai/gpt-4o, api_key: os.environ/OPENAI_API_KEY } }
general_settings: { master_key: os.environ/LITELLM_MASTER_KEY }
"""
