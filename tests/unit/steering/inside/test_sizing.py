"""How the size of a prompt counts."""

from math import exp
from random import Random

import pytest

from gateway.steering.constants import KNEE_PRIOR_TOKENS, SIZE_REFERENCE_TOKENS
from gateway.steering.prediction import PromptSizeEffect, size_of, tokens_of


def taught(base_s: float, prefill_s_per_1000: float, calls: int, *, most_tokens: int = 32_000) -> PromptSizeEffect:
    """A deployment whose times are base + prefill, x lognormal(0, 0.4)."""
    random, sizing = Random(5), PromptSizeEffect()
    for _ in range(calls):
        tokens = int(exp(random.uniform(5.0, 10.4)))
        if tokens <= most_tokens:
            ttft_s = (base_s + prefill_s_per_1000 * tokens / 1000) * random.lognormvariate(0.0, 0.4)
            sizing.seen(size_of(tokens), ttft_s)
    sizing.fit(1.0)
    return sizing


def test_a_size_is_a_half_octave() -> None:
    assert [size_of(tokens) for tokens in (0, 64, 128, 181, 1000, 10**9)] == [0, 0, 2, 3, 8, 27]
    for size in range(28):
        assert size_of(round(tokens_of(size))) == size


def test_where_the_size_is_not_known_it_is_what_its_class_usually_has() -> None:
    assert [size_of(None, each) for each in (0, 1, 2, 9)] == [
        size_of(500),
        size_of(3000),
        size_of(16_000),
        size_of(16_000),
    ]


def test_nothing_known_is_the_usual_knee_and_the_reference_is_one() -> None:
    sizing = PromptSizeEffect()
    sizing.fit(1.0)
    assert sizing.knee_tokens == KNEE_PRIOR_TOKENS
    assert sizing.factor(size_of(round(SIZE_REFERENCE_TOKENS))) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("prefill_s", [0.012, 0.05, 0.3])
def test_the_factor_is_learned_from_first_tokens(prefill_s: float) -> None:
    sizing = taught(0.3, prefill_s, 3000)
    for tokens in (200, 1000, 4000, 16_000):
        true = (0.3 + prefill_s * tokens / 1000) / (0.3 + prefill_s * SIZE_REFERENCE_TOKENS / 1000)
        assert sizing.factor(size_of(tokens)) == pytest.approx(true, rel=0.2)


def test_first_tokens_of_one_size_say_nothing_of_others() -> None:
    sizing = PromptSizeEffect()
    for _ in range(100):
        sizing.seen(8, 5.0)
    sizing.fit(1.0)
    assert sizing.knee_tokens == pytest.approx(KNEE_PRIOR_TOKENS, rel=0.01)


def test_a_law_fades_over_hours() -> None:
    sizing = taught(0.3, 0.3, 400)
    before = sizing.knee_tokens
    sizing.seen(0, 0.3)
    sizing.fit(3600.0 * 24)
    assert before < sizing.knee_tokens <= KNEE_PRIOR_TOKENS * 1.1
