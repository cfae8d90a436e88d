"""The settings of probes: the gateway's own small calls to deployments that get no calls."""

from typing import Annotated

from pydantic import Field

from gateway.settings.section import Section


class ProbeSettings(Section):
    """Which deployments are probed, and what that may cost, of all replicas together."""

    enabled: bool = False  # of all models; a model may say otherwise
    quiet_s: Annotated[float, Field(ge=1, le=604_800)] = 900.0  # without an attempt for so long, it is probed
    usd_per_day: Annotated[float, Field(ge=0)] = 0.10  # the most that they cost in a UTC day
    max_per_day: Annotated[int, Field(ge=0)] = 500  # the most in a UTC day
    prompt: Annotated[str, Field(min_length=1, max_length=500)] = "Count from one to twenty, in words."
    max_tokens: Annotated[int, Field(ge=1, le=256)] = 16  # of an answer: enough for a first token and some speed
    # What a probe counts as where no price is known; default: such deployments are not probed.
    usd_if_unknown: Annotated[float, Field(ge=0)] | None = None
