"""What an imported LiteLLM configuration says that cannot be taken over: a remark, with its place."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.cli.import_litellm.conversion import convert
from gateway.cli.import_litellm.source import rows, table
from gateway.settings import ConfigurationError
from providers import DatasheetTable, load_catalog
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


# A file in which each field of the table has an effect, and the values that it needs for this.
_FILE: dict[str, Any] = {
    "model_list": [
        {"model_name": "m", "litellm_params": {"model": "bedrock/x"}, "model_info": {"input_cost_per_token": 1e-06}},
        {"model_name": "m", "litellm_params": {"model": "groq/x"}},
    ],
    "router_settings": {"redis_host": "cache"},
    "litellm_settings": {},
    "general_settings": {},
}
_VALUES: dict[str, Any] = {
    "model_group_alias": {"other": "m"},
    "credential_list": [{"credential_name": "x"}],
    "default_fallbacks": ["gone"],
    "include": ["missing.yaml"],
    **{field: {"x": "y"} for field in ("environment_variables", "extra_body", "extra_headers", "headers")},
    **{f"{of}fallbacks": [{"m": ["gone"]}] for of in ("", "context_window_", "content_policy_")},
    **dict.fromkeys(("blocked", "drop_params", "json_logs", "redis_ssl", "set_verbose"), True),
}
_IN_EACH_FILE = {"model_name", "litellm_params", "model_info", "model", *_FILE}


@pytest.mark.parametrize(
    "section",
    ["file", "model_list", "litellm_params", "model_info", "router_settings", "litellm_settings", "general_settings"],
)
def test_each_field_of_the_table_becomes_something_or_is_remarked_on(section: str, tmp_path: Path) -> None:
    def text_with(field: str | None) -> str:
        file = copy.deepcopy(_FILE)
        entry = file["model_list"][0]
        if field is not None:
            target = {"file": file, "model_list": entry}.get(section) or entry.get(section) or file[section]
            target[field] = _VALUES.get(field, "7")
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(file))
        text = convert(tmp_path / "config.yaml", {}, load_catalog(), DatasheetTable.shipped()).text
        return re.sub(r"config.yaml:\d+|lines? [\d, ]+", "", text)

    unchanged = text_with(None)
    fields = [field.replace("*", "x") for field in rows(section) if field not in _IN_EACH_FILE]
    silent = [field for field in fields if text_with(field) == unchanged]

    assert fields
    assert not silent


def test_each_remark_of_the_table_is_a_sentence_or_the_name_of_one() -> None:
    for section in table().fields:
        for field, row in rows(section).items():
            assert row.to or row.by or " " in row.remark, f"{section}.{field}: {row.remark}"
            assert not row.remark or " " in row.remark, f"{section}.{field}: {row.remark}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("router_settings: { redis_url: 'redis://a', redis_host: b }", "redis_host: left out: redis_url says it"),
        ("router_settings: { redis_port: 6379 }", "redis_port: left out: redis_url says it, or there is no redis_host"),
        (
            "{ router_settings: { timeout: 3 }, litellm_settings: { request_timeout: 4 } }",
            "request_timeout: left out: another field says otherwise",
        ),
        (
            "litellm_settings: { stream_timeout: 3, request_timeout: 4 }",
            "request_timeout: calls that do not stream have the same limit: stream_timeout is used",
        ),
        (
            "{ router_settings: { fallbacks: [{ a: [b] }] }, litellm_settings: { fallbacks: [{ a: [c] }] } }",
            "litellm_settings.fallbacks: left out: another field says otherwise",
        ),
        ("litellm_settings: { ssl_verify: false }", "ssl_verify: no counterpart: certificates are always checked"),
        (
            "model_list: [{ model_name: m, litellm_params: { model: groq/x, ssl_verify: false } }]",
            "ssl_verify: no counterpart: certificates are always checked",
        ),
        ("litellm_settings: { drop_params: 'yes please' }", "drop_params: is neither true nor false here"),
        ("credential_list: [{ credential_name: spare }]", "credential_list[0]: no entry uses this credential"),
    ],
)
def test_what_is_not_used_is_remarked_on_even_if_it_is_known(imported: Import, text: str, words: str) -> None:
    _, converted = imported(text)

    assert remarks(converted, words)


@pytest.mark.parametrize(
    ("written", "scheme", "remarked"),
    [
        ("true", "rediss", False),
        ("'True'", "rediss", False),
        ("false", "redis", False),
        ("'false'", "redis", False),
        ("", "redis", False),
        ("os.environ/REDIS_SSL", "redis", True),
        ("'1'", "redis", True),
        ("'yes'", "redis", True),
    ],
)
def test_tls_to_redis_is_not_dropped_in_silence(written: str, scheme: str, remarked: bool, imported: Import) -> None:
    settings, converted = imported(f"router_settings: {{ redis_host: cache, redis_ssl: {written} }}")

    assert settings.redis_url is not None
    assert settings.redis_url.get_secret_value() == f"{scheme}://cache:6379"
    assert bool(remarks(converted, "redis_ssl: is neither true nor false here")) is remarked
    assert converted.variables == ()


def test_fallbacks_of_the_proxy_are_used_beside_the_default_ones_of_the_router(imported: Import) -> None:
    settings, _ = imported("""
model_list:
  - { model_name: a, litellm_params: { model: groq/x, api_key: os.environ/K } }
  - { model_name: b, litellm_params: { model: groq/y, api_key: os.environ/K } }
  - { model_name: c, litellm_params: { model: groq/z, api_key: os.environ/K } }
router_settings: { default_fallbacks: [c] }
litellm_settings: { fallbacks: [{ a: [b] }] }
""")

    assert [[each.model for each in settings.models[name].fallbacks] for name in "abc"] == [["b"], ["c"], []]


def test_a_price_of_anything_but_tokens_is_no_parameter_of_requests(imported: Import) -> None:
    settings, converted = imported("""
model_list:
  - { model_name: a, litellm_params: { model: groq/x, api_key: os.environ/K, input_cost_per_pixel: 0.00001 } }
""")

    assert settings.models["a"].defaults == {}
    assert remarks(converted, "input_cost_per_pixel: no counterpart: prices are per token")
