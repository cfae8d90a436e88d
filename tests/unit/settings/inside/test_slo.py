"""Targets in the configuration: presets, and what is refused, each in a sentence."""

from collections.abc import Callable

import pytest

from gateway.core.targets import Definition, Target
from gateway.settings import PROFILES, Profile, Settings, targets_of
from gateway.settings.sections import TargetSettings

Load = Callable[..., Settings]

MODEL = "providers: { ollama: {} }\nmodels: { llama: { deployments: [ollama/x] } }\n"


def test_a_target_is_what_is_written(loaded: Load) -> None:
    settings = loaded(MODEL + "slo: { fast: { model: llama, objective: 0.999, days: 7, ttft_ms: 500, tok_s: 45 } }\n")
    wanted = Definition(model="llama", ttft_ms=500.0, tok_s=45.0)
    assert targets_of(settings.slo) == [Target("fast", wanted, 0.999, 7)]


def test_nothing_said_is_that_calls_are_answered(loaded: Load) -> None:
    settings = loaded(MODEL + "slo: { up: }\n")
    assert targets_of(settings.slo) == [Target("up", Definition(), 0.99, 28)]


@pytest.mark.parametrize("profile", Profile)
def test_a_profile_brings_its_speeds(profile: Profile) -> None:
    race = PROFILES[profile]
    for said in ({"profile": profile.value}, {"preset": profile.value}):
        target = TargetSettings.model_validate(said)
        assert (target.tok_s, target.ttft_ms) == (race.get("min_tok_s"), race.get("ttft_ms"))
    assert TargetSettings.model_validate({"profile": "voice"}).tok_s == 100
    assert TargetSettings.model_validate({"profile": "chat"}).tok_s == 30


def test_what_is_said_beside_a_preset_is_stronger() -> None:
    target = TargetSettings.model_validate({"profile": "voice", "tok_s": 80, "ttft_ms": 300})
    assert (target.tok_s, target.ttft_ms) == (80, 300)
    assert TargetSettings.model_validate({"profile": "voice", "preset": "agent"}).tok_s is None


def test_the_models_of_the_simulated_fleet_are_not_known_yet(loaded: Load) -> None:
    assert loaded("slo: { t: { model: demo-chat } }\n").slo["t"].model == "demo-chat"


def test_clients_of_the_database_cannot_be_unknown(loaded: Load) -> None:
    settings = loaded(MODEL + "keys: database\nslo: { t: { client: made-later } }\n")
    assert settings.slo["t"].client == "made-later"
