"""The figures personas draw: pure, so many thousands of requests cost nothing."""

from random import Random
from statistics import mean, median

import pytest

from providers.simulator import DEMO_FLEET, Fate, Persona


def runs(persona: Persona, n: int = 4000, prompt_tokens: int = 0) -> list[float]:
    random = Random(7)
    return [persona.draw(random, prompt_tokens).ttft_s for _ in range(n)]


def test_the_same_random_draws_the_same_run() -> None:
    persona = DEMO_FLEET[0]
    assert persona.draw(Random("a"), 100) == persona.draw(Random("a"), 100)


@pytest.mark.parametrize("persona", DEMO_FLEET, ids=lambda persona: persona.name)
def test_the_median_ttft_is_the_persona_s(persona: Persona) -> None:
    assert median(runs(persona)) == pytest.approx(persona.ttft_median_s, rel=0.1)


def test_a_slow_tail_is_some_six_times_slower() -> None:
    tail = Persona(name="p", ttft_median_s=0.2, ttft_sigma=0.0, tail_share=1.0)
    assert median(runs(tail)) == pytest.approx(1.2, rel=0.05)


def test_the_half_below_the_median_may_be_narrower() -> None:
    drawn_s = sorted(runs(Persona(name="p", ttft_median_s=0.2, ttft_sigma=0.8, ttft_sigma_below=0.1)))
    assert median(drawn_s) == pytest.approx(0.2, rel=0.02)
    assert drawn_s[len(drawn_s) // 20] > 0.16
    assert drawn_s[-len(drawn_s) // 20] > 0.6


def test_a_long_prompt_takes_its_prefill() -> None:
    persona = Persona(name="p", ttft_median_s=0.2, ttft_sigma=0.0, prefill_s_per_1k_tokens=0.1)
    assert persona.draw(Random(1), 5000).ttft_s == pytest.approx(0.7)


def test_gaps_between_tokens_average_to_the_speed() -> None:
    persona = Persona(name="p", ttft_median_s=0.2, gap_sigma=0.5)
    random = Random(3)
    assert mean(persona.gap_s(random, 100) for _ in range(5000)) == pytest.approx(0.01, rel=0.05)


def test_failures_come_at_their_share_and_mostly_before_the_first_token() -> None:
    persona = Persona(name="p", ttft_median_s=0.2, error_share=0.5)
    random = Random(5)
    fates = [persona.draw(random, 0).fate for _ in range(4000)]
    assert fates.count(Fate.ANSWER) / len(fates) == pytest.approx(0.5, abs=0.03)
    assert fates.count(Fate.BREAKS) < fates.count(Fate.ERROR_FIRST) < fates.count(Fate.REFUSED)


def test_the_fleet_is_five_distinct_providers_of_which_one_is_rate_limited() -> None:
    assert len({persona.name for persona in DEMO_FLEET}) == 5
    assert len({(persona.ttft_median_s, persona.ttft_sigma) for persona in DEMO_FLEET}) == 5
    assert len({persona.decode_tps for persona in DEMO_FLEET}) == 5
    assert [persona.name for persona in DEMO_FLEET if persona.requests_per_window] == ["sim-capped"]
    assert all(0 < persona.error_share <= 0.03 for persona in DEMO_FLEET)
