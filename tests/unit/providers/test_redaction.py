"""Secrets are removed from what providers say."""

from random import Random

import pytest

from providers.redaction import redact, redact_json, redact_word


def test_every_known_secret_goes_the_longer_first() -> None:
    assert redact("a my-secret-long b my-secret c", ["my-secret", "my-secret-long"]) == "a *** b *** c"


def test_a_short_key_of_a_local_server_is_a_word_and_stays() -> None:
    assert redact("no such box", ["x"]) == "no such box"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Incorrect API key provided: sk-proj-abcd1234efgh5678.", "Incorrect API key provided: ***"),
        ("key sk-ab***********xyz is wrong", "key *** is wrong"),
        ("gsk_abcdefgh12345678", "***"),
        ("AIzaSyA1234567890", "***"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ("at http://me:pass@host/v1", "at http://me:***@host/v1"),
        ("GET /v1?api-key=abc&x=1", "GET /v1?api-key=***&x=1"),
        ("a risk-free task at https://host:8000/v1", "a risk-free task at https://host:8000/v1"),
    ],
)
def test_what_looks_like_a_key_goes_too(text: str, redacted: str) -> None:
    assert redact(text).rstrip(".") == redacted.rstrip(".")


def test_json_is_redacted_string_by_string() -> None:
    value = {"a": ["my-secret", 1, None], "my-secret": {"b": True}}
    assert redact_json(value, ["my-secret"]) == {"a": ["***", 1, None], "***": {"b": True}}


def test_of_a_word_the_same_goes() -> None:
    random, secrets = Random(1), ("secret-key-1", "x")
    pieces = [
        "sk-",
        "hf_",
        "AIza",
        "secret-key-1",
        "chatcmpl-",
        "0a",
        "Zq9-",
        "_",
        "-",
        ".",
        "?key=",
        "é",
        "·",
        "Bearer ",
    ]
    words = ["".join(random.choices(pieces, k=random.randint(0, 7))) for _ in range(5000)]
    assert [redact_word(word, secrets) for word in words] == [redact(word, secrets) for word in words]
    assert sum(redact(word, secrets) != word for word in words) > 1000
