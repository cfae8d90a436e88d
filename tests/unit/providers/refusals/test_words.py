"""What a provider's error may leave behind: nothing of the request that it quotes."""

import base64
import html
import json
import textwrap
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest

from providers import ErrorKind, UpstreamError, keep

CANARY = 'Zanzibar\'s "quiet" heron carries 7 brass keys — über den Fluss\nC:\\new\\table, at 5 < 6 & never 100% twice'


def traced(text: str) -> str:
    return f'Traceback (most recent call last):\n  File "/srv/app.py", line 3, in read\nValueError: {text!r}'


ECHOES: Mapping[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": json.dumps,
    "JSON in JSON": lambda text: json.dumps(json.dumps(text)),
    "escaped whole": lambda text: "".join(f"\\u{ord(each):04x}" for each in text),
    "Base64": lambda text: base64.b64encode(text.encode()).decode(),
    "Base64 of URLs, without its beginning": lambda text: base64.urlsafe_b64encode(text.encode()).decode()[5:-2],
    "Base64 in lines": lambda text: base64.encodebytes(text.encode()).decode(),
    "URL": quote,
    "form": quote_plus,
    "URL twice": lambda text: quote(quote(text)),
    "HTML": html.escape,
    "HTML of numbers": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "traceback": traced,
    "bytes of Python": lambda text: repr(text.encode()),
    "cut at its end": lambda text: f"{text[:61]}…",
    "cut at its beginning": lambda text: text[17:],
    "upper case": str.upper,
    "lines": lambda text: "\n".join(f"> {line}" for line in textwrap.wrap(text, 13)),
    "lines that break words": lambda text: "\n".join(text[at : at + 11] for at in range(0, len(text), 11)),
    "hexadecimal": lambda text: text.encode().hex(),
    "words in a list": lambda text: repr(text.split()),
}  # fmt: skip


def request(field: str, canary: str) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "user", "content": "hello"}
    fields: dict[str, dict[str, Any]] = {
        "message": {"messages": [said | {"content": f"Before this. {canary} And after."}]},
        "part": {"messages": [said | {"content": [{"type": "text", "text": canary}]}]},
        "name": {"messages": [said | {"name": canary}]},
        "tool": {"tools": [{"type": "function", "function": {"name": "f", "description": canary}}]},
        "parameter": {"tools": [{"type": "function", "function": {"parameters": {"properties": {canary: {}}}}}]},
        "arguments": {
            "messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": json.dumps({"q": canary})}}]}]
        },
        "schema": {"response_format": {"json_schema": {"schema": {"enum": [canary]}}}},
        "metadata": {"metadata": {"order": canary}},
        "name of metadata": {"metadata": {canary: "x"}},
        "user": {"user": canary},
        "stop": {"stop": [canary]},
        "prediction": {"prediction": {"type": "content", "content": canary}},
        "field": {"something_new": canary},
    }
    return {"model": "m", "messages": [said], "max_tokens": 5, **fields[field]}


FIELDS = (
    "message", "part", "name", "tool", "parameter", "arguments", "schema", "metadata", "name of metadata", "user",
    "stop", "prediction", "field",
)  # fmt: skip


def kept(message: str, body: Mapping[str, Any], *, names: tuple[str, ...] = (), models: tuple[str, ...] = ()) -> str:
    error = UpstreamError(ErrorKind.BAD_REQUEST, message, words=message, names=names)
    fields = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in body.items()}
    keep(error, (fields,), models=models)
    assert len(error.kept) <= 200
    return error.kept


def pieces(text: str) -> list[str]:
    """Return what would betray a canary: its longer words in any case, and their encodings."""
    words = [word for word in text.replace("\\", " ").split() if len(word) >= 5]
    return [word.casefold() for word in words]


@pytest.mark.parametrize("way", ECHOES)
def test_nothing_of_a_request_is_kept_that_an_error_quotes(way: str) -> None:
    echo = ECHOES[way](CANARY)
    for field in FIELDS:
        said = kept(f"Invalid value: {echo} is not of type 'integer'", request(field, CANARY))
        assert said.startswith("Invalid value"), field
        assert not [piece for piece in pieces(CANARY) if piece in said.casefold()], field
        assert len(said) < 130, (field, said)


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 10311 tokens.",
        "The model `llama-3.3-70b-versatile` does not exist or you do not have access to it.",
        "messages[1].content[0].image_url: Invalid type for 'tools[0].function.strict'",
    ],
)
def test_names_of_parameters_numbers_and_the_models_name_stay(message: str) -> None:
    body = request("message", "Please use llama-3.3-70b-versatile and set max_completion_tokens to 8192")
    assert kept(message, body, models=("llama-3.3-70b-versatile",)) == message


def test_of_a_message_that_quotes_its_request_code_and_type_are_kept_beside_the_rest() -> None:
    said = kept(f"Blocked: {CANARY}", request("message", CANARY), names=("content_filter", "invalid_request_error"))
    assert said == "Blocked: […] (content_filter, invalid_request_error)"


def test_a_code_that_stands_in_the_request_is_not_kept() -> None:
    secret = "anne_boleyn_was_beheaded"
    assert kept(f"{secret}: no", request("user", secret), names=(secret, "bad")) == "[…]: no (bad)"


def test_without_the_request_code_and_type_alone_are_kept() -> None:
    error = UpstreamError(ErrorKind.STREAM_ERROR, f"Blocked: {CANARY}", words=CANARY, names=("content_filter",))
    keep(error, None)
    assert error.kept == "content_filter"
    assert error.message == f"Blocked: {CANARY}"


def test_text_without_spaces_is_found_by_its_bytes() -> None:
    prompt = "今日は天気がいいので、散歩に行きましょう。"
    assert kept(f"Invalid: {prompt[4:18]}!", request("message", prompt)) == "Invalid: […]!"


def test_three_words_that_stand_in_the_request_too_are_no_quote() -> None:
    assert kept("it is not valid: seven", request("message", "I say it is not, of course")) == "it is not valid: seven"


def test_a_long_message_is_cut_to_what_is_kept() -> None:
    assert kept("word " * 300, request("message", CANARY)).endswith("…")


def test_a_search_that_would_hold_up_others_ends_with_code_and_type() -> None:
    prompt = " ".join(f"{number:x}" for number in range(700_000))
    said = " ".join(f"{number:x} {number + 1:x} zz" for number in range(0, 300_000, 3000))
    assert kept(said, {"prompt": prompt}, names=("bad_input",)) == "bad_input"


def test_of_a_request_with_too_many_values_only_code_and_type_are_kept() -> None:
    assert kept("too long", {"prompt": list(range(200_000))}, names=("too_long",)) == "too_long"
