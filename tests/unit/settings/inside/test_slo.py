"""Targets in the configuration: presets, and what is refused, each in a sentence."""

from collections.abc import Callable

import pytest

from gateway.core.targets import Definition, Target
from gateway.settings import PROFILES, ConfigurationError, Profile, Settings, doubtful, targets_of
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


WRONG = [
    ("{ objective: 1 }", "slo.t.objective: 1 leaves no error budget"),
    ("{ objective: 99 }", "slo.t.objective: is a share, not per cent: write 0.99"),
    ("{ objective: 0 }", "slo.t.objective: must be a share between 0 and 1"),
    ("{ objective: -0.5 }", "slo.t.objective: must be a share between 0 and 1"),
    ("{ objective: .nan }", "slo.t.objective: must be a finite number, not nan"),
    ("{ ttft_ms: -500 }", "slo.t.ttft_ms: -500 cannot be met"),
    ("{ ttft_ms: 3 }", "slo.t.ttft_ms: 3 cannot be met: no first token is measured below 10 ms"),
    ("{ ttft_ms: .inf }", "slo.t.ttft_ms: must be a finite number, not inf"),
    ("{ tok_s: 0 }", "slo.t.tok_s: must be more than 0"),
    ("{ tok_s: 9000 }", "slo.t.tok_s: 9000 cannot be met"),
    ("{ gap_ms: -1 }", "slo.t.gap_ms: must be above 0"),
    ("{ days: 0 }", "slo.t.days: must be at least 1"),
    ("{ days: 400 }", "slo.t.days: must be at most 90"),
    ("{ modell: llama }", "slo.t.modell: unknown key; did you mean 'model'?"),
    ("{ model: lama }", "slo.t.model: there is no model 'lama'; did you mean 'llama'?"),
    ("{ client: bert }", "slo.t.client: there is no client 'bert'; known: none"),
    ("{ profile: voise }", "slo.t.profile: must be 'chat', 'voice', 'agent' or 'batch'"),
]


@pytest.mark.parametrize(("said", "words"), WRONG)
def test_what_is_wrong_is_said_with_its_line(loaded: Load, said: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        loaded(f"{MODEL}slo:\n  t: {said}\n")
    [problem] = refused.value.problems
    assert problem.line == 4
    assert problem.message.startswith(words)


def test_everything_wrong_is_said_at_once(loaded: Load) -> None:
    with pytest.raises(ConfigurationError) as refused:
        loaded(MODEL + "slo: { a: { objective: 99, ttft_ms: -1 }, b: { model: qwen }, c: 7 }\n")
    assert len(refused.value.problems) == 4


def test_a_target_may_be_of_a_deployment_that_requests_name(loaded: Load) -> None:
    assert loaded(MODEL + "slo: { t: { model: ollama/y } }\n").slo["t"].model == "ollama/y"
    with pytest.raises(ConfigurationError, match="there is no model 'olama/y'"):
        loaded(MODEL + "slo: { t: { model: olama/y } }\n")


def test_the_models_of_the_simulated_fleet_are_not_known_yet(loaded: Load) -> None:
    assert loaded("slo: { t: { model: demo-chat } }\n").slo["t"].model == "demo-chat"


def test_clients_of_the_database_cannot_be_unknown(loaded: Load) -> None:
    settings = loaded(MODEL + "keys: database\nslo: { t: { client: made-later } }\n")
    assert settings.slo["t"].client == "made-later"


def test_a_target_does_not_look_back_further_than_sums_are_kept(loaded: Load) -> None:
    with pytest.raises(ConfigurationError, match="28 days are more than the 7 for which sums are kept"):
        loaded(MODEL + "ledger: { keep_rollups_days: 7 }\nslo: { t: { model: llama } }\n")


def test_a_speed_that_nobody_can_measure_is_noted(loaded: Load) -> None:
    models = (
        "providers: { ollama: {} }\n"
        "models: { llama: { deployments: [{ deployment: ollama/x, upstream_stream: false }] }, "
        "qwen: { deployments: [{ deployment: ollama/x, upstream_stream: false }, ollama/y] } }\n"
    )
    slo = "slo: { a: { model: llama, tok_s: 30, gap_ms: 500 }, b: { model: qwen, tok_s: 30 }, c: { model: llama } }\n"
    [doubt] = [each for each in doubtful(loaded(models + slo)) if each.startswith("slo")]
    assert doubt.startswith("slo 'a': no deployment of model 'llama' streams, so tok_s and gap_ms cannot be judged")
