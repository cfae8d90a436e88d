"""How often ``--same-model`` finds a difference between simulated writers whose next words are known."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from random import Random

import msgspec

from gateway.bench.same_model import LEVEL, Answers, discrepancy

_PERMUTATIONS = 199  # fewer than a bench's, which costs a little power
_WORDS = tuple(
    "".join(Random(number).choices("abcdefghijklmnopqrstuvwxyz", k=2 + number % 7)) + " " for number in range(500)
)
_CHOICES = 20  # words that may come next
_STEEPNESS = 2.0  # of Zipf's law: the most likely next word has 63 %, and a word 1.2 nats
_TOKENS = 50


class Writer(msgspec.Struct, frozen=True):
    """Writes word after word, each by the one before. ``moved``: what its most likely next word gives to the second."""

    moved: float = 0.0

    def answers(self, prompts: int, number: int, random: Random) -> Answers:
        """Return so many answers to each prompt."""
        return {str(prompt): [self._answer(prompt, random) for _ in range(number)] for prompt in range(prompts)}

    def _answer(self, prompt: int, random: Random) -> str:
        word, text = -1, []
        weights = self._weights()
        for _ in range(_TOKENS):
            [word] = random.choices(_next(prompt, word), cum_weights=weights)
            text.append(_WORDS[word])
        return "".join(text)

    def _weights(self) -> list[float]:
        shares = [1.0 / rank**_STEEPNESS for rank in range(1, _CHOICES + 1)]
        total = sum(shares)
        sums: list[float] = []
        for place, share in enumerate(shares):
            own = share / total + (-self.moved if place == 0 else self.moved if place == 1 else 0.0)
            sums.append(own + (sums[-1] if sums else 0.0))
        return sums


@lru_cache(maxsize=100_000)
def _next(prompt: int, word: int) -> Sequence[int]:
    return Random(f"{prompt}/{word}").sample(range(len(_WORDS)), _CHOICES)


def found(moved: float, number: int, *, prompts: int = 25, tests: int, seed: int = 0) -> int:
    """Return in how many of ``tests`` a writer that differs by ``moved`` in each word is told from another."""
    hits = 0
    for test in range(tests):
        random = Random(f"writing/{seed}/{moved}/{number}/{test}")
        a, b = (Writer(share).answers(prompts, number, random) for share in (0.0, moved))
        seen = discrepancy(a, b, seed=test, permutations=_PERMUTATIONS)
        hits += seen is not None and seen.p < LEVEL
    return hits


def rows(tests: int) -> Iterator[str]:
    """Yield the share of tests that show a difference, as a table of Markdown."""
    numbers = (10, 20)
    yield f"| total variation of each next word | {' | '.join(f'{n} answers to each prompt' for n in numbers)} |"
    yield "|---|--:|--:|"
    for moved in (0.0, 0.05, 0.1, 0.2, 0.3):
        of_each = tests if moved else 4 * tests  # false alarms are seldom
        hits = [found(moved, number, tests=of_each) for number in numbers]
        name = f"{moved:g}" if moved else "0: the same writer, false alarms"
        yield f"| {name} | {' | '.join(f'{each} of {of_each}' for each in hits)} |"
