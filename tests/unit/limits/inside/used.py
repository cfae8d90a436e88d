"""What the ledger tells at a start, for tests."""

from gateway.core.calls import Used
from gateway.limits.windows import day, month


def used(
    unix_s: float, day_usd: float, month_usd: float, *, client: str | None = None, model: str | None = None
) -> list[Used]:
    """Return what a client or a model has spent in the UTC day and month around ``unix_s``."""
    windows = ((day, day_usd), (month, month_usd))
    return [Used(window(unix_s).starts_s, usd, client=client, model=model) for window, usd in windows]
