"""Races for the first clause that can be spoken, in virtual time.

Two deployments stream each answer. Of ``quick``'s some fall silent after their first words. Each call's draws are the
same for both policies. Where the first clause ends is known from how the text was made, not from the gateway.
"""

from bisect import bisect_left
from itertools import accumulate
from random import Random

import msgspec

from gateway.core.attempts import Role, WinOn
from gateway.core.calls import CallRecord
from gateway.racing.speech import ENOUGH_WORDS
from providers import Price
from tests.unit.racing.track import DONE, FINISH, Step, Timetable, Track, delta, usage
from tests.unit.racing.virtual_time import run

PRICE = Price(input_usd=1e-6, output_usd=4e-6)
PROMPT_TOKENS = 800
TOKEN_CHARS = 4
FIRST_S = {"quick": 0.25, "steady": 0.45}  # medians of the time to the first token
TOK_S = {"quick": 90.0, "steady": 70.0}
SILENCE_S = 1.5  # its median, where an answer falls silent
CLOSE_S = 1e-6
# Texts are put together of clauses that were written by hand, so where the first one ends is known. They have what is
# easily taken for the end of a sentence: abbreviations, initials, decimals, marks of lists. Each is one clause: a
# sentence, or a line. What follows a line begins after it.
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


class Draw(msgspec.Struct):
    """How one deployment answers one request: what it says, and when each piece comes."""

    text: Text
    pieces: list[str]
    at_s: list[float]

    @property
    def spoken_s(self) -> float:
        """When the first clause can be spoken."""
        ends = list(accumulate(len(piece) for piece in self.pieces))
        return self.at_s[min(bisect_left(ends, self.text.needed_chars), len(ends) - 1)]


class Figures(msgspec.Struct):
    """What one policy did with all calls."""

    spoken_s: list[float] = []
    winners: list[str] = []
    heard: int = 0  # attempts whose first clause the gateway found
    early: int = 0  # of them, before it ends: half a sentence would be spoken


def drawn(dice: Random, name: str, silent: float) -> Draw:
    """Draw an answer of deployment ``name``, which falls silent after its first words with this probability."""
    said = text(dice)
    pieces = [said.whole[at : at + TOKEN_CHARS] for at in range(0, len(said.whole), TOKEN_CHARS)]
    first_s = FIRST_S[name] * dice.lognormvariate(0.0, 0.35)
    tok_s = TOK_S[name] * dice.lognormvariate(0.0, 0.15)
    silence_s, after = SILENCE_S * dice.lognormvariate(0.0, 0.5), dice.randint(1, 3)
    is_silent = dice.random() < silent
    at_s = [
        first_s + number / tok_s + (silence_s if is_silent and number >= after else 0.0)
        for number in range(len(pieces))
    ]
    return Draw(said, pieces, at_s)


def timetable(name: str, draw: Draw) -> Timetable:
    """Return an upstream that answers with ``draw``."""
    steps: list[tuple[float, Step]] = [(at, delta(piece)) for at, piece in zip(draw.at_s, draw.pieces, strict=True)]
    end = draw.at_s[-1]
    return Timetable(
        name, [*steps, (end, FINISH), (end, usage(PROMPT_TOKENS, len(draw.pieces))), (end, DONE), (end, None)]
    )


def one_race(draws: dict[str, Draw], win_on: WinOn) -> CallRecord:
    """Race both; return the record."""
    track = Track(
        *(timetable(name, draw) for name, draw in draws.items()),
        launches=[("quick", 0.0, Role.PRIMARY), ("steady", 0.0, Role.RACE)],
        win_on=win_on,
        price=PRICE,
    )
    return run(track.run())


def ask(draws: dict[str, Draw], win_on: WinOn, figures: Figures) -> None:
    """Race once, and note what a listener has of it."""
    record = one_race(draws, win_on)
    winner = next(each for each in record.attempts if each.outcome == "won")
    figures.winners.append(winner.deployment)
    figures.spoken_s.append(draws[winner.deployment].spoken_s)
    for each in record.attempts:
        if each.sentence_ms is not None:
            figures.heard += 1
            figures.early += each.sentence_ms / 1000 < draws[each.deployment].spoken_s - CLOSE_S


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
