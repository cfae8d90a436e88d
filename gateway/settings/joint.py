"""A comma list of models, used as one: all their deployments, with the strictest of their limits."""

from collections.abc import Sequence

from gateway.errors import InvalidRequest
from gateway.settings.model import ModelSettings


def joined(models: Sequence[ModelSettings]) -> ModelSettings:
    """Return ``models`` as one model with the race of the first. A list must not circumvent a model's limits.

    Raises:
        InvalidRequest: they have different system prefixes.

    """
    first = models[0]
    if any(model.system_prefix != first.system_prefix for model in models):
        raise InvalidRequest("these models have different system prefixes: use one at a time", param="model")
    maximums: dict[str, float] = {}
    for model in models:
        for name, most in model.maximums.items():
            maximums[name] = min(most, maximums.get(name, most))
    daily = [model.race.usd_per_day for model in models if model.race.usd_per_day is not None]
    per_call = [model.race.extra_usd_per_call for model in models if model.race.extra_usd_per_call is not None]
    all_calls = [model.usd_per_day for model in models if model.usd_per_day is not None]
    limits = {
        "budget": min(model.race.budget for model in models),
        "usd_per_day": min(daily, default=None),
        "extra_usd_per_call": min(per_call, default=None),
        "audit_share": min(model.race.audit_share for model in models),
    }
    return first.model_copy(
        update={
            "deployments": tuple({each.name: each for model in models for each in model.deployments}.values()),
            "race": first.race.model_copy(update=limits),
            "maximums": maximums,
            "usd_per_day": min(all_calls, default=None),
        }
    )
