"""Whether a model can race, and why not."""

from typing import Any

import pytest

from gateway.settings import Settings, who_can_race

TWO = ["a/x", "b/x"]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"deployments": TWO}, "can race: 2 deployments at a, b; extra attempts per call: 1"),
        (
            {"deployments": TWO, "race": {"budget": 0.1}},
            "can race: 2 deployments at a, b; extra attempts per call: 0.1",
        ),
        (
            {"deployments": ["a/x", "a/y"], "race": {"mode": "hedge"}},
            "can race: 2 deployments at a; extra attempts per call: 1",
        ),
        ({"deployments": ["a/x"], "race": {"mode": "hedge"}}, "can race: with itself; extra attempts per call: 1"),
        (
            {"deployments": ["a/x"]},
            "cannot race: it has one deployment: add another, or set race.mode: hedge to ask it again when it is late",
        ),
        (
            {"deployments": ["a/x"], "fallbacks": ["other"]},
            "cannot race: it has one deployment; if it fails or is late, its fallback answers (other)",
        ),
        (
            {"deployments": ["a/x", {"deployment": "b/x", "enabled": False}]},
            "cannot race: it has one deployment: add another, or set race.mode: hedge to ask it again when it is late",
        ),
        (
            {"deployments": ["a/x", {"deployment": "b/x", "canary": 0.1}]},
            "cannot race: it has one deployment: add another, or set race.mode: hedge to ask it again when it is late",
        ),
        ({"deployments": TWO, "race": {"mode": "single"}}, "cannot race: its race.mode is single"),
        ({"deployments": TWO, "race": {"budget": 0}}, "cannot race: its race.budget is 0"),
        ({"deployments": [{"deployment": "a/x", "enabled": False}]}, "cannot race: all its deployments are disabled"),
        (
            {"deployments": [{"deployment": "a/x", "canary": 0.5}]},
            "cannot race: its deployments are canaries, which get their share of calls and no others",
        ),
    ],
)
def test_each_model_says_whether_it_can_race_and_why_not(model: dict[str, Any], said: str) -> None:
    settings = Settings.model_validate({"models": {"m": model, "other": {"deployments": ["c/z"]}}})

    assert str(who_can_race(settings)["m"]) == said
