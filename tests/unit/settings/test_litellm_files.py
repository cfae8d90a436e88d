"""The files of a LiteLLM configuration: included ones, examples, and what is none."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import ConfigurationError
from tests.unit.settings.litellm_import import Import, deployments, remarks


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


@pytest.mark.parametrize("text", ["model_list: [\n", "- a\n", "\tx"])
def test_what_is_no_configuration_at_all_is_refused(imported: Import, text: str) -> None:
    with pytest.raises(ConfigurationError):
        imported(text)


_LITELLM = find_spec("litellm")
assert _LITELLM is not None
EXAMPLES = Path(str(_LITELLM.origin)).parent / "proxy"


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


def test_a_credential_that_two_entries_share_by_an_anchor_is_given_to_both(imported: Import) -> None:
    settings, converted = imported("""
credential_list: [{ credential_name: mine, credential_values: { api_key: os.environ/K } }]
model_list:
  - { model_name: a, litellm_params: &shared { model: groq/x, litellm_credential_name: mine } }
  - { model_name: b, litellm_params: *shared }
  - { model_name: c, litellm_params: { model: groq/x, litellm_credential_name: null, api_key: os.environ/L } }
""")

    keys = {name: [key.get_secret_value() for key in each.keys] for name, each in settings.providers.items()}
    assert keys == {"groq": ["value-of-K"], "groq-2": ["value-of-L"]}
    assert [deployments(settings, name) for name in "abc"] == [["groq/x"], ["groq/x"], ["groq-2/x"]]
    assert not remarks(converted, "names a credential")


def test_values_are_what_their_writer_means_whatever_they_look_like(imported: Import) -> None:
    settings, _ = imported("""
model_list:
  - model_name: no
    litellm_params: { model: groq/1.10, api_key: os.environ/K, temperature: 1e-1, seed: 1e3, stop: "1e3" }
  - model_name: 2024-10-21
    litellm_params: { model: groq/x, api_key: os.environ/K, extra_body: { zip: 080, day: 2024-10-21, flag: no } }
  - { model_name: 010, litellm_params: { model: groq/x, api_key: os.environ/K } }
""")

    assert list(settings.models) == ["no", "2024-10-21", "010"]
    assert deployments(settings, "no") == ["groq/1.10"]
    assert settings.models["no"].defaults == {"temperature": 0.1, "seed": 1000, "stop": "1e3"}
    (deployment,) = settings.models["2024-10-21"].deployments
    assert deployment.extra_body == {"zip": "080", "day": "2024-10-21", "flag": False}
