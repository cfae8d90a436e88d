"""What a planned call will probably use of its limits, and which model pays for it."""

from gateway.ingress.entry import Entry
from gateway.limits.limits import Payer, Use


def payer_of(entry: Entry) -> Payer:
    """Return the model of ``entry`` as limits see it."""
    model = entry.model
    return Payer(model.name, model.payer or model.name, model.usd_per_day, model.dearest)


def use_of(entry: Entry) -> Use:
    """Return the expected use, not the largest possible one: that would keep a client far from its limits."""
    plan, prompt_tokens = entry.plan, entry.call.prompt_tokens
    usd, costs = 0.0, plan.cost_usd
    if costs:
        for launch in plan.launches:
            if launch.delay_s == 0:
                usd += costs.get(launch.deployment, 0.0)
    return Use(prompt_tokens, prompt_tokens + plan.answer_tokens, usd)
