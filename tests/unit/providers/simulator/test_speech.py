"""What simulated providers say."""

from random import Random

import pytest

from providers.simulator import count_tokens, speak


def test_the_same_random_says_the_same() -> None:
    assert speak(Random(1), 100) == speak(Random(1), 100)


def test_another_random_says_something_else() -> None:
    assert speak(Random(1), 100) != speak(Random(2), 100)


@pytest.mark.parametrize("length", [1, 60, 200, 2000])
def test_an_answer_has_about_the_length_asked_and_ends_with_a_sentence(length: int) -> None:
    tokens = speak(Random(4), length)
    assert length <= len(tokens) < length + 40
    assert tokens[-1].endswith(".")


def test_tokens_join_to_clean_text() -> None:
    text = "".join(speak(Random(9), 300))
    assert "  " not in text
    assert text == text.strip()
    assert all(sentence[0].isupper() for sentence in text.split(". "))
    assert text.split(" ")[0] in {"A", "Think", "Latency", "The", "Nobody", "Two"}


def test_a_token_is_about_four_characters() -> None:
    assert [count_tokens(text) for text in ("", "a", "abcd", "abcde")] == [0, 1, 1, 2]
