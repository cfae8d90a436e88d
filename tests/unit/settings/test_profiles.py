"""A profile changes the defaults of a race; what is said beside it, and what the operator pays, stand."""

from collections.abc import Callable

import pytest

from gateway.core.calls import Mode, Objective
from gateway.settings import PROFILES, Profile, RaceSettings, Settings, TakeoverSettings, When, profile_takeover

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
    race = RaceSettings(
        budget=budget, usd_per_day=5.0, extra_usd_per_call=0.1, value_usd_per_s=0.02, max_prompt_tokens=100
    )

    laid = race.under(profile)

    assert laid.budget <= budget
    assert laid.value_usd_per_s == 0.02
    assert (laid.usd_per_day, laid.extra_usd_per_call, laid.max_prompt_tokens) == (5.0, 0.1, 100)


def test_leaving_the_batch_profile_does_not_raise_its_budget() -> None:
    assert RaceSettings.model_validate({"profile": "batch"}).under(Profile.CHAT).budget == 0


def test_what_is_written_beside_a_profile_is_known_from_what_the_profile_says() -> None:
    race = RaceSettings.model_validate({"profile": "voice", "mode": "race", "width": None})

    assert race.model_fields_set == {"profile", "mode"}
    laid = race.under(Profile.CHAT)
    assert (laid.mode, laid.objective, laid.reading_tok_s) == (Mode.RACE, Objective.READING, 30)
    assert laid.model_fields_set - {"budget"} == {"profile", "mode"}


@pytest.mark.parametrize("profile", Profile)
def test_no_profile_asks_for_a_hold_and_none_takes_one_away(profile: Profile) -> None:
    assert "hold" not in PROFILES[profile]
    for own in ({}, {"profile": "chat"}):
        for hold in (True, False):
            race = RaceSettings.model_validate({**own, "hold": hold})
            assert race.under(profile).holds(streamed=True) is hold


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("hold", [None, True, False])
def test_a_stream_is_held_only_where_that_is_written(objective: Objective, hold: bool | None) -> None:
    race = RaceSettings.model_validate({"objective": objective, "hold": hold})

    asks = objective in {Objective.READING, Objective.COMPLETION}
    assert race.holds(streamed=True) is (asks if hold is None else hold)
    assert race.holds(streamed=False) is (hold is not False)
    assert RaceSettings.model_validate({"profile": "agent", **race.model_dump(exclude_unset=True)}).holds(
        streamed=True
    ) is race.holds(streamed=True)


@pytest.mark.parametrize(
    ("profile", "own", "when", "within_s", "is_slow_rescued"),
    [
        ("voice", {}, "always", 4, True),
        ("voice", {"when": "never"}, "never", 10, False),
        ("voice", {"when": "asked"}, "asked", 10, False),
        ("voice", {"when": "always"}, "always", 4, True),
        ("voice", {"when": "always", "slow": False}, "always", 4, False),
        ("voice", {"when": "always", "within_s": 2}, "always", 2, True),
        ("chat", {}, "never", 10, False),
        (None, {"when": "always"}, "always", 10, False),
    ],
)
def test_the_voice_profile_finishes_answers_unless_that_is_set_otherwise(
    profile: str | None, own: dict[str, object], when: str, within_s: float, is_slow_rescued: bool
) -> None:
    settings = TakeoverSettings.model_validate(own)
    made = profile_takeover(None if profile is None else Profile(profile), settings)

    assert (made.when, made.within_s, made.slow is not None) == (When(when), within_s, is_slow_rescued)


@pytest.mark.parametrize(
    ("beside", "mode"),
    [
        ({}, Mode.RACE),
        ({"budget": 1.0}, Mode.RACE),
        ({"budget": 0.3}, Mode.HEDGE),  # all calls are served by it, as late as it pays for
        ({"budget": 0.3, "mode": "race"}, Mode.RACE),
        ({"budget": 1.0, "width": 3}, Mode.HEDGE),
        ({"budget": 0.0}, Mode.RACE),  # which is told as narrowed
    ],
)
def test_a_race_that_the_budget_does_not_pay_for_in_each_call_is_a_hedge_in_all(
    beside: dict[str, object], mode: Mode
) -> None:
    race = RaceSettings.model_validate({"profile": "voice", **beside})

    assert race.mode is mode
    assert race.model_fields_set == {"profile", *beside}
    if "mode" not in beside and "width" not in beside:
        assert RaceSettings.model_validate(beside).under(Profile.VOICE).mode is mode
