"""The limits of a client: of requests, tokens, parallel calls and dollars."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from gateway.settings.section import Section


def _no_switch(value: object) -> object:
    """Refuse true and false, which would be read as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")  # noqa: TRY004 - pydantic reports a ValueError
    return value


_MOST = 1_000_000_000_000  # a number that no client reaches, and that every store takes
_Number = Annotated[int, BeforeValidator(_no_switch), Field(ge=1, le=_MOST)]
_Dollars = Annotated[float, BeforeValidator(_no_switch), Field(ge=0, le=_MOST, allow_inf_nan=False)]


class LimitSettings(Section):
    """What a client may use, over all its keys and all replicas. None: no limit. docs/limits.md has the rules."""

    rpm: _Number | None = None  # requests in a minute of the clock
    tpm: _Number | None = None  # tokens in a minute: prompts and answers, without losers
    max_parallel: _Number | None = None  # calls at the same time
    usd_per_day: _Dollars | None = None  # in a UTC day, at list price, losers included
    usd_per_month: _Dollars | None = None  # likewise in a UTC month

    @property
    def by_name(self) -> dict[str, float]:
        """The limits that are set."""
        limits = {name: getattr(self, name) for name in LimitSettings.model_fields}
        return {name: float(limit) for name, limit in limits.items() if limit is not None}
