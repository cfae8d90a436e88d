"""A key's name tells it from the others, and gives nobody the key."""

from providers.keys.ring import key_names

LONG = "sk-0123456789abcdef"


def test_a_key_is_called_what_its_operator_calls_it() -> None:
    assert key_names([LONG, "x" * 20, "short"], ["search", None, "batch"]) == ("search", "…xxxx", "batch")


def test_a_key_without_a_name_is_told_by_its_last_four_characters() -> None:
    assert key_names([LONG, "0" * 16]) == ("…cdef", "…0000")


def test_a_short_key_shows_nothing_but_its_place() -> None:
    assert key_names([LONG, "0" * 15, ""]) == ("…cdef", "#2", "#3")


def test_keys_that_end_alike_are_told_by_their_places() -> None:
    assert key_names([LONG, f"other-{LONG}", "x" * 16]) == ("#1", "#2", "…xxxx")
