"""What the metrics read from the parts of a gateway, each time they are rendered."""

import asyncio
from typing import TYPE_CHECKING, Any

from gateway.ingress.wrong_keys import WrongKeys
from gateway.keys.keys import Keys
from gateway.ledger.writer import Ledger
from gateway.limits.leases import Leases
from gateway.live.live import Live
from gateway.overload.bodies import Bodies
from gateway.overload.intake import Intake
from gateway.racing.seats import Seats
from gateway.tracing.tracing import Tracing
from gateway.watching.logs import CallLog
from gateway.watching.metrics import Metrics

if TYPE_CHECKING:
    from gateway.live.sharing import Sharing
    from gateway.steering.redis_board import RedisBoard


def add_gauges(
    metrics: Metrics,
    *,
    ledger: Ledger,
    board: "RedisBoard | None",
    log: CallLog,
    seats: Seats,
    wrong_keys: WrongKeys,
    leases: Leases,
    keys: Keys[Any],
    intake: Intake,
    bodies: Bodies,
    live: Live,
    live_sharing: "Sharing | None",
    tracing: Tracing,
) -> None:
    """Add the gauges, and the counters that are kept elsewhere, of these parts to ``metrics``."""
    _add_ledger(metrics, ledger)
    _add_intake(metrics, intake)
    _add_bodies(metrics, bodies)
    metrics.gauge("holeshot_live_viewers", "Open live streams (/api/live).", lambda: live.viewers)
    if board is not None:
        metrics.counter(
            "holeshot_redis_ignored_total",
            "Values in Redis that no gateway can have written.",
            lambda: board.ignored + (0 if live_sharing is None else live_sharing.foreign.ignored),
        )
    metrics.counter(
        "holeshot_log_lines_dropped_total",
        "Log lines that were dropped because no process read them in time.",
        lambda: log.dropped,
    )
    metrics.counter(
        "holeshot_spans_dropped_total",
        "Spans that were not exported: the collector was away or too slow, or refused them.",
        lambda: tracing.dropped,
    )
    metrics.gauge(
        "holeshot_limits_away",
        "Workers that cannot reach Redis for the limits of clients and models: each allows its own share.",
        lambda: not leases.connected,
    )
    metrics.gauge(
        "holeshot_keys_stale_s",
        "Seconds since the database last told which keys there are: 0 up to five; of all workers together.",
        lambda: keys.stale_s,
    )
    metrics.gauge("holeshot_waiting_calls", "Calls that wait under max_in_flight.", lambda: seats.waiting)
    metrics.gauge("holeshot_tasks", "Tasks of the event loop.", lambda: len(asyncio.all_tasks()))
    _add_wrong_keys(metrics, wrong_keys)


def _add_ledger(metrics: Metrics, ledger: Ledger) -> None:
    metrics.gauge("holeshot_ledger_pending", "Calls not yet in SQL.", lambda: ledger.pending)
    metrics.gauge(
        "holeshot_ledger_lost", "Calls that could be written neither to disk nor to SQL.", lambda: ledger.lost
    )
    metrics.gauge(
        "holeshot_ledger_expired",
        "Rows that were older than the retention when they arrived.",
        lambda: ledger.expired,
    )
    metrics.gauge("holeshot_ledger_rejected", "Calls that the database refused.", lambda: ledger.rejected)
    metrics.gauge(
        "holeshot_ledger_away",
        "Workers whose database does not answer; rows wait in their spools.",
        lambda: not ledger.connected,
    )
    metrics.gauge(
        "holeshot_ledger_spool_failing",
        "Workers whose spool is deleted or full: rows not yet in SQL would be lost with them.",
        lambda: ledger.spool_problem is not None,
    )


def _add_wrong_keys(metrics: Metrics, wrong_keys: WrongKeys) -> None:
    metrics.gauge(
        "holeshot_guessing_addresses",
        "Addresses with so many wrong keys that answers to more of them are delayed.",
        lambda: wrong_keys.guessing(asyncio.get_running_loop().time()),
    )
    metrics.gauge("holeshot_waiting_refusals", "Answers to wrong keys that wait now.", lambda: wrong_keys.waiting)
    metrics.counter(
        "holeshot_delayed_refusals_total", "Answers to wrong keys that have waited.", lambda: wrong_keys.delayed
    )
    metrics.counter(
        "holeshot_undelayed_refusals_total",
        "Answers to wrong keys that should have waited, and were sent at once because too many did.",
        lambda: wrong_keys.at_once,
    )


def _add_bodies(metrics: Metrics, bodies: Bodies) -> None:
    metrics.gauge("holeshot_body_bytes", "Bytes of long request bodies in memory, unpacked.", lambda: bodies.size)
    metrics.gauge(
        "holeshot_body_bytes_limit", "Bytes of long request bodies there is memory for.", lambda: bodies.most_bytes
    )
    metrics.gauge("holeshot_unfinished_bodies", "Request bodies that are still arriving.", lambda: bodies.unfinished)
    metrics.counter(
        "holeshot_cut_bodies_total",
        "Unfinished request bodies that were cut to make room for those of others.",
        lambda: bodies.cut,
    )


def _add_intake(metrics: Metrics, intake: Intake) -> None:
    delay = intake.delay
    metrics.gauge("holeshot_calls_in_flight", "Calls with a seat.", lambda: intake.in_flight)
    metrics.gauge("holeshot_calls_queued", "Calls that wait for a seat.", lambda: intake.waiting)
    metrics.gauge("holeshot_calls_limit", "Calls that may be in flight now.", lambda: intake.limit.now)
    metrics.gauge(
        "holeshot_loop_delay_seconds",
        "How late the event loop is, smoothed over 0.2 seconds; of all workers together.",
        lambda: delay.smoothed_s,
    )
    metrics.gauge(
        "holeshot_loop_delay_peak_seconds",
        "The longest delay of the event loop in the last ten to twenty seconds; of all workers together.",
        delay.peak_s,
    )
    metrics.counter(
        "holeshot_loop_delay_seconds_total", "The sum of all delays of the event loop.", lambda: delay.total_s
    )
