"""A key that no section knows is refused wherever it is, also where it has no value: it may be a limit."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gateway.settings import ModelSettings, RaceSettings, Settings
from gateway.settings.sections import Section, TargetSettings

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]
ROOT = Path(__file__).parents[4]
PAGES = [ROOT / "README.md", *(each for each in (ROOT / "docs").rglob("*.md") if "reference" not in each.parts)]
_INLINE = re.compile(r"`((\w+): [{\[][^`]*[}\]])`")  # in a sentence: `race: { mode: single }`
HASH = "a" * 64


def sections(kind: type[Section] = Section) -> Iterator[type[Section]]:
    for each in kind.__subclasses__():
        yield each
        yield from sections(each)


def unknown(kind: type[Section], value: dict[str, Any]) -> list[tuple[str | int, ...]]:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(value)
    return [error["loc"] for error in caught.value.errors() if error["type"] == "extra_forbidden"]


SECTIONS: dict[str, type[Section]] = {kind.__name__: kind for kind in sections()}


@pytest.mark.parametrize("kind", SECTIONS.values(), ids=SECTIONS.keys())
def test_no_section_takes_an_unknown_key_without_a_value(kind: type[Section]) -> None:
    assert unknown(kind, {"limts": None}) == [("limts",)]


@pytest.mark.parametrize(
    ("kind", "value"), [(RaceSettings, {"profile": "voice"}), (TargetSettings, {"preset": "voice"})]
)
def test_a_profile_beside_it_hides_no_unknown_key(kind: type[Section], value: dict[str, Any]) -> None:
    assert unknown(kind, {**value, "limts": None}) == [("limts",)]


def test_known_settings_that_are_left_empty_are_not_set(loaded: Load) -> None:
    settings = loaded(
        "reports_database_url:\n"
        f"clients:\n  a: {{ key_sha256: {HASH}, rpm: , require: null }}\n"
        "providers:\n  ollama:\n    timeouts:\n"
        "models:\n  m:\n    race:\n      # width: 3\n    deployments: [ollama/x]\n"
    )

    assert settings.clients["a"].rpm is None
    assert settings.models["m"].race == RaceSettings()


def test_names_with_a_colon_are_names(loaded: Load) -> None:
    models = "{ llama3:8b: { deployments: [ollama/llama3:8b] }, 'a:b': {deployments: [ollama/y]} }"
    settings = loaded(f"providers: {{ ollama: }}\nmodels: {models}\n")

    assert list(settings.models) == ["llama3:8b", "a:b"]
    assert isinstance(settings.models["a:b"], ModelSettings)


def is_valid(kind: type[Section], name: str, value: object) -> bool:
    """Whether ``name`` may have this value, or a larger one of which this is a part, in the section ``kind``."""
    try:
        kind.model_validate({name: value})
    except ValidationError as caught:
        return all(error["loc"][:1] != (name,) or error["type"] == "missing" for error in caught.errors())
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_setting_in_a_sentence_of_a_page_is_one_that_some_section_takes(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    wrong = []
    for text, name in _INLINE.findall(prose):
        kinds = [kind for kind in SECTIONS.values() if name in kind.model_fields]
        if kinds and "…" not in text and "..." not in text:
            value = yaml.safe_load(re.sub(r"\$\{\w+\}", "x", text))[name]
            wrong += [] if any(is_valid(kind, name, value) for kind in kinds) else [text]
    assert wrong == []
