"""Tests whether answers are from one model: fixed prompts, and a permutation test on the answers to them."""

from collections.abc import Generator, Mapping, Sequence
from datetime import timedelta
from operator import eq, itemgetter
from random import Random
from typing import TypeVar

import msgspec

# Open questions, to which the answers of two models soon differ. They never change: runs are compared over months.
WRITTEN_PROMPTS = (
    "Describe a street market on a rainy morning.",
    "Tell me something surprising about octopuses.",
    "Write the first lines of a story about a lighthouse keeper.",
    "Explain to a child why the sky is blue.",
    "What should one think of before buying a used bicycle?",
    "Invent a small village and describe who lives there.",
    "Give advice to somebody who cannot sleep.",
    "Write a short review of an imaginary restaurant.",
    "What makes a good teacher?",
    "Describe the taste of a ripe mango.",
    "Why did the Roman Republic fall?",
    "Write a letter to a friend whom you have not seen for years.",
    "How would you spend a free day in a city you do not know?",
    "Explain what a hash table is.",
    "Describe a machine that does not exist yet.",
    "Write a short poem about winter.",
    "What are the arguments for and against zoos?",
    "Tell a joke, and say why it is funny.",
    "How does bread rise?",
    "Écris quelques phrases sur la mer.",
    "Beschreibe einen Spaziergang im Wald.",
    "Cuenta una historia breve sobre un gato.",
    "Write a Python function that finds the most common word of a text, and explain it.",
    "Describe a chess game between two old friends.",
    "What will people a hundred years from now think of us?",
)

# The test is that of Gao, Liang and Guestrin (Model Equality Testing: Which Model Is This API Serving?, ICLR 2025):
# the squared maximum mean discrepancy (MMD) between two samples of answers, with the Hamming kernel: the share of
# positions at which two texts have the same character, the shorter one padded. Its distribution for one model comes
# from permutations: the answers of each prompt are assigned to the two samples at random. So the rate of false findings
# is the test's level, whatever the model writes and however many answers there are.

WEEK = timedelta(days=7)
A_WEEK = 20  # answers of a deployment to each prompt, from probes

PERMUTATIONS = 2000
LEAST_KNOWN = 5  # answers of each side that a prompt needs to count, as some requests fail
_EQUAL = 1e-12

Result = TypeVar("Result")
Answers = Mapping[str, Sequence[str]]  # by the prompt's name


class Discrepancy(msgspec.Struct, frozen=True):
    """The difference between two sets of answers: ``mmd2``, the mean over prompts, and its p-value for one model."""

    mmd2: float
    p: float
    prompts: int
    answers: tuple[int, int]


def discrepancy(
    a: Answers, b: Answers, *, seed: int, permutations: int = PERMUTATIONS, enough: int | None = None
) -> Discrepancy | None:
    """Return the difference between the answers; None if no prompt has enough of both."""
    return finished(comparing(a, b, seed=seed, permutations=permutations, enough=enough))


def finished(steps: Generator[None, None, Result]) -> Result:
    """Run all steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def comparing(
    a: Answers,
    b: Answers,
    *,
    seed: int,
    permutations: int = PERMUTATIONS,
    enough: int | None = None,
    least: int = LEAST_KNOWN,
) -> Generator[None, None, Discrepancy | None]:
    """Do the same in steps of a few milliseconds at most.

    It ends after ``enough`` permutations with at least the same difference: then p is large, and known well enough
    (Besag and Clifford, Sequential Monte Carlo p-values, 1991). ``least``: answers of each side that a prompt needs.
    """
    known = [name for name in a if min(len(a[name]), len(b.get(name, ()))) >= least]
    if not known:
        return None
    tests = []
    for name in known:
        known_texts = yield from _comparing_texts([*a[name], *b[name]])
        tests.append(_Prompt(known_texts, len(a[name])))
    random = Random(f"permutations/{seed}")  # noqa: S311 - statistics
    seen = sum(test.seen() for test in tests)
    drawn = as_far = 0
    while drawn < permutations and (enough is None or as_far < enough):
        drawn += 1
        as_far += sum(test.drawn(random) for test in tests) >= seen - _EQUAL
        yield
    is_enough = enough is not None and as_far >= enough
    p = as_far / drawn if is_enough else (as_far + 1) / (drawn + 1)
    answers = sum(len(a[name]) for name in known), sum(len(b[name]) for name in known)
    return Discrepancy(seen / len(known), p, len(known), answers)


LEAST_A_WEEK = 10  # answers of each week that a prompt needs to count
LEAST_PROMPTS = len(WRITTEN_PROMPTS) // 2 + 1  # prompts that must count
ENOUGH = 20


def compared_weeks(this: Answers, last: Answers) -> Generator[None, None, Discrepancy | None]:
    """Compare one deployment's answers of two weeks, in steps of a few milliseconds at most.

    None: one week has too few answers. The result is the same in every process.
    """
    found = yield from comparing(this, last, seed=0, enough=ENOUGH, least=LEAST_A_WEEK)
    return None if found is None or found.prompts < LEAST_PROMPTS else found


class _Prompt:
    """The similarities of the answers to one prompt, from whose sums each permutation's MMD is computed."""

    def __init__(self, alike: list[list[float]], of_first: int) -> None:
        self._a, self._b = of_first, len(alike) - of_first
        self._places = range(len(alike))
        self._alike = alike
        self._rows = [sum(row) for row in alike]  # without the text itself
        self._all = sum(self._rows)

    def seen(self) -> float:
        """Return the unbiased estimate of the squared MMD of the observed samples."""
        return self._of(range(self._a))

    def drawn(self, random: Random) -> float:
        """Return the same for a random permutation."""
        return self._of(random.sample(self._places, self._a))

    def _of(self, first: Sequence[int]) -> float:
        pick = itemgetter(*first)
        within: float = sum(sum(pick(self._alike[place])) for place in first)
        across: float = sum(pick(self._rows)) - within
        other = self._all - within - 2 * across
        a, b = self._a, self._b
        return within / (a * (a - 1)) + other / (b * (b - 1)) - 2 * across / (a * b)


def alike(texts: Sequence[str]) -> list[list[float]]:
    """Return the Hamming kernel of ``texts``: the similarity of each pair, 0 to 1, with 0 on the diagonal."""
    return finished(_comparing_texts(texts))


def _comparing_texts(texts: Sequence[str]) -> Generator[None, None, list[list[float]]]:
    longest = max(1, *map(len, texts))
    rows = [[0.0] * len(texts) for _ in texts]
    for place, text in enumerate(texts):
        for other_place in range(place):
            other = texts[other_place]
            padding = longest - max(len(text), len(other))
            value = (sum(map(eq, text, other)) + padding) / longest
            rows[place][other_place] = rows[other_place][place] = value
        yield
    return rows
