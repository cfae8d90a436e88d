"""A profile changes the defaults of a race; what is said beside it, and what the operator pays, stand."""

from collections.abc import Callable

import pytest

from gateway.calls import Mode, Objective
from gateway.settings import Settings
from gateway.settings.model import RaceSettings
from gateway.settings.profiles import PROFILES, Profile

Load = Callable[..., Settings]


@pytest.mark.parametrize("profile", Profile)
def test_every_profile_is_a_race_that_can_be_loaded(loaded: Load, profile: Profile) -> None:
    deployment = "{ deployment: ollama/x, price_per_mtok: { input: 1, output: 1 } }"
    settings = loaded(f"models: {{ m: {{ deployments: [{deployment}], race: {{ profile: {profile} }} }} }}\n")

    race = settings.models["m"].race
    assert race.profile is profile
    assert all(getattr(race, name) == value for name, value in PROFILES[profile].items())


def test_what_is_said_beside_a_profile_is_stronger() -> None:
    race = RaceSettings.model_validate({"profile": "voice", "min_tok_s": 50, "mode": "hedge"})

    assert (race.min_tok_s, race.mode, race.objective) == (50, Mode.HEDGE, Objective.READING)
    assert race.reading_tok_s == 100


def test_a_null_beside_a_profile_is_left_to_the_profile() -> None:
    race = RaceSettings.model_validate({"profile": "batch", "ttft_ms": None, "budget": None})

    assert (race.ttft_ms, race.budget) == (30_000, 0)


def test_a_profile_laid_over_a_model_replaces_its_own_profile_and_what_is_said_there() -> None:
    race = RaceSettings.model_validate({"profile": "voice", "objective": "completion", "width": 3, "win_on": "answer"})

    laid = race.under(Profile.BATCH)

    assert (laid.profile, laid.objective, laid.ttft_ms) == (Profile.BATCH, Objective.COST, 30_000)
    assert laid.mode is Mode.AUTO  # voice's race went with voice
    assert laid.min_tok_s is None
    assert (laid.width, laid.win_on) == (3, "answer")  # no profile says otherwise


@pytest.mark.parametrize("budget", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("profile", Profile)
def test_no_profile_raises_what_the_operator_pays(profile: Profile, budget: float) -> None:
    race = RaceSettings(budget=budget, usd_per_day=5.0, extra_usd_per_call=0.1, max_prompt_tokens=100)

    laid = race.under(profile)

    assert laid.budget <= budget
    assert (laid.usd_per_day, laid.extra_usd_per_call, laid.max_prompt_tokens) == (5.0, 0.1, 100)


def test_leaving_the_batch_profile_does_not_raise_its_budget() -> None:
    assert RaceSettings.model_validate({"profile": "batch"}).under(Profile.CHAT).budget == 0
