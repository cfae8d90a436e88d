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
MODEL = "providers: { ollama: }\nmodels: { m: { deployments: [{ deployment: ollama/x"  # the rest closes it


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


CLIENT = f"clients: {{ a: {{ key_sha256: {HASH}"


@pytest.mark.parametrize(
    ("text", "place", "meant"),
    [
        ("port: 1\nanonymus:\n", "2: anonymus", "anonymous"),
        (f"{CLIENT},\n requre: }} }}\n", "2: clients.a.requre", "require"),
        (f"{CLIENT}, usd_per_dya: ~ }} }}\n", "1: clients.a.usd_per_dya", "usd_per_day"),
        (f"{CLIENT}, require: {{ zrd: }} }} }}\n", "1: clients.a.require.zrd", "zdr"),
        ("providers: { ollama: { timeout: null } }\n", "1: providers.ollama.timeout", "timeouts"),
        ("teams:\n  t:\n    rpmm:\n", "3: teams.t.rpmm", "rpm"),
        (f"{MODEL} }}], race: {{ budgt: }} }} }}\n", "2: models.m.race.budgt", "budget"),
        (f"{MODEL}, max_inflight: }}] }} }}\n", "2: models.m.deployments[0].max_inflight", "max_in_flight"),
        (f"{MODEL} }}], usd_per_dya: }} }}\n", "2: models.m.usd_per_dya", "usd_per_day"),
        (f"{CLIENT}, key: x }} }}\n", "1: clients.a.key", "key_sha256"),
        (f"{CLIENT}, model: x }} }}\n", "1: clients.a.model", "models"),
        (f"{CLIENT}, RPM: 5 }} }}\n", "1: clients.a.RPM", "rpm"),
        (
            f"{CLIENT}, usd: 5 }} }}\n",
            "1: clients.a.usd",
            " or ".join(f"'usd_{each}'" for each in ("per_hour", "per_day", "per_week", "per_month", "total"))[1:-1],
        ),
        ("providers: { ollama: { url: x } }\n", "1: providers.ollama.url", "base_url"),
        ("providers: { ollama: { Base-URL: x } }\n", "1: providers.ollama.Base-URL", "base_url"),
        ("providers: { ollama: { key: x } }\n", "1: providers.ollama.key", "api_key"),
        ("redis: x\n", "1: redis", "redis_url' or 'redis_prefix"),
        ("log: debug\n", "1: log", "log_level' or 'log_format"),
        (f"{MODEL}, price: 1 }}] }} }}\n", "2: models.m.deployments[0].price", "price_per_mtok"),
        (f"{MODEL}, headers: {{ a: b }} }}] }} }}\n", "2: models.m.deployments[0].headers", "extra_headers"),
    ],
)
def test_an_unknown_key_without_a_value_is_refused_with_its_line(
    problems: Problems, text: str, place: str, meant: str
) -> None:
    assert problems(text) == [f"gateway.yaml:{place}: unknown key; did you mean '{meant}'?"]


@pytest.mark.parametrize(
    ("text", "place", "key"),
    [
        ("anonymous: {rpm:60}\n", "anonymous.rpm", "rpm"),
        ("anonymous: {rpm:60, tpm: 5}\n", "anonymous.rpm", "rpm"),
        ("anonymous: { tpm: 5, rpm:60 }\n", "anonymous.rpm", "rpm"),
        ("teams: {t: {usd_per_day:1.5}}\n", "teams.t.usd_per_day", "usd_per_day"),
        ("providers: {ollama: {base_url:http://127.0.0.1/v1}}\n", "providers.ollama.base_url", "base_url"),
        ("providers: {ollama: {headers: {x-team:gsk-secret}}}\n", "providers.ollama.headers.x-team", "x-team"),
        ("providers: {ollama: {api_key:gsk-secret, timeouts: {}}}\n", "providers.ollama.api_key", "api_key"),
        ("providers: {ollama: {api_key:${KEY}}}\n", "providers.ollama.api_key", "api_key"),
    ],
)
def test_a_colon_without_a_space_is_named_and_what_follows_it_is_not_shown(
    problems: Problems, text: str, place: str, key: str
) -> None:
    (problem,) = problems(text, {"KEY": "gsk-secret"})

    assert problem == f"gateway.yaml:1: {place}: YAML needs a space after the colon: write `{key}: …`"


def test_a_parameter_without_a_space_is_no_parameter_of_that_name(problems: Problems) -> None:
    (problem,) = problems(f"{MODEL} }}], defaults: {{temperature:0.2}} }} }}\n")

    assert (
        problem
        == "gateway.yaml:2: models.m.defaults.temperature: YAML needs a space after the colon: write `temperature: …`"
    )


def test_a_misspelt_key_with_a_colon_is_both(problems: Problems) -> None:
    (problem,) = problems("anonymous: {rmp:60}\n")

    assert problem == (
        "gateway.yaml:1: anonymous.rmp: YAML needs a space after the colon: write `rmp: …`; and it is an unknown"
        " key; did you mean 'rpm'?"
    )


@pytest.mark.parametrize(
    "race", ["{hold}", "{ hold }", "{ width: 2, hold }", "{ hold, width: 2 }", "{ hold # why: no\n}"]
)
def test_a_key_in_braces_without_a_colon_has_no_value(problems: Problems, race: str) -> None:
    (problem,) = problems(f"{MODEL} }}], race: {race} }} }}\n")

    assert problem == "gateway.yaml:2: models.m.race.hold: has no value: write `hold: …`"


@pytest.mark.parametrize("text", ["anonymous:\n  rpm:60\n", "anonymous:\n  rpm:60\n  tpm:70\n", "anonymous: rpm:60\n"])
def test_a_section_of_one_colon_without_a_space_is_named_too(problems: Problems, text: str) -> None:
    (problem,) = problems(text)

    assert problem == (
        "gateway.yaml:1: anonymous: must be a section of keys and values; YAML needs a space after the colon: write"
        " `rpm: …`"
    )


def test_a_value_in_place_of_its_section_is_told_where_it_goes(problems: Problems) -> None:
    (problem,) = problems(f"{MODEL} }}], race: single }} }}\n")

    assert problem == (
        "gateway.yaml:2: models.m.race: must be a section of keys and values; write `race: {mode: single}`"
    )


def test_braces_right_after_the_colon_are_named(problems: Problems) -> None:
    (problem,) = problems("anonymous:{rpm: 60}\n")

    assert problem == (
        "gateway.yaml:1: anonymous:{rpm: unknown key; YAML needs a space after the colon: write `anonymous: …`"
    )


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
