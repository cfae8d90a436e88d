"""The error of a call beyond a limit, in the words of OpenAI's API."""

from math import ceil

from gateway.errors import ApiError, InvalidRequest
from gateway.limits.quota import Quota
from gateway.limits.windows import DOLLARS

_UNITS = {
    "rpm": "requests a minute",
    "tpm": "tokens a minute",
    "max_parallel": "calls at the same time",
    "usd_per_day": "US dollars a day",
    "usd_per_month": "US dollars a month",
}
RETRY_PARALLEL_S = 1.0  # another call of the client may have ended by then


class LimitReached(ApiError):
    """A limit of the client, or of the model, leaves nothing for this call."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"

    def __init__(self, quota: Quota, whose: str, unix_s: float, *, of_model: bool) -> None:
        retry_s = retry_after_s(quota, unix_s)
        super().__init__(
            f"{whose} has reached its limit of {quota.limit:g} {_UNITS[quota.name]} ({quota.name}); "
            f"try again in {_spoken(retry_s)}",
            headers={"retry-after": str(ceil(retry_s))},
        )
        self.limit = quota.name
        self.of_model = of_model


class BudgetSpent(LimitReached):
    """A limit in dollars is reached. Type and code are OpenAI's for that."""

    type = "insufficient_quota"
    code = "insufficient_quota"

    def __init__(self, quota: Quota, whose: str, unix_s: float, *, of_model: bool) -> None:
        super().__init__(quota, whose, unix_s, of_model=of_model)
        self.headers["x-should-retry"] = "false"  # OpenAI's SDKs would retry twice, in vain


class LargerThanLimit(InvalidRequest):
    """A prompt that no minute of the client has room for."""

    code = "tokens_exceed_limit"

    def __init__(self, tokens: float, limit: float) -> None:
        super().__init__(
            f"the prompt has about {tokens:,.0f} tokens, more than this key may use in a minute (tpm: {limit:,.0f}); "
            "shorten it, or ask the operator for a higher limit"
        )


def limit_reached(quota: Quota, whose: str, unix_s: float, *, of_model: bool) -> LimitReached:
    """Return the error for a quota with too little left; ``whose`` begins its message."""
    kind = BudgetSpent if quota.name in DOLLARS else LimitReached
    return kind(quota, whose, unix_s, of_model=of_model)


def retry_after_s(quota: Quota, unix_s: float) -> float:
    """Return the seconds until there is something left again."""
    return RETRY_PARALLEL_S if quota.name == "max_parallel" else max(1.0, quota.window.ends_s - unix_s)


def _spoken(seconds: float) -> str:
    hours, rest = divmod(ceil(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    if hours >= 48:  # noqa: PLR2004 - two days
        return f"{hours // 24} days"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
