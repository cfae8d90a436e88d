"""What was spent before the start, as quotas know it."""

from collections.abc import Iterable

from gateway.calls import Spent
from gateway.limits.account import owner_of_client, owner_of_model
from gateway.limits.windows import day, month


def spent_by_quota(rows: Iterable[Spent], unix_s: float) -> dict[str, float]:
    """Return the US dollars by the key of the quota that counts them."""
    found: dict[str, float] = {}
    today, this_month = day(unix_s).name, month(unix_s).name
    for row in rows:
        for owner in (owner_of_client(row.client), owner_of_model(row.model)):
            for key, usd in (
                (f"{owner}:usd_per_day:{today}", row.day_usd),
                (f"{owner}:usd_per_month:{this_month}", row.month_usd),
            ):
                found[key] = found.get(key, 0.0) + usd
    return found
