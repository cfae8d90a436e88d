"""How the mock upstream answers: each behaviour by its name, which is the first element of the path it is asked on."""

from collections.abc import Mapping
from math import inf

import msgspec


class Behaviour(msgspec.Struct, frozen=True):
    """``first_s``: from the whole request to the first byte, None: it never comes.

    ``gap_s``: between tokens, None: the whole answer is one write. ``rest_s``: the whole rest follows the first token.
    """

    first_s: float | None = 0.0
    gap_s: float | None = None
    rest_s: float | None = None

    def whole_s(self, tokens: int) -> float:
        """Return how long an answer takes from the whole request to the last token; without end: never."""
        return inf if self.first_s is None else self.first_s + (tokens - 1) * (self.gap_s or 0.0) + (self.rest_s or 0.0)


BEHAVIOURS: Mapping[str, Behaviour] = {
    "burst": Behaviour(),
    "first": Behaviour(rest_s=0.003),  # what follows the first token is not in its way
    "soon": Behaviour(0.005),  # soon and late: the two sides of a race
    "near": Behaviour(0.06),  # wins against whoever is 40 ms away, once the other has the request
    "late": Behaviour(0.1),
    "never": Behaviour(None),
    "paced": Behaviour(0.0, 0.005),
    "crowd": Behaviour(0.3, 0.05),
    "crowd-late": Behaviour(0.6, 0.05),
    "steady": Behaviour(0.3, 0.01),  # as most providers answer
    "at-once": Behaviour(0.3),  # a short answer: nearly all of its cost is in its first token
    "held": Behaviour(0.0, 3600.0),  # one token, and then silence
}
NAMED = "named"  # on this path it is the model's name that says how to answer, so one provider can do several things
