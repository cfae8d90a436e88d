"""Rendezvous hashing: where a prompt goes that no cache is known to hold, the same in every replica.

So the next turn of a conversation finds its warm cache from whichever replica it comes to, and nobody shares anything.
"""

from hashlib import blake2b
from math import inf, log

from gateway.steering.affinity import Affinity, Held
from gateway.steering.candidates import Candidate, Terms
from gateway.steering.constants import HEADROOM_LOW, HOME_LOAD, HOME_SLACK
from gateway.steering.lineup import Lineup


def home_of(
    model: str, terms: Terms, lineup: Lineup, affinity: Affinity, *, held: Held, now_s: float
) -> Candidate | None:
    """Return where every replica sends a prompt that begins so, of the deployments near the best; or None.

    It is one whose cache saves something, and has not just missed what begins so: many prompts may begin alike that no
    cache keeps. None if a cache near the best is known to hold the prompt. Weighted
    rendezvous hashing: the most of ln(u) / weight, with u uniform in (0, 1) by prompt and deployment. So each gets
    prompts in proportion to its weight in the draw, and when one drops out only its own prompts move. Whose rate limit
    leaves little is left out.
    """
    near, prefix = lineup.near, terms.prefix
    if prefix is None or prefix.shared is None or len(near) <= 1 or any(each.deployment in held for each in near):
        return None
    missing = affinity.misses(model, prefix, now_s)
    most, home, weight, below = -inf, None, 0.0, 0.0
    for each, up_to in zip(near, lineup.weights_up_to, strict=True):
        own, below = up_to - below, up_to
        name = each.deployment
        if own <= 0.0:
            continue  # a weight so small that it is lost in the sum
        if each.condition.headroom < HEADROOM_LOW or name in missing or not affinity.saves(name, terms.prices):
            continue
        drawn = log(_uniform(prefix.shared, name)) / own
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
