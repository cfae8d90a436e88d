"""Whether two sets of answers are from one model: the test."""

from random import Random

import pytest

from gateway.detecting.writing import (
    LEAST_A_WEEK,
    LEAST_PROMPTS,
    Answers,
    alike,
    compared_weeks,
    discrepancy,
    finished,
)

WORDS = ("sea ", "wind ", "stone ", "bread ")


def text(random: Random, likely: float) -> str:
    """Return a text whose words are the likeliest one with ``likely``."""
    return "".join(WORDS[0] if random.random() < likely else random.choice(WORDS) for _ in range(30))


def answers(likely: float, seed: int, number: int = 10) -> Answers:
    random = Random(seed)
    return {str(prompt): [text(random, likely) for _ in range(number)] for prompt in range(4)}


def test_texts_are_alike_by_the_characters_at_each_position_and_padded() -> None:
    found = alike(["abcd", "abxd", "ab", ""])
    assert found[0] == [0.0, 0.75, 0.5, 0.0]
    assert found[2][3] == 0.5  # both are padded at two of four places
    assert [row[place] for place, row in enumerate(found)] == [0.0] * 4


def test_the_discrepancy_is_that_of_its_definition() -> None:
    a, b = ([each.strip().replace(" ", "_") for each in answers(*of)["0"]] for of in ((0.9, 1, 6), (0.2, 2, 9)))
    length = max(map(len, [*a, *b]))

    def kernel(x: str, y: str) -> float:
        return sum(one == other for one, other in zip(x.ljust(length), y.ljust(length), strict=True)) / length

    within = sum(kernel(x, y) for i, x in enumerate(a) for j, y in enumerate(a) if i != j) / (6 * 5)
    other = sum(kernel(x, y) for i, x in enumerate(b) for j, y in enumerate(b) if i != j) / (9 * 8)
    across = sum(kernel(x, y) for x in a for y in b) / (6 * 9)
    found = discrepancy({"0": a}, {"0": b}, seed=1, permutations=10)
    assert found is not None
    assert found.mmd2 == pytest.approx(within + other - 2 * across)
    assert (found.prompts, found.answers) == (1, (6, 9))


def test_one_model_is_hardly_ever_told_from_itself_and_another_one_is() -> None:
    same = [
        discrepancy(answers(0.5, seed), answers(0.5, 1000 + seed), seed=seed, permutations=99) for seed in range(40)
    ]
    assert sum(each is not None and each.p <= 0.05 for each in same) <= 6  # 2 are expected; seeds are fixed
    other = discrepancy(answers(0.5, 1), answers(0.8, 2), seed=1, permutations=999)
    assert other is not None
    assert other.p == pytest.approx(1 / 1000)


def test_what_is_clearly_no_difference_is_found_with_fewer_permutations() -> None:
    a, b = answers(0.5, 1), answers(0.5, 1001)
    whole, short = (discrepancy(a, b, seed=1, permutations=2000, enough=enough) for enough in (None, 20))
    assert whole is not None
    assert short is not None
    assert short.mmd2 == whole.mmd2
    assert short.p == pytest.approx(whole.p, abs=0.2)
    assert short.p > 0.05
    other = discrepancy(a, answers(0.9, 2), seed=1, permutations=999, enough=20)
    assert other is not None
    assert other.p == pytest.approx(1 / 1000)


def test_texts_that_are_all_the_same_show_nothing() -> None:
    found = discrepancy({"0": ["yes"] * 10}, {"0": ["yes"] * 10}, seed=1, permutations=50)
    assert found is not None
    assert (found.mmd2, found.p) == (0.0, 1.0)


def test_prompts_with_few_answers_do_not_count() -> None:
    assert discrepancy({"0": ["a"] * 10}, {"0": ["a"] * 4}, seed=1) is None


def test_weeks_are_compared_only_with_enough_answers_to_enough_prompts() -> None:
    def week(prompts: int, number: int) -> Answers:
        return {str(prompt): [f"{prompt} {each}" for each in range(number)] for prompt in range(prompts)}

    whole = week(LEAST_PROMPTS, LEAST_A_WEEK)
    assert finished(compared_weeks(whole, whole)) is not None
    assert finished(compared_weeks(whole, week(LEAST_PROMPTS - 1, LEAST_A_WEEK))) is None
    assert finished(compared_weeks(week(LEAST_PROMPTS, LEAST_A_WEEK - 1), whole)) is None
    assert finished(compared_weeks({}, whole)) is None
