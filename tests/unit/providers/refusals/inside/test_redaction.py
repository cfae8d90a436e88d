"""Secrets are removed from what providers say."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from random import Random

import pytest

from providers import redact_word
from providers.refusals import MASK, holds, redact, redact_json


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


KEY = "sk-proj-aB3xZ9kQ7-Lm_4TuVw8eR5yH1nJ6cD2"
PARTS = {"whole": KEY, "without its last four": KEY[:-4], "from the middle": KEY[11:29], "its end": KEY[-12:]}
ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "hex": lambda key: key.encode().hex(),
    "upper-case hex": lambda key: key.encode().hex().upper(),
    "base64": lambda key: b64encode(key.encode()).decode(),
    "base64 after one character": lambda key: b64encode(b":" + key.encode()).decode(),
    "base64 after two characters": lambda key: b64encode(b"u:" + key.encode()).decode(),
    "base64 for addresses": lambda key: urlsafe_b64encode(b">?" + key.encode()).decode(),
    "percent-encoded": lambda key: "".join(f"%{ord(each):02X}" for each in key),
    "percent-encoded twice": lambda key: "".join(f"%25{ord(each):02x}" for each in key),
    "HTML entities": lambda key: "".join(f"&#{ord(each)};" for each in key),
    "hexadecimal HTML entities": lambda key: "".join(f"&#x{ord(each):x};" for each in key),
    "escaped as in JSON": lambda key: "".join(f"\\u{ord(each):04x}" for each in key),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS)
def test_a_key_is_masked_in_every_usual_encoding_and_in_part(encoding: Callable[[str], str], part: str) -> None:
    random = Random(1)
    for _ in range(30):
        before, after = ("".join(random.choices("xyz .,:%&\\", k=random.randint(0, 20))) for _ in range(2))
        text = f"{before} {encoding(part)} {after}"
        shown = redact(text, ["another-secret", KEY])
        assert MASK in shown
        assert longest_common(shown, encoding(part)) < 12
        assert holds(text, ("another-secret", KEY))


def longest_common(text: str, other: str) -> int:
    return max(
        (
            size
            for size in range(1, len(other) + 1)
            if any(other[at : at + size] in text for at in range(len(other) - size + 1))
        ),
        default=0,
    )


def test_what_a_vendors_keys_begin_with_and_short_pieces_are_no_secret() -> None:
    for text in ("a key begins with proj-aB3xZ9", KEY[8:19], KEY[12:23].upper(), "proj-aB3xZ9kQ7"):
        assert redact(text, [KEY]) == text


def test_of_an_address_only_the_whole_is_secret() -> None:
    address = "https://hooks.example/services/T0123/B0123"
    assert redact(f"{address} https://hooks.example/other", [address]) == "*** https://hooks.example/other"


def test_a_text_without_keys_stays_as_it_was_encoded() -> None:
    text = "100 %25 &amp; \\u0041 Ärger İstanbul"
    assert redact(text, [KEY]) == text
    assert redact(f"İİ {KEY}", [KEY]) == "İİ ***"
