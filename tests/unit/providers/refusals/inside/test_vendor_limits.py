"""How many tokens an answer may have, by a refusal: in words of any vendor, and what only sounds so."""

import pytest

from providers.refusals.vendor_limits import longest_in


@pytest.mark.parametrize(
    ("said", "most"),
    [
        ("max_tokens\u53c2\u6570\u975e\u6cd5: [1,131072]", 131072),  # Zhipu
        ("Invalid value for max_output_tokens: 100000 must be <= 65536", 65536),
        ("max_new_tokens: must be <= 4096", 4096),
        ("Requested max_tokens 100000 exceeds limit 32768 for model", 32768),
        ("the value of max_tokens exceeds the maximum allowed (16384)", 16384),
        ("max_tokens must be at most 8192", 8192),
        ("field max_tokens invalid, should be in [1, 16384]", 16384),
        ("too large max_tokens: 40960 (max 32768)", 32768),
        ("max_completion_tokens (100000) must be at most 98304", 98304),
        ("maxOutputTokens: 100000 must be less than or equal to 65536", 65536),
    ],
)
def test_a_bound_behind_the_field_is_the_longest_answer(said: str, most: int) -> None:
    assert longest_in(said) == most


@pytest.mark.parametrize(
    "said",
    [
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length",
        "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
        "max_tokens must be at least 1024",
        "`thinking.budget_tokens` must be at most 24576 beside `max_tokens`",
        "max_tokens of this request exceeds the limit 6000 tokens per minute",
        "max_tokens must be greater than thinking.budget_tokens",
        "max_prompt_tokens must be at most 8192",
    ],
)
def test_what_bounds_another_thing_does_not(said: str) -> None:
    assert longest_in(said) == 0
