"""Keys in a LiteLLM configuration: none is written down, and each stays with what it serves."""

import hashlib
from pathlib import Path

from tests.unit.settings.litellm_import import AZURE_GROUP, WILDCARDS, Import, deployments, remarks

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


def test_the_master_key_is_a_client_known_by_its_digest(imported: Import, tmp_path: Path) -> None:
    unset, converted = imported(WILDCARDS)
    known, _ = imported(WILDCARDS, {"LITELLM_MASTER_KEY": "sk-1234"})
    clear, _ = imported("general_settings: { master_key: sk-1234 }\n")

    digest = hashlib.sha256(b"sk-1234").hexdigest()
    assert known.clients["litellm-master"].key_sha256 == clear.clients["litellm-master"].key_sha256 == (digest,)
    assert "LITELLM_MASTER_KEY_SHA256" in converted.variables
    assert unset.clients["litellm-master"].admin
    assert unset.host == "0.0.0.0"


def test_without_a_master_key_nobody_else_can_call(imported: Import) -> None:
    settings, _ = imported(AZURE_GROUP)

    assert settings.host == "127.0.0.1"
    assert settings.clients == {}
