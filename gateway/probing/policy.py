"""When a deployment is probed: pure rules, over what this replica knows of its health and what the book says."""

from datetime import datetime, timedelta

from gateway.fleet.deployment import Deployment
from gateway.probe_records import Facts, NotProbed
from gateway.settings.probes import ProbeSettings
from gateway.steering.health import Health, State
from providers.prices import Price

HEADROOM = 0.25  # below this share of its rate limit, what is left is for calls
MAX_DOUBLINGS = 6  # of the wait after failures in a row
MAX_WAIT_S = 86_400.0
OVERHEAD_TOKENS = 64  # what a provider may add to a prompt: a template, a system prompt of its own

_STATES = {
    State.OUT: NotProbed.OUT,
    State.COOLING: NotProbed.COOLING,
    State.OPEN: NotProbed.BROKEN,
    State.HALF_OPEN: NotProbed.BROKEN,
}


def wait_s(quiet_s: float, failures: int) -> float:
    """Return the seconds from one probe of a deployment to its next, after so many failed ones in a row."""
    return min(max(quiet_s, MAX_WAIT_S), quiet_s * 2.0 ** min(failures, MAX_DOUBLINGS))


def unwell(health: Health, quiet_s: float, now_s: float) -> NotProbed | None:
    """Return why a deployment of this health gets no probe at ``now_s``; None: nothing this replica knows of."""
    condition = health.condition(now_s)
    if condition.state in _STATES:
        return _STATES[condition.state]
    if health.tripped:  # let in on trial: calls try it, and probes of theirs close the breaker
        return NotProbed.BROKEN
    if condition.in_flight or now_s - condition.asked_at_s < quiet_s:
        return NotProbed.IN_USE
    return NotProbed.HEADROOM if condition.headroom < HEADROOM else None


def most_usd(deployment: Deployment, body_bytes: int, settings: ProbeSettings) -> float | None:
    """Return the most that a probe with a body of this size can cost, US dollars; None if it is unknown.

    A token has a byte at least.
    """
    price = deployment.price
    if price is None:
        return settings.usd_if_unknown
    return _most_of(price.input_usd, price.cache_write_usd) * (body_bytes + OVERHEAD_TOKENS) + _answer(price, settings)


def refusal(facts: Facts, settings: ProbeSettings, cost_usd: float, now: datetime) -> NotProbed | None:
    """Return why the book allows no probe that costs ``cost_usd`` at most; None if it does."""
    if facts.is_broken:
        return NotProbed.BROKEN
    if facts.called_at is not None and facts.called_at > now - timedelta(seconds=settings.quiet_s):
        return NotProbed.IN_USE
    pause = timedelta(seconds=wait_s(settings.quiet_s, facts.failures))
    if facts.probed_at is not None and facts.probed_at > now - pause:
        return NotProbed.BACKED_OFF if facts.failures else NotProbed.IN_USE
    if facts.probes >= settings.max_per_day:
        return NotProbed.NUMBER
    return NotProbed.MONEY if facts.spent_usd + cost_usd > settings.usd_per_day else None


def _answer(price: Price, settings: ProbeSettings) -> float:
    return _most_of(price.output_usd, price.reasoning_usd) * settings.max_tokens


def _most_of(usd: float, other_usd: float | None) -> float:
    return max(usd, other_usd or 0.0)
