"""What the speed benchmarks ask for is what the measured gateway is configured with."""

from pathlib import Path

import pytest

from benchmarks.speed.crowd import CROWDS
from benchmarks.speed.scenarios import FIRST_TOKEN, FIRST_TOKEN_LIMITS, SCENARIOS
from gateway.core.calls import Mode
from gateway.settings import Settings, load
from tests.support.measured import gateways
from tests.support.measured.answers import BEHAVIOURS
from tests.support.measured.gateways import WAYS, Stores, Tls

PRODUCTION = Stores("postgresql://postgres@127.0.0.1:1/postgres", "redis://127.0.0.1:1/0")


def configured(folder: Path, *, workers: int = 1) -> Settings:
    tls = Tls(2, 3, folder / "authority.pem")
    return load(gateways.write_config(folder, 1, 4, PRODUCTION, tls=tls, workers=workers), {})


def test_every_subject_of_every_scenario_is_a_server_and_a_model_that_there_are(tmp_path: Path) -> None:
    settings = configured(tmp_path, workers=2)
    asked = [crowd.subject for crowd in CROWDS]
    asked += (subject for scenario in (*SCENARIOS, FIRST_TOKEN) for subject in scenario.subjects)
    for subject in asked:
        if subject.server in gateways.GATEWAYS:
            race = settings.models[subject.model]
            assert len(race.deployments) == subject.launched
            assert gateways.GATEWAYS[subject.server].tls or "-tls-" not in subject.model
        else:
            assert subject.server in {"upstream", "nginx", "pass-through"}
            assert subject.path.split("/")[1] in BEHAVIOURS


def test_comparisons_are_of_subjects_that_are_measured() -> None:
    for scenario in SCENARIOS:
        names = {subject.name for subject in scenario.subjects}
        assert scenario.comparisons
        for comparison in scenario.comparisons:
            assert {comparison.subject, comparison.baseline or comparison.subject} <= names
    assert FIRST_TOKEN_LIMITS.keys() <= {subject.name for subject in FIRST_TOKEN.subjects}


@pytest.mark.parametrize("model", gateways.RACES)
def test_a_model_of_several_deployments_is_raced_all_at_once_whatever_the_prompt(tmp_path: Path, model: str) -> None:
    race = configured(tmp_path).models[model].race
    width = len(gateways.RACES[model])

    assert race.mode is (Mode.SINGLE if width == 1 else Mode.RACE)
    if race.mode is Mode.RACE:
        assert race.width == width
        assert race.budget > width - 1
        assert race.max_prompt_tokens >= 100_000


def test_providers_over_tls_speak_the_version_in_their_name(tmp_path: Path) -> None:
    providers = configured(tmp_path).providers

    assert providers["burst-tls-1.1"].http_version == "1.1"
    assert providers["burst-tls-auto"].http_version == "auto"
    assert (providers["far-tls-1.1"].base_url or "").startswith("https://127.0.0.1:3/")


def test_profiles_follow_models_that_there_are() -> None:
    assert {way.model for way in WAYS.values()} <= gateways.RACES.keys()
