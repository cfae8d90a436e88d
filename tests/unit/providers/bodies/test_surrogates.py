r"""Characters of which a provider sends half, as JSON writes it: ``\ud83d`` without ``\ude00``, or in another event."""

import json
from random import Random

import msgspec

from providers.bodies import HalfCharacters, without_halves

PIECES = (r"\ud83d", r"\ude00", r"\uD83D\uDE00", "a", "\\\\", r"\n", "ud83d", r"\"", r"\u0041")


def shown(text: str) -> str:
    """Return what a text in JSON says, with the replacement character for each half."""
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in json.loads(f'"{text}"'))


def test_a_half_becomes_the_replacement_character() -> None:
    random = Random(1)
    for _ in range(5000):
        text = "".join(random.choices(PIECES, k=random.randint(0, 8)))
        mended = without_halves(b'["%b"]' % text.encode())
        assert msgspec.json.decode(mended) == [shown(text)]


def test_text_without_halves_is_the_same_object() -> None:
    for data in (rb'{"a": "\ud83d\ude00 \\ud83d \u00e9"}', b'{"a": "\xf0\x9f\x98\x80"}'):
        assert without_halves(data) is data


def test_halves_in_two_events_are_joined_wherever_a_text_is_cut() -> None:
    random = Random(2)
    for _ in range(5000):
        texts = ["".join(random.choices(PIECES, k=random.randint(0, 5))) for _ in range(random.randint(2, 4))]
        halves = HalfCharacters()
        events = [b'data: {"index":0,"content":"%b"}\n\n' % text.encode() for text in (*texts, "end")]
        mended = b"".join(map(halves.mend, events)) if random.random() < 0.5 else halves.mend(b"".join(events))
        said = [msgspec.json.decode(event.removeprefix(b"data: "))["content"] for event in mended.split(b"\n\n")[:-1]]
        assert "".join(said) == shown("".join(texts) + "end")


def test_halves_of_two_choices_and_fields_are_kept_apart() -> None:
    halves = HalfCharacters()
    first, second = (
        b'data: {"choices":[{"index":%d,"delta":{"content":"\\ud83d","reasoning":"\\ud83e"}}]}\n\n' % index
        for index in (0, 1)
    )
    assert b"\\ud8" not in halves.mend(first) + halves.mend(second)
    for index in (1, 0):
        rest = b'data: {"choices":[{"index":%d,"delta":{"reasoning":"\\udd14","content":"\\ude00"}}]}\n\n' % index
        delta = msgspec.json.decode(halves.mend(rest).removeprefix(b"data: "))["choices"][0]["delta"]
        assert delta == {"reasoning": "\U0001f914", "content": "\U0001f600"}


def test_an_event_too_long_to_be_mended_passes_beside_others_that_are() -> None:
    halves = HalfCharacters()
    long = b'data: {"content":"%b"}\n\n' % (rb"\ud83d" * 200_000)
    first, second = (b'data: {"content":"%b"}\n\n' % half for half in (rb"\ud83d", rb"\ude00"))
    assert halves.mend(first + long + second) == (
        b'data: {"content":""}\n\n' + long + b'data: {"content":"\\ud83d\\ude00"}\n\n'
    )
