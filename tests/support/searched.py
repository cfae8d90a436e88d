"""What of a search runs today: a small part that is always the same, and one that changes with the day's seed.

``make test`` prints the seed, and ``SEED=739582 make test`` runs the same parts again; ``make test WHAT=all`` runs all.
A case that has failed once is put among those that always run.
"""

import os
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

Case = TypeVar("Case")

SEED = int(os.environ.setdefault("SEED", str(datetime.now(UTC).toordinal())))  # the same for all processes of a run
WHOLE = bool(os.environ.get("WHOLE"))


def examples(whole: int) -> int:
    """Return how many of ``whole`` examples Hypothesis makes today; which, is drawn by the day's seed."""
    return whole if WHOLE else min(whole, max(25, whole // 5))


def some(cases: Iterable[Case], always: Sequence[Case] | int, today: int) -> list[Case]:
    """Return those of ``cases`` that ``always`` run, or as many of the first, and ``today`` others, in their order."""
    found = list(cases)
    if WHOLE:
        return found
    kept = range(always) if isinstance(always, int) else [found.index(case) for case in always]
    others = [at for at in range(len(found)) if at not in kept]
    drawn = random.Random(SEED).sample(others, min(today, len(others)))
    return [found[at] for at in sorted({*kept, *drawn} & {*range(len(found))})]
