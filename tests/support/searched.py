"""What of a search ``make test`` runs: a part chosen by reading, and one drawn by a seed, the same on every day.

``make test WHAT=search`` draws other parts by new seeds, and prints the command that repeats what it found;
``make test WHAT=all`` runs all. A case that has failed once is put among those that always run.
"""

import os
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

Case = TypeVar("Case")

FIXED = 739_948  # of ``make test``: no date changes what it runs
SEED = int(os.environ.get("SEED") or FIXED)
WHOLE = bool(os.environ.get("WHOLE"))


def examples(whole: int) -> int:
    """Return how many of ``whole`` examples Hypothesis makes; which, is drawn by the seed."""
    return whole if WHOLE else min(whole, max(25, whole // 5))


def some(cases: Iterable[Case], always: Sequence[Case] | int, drawn: int) -> list[Case]:
    """Return those of ``cases`` that ``always`` run, or as many of the first, and ``drawn`` others, in their order."""
    found = list(cases)
    if WHOLE:
        return found
    kept = range(always) if isinstance(always, int) else [found.index(case) for case in always]
    others = [at for at in range(len(found)) if at not in kept]
    more = random.Random(SEED).sample(others, min(drawn, len(others)))
    return [found[at] for at in sorted({*kept, *more} & {*range(len(found))})]
