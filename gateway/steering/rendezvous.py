"""Rendezvous hashing: the deployment for a prompt that is in no known cache, the same in every replica.

So the next turn of a conversation finds its warm cache from any replica, without shared state.
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
    """Return the deployment, of those near the best, to which every replica sends prompts with this prefix; or None.

    Its cache saves something and has not just missed this prefix: if many prompts begin alike, no cache may keep it.
    None if a cache near the best is known to hold the prompt. Weighted rendezvous hashing: the maximum of
    ln(u) / weight, with u uniform in (0, 1) by prompt and deployment. Each gets prompts in proportion to its weight in
    the draw, and if one drops out only its own prompts move. Deployments close to their rate limits are left out.
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
    """Whether clearly more than its share is in flight there.

    That happens if many prompts begin alike, or if few of the deployments save anything.
    """
    in_flight = home.condition.in_flight
    if in_flight <= HOME_SLACK:
        return False
    return in_flight > HOME_SLACK + HOME_LOAD * share * sum(each.condition.in_flight for each in lineup.near)


def _uniform(digest: bytes, deployment: str) -> float:
    """Return a number in (0, 1) that depends only on both arguments."""
    drawn = blake2b(deployment.encode(), digest_size=8, salt=digest).digest()
    return (int.from_bytes(drawn, "big") + 0.5) / 2**64
