"""What a bench may cost: an estimate before it starts, and a cap that holds while it runs.

A request costs at most its prompt at the dearest price of input (our estimate of tokens may be too low by half), and an
answer as long as ``max_tokens`` allows. A round begins only if all of it can be paid, whatever it costs. What a killed
request has cost is unknown, so it counts with its most.
"""

from collections.abc import Iterable, Mapping

import msgspec

from gateway.bench.sample import Key, Sample
from gateway.racing.cost_bounds import MISCOUNT
from providers.prices import Price

_FRAME_TOKENS = 64  # what a chat's template adds to a prompt
_LONGER = 1.25  # once an answer has cost more than its most, the next ones may cost this many times as much


class Cost(msgspec.Struct, frozen=True):
    """What a request costs, about and at most, in US dollars."""

    about_usd: float
    most_usd: float


def cost_of(price: Price | None, prompt_tokens: int, about_tokens: int, most_tokens: int) -> Cost:
    """Return what a request may cost; an unknown price counts as nothing."""
    if price is None:
        return Cost(0.0, 0.0)
    about = prompt_tokens * price.input_usd + about_tokens * price.output_usd
    dearest_input = max(price.input_usd, price.cache_write_usd or 0.0)
    dearest_output = max(price.output_usd, price.reasoning_usd or 0.0)
    prompt = prompt_tokens * MISCOUNT + _FRAME_TOKENS
    return Cost(about, prompt * dearest_input + most_tokens * dearest_output)


class Purse:
    """Counts what was spent, and says whether more may be."""

    def __init__(self, cap_usd: float | None, costs: Mapping[tuple[str, str], Cost]) -> None:
        """``costs``: of a request, by deployment and class. ``cap_usd`` None: no cap."""
        self.cap_usd = cap_usd
        self.spent_usd = 0.0  # at most
        self._costs = dict(costs)
        self._open: dict[tuple[Key, int], float] = {}

    def most_usd(self, key: Key) -> float:
        """Return what a request costs at most."""
        return self._costs[key.deployment, key.kind].most_usd

    def pays(self, keys: Iterable[Key]) -> bool:
        """Whether all of these requests can be paid, whatever they and those under way will cost."""
        if self.cap_usd is None:
            return True
        return self.committed_usd + sum(map(self.most_usd, keys)) <= self.cap_usd

    @property
    def committed_usd(self) -> float:
        """What was spent, and what is under way may cost."""
        return self.spent_usd + sum(self._open.values())

    def sent(self, key: Key, sitting: int, most_usd: float) -> None:
        """Reserve what a request may cost."""
        self._open[key, sitting] = most_usd

    def done(self, sample: Sample) -> None:
        """Replace the reservation by what the request did cost, at most."""
        reserved = self._open.pop((sample.key, sample.sitting), 0.0)
        paid = sample.cost_high_usd if sample.cost_high_usd is not None else reserved
        self.spent_usd += paid
        place = sample.key.deployment, sample.key.kind
        if paid > reserved and place in self._costs:
            known = self._costs[place]
            self._costs[place] = Cost(known.about_usd, max(known.most_usd, paid * _LONGER))
