"""What an answer must be like to count as good: ``ttft<500ms,tps>45``."""

import re
from collections.abc import Callable, Mapping

import msgspec

from gateway.bench.sample import Sample

_PART = re.compile(r"\s*([a-z][a-z0-9]*)\s*([<>])\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|)\s*")
_MS = {"ms": 1.0, "s": 1000.0}

# The name in a goal, the figure it is about, whether less is better.
_FIGURES: Mapping[str, tuple[Callable[[Sample], float | None], bool]] = {
    "ttft": (lambda sample: sample.ttft_ms, True),
    "answer": (lambda sample: sample.ttft_answer_ms, True),
    "total": (lambda sample: sample.total_ms, True),
    "gap": (lambda sample: sample.itl_max_ms, True),
    "itl": (lambda sample: sample.itl_p95_ms, True),
    "tps": (lambda sample: sample.decode_tps, False),
    "e2e": (lambda sample: sample.e2e_tps, False),
}
EXAMPLE = "ttft<500ms,tps>45"


class GoalError(ValueError):
    """The goal is not understood; the message says what is possible."""


class Part(msgspec.Struct, frozen=True):
    """One condition; ``limit`` in milliseconds, or in tokens per second."""

    name: str
    limit: float


class Goal(msgspec.Struct, frozen=True):
    """All conditions of a goal, which an answer must meet together."""

    text: str
    parts: tuple[Part, ...]

    def met(self, sample: Sample) -> bool | None:
        """Whether ``sample`` met the goal. An error never does; None if a figure it needs is unknown."""
        if sample.error_kind is not None:
            return False
        known = True
        for part in self.parts:
            figure, less = _FIGURES[part.name]
            value = figure(sample)
            if value is None:
                known = False
            elif not (value < part.limit if less else value > part.limit):
                return False
        return True if known else None


def read_goal(text: str) -> Goal:
    """Return the goal that ``text`` states.

    Raises:
        GoalError: it is not understood.

    """
    parts = []
    for piece in text.split(","):
        found = _PART.fullmatch(piece)
        if found is None:
            raise GoalError(f"the goal {piece.strip()!r} is not understood; write it like {EXAMPLE}")
        name, sign, number, unit = found.groups()
        if name not in _FIGURES:
            raise GoalError(f"a goal cannot be about {name!r}; it can be about {', '.join(_FIGURES)}")
        less = _FIGURES[name][1]
        if (sign == "<") is not less:
            right = f"{name}{'<' if less else '>'}{number}{unit}"
            raise GoalError(f"the goal {piece.strip()!r} wants slow answers; did you mean {right}?")
        if less and not unit:
            raise GoalError(f"the goal {piece.strip()!r} needs a unit: {name}<{number}ms or {name}<{number}s")
        if not less and unit:
            raise GoalError(f"the goal {piece.strip()!r} is in tokens per second: {name}>{number}")
        parts.append(Part(name, float(number) * _MS.get(unit, 1.0)))
    return Goal(text.replace(" ", ""), tuple(parts))
