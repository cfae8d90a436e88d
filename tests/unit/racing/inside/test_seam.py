"""The seam between two parts of an answer."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.racing.seam import FEW, LONGEST_STOP, MOST_SPACES, MOST_TAIL, Seam, SeamMismatchError, split


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("The quick bro", " bro"),
        ("The quick brown ", " brown "),
        ("The quick brown.", " brown."),
        ("Hel", "Hel"),
        ("", ""),
        ("One.\n\nTw", "\n\nTw"),
        ("   ", "   "),
        ("a" + " " * 100_000 + "b c", " c"),  # in no more time than its length takes
        ("a" * 100_000 + " b c ", " c "),
        ("今天天气很好我们去公园散步吧然后回家看书写字睡觉", "看书写字睡觉"[-FEW:]),
    ],
)
def test_the_last_word_is_the_tail(text: str, tail: str) -> None:
    assert split(text) == (text[: len(text) - len(tail)], tail)


def test_a_word_without_spaces_is_cut() -> None:
    text = "see " + "x" * (MOST_TAIL + 1)
    assert split(text)[1] == "x" * FEW


def joined(delivered: str, continuation: Sequence[str], **options: object) -> str:
    """Return what a client has in the end."""
    _, tail = split(delivered)
    seam = Seam(tail, **options)  # type: ignore[arg-type]
    more = "".join(seam.take(piece) for piece in continuation)
    seam.end()
    return delivered + more + seam.held_back()


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize(
    ("delivered", "rest"),
    [
        ("The quick bro", " brown fox."),  # repeats the tail
        ("The quick bro", "brown fox."),  # a template has stripped the space
        ("The quick bro", "  brown fox."),
        ("The quick ", " quick brown fox."),
        ("The quick ", "quick brown fox."),
        ("Hel", "Hello there."),
        ("", "Hello."),
    ],
)
def test_no_character_is_lost_or_doubled(delivered: str, rest: str, size: int) -> None:
    whole = {"The": "The quick brown fox.", "Hel": "Hello there.", "": "Hello."}[delivered[:3]]
    pieces = [rest[at : at + size] for at in range(0, len(rest), size)]
    assert joined(delivered, pieces) == whole


@pytest.mark.parametrize("size", [1, 50])
def test_endless_spaces_are_no_continuation(size: int) -> None:
    seam, spaces = Seam(" bro"), " " * (MOST_SPACES + len(" bro"))
    assert [seam.take(spaces[at : at + size]) for at in range(0, len(spaces), size)] == [""] * -(-len(spaces) // size)
    with pytest.raises(SeamMismatchError):
        seam.take(" ")


@pytest.mark.parametrize("rest", ["wn fox.", " red fox.", "The quick brown fox.", "Sure! The quick", "\n\n"])
def test_what_does_not_repeat_the_tail_is_refused(rest: str) -> None:
    with pytest.raises(SeamMismatchError):
        joined("The quick bro", list(rest))


@pytest.mark.parametrize("size", [1, 50])
@pytest.mark.parametrize(
    ("delivered", "rest"),
    [
        ("The quick brown ", " browns are"),  # another word
        ("The quick brown ", " brown, and"),
        ("The quick brown ", "brown\nfox"),
        ("He said.\n\n", " said.\nNext"),
        ("if x:\n    ", " x:\n  y"),
        ("\t", "    def f"),  # nothing but spaces was delivered
        ("\n  ", "\n def f"),
    ],
)
def test_other_spaces_after_the_word_are_another_text(delivered: str, rest: str, size: int) -> None:
    with pytest.raises(SeamMismatchError):
        joined(delivered, [rest[at : at + size] for at in range(0, len(rest), size)])


@pytest.mark.parametrize("size", [1, 50])
@pytest.mark.parametrize(
    ("delivered", "rest", "whole"),
    [
        ("\n", "    def f", "\n    def f"),
        ("\n\n", "\nHello", "\n\nHello"),
        ("\n\n", "\n    def f", "\n\n    def f"),
        ("\n ", "\n\n    def f", "\n    def f"),
        (" ", "Hello", " Hello"),
        ("\n", "\n\n\nHello", "\n\n\nHello"),
    ],
)
def test_an_answer_that_follows_empty_lines_is_indented_as_it_says(
    delivered: str, rest: str, whole: str, size: int
) -> None:
    assert joined(delivered, [rest[at : at + size] for at in range(0, len(rest), size)]) == whole


def test_a_text_of_spaces_may_be_trimmed() -> None:
    assert joined("\n\n", ["Hello"]) == "\n\nHello"
    assert joined("\n\n", ["\n", "\nHello"]) == "\n\nHello"


def test_a_continuation_that_only_repeats_the_tail_is_a_whole_answer() -> None:
    assert joined("The quick fox.", [" fox."]) == "The quick fox."


@pytest.mark.parametrize(
    ("delivered", "rest", "whole"),
    [
        ("a END", " END of", "a END of"),
        ("one ##", " ##STOP and", "one ##"),
        ("one #", " ##STOP and", "one #"),
        ("one ##S", " ##SAME", "one ##SAME"),
        ("one #", " ##", "one ##"),
        ("one two", " two ##STOP and", "one two ##STOP and"),  # one that begins after it is the provider's
    ],
)
def test_a_stop_string_may_span_the_seam(delivered: str, rest: str, whole: str) -> None:
    _, tail = split(delivered)
    seam = Seam(tail, before=delivered, stops=["##STOP"])
    assert delivered + "".join(map(seam.take, rest)) + seam.held_back() == whole


def test_a_stop_string_that_is_too_long_to_look_for_is_left_to_the_provider() -> None:
    stop = "a" * LONGEST_STOP + "b"
    seam = Seam("a", before="a" * LONGEST_STOP, stops=[stop, "aX"])
    assert seam.take("ab") == "b"
    assert Seam("a", before="a", stops=[*"0123456789" * 7, "aX"]).take("aX") == "X"
    assert Seam("a", before="a", stops=["aX"]).take("aX") == ""


@given(
    st.text(alphabet="ab ", min_size=1, max_size=8),
    st.text(alphabet="ab ", max_size=8),
    st.lists(st.text(alphabet="ab ", min_size=1, max_size=4), max_size=3),
    st.integers(1, 4),
)
@example("a", "a", ["aaba", "aa"], 1)  # the shorter one is whole while the longer one may still come
@example(" b", "a", ["b", "bbab"], 1)  # the first provider went on after it
def test_only_a_stop_string_across_the_seam_ends_the_text(
    delivered: str, rest: str, stops: list[str], size: int
) -> None:
    _, tail = split(delivered)
    seam, came = Seam(tail, before=delivered, stops=stops), tail + rest
    more = "".join(seam.take(came[at : at + size]) for at in range(0, len(came), size))
    seam.end()
    spans = any(
        (delivered + rest).startswith(stop, at) and at + len(stop) > len(delivered)
        for at in range(len(delivered))
        for stop in stops
    )
    assert more + seam.held_back() == ("" if spans else rest)


@given(st.text(alphabet="ab \n.", max_size=30), st.integers(0, 30), st.integers(1, 5))
def test_any_answer_cut_anywhere_is_whole_if_the_tail_is_repeated(answer: str, cut: int, size: int) -> None:
    delivered = answer[:cut]
    prefix, tail = split(delivered)
    rest = answer[len(prefix) :]
    seam = Seam(tail)
    more = "".join(seam.take(rest[at : at + size]) for at in range(0, len(rest), size))
    seam.end()
    assert delivered + more + seam.held_back() == answer
