"""Targets: which share of which calls is to be answered, how soon and how fast."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from gateway.settings.profiles import PROFILES, Profile
from gateway.settings.section import Section
from gateway.targets.target import Definition, Target

SOONEST_TTFT_MS = 10.0  # the first bucket of the leaderboard: no provider answers earlier
FASTEST_TOK_S = 5000.0  # a faster answer counts as one burst, and says nothing about speed
_PRESETS: Mapping[str, str] = MappingProxyType({"tok_s": "min_tok_s", "ttft_ms": "ttft_ms"})


class TargetSettings(Section):
    """One target. Its calls are those of ``model``, ``client`` and ``profile``, as far as these are set."""

    model: str | None = None  # as clients name it, whichever deployment answers
    client: str | None = None
    profile: Profile | None = None  # calls that are raced under it
    preset: Profile | None = None  # whose speeds are wanted; default: those of ``profile``
    # The share of calls that are to be good. What is left of 1 is the error budget.
    objective: Annotated[float, Field(json_schema_extra={"exclusiveMinimum": 0, "exclusiveMaximum": 1})] = 0.99
    days: Annotated[int, Field(ge=1, le=90)] = 28  # over how long
    # What a good call is, besides answered: all that is set here. With a preset, what it says is set.
    ttft_ms: float | None = None  # the first token comes sooner
    tok_s: float | None = None  # at least, after the first token
    gap_ms: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None  # the longest between two chunks

    @model_validator(mode="before")
    @classmethod
    def _start_from_the_preset(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        preset = value.get("preset") or value.get("profile")
        if not isinstance(preset, str) or preset not in PROFILES:
            return value
        wanted = PROFILES[Profile(preset)]
        known = {name: wanted[setting] for name, setting in _PRESETS.items() if setting in wanted}
        return known | {key: entry for key, entry in value.items() if entry is not None}

    @field_validator("objective")
    @classmethod
    def _leave_a_budget(cls, value: float) -> float:
        if value == 1:
            raise ValueError("1 leaves no error budget, so it is missed by the first bad call: write 0.999, or less")
        if 1 < value < 100:  # noqa: PLR2004 - per cent
            raise ValueError(f"is a share, not per cent: write {value / 100:g}")
        if not 0 < value < 1:
            raise ValueError("must be a share between 0 and 1, like 0.99")
        return value

    @field_validator("ttft_ms")
    @classmethod
    def _be_possible(cls, value: float | None) -> float | None:
        if value is not None and not SOONEST_TTFT_MS <= value < float("inf"):
            raise ValueError(f"{value:g} cannot be met: no first token is measured below {SOONEST_TTFT_MS:g} ms")
        return value

    @field_validator("tok_s")
    @classmethod
    def _be_a_speed(cls, value: float | None) -> float | None:
        if value is not None and value <= 0:
            raise ValueError("must be more than 0")
        if value is not None and not value <= FASTEST_TOK_S:
            raise ValueError(f"{value:g} cannot be met: above {FASTEST_TOK_S:g} tok/s an answer counts as a burst")
        return value

    def named(self, name: str) -> Target:
        """Return it as the target ``name``."""
        profile = None if self.profile is None else str(self.profile)
        definition = Definition(self.model, self.client, profile, self.ttft_ms, self.tok_s, self.gap_ms)
        return Target(name, definition, self.objective, self.days)


def targets_of(slo: Mapping[str, TargetSettings]) -> Sequence[Target]:
    """Return the targets of the settings, in the order of the file."""
    return [each.named(name) for name, each in slo.items()]
