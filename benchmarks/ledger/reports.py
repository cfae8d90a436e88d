"""What each view of the page asks of a large ledger, and how long that takes."""

import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial

from gateway.core.reports import By, CallsWanted, Ended, HeatMetric, HeatWanted, HistoryWanted, Window
from gateway.ledger import LedgerReports, Reader, Replays

GOAL_MS = 500.0  # of what a view shows first: a page of fifty, or a day
Ask = Callable[[], Awaitable[object]]


def open_reports(url: str) -> LedgerReports:
    """Return the reports of a ledger, of which nothing is in memory."""
    return LedgerReports(
        Reader(url, timeout_s=60.0),
        replays=Replays(url, clock=time.monotonic),
        unshipped=tuple,
        running=lambda _: None,
        utc_now=lambda: datetime.now(UTC),
        clock=time.monotonic,
        kept_s=0.0,
    )


async def asked(reports: LedgerReports) -> Mapping[str, Ask]:
    """Return what is asked, by its address in the API. Names are those of ``rows``."""

    def calls(window: Window | None = Window.DAY, **wanted: object) -> Ask:
        return partial(reports.calls, CallsWanted(window=window, limit=50, **wanted))  # type: ignore[arg-type] # each fits

    newest = (await reports.calls(CallsWanted(window=Window.MONTH, limit=50))).rows
    call_id = str(newest[-1]["id"])
    return {
        "calls": calls(),
        "calls?window=30d": calls(Window.MONTH),
        "calls?model=model-1": calls(model="model-1"),
        "calls?client=client-1": calls(client="client-1"),
        "calls?deployment=provider-1/m": calls(deployment="provider-1/m"),
        "calls?tag=variant:a": calls(tag=("variant", "a")),
        "calls?outcome=failed": calls(outcome=Ended.FAILED),
        "calls?error=all_failed": calls(error="all_failed"),
        "calls?slower_than_ms=490": calls(slower_than_ms=490.0),
        "calls?request_id=req-77 (of all time)": calls(None, request_id="req-77"),
        "calls?model=nobody (none is found)": calls(model="nobody"),
        "calls?model=nobody&window=30d (none is found)": calls(Window.MONTH, model="nobody"),
        "calls?slower_than_ms=1e6&window=30d (none is found)": calls(Window.MONTH, slower_than_ms=1e6),
        "calls?deployment=nobody&window=30d (none is found)": calls(Window.MONTH, deployment="nobody"),
        "calls?tag=variant:none&window=30d (none is found)": calls(Window.MONTH, tag=("variant", "none")),
        "calls/{id}": partial(reports.call, call_id),
        **{
            f"history?window={window}{name}": partial(reports.history, HistoryWanted(window=window, model=model))
            for window in Window
            for name, model in (("", None), ("&model=model-1", "model-1"))
        },
        "history?client=client-1": partial(reports.history, HistoryWanted(window=Window.DAY, client="client-1")),
        "history?client=client-1&window=7d": partial(
            reports.history, HistoryWanted(window=Window.WEEK, client="client-1")
        ),
        **{
            f"heat?metric={metric}&window={window}": partial(reports.heat, HeatWanted(metric=metric, window=window))
            for metric in (HeatMetric.TTFT_P50, HeatMetric.ERROR_RATE)
            for window in (Window.WEEK, Window.MONTH)
        },
        **{
            f"race-value?by={by}&window={window}": partial(reports.race_value, window, by)
            for by in By
            for window in Window
        },
        **{f"refusals?window={window}": partial(reports.refusals, window) for window in Window},
        **{f"usage?window={window}": partial(reports.usage, window) for window in Window},
        "usage (spent this month)": reports.spent,
        "session (any calls)": reports.has_calls,
    }
