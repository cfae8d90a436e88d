"""What an imported LiteLLM configuration says that cannot be taken over: a remark, with its place."""

from pathlib import Path

import pytest

from gateway.cli.import_litellm.deployments import fields
from gateway.settings import ConfigurationError
from tests.unit.settings.litellm_import import AZURE_GROUP, Import, remarks


def test_every_remark_has_its_place_and_stands_at_the_end_of_the_file_too(imported: Import) -> None:
    _, converted = imported(AZURE_GROUP)

    (rpm,) = remarks(converted, "limits are read")
    assert rpm.startswith("8: model_list[0].litellm_params.rpm: no counterpart: limits are read from the providers'")
    assert rpm.endswith("(also in line 15)")
    assert remarks(converted, "num_retries")[0].startswith("18: router_settings.num_retries:")
    comments = converted.text[converted.text.index("# To be done by hand") :]
    assert all(line.startswith("#") for line in comments.splitlines())
    assert "# config.yaml:18: router_settings.num_retries: no counterpart" in comments


def test_a_remark_on_an_included_file_names_that_file(imported: Import, tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("model_list: !secret x\n")
    _, converted = imported("include: [more.yaml]\nmodel_list: []\n")

    assert "# more.yaml:1: model_list cannot be understood" in converted.text


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


def test_each_remark_of_the_table_is_a_sentence_or_the_name_of_one() -> None:
    table = fields()
    for section in (
        "litellm_params",
        "model_info",
        "router_settings",
        "litellm_settings",
        "general_settings",
        "sections",
    ):
        for field, said in getattr(table, section).items():
            assert " " in (table.remark(section, field) or ""), f"{section}.{field}: {said}"
    assert table.remark("sections", "no_such_section") is None
