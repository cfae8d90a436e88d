"""What clients read about limits: headers with what is left, and errors of calls beyond a limit."""

from collections.abc import Collection, Iterable
from math import ceil, inf

from multidict import istr

from gateway.core.errors import ApiError, InvalidRequest
from gateway.limits.accounts import NAMES
from gateway.limits.quota import LEAST_USD, ROUNDING, Quota
from gateway.limits.windows import DOLLARS, ESTIMATED, IN_WORDS, REMEMBERED
from providers import Meaning

# The response headers in which OpenAI's API reports what is left of a minute's limits.

_LIMIT = {name: istr(f"x-ratelimit-limit-{unit}") for name, unit in NAMES.items()}
_REMAINING = {name: istr(f"x-ratelimit-remaining-{unit}") for name, unit in NAMES.items()}
_RESET = {name: istr(f"x-ratelimit-reset-{unit}") for name, unit in NAMES.items()}


def rate_headers(quotas: Iterable[Quota], unix_s: float) -> dict[str, str]:
    """Return the headers for quotas of requests and of tokens: for each kind, the quota with the least left."""
    least: dict[str, tuple[float, Quota]] = {}
    for quota in quotas:
        left = quota.left
        best = least.get(quota.name)
        if best is None or left < best[0]:
            least[quota.name] = left, quota
    headers: dict[str, str] = {}
    for name, (left, quota) in least.items():
        headers[_LIMIT[name]] = f"{quota.limit:.0f}"
        headers[_REMAINING[name]] = f"{int(left)}"
        headers[_RESET[name]] = f"{max(1, ceil(quota.window.ends_s - unix_s))}s"
    return headers


# The error of a call beyond a limit, in the words of OpenAI's API.

RETRY_PARALLEL_S = RETRY_HELD_S = 1.0  # another call of the client may have ended by then


class LimitReached(ApiError):
    """A limit of the client, or of the model, leaves nothing for this call."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    meaning = Meaning.RATE
    final = ""  # appended to the message: some programs stop at these words

    def __init__(
        self,
        quota: Quota,
        whose: str,
        unix_s: float,
        *,
        of_model: bool,
        amount: float = inf,
        most: float = inf,
        message: str | None = None,
    ) -> None:
        """``amount`` and ``most``: as for ``limit_reached``."""
        retry_s, is_too_large = retry_after_s(quota, unix_s), _is_too_large(quota, amount)
        has_end = retry_s < inf and not is_too_large
        super().__init__(
            message or _beyond(quota, whose, amount, most, retry_s) + ("" if is_too_large else self.final),
            headers={"retry-after": str(ceil(retry_s))} if has_end else {},
        )
        self.limit = quota.name
        self.quota = quota
        self.of_model = of_model


class BudgetSpent(LimitReached):
    """A limit for an hour or longer is reached. Type and code are OpenAI's for a spent budget."""

    # Means: The client, or the model, has used up its limit in US dollars or tokens of the hour, day, week or month, or
    # in all, or this call needs more than is left. The message says how much is left, what the call needs, and what
    # would make it pass.
    # Retry: no.
    # Caller: Do what the message says: ask for fewer tokens, wait until then, or ask the operator for a higher limit.
    # Operator: Raise the limit that the message names ([limits](../limits.md)). `GET /api/usage` shows who has spent
    # what.
    type = "insufficient_quota"
    code = "insufficient_quota"
    meaning = Meaning.SPENT
    # Without these words, Qwen Code (0.24.4: isQuotaExhaustedError of packages/core/src/utils/quotaErrorDetection.ts)
    # waits for all of ``retry-after``, and tries for minutes; pi (1.6.0) tries for long, too.
    final = ": quota exceeded, it will reset then"

    def __init__(
        self, quota: Quota, whose: str, unix_s: float, *, of_model: bool, amount: float = inf, most: float = inf
    ) -> None:
        super().__init__(quota, whose, unix_s, of_model=of_model, amount=amount, most=most)
        self.headers["x-should-retry"] = "false"  # OpenAI's SDKs would retry twice, in vain


class LimitHeld(LimitReached):
    """Running calls hold what is left of a limit in dollars or tokens."""

    # Unused dollars and tokens are free again when those calls end: so the code is that of a limit with room soon.

    def __init__(self, quota: Quota, whose: str, unix_s: float, *, of_model: bool) -> None:
        message = (
            f"what is left of the limit of {quota.limit:g} {IN_WORDS[quota.name]} ({quota.name}) of {whose} is held for"
            " running calls, which may use it; try again in a second, or ask for fewer tokens (max_tokens)"
        )
        super().__init__(quota, whose, unix_s, of_model=of_model, message=message)
        self.headers["retry-after"] = str(ceil(RETRY_HELD_S))


class LargerThanLimit(InvalidRequest):
    """A prompt that is larger than the client's limit for a minute."""

    # Means: The prompt has more tokens than the key, its team or its end user may use in a minute (`tpm`).
    # Retry: no.
    # Caller: Shorten the prompt, or ask the operator for a higher limit.
    # Operator: Raise `tpm` of whom the message names ([limits](../limits.md)).
    code = "tokens_exceed_limit"

    def __init__(self, tokens: float, limit: float, whose: str) -> None:
        super().__init__(
            f"the prompt has about {tokens:,.0f} tokens, more than {whose} may use in a minute (tpm: {limit:,.0f}); "
            "shorten it, or ask the operator for a higher limit"
        )


def limit_reached(
    quota: Quota, whose: str, unix_s: float, *, of_model: bool = False, amount: float = inf, most: float = inf
) -> LimitReached:
    """Return the error for a quota with less left than ``amount``; ``whose`` is the subject of the message.

    ``most``: what the call may cost, or use, if known.
    """
    if quota.name in ESTIMATED and quota.unspent + ROUNDING >= amount:
        return LimitHeld(quota, whose, unix_s, of_model=of_model)
    kind = BudgetSpent if quota.name in REMEMBERED else LimitReached
    return kind(quota, whose, unix_s, of_model=of_model, amount=amount, most=most)


def longest(refusals: Collection[LimitReached], unix_s: float) -> LimitReached:
    """Return the refusal by the limit that will be the last to have something left."""
    return max(
        refusals, key=lambda each: RETRY_HELD_S if isinstance(each, LimitHeld) else retry_after_s(each.quota, unix_s)
    )


def _is_too_large(quota: Quota, amount: float) -> bool:
    """Whether a call needs more than the whole limit, so that a wait is in vain."""
    return quota.name in ESTIMATED and quota.limit + ROUNDING < amount < inf


def _beyond(quota: Quota, whose: str, amount: float, most: float, retry_s: float) -> str:
    """Return what is left of a limit, what the call needs, as far as known, and what would let the call pass."""
    limit = f"its limit of {quota.limit:g} {IN_WORDS[quota.name]} ({quota.name})"
    when = f"try again in {_spoken(retry_s)}" if retry_s < inf else "ask the operator for a higher limit"
    if _is_too_large(quota, amount):
        return (
            f"{whose} has {limit}, and this call alone needs about {_rounded(amount)}; ask for fewer tokens"
            " (max_tokens), shorten the prompt, or ask the operator for a higher limit"
        )
    # Other processes may have something left: their parts of what was unused at the start.
    is_part = (
        quota.name in ESTIMATED and quota.lease.is_share and quota.top + ROUNDING < quota.limit - quota.elsewhere.used
    )
    if is_part:
        return f"{whose} has used this process's part of {limit}; {when}"
    left = quota.unspent if quota.name in ESTIMATED else 0.0
    if amount < inf and left >= (LEAST_USD if quota.name in DOLLARS else 1.0):
        may = f"may {'cost' if quota.name in DOLLARS else 'use'} {_rounded(most if most < inf else amount)}"
        return (
            f"{whose} has {_rounded(left)} left of {limit}, and this call {may}; ask for fewer tokens (max_tokens),"
            f" shorten the prompt, or {when}"
        )
    return f"{whose} has reached {limit}; {when}"


def _rounded(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.3g}"  # noqa: PLR2004 - a thousand: tokens, or many dollars


def retry_after_s(quota: Quota, unix_s: float) -> float:
    """Return the seconds until something is left again."""
    return RETRY_PARALLEL_S if quota.name == "max_parallel" else max(1.0, quota.window.ends_s - unix_s)


def _spoken(seconds: float) -> str:
    hours, rest = divmod(ceil(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    if hours >= 48:  # noqa: PLR2004 - two days
        return f"{hours // 24} days"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
