"""The configuration `holeshot init` writes, and the example in the repository."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel

from gateway.settings import (
    Datasheets,
    Settings,
    found_sellers,
    found_vendors,
    is_pattern,
    load,
    starter_text,
    vendor_of,
    who_can_race,
)
from gateway.settings.vendor_models import EQUIVALENTS, OWN
from providers import DatasheetTable, load_catalog
from strict_vendors import NAMES, made

CATALOG = load_catalog()
ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "config" / "gateway.example.yaml"
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
    assert settings.models["gpt-6-luna"].fallbacks[0].model == "small"
    assert "${GROQ_API_KEY}" in text


def test_no_key_is_written(tmp_path: Path) -> None:
    assert "gsk-1" not in started({"GROQ_API_KEY": "gsk-1"}, tmp_path)[0]


@pytest.mark.parametrize("environ", [{"DEEPINFRA_TOKEN": "k"}, {"FRIENDLI_TOKEN": "k"}, EVERY_KEY])
def test_what_is_written_loads_in_the_environment_it_was_written_for(environ: dict[str, str], tmp_path: Path) -> None:
    _, settings = started(environ, tmp_path)

    assert set(settings.providers) == {vendor.name for vendor in found_vendors(environ, CATALOG)}


def test_keys_of_several_sellers_of_a_model_make_one_model_that_is_hedged_with_what_a_race_would_cost(
    tmp_path: Path,
) -> None:
    environ = {
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_FOUNDRY_API_KEY": "k",
        "ANTHROPIC_FOUNDRY_RESOURCE": "mine",
        "ANTHROPIC_AWS_API_KEY": "k",
        "ANTHROPIC_AWS_WORKSPACE_ID": "wrkspc_1",
        "AWS_REGION": "us-west-2",
        "OPENAI_API_KEY": "k",
    }
    found = list(found_vendors(environ, CATALOG))
    text = starter_text(found, environ, table=DatasheetTable.shipped())
    (tmp_path / "gateway.yaml").write_text(text, encoding="utf-8")
    settings = load(tmp_path / "gateway.yaml", environ)
    sonnet = settings.models["claude-sonnet-5-5"]
    sellers = [f"{seller}/claude-sonnet-5-5" for seller in ("foundry", "claude_aws", "anthropic")]
    assert sorted(each.deployment for each in sonnet.deployments) == sorted(sellers)
    assert (sonnet.race.mode, sonnet.race.budget) == ("hedge", 0.1)
    assert "To race each call (mode: race) costs up to as much again: $2 in, $10 out per million tokens." in text
    assert [each.deployment.partition("/")[0] for each in settings.models["large"].deployments].count("foundry") == 0
    assert "no model below uses it" not in text
    assert settings.providers["claude_aws"].headers["anthropic-workspace-id"].get_secret_value() == "wrkspc_1"


CLOUDS: dict[str, dict[str, str]] = {
    "bedrock_invoke": {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "k", "AWS_REGION": "eu-west-1"},
    "vertex": {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json", "GOOGLE_CLOUD_PROJECT": "p1"},
    "claude_aws": {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "k",
        "AWS_REGION": "eu-west-1",
        "ANTHROPIC_AWS_WORKSPACE_ID": "wrkspc_1",
    },
}


def with_sellers(environ: dict[str, str], folder: Path) -> tuple[str, Settings]:
    found = [*found_vendors(environ, CATALOG), *found_sellers(environ, CATALOG, folder)]
    text = starter_text(found, environ, table=DatasheetTable.shipped())
    (folder / "gateway.yaml").write_text(text, encoding="utf-8")
    return text, load(folder / "gateway.yaml", environ)


@pytest.mark.parametrize("clouds", [("bedrock_invoke",), ("vertex",), ("bedrock_invoke", "vertex"), tuple(CLOUDS)])
def test_credentials_of_clouds_make_one_hedged_model_with_the_vendor_s_own(
    clouds: tuple[str, ...], tmp_path: Path
) -> None:
    environ = {"ANTHROPIC_API_KEY": "k"}
    for cloud in clouds:
        environ |= CLOUDS[cloud]
    text, settings = with_sellers(environ, tmp_path)
    for name in ("claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"):
        names = dict.fromkeys(CLOUDS, name) | {"bedrock_invoke": f"eu.anthropic.{name}"}
        model = settings.models[name]
        wanted = ["anthropic/" + name, *(f"{cloud}/{names[cloud]}" for cloud in clouds)]
        assert sorted(each.deployment for each in model.deployments) == sorted(wanted)
        assert (model.race.mode, model.race.budget) == ("hedge", 0.1)
    assert text.count("To race each call (mode: race) costs up to as much again: $") >= 3
    assert text.count("leave it out if they are for other services") == len(clouds)
    if "vertex" in clouds:
        url = "https://aiplatform.googleapis.com/v1/projects/p1/locations/global"
        assert settings.providers["vertex"].base_url == url
    if "bedrock_invoke" in clouds:
        assert settings.providers["bedrock_invoke"].base_url == "https://bedrock-runtime.eu-west-1.amazonaws.com"


def test_gemini_is_hedged_at_both_of_its_sellers_and_claude_at_its_own(tmp_path: Path) -> None:
    text, settings = with_sellers({"GEMINI_API_KEY": "k", **CLOUDS["vertex"], "ANTHROPIC_API_KEY": "k"}, tmp_path)
    for name in ("gemini-3.5-flash-lite", "gemini-4-argon", "gemini-3.8-flash"):
        model = settings.models[name]
        assert {each.deployment for each in model.deployments} == {f"gemini/{name}", f"vertex/{name}"}
        assert (model.race.mode, model.race.budget) == ("hedge", 0.1)
    sonnet = settings.models["claude-sonnet-5-5"]
    assert {each.deployment for each in sonnet.deployments} == {
        f"{each}/claude-sonnet-5-5" for each in ("anthropic", "vertex")
    }
    assert settings.models["small"].race.mode == "auto"
    assert "up to as much again: $0.3 in, $2.5 out" in text


def test_what_a_race_would_cost_is_said_of_the_dearest_seller(tmp_path: Path) -> None:
    text, settings = with_sellers({"ANTHROPIC_API_KEY": "k", **CLOUDS["bedrock_invoke"]}, tmp_path)
    assert (
        settings.models["claude-sonnet-5-5"].deployments[1].deployment
        == "bedrock_invoke/eu.anthropic.claude-sonnet-5-5"
    )
    assert "up to as much again: $2.2 in, $11 out per million tokens" in text  # Bedrock's price within a region


def test_a_key_of_bedrock_s_names_models_of_its_region_beside_others(tmp_path: Path) -> None:
    environ = {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "ap-northeast-1", "OPENAI_API_KEY": "k"}
    text, settings = with_sellers(environ, tmp_path)
    small = [each.deployment for each in settings.models["small"].deployments]
    assert small == ["openai/gpt-6-luna", "bedrock_invoke/apac.anthropic.claude-haiku-5-5"]
    assert settings.models["claude-sonnet-5-5"].fallbacks[0].model == "large"
    assert "leave it out" not in text
    assert "claude-*" not in settings.models


def test_credentials_without_an_address_or_in_no_usual_place_are_not_written(tmp_path: Path) -> None:
    for name, environ in CLOUDS.items():
        for left_out in environ if name != "claude_aws" else ():
            rest = {variable: value for variable, value in environ.items() if variable != left_out}
            assert list(found_sellers(rest, CATALOG, tmp_path)) == [], (name, left_out)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]", encoding="utf-8")
    environ = {"AWS_REGION": "us-east-1"}  # Claude Platform on AWS needs a workspace's name too
    assert [each.name for each in found_sellers(environ, CATALOG, tmp_path)] == ["bedrock_invoke"]


def test_the_tables_of_models_name_vendors_of_the_catalog() -> None:
    named = {vendor for equivalent in EQUIVALENTS for vendor in equivalent.names} | set(OWN)

    assert named <= set(CATALOG)


# Their names are those of Anthropic's stand-in, with a region before them, or in the address.
UNLISTED = {"bedrock_invoke", "vertex"}
PROPOSED = sorted(
    {(vendor, name) for each in EQUIVALENTS for vendor, name in each.names.items()}
    | {
        (vendor, name)
        for vendor, own in OWN.items()
        for name in (own.small, own.large, own.example, *own.asked)
        if name is not None and not is_pattern(name)
    }
)


@pytest.mark.parametrize("vendor", sorted({vendor for vendor, _ in PROPOSED} & set(NAMES) - UNLISTED))
def test_each_proposed_model_is_one_that_the_vendors_stand_in_lists(vendor: str) -> None:
    stand_in, header = made(vendor), CATALOG[vendor].auth
    key: dict[str, str] = {"authorization": f"Bearer {stand_in.key}"} if "key" not in header else {header: stand_in.key}
    asked = {**key, "anthropic-version": "2023-06-01", "anthropic-workspace-id": "wrkspc_1"}
    listed = stand_in.answer("GET", f"{stand_in.base}/models", asked).body
    names = {each.get("id") or each["name"].removeprefix("models/") for each in listed.get("data") or listed["models"]}
    assert {name for seller, name in PROPOSED if seller == vendor} <= names


# Keys that people have, with what `init` wrote for each alone before it wrote races by size; the names are of today.
ALONE = {
    "OPENAI_API_KEY": "gpt-6-luna",
    "ANTHROPIC_API_KEY": "claude-haiku-5-5",
    "GEMINI_API_KEY": "gemini-3.8-flash",
    "GROQ_API_KEY": "gpt-oss-120b",
    "CEREBRAS_API_KEY": "gpt-oss-120b",
    "MISTRAL_API_KEY": "mistral-small-latest",
    "XAI_API_KEY": "grok-4.7",
    "DEEPSEEK_API_KEY": "deepseek-flash",
}


@pytest.mark.parametrize("key", ALONE)
def test_with_one_key_there_is_one_model_that_races_nobody_and_says_so(key: str, tmp_path: Path) -> None:
    text, settings = started({key: "k"}, tmp_path)

    (name, model), *others = settings.models.items()
    assert (name, len(model.deployments), model.fallbacks) == (ALONE[key], 1, ())
    stars = {"ANTHROPIC_API_KEY": ["claude-*"], "GEMINI_API_KEY": ["gemini-*"]}  # whatever else programs ask for
    assert [other for other, _ in others] == stars.get(key, [])
    assert "race" not in text.partition("\nmodels:\n")[2]
    assert str(who_can_race(settings)[name]).startswith("cannot race: it has one deployment: add another")


@pytest.mark.parametrize("keys", [*combinations(ALONE, 2), *combinations(ALONE, 3)], ids=" ".join)
def test_with_two_or_three_keys_a_small_model_of_each_vendor_races(keys: tuple[str, ...], tmp_path: Path) -> None:
    text, settings = started(dict.fromkeys(keys, "k"), tmp_path)

    small = settings.models["small"]
    assert {each.deployment.partition("/")[0] for each in small.deployments} == set(settings.providers)
    assert (small.race.mode, small.race.budget) == ("auto", 0.1)
    assert "Each of the named vendors may see a prompt" in text
    assert "about a tenth more at most" in text
    for name, can in who_can_race(settings).items():
        model = settings.models[name]
        assert can.races is (len(model.deployments) > 1)
        if not can.races and name in set(ALONE.values()) - {"gemini-3.8-flash", "grok-4.7"}:
            assert model.fallbacks[0].model == "small"
            assert can.why == "it has one deployment; if it fails or is late, its fallback answers (small)"


SIX = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY", "GEMINI_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY")


@pytest.mark.parametrize("number", range(1, len(SIX) + 1))
def test_with_any_of_six_keys_each_model_says_whether_it_races_and_with_two_at_least_one_does(
    number: int, tmp_path: Path
) -> None:
    for keys in combinations(SIX, number):
        _, settings = started(dict.fromkeys(keys, "k"), tmp_path)
        races = who_can_race(settings)
        assert set(races) == set(settings.models)
        assert len(settings.providers) == number
        assert {name for name, can in races.items() if can.races} == (
            {name for name in ("small", "large") if name in settings.models} if number > 1 else set()
        )
        assert ("small" in settings.models) is (number > 1)
        for name, can in races.items():
            racers = len(settings.models[name].deployments)
            words = f"{racers} deployments at " if can.races else "it has one deployment"
            assert str(can).startswith(f"{'can' if can.races else 'cannot'} race: {words}"), keys


def test_the_names_that_programs_ask_for_are_answered_by_these_models_else_by_others_of_their_size(
    tmp_path: Path,
) -> None:
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "k")

    models = started(keys, tmp_path)[1].models

    for name, at, instead in (
        ("claude-opus-5-5", "anthropic", "large"),
        ("claude-sonnet-5-5", "anthropic", "large"),
        ("claude-haiku-*", "anthropic", "small"),
        ("claude-*", "anthropic", "large"),
        ("gpt-6.1-sol", "openai", "large"),
        ("gemini-3.8-flash", "gemini", "large"),
        ("gemini-*", "gemini", "large"),
    ):
        assert [each.deployment for each in models[name].deployments] == [f"{at}/{name}"]
        assert [each.model for each in models[name].fallbacks] == [instead]


def test_one_vendor_by_two_of_its_apis_races_nobody(tmp_path: Path) -> None:
    _, settings = started({"GEMINI_API_KEY": "k", "GOOGLE_GENERATIVE_AI_API_KEY": "k"}, tmp_path)

    assert list(settings.providers) == ["gemini", "google"]
    assert list(settings.models) == ["gemini-3.8-flash", "gemini-*"]


@pytest.mark.parametrize("keys", [("OPENAI_API_KEY",), ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GROQ_API_KEY")])
def test_without_a_file_there_are_the_models_that_init_would_write(keys: tuple[str, ...], tmp_path: Path) -> None:
    environ = dict.fromkeys(keys, "k")

    _, written = started(environ, tmp_path)

    assert load(None, environ).models == written.models


# What vendors have retired, or will within weeks, by their pages of 2026-11-29:
# - developers.openai.com/api/docs/deprecations (GPT-4.1, 4o: 14 January; GPT-5, mini, nano: 11 December)
# - ai.google.dev/gemini-api/docs/changelog (3.5 and 3.7 Flash are routed to others)
# - inference-docs.cerebras.ai/support/deprecation, console.groq.com/docs/deprecations (Llama 3.3)
# - api-docs.deepseek.com/quick_start/pricing (V4 Flash is now deepseek-flash)
RETIRED = re.compile(
    r"(?<![\w.-])(?:gpt-4\.1(?:-mini|-nano)?|gpt-4o(?:-mini)?|gpt-5(?:-mini|-nano)?|gemini-(?:2\.0|2\.5|3\.5|3\.7)-flash"
    r"|cerebras/llama-3\.3-70b|groq/llama-3\.3-70b\S*|deepseek-v4-flash|claude-(?:sonnet|opus)-4-[015])(?![\w.-]*\w)"
)
UNPRICED = {"openrouter", "nvidia_nim"}  # the table has no prices of theirs


def test_each_model_that_init_writes_has_a_price_and_is_not_retired(tmp_path: Path) -> None:
    table = DatasheetTable.shipped()
    for keys in [{name: "k"} for name in EVERY_KEY] + [EVERY_KEY]:
        _, settings = started(keys, tmp_path)
        sheets = Datasheets(settings, CATALOG, table)
        for name, model in settings.models.items():
            assert not RETIRED.search(name), name
            for each in () if is_pattern(name) else model.deployments:
                provider = each.deployment.partition("/")[0]
                assert not RETIRED.search(each.deployment), each.deployment
                vendor = vendor_of(provider, settings.providers[provider], CATALOG)
                assert provider in UNPRICED or sheets.of(vendor, each).price, each.deployment


def test_each_vendors_names_have_the_page_and_the_day_that_they_were_read() -> None:
    for vendor, own in OWN.items():
        assert "." in own.page, vendor
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", own.read), vendor


@pytest.mark.parametrize(
    "path",
    [ROOT / "README.md", EXAMPLE, *(each for each in (ROOT / "docs").rglob("*.md") if "reference" not in each.parts)],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_page_tells_readers_to_use_a_retired_model(path: Path) -> None:
    assert RETIRED.findall(path.read_text(encoding="utf-8")) == []


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
