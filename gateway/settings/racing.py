"""Whether a model can race, and why not, on one line: for ``init``, ``check`` and ``serve``."""

from collections.abc import Mapping, Sequence

import msgspec

from gateway.core.modes import Mode
from gateway.settings.deployment import DeploymentSettings
from gateway.settings.model import ModelSettings, Settings


class CanRace(msgspec.Struct, frozen=True):
    """Whether a model can race; ``why``: the model's deployments that race, or why they do not."""

    races: bool
    why: str

    def __str__(self) -> str:
        return f"{'can' if self.races else 'cannot'} race: {self.why}"


def who_can_race(settings: Settings) -> Mapping[str, CanRace]:
    """Return whether each model can race, by its name."""
    return {name: can_race(model) for name, model in settings.models.items()}


def can_race(model: ModelSettings) -> CanRace:
    """Return whether calls of ``model`` can have a second attempt beside the first."""
    racers = [each for each in model.deployments if each.enabled and each.canary is None]
    why_not = _why_not(model, racers)
    if why_not:
        others = ", ".join(fallback.model for fallback in model.fallbacks)
        instead = f"; if it fails or is late, its fallback answers ({others})" if others else ""
        return CanRace(races=False, why=f"{why_not}{instead}")
    providers = dict.fromkeys(each.deployment.partition("/")[0] for each in racers)
    who = f"{len(racers)} deployments at {', '.join(providers)}" if len(racers) > 1 else "with itself"
    return CanRace(races=True, why=f"{who}; extra attempts per call: {model.race.budget:g}")


def _why_not(model: ModelSettings, racers: Sequence[DeploymentSettings]) -> str:
    """Return why no second attempt can start; empty if one can."""
    if not any(each.enabled for each in model.deployments):
        return "all its deployments are disabled"
    if not racers:
        return "its deployments are canaries, which get their share of calls and no others"
    if model.race.mode is Mode.SINGLE:
        return "its race.mode is single"
    if not model.race.budget:
        return "its race.budget is 0"
    if len(racers) == 1 and model.race.mode is Mode.AUTO:
        advice = ": add another, or set race.mode: hedge to ask it again when it is late"
        return f"it has one deployment{'' if model.fallbacks else advice}"
    return ""
