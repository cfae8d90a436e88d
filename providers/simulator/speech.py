"""The text of simulated answers: English sentences about racing and latency, in tokens, determined by the seed."""

from collections.abc import Iterator
from random import Random

_OPENINGS = (
    "A holeshot is decided before the first corner.",
    "Think of every request as a start from the gate.",
    "Latency is felt long before it is measured.",
    "The fastest rider on average is not always the first one out of the gate.",
    "Nobody remembers the median; everybody remembers the one time they had to wait.",
    "Two starters are harder to hold up than one.",
)
_SUBJECTS = (
    "the slow tail",
    "a second attempt",
    "the provider that answered first yesterday",
    "a crowded grid",
    "the time to the first token",
    "a hedged request",
    "the rider on the inside line",
    "a cold connection",
    "the leaderboard",
    "a cancelled loser",
)
_VERBS = (
    "decides more than",
    "costs less than",
    "says little about",
    "matters as much as",
    "hides behind",
    "is easier to plan than",
    "changes faster than",
    "teaches us something about",
)
_OBJECTS = (
    "the average anyone puts on a slide",
    "the speed on the straight",
    "a single number measured last week",
    "the patience of whoever is waiting",
    "what the answer itself is worth",
    "the next minute of traffic",
    "a good start from the gate",
    "the price of a few spare tokens",
)
_LINKS = (
    "In practice",
    "Over a long day",
    "Seen from the pit lane",
    "On a bad afternoon",
    "At the ninety-ninth percentile",
)
_ADVICE = (
    "Start two when the odds are even, and stop one as soon as the other speaks.",
    "Measure the losers as well, or the board will flatter everyone.",
    "Keep a warm connection ready, because a handshake is time nobody gets back.",
    "Spend the extra attempt where waiting would hurt most.",
    "When a provider asks for a pause, give it one and run the others.",
    "Watch the first token for the feeling and the last token for the bill.",
    "A race that is won early leaves the rest of the lap to be enjoyed.",
    "Let the clock judge, not the reputation.",
)
_LONGEST_PIECE = 8  # characters; longer words are two tokens


def speak(random: Random, length: int) -> list[str]:
    """Return about ``length`` tokens, up to the end of a sentence. Joined, they are the text."""
    tokens: list[str] = []
    for sentence in _sentences(random):
        tokens += _tokens(sentence, first=not tokens)
        if len(tokens) >= length:
            return tokens
    raise AssertionError("sentences never end")


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text for the simulated providers, about four characters each."""
    return (len(text) + 3) // 4


def _sentences(random: Random) -> Iterator[str]:
    yield random.choice(_OPENINGS)
    while True:
        subjects = random.sample(_SUBJECTS, len(_SUBJECTS))
        advice = random.sample(_ADVICE, len(_ADVICE))
        for number, subject in enumerate(subjects):
            claim = f"{subject} {random.choice(_VERBS)} {random.choice(_OBJECTS)}."
            yield f"{random.choice(_LINKS)}, {claim}" if random.random() < 1 / 3 else claim[0].upper() + claim[1:]
            if number < len(advice) and random.random() < 1 / 2:
                yield advice[number]


def _tokens(sentence: str, *, first: bool) -> Iterator[str]:
    for number, word in enumerate(sentence.split(" ")):
        piece = word if first and number == 0 else f" {word}"
        if len(word) > _LONGEST_PIECE:
            middle = len(piece) // 2
            yield piece[:middle]
            yield piece[middle:]
        else:
            yield piece
