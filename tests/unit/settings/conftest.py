from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.import_litellm.conversion import ConvertedConfiguration, convert
from gateway.settings import ConfigurationError, Settings, load
from providers import DatasheetTable, Vendor, load_catalog
from tests.unit.settings.litellm_import import Import

CATALOG = {
    "groq": Vendor(name="groq", title="Groq", base_url="https://groq.test/v1", key_env=("GROQ_API_KEY", "GROQ_KEY")),
    "cerebras": Vendor(
        name="cerebras", title="Cerebras", base_url="https://cerebras.test/v1", key_env=("CEREBRAS_API_KEY",)
    ),
    "azure": Vendor(name="azure", title="Azure OpenAI", key_env=("AZURE_API_KEY",)),
    "ollama": Vendor(name="ollama", title="Ollama", base_url="http://127.0.0.1:11434/v1", key_required=False),
    "anthropic": Vendor(name="anthropic", title="Anthropic", kind="litellm", key_env=("ANTHROPIC_API_KEY",)),
}

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]


@pytest.fixture
def loaded(tmp_path: Path) -> Load:
    """Loads a text as gateway.yaml, with a small catalog."""

    def load_text(text: str | None = None, environ: dict[str, str] | None = None, **overrides: Any) -> Settings:
        path = None
        if text is not None:
            path = tmp_path / "gateway.yaml"
            path.write_text(text, encoding="utf-8")
        return load(path, environ or {}, overrides, catalog=CATALOG)

    return load_text


@pytest.fixture
def problems(loaded: Load, tmp_path: Path) -> Problems:
    """Loads a text that cannot be used; returns what is said about it, the file's name shortened."""

    def problems_of(text: str | None = None, environ: dict[str, str] | None = None, **overrides: Any) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            loaded(text, environ, **overrides)
        return [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]

    return problems_of


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Converts a text, and loads what comes of it with every variable set that it names."""

    def convert_and_load(
        text: str, environ: Mapping[str, str] | None = None
    ) -> tuple[Settings, ConvertedConfiguration]:
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
    if name == "SOON" or name.endswith("_PORT"):
        return "7"
    return "https://endpoint.test" if name.endswith(("_BASE", "_URL")) else f"value-of-{name}"
