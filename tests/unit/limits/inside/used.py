"""What the ledger tells at a start, for tests."""

from gateway.core.calls import LimitUse
from gateway.limits.windows import day, month


def used(
    unix_s: float, day_usd: float, month_usd: float, *, client: str | None = None, model: str | None = None
) -> list[LimitUse]:
    """Return what a client or a model has spent in the UTC day and month around ``unix_s``: a row for each begin.

    On the first of a month both begin at once, and the month's row is all that the ledger tells.
    """
    usd_since = {day(unix_s).starts_s: day_usd, month(unix_s).starts_s: month_usd}
    return [LimitUse(since_s, usd, client=client, model=model) for since_s, usd in usd_since.items()]
