"""Text is sent by whole clauses: no event is lost, doubled or moved, and what is held back has not ended."""

from collections.abc import Iterator, Sequence
from random import Random

import msgspec
import pytest

from gateway.racing.speech import Clauses

TOLD = [b"data: [DONE]\n\n", b'data: {"choices":[],"usage":{}}\n\n', b'data: {"tool":1}\n\n']


def texts(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the text of an event as this test writes them."""
    said = msgspec.json.decode(data)
    if "text" in said:
        yield 0, said["text"]


def event(text: str) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode({"text": text})


def sent(pieces: Sequence[str]) -> list[str]:
    """Return the text that may be sent after each piece."""
    clauses = Clauses(texts)
    ready = [clauses.add(event(piece), 0.0) for piece in pieces]
    return ["".join(text for part in each.split(b"\n\n") if part for _, text in texts(part[6:])) for each in ready]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["It is", " noon.", " And", " it"], ["", "", "It is noon.", ""]),
        (["It is 3", ".", "14", " or so."], ["", "", "", ""]),
        (["Yes. And", " there"], ["Yes. And", ""]),  # an event is never divided
        (["Yes.", " Sure.", " Well"], ["", "Yes.", " Sure."]),
        (["Ask Dr.", " Smith", "!", "\n", "Now"], ["", "", "", "Ask Dr. Smith!", ""]),
        (["正午です。", "そして"], ["正午です。", ""]),
    ],
)
def test_a_clause_is_sent_once_it_is_known_to_have_ended(pieces: list[str], expected: list[str]) -> None:
    assert sent(pieces) == expected


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_all_of_it_is_sent_once_and_in_its_order(seed: int) -> None:
    dice, clauses = Random(seed), Clauses(texts)
    words = ("Yes", " and", ".", " 3", "14", "!", "\n", "…", " so", "。")
    whole = [dice.choice(TOLD) if dice.random() < 0.1 else event(dice.choice(words)) for _ in range(60)]
    came = b""
    at = 0
    while at < len(whole):
        size = dice.randint(1, 4)
        came += clauses.add(b"".join(whole[at : at + size]), 0.0)
        at += size
        if dice.random() < 0.1:
            came += clauses.release()
        assert b"".join(whole[:at]) == came + clauses.held
    assert came + clauses.release() == b"".join(whole)
    assert clauses.held == b""


def test_what_is_no_text_waits_for_nothing_and_a_comment_overtakes_it() -> None:
    clauses = Clauses(texts)
    assert clauses.add(event("So let me") + b": ping\n\n", 0.0) == b": ping\n\n"
    assert clauses.add(TOLD[2], 0.0) == event("So let me") + TOLD[2]


def test_it_knows_since_when_and_for_how_long_a_voice_would_speak() -> None:
    clauses = Clauses(texts)
    clauses.add(event("So"), 3.0)
    clauses.add(event(" let me see a"), 4.0)
    assert (clauses.since, clauses.open_s, clauses.has_ended) == (3.0, 1.0, False)
    clauses.add(event("ll."), 5.0)
    assert clauses.has_ended


def test_of_what_was_sent_the_last_clause_counts_as_open_until_the_next_begins() -> None:
    clauses = Clauses(texts)
    assert clauses.add(event("I see it all now.") + event(" We wait for it"), 0.0) == event("I see it all now.")
    assert clauses.open_s == pytest.approx((17 + 15) / 15)
    clauses.release()
    assert clauses.open_s == 1.0  # the first has ended for all
    clauses.add(event(" for a while now"), 0.0)
    clauses.release()
    assert clauses.open_s == pytest.approx(31 / 15)
