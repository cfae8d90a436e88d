"""Problems that ``messages.txt`` cannot have: of what is not there or not installed, and of other commands."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.settings import ConfigurationError, Settings, load, load_clickhouse, load_database_url
from providers import how_to_install

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]


def test_a_key_that_a_client_brings_is_not_longer_than_keys(problems: Problems) -> None:
    client = f"{{ key_sha256: {'a' * 64}, provider_keys: {{ groq: '${{KEY}}' }} }}"
    text = f"providers: {{ groq: {{ api_key: gsk-1 }} }}\nclients: {{ app: {client} }}\n"
    (problem,) = problems(text, {"KEY": "gsk-secret" * 52})

    assert "clients.app.provider_keys.groq: is longer than 512 characters" in problem
    assert "gsk-secret" not in problem


def test_a_key_that_is_empty_goes_with_a_user_in_the_address(loaded: Load) -> None:
    settings = loaded("providers: { mine: { base_url: 'https://me:pw@h/v1', api_key: '' } }\n")
    assert settings.providers["mine"].base_url == "https://me:pw@h/v1"


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load(Path("nowhere.yaml"), {})


def test_a_variable_of_broken_json_takes_no_other_variable_with_it() -> None:
    environ = {"HOLESHOT_PROVIDERS": "{secret", "HOLESHOT_DATABASE_URL": "sqlite:///mine.db"}

    assert load_database_url(None, environ).get_secret_value() == "sqlite:///mine.db"


def test_a_command_for_the_ledger_refuses_a_variable_of_it_that_cannot_be_read() -> None:
    with pytest.raises(ConfigurationError, match="HOLESHOT_LEDGER: a list or a section is written as JSON"):
        load_clickhouse(None, {"HOLESHOT_LEDGER": "{secret"})
    with pytest.raises(ConfigurationError, match="HOLESHOT_DATABASE_URL: is not UTF-8 text"):
        load_database_url(None, {"HOLESHOT_DATABASE_URL": "sqlite:///\udcff"})


def test_the_vendors_are_listed_once(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(
        "providers: { qqq: { api_key: x } }\nmodels: { m: { deployments: [wwww/x, vvvv/y] } }\n"
    )

    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / "gateway.yaml", {})

    assert len(caught.value.problems) == 3
    assert str(caught.value).count("fireworks") == 1


@pytest.fixture
def without_litellm(loaded: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the folder in which litellm is from the path, once everything else is imported."""
    loaded("port: 1\n")
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if not (Path(folder) / "litellm").exists()])


@pytest.mark.usefixtures("without_litellm")
def test_a_provider_that_needs_litellm_names_the_extra(problems: Problems) -> None:
    assert problems("providers: { anthropic: { api_key: k } }\n") == [
        f"gateway.yaml:1: providers.anthropic: needs litellm: {how_to_install('litellm')}"
    ]
