"""Rendezvous hashing: where a prompt goes that no cache is known to hold, the same in every replica.

So the next turn of a conversation finds its warm cache from whichever replica it comes to, and nobody shares anything.
"""

from collections.abc import Mapping
from hashlib import blake2b
from math import inf, log

from gateway.steering.affinity import Affinity, Held, Prefix
from gateway.steering.candidates import Candidate
from gateway.steering.constants import HEADROOM_LOW, HOME_LOAD, HOME_SLACK
from gateway.steering.lineup import Lineup
from providers.prices import Price


def home_of(
    prefix: Prefix, lineup: Lineup, held: Held, affinity: Affinity, prices: Mapping[str, Price] | None
) -> Candidate | None:
    """Return where every replica sends a prompt that begins so, of the deployments near the best; or None.

    It is one whose cache saves something, and None if a cache near the best is known to hold the prompt. Weighted
    rendezvous hashing: the most of ln(u) / weight, with u uniform in (0, 1) by prompt and deployment. So each gets
    prompts in proportion to its weight in the draw, and when one drops out only its own prompts move. Whose rate limit
    leaves little is left out.
    """
    near = lineup.near
    if prefix.shared is None or len(near) <= 1 or any(each.deployment in held for each in near):
        return None
    most, home, weight, below = -inf, None, 0.0, 0.0
    for each, up_to in zip(near, lineup.weights_up_to, strict=True):
        own, below = up_to - below, up_to
        if each.condition.headroom < HEADROOM_LOW or not affinity.saves(each.deployment, prices):
            continue
        drawn = log(_uniform(prefix.shared, each.deployment)) / own
        if drawn > most:
            most, home, weight = drawn, each, own
    return home if home is not None and not _is_crowded(home, weight / below, lineup) else None


def _is_crowded(home: Candidate, share: float, lineup: Lineup) -> bool:
    """Tell whether clearly more than its share is in flight there.

    That happens where many prompts begin alike, or few of the deployments save anything.
    """
    in_flight = home.condition.in_flight
    if in_flight <= HOME_SLACK:
        return False
    return in_flight > HOME_SLACK + HOME_LOAD * share * sum(each.condition.in_flight for each in lineup.near)


def _uniform(digest: bytes, deployment: str) -> float:
    """Return a number in (0, 1) that depends on both, and on nothing else."""
    drawn = blake2b(deployment.encode(), digest_size=8, salt=digest).digest()
    return (int.from_bytes(drawn, "big") + 0.5) / 2**64
