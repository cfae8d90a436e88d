"""The configuration `holeshot init` writes, and the example in the repository."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from gateway.settings import Settings, load
from gateway.settings.presets import found_vendors
from gateway.settings.starter import EQUIVALENTS, EXAMPLES, starter_text
from providers import load_catalog

CATALOG = load_catalog()
EXAMPLE = Path(__file__).parents[3] / "config" / "gateway.example.yaml"
EVERY_KEY = {variable: "made-up" for vendor in CATALOG.values() for variable in vendor.key_env}


def started(environ: dict[str, str], folder: Path) -> tuple[str, Settings]:
    text = starter_text(list(found_vendors(environ, CATALOG)), environ)
    path = folder / "gateway.yaml"
    path.write_text(text, encoding="utf-8")
    return text, load(path, environ)


def test_a_model_that_several_found_vendors_sell_is_raced(tmp_path: Path) -> None:
    text, settings = started({"GROQ_API_KEY": "gsk-1", "CEREBRAS_API_KEY": "csk-1", "OPENAI_API_KEY": "sk-1"}, tmp_path)

    assert list(settings.providers) == ["openai", "groq", "cerebras"]
    deployments = [deployment.deployment for deployment in settings.models["gpt-oss-120b"].deployments]
    assert deployments == ["groq/openai/gpt-oss-120b", "cerebras/gpt-oss-120b"]
    assert "gpt-4.1-mini" in settings.models
    assert "${GROQ_API_KEY}" in text


def test_no_key_is_written(tmp_path: Path) -> None:
    assert "gsk-1" not in started({"GROQ_API_KEY": "gsk-1"}, tmp_path)[0]


@pytest.mark.parametrize("environ", [{"DEEPINFRA_TOKEN": "k"}, {"FRIENDLI_TOKEN": "k"}, EVERY_KEY])
def test_what_is_written_loads_in_the_environment_it_was_written_for(environ: dict[str, str], tmp_path: Path) -> None:
    _, settings = started(environ, tmp_path)

    assert set(settings.providers) == {vendor.name for vendor in found_vendors(environ, CATALOG)}


def test_the_table_of_equal_models_names_vendors_of_the_catalog() -> None:
    named = {vendor for equivalent in EQUIVALENTS for vendor in equivalent.names} | set(EXAMPLES)

    assert named <= set(CATALOG)


def test_the_example_loads_when_its_variables_are_set() -> None:
    settings = load(
        EXAMPLE, EVERY_KEY | {"GROQ_BATCH_API_KEY": "k", "TOGETHER_2_API_KEY": "k", "PAGE_SIGNING_KEY": "k" * 32}
    )

    assert settings.models["gpt-oss-120b"].deployments[2].name == "gpt-oss@home"


def test_the_example_shows_every_setting() -> None:
    shown = set(_keys(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8").replace("${", "").replace("_KEY}", "_KEY"))))

    assert {field for section in _sections(Settings) for field in _names(section)} <= shown


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, entry in value.items():
            yield key
            yield from _keys(entry)
    if isinstance(value, list):
        for entry in value:
            yield from _keys(entry)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every section reachable from ``annotation``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _sections(field.annotation)
    for argument in get_args(annotation):
        yield from _sections(argument)


def _names(section: type[BaseModel]) -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield field.alias or name
