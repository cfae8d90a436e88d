"""The limits of a client: of requests, tokens, parallel calls and dollars."""

from typing import Annotated

from pydantic import Field

from gateway.settings.section import Section


class LimitSettings(Section):
    """What a client may use, over all its keys and all replicas. None: no limit. docs/limits.md has the rules."""

    rpm: Annotated[int, Field(ge=1)] | None = None  # requests in a minute of the clock
    tpm: Annotated[int, Field(ge=1)] | None = None  # tokens in a minute: prompts and answers, without losers
    max_parallel: Annotated[int, Field(ge=1)] | None = None  # calls at the same time
    usd_per_day: Annotated[float, Field(ge=0)] | None = None  # in a UTC day, at list price, losers included
    usd_per_month: Annotated[float, Field(ge=0)] | None = None  # likewise in a UTC month

    @property
    def by_name(self) -> dict[str, float]:
        """The limits that are set."""
        limits = {name: getattr(self, name) for name in LimitSettings.model_fields}
        return {name: float(limit) for name, limit in limits.items() if limit is not None}
