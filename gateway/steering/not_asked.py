"""The deployments that calls do not use, with reasons: for the errors of failed calls."""

from collections.abc import Collection, Iterable, Mapping

from gateway.race_failures import NotAsked
from gateway.steering.health import Health, State
from gateway.steering.leaderboard import state_of


def not_asked(
    healths: Mapping[str, Health], deployments: Iterable[str], asked: Collection[str], now_s: float
) -> tuple[NotAsked, ...]:
    """Return which of ``deployments``, without those ``asked``, are out, cooling down or broken, and why."""
    found = []
    for name in deployments:
        health = healths.get(name)
        if health is None or name in asked:
            continue
        condition = health.condition(now_s)
        if condition.state is State.OK:
            continue
        reason = state_of(condition)
        if health.trouble is not None:
            reason += f": {health.trouble.for_others}"
        state = condition.state
        found.append(NotAsked(name, reason, for_good=state is State.OUT, is_broken=state is not State.COOLING))
    return tuple(found)
