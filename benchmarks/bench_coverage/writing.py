"""How often ``--same-model``, and the alert of probes, find a difference between simulated writers."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from random import Random

import msgspec

from gateway.alerts.stated_models import LASTS_BELOW, OPENS_BELOW
from gateway.bench.same_model import LEVEL
from gateway.detecting.writing import A_WEEK, WRITTEN_PROMPTS, Answers, compared_weeks, discrepancy, finished

_PERMUTATIONS = 199  # fewer than a bench's, which costs a little power
_WORDS = tuple(
    "".join(Random(number).choices("abcdefghijklmnopqrstuvwxyz", k=2 + number % 7)) + " " for number in range(500)
)
_CHOICES = 20  # words that may come next
_STEEPNESS = 2.0  # of Zipf's law: the most likely next word has 63 %, and a word 1.2 nats


class Writer(msgspec.Struct, frozen=True):
    """Writes word after word, each by the one before. ``moved``: what its most likely next word gives to the second."""

    moved: float = 0.0
    tokens: int = 50  # of an answer

    def answers(self, prompts: int, number: int, random: Random) -> Answers:
        """Return so many answers to each prompt."""
        return {str(prompt): [self.answer(prompt, random) for _ in range(number)] for prompt in range(prompts)}

    def answer(self, prompt: int, random: Random) -> str:
        """Return one answer."""
        word, text = -1, []
        weights = self._weights()
        for _ in range(self.tokens):
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


# The alert: a deployment is asked one prompt after the other, all the week, and tested each day.

_TURNS = len(WRITTEN_PROMPTS) * A_WEEK  # of a week
_CHANGES_ON = 14  # day
_SHORT = 15  # tokens: the share of false alarms does not depend on them, the time it takes does


def days_of(writer_at: Callable[[float], Writer], *, days: int, seed: str) -> Iterator[float]:
    """Yield the p of each day from the 14th; ``writer_at`` is who writes at a time, in days."""
    random = Random(f"days/{seed}")
    written = []
    for turn in range(days * _TURNS // 7):
        at, asked = turn * 7 / _TURNS, turn % len(WRITTEN_PROMPTS)
        written.append((at, str(asked), writer_at(at).answer(asked, random)))
    for until in range(14, days + 1):
        weeks: tuple[dict[str, list[str]], dict[str, list[str]]] = {}, {}
        for at, prompt, text in written:
            if until - 14 <= at < until:
                weeks[at < until - 7].setdefault(prompt, []).append(text)
        found = finished(compared_weeks(*weeks))
        yield 1.0 if found is None else found.p


def false_alarms(deployments: range, *, weeks: int, moved: float = 0.0, tokens: int = _SHORT) -> int:
    """Return how many alerts open in ``weeks`` weeks of deployments that do not change.

    ``moved``: on every second day another version writes, as where a provider sends calls to two of them.
    """
    alarms = 0
    versions = Writer(tokens=tokens), Writer(moved, tokens)
    for number in deployments:
        is_open = False
        for p in days_of(lambda at: versions[int(at) % 2], days=14 + 7 * weeks, seed=f"same/{number}"):
            alarms += p < OPENS_BELOW and not is_open
            is_open = p < (LASTS_BELOW if is_open else OPENS_BELOW)
    return alarms


def found_after(moved: float, tests: int, *, days: int = 10) -> list[int | None]:
    """Return after how many days each change of a writer opened the alert; None: not within ``days``."""
    versions = Writer(), Writer(moved)
    found = []
    for test in range(tests):
        ps = days_of(lambda at: versions[at >= _CHANGES_ON], days=_CHANGES_ON + days, seed=f"{moved}/{test}")
        found.append(next((day for day, p in enumerate(ps) if p < OPENS_BELOW), None))
    return found


def alert_rows(tests: int) -> Iterator[str]:
    """Yield how soon the alert opens after a change, and how often without one, as a table of Markdown."""
    yield "| total variation of each next word | alerts within 10 days | days until then |"
    yield "|---|--:|--:|"
    for moved in (0.1, 0.15, 0.2, 0.3):
        days = sorted(day for day in found_after(moved, tests) if day is not None)
        span = f"{days[0]} to {days[-1]}" if days else ""
        yield f"| {moved:g} | {len(days)} of {tests} | {span} |"
    yield f"| 0: the same writer | {false_alarms(range(2 * tests), weeks=50)} in {2 * tests} times 50 weeks | |"
    in_turn = false_alarms(range(tests), weeks=10, moved=0.2, tokens=50)
    yield f"| 0.2, on every second day | {in_turn} in {tests} times 10 weeks | |"
