"""Texts whose first clause is known, as they are put together of clauses that were written by hand.

They have what is easily taken for the end of a sentence: abbreviations, initials, decimals, marks of lists.
"""

from random import Random

import msgspec

from gateway.racing.speech import ENOUGH_WORDS

# Each is one clause: a sentence, or a line. What follows a line begins after it.
ENGLISH = (
    "Yes.",
    "Sure, let me look that up for you.",
    "Dr. Smith is free at 3.30 p.m. on Monday.",
    "The U.S. dollar is at 1.08 now!",
    "It costs $4.99, i.e. less than before.",
    "J. R. Miller wrote it in approx. two weeks?",
    "1. Open the lid.",
    "No. 7 is the one that you want.",
    "Well… that depends on the weather.",
    "“Of course!” he said.",
    "Version 2.1.3 has it.",
    "You have 3 appointments on Oct. 12.",
    "Here is what you need:\n",
)
GERMAN = (
    "Ja, gern.",
    "Das kostet z.B. 12,50 Euro.",
    "Dr. Weber hat am 3. Mai Zeit.",  # an ordinal number: the month that follows is no new sentence
    "Die Nr. 5 fährt um 8.15 Uhr!",
    "Wie bitte?",
)
CHINESE = ("好的。", "现在是三点半。", "今天天气很好！", "您想要哪一个？")  # noqa: RUF001 - Chinese has its own marks
LONG = (
    "If you look at all of the offers that we have on that day and compare them with each other by price and by time "
    "then the second one is the best."
)


class Text(msgspec.Struct, frozen=True):
    """What an answer says, and after how many characters its first clause can be spoken."""

    whole: str
    needed_chars: int


def text(dice: Random) -> Text:
    """Draw a text."""
    kind = dice.random()
    if kind < 0.1:
        clauses = [dice.choice(CHINESE) for _ in range(dice.randint(2, 8))]
        return Text("".join(clauses), len(clauses[0]))
    pool = GERMAN if kind < 0.3 else ENGLISH
    first = LONG if pool is ENGLISH and dice.random() < 0.2 else dice.choice(pool)
    whole = (
        first + ("" if first.endswith("\n") else " ") + " ".join(dice.choice(pool) for _ in range(dice.randint(2, 8)))
    )
    # The space behind a sentence shows that it has ended; a word that begins, that the one before it has.
    needed = len(first) if first.endswith("\n") else len(first) + 1
    if len(first.split()) > ENOUGH_WORDS:
        needed = len(" ".join(first.split()[:ENOUGH_WORDS])) + 2
    return Text(whole, needed)
