"""What a person reads when the gateway has started."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.server import demo_before_it_runs
from gateway.server.server import welcome
from gateway.settings import Settings

DEPLOYMENTS = {"deployments": ["a/x"]}


@pytest.mark.parametrize(
    ("providers", "models", "first"),
    [
        (["a", "b", "c"], ["m"], "3 providers answer for 1 model."),
        (["a", "b"], ["m", "n"], "2 providers answer for 2 models."),
        (["a"], ["m"], "1 provider answers for 1 model."),
        (["a", "b"], [], "2 providers and no model: name deployments directly, as provider/model."),
    ],
)
def test_one_thing_is_not_called_several(providers: list[str], models: list[str], first: str) -> None:
    settings = Settings.model_validate(
        {
            "providers": {name: {"base_url": "http://127.0.0.1:1/v1"} for name in providers},
            "models": dict.fromkeys(models, DEPLOYMENTS),
        }
    )

    assert welcome(settings, "http://127.0.0.1:4000").splitlines()[1] == first


def test_of_each_model_it_is_said_whether_it_can_race() -> None:
    providers = {name: {"base_url": "http://127.0.0.1:1/v1"} for name in "ab"}
    models = {"m": {"deployments": ["a/x", "b/x"]}, "n": {"deployments": ["a/x"], "fallbacks": ["m"]}}
    settings = Settings.model_validate({"providers": providers, "models": models})

    assert welcome(settings, "http://127.0.0.1:4000").splitlines()[2:4] == [
        "  m can race: 2 deployments at a, b; extra attempts per call: 1",
        "  n cannot race: it has one deployment; if it fails or is late, its fallback answers (m)",
    ]


@pytest.mark.parametrize(
    ("fields", "needs_key", "says_how"),
    [
        ({}, False, False),
        ({"clients": {"me": {"key_sha256": "a" * 64}}}, True, False),
        ({"keys": "database"}, True, True),
    ],
)
def test_the_examples_send_a_key_where_one_is_needed(fields: dict[str, Any], needs_key: bool, says_how: bool) -> None:
    settings = Settings.model_validate({"providers": {"a": {"base_url": "http://127.0.0.1:1/v1"}}, **fields})

    text = welcome(settings, "http://127.0.0.1:4000")

    assert ("Bearer $HOLESHOT_KEY" in text) is needs_key
    assert ("holeshot keys new NAME" in text) is says_how


def test_the_simulated_fleet_says_which_key_has_a_name_that_is_not_read() -> None:
    settings = demo_before_it_runs(Settings())
    text = welcome(settings, "http://127.0.0.1:4000", {"GROQ_APIKEY": "made-up"})
    assert "\nGROQ_APIKEY is set, but is not read: did you mean GROQ_API_KEY (Groq)?\n" in text


def test_the_first_thing_to_try_is_a_race_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    provider = {"a": {"base_url": "http://127.0.0.1:1/v1"}}
    settings = Settings.model_validate({"providers": provider, "models": {"m": DEPLOYMENTS}})

    text = welcome(settings, "http://127.0.0.1:4000")

    assert text.index(' race "Why race?"') < text.index("curl -N")
    program = Path(sys.executable).parent / "holeshot"
    if program.exists():
        assert f'  {os.path.relpath(program)} race "Why race?"' in text.splitlines()
    without = welcome(Settings.model_validate({"providers": provider}), "http://127.0.0.1:4000")
    assert ' race "Why race?"' not in without


@pytest.mark.parametrize("is_there", [True, False])
def test_the_sdk_of_the_example_is_installed_first_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    if not is_there:
        monkeypatch.setitem(sys.modules, "openai", None)  # as if it were not installed
    settings = Settings.model_validate({"providers": {"a": {"base_url": "http://127.0.0.1:1/v1"}}})

    assert ("-m pip install openai" in welcome(settings, "http://127.0.0.1:4000")) is not is_there


def test_without_a_file_it_says_where_the_models_come_from_and_how_others_are_named() -> None:
    settings = Settings.model_validate(
        {"providers": {"openai": {"api_key": "k"}}, "models": {"gpt-6-luna": {"deployments": ["openai/gpt-6-luna"]}}}
    )

    text = welcome(settings, "http://127.0.0.1:4000", has_file=False)

    assert "There is no configuration file" in text
    assert "as openai/MODEL" in text
    assert " init`, and edit the file." in text
    assert "no configuration file" not in welcome(settings, "http://127.0.0.1:4000")
