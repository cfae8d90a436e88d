"""The first clause that can be spoken, in whatever pieces it comes."""

import pytest

from gateway.racing.speech import Speakable


def clause(text: str, *, size: int = 1, enough: int = 100) -> str | None:
    """Return the text that had come when there was a clause, in pieces of ``size``; None if there was none."""
    speakable = Speakable(enough)
    for at in range(0, len(text), size):
        if speakable.add(text[at : at + size]):
            return text[: at + size]
    return None


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Hello there. How are you?", "Hello there. "),
        ("Yes! Of course.", "Yes! "),
        ("Really?! I did not know.", "Really?! "),
        ("Dr. Smith lives at No. 5 Mt. Eden Rd now. He is in.", "Dr. Smith lives at No. 5 Mt. Eden Rd now. "),
        ("Pi is 3.14 and e is 2.72. Good.", "Pi is 3.14 and e is 2.72. "),
        ("It costs $1,299.00 today. Buy it.", "It costs $1,299.00 today. "),
        ("1. Take bread. 2. Eat it.", "1. Take bread. "),
        ("J. R. R. Tolkien wrote it. Read it.", "J. R. R. Tolkien wrote it. "),
        ("The U.S. economy grew. So did others.", "The U.S. economy grew. "),
        ("We meet at 9 a.m. tomorrow. Be there.", "We meet at 9 a.m. tomorrow. "),
        ("Some fruit, e.g. apples, is red. Eat it.", "Some fruit, e.g. apples, is red. "),
        ("Das kostet z. B. 5 Euro. Gut.", "Das kostet z. B. 5 Euro. "),
        ('He said "stop." Then he left.', 'He said "stop." T'),
        ("“Of course!” he said. Then he left.", "“Of course!” he said. "),
        ("Dr. Weber hat am 3. Mai Zeit. Passt das?", "Dr. Weber hat am 3. Mai Zeit. "),
        ("Sie wohnt in der Hauptstr. 5. Dort ist es. Ja", "Sie wohnt in der Hauptstr. 5. Dort ist es. "),
        ("It has 1024. That is enough.", "It has 1024. "),
        ("See example.com for more. Thanks.", "See example.com for more. "),
        ("Wait… what? No.", "Wait… what? "),
        ("Wait… What? No.", "Wait… W"),
        ("So... that depends. Yes.", "So... that depends. "),
        ("First line is a title\nand then text", "First line is a title\n"),
        ("你好，我是助手。请问", "你好，我是助手。"),  # noqa: RUF001
        ("はい、そうです。次は", "はい、そうです。"),
        ("नमस्ते, मैं ठीक हूँ। आप", "नमस्ते, मैं ठीक हूँ।"),
        ("هل أنت بخير؟ نعم", "هل أنت بخير؟ "),
    ],
)
def test_a_sentence_is_found_where_it_ends(text: str, first: str) -> None:
    assert clause(text) == first


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pieces_do_not_matter(size: int) -> None:
    text = "Dr. No paid 3.50 for it. He was glad. "
    found = clause(text, size=size)
    assert found is not None
    assert found.startswith("Dr. No paid 3.50 for it. ")
    assert len(found) < len("Dr. No paid 3.50 for it. ") + size


@pytest.mark.parametrize(
    "text", ["", "   \n\n", "...", "# ", "1. ", "- ", "!!! ", "Dr.", "It costs 3.", "```python\nx = 1\n"]
)
def test_what_cannot_be_spoken_yet_is_no_clause(text: str) -> None:
    assert clause(text) is None


def test_a_line_is_found_where_the_mark_of_a_list_comes_with_its_end() -> None:
    assert Speakable().add("Here are two\n1. F")
    assert Speakable().add("Ask them\nDr. ")


def test_enough_words_are_a_clause_without_an_end() -> None:
    text = "one two three four five six seven"
    assert clause(text, enough=5) == "one two three four five s"
    assert clause("one two three four five", enough=5) is None  # "five" may become "fiveteen"


def test_scripts_without_spaces_are_counted_by_characters() -> None:
    found = clause("今天天气很好我们去公园散步吧然后回家", enough=5)
    assert found is not None
    assert 10 <= len(found) <= 12


def test_a_very_long_text_without_words_ends_the_search() -> None:
    assert clause("*" * 5_000, size=500) is not None


def test_it_is_cheap_however_long_the_clause() -> None:
    speakable = Speakable(10**9)
    for _ in range(1_000):
        speakable.add("ab ")
    assert not speakable.found
