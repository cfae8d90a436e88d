"""The prompts of a bench: five classes, always the same words, on request with a salt that no prompt cache knows."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from random import Random
from typing import Any

import msgspec


class PromptKind(StrEnum):
    """The classes of prompts."""

    SHORT = "short"  # a question that is answered in a sentence
    LONG_ANSWER = "long_answer"  # an essay, cut off at the limit
    LONG_PROMPT = "long_prompt"  # a long text, and a question about it
    TOOL_CALL = "tool_call"  # a tool must be called
    JSON = "json"  # an answer in JSON


FIXED = ":fixed"  # after the name of a class: its prompt is the same each time, so that a cache may know it


class Lengths(msgspec.Struct, frozen=True):
    """How long prompts and answers are, in tokens."""

    long_prompt: int = 4000  # about
    long_answer: int = 512  # at most


class Expected(msgspec.Struct, frozen=True):
    """The tokens of an answer, to estimate its cost: about, and at most (``max_tokens``)."""

    about: int
    at_most: int


_NOTHING_MORE: Mapping[str, Any] = {}
_QUESTION = "Which are the three longest rivers of Europe? Answer in one sentence."
_ESSAY = "Write an essay of two thousand words on the history of the bicycle. Do not stop early."
_ABOUT_TEXT = "The text above is a ship's log. Say in one sentence what it is about."
_WEATHER = "What is the weather in Oslo now, in degrees Celsius? Call the tool."
_COUNTRIES = (
    'Return a JSON object with one key, "countries": a list of five countries of Africa, each an object with the keys'
    ' "name", "capital" and "population". Return JSON and nothing else.'
)
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Returns the present weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "The place, as in 'Bergen, Norway'."},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["place", "unit"],
        },
    },
}
_CHARS_PER_TOKEN = 4.5  # of the log's words, with common tokenizers


def kind_of(name: str) -> PromptKind:
    """Return the class of a name with or without ``FIXED``.

    Raises:
        ValueError: there is no such class.

    """
    return PromptKind(name.removesuffix(FIXED))


def expected_answer(name: str, lengths: Lengths) -> Expected:
    """Return how long the answer to a class of prompts is."""
    match kind_of(name):
        case PromptKind.SHORT:
            return Expected(40, 64)
        case PromptKind.LONG_ANSWER:
            return Expected(lengths.long_answer, lengths.long_answer)
        case PromptKind.LONG_PROMPT:
            return Expected(50, 96)
        case PromptKind.TOOL_CALL:
            return Expected(40, 160)
        case PromptKind.JSON:
            return Expected(160, 320)


def body(name: str, lengths: Lengths, salt: str, model: str) -> bytes:
    """Return the body of a streamed chat completion. ``salt`` begins the prompt, unless the class is a fixed one."""
    kind = kind_of(name)
    text, more = _QUESTION, _NOTHING_MORE
    match kind:
        case PromptKind.SHORT:
            pass
        case PromptKind.LONG_ANSWER:
            text = _ESSAY
        case PromptKind.LONG_PROMPT:
            text = f"{ship_log(lengths.long_prompt)}\n\n{_ABOUT_TEXT}"
        case PromptKind.TOOL_CALL:
            text, more = _WEATHER, {"tools": [_TOOL]}
        case PromptKind.JSON:
            text, more = _COUNTRIES, {"response_format": {"type": "json_object"}}
    if not name.endswith(FIXED):
        text = f"(Request {salt}; this line means nothing.)\n{text}"
    asked = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": expected_answer(name, lengths).at_most,
        **more,
    }
    return msgspec.json.encode(asked)


@cache
def ship_log(tokens: int) -> str:
    """Return a text of about ``tokens`` tokens, always the same."""
    random = Random("a ship's log")  # noqa: S311 - a text
    lines: list[str] = []
    chars, day = 0, 0
    while chars < tokens * _CHARS_PER_TOKEN:
        day += 1
        said = (random.choice(part) for part in _PARTS)
        line = f"Day {day}. " + " ".join(said)
        lines.append(line)
        chars += len(line) + 1
    return "\n".join(lines)


_PARTS: Sequence[Sequence[str]] = (
    (
        "The wind came from the north-west and rose towards evening.",
        "A calm sea, and hardly any wind before noon.",
        "Fog lay on the water until the middle of the morning.",
        "Heavy rain all night, with a long swell from the south.",
    ),
    (
        "The crew mended the smaller sail.",
        "The cook found that two barrels of flour were wet.",
        "We passed a fishing boat, whose master greeted us.",
        "The carpenter looked at the rudder and was content.",
        "One of the boys saw whales on the port side.",
    ),
    (
        "We made ninety miles by the evening.",
        "By our reckoning we are still two weeks from the harbour.",
        "The coast was in sight for an hour, low and grey.",
        "All on board are well.",
    ),
)
