"""The JSON Schema of the configuration, held against configurations that load and that do not."""

import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from gateway.settings import ConfigurationError, found_vendors, json_schema, load, starter_text
from providers import load_catalog

EXAMPLE = Path(__file__).parents[3] / "config" / "gateway.example.yaml"
MODEL = "providers: { mine: { base_url: http://127.0.0.1:1/v1 } }\nmodels: { m: { deployments: [mine/x], %s } }"
TWO_MODELS = MODEL % "fallbacks: [%s] }, n: { deployments: [mine/y]"
PAGES = "clients: { a: { key_sha256: '" + "0" * 64 + "' } }\ncors: [%s]"
CLIENT = "clients: { a: { key_sha256: '" + "0" * 64 + "', %s } }"


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    schema = json_schema()
    Draft7Validator.check_schema(schema)
    return Draft7Validator(schema)


def problems(validator: Draft7Validator, text: str) -> list[str]:
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


def test_the_example_is_plain_yaml_and_valid(validator: Draft7Validator) -> None:
    assert problems(validator, EXAMPLE.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "port: 4001",
        "port:",
        "ledger:",
        "providers:\n  groq:\n",
        "cors:",
        PAGES % "https://chat.example.com, '${PAGE:-app://obsidian.md}'",
        "tls: { certificate: a, key: b, min_version: 1.3 }",
        "tls: { certificate: a, key: b, min_version: '1.3' }",
        "providers: { groq: { http_version: 2, api_keys: [a, b] } }",
        "providers: { groq: { http_version: '1.1', api_keys: { search: a } } }",
        MODEL % "race: { budget: 1, win_on: answer }",
        CLIENT % "role: viewer, expires: '2030-01-31'",
        CLIENT % "admin: true, expires: '2030-01-31T18:00:00+01:00'",
        "clients: { a: { key_sha256: ['" + "0" * 64 + "', '" + "1" * 64 + "'] } }",
        "keys: database",
        TWO_MODELS % "n",
        TWO_MODELS % "{ model: n, causes: [context] }",
        TWO_MODELS % "{ model: n, fallback_after: 0.05 }",
        TWO_MODELS % "{ model: n, fallback_after: failure }",
        MODEL % "fallback_after: auto",
    ],
)
def test_what_loads_is_valid(validator: Draft7Validator, tmp_path: Path, text: str) -> None:
    (tmp_path / "gateway.yaml").write_text(text)

    assert problems(validator, text) == []
    load(tmp_path / "gateway.yaml", {"GROQ_API_KEY": "k"})


@pytest.mark.parametrize(
    "text",
    [
        "prot: 4001",
        "port: many",
        "port: 65536",
        "log_level: loud",
        "timeouts: { ttft_s: 1 }",
        "tls: { certificate: a }",
        "tls: { certificate: a, key: b, min_version: 1.1 }",
        "providers: { groq: { http_version: 3 } }",
        "models: { m: }",
        "models: { m: { deployments: [] } }",
        "models: { m: { deployments: [no-provider] } }",
        MODEL % "race: { width: 9 }",
        MODEL % "race: { moed: auto }",
        CLIENT % "admin: perhaps",
        CLIENT % "role: owner",
        CLIENT % "expires: soon",
        CLIENT % "expires: 30",
        "clients: { a: { key_sha256: [] } }",
        "keys: redis",
        "clients: { a: { key_sha256: hs-not-a-hash } }",
        PAGES % "'*'",
        PAGES % "chat.example.com",
        PAGES % "https://chat.example.com/",
    ],
)
def test_what_does_not_load_is_not_valid(validator: Draft7Validator, tmp_path: Path, text: str) -> None:
    (tmp_path / "gateway.yaml").write_text(text)

    assert problems(validator, text) != []
    with pytest.raises(ConfigurationError):
        load(tmp_path / "gateway.yaml", {})


@pytest.mark.parametrize("reference", ["${NAME}", "${NAME:-4000}", "os.environ/NAME", "file:/run/secrets/name"])
@pytest.mark.parametrize(
    "text",
    [
        "port: '%s'",
        "log_level: '%s'",
        "queue_timeout_s: '%s'",
        "responses_store: '%s'",
        "cors: ['%s']",
        "clients: { a: { key_sha256: '%s', admin: '%s' } }",
        "models: { m: { deployments: ['%s'], race: { profile: '%s', width: '%s' }, maximums: { max_tokens: '%s' } } }",
    ],
)
def test_a_reference_may_stand_for_every_value(validator: Draft7Validator, text: str, reference: str) -> None:
    assert problems(validator, text.replace("%s", reference)) == []
    assert problems(validator, text.replace("%s", "NAME")) != []


def test_no_secret_and_no_mask_is_a_default() -> None:
    assert "***" not in str(json_schema())


def test_sections_are_described(validator: Draft7Validator) -> None:
    assert "timeouts of an attempt" in validator.schema["$defs"]["Timeouts"]["description"]


@pytest.mark.parametrize("environ", [{"OPENAI_API_KEY": "k"}, {"GROQ_API_KEY": "k", "CEREBRAS_API_KEY": "k"}])
def test_what_init_writes_is_plain_yaml_and_valid(validator: Draft7Validator, environ: dict[str, str]) -> None:
    text = starter_text(list(found_vendors(environ, load_catalog())), environ)

    assert problems(validator, text) == []  # an editor knows nothing of references without quotes


def test_no_variable_of_the_example_is_taken_for_a_setting() -> None:
    """Whatever is called HOLESHOT_… in the environment sets something, so a secret needs another name."""
    named = re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]*)", EXAMPLE.read_text(encoding="utf-8"))
    assert "PAGE_SIGNING_KEY" in named
    assert [name for name in named if name.startswith("HOLESHOT_")] == []
