"""What a bench asks, of whom, how often and in which order, which follows from the seed, also after a resumption."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

import msgspec

from gateway.bench.goal import Goal
from gateway.bench.prompts import Lengths
from gateway.bench.sample import Key

WARM_UP = -1  # as a round
MOST_ROUNDS = 1000

Item = TypeVar("Item")


class Contender(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that is compared with the others."""

    name: str
    model: str  # of the gateway, which it belongs to
    input_usd: float | None = None  # per million tokens; None: unknown
    output_usd: float | None = None
    leaves_out: dict[str, str] = {}  # the classes it cannot be asked, each with the reason


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A bench: the journal's first line, from which it is resumed."""

    seed: int
    contenders: tuple[Contender, ...]
    kinds: tuple[str, ...]
    concurrencies: tuple[int, ...]
    rounds: int
    warm_up: int  # requests to each deployment before the first round, which count for nothing
    lengths: Lengths
    goal: Goal | None = None
    url: str | None = None  # of the gateway it goes through; None: direct
    is_demo: bool = False  # the deployments are simulated

    def kinds_of(self, contender: Contender) -> list[str]:
        """Return the classes of prompts that ``contender`` is asked."""
        return [kind for kind in self.kinds if kind not in contender.leaves_out]

    @property
    def labels(self) -> dict[str, str]:
        """The names of deployments as they are shown: without the model's name if all have the same."""
        names = [contender.name for contender in self.contenders]
        models = {name.partition("/")[2] for name in names}
        short = {name: name.partition("/")[0] for name in names}
        is_clear = len(models) == 1 and len(set(short.values())) == len(names)
        return short if is_clear else {name: name for name in names}

    @property
    def requests(self) -> int:
        """The number of requests, without warming up."""
        classes = sum(len(self.kinds_of(contender)) for contender in self.contenders)
        return self.rounds * classes * sum(self.concurrencies)


class Turn(msgspec.Struct, frozen=True):
    """The requests of one round to one deployment, of which ``concurrency`` run at a time."""

    contender: Contender
    concurrency: int
    keys: tuple[Key, ...]


def turns(plan: Plan, round_: int) -> Iterator[Turn]:
    """Yield the turns of a round: levels, deployments and requests each in a random order."""
    random = Random(f"turns/{plan.seed}/{round_}")  # noqa: S311 - an order
    for concurrency in _shuffled(random, plan.concurrencies):
        for contender in _shuffled(random, plan.contenders):
            keys = [
                Key(round_, concurrency, contender.name, kind, number)
                for kind in plan.kinds_of(contender)
                for number in range(concurrency)
            ]
            yield Turn(contender, concurrency, tuple(_shuffled(random, keys)))


def warm_up(plan: Plan) -> Iterator[Turn]:
    """Yield the requests that open connections and wake what sleeps."""
    for contender in plan.contenders:
        kinds = plan.kinds_of(contender)
        if kinds and plan.warm_up:
            keys = [
                Key(WARM_UP, 1, contender.name, kinds[number % len(kinds)], number) for number in range(plan.warm_up)
            ]
            yield Turn(contender, 1, tuple(keys))


def salt(plan: Plan, key: Key, sitting: int) -> str:
    """Return words for ``key`` that were never sent before: another start of the bench has others."""
    return f"{Random(f'salt/{plan.seed}/{key}/{sitting}').getrandbits(64):016x}"  # noqa: S311 - no secret


def _shuffled(random: Random, items: Sequence[Item]) -> list[Item]:
    return random.sample(items, len(items))
