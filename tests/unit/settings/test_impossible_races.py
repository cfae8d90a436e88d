"""A race that cannot be meant is refused with a sentence, at its line; one that may not be meant is only noted."""

from collections.abc import Callable

import pytest

from gateway.settings import Settings, doubtful_model

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]
PRICED = "{ deployment: ollama/x, price_per_mtok: { input: 0, output: 0 } }"


def model(race: str, deployments: str = "ollama/x, ollama/y") -> str:
    return f"models:\n  m:\n    deployments: [{deployments}]\n    race: {{ {race} }}\n"


@pytest.mark.parametrize(
    ("race", "words"),
    [
        ("width: 0", "race.width: must be at least 1"),
        ("budget: -0.1", "race.budget: must be at least 0"),
        ("objective: fastest", "race.objective: must be 'auto', 'first_token', 'reading', 'completion' or 'cost'"),
        ("profile: gaming", "race.profile: must be 'chat', 'voice', 'agent' or 'batch'"),
        ("profile: [chat]", "race.profile: must be"),
        ("usd_per_day: -1", "race.usd_per_day: must be at least 0"),
        ("min_tok_s: 0", "race.min_tok_s: must be above 0"),
        (
            "hedge_delay_s: 0.5",
            "race.hedge_delay_s: has an effect in mode hedge only, not in auto: set mode: hedge, or remove it",
        ),
        ("ttft_ms: 5", "race.ttft_ms: 5 cannot be met: no first token is measured below 10 ms"),
        (
            "min_tok_s: 9000",
            "race.min_tok_s: 9000 cannot be met: above 5000 tok/s an answer counts as a burst",
        ),
        ("mode: race, width: 3", "race.width: 3 deployments cannot race, the model has 2: add one, or lower width"),
        (
            "win_on: valid, mode: single",
            "race.win_on: valid needs a second deployment to ask if an answer is not: set mode: race, hedge or auto",
        ),
        ("objective: cost, ttft_ms: 800", "race.objective: cost needs a known price"),
        ("profile: batch", "race.objective: cost needs a known price: set price_per_mtok"),
    ],
)
def test_an_impossible_race_is_refused_with_the_reason(problems: Problems, race: str, words: str) -> None:
    (problem,) = problems(model(race))

    assert problem.startswith("gateway.yaml:4: models.m.race")
    assert words in problem


def test_the_cheapest_needs_to_be_told_how_fast_is_fast_enough(problems: Problems) -> None:
    (problem,) = problems(model("objective: cost", PRICED))

    assert problem.endswith("race.objective: cost chooses the cheapest that is fast enough: set ttft_ms")


def test_a_deployment_that_may_have_nothing_in_flight_is_refused(problems: Problems) -> None:
    (problem,) = problems(model("mode: auto", "{ deployment: ollama/x, max_in_flight: 0 }"))

    assert "deployments[0].max_in_flight: must be at least 1" in problem


def test_everything_wrong_with_two_races_is_said_at_once(problems: Problems) -> None:
    text = "models:\n  a: { deployments: [ollama/x], race: { width: 0, hedge_delay_s: 1 } }\n"
    text += "  b: { deployments: [ollama/x], race: { objective: cost } }\n"

    assert [problem.split(": ")[1] for problem in problems(text)] == [
        "models.a.race.width",
        "models.a.race.hedge_delay_s",
        "models.b.race.objective",
        "models.b.race.objective",
    ]


@pytest.mark.parametrize(
    ("race", "deployments"),
    [
        ("mode: hedge, hedge_delay_s: 0.5", "ollama/x, ollama/y"),
        ("mode: race, width: 3", "ollama/x"),  # it races itself
        ("objective: cost, ttft_ms: 800", f"{PRICED}, ollama/y"),
        ("profile: voice", "ollama/x, ollama/y"),
        ("budget: 0", "ollama/x, ollama/y"),
    ],
)
def test_what_can_be_meant_is_taken(loaded: Load, race: str, deployments: str) -> None:
    assert list(loaded(model(race, deployments)).models) == ["m"]


def test_a_daily_limit_without_any_price_is_noted(loaded: Load) -> None:
    settings = loaded(model("usd_per_day: 5"))

    (note,) = doubtful_model("m", settings.models["m"], priced=False)

    where = "models.m.deployments[]"
    assert note == f"model 'm': usd_per_day has no effect, because no price is known: set price_per_mtok in {where}"
    assert not list(doubtful_model("m", settings.models["m"], priced=True))


def test_a_value_without_any_price_is_noted(loaded: Load) -> None:
    settings = loaded(model("value_usd_per_s: 0.02"))

    (note,) = doubtful_model("m", settings.models["m"], priced=False)

    where = "models.m.deployments[]"
    assert note == f"model 'm': value_usd_per_s has no effect, because no price is known: set price_per_mtok in {where}"
    assert not list(doubtful_model("m", settings.models["m"], priced=True))


@pytest.mark.parametrize(
    ("race", "words"),
    [
        ("mode: hedge", "in mode hedge: set mode: auto"),
        ("objective: cost, ttft_ms: 800", "under the objective cost, which buys no seconds"),
        ("budget: 0", "because budget is 0: no extra attempt is started"),
    ],
)
def test_a_value_that_buys_nothing_is_noted(loaded: Load, race: str, words: str) -> None:
    settings = loaded(model(f"value_usd_per_s: 0.02, {race}", PRICED))

    (note,) = doubtful_model("m", settings.models["m"], priced=True)

    assert note == f"model 'm': value_usd_per_s has no effect {words}".replace("effect because", "effect, because")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("-0.01", "must be at least 0, not -0.01"),
        (".inf", "must be a finite number, not inf"),
        (".nan", "must be a finite number, not nan"),
        ("much", "must be a number, not 'much'"),
    ],
)
def test_a_value_that_is_no_sum_of_dollars_is_refused(problems: Problems, value: str, words: str) -> None:
    (problem,) = problems(model(f"value_usd_per_s: {value}"))

    assert problem.endswith(f"models.m.race.value_usd_per_s: {words}")


def test_a_value_of_nothing_switches_the_rule_off_and_is_no_doubt(loaded: Load) -> None:
    settings = loaded(model("value_usd_per_s: 0"))

    assert not list(doubtful_model("m", settings.models["m"], priced=False))


def test_a_width_the_budget_does_not_pay_for_is_noted(loaded: Load) -> None:
    settings = loaded(model("mode: race, width: 2, budget: 0.1"))

    (note,) = doubtful_model("m", settings.models["m"], priced=True)

    assert "races of 2 start 1 extra attempts a call, the budget pays for 0.1" in note


def test_a_hold_that_compares_nothing_is_noted(loaded: Load) -> None:
    settings = loaded(model("objective: cost, ttft_ms: 800, hold: true", PRICED))

    (note,) = doubtful_model("m", settings.models["m"], priced=True)

    assert note == "model 'm': hold has no effect under the objective cost, which compares no speeds"


@pytest.mark.parametrize(
    ("race", "deployments", "words"),
    [
        ("win_on: valid", "ollama/x", "no other deployment to ask"),
        ("win_on: valid, budget: 0", "ollama/x, ollama/y", "asks no other deployment after an invalid answer"),
    ],
)
def test_waiting_for_a_valid_answer_with_nobody_else_to_ask_is_noted(
    loaded: Load, race: str, deployments: str, words: str
) -> None:
    settings = loaded(model(race, deployments))

    (note,) = doubtful_model("m", settings.models["m"], priced=True)

    assert words in note


@pytest.mark.parametrize("deployments", ["ollama/x", "ollama/x, ollama/y"])
def test_a_race_for_a_valid_answer_is_not(loaded: Load, deployments: str) -> None:
    settings = loaded(model("win_on: valid, mode: race", deployments))

    assert not list(doubtful_model("m", settings.models["m"], priced=True))
